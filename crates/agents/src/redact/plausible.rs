//! What a value must look like to be somebody's secret.

/// Words people write where a secret will be.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "pass",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "key",
    "apikey",
    "api_key",
    "api-key",
    "mytoken",
    "mysecret",
    "mypassword",
    "credentials",
    "changeme",
    "changeit",
    "change_me",
    "change-me",
    "replaceme",
    "replace_me",
    "replace-me",
    "placeholder",
    "example",
    "sample",
    "dummy",
    "redacted",
    "hidden",
    "masked",
    "removed",
    "omitted",
    "todo",
    "tbd",
    "fixme",
    "none",
    "null",
    "nil",
    "undefined",
    "unset",
    "empty",
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "string",
    "str",
    "text",
    "number",
    "boolean",
    "bool",
    "object",
    "bytes",
    "any",
    "unknown",
    "option",
    "required",
    "optional",
    "enabled",
    "disabled",
    "default",
    "invalid",
    "missing",
    "expired",
    "bearer",
    "basic",
    "inherit",
    "postgres",
    "root",
    "admin",
    "user",
    "test",
    "foo",
    "bar",
    "baz",
    "foobar",
];

/// How placeholders begin.
const BEGINNINGS: &[&str] = &[
    "your",
    "my-",
    "my_",
    "insert",
    "replace",
    "enter-",
    "enter_",
    "<",
    "{{",
    "${",
    "$(",
    "$",
    "%(",
    "%{",
    "#{",
    "@{",
    "[redacted",
    "***",
    "...",
    "…",
    "•",
    "env:",
    "env.",
    "process.env",
    "os.environ",
    "os.getenv",
    "getenv",
    "import.meta",
    "secrets.",
    "vars.",
    "var.",
    "local.",
    "self.",
    "this.",
    "config.",
    "settings.",
    "vault:",
    "op://",
    "arn:",
    "ref+",
    "file:",
    "sm://",
    "keychain:",
];

/// Whether a value only stands for one: `changeme`, `${VAR}`, `<token>`, `xxx`, `[redacted:…]`.
pub(super) fn is_placeholder(value: &str) -> bool {
    let value = value.trim();
    let lower = value.to_ascii_lowercase();
    // `[redacted` as far as a rule's own alphabet lets it see it.
    let marked = lower.contains("redacted");
    let filler = |it: char| "x*.-_#?0•…".contains(it);
    let wrapped = [("<", ">"), ("{", "}"), ("[", "]"), ("%", "%"), ("__", "__")];
    value.is_empty()
        || marked
        || lower.chars().all(filler)
        || WORDS.contains(&lower.as_str())
        || BEGINNINGS.iter().any(|it| lower.starts_with(it))
        || (wrapped.iter()).any(|(open, close)| value.starts_with(open) && value.ends_with(close))
        || ["-here", "_here", "-goes-here"]
            .iter()
            .any(|it| lower.ends_with(it))
}

/// Whether it is long and mixed enough to have been made by a machine.
pub(super) fn is_strong(value: &str) -> bool {
    value.len() >= 16
        && has_digit(value)
        && has_letter(value)
        && !is_reference(value)
        && bits_per_character(value) >= 3.0
}

pub(super) fn has_digit(value: &str) -> bool {
    value.bytes().any(|it| it.is_ascii_digit())
}

pub(super) fn has_letter(value: &str) -> bool {
    value.bytes().any(|it| it.is_ascii_alphabetic())
}

/// Whether it mixes kinds of characters as a word of a language or of a program does not.
pub(super) fn is_mixed(value: &str) -> bool {
    let upper_inside = value.bytes().skip(1).any(|it| it.is_ascii_uppercase());
    let lower = value.bytes().any(|it| it.is_ascii_lowercase());
    let symbol = value.bytes().any(|it| b"!@#$%^*+=~?".contains(&it));
    has_digit(value) || symbol || (upper_inside && lower && !is_identifier(value))
}

/// A hexadecimal id or a UUID.
pub(super) fn is_id(value: &str) -> bool {
    let hex = value.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = value.bytes().filter(|it| *it == b'-').count();
    (hex == value.len() && matches!(hex, 7..=128))
        || (hex == 32 && dashes == 4 && value.len() == 36)
}

/// A path, an address, a version, or a name inside a program: something that points elsewhere.
pub(super) fn is_reference(value: &str) -> bool {
    let path = ["/", "./", "../", "~/", "@/", "\\"]
        .iter()
        .any(|it| value.starts_with(it));
    // A secret in base64 may begin with a slash, but then goes on without a name's dot.
    let path = path && (value.len() < 40 || value.contains(['.', '-']));
    path || value.contains("://") || is_dotted_name(value)
}

/// `settings.api_key`, `user.password.label`.
fn is_dotted_name(value: &str) -> bool {
    value.contains('.') && value.split('.').all(|part| is_identifier(part) && part.len() <= 24)
        // The parts of a token are not words.
        && !value.split('.').any(|part| part.len() > 8 && has_digit(part))
}

fn is_identifier(value: &str) -> bool {
    value
        .bytes()
        .next()
        .is_some_and(|it| it.is_ascii_alphabetic() || it == b'_')
        && value
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

/// Names of types, encodings and algorithms with a number in them.
pub(super) fn is_technical_word(value: &str) -> bool {
    const STEMS: &[&str] = &[
        "u", "i", "f", "int", "uint", "float", "char", "varchar", "string", "sha", "sha3", "md",
        "utf", "base", "bcrypt", "argon", "pbkdf", "v", "ed", "rsa", "aes", "hs", "rs", "es",
        "oauth", "x", "p", "h", "http", "ipv", "win", "amd",
    ];
    let lower = value.to_ascii_lowercase();
    let stem = lower.trim_end_matches(|it: char| it.is_ascii_digit() || it == '-');
    let stem = stem.trim_end_matches(['-', '_']);
    (stem.len() < lower.len() && STEMS.contains(&stem)) || lower == "argon2id" || lower == "pbkdf2"
}

/// Shannon entropy.
fn bits_per_character(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "lengths of lines")]
    let length = value.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let share = f64::from(*count) / length;
            -share * share.log2()
        })
        .sum()
}

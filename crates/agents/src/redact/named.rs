//! Secrets told by what stands beside them: a name, an option, a command that takes one.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::plausible::{
    has_digit, has_letter, is_id, is_mixed, is_placeholder, is_reference, is_strong,
    is_technical_word,
};
use super::{Hit, Source};

/// Longest name looked at.
const NAME_BYTES: usize = 80;
/// Longest value.
const VALUE_BYTES: usize = 8 * 1024;

/// What a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    /// People make them up.
    Password,
    /// Machines make them.
    Token,
    /// `…_KEY`: could be anything.
    Key,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `NAME=value` of a shell or an environment file.
    Environment,
    /// `--name value`.
    Option,
    /// Everything else: source code, YAML, JSON, headers, prose.
    Code,
}

struct Value {
    range: Range<usize>,
    quoted: bool,
}

static WORD: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r"(?i)passw(?:or)?d|passphrase|pwd|_pass\b|secret|token|credential|_pat\b|[_-]?key\b|[a-z]key\b",
    )
});
/// `printf x | tool secret put`, `echo x | docker login --password-stdin`.
static PIPED: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r#"\b(?:printf|echo)[ \t]+(?:-[neE]+[ \t]+)*(?:["']?%s(?:\\n)?["']?[ \t]+)?(?:"(?P<s>[^"\n]+)"|'(?P<t>[^'\n]+)'|(?P<u>[^ \t\r\n"'|<>;&]+))[ \t]*\|[ \t]*(?:sudo[ \t]+)?(?P<tool>[^ \t\r\n|]+)(?P<rest>[^|\n]*)"#,
    )
});
/// `tool secret put NAME <<< x`.
static HERE: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r#"(?P<rest>[^\n|;]{0,300})<<<[ \t]*(?:"(?P<s>[^"\n]+)"|'(?P<t>[^'\n]+)'|(?P<u>[^ \t\r\n"'|<>;&]+))"#,
    )
});
/// `gh secret set NAME --body x`.
static BODY: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r#"(?P<rest>\bsecrets?[ \t]+(?:set|put|create|add)\b)[^\n|;]{0,300}?[ \t](?:--body|-b|--value|--data|--secret-string|--from-literal)[ \t=]+(?:[A-Za-z0-9_.-]+=)?(?:"(?P<s>[^"\n]+)"|'(?P<t>[^'\n]+)'|(?P<u>[^ \t\r\n"'|<>;&]+))"#,
    )
});
/// What takes a secret on its input.
static TAKER: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r"(?i)\bsecrets?(?:[ \t]+|:|-)(?:put|set|create|add|import|write|update|store|versions)\b|\blogin\b|\bauth\b|-stdin\b|--with-token\b|\bchpasswd\b|\bpasswd\b|\bhtpasswd\b|\bkubeseal\b|\bvault\b|\bpass[ \t]+insert\b|\bcredential|\bsecret-tool\b|\benv[ \t]+(?:add|set)\b|\bset-secret\b|\bput-(?:secret|parameter)",
    )
});
/// What only reads its input, whatever words follow.
const READERS: &[&str] = &[
    "grep", "egrep", "rg", "sed", "awk", "tee", "cat", "wc", "jq", "head", "tail", "sort", "less",
    "cut", "tr", "xxd", "od",
];

pub(super) fn find(text: &str, source: Source) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut from = 0;
    while let Some(word) = WORD.find_at(text, from) {
        from = word.end();
        let name = name_around(text, word.range());
        let Some(kind) = secret_name(&text[name.clone()]) else {
            continue;
        };
        if let Some((value, style)) = value_after(text, &name)
            && is_secret(text, kind, &value, style, source)
        {
            from = value.range.end;
            hits.push(Hit {
                range: value.range,
                kind: match kind {
                    Name::Password => "password",
                    Name::Token => "token",
                    Name::Key => "key",
                },
            });
        }
    }
    hits.extend(commands(text));
    hits
}

fn commands(text: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    for pattern in [&PIPED, &HERE, &BODY] {
        for found in pattern.captures_iter(text) {
            let secret = ["s", "t", "u"].iter().find_map(|it| found.name(it));
            let tool = found.name("tool").map_or("", |it| it.as_str());
            let rest = found.name("rest").map_or("", |it| it.as_str());
            let takes = TAKER.is_match(&format!("{tool}{rest}")) && !READERS.contains(&tool);
            if let Some(secret) = secret.filter(|it| takes && !is_placeholder(it.as_str())) {
                hits.push(Hit {
                    range: secret.range(),
                    kind: "piped_secret",
                });
            }
        }
    }
    hits
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$')
}

/// The whole name that a word is part of.
fn name_around(text: &str, word: Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let before = bytes[..word.start].iter().rev().take(NAME_BYTES);
    let after = bytes[word.end..].iter().take(NAME_BYTES);
    let start = word.start - before.take_while(|it| is_name_byte(**it)).count();
    let end = word.end + after.take_while(|it| is_name_byte(**it)).count();
    start..end
}

/// What a name promises; none when its value is no secret.
fn secret_name(name: &str) -> Option<Name> {
    let upper = name.bytes().all(|it| !it.is_ascii_lowercase());
    let lower = name.to_ascii_lowercase().replace('-', "_");
    let last = lower.rsplit('.').next().unwrap_or(&lower);
    let mut stem = last.trim_matches('_');
    for suffix in [
        "_value",
        "_b64",
        "_base64",
        "_hex",
        "_prod",
        "_production",
        "_staging",
        "_dev",
        "_live",
        "_test",
        "_old",
        "_new",
        "_base",
    ] {
        stem = stem.strip_suffix(suffix).unwrap_or(stem);
    }
    let stem = stem.trim_end_matches(|it: char| it.is_ascii_digit() || it == '_');
    let ends = |words: &[&str]| words.iter().any(|it| stem.ends_with(it));
    if matches!(stem, "pwd" | "oldpwd" | "key") || ends(NOT_SECRET) {
        return None;
    }
    if ends(&["password", "passwd", "passphrase", "pwd", "_pass", "dbpass"]) {
        return Some(Name::Password);
    }
    if ends(&["secret", "token", "credential", "credentials", "_pat"]) || ends(SECRET_KEYS) {
        return Some(Name::Token);
    }
    (upper && stem.ends_with("_key")).then_some(Name::Key)
}

const SECRET_KEYS: &[&str] = &[
    "api_key",
    "apikey",
    "access_key",
    "accesskey",
    "secret_key",
    "secretkey",
    "private_key",
    "privatekey",
    "auth_key",
    "authkey",
    "encryption_key",
    "encryptionkey",
    "signing_key",
    "master_key",
    "account_key",
    "accountkey",
    "shared_key",
    "storage_key",
    "service_key",
    "license_key",
    "session_key",
    "secret_key_base",
];

/// Positions in a list, marks of a language model's text, keys of a table.
const NOT_SECRET: &[&str] = &[
    "page_token",
    "pagetoken",
    "next_token",
    "nexttoken",
    "continuation_token",
    "continuationtoken",
    "sync_token",
    "resume_token",
    "cancellation_token",
    "cancellationtoken",
    "pad_token",
    "eos_token",
    "bos_token",
    "unk_token",
    "sep_token",
    "mask_token",
    "cls_token",
    "stop_token",
    "start_token",
    "end_token",
    "special_token",
    "public_key",
    "publickey",
    "primary_key",
    "foreign_key",
    "cache_key",
    "partition_key",
    "sort_key",
    "host_key",
    "dedup_key",
    "idempotency_key",
    "registry_key",
];

/// What stands behind a name, if anything is assigned to it.
fn value_after(text: &str, name: &Range<usize>) -> Option<(Value, Style)> {
    let named = &text[name.clone()];
    let bytes = text.as_bytes();
    let mut at = name.end;
    // `"name"`, `\"name\"`, `["name"]`.
    let wrapped = skip(bytes, &mut at, b"\\\"'`])");
    let spaced = skip(bytes, &mut at, b" \t");
    let operator = operator_at(&text[at..]);
    let is_option = named.starts_with("--") && wrapped == 0;
    if operator.is_empty() && !(is_option && spaced > 0) {
        return None;
    }
    at += operator.len();
    let spaced_after = skip(bytes, &mut at, b" \t");
    let upper = !named.bytes().any(|it| it.is_ascii_lowercase());
    let style = if is_option {
        Style::Option
    } else if operator == "=" && spaced + spaced_after == 0 && upper && wrapped == 0 {
        Style::Environment
    } else {
        Style::Code
    };
    if operator == ":"
        && let Some(typed) = behind_a_type(&text[at..])
    {
        at += typed;
    }
    // `Authorization`-like: the scheme is not the value.
    for scheme in ["Bearer ", "bearer ", "Basic ", "token "] {
        if text[at..].starts_with(scheme) {
            at += scheme.len();
        }
    }
    let value = value_at(text, at, style)?;
    // An option's value behind a space could be the next word of a sentence.
    let loose = is_option && operator.is_empty() && !value.quoted;
    if loose && !is_mixed(&text[value.range.clone()]) {
        return None;
    }
    Some((value, style))
}

fn skip(bytes: &[u8], at: &mut usize, these: &[u8]) -> usize {
    let rest = bytes[*at..].iter().take(8);
    let count = rest.take_while(|it| these.contains(it)).count();
    *at += count;
    count
}

fn operator_at(text: &str) -> &str {
    let compared = text.starts_with("==") || text.starts_with("=~");
    ["=>", ":=", "?=", "+=", "=", ":"]
        .into_iter()
        .find(|it| text.starts_with(it) && !compared && !text.starts_with("::"))
        .unwrap_or("")
}

/// `password: &str = "…"`: where the value begins, if this is a type and not the value.
fn behind_a_type(text: &str) -> Option<usize> {
    let line = text.lines().next()?;
    let equals = line[..line.floor_char_boundary(60)].find('=')?;
    let (kind, rest) = (line[..equals].trim(), &line[equals + 1..]);
    let value = rest.trim_start();
    let is_type = !kind.is_empty()
        && !kind.contains(['"', '\'', '`'])
        && line[..equals].ends_with(' ')
        && value.starts_with(['"', '\'', '`']);
    is_type.then_some(equals + 1 + rest.len() - value.len())
}

fn value_at(text: &str, at: usize, style: Style) -> Option<Value> {
    let most = text.floor_char_boundary(text.len().min(at + VALUE_BYTES));
    let rest = &text[at..most];
    // JSON inside a string escapes its quotes, several times over if need be.
    let escapes = rest.bytes().take_while(|it| *it == b'\\').count();
    // `b"…"`, `r'…'`, `f"…"`.
    let prefix = usize::from(
        escapes == 0
            && rest.starts_with(['b', 'r', 'f', 'u', '$'])
            && rest[1..].starts_with(['"', '\'']),
    );
    let quote = rest.as_bytes().get(escapes + prefix).copied();
    if let Some(quote @ (b'"' | b'\'' | b'`')) = quote {
        let start = escapes + prefix + 1;
        let length = quoted_length(&rest.as_bytes()[start..], quote, escapes)?;
        return Some(Value {
            range: at + start..at + start + length,
            quoted: true,
        });
    }
    let stops: &[char] = match style {
        Style::Environment => &['"', '\'', '`', ';', '|', '&', ')', '\\'],
        Style::Option | Style::Code => &[
            '"', '\'', '`', ';', '|', '&', ')', '(', '[', ']', '{', '}', '<', '>', ',', '\\',
        ],
    };
    // What begins with a stop is a placeholder (`<token>`) or code (`[…]`).
    let end = rest.find(|it: char| it.is_whitespace() || stops.contains(&it));
    let end = end.unwrap_or(rest.len());
    // `getenv("X")`, `tokens[0]`: code, not a value.
    if style == Style::Code && rest[end..].starts_with(['(', '[', '{', '<']) {
        return None;
    }
    let value = rest[..end].trim_end_matches(['.', ',', ':', '!']);
    (!value.is_empty()).then(|| Value {
        range: at..at + value.len(),
        quoted: false,
    })
}

/// Bytes up to the closing quote, which is escaped as often as the opening one was.
fn quoted_length(bytes: &[u8], quote: u8, escapes: usize) -> Option<usize> {
    let mut backslashes = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' => backslashes += 1,
            b'\n' => return None,
            it if *it == quote && escapes == 0 && backslashes % 2 == 0 => return Some(at),
            it if *it == quote && escapes > 0 && backslashes == escapes => {
                return Some(at - escapes);
            }
            _ => backslashes = 0,
        }
    }
    None
}

fn is_secret(text: &str, name: Name, value: &Value, style: Style, source: Source) -> bool {
    let quoted = value.quoted;
    let value = &text[value.range.clone()];
    if source == Source::Environment {
        return !value.starts_with('$') && !value.is_empty() && !is_reference(value);
    }
    if is_placeholder(value) || is_reference(value) || is_technical_word(value) {
        return false;
    }
    // The name of another variable: `SECRET_KEY=APP_SECRET`.
    let constant = |it: u8| it.is_ascii_uppercase() || it == b'_';
    if value.bytes().all(constant) && value.contains('_') {
        return false;
    }
    let words = value.contains(char::is_whitespace);
    let strong = is_strong(value) && !words;
    match (name, style) {
        (Name::Key, _) => strong && !is_id(value),
        (Name::Password, Style::Environment | Style::Option) => value.chars().count() >= 4,
        (Name::Token, Style::Environment | Style::Option) => {
            // With spaces it is a sentence, unless somebody put a digit into it.
            value.len() >= 8
                && (has_letter(value) || value.len() >= 16)
                && (!words || has_digit(value))
        }
        (_, Style::Code) if source == Source::File => strong && (quoted || !is_id(value)),
        (Name::Password, Style::Code) => {
            !words && value.chars().count() >= 6 && is_mixed(value) && (quoted || has_digit(value))
        }
        (Name::Token, Style::Code) if quoted => {
            !words && value.len() >= 8 && has_digit(value) && has_letter(value)
        }
        (Name::Token, Style::Code) => value.len() >= 12 && has_digit(value) && has_letter(value),
    }
}

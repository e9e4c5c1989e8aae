//! The redactor, measured: what it must find, and what it must leave alone.
//!
//! Samples are put together here, so that scanners of this repository find nothing in it.

use agents::redact::{Redactor, find, find_in_file, redact};
use proptest::prelude::*;

/// Text that looks random, always the same.
fn noise(alphabet: &str, length: usize, seed: u64) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            letters[usize::try_from(state % letters.len() as u64).expect("small")]
        })
        .collect()
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";

fn alnum(length: usize) -> String {
    // A digit for certain: a sample must not depend on luck.
    format!("{}7", noise(ALNUM, length - 1, 11))
}

fn upper(length: usize) -> String {
    noise("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", length, 5)
}

fn hex(length: usize) -> String {
    noise(HEX, length, 3)
}

fn base64(length: usize) -> String {
    noise(&format!("{ALNUM}+/"), length, 23)
}

/// A private key of some kind; `end` joins its lines.
fn key(label: &str, end: &str) -> String {
    let body: Vec<String> = (0..6)
        .map(|it| noise(&format!("{ALNUM}+/"), 64, it + 40))
        .collect();
    let (five, dashes) = ("-".repeat(5), "-".repeat(5));
    format!(
        "{five}BEGIN {label}{dashes}{end}{}{end}{five}END {label}{dashes}",
        body.join(end)
    )
}

/// A text, and the secret in it that must not stay.
fn secrets() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |before: &str, secret: String, after: &str| {
        all.push((format!("{before}{secret}{after}"), secret));
    };
    // Shapes.
    let access = format!("{}{}", "AKIA", upper(16));
    add("key id ", access.clone(), " in use");
    add("", format!("{}{}", "ASIA", upper(16)), "");
    add("aws_secret_access_key = ", base64(40), "");
    add("\"SecretAccessKey\": \"", base64(40), "\",");
    add(&format!("{access},"), format!("{}a/", base64(38)), "\n");
    add(
        "AWS_SECRET_ACCESS_KEY=",
        format!("wJalrXUtnFEMI/K7MDENG/{}", "bPxRfiCYEXAMPLEKEY"),
        "",
    );
    add("export AWS_SESSION_TOKEN=\"", base64(120), "\"");
    add("git clone with ", format!("{}{}", "ghp_", alnum(36)), ".");
    add("", format!("{}{}", "gho_", "a".repeat(36)), "");
    add("token ", format!("{}{}", "ghs_", alnum(36)), "\u{1b}[0m");
    add(
        "(",
        format!("{}{}_{}", "github_pat_", alnum(22), alnum(59)),
        ")",
    );
    add("PRIVATE-TOKEN: ", format!("{}{}", "glpat-", alnum(20)), "");
    add(
        "slack said ",
        format!("{}{}", "xoxb-", "123456789012-1234567890123-abcDEF123456"),
        "",
    );
    add(
        "https://hooks.slack.com/services/",
        format!("T0{}/B0{}/{}", upper(8), upper(8), alnum(24)),
        " ok",
    );
    add(
        "stripe.api_key = '",
        format!("{}{}", "sk_live_", alnum(24)),
        "'",
    );
    add("", format!("{}{}", "rk_test_", alnum(24)), " (restricted)");
    add("endpoint ", format!("{}{}", "whsec_", alnum(32)), "");
    add(
        "//registry.npmjs.org/:_authToken=",
        format!("{}{}", "npm_", alnum(36)),
        "",
    );
    add(
        "twine upload -p ",
        format!("{}{}", "pypi-AgEIcHlwaS5vcmc", alnum(70)),
        "",
    );
    add("OPENAI_API_KEY=", format!("{}{}", "sk-", alnum(48)), "");
    add("openai: ", format!("{}{}", "sk-proj-", alnum(60)), "");
    add(
        "found ",
        format!("{}{}", "sk-ant-api03-", alnum(80)),
        " in log",
    );
    add("maps ", format!("{}{}", "AIza", alnum(35)), "");
    add("from huggingface: ", format!("{}{}", "hf_", alnum(34)), "");
    add("oauth ", format!("{}{}", "GOCSPX-", alnum(28)), "");
    let jwt = format!(
        "{}{}.{}{}.{}",
        "eyJ",
        alnum(30),
        "eyJ",
        alnum(60),
        alnum(43)
    );
    add("jwt=", jwt.clone(), "");
    add(
        "session: ",
        format!("{}{}.{}{}.", "eyJ", alnum(20), "eyJ", alnum(40)),
        "",
    );
    add(
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=",
        format!("{}==", base64(86)),
        ";EndpointSuffix=x",
    );
    add(
        "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=",
        format!("{}=", base64(43)),
        "",
    );
    add(
        "https://a.blob.core.windows.net/c?sv=2022&sig=",
        format!("{}%3D", alnum(43)),
        "&se=1",
    );
    add("client secret ", format!("{}8Q~{}", "abC", alnum(34)), "");
    add("mail ", format!("SG.{}.{}", alnum(22), alnum(43)), "");
    add("bot ", format!("{}:AA{}", "123456789", alnum(33)), "");
    add("vault ", format!("{}{}", "hvs.", alnum(30)), "");
    add("do ", format!("{}{}", "dop_v1_", hex(64)), "");
    // Private keys.
    add("cat id_rsa\n", key("RSA PRIVATE KEY", "\n"), "\n$ ");
    add("", key("OPENSSH PRIVATE KEY", "\r\n"), "");
    add("pgp\n", key("PGP PRIVATE KEY BLOCK", "\n"), "\n");
    add(
        "{\"type\": \"service_account\", \"private_key\": \"",
        key("PRIVATE KEY", "\\n"),
        "\\n\"}",
    );
    add(
        "const k = \"",
        key("EC PRIVATE KEY", "\\n\" +\n  \""),
        "\";",
    );
    let cut = key("PRIVATE KEY", "\n");
    add("cut off:\n", cut[..300].to_owned(), "");
    // Headers.
    add("Authorization: Bearer ", alnum(40), "");
    add(
        "-H 'Authorization: Bearer ",
        "s3cr3t-token".into(),
        "' https://x",
    );
    add("authorization: Basic ", "dXNlcjpwYXNzd29yZA==".into(), "");
    add("\"Authorization\": \"token ", hex(40), "\"");
    add("{\\\"Authorization\\\":\\\"Bearer ", alnum(30), "\\\"}");
    add("X-Api-Key: ", alnum(32), "");
    add("Cookie: theme=dark; sessionid=", alnum(32), "; a=b");
    // URLs.
    add(
        "git push https://user:",
        "s3cretpw".into(),
        "@example.com/x.git",
    );
    add("https://oauth2:", alnum(24), "@gitlab.example.com/a");
    add("postgres://app:", "hunter2".into(), "@db.internal:5432/app");
    add("redis://:", "p4ssw0rd!".into(), "@10.0.0.3:6379");
    add("https://", format!("x{}", alnum(40)), "@dev.azure.com/org");
    add("GET /v1?access_token=", alnum(24), "&page=2");
    add("amqp://svc:", "correct-horse".into(), "@mq.example.org");
    // Assignments, high and low entropy.
    add("DB_PASSWORD=", "hunter2".into(), "");
    add("export PGPASSWORD='", "tr0ub4dor&3".into(), "'");
    add(
        "MYSQL_ROOT_PASSWORD=",
        "letmein".into(),
        " docker compose up",
    );
    add("API_TOKEN=", "fake-canary-token-123".into(), "");
    add(
        "SECRET_KEY=\"",
        "not so random words".to_owned() + "7",
        "\"",
    );
    add("password: ", "Sup3rGeheim".into(), "");
    add("\"password\": \"", "hunter2!".into(), "\",");
    add("\\\"client_secret\\\":\\\"", "abc123def456".into(), "\\\",");
    add("client_secret = \"", alnum(32), "\"");
    add("let api_key: &str = \"", alnum(24), "\";");
    add("config[\"apiKey\"] = '", alnum(24), "';");
    add("SIGNING_KEY=", alnum(44), "");
    add(
        "HEROKU_API_KEY=",
        "01234567-89ab-4def-8123-456789abcdef".into(),
        "",
    );
    add("SECRET_KEY_BASE=", hex(128), "");
    add("AUTH_TOKEN = ", hex(40), "");
    add("<password>", "geheim99".into(), "</password>");
    add(
        "machine api.example.com login me password ",
        "netrcpass1".into(),
        "",
    );
    // Commands.
    add("printf ", "lowentropy".into(), " | tool secret put NAME");
    add(
        "printf '%s' '",
        "two words".into(),
        "' | wrangler secret put TOKEN",
    );
    add(
        "echo -n \"",
        "opensesame".into(),
        "\" | docker login -u me --password-stdin",
    );
    add("echo ", "root:newpass".into(), " | sudo chpasswd");
    add("gh secret set DEPLOY --body \"", "plainvalue".into(), "\"");
    add("vault kv put secret/x password=", "v4ultvalue".into(), "");
    add("fly secrets set TOKEN <<< ", "heredocvalue".into(), "");
    add("tool login --password ", "hunter2".into(), " --verbose");
    add("tool --api-key=", "abcdefgh".into(), "");
    add("curl -s -u admin:", "s3same".into(), " https://x");
    add("mysql -u root -p", "geheim1".into(), " app");
    add("sshpass -p '", "open sesame".into(), "' ssh h");
    all
}

fn look_alikes() -> Vec<String> {
    let picture = format!("data:image/png;base64,{}", base64(4000));
    let mut all = vec![
        format!("commit {}", hex(40)),
        format!("index {}..{} 100644", hex(7), hex(7)),
        format!("Merge: {} {}", hex(9), hex(9)),
        format!("{}\trefs/heads/main", hex(40)),
        format!("tree {}\nparent {}", hex(40), hex(64)),
        format!("sha256:{}", hex(64)),
        format!("docker pull a/b@sha256:{}", hex(64)),
        format!("\"integrity\": \"sha512-{}==\",", base64(86)),
        format!("checksum = \"{}\"", hex(64)),
        format!("a v1.2.3 h1:{}=", base64(43)),
        format!("--hash=sha256:{} \\", hex(64)),
        format!("narHash = \"sha256-{}=\";", base64(43)),
        "run 0198a0b1-c2d3-7abc-8def-0123456789ab".to_owned(),
        "\"id\": \"f47ac10b-58cc-4372-a567-0e02b2c3d479\"".to_owned(),
        picture.clone(),
        format!("<img src=\"{picture}\">"),
        format!("url({picture})"),
        "arn:aws:iam::123456789012:role/deploy".to_owned(),
        "account 123456789012 in eu-west-1".to_owned(),
        "AWS_ACCOUNT_ID=123456789012".to_owned(),
        "ad account act_1234567890123456".to_owned(),
        format!("\"private_key_id\": \"{}\"", hex(40)),
        format!("public_key = \"{}\"", base64(44)),
        format!(
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} me@host",
            base64(43)
        ),
        format!("SHA256:{} (ED25519)", base64(43)),
    ];
    all.extend(
        [
            "PASSWORD=changeme",
            "DB_PASSWORD=${DB_PASSWORD}",
            "API_TOKEN=$API_TOKEN",
            "TOKEN=<token>",
            "SECRET=xxxxxxxxxxxx",
            "API_KEY=your-api-key-here",
            "password: ********",
            "token: ${{ secrets.GITHUB_TOKEN }}",
            "API_KEY={{ api_key }}",
            "SECRET_KEY=",
            "SECRET_KEY=\"\"",
            "password = getpass.getpass()",
            "let token = parse_token(&input)?;",
            "const token = req.headers['x-token'];",
            "token: string;",
            "password: Option<String>,",
            "secret = os.environ[\"SECRET\"]",
            "api_key=settings.api_key,",
            "access_token: process.env.ACCESS_TOKEN",
            "max_tokens: 4096",
            "input_tokens=10500 output_tokens=320",
            "\"token_type\": \"bearer\"",
            "TOKEN_URL=https://example.com/oauth/token",
            "PASSWORD_FILE=/run/secrets/db",
            "password_min_length = 12",
            "if token == \"EOF\" { break }",
            "next_page_token: \"CAUQAA12345678\"",
            "pad_token = \"<pad>\"",
            "primary_key=user_id2",
            "the password: it must have 8 characters",
            "Bearer token authentication is required",
            "Authorization: Bearer <token>",
            "Authorization: Bearer $TOKEN",
            "use --token to authenticate",
            "pass --password on the command line",
            "https://user:password@example.com/",
            "https://user:<password>@example.com/",
            "https://example.com:8080/a@b",
            "git@github.com:owner/repo.git",
            "ssh://git@github.com/owner/repo",
            "npm install pkg@npm:other@1.2.3",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "sk-learn-contrib-imbalanced-learn-0-12-4",
            "class=\"sk-folding-cube sk-cube1 sk-cube-grid\"",
            "text.contains(\"-----BEGIN RSA PRIVATE KEY-----\")",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
            "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQG\n-----END CERTIFICATE-----",
            "echo \"$TOKEN\" | gh secret set NAME",
            "echo hello | grep secret set",
            "printf 'done' | tee secrets.log",
            "pk_live_51Habcdefghijklmnopqrstuv",
            "GET /search?q=token&key=value",
            "hf_hub_download(repo_id=\"a/b\")",
            "npm_config_registry=https://registry.npmjs.org",
            "[redacted:github_token]",
            "API_TOKEN=[redacted:token]",
            "Author: A U Thor <author@example.com>",
            "keyboard: { layout: \"us\" }",
            "monkey=banana1",
            "password_hash = bcrypt(password)",
            "hash: sha256, password: bcrypt12",
        ]
        .map(str::to_owned),
    );
    all
}

#[test]
fn i02_no_secret_of_the_corpus_is_missed_and_at_most_two_harmless_texts_are_altered() {
    let (secrets, harmless) = (secrets(), look_alikes());
    assert!(secrets.len() >= 60 && harmless.len() >= 60);
    let missed: Vec<&String> = secrets
        .iter()
        .filter(|(text, secret)| redact(text).contains(secret.as_str()))
        .map(|(text, _)| text)
        .collect();
    let altered: Vec<(&String, String)> = harmless
        .iter()
        .map(|text| (text, redact(text)))
        .filter(|(text, redacted)| *text != redacted)
        .collect();
    println!("{} secrets, missed: {missed:#?}", secrets.len());
    println!("{} look-alikes, altered: {altered:#?}", harmless.len());
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(altered.len() <= 2, "{altered:#?}");
}

#[test]
fn i02_what_stands_around_a_secret_stays() {
    for (text, secret) in secrets() {
        let redacted = redact(&text);
        let (before, after) = text.split_once(&secret).expect("it is there");
        let start = before.trim_end_matches(|it: char| !it.is_whitespace());
        assert!(redacted.starts_with(start), "{text}\n{redacted}");
        let end = after.trim_start_matches(|it: char| !it.is_whitespace());
        assert!(redacted.ends_with(end), "{text}\n{redacted}");
    }
}

#[test]
fn i02_redacting_twice_changes_nothing_more() {
    for (text, _) in secrets() {
        let once = redact(&text);
        assert_eq!(redact(&once), once);
    }
}

#[test]
fn i01_one_line_with_many_shapes_is_clean_afterwards() {
    let secrets = secrets();
    let shapes: Vec<&(String, String)> = secrets.iter().filter(|it| !it.0.contains('\n')).collect();
    let text: String = shapes.iter().map(|(text, _)| format!("{text}\n")).collect();
    let redacted = redact(&text);
    for (text, secret) in shapes {
        assert!(!redacted.contains(secret.as_str()), "{text}");
    }
}

#[test]
fn i01_a_secret_split_over_chunks_is_found_in_a_stream() {
    let whole: String = secrets()
        .iter()
        .map(|(text, _)| format!("{text}\n"))
        .collect();
    let expected = redact(&whole);
    for size in [1, 7, 64, 1000, 100_000] {
        let mut redactor = Redactor::default();
        let mut got = String::new();
        let bytes: Vec<char> = whole.chars().collect();
        for chunk in bytes.chunks(size) {
            got.push_str(&redactor.push(&chunk.iter().collect::<String>()));
        }
        got.push_str(&redactor.finish());
        assert_eq!(got, expected, "chunks of {size}");
    }
}

#[test]
fn i01_a_stream_hands_on_lines_at_once_and_holds_back_a_bounded_amount() {
    let mut redactor = Redactor::default();
    assert_eq!(redactor.push("one\ntwo"), "one\n");
    let long = "word ".repeat(100_000);
    let got = redactor.push(&long);
    assert!(got.len() > long.len() - 80 * 1024, "{}", got.len());
    let rest = redactor.finish();
    assert_eq!(format!("{got}{rest}"), format!("two{long}"));
}

#[test]
fn i01_a_private_key_longer_than_the_bound_is_swallowed_to_its_end() {
    let five = "-".repeat(5);
    let line = format!("{}\n", base64(64));
    let mut redactor = Redactor::default();
    let mut got = redactor.push(&format!("before\n{five}BEGIN RSA PRIVATE KEY{five}\n"));
    for _ in 0..3000 {
        got.push_str(&redactor.push(&line));
    }
    got.push_str(&redactor.push(&format!("{five}END RSA PRIVATE")));
    got.push_str(&redactor.push(&format!(" KEY{five}\nafter\n")));
    got.push_str(&redactor.finish());
    assert_eq!(got, "before\n[redacted:private_key]\nafter\n");
}

#[test]
fn i01_a_mention_of_a_private_key_does_not_swallow_the_rest_of_a_stream() {
    let text = format!(
        "looks for -----BEGIN RSA PRIVATE KEY-----\n{}end\n",
        "and then goes on.\n".repeat(10_000)
    );
    let mut redactor = Redactor::default();
    let mut got = redactor.push(&text);
    got.push_str(&redactor.finish());
    assert_eq!(got, text);
}

#[test]
fn i02_a_token_in_one_line_of_megabytes_is_found_in_a_stream() {
    let secret = format!("{}{}", "ghp_", alnum(36));
    let text = format!("{}{secret}{}", "a,".repeat(60_000), ",b".repeat(60_000));
    for size in [999, 65_536] {
        let mut redactor = Redactor::default();
        let mut got = String::new();
        for chunk in text.as_bytes().chunks(size) {
            got.push_str(&redactor.push(std::str::from_utf8(chunk).expect("ascii")));
        }
        got.push_str(&redactor.finish());
        assert_eq!(got, text.replace(&secret, "[redacted:github_token]"));
    }
}

#[test]
fn a_finding_names_its_line_kind_and_place() {
    let secret = format!("{}{}", "ghp_", alnum(36));
    let text = format!("first\nsecond {secret}\n");
    let [finding] = &find(&text)[..] else {
        panic!("one finding")
    };
    assert_eq!((finding.line, finding.kind), (2, "github_token"));
    assert_eq!(&text[finding.range.clone()], secret);
}

#[test]
fn i02_an_environment_file_is_judged_by_names_and_its_example_by_values() {
    let content =
        b"# local\nDEBUG=1\nDB_PASSWORD=changeme\nSTRIPE_KEY=abc\nEMPTY_SECRET=\nREF_TOKEN=${X}\n";
    for path in [".env", "app/.env.local"] {
        let lines: Vec<usize> = find_in_file(path, content)
            .iter()
            .map(|it| it.line)
            .collect();
        assert_eq!(lines, [3, 4], "{path}");
    }
    for path in [
        ".env.example",
        ".env.sample",
        "x/.env.template",
        "env",
        "a.env.md",
    ] {
        assert_eq!(find_in_file(path, content), [], "{path}");
    }
}

#[test]
fn i02_test_fixtures_and_local_databases_in_files_are_not_findings() {
    let harmless: &[&str] = &[
        "login(\"user\", password = \"hunter2\")",
        "url: postgres://app:geheim@localhost:5432/app",
        "DATABASE_URL=postgres://app:geheim@db:5432/app",
        "const token = \"abc12345\";",
        "expect(body.token).toBe(\"tok-123456\")",
    ];
    for text in harmless {
        assert_eq!(
            find_in_file("test/login.test.ts", text.as_bytes()),
            [],
            "{text}"
        );
    }
    let secret = format!("const token = \"{}\";", alnum(32));
    assert_eq!(find_in_file("src/a.ts", secret.as_bytes()).len(), 1);
}

#[test]
fn i02_a_binary_file_is_searched_for_keys_and_prefixed_tokens_only() {
    let secret = format!("{}{}", "ghp_", alnum(36));
    let mut bytes = b"\x00\xff\xfe password=hunter2 DB_PASSWORD=hunter2 ".to_vec();
    let start = bytes.len();
    bytes.extend_from_slice(secret.as_bytes());
    bytes.push(0);
    let findings = find_in_file("a.bin", &bytes);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].range, start..start + secret.len());
    let latin1 = [b"caf\xe9 ".as_slice(), secret.as_bytes()].concat();
    assert_eq!(find_in_file("a.txt", &latin1)[0].range.start, 5);
}

#[test]
fn a_large_harmless_text_is_searched_in_reasonable_time() {
    let text =
        "let token = next_token(&mut lexer); // key: value, password: string\n".repeat(20_000);
    let started = std::time::Instant::now();
    assert!(find(&text).is_empty());
    // Unoptimised and on a busy machine; the point is that it is not quadratic.
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// A stream gives what the whole text gives, wherever it is cut.
    #[test]
    fn a_stream_and_the_whole_text_agree(
        picks in prop::collection::vec(0_usize..1000, 1..12),
        cuts in prop::collection::vec(1_usize..200, 1..20),
    ) {
        let (secrets, harmless) = (secrets(), look_alikes());
        let text: String = picks
            .iter()
            .map(|pick| {
                let pool = secrets.len() + harmless.len();
                let pick = pick % pool;
                let line = secrets
                    .get(pick)
                    .map_or_else(|| &harmless[pick - secrets.len()], |it| &it.0);
                format!("{line}\n")
            })
            .collect();
        let mut redactor = Redactor::default();
        let mut got = String::new();
        let mut rest: &str = &text;
        for cut in cuts.iter().cycle() {
            if rest.is_empty() { break }
            let (chunk, later) = rest.split_at(rest.floor_char_boundary((*cut).max(4)));
            got.push_str(&redactor.push(chunk));
            rest = later;
        }
        got.push_str(&redactor.finish());
        prop_assert_eq!(got, redact(&text));
    }

    /// Whatever a text is, finding ranges are in order, inside it and on character borders.
    #[test]
    fn ranges_are_sound_for_any_text(text in "(?s).{0,400}|[a-z_=:\"'\\\\ \\n|.{}$-]{0,300}|(password|token|secret|key)[=: ]{0,2}.{0,60}") {
        let mut last = 0;
        for finding in find(&text) {
            prop_assert!(finding.range.start >= last && finding.range.end <= text.len());
            prop_assert!(text.get(finding.range.clone()).is_some());
            last = finding.range.end;
        }
        redact(&text);
    }
}

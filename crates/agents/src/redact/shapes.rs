//! Tokens that give themselves away.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use super::plausible::{is_placeholder, is_strong};
use super::{Hit, Source};

/// Which shapes to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Those with a prefix of their own, which no picture has by accident.
    Prefixed,
    /// Those and what stands in URLs, headers and commands.
    All(Source),
}

/// What else must hold of what a pattern found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Not `xxxx`.
    Filled,
    /// Not a placeholder.
    Given,
    /// Random, or at least as long and mixed as something random.
    Strong,
    /// As `Given`, and in a file only for hosts that others can reach.
    Login,
    /// Not all hexadecimal: that is an object id.
    NotHex,
}

struct Shape {
    kind: &'static str,
    /// The secret is the group `s`, or everything.
    pattern: &'static str,
    check: Check,
    prefixed: bool,
}

const fn prefixed(kind: &'static str, pattern: &'static str) -> Shape {
    Shape {
        kind,
        pattern,
        check: Check::Filled,
        prefixed: true,
    }
}

const fn placed(kind: &'static str, check: Check, pattern: &'static str) -> Shape {
    Shape {
        kind,
        pattern,
        check,
        prefixed: false,
    }
}

/// ASCII word boundaries throughout: the tokens are ASCII, and it is faster.
const SHAPES: &[Shape] = &[
    prefixed("aws_access_key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    prefixed("anthropic_key", r"\bsk-ant-[A-Za-z0-9_-]{16,}"),
    prefixed("openrouter_key", r"\bsk-or-v1-[0-9a-f]{32,}"),
    prefixed(
        "openai_key",
        r"\bsk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})",
    ),
    prefixed("github_token", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    prefixed("github_token", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    prefixed(
        "gitlab_token",
        r"\bgl(?:pat|dt|rt|ptt|ft|imt|agent|oas|soat|cbt)-[A-Za-z0-9_=.-]{18,}",
    ),
    prefixed("slack_token", r"\bxox[abeoprsc]-[A-Za-z0-9-]{10,}"),
    prefixed("slack_token", r"\bxapp-\d-[A-Z0-9]+-\d+-[a-z0-9]{16,}"),
    prefixed(
        "slack_webhook",
        r"\bhooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9/_]{20,})",
    ),
    prefixed(
        "discord_webhook",
        r"\bdiscord(?:app)?\.com/api/webhooks/\d+/(?P<s>[A-Za-z0-9_-]{30,})",
    ),
    prefixed("stripe_key", r"\b[sr]k_(?:live|test|prod)_[A-Za-z0-9]{16,}"),
    prefixed("stripe_key", r"\bwhsec_[A-Za-z0-9+/=]{24,}"),
    prefixed("npm_token", r"\bnpm_[A-Za-z0-9]{30,}"),
    prefixed("pypi_token", r"\bpypi-AgE[A-Za-z0-9_-]{20,}"),
    prefixed("huggingface_token", r"\bhf_[A-Za-z0-9]{30,}"),
    prefixed("google_key", r"\bAIza[A-Za-z0-9_-]{35}"),
    prefixed("google_key", r"\bGOCSPX-[A-Za-z0-9_-]{20,}"),
    prefixed("google_key", r"\bya29\.[A-Za-z0-9_-]{20,}"),
    prefixed("google_key", r"\b1//0[A-Za-z0-9_-]{40,}"),
    prefixed(
        "azure_key",
        r"\b(?:AccountKey|SharedAccessKey)=(?P<s>[A-Za-z0-9+/]{40,}={0,2})",
    ),
    prefixed(
        "azure_key",
        r"[?&]sig=(?P<s>[A-Za-z0-9%+/]{40,}(?:%3[Dd]|=)?)",
    ),
    prefixed(
        "azure_key",
        r"\b[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}",
    ),
    prefixed(
        "jwt",
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*",
    ),
    prefixed(
        "sendgrid_key",
        r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}",
    ),
    prefixed("twilio_key", r"\bSK[0-9a-f]{32}\b"),
    prefixed("mailgun_key", r"\bkey-[0-9a-f]{32}\b"),
    prefixed("digitalocean_token", r"\bdo[opr]_v1_[a-f0-9]{40,}"),
    prefixed("databricks_token", r"\bdapi[0-9a-f]{32}\b"),
    prefixed("shopify_token", r"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    prefixed("telegram_token", r"\b\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    prefixed("linear_key", r"\blin_api_[A-Za-z0-9]{30,}"),
    prefixed("notion_token", r"\b(?:secret|ntn)_[A-Za-z0-9]{40,}"),
    prefixed("vault_token", r"\bhv[sbr]\.[A-Za-z0-9_-]{24,}"),
    prefixed(
        "terraform_token",
        r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}",
    ),
    prefixed("groq_key", r"\bgsk_[A-Za-z0-9]{40,}"),
    prefixed("xai_key", r"\bxai-[A-Za-z0-9]{40,}"),
    prefixed("replicate_key", r"\br8_[A-Za-z0-9]{37}"),
    prefixed("perplexity_key", r"\bpplx-[A-Za-z0-9]{40,}"),
    prefixed("docker_token", r"\bdckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    prefixed("rubygems_key", r"\brubygems_[a-f0-9]{48}"),
    prefixed("grafana_token", r"\bgl(?:sa|c)_[A-Za-z0-9_=+/]{32,}"),
    prefixed("supabase_key", r"\bsb[ps]_[a-f0-9]{40}"),
    prefixed(
        "planetscale_key",
        r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.-]{30,}",
    ),
    prefixed("doppler_token", r"\bdp\.(?:pt|st|ct)\.[A-Za-z0-9._-]{40,}"),
    prefixed("square_token", r"\bsq0(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    prefixed("atlassian_token", r"\bATATT3[A-Za-z0-9_=-]{60,}"),
    prefixed("age_key", r"\bAGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    // The secret beside its key id, as in the console's CSV.
    placed(
        "aws_secret_key",
        Check::NotHex,
        r#"\b(?:AKIA|ASIA)[A-Z0-9]{16}["']?[ \t,:;|/]{1,4}["']?(?P<s>[A-Za-z0-9/+]{40})"#,
    ),
    placed(
        "token_in_url",
        Check::Login,
        r#"\b[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@"'<>`\[]*:(?P<s>[^@\s"'<>`/]+)@(?P<host>[A-Za-z0-9.-]+)"#,
    ),
    placed(
        "token_in_url",
        Check::Strong,
        r#"\b[A-Za-z][A-Za-z0-9+.-]*://(?P<s>[A-Za-z0-9_~.-]{16,})@[A-Za-z0-9.-]+"#,
    ),
    placed(
        "token_in_url",
        Check::Given,
        r#"(?i)[?&](?:access_token|auth_token|id_token|refresh_token|token|api_?key|client_secret|secret|password|passwd|x-amz-signature|x-amz-security-token|x-goog-signature|sig|signature)=(?P<s>[^&\s"'#<>`)\\]{8,})"#,
    ),
    placed(
        "authorization",
        Check::Given,
        r#"(?i)\bauthorization\b\\?["']?[ \t]*[:=,][ \t]*\\?["'`]?basic[ \t]+(?P<s>[A-Za-z0-9+/=_-]{8,})"#,
    ),
    placed(
        "authorization",
        Check::Given,
        r#"(?i)\bauthorization\b\\?["']?[ \t]*[:=,][ \t]*\\?["'`]?(?:bearer|token|apikey|api-key|key|negotiate|ghtoken|splunk|bot)[ \t]+(?P<s>[A-Za-z0-9._~+/=:-]{6,})"#,
    ),
    placed(
        "authorization",
        Check::Strong,
        r#"(?i)\bauthorization\b\\?["']?[ \t]*[:=][ \t]*\\?["'`]?(?P<s>[A-Za-z0-9._~+/=:-]{16,})"#,
    ),
    placed(
        "authorization",
        Check::Strong,
        r"(?i)\bbearer[ \t]+(?P<s>[A-Za-z0-9._~+/=-]{16,})",
    ),
    placed(
        "cookie",
        Check::Strong,
        r#"(?i)\b(?:set-)?cookie\b["']?[ \t]*:[^\n]{0,400}?\b[\w.-]*(?:sess|sid|auth|jwt|token)[\w.-]*=(?P<s>[^;\s"']{16,})"#,
    ),
    placed(
        "docker_auth",
        Check::Given,
        r#""_?auth"[ \t]*:[ \t]*"(?P<s>[A-Za-z0-9+/]{12,}={0,2})""#,
    ),
    placed(
        "docker_auth",
        Check::Given,
        r"(?m)^(?://[^\s=]*:)?_auth[ \t]*=[ \t]*(?P<s>[A-Za-z0-9+/]{12,}={0,2})",
    ),
    placed(
        "password",
        Check::Given,
        r#"\bcurl\b[^\n|;]{0,400}?[ \t](?:-u|--user|--proxy-user)[ \t=]+["']?[^:\s"'$]+:(?P<s>[^\s"']{3,})"#,
    ),
    placed(
        "password",
        Check::Given,
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,200}?[ \t]-p(?P<s>[^\s=-][^\s]{3,})",
    ),
    placed(
        "password",
        Check::Given,
        r#"\bsshpass[ \t]+-p[ \t]*(?:"(?P<s>[^"\n]+)"|'(?P<t>[^'\n]+)'|(?P<u>[^\s"']+))"#,
    ),
    placed(
        "password",
        Check::Given,
        r"\blogin[ \t]+[^\s=:]+[ \t]+password[ \t]+(?P<s>\S{4,})",
    ),
    placed(
        "password",
        Check::Given,
        r"(?i)<(?:password|passphrase|secret|client_?secret|token|api_?key|access_?key)>(?P<s>[^<\s]{4,})</",
    ),
];

static ALL: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new(SHAPES.iter().map(|shape| ascii(shape.pattern)))
        .expect("the patterns are constants, and tested")
});
static EACH: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SHAPES.iter().map(|shape| compile(shape.pattern)).collect());

/// `\b`, `\d`, `\w` and `\s` in ASCII; everything else still in characters, as text demands.
fn ascii(pattern: &str) -> String {
    pattern
        .replace(r"\b", r"(?-u:\b)")
        .replace(r"\d", "[0-9]")
        .replace(r"[\w.-]", "[A-Za-z0-9_.-]")
        // Only ever used inside a class.
        .replace(r"\s", r" \t\r\n")
}

pub(super) fn compile(pattern: &str) -> Regex {
    Regex::new(&ascii(pattern)).expect("the patterns are constants, and tested")
}

pub(super) fn find(text: &str, group: Group) -> Vec<Hit> {
    let mut hits = Vec::new();
    // One pass tells which of many patterns are worth a pass of their own.
    for index in ALL.matches(text) {
        let shape = &SHAPES[index];
        if group == Group::Prefixed && !shape.prefixed {
            continue;
        }
        for found in EACH[index].captures_iter(text) {
            let named = ["s", "t", "u"].iter().find_map(|name| found.name(name));
            let Some(secret) = named.or_else(|| found.get(0)) else {
                continue;
            };
            let host = found.name("host").map(|it| it.as_str());
            if holds(shape.check, secret.as_str(), host, group) {
                hits.push(Hit {
                    range: secret.range(),
                    kind: shape.kind,
                });
            }
        }
    }
    hits
}

fn holds(check: Check, secret: &str, host: Option<&str>, group: Group) -> bool {
    match check {
        Check::Filled => {
            let body = secret.rsplit(['_', '-', '.']).next().unwrap_or(secret);
            !body.chars().all(|it| "xX*0.".contains(it)) || body.is_empty()
        }
        Check::Given => !is_placeholder(secret),
        Check::Strong => !is_placeholder(secret) && is_strong(secret),
        Check::NotHex => !secret.bytes().all(|it| it.is_ascii_hexdigit()),
        Check::Login => {
            // A database on the developer's own machine is in every compose file.
            let near = host.is_some_and(|host| !host.contains('.') || host.starts_with("127."));
            let file = group == Group::All(Source::File);
            !(is_placeholder(secret) || file && near)
        }
    }
}

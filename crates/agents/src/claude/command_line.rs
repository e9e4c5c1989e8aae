//! The command line and environment Claude Code is started with, as pure functions.
//!
//! The rules are in `docs/decisions/0009-claude-settings-prompt-and-cost.md`. In short: a repository must not
//! be able to configure the agent that works on it (`--setting-sources user`,
//! `--strict-mcp-config`); the tools are a list, not a wish (`--tools`); the permission mode is
//! said every time (case H07); and the prompt cannot name files for the CLI to read or run one of
//! its commands ([`standard_input`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::{Request, ToolSurface};

/// Flags without which we do not start it: each closes a hole.
const NEEDED: [&str; 6] = [
    "--input-format",
    "--permission-mode",
    "--session-id",
    "--setting-sources",
    "--strict-mcp-config",
    "--tools",
];

/// What an installed version can do, read from its `--help`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Features {
    missing: Vec<&'static str>,
    max_budget: bool,
    json_schema: bool,
    permission_prompts: bool,
}

impl Features {
    pub(super) fn read(help: &str) -> Features {
        let has = |flag: &str| {
            help.split(|c: char| c.is_whitespace() || c == ',')
                .any(|it| it == flag)
        };
        Features {
            missing: NEEDED.into_iter().filter(|flag| !has(flag)).collect(),
            max_budget: has("--max-budget-usd"),
            json_schema: has("--json-schema"),
            permission_prompts: has("--permission-prompts"),
        }
    }

    /// Needed flags it does not have; it must not be used then.
    pub(super) fn missing(&self) -> &[&'static str] {
        &self.missing
    }
}

/// Program and arguments.
pub(super) fn argv(
    program: &Path,
    request: &Request,
    session: &str,
    features: &Features,
) -> Vec<OsString> {
    let (tools, mode, allowed) = surface(&request.tools);
    let turns = request.limits.turns.max(1).to_string();
    let mut argv: Vec<OsString> = vec![program.into(), "-p".into()];
    let mut flag = |words: &[&str]| argv.extend(words.iter().map(OsString::from));
    flag(&["--output-format", "stream-json", "--verbose"]);
    flag(&["--input-format", "stream-json"]);
    flag(&["--setting-sources", "user", "--strict-mcp-config"]);
    flag(&["--permission-mode", mode, "--tools", tools]);
    if !allowed.is_empty() {
        flag(&["--allowedTools", &allowed]);
    }
    if features.permission_prompts {
        flag(&["--permission-prompts", "none"]);
    }
    // Not in `--help`, but obeyed by every version measured.
    flag(&["--max-turns", &turns]);
    if features.max_budget {
        flag(&["--max-budget-usd", &dollars(request.limits.cost_micro_usd)]);
    }
    match request.session {
        Some(_) => flag(&["--resume", session]),
        None => flag(&["--session-id", session]),
    }
    if let Some(schema) = &request.schema
        && features.json_schema
    {
        flag(&["--json-schema", &schema.to_string()]);
    }
    if let Some(model) = &request.model {
        flag(&["--model", model]);
    }
    argv
}

/// Tools that exist, the permission mode, and tools that need no permission.
///
/// Workspace: `acceptEdits` lets the file tools write inside the directory and nowhere else (a
/// bare `Edit` rule would lift that), and still refuses `.git` and `.claude`. Commands need the
/// rule `Bash`, or each is refused for want of somebody to ask; a command is not confined by the
/// CLI. Read-only: `dontAsk` refuses whatever is not plainly allowed, so reading stays inside.
/// Some files only: the same, and a rule for each of them; `/a` is the directory's own `a`, where
/// `./a` would be every `a` below it too.
fn surface(tools: &ToolSurface) -> (&'static str, &'static str, String) {
    match tools {
        ToolSurface::Workspace => (
            "Read,Edit,Write,Bash,Glob,Grep,TodoWrite,Task",
            "acceptEdits",
            "Bash,Glob,Grep,TodoWrite,Task".to_owned(),
        ),
        ToolSurface::ReadEdit { only } => {
            let rules = only.iter().map(|it| format!("Edit(/{})", it.display()));
            let rules = rules.collect::<Vec<_>>().join(",");
            ("Read,Edit,Glob,Grep", "dontAsk", rules)
        }
        ToolSurface::ReadOnly => ("Read,Glob,Grep", "dontAsk", String::new()),
    }
}

/// A name that cannot be written as a rule: rules are patterns, and lists of them have commas.
pub(super) fn not_a_rule(only: &[PathBuf]) -> Option<&Path> {
    let plain = |path: &PathBuf| {
        let normal = |it| matches!(it, std::path::Component::Normal(_));
        let word = |c: char| c.is_alphanumeric() || "/._-+@".contains(c);
        let text = path.to_str();
        !path.as_os_str().is_empty()
            && path.components().all(normal)
            && text.is_some_and(|it| it.chars().all(word))
    };
    only.iter().find(|it| !plain(it)).map(PathBuf::as_path)
}

/// `1.25` for 1,250,000; never rounded up, and never nothing, which it refuses.
fn dollars(micro_usd: u64) -> String {
    let micro_usd = micro_usd.max(1);
    format!("{}.{:06}", micro_usd / 1_000_000, micro_usd % 1_000_000)
}

/// Files in which projects keep instructions for agents.
const INSTRUCTIONS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// Which of them a directory has. The CLI itself no longer loads them: it counts them among the
/// repository's settings, which it is told to leave alone.
pub(crate) fn instructions(dir: &Path) -> Vec<&'static str> {
    let is_file = |name: &&str| dir.join(name).is_file();
    INSTRUCTIONS.into_iter().filter(is_file).collect()
}

/// The prompt as one message of two text blocks.
///
/// The CLI looks for `/commands` and `@file` mentions in the last block only. In a prompt given as
/// plain text, `@/any/path` would be read into the conversation, from outside the directory too
/// and without asking, and `/clear` at its start would swallow it; goals and learnings are text
/// we did not write.
pub(super) fn standard_input(prompt: &str, instructions: &[&str]) -> Vec<u8> {
    let mut last = "Do what the text above asks.".to_owned();
    if !instructions.is_empty() {
        let files = instructions.join(" and ");
        last.push_str(&format!(
            " First read {files} in the working directory: the project's own instructions."
        ));
    }
    let message = serde_json::json!({
        "type": "user",
        "message": {"role": "user", "content": [
            {"type": "text", "text": prompt},
            {"type": "text", "text": last},
        ]},
    });
    format!("{message}\n").into_bytes()
}

/// Variables that decide where requests go and who pays. They come from our own environment,
/// never from the repository.
const OURS: [&str; 17] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_SUBPROCESS_ENV_SCRUB",
    "CLAUDE_CODE_TMPDIR",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CONFIG_DIR",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
];
const BEDROCK: [&str; 2] = ["AWS_", "ANTHROPIC_BEDROCK_"];
const VERTEX: [&str; 6] = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_",
    "CLOUDSDK_",
    "CLOUD_ML_REGION",
    "VERTEX_REGION_",
    "ANTHROPIC_VERTEX_",
];

/// The part of our own environment the CLI needs to reach its account.
pub(super) fn account(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let ours: BTreeMap<_, _> = ours.into_iter().collect();
    let is_on = |name: &str| {
        let value = ours.get(OsStr::new(name)).and_then(|it| it.to_str());
        !matches!(value, None | Some("" | "0" | "false" | "no" | "off"))
    };
    let mut prefixes: Vec<&str> = Vec::new();
    if is_on("CLAUDE_CODE_USE_BEDROCK") {
        prefixes.extend(BEDROCK);
    }
    if is_on("CLAUDE_CODE_USE_VERTEX") {
        prefixes.extend(VERTEX);
    }
    let mut account = ours;
    account.retain(|name, _| {
        let name = name.to_string_lossy();
        OURS.contains(&&*name) || prefixes.iter().any(|it| name.starts_with(it))
    });
    account
}

/// What we set ourselves, over everything else.
pub(super) fn fixed() -> [(&'static str, &'static str); 5] {
    [
        // Its own default retries even a refused key ten times, for minutes.
        ("CLAUDE_CODE_MAX_RETRIES", "3"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        // A run depends on the repository and the prompt, not on what an earlier run noted down.
        ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
        // A stage is over when its agent is: nothing goes on behind it.
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::tests::request;

    const HELP: &str = "--input-format <format>  --permission-mode <mode>\n --session-id <uuid>\n\
        --setting-sources <sources> --strict-mcp-config --tools <tools...> --max-budget-usd <a>\n\
        --json-schema <schema>";

    fn line(request: &Request, help: &str) -> String {
        let argv = argv(Path::new("claude"), request, "SID", &Features::read(help));
        let words: Vec<_> = argv.iter().map(|it| it.to_string_lossy()).collect();
        words.join(" ").replace(" --", "\n--")
    }

    #[test]
    fn h07_the_mode_and_the_tools_are_said_every_time_also_when_resuming() {
        let mut request = request();
        insta::assert_snapshot!(line(&request, HELP), @"
        claude -p
        --output-format stream-json
        --verbose
        --input-format stream-json
        --setting-sources user
        --strict-mcp-config
        --permission-mode acceptEdits
        --tools Read,Edit,Write,Bash,Glob,Grep,TodoWrite,Task
        --allowedTools Bash,Glob,Grep,TodoWrite,Task
        --max-turns 40
        --max-budget-usd 2.500000
        --session-id SID
        ");
        request.session = Some("SID".to_owned());
        request.tools = ToolSurface::ReadOnly;
        request.schema = Some(serde_json::json!({"type": "object"}));
        request.model = Some("opus".to_owned());
        let help = format!("{HELP} --permission-prompts <target>");
        insta::assert_snapshot!(line(&request, &help), @r#"
        claude -p
        --output-format stream-json
        --verbose
        --input-format stream-json
        --setting-sources user
        --strict-mcp-config
        --permission-mode dontAsk
        --tools Read,Glob,Grep
        --permission-prompts none
        --max-turns 40
        --max-budget-usd 2.500000
        --resume SID
        --json-schema {"type":"object"}
        --model opus
        "#);
    }

    #[test]
    fn a_version_without_the_flags_that_close_holes_is_not_used() {
        assert!(Features::read(HELP).missing().is_empty());
        let old = HELP.replace("--setting-sources", "--setting-sourcesX");
        assert_eq!(Features::read(&old).missing(), ["--setting-sources"]);
        assert_eq!(Features::read("").missing().len(), NEEDED.len());
    }

    #[test]
    fn i03_the_environment_is_an_allow_list() {
        let ours = |extra: &[(&str, &str)]| {
            let fixed = [
                ("ANTHROPIC_API_KEY", "k"),
                ("AWS_SECRET_ACCESS_KEY", "s"),
                ("GOOGLE_CLOUD_PROJECT", "g"),
                ("GITHUB_TOKEN", "t"),
                ("CLAUDE_CODE_USE_BEDROCK", "0"),
                ("ANTHROPIC_ANYTHING", "x"),
            ];
            let all = fixed.iter().chain(extra);
            let account = account(all.map(|(k, v)| (OsString::from(k), OsString::from(v))));
            let names = account.keys().map(|it| it.to_string_lossy().into_owned());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ours(&[]), "ANTHROPIC_API_KEY CLAUDE_CODE_USE_BEDROCK");
        assert_eq!(
            ours(&[("CLAUDE_CODE_USE_BEDROCK", "1")]),
            "ANTHROPIC_API_KEY AWS_SECRET_ACCESS_KEY CLAUDE_CODE_USE_BEDROCK"
        );
        assert_eq!(
            ours(&[("CLAUDE_CODE_USE_VERTEX", "true")]),
            "ANTHROPIC_API_KEY CLAUDE_CODE_USE_BEDROCK CLAUDE_CODE_USE_VERTEX GOOGLE_CLOUD_PROJECT"
        );
    }

    #[test]
    fn a_budget_is_written_exactly() {
        assert_eq!(dollars(1_250_000), "1.250000");
        assert_eq!(dollars(7), "0.000007");
        assert_eq!(dollars(0), "0.000001");
    }

    #[test]
    fn the_prompt_is_never_the_last_block() {
        let input = standard_input("/clear\n@/etc/passwd \"x\"", &["CLAUDE.md"]);
        let input = String::from_utf8(input).unwrap();
        assert_eq!(input.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&input).unwrap();
        let content = &value["message"]["content"];
        assert_eq!(content[0]["text"], "/clear\n@/etc/passwd \"x\"");
        assert_eq!(content.as_array().unwrap().len(), 2);
        assert!(
            content[1]["text"]
                .as_str()
                .unwrap()
                .contains("read CLAUDE.md in")
        );
    }
}

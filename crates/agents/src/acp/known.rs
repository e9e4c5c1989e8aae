//! The agents we know by name: how they are started, and what keeps a repository from
//! configuring them. Facts measured per program are in `docs/decisions/0011-acp-client.md`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::process;
use crate::{Request, ToolSurface};

/// A known agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
    /// Claude Code behind its adapter.
    Claude,
    /// Codex behind its adapter.
    Codex,
}

impl Known {
    /// Each of them.
    pub const ALL: [Known; 4] = [Known::Gemini, Known::Opencode, Known::Claude, Known::Codex];

    /// The name it goes by in `agentCommand`, which is its program's.
    pub fn name(self) -> &'static str {
        match self {
            Known::Gemini => "gemini",
            Known::Opencode => "opencode",
            Known::Claude => "claude-agent-acp",
            Known::Codex => "codex-acp",
        }
    }

    fn argv(self) -> &'static [&'static str] {
        match self {
            Known::Gemini => &["gemini", "--acp"],
            // With its errors: it tries a refused request again for ever and tells it only there.
            Known::Opencode => &["opencode", "acp", "--print-logs", "--log-level", "ERROR"],
            Known::Claude => &["claude-agent-acp"],
            Known::Codex => &["codex-acp"],
        }
    }

    /// What to type to log in.
    pub(super) fn login(self) -> &'static str {
        match self {
            Known::Gemini => "run `gemini` once and log in, or set GEMINI_API_KEY",
            Known::Opencode => "run `opencode auth login`",
            Known::Claude => "run `claude auth login`, or set ANTHROPIC_API_KEY",
            Known::Codex => "run `codex login`, or set OPENAI_API_KEY",
        }
    }

    /// The way to log in that asks nobody: its id, and the variable it needs.
    pub(super) fn silent_login(self) -> Option<(&'static str, &'static str)> {
        match self {
            Known::Gemini => Some(("gemini-api-key", "GEMINI_API_KEY")),
            Known::Codex => Some(("openai-api-key", "OPENAI_API_KEY")),
            Known::Opencode | Known::Claude => None,
        }
    }

    /// Variables of ours it also gets: where its account and endpoint are.
    fn variables(self) -> &'static [&'static str] {
        match self {
            Known::Gemini => &[
                "GOOGLE_GEMINI_BASE_URL",
                "GOOGLE_VERTEX_BASE_URL",
                "GOOGLE_GENAI_USE_VERTEXAI",
                "GOOGLE_CLOUD_PROJECT",
                "GOOGLE_CLOUD_LOCATION",
                "GOOGLE_APPLICATION_CREDENTIALS",
                "GEMINI_MODEL",
                "NODE_EXTRA_CA_CERTS",
            ],
            Known::Opencode => &[
                "OPENCODE_API_KEY",
                "OPENCODE_CONFIG",
                "OPENCODE_CONFIG_CONTENT",
                "OPENCODE_CONFIG_DIR",
                "OPENCODE_AUTH_CONTENT",
                "NODE_EXTRA_CA_CERTS",
            ],
            Known::Claude => &[],
            Known::Codex => &["CODEX_HOME", "CODEX_API_KEY"],
        }
    }
}

/// The command line for what is configured: a known name alone stands for its command line.
pub fn resolve(argv: &[OsString]) -> Vec<OsString> {
    match argv {
        [name] => {
            let known = Known::ALL.into_iter().find(|it| name == it.name());
            known.map_or_else(
                || argv.to_vec(),
                |it| it.argv().iter().map(OsString::from).collect(),
            )
        }
        _ => argv.to_vec(),
    }
}

/// Which agent a command line starts, when we know it: by its program's name, also behind `npx`
/// or another starter.
pub(super) fn of(argv: &[OsString]) -> Option<Known> {
    let starts = argv.iter().filter_map(|word| Path::new(word).file_name());
    let names: Vec<_> = starts.filter_map(OsStr::to_str).collect();
    let is = |known: &Known| {
        names
            .iter()
            .any(|it| it.split('@').next() == Some(known.name()))
    };
    Known::ALL.into_iter().find(is)
}

/// The part of our environment it needs to reach its account.
pub(super) fn account(
    known: Option<Known>,
    ours: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let ours: Vec<_> = ours.collect();
    let wanted = known.map(Known::variables).unwrap_or_default();
    let mut account: BTreeMap<_, _> = ours
        .iter()
        .filter(|(name, _)| wanted.iter().any(|it| name == it))
        .cloned()
        .collect();
    if known == Some(Known::Claude) {
        account.extend(crate::claude::account(ours));
    }
    account.extend(process::provider_environment());
    account
}

/// What we set over everything else, so that a repository's files configure nothing.
pub(super) fn fixed(
    known: Option<Known>,
    tools: &ToolSurface,
    account: &BTreeMap<OsString, OsString>,
) -> BTreeMap<OsString, OsString> {
    let mut fixed: BTreeMap<OsString, OsString> = BTreeMap::new();
    match known {
        Some(Known::Opencode) => {
            let given = account.get(OsStr::new("OPENCODE_CONFIG_CONTENT"));
            let content = opencode_config(given.and_then(|it| it.to_str()), tools);
            fixed.insert("OPENCODE_CONFIG_CONTENT".into(), content.to_string().into());
            for name in [
                "OPENCODE_DISABLE_PROJECT_CONFIG",
                "OPENCODE_PURE",
                "OPENCODE_DISABLE_AUTOUPDATE",
                "OPENCODE_DISABLE_SHARE",
                "OPENCODE_DISABLE_CLAUDE_CODE",
            ] {
                fixed.insert(name.into(), "1".into());
            }
        }
        Some(Known::Claude) => {
            let ours = crate::claude::fixed_environment();
            fixed.extend(ours.map(|(name, value)| (name.into(), value.into())));
        }
        Some(Known::Gemini | Known::Codex) | None => {}
    }
    fixed
}

/// Its settings: what changes something is asked for, or not offered at all.
fn opencode_config(given: Option<&str>, tools: &ToolSurface) -> Value {
    let given = given.and_then(|it| serde_json::from_str(it).ok());
    let mut config: Map<String, Value> = given.unwrap_or_default();
    let (edit, bash) = match tools {
        ToolSurface::ReadOnly => ("deny", "deny"),
        ToolSurface::ReadEdit { .. } => ("ask", "deny"),
        ToolSurface::Workspace => ("ask", "ask"),
    };
    let permission = json!({
        "edit": edit, "bash": bash,
        "webfetch": "deny", "websearch": "deny", "external_directory": "deny",
    });
    config.insert("permission".to_owned(), permission);
    config.insert("share".to_owned(), json!("disabled"));
    config.insert("autoupdate".to_owned(), json!(false));
    Value::Object(config)
}

/// What a new session is told beyond the protocol.
pub(super) fn session_meta(known: Option<Known>, request: &Request) -> Option<Value> {
    if known != Some(Known::Claude) {
        return None;
    }
    let tools = match &request.tools {
        ToolSurface::ReadOnly => json!(["Read", "Glob", "Grep"]),
        ToolSurface::ReadEdit { .. } => json!(["Read", "Edit", "Glob", "Grep"]),
        ToolSurface::Workspace => {
            json!([
                "Read",
                "Edit",
                "Write",
                "Bash",
                "Glob",
                "Grep",
                "TodoWrite",
                "Task"
            ])
        }
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "a limit in dollars, not an account"
    )]
    let dollars = request.limits.cost_micro_usd.max(1) as f64 / 1e6;
    Some(json!({"claudeCode": {"options": {
        "settingSources": ["user"],
        "strictMcpConfig": true,
        "tools": tools,
        "maxTurns": request.limits.turns.max(1),
        "maxBudgetUsd": dollars,
    }}}))
}

/// A file of the repository that the agent would run whatever it is told.
pub(super) fn would_run(known: Option<Known>, dir: &Path) -> Option<PathBuf> {
    if known != Some(Known::Opencode) {
        return None;
    }
    // Its modules are loaded, and so run, from the working directory and from everything above.
    let above = dir.ancestors().map(|it| it.join(".opencode"));
    let places = above.flat_map(|it| [it.join("plugin"), it.join("plugins")]);
    places
        .filter(|it| it.symlink_metadata().is_ok())
        .find(|it| std::fs::read_dir(it).map_or(true, |mut entries| entries.next().is_some()))
}

/// Modes that ask before they change something, by preference.
pub(super) fn modes(tools: &ToolSurface) -> &'static [&'static str] {
    match tools {
        ToolSurface::ReadOnly => &["read-only", "default", "build"],
        ToolSurface::ReadEdit { .. } => &["default", "read-only", "build"],
        ToolSurface::Workspace => &["default", "auto", "build"],
    }
}

/// The version of an installed program, from the package it belongs to: without starting it,
/// which takes some of them seconds.
pub(super) fn version(program: &Path) -> Option<String> {
    let real = program.canonicalize().ok()?;
    let stem = real.file_stem()?.to_str()?.to_owned();
    for dir in real.ancestors().skip(1).take(4) {
        let Ok(text) = std::fs::read(dir.join("package.json")) else {
            continue;
        };
        let package: Value = serde_json::from_slice(&text).ok()?;
        let is_its = package["bin"].is_object() || package["bin"].is_string();
        if is_its
            || package["name"]
                .as_str()
                .is_some_and(|it| it.contains(&stem))
        {
            return package["version"].as_str().map(str::to_owned);
        }
    }
    None
}

/// The known agents on PATH, with their versions where that is cheap to tell. Starts nothing.
pub fn installed() -> Vec<(Known, Option<String>)> {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let found = Known::ALL.into_iter().filter_map(|known| {
        let program = process::find_program(OsStr::new(known.name()), &here)?;
        Some((known, version(&program)))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_short_name_stands_for_its_command_line_and_nothing_else_is_changed() {
        assert_eq!(resolve(&words("gemini")), words("gemini --acp"));
        let opencode = words("opencode acp --print-logs --log-level ERROR");
        assert_eq!(resolve(&words("opencode")), opencode);
        assert_eq!(resolve(&words("codex-acp")), words("codex-acp"));
        assert_eq!(
            resolve(&words("gemini --acp -m x")),
            words("gemini --acp -m x")
        );
        assert_eq!(resolve(&words("my-agent")), words("my-agent"));
    }

    #[test]
    fn an_agent_is_known_by_its_program_also_behind_a_starter() {
        assert_eq!(of(&words("/opt/bin/opencode acp")), Some(Known::Opencode));
        let npx = words("npx -y @agentclientprotocol/claude-agent-acp@0.49.0");
        assert_eq!(of(&npx), Some(Known::Claude));
        assert_eq!(of(&words("my-agent --gemini")), None);
    }

    #[test]
    fn opencodes_own_settings_are_kept_but_for_what_it_may_do() {
        let given = r#"{"model": "a/b", "permission": {"edit": "allow"}}"#;
        let config = opencode_config(Some(given), &ToolSurface::ReadOnly);
        assert_eq!(config["model"], "a/b");
        assert_eq!(config["permission"]["edit"], "deny");
        let config = opencode_config(Some("{nonsense"), &ToolSurface::Workspace);
        assert_eq!(config["permission"]["bash"], "ask");
    }

    #[test]
    fn opencode_is_not_started_where_it_would_run_the_repositorys_code() {
        let dir = tempfile::tempdir().expect("a directory");
        let work = dir.path().join("a/b");
        std::fs::create_dir_all(&work).expect("directories");
        assert_eq!(would_run(Some(Known::Opencode), &work), None);
        let plugins = dir.path().join("a/.opencode/plugin");
        std::fs::create_dir_all(&plugins).expect("directories");
        assert_eq!(
            would_run(Some(Known::Opencode), &work),
            None,
            "nothing in it"
        );
        std::fs::write(plugins.join("x.js"), "").expect("writes");
        assert_eq!(would_run(Some(Known::Opencode), &work), Some(plugins));
        assert_eq!(would_run(Some(Known::Gemini), &work), None);
    }
}

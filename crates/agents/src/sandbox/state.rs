//! What known agents keep outside the work tree, and which of it starts programs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::{Setting, State};

/// Where things are, read from our environment.
pub struct Home<'a> {
    /// The user's home.
    dir: PathBuf,
    /// A variable that holds a path.
    variable: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl<'a> Home<'a> {
    /// As the variables of an environment say; none when nothing tells the home.
    pub fn of(variable: &'a dyn Fn(&str) -> Option<PathBuf>) -> Option<Home<'a>> {
        Some(Home {
            dir: variable("HOME").or_else(std::env::home_dir)?,
            variable,
        })
    }

    fn named_or(&self, variable: &str, otherwise: &str) -> PathBuf {
        (self.variable)(variable).unwrap_or_else(|| self.dir.join(otherwise))
    }
}

/// The state of the agents whose programs a command line names, in any of its words: it may
/// start one through `npx` or `env`. None of them: nothing is kept.
pub fn of_command(argv: &[OsString], home: &Home<'_>) -> State {
    let mut all = State::default();
    for word in argv {
        let name = Path::new(word).file_name().and_then(OsStr::to_str);
        let Some(one) = name.and_then(|it| of_program(it, home)) else {
            continue;
        };
        all.dirs.extend(one.dirs);
        all.settings.extend(one.settings);
        all.needs.extend(one.needs);
    }
    all
}

/// The state of one known program.
pub fn of_program(name: &str, home: &Home<'_>) -> Option<State> {
    let name = name.split('@').next().unwrap_or(name);
    match name {
        "claude" | "claude-agent-acp" | "claude-code-acp" | "claude-code" => Some(claude(home)),
        "codex" | "codex-acp" => Some(codex(home)),
        "gemini" | "gemini-cli" => Some(gemini(home)),
        "opencode" | "opencode-ai" => Some(opencode(home)),
        _ => None,
    }
}

fn file(dir: &Path, name: &str, empty: &'static str) -> Setting {
    Setting::File(dir.join(name), empty)
}

/// Claude Code. Its user settings can name hooks, its plug-ins, skills and sub-agents are
/// instructions and programs: all are honoured outside the sandbox as well.
pub fn claude(home: &Home<'_>) -> State {
    let dir = home.named_or("CLAUDE_CONFIG_DIR", ".claude");
    let mut settings: Vec<Setting> = [
        "agents",
        "commands",
        "hooks",
        "output-styles",
        "plugins",
        "rules",
        "skills",
    ]
    .map(|it| Setting::Dir(dir.join(it)))
    .to_vec();
    settings.push(file(&dir, "settings.json", "{}\n"));
    settings.push(file(&dir, "CLAUDE.md", ""));
    let on = |name: &str| {
        (home.variable)(name).is_some_and(|it| it.as_os_str() != "0" && it.as_os_str() != "false")
    };
    let mut needs = Vec::new();
    if on("CLAUDE_CODE_USE_BEDROCK") {
        needs.push(home.dir.join(".aws"));
        needs.extend((home.variable)("AWS_SHARED_CREDENTIALS_FILE"));
        needs.extend((home.variable)("AWS_CONFIG_FILE"));
    }
    if on("CLAUDE_CODE_USE_VERTEX") {
        needs.push(home.named_or("CLOUDSDK_CONFIG", ".config/gcloud"));
        needs.extend((home.variable)("GOOGLE_APPLICATION_CREDENTIALS"));
    }
    State {
        dirs: vec![dir],
        settings,
        needs,
    }
}

/// Codex. Its `config.toml` can name MCP servers and a program to notify.
pub fn codex(home: &Home<'_>) -> State {
    let dir = home.named_or("CODEX_HOME", ".codex");
    State {
        settings: vec![
            file(&dir, "config.toml", ""),
            file(&dir, "AGENTS.md", ""),
            file(&dir, "hooks.json", "{}\n"),
            Setting::Dir(dir.join("prompts")),
            Setting::Dir(dir.join("rules")),
            Setting::Dir(dir.join("skills")),
        ],
        dirs: vec![dir],
        needs: Vec::new(),
    }
}

fn gemini(home: &Home<'_>) -> State {
    let dir = home.dir.join(".gemini");
    State {
        settings: vec![
            file(&dir, "settings.json", "{}\n"),
            file(&dir, "GEMINI.md", ""),
            file(&dir, ".env", ""),
            Setting::Dir(dir.join("commands")),
            Setting::Dir(dir.join("extensions")),
            Setting::Dir(dir.join("policies")),
        ],
        dirs: vec![dir],
        needs: Vec::new(),
    }
}

fn opencode(home: &Home<'_>) -> State {
    // Its configuration is elsewhere (`~/.config/opencode`) and stays as it is.
    let data = home.named_or("XDG_DATA_HOME", ".local/share");
    let state = home.named_or("XDG_STATE_HOME", ".local/state");
    let cache = home.named_or("XDG_CACHE_HOME", ".cache");
    State {
        dirs: [data, state, cache].map(|it| it.join("opencode")).to_vec(),
        ..State::default()
    }
}

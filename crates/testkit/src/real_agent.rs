//! The real agent CLIs, at pinned versions, installed from npm under `target/agents/`.
//!
//! With `DEX_TESTS_OFFLINE=1` a test that needs one says that it was left out; otherwise one that
//! cannot be installed is a failure. `DEX_TEST_CLAUDE=<path>`, `DEX_TEST_CODEX`,
//! `DEX_TEST_GEMINI`, `DEX_TEST_OPENCODE` and `DEX_TEST_CLAUDE_ACP` name another installed version
//! instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

struct Pinned {
    title: &'static str,
    program: &'static str,
    package: &'static str,
    version: &'static str,
    /// Names another one.
    variable: &'static str,
}

const CLAUDE: Pinned = Pinned {
    title: "Claude Code",
    program: "claude",
    package: "@anthropic-ai/claude-code",
    version: "2.1.197",
    variable: "DEX_TEST_CLAUDE",
};

const CODEX: Pinned = Pinned {
    title: "Codex",
    program: "codex",
    package: "@openai/codex",
    version: "0.171.0",
    variable: "DEX_TEST_CODEX",
};

const GEMINI: Pinned = Pinned {
    title: "Gemini CLI",
    program: "gemini",
    package: "@google/gemini-cli",
    version: "0.61.0",
    variable: "DEX_TEST_GEMINI",
};

const OPENCODE: Pinned = Pinned {
    title: "opencode",
    program: "opencode",
    package: "opencode-ai",
    version: "1.18.33",
    variable: "DEX_TEST_OPENCODE",
};

const CLAUDE_ACP: Pinned = Pinned {
    title: "Claude Code's ACP adapter",
    program: "claude-agent-acp",
    package: "@agentclientprotocol/claude-agent-acp",
    version: "0.49.0",
    variable: "DEX_TEST_CLAUDE_ACP",
};

/// Claude Code; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
pub fn claude() -> Option<&'static Path> {
    static PROGRAM: Once = Once::new();
    CLAUDE.get(&PROGRAM)
}

/// Codex; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
pub fn codex() -> Option<&'static Path> {
    static PROGRAM: Once = Once::new();
    CODEX.get(&PROGRAM)
}

/// Gemini CLI; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
pub fn gemini() -> Option<&'static Path> {
    static PROGRAM: Once = Once::new();
    GEMINI.get(&PROGRAM)
}

/// opencode; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
pub fn opencode() -> Option<&'static Path> {
    static PROGRAM: Once = Once::new();
    OPENCODE.get(&PROGRAM)
}

/// Claude Code behind its ACP adapter; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
pub fn claude_acp() -> Option<&'static Path> {
    static PROGRAM: Once = Once::new();
    CLAUDE_ACP.get(&PROGRAM)
}

type Once = OnceLock<Result<PathBuf, String>>;

impl Pinned {
    fn get(&self, once: &'static Once) -> Option<&'static Path> {
        let title = self.title;
        if !crate::left_out::with_npm(title) {
            return None;
        }
        match once.get_or_init(|| self.install()) {
            Ok(program) => Some(program),
            Err(error) => panic!(
                "{title} could not be installed for this test: {error}\n\
                 (DEX_TESTS_OFFLINE=1 leaves the tests that need it out)"
            ),
        }
    }

    fn install(&self) -> Result<PathBuf, String> {
        if let Some(other) = std::env::var_os(self.variable) {
            return Ok(PathBuf::from(other));
        }
        let test = std::env::current_exe().expect("ourselves");
        // target/debug/deps/a_test-…
        let target = test.ancestors().nth(3).expect("a target directory");
        let output = Command::new("sh")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("install-agent.sh"))
            .arg(target.join("agents").join(self.program))
            .args([self.package, self.version, self.program])
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(PathBuf::from(text(&output.stdout)))
        } else {
            Err(text(&output.stderr))
        }
    }
}

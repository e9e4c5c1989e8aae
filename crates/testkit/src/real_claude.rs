//! The real Claude Code CLI, at a pinned version, installed from npm under `target/agents/`.
//!
//! With `DEX_TESTS_OFFLINE=1` a test that needs it says that it was left out; otherwise a missing
//! npm is a failure. `DEX_TEST_CLAUDE=<path>` names another installed version instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The pinned CLI; none when the tests that need the network are left out.
///
/// Panics when it cannot be installed.
#[expect(clippy::print_stdout, reason = "a test that did not run must say so")]
pub fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    if std::env::var_os("DEX_TESTS_OFFLINE").is_some_and(|it| it == "1") {
        println!("left out: needs Claude Code from npm, and DEX_TESTS_OFFLINE is set");
        return None;
    }
    match PROGRAM.get_or_init(install) {
        Ok(program) => Some(program),
        Err(error) => panic!(
            "Claude Code could not be installed for this test: {error}\n\
             (DEX_TESTS_OFFLINE=1 leaves the tests that need it out)"
        ),
    }
}

fn install() -> Result<PathBuf, String> {
    if let Some(other) = std::env::var_os("DEX_TEST_CLAUDE") {
        return Ok(PathBuf::from(other));
    }
    let test = std::env::current_exe().expect("ourselves");
    // target/debug/deps/real_claude-…
    let target = test.ancestors().nth(3).expect("a target directory");
    let output = Command::new("sh")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("install-claude.sh"))
        .arg(target.join("agents"))
        .output()
        .map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(PathBuf::from(text(&output.stdout)))
    } else {
        Err(text(&output.stderr))
    }
}

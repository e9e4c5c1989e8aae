//! What the start of a run says of agents that can be used here, with programs of the test's in
//! place of theirs.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{Answer, Project, implementing, runs};

const LOGGED_OUT_CLAUDE: &str = "case $1 in --version) echo '2.1.197 (Claude Code)';; \
    auth) echo '{\"loggedIn\": false}'; exit 1;; esac";
const READY_CODEX: &str = "case $1 in --version) echo 'codex-cli 0.171.0';; \
    login) echo 'Logged in';; esac";
const HANGS: &str = "exec sleep 60";

/// A project with these programs first on PATH.
fn with_programs(agent: &str, programs: &[(&str, &str)]) -> (Project, std::ffi::OsString) {
    let project = Project::new(&implementing(runs(&[&["true"]])));
    project.settings(&json!({ "agent": agent }));
    let dir = project.repo.beside("programs");
    std::fs::create_dir_all(&dir).expect("makes");
    for (name, script) in programs {
        // By another process: a file that ours had open for writing might not be started.
        let mut child = Command::new("install")
            .args(["-m", "755", "/dev/stdin"])
            .arg(dir.join(name))
            .stdin(Stdio::piped())
            .spawn()
            .expect("install runs");
        let mut input = child.stdin.take().expect("piped");
        writeln!(input, "#!/bin/sh\n{script}").expect("it reads");
        drop(input);
        assert!(child.wait().expect("our child").success());
    }
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dir).chain(std::env::split_paths(&rest));
    (project, std::env::join_paths(all).expect("a path"))
}

/// What a start says that must be refused.
fn refused(agent: &str, programs: &[(&str, &str)]) -> (String, Duration) {
    let (project, path) = with_programs(agent, programs);
    let began = Instant::now();
    let mut command = project.command(&["run", "--small"]);
    let answer: Answer = command
        .env("PATH", path)
        .output()
        .expect("dex starts")
        .into();
    let took = began.elapsed();
    assert_eq!(answer.code, Some(4), "{}", answer.err);
    assert_eq!(project.branch(), "", "nothing was started");
    (answer.err, took)
}

#[test]
fn an_agent_that_cannot_be_used_is_told_with_those_that_can() {
    let gemini = ("gemini", "exit 1");
    let programs = [
        ("claude", LOGGED_OUT_CLAUDE),
        ("codex", READY_CODEX),
        gemini,
    ];
    let (said, _) = refused("claude", &programs);
    // This machine may have more of them.
    for part in [
        "error: claude is not logged in; nothing was started\n",
        "hint: Log in (claude auth login). codex 0.171.0 is ready: `dex run --agent codex`.",
        "gemini is installed: `dex config agentCommand '[\"gemini\"]'`, then `dex run --agent acp`.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn an_agent_that_hangs_holds_nobody_up() {
    let programs = [("claude", LOGGED_OUT_CLAUDE), ("codex", HANGS)];
    let (said, took) = refused("claude", &programs);
    assert!(said.contains("claude is not logged in"), "{said}");
    assert!(!said.contains("codex"), "{said}");
    assert!(took < Duration::from_secs(9), "{took:?}");

    // The configured one: the other is asked meanwhile.
    let programs = [("claude", HANGS), ("codex", READY_CODEX)];
    let (said, took) = refused("claude", &programs);
    assert!(said.contains("does not answer"), "{said}");
    assert!(said.contains("codex 0.171.0 is ready"), "{said}");
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn where_the_configured_agent_is_ready_no_other_is_started() {
    let starts = "touch \"$0.started\"";
    let (project, path) = with_programs("scripted", &[("claude", starts), ("codex", starts)]);
    let mut command = project.command(&["run", "--small"]);
    let answer: Answer = command
        .env("PATH", path)
        .output()
        .expect("dex starts")
        .into();
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    for name in ["claude", "codex"] {
        let started = project
            .repo
            .beside("programs")
            .join(format!("{name}.started"));
        assert!(!started.exists(), "{name}");
    }
}

//! Starting git: bounded, never asking, and closed to the repository's own programs.

use std::time::{Duration, Instant};

use gitdb::GitError;
use testkit::Repo;

use crate::common::{in_child, open};

#[test]
fn a_call_that_hangs_is_ended_with_everything_it_started() {
    let repo = Repo::new();
    let pid = repo.beside("pid");
    let alias = format!("alias.hang=!echo $$ > '{}'; sleep 3600", pid.display());
    let db = open(&repo);
    let start = Instant::now();
    let args = ["-c", alias.as_str(), "hang"];
    let result = db
        .git
        .read(args)
        .timeout(Duration::from_millis(500))
        .bytes();
    match result {
        Err(GitError::TimedOut { command, .. }) => assert_eq!(command, "hang"),
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(5));
    let pid = std::fs::read_to_string(pid).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(status.is_empty() || status.contains(") Z "), "{status}");
}

#[test]
fn much_input_and_much_output_do_not_block_each_other() {
    let repo = Repo::new();
    let line = "HEAD:README.md\n".repeat(60_000);
    let out = open(&repo)
        .git
        .read(["cat-file", "--batch"])
        .stdin(line)
        .bytes()
        .unwrap();
    assert!(out.len() > 3_000_000);
}

#[test]
fn a_grandchild_that_keeps_the_pipe_open_does_not_hold_us_up() {
    let repo = Repo::new();
    let start = Instant::now();
    let args = [
        "-c",
        "alias.background=!sleep 30 & echo started",
        "background",
    ];
    let text = open(&repo).git.read(args).text().unwrap();
    assert_eq!(text, "started");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn b12_no_git_variable_reaches_a_child_but_our_own() {
    let out = in_child(
        "git_programs::child_prints_its_variables",
        &[
            ("GITDB_CHILD", "1"),
            ("GIT_DIR", "/nowhere"),
            ("GIT_AUTHOR_NAME", "Somebody"),
            ("GIT_CONFIG_PARAMETERS", "'core.bare=true'"),
            ("GIT_EXTERNAL_DIFF", "touch pwned"),
            ("GIT_PAGER", "touch pwned"),
            ("GIT_TRACE", "1"),
            ("GIT_ASKPASS", "ask"),
            ("SSH_ASKPASS", "ask"),
            ("GPG_TTY", "/dev/tty"),
            ("LC_ALL", "de_DE.UTF-8"),
        ],
    );
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The other half of the test above.
#[test]
#[ignore = "a part of another test"]
fn child_prints_its_variables() {
    if std::env::var_os("GITDB_CHILD").is_none() {
        return;
    }
    let repo = Repo::new();
    let args = ["-c", "alias.show=!env", "show-variables"];
    let args = [args[0], "alias.show-variables=!env", args[2]];
    let text = open(&repo).git.read(args).text().unwrap();
    let has = |it: &str| text.lines().any(|line| line == it);
    for gone in [
        "GIT_EXTERNAL_DIFF=",
        "GIT_PAGER=touch",
        "GIT_TRACE=",
        "SSH_ASKPASS=",
        "GPG_TTY=",
        "/nowhere",
    ] {
        assert!(!text.contains(gone), "{gone} in {text}");
    }
    for there in [
        "GIT_ASKPASS=",
        "LC_ALL=C",
        "GIT_TERMINAL_PROMPT=0",
        "GIT_OPTIONAL_LOCKS=0",
        // Who commits is the user's word, wherever they say it.
        "GIT_AUTHOR_NAME=Somebody",
    ] {
        assert!(has(there), "{there} not in {text}");
    }
    assert!(!text.contains("core.bare=true"));
}

#[test]
fn an_ssh_program_of_the_repository_is_never_started() {
    let repo = Repo::new();
    let trace = repo.beside("trace");
    let program = format!("touch '{}'; false", trace.display());
    repo.git(&["config", "core.sshCommand", &program]);
    let _ = open(&repo)
        .git
        .read(["ls-remote", "ssh://localhost:1/x"])
        .output()
        .unwrap();
    assert!(!trace.exists());
}

//! The history renderer and the crash harness.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::Repo;
use testkit::crash::{self, Run};

#[test]
fn a_history_is_drawn_the_same_way_every_time() {
    let draw = || {
        let repo = Repo::new();
        repo.git(&["checkout", "-qb", "dex/one"]);
        repo.git(&[
            "commit",
            "--allow-empty",
            "-qm",
            "dex: plan completed\n[checkpoint:plan:1]",
        ]);
        repo.git(&["checkout", "-q", "main"]);
        repo.git(&["commit", "--allow-empty", "-qm", "mine"]);
        repo.git(&["merge", "-q", "--no-ff", "-m", "merge", "dex/one"]);
        repo.git(&["update-ref", "refs/hidden/x", "HEAD"]);
        repo.git(&["tag", "v1", "HEAD~"]);
        repo.graph()
    };
    let first = draw();
    assert_eq!(first, draw());
    insta::assert_snapshot!(first, @r"
    *   merge (HEAD -> main)
    |\
    * | mine (tag: v1)
    | * dex: plan completed [checkpoint:plan:1] (dex/one)
    |/
    * initial
    ");
}

#[test]
fn a_command_is_killed_at_each_point_until_it_completes() {
    let mut killed = 0;
    let points = crash::at_every_point(
        |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "[ $DEX_CRASH_AT -gt 3 ] || kill -9 $$; exit 4"]);
            command
        },
        |n, run| match run {
            Run::Killed(_) => killed = n,
            Run::Completed(output) => assert_eq!(output.status.code(), Some(4)),
        },
    );
    assert_eq!((points, killed), (3, 3));
}

#[test]
fn a_left_over_process_is_found_by_its_marker() {
    let mark = format!("m{}", std::process::id());
    let mut child = Command::new("sleep")
        .arg("30")
        .env("DEX_TEST_MARK", &mark)
        .spawn()
        .unwrap();
    // While a program is being loaded its environment cannot be read yet.
    let since = Instant::now();
    let mut found = Vec::new();
    while found.is_empty() && since.elapsed() < Duration::from_secs(5) {
        found = crash::processes_with("DEX_TEST_MARK", &mark);
    }
    assert_eq!(found, [(child.id(), "sleep 30".to_owned())]);
    let status = crash::random_kill(&mut child, Duration::from_millis(30));
    assert!(!status.success());
    assert!(crash::survivors("DEX_TEST_MARK", &mark, Duration::from_secs(5)).is_empty());
}

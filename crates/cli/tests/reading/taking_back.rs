//! undo and redo: what is said is what happens.

use dex::files::lock::RunLock;
use gitdb::undo::{self, Keep};
use testkit::Repo;

use crate::hand::dex;

/// A repository with one entry, and changes since.
fn with_entry() -> Repo {
    let repo = Repo::new();
    repo.write(".git/info/exclude", "/.dex/state.lock\n");
    repo.write("README.md", "mine\n");
    repo.write("untracked.txt", "mine too\n");
    let opened = gitdb::Repo::open(repo.path()).unwrap();
    let keep = Keep {
        refs: vec!["refs/heads/main".to_owned()],
        ..Keep::default()
    };
    undo::record(&opened, "discard of Cycle 1 — Plan", &keep, 1_767_323_045).unwrap();
    repo.git(&["checkout", "-q", "--", "."]);
    repo.git(&["commit", "-q", "--allow-empty", "-m", "later"]);
    std::fs::remove_file(repo.path().join("untracked.txt")).unwrap();
    repo.write("new.txt", "since\n");
    repo
}

#[test]
fn k04_undo_says_what_goes_back_and_does_just_that() {
    let repo = with_entry();
    let tip = repo.git(&["rev-parse", "HEAD"]);
    let plan = dex(&repo, &["undo", "--dry-run"]);
    assert_eq!(plan.code, 0);
    insta::assert_snapshot!(crate::hand::masked(&plan.err), @r"
    undo: discard of Cycle 1 — Plan
      back to what it held then (2 files):
        README.md
        untracked.txt
      taken away, being new since then (1 file):
        new.txt
      main goes from <id> back to <id>
      modification times, modes other than 644 and 755, empty directories and nested repositories cannot be put back
    What is there now is kept first; `dex redo` brings it back.
    nothing was changed (--dry-run)
    ");
    assert_eq!(repo.read("README.md"), "# project\n", "nothing was changed");
    let done = dex(&repo, &["undo", "--yes"]);
    assert_eq!(done.code, 0, "{}", done.all());
    assert_eq!(done.out, "undone: discard of Cycle 1 — Plan\n");
    assert!(!done.err.contains("still differs"), "{}", done.err);
    assert_eq!(repo.read("README.md"), "mine\n");
    assert_eq!(repo.read("untracked.txt"), "mine too\n");
    assert!(!repo.path().join("new.txt").exists());
    assert_ne!(repo.git(&["rev-parse", "HEAD"]), tip);
    let redone = dex(&repo, &["redo", "--yes"]);
    assert_eq!(redone.code, 0, "{}", redone.all());
    assert_eq!(repo.read("new.txt"), "since\n");
    assert_eq!(repo.git(&["rev-parse", "HEAD"]), tip);
}

#[test]
fn without_anyone_to_ask_nothing_is_undone() {
    let repo = with_entry();
    let answer = dex(&repo, &["undo"]);
    assert_eq!(answer.code, 9);
    assert!(
        answer
            .err
            .contains("nobody is here to confirm; nothing was undone"),
        "{}",
        answer.err
    );
    assert!(answer.err.contains("`dex undo --yes`"), "{}", answer.err);
    assert_eq!(repo.read("README.md"), "# project\n");
    assert_eq!(dex(&repo, &["redo"]).code, 3, "there is nothing to redo");
}

#[test]
fn while_a_run_works_here_nothing_is_undone() {
    let repo = with_entry();
    let lock = RunLock::acquire(repo.path(), &repo.path().join(".git")).unwrap();
    let answer = dex(&repo, &["undo", "--yes"]);
    assert_eq!(answer.code, 8, "{}", answer.all());
    assert!(answer.err.contains("dex stop"), "{}", answer.err);
    drop(lock);
    assert_eq!(repo.read("README.md"), "# project\n");
    assert_eq!(dex(&repo, &["undo", "--yes"]).code, 0);
}

#[test]
fn the_stack_is_listed_with_what_comes_next() {
    let repo = with_entry();
    insta::assert_snapshot!(dex(&repo, &["undo", "--list"]).out.trim(), @"1  2026-01-02 03:04 UTC  discard of Cycle 1 — Plan (151 bytes)  ← dex undo");
    let json = dex(&repo, &["undo", "--list", "--json"]).json();
    assert_eq!(json["entries"][0]["kind"], "undo");
    dex(&repo, &["undo", "--yes"]);
    let list = dex(&repo, &["undo", "--list"]).out;
    assert!(
        list.lines().next().unwrap().ends_with("← dex redo"),
        "{list}"
    );
}

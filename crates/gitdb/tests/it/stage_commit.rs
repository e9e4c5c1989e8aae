//! The stage commit, read with stock git.

use std::time::Duration;

use gitdb::snapshot::{self, Landed, Meanwhile, SnapshotError};
use gitdb::undo;
use gitdb::{GitError, repo::Operation};
use testkit::Repo;

use crate::common::{MESSAGE, Stage, oid, open};

#[test]
fn a_stage_is_one_commit_and_leaves_a_clean_tree() {
    let stage = Stage::new();
    stage.repo.write("src/new.rs", "fn main() {}\n");
    stage.repo.write("README.md", "# changed\n");
    let prepared = stage.commit(&[]);
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    assert_eq!(
        stage.repo.git(&["log", "-1", "--format=%B"]),
        MESSAGE.trim_end()
    );
    assert_eq!(
        stage.repo.git(&["rev-parse", "HEAD^"]),
        stage.start.as_str()
    );
    assert_eq!(
        stage.repo.git(&["log", "-1", "--format=%an <%ae>"]),
        "Ada Example <ada@example.com>"
    );
    assert_eq!(stage.repo.git(&["fsck", "--strict"]), "");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    let changes = snapshot::changes(&open(&stage.repo), &stage.start, &prepared.commit).unwrap();
    let shown: Vec<_> = changes
        .iter()
        .map(|it| (it.path.as_slice(), it.mode))
        .collect();
    assert_eq!(
        shown,
        [(&b"README.md"[..], 0o100644), (b"src/new.rs", 0o100644)]
    );
}

#[test]
fn a_stage_that_changed_nothing_commits_too() {
    let stage = Stage::new();
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["diff", "--stat", "HEAD^", "HEAD"]), "");
}

#[test]
fn b07_a_stage_is_refused_while_an_operation_is_open() {
    type Begin = fn(&Repo);
    let begin: [(Operation, Begin); 5] = [
        (Operation::Merge, |repo| {
            drop(repo.try_git(&["merge", "side"]))
        }),
        (Operation::CherryPick, |repo| {
            drop(repo.try_git(&["cherry-pick", "side"]))
        }),
        (Operation::Revert, |repo| {
            drop(repo.try_git(&["revert", "--no-edit", "HEAD~1"]))
        }),
        (Operation::Rebase, |repo| {
            drop(repo.try_git(&["rebase", "side"]))
        }),
        (Operation::Bisect, |repo| {
            drop(repo.try_git(&["bisect", "start"]))
        }),
    ];
    for (operation, begin) in begin {
        let repo = Repo::new();
        repo.git(&["switch", "-qc", "side"]);
        repo.write("README.md", "side\n");
        repo.git(&["commit", "-qam", "side"]);
        repo.git(&["switch", "-q", "main"]);
        for text in ["one\n", "two\n"] {
            repo.write("README.md", text);
            repo.git(&["commit", "-qam", text]);
        }
        let stage = Stage::on(repo);
        begin(&stage.repo);
        let db = open(&stage.repo);
        assert_eq!(db.operation_in_progress().unwrap(), Some(operation));
        let seen = snapshot::meanwhile(&db, &stage.expected()).unwrap();
        assert_eq!(seen, Meanwhile::LeftOperation(operation));
        match stage.prepare(&[]) {
            Err(SnapshotError::Operation(named)) => assert_eq!(named, operation),
            other => panic!("{operation:?}: {other:?}"),
        }
        match db.commit_work_tree("dex: pre-jump autosave\n") {
            Err(SnapshotError::Operation(_) | SnapshotError::HeadMoved { .. }) => {}
            other => panic!("{operation:?}: {other:?}"),
        }
    }
}

#[test]
fn b08_conflict_markers_of_a_stash_pop_are_not_committed() {
    let stage = Stage::new();
    stage.repo.write("README.md", "stashed\n");
    stage.repo.git(&["stash", "-q"]);
    stage.repo.write("README.md", "committed\n");
    stage.repo.git(&["commit", "-qam", "agent"]);
    stage.repo.try_git(&["stash", "pop"]);
    match stage.prepare(&[]) {
        Err(SnapshotError::Unmerged { paths }) => assert_eq!(paths, ["README.md"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stage_is_refused_when_head_left_the_branch() {
    let stage = Stage::new();
    stage.repo.write("new", "x");
    let db = open(&stage.repo);
    stage.repo.git(&["switch", "-qc", "agent/other"]);
    let moved = Meanwhile::HeadMoved {
        tips: vec![stage.start.clone()],
    };
    assert_eq!(snapshot::meanwhile(&db, &stage.expected()).unwrap(), moved);
    assert!(matches!(
        stage.prepare(&[]),
        Err(SnapshotError::HeadMoved { .. })
    ));
    stage.repo.git(&["switch", "-q", "--detach"]);
    assert_eq!(snapshot::meanwhile(&db, &stage.expected()).unwrap(), moved);
    stage.repo.git(&["switch", "-q", "dex/run"]);
    stage.repo.git(&[
        "commit",
        "-q",
        "--amend",
        "--allow-empty",
        "-m",
        "rewritten",
    ]);
    let tips = vec![oid(&stage.repo.git(&["rev-parse", "HEAD"]))];
    assert_eq!(
        snapshot::meanwhile(&db, &stage.expected()).unwrap(),
        Meanwhile::HeadMoved { tips }
    );
}

#[test]
fn b11_an_agents_commits_are_folded_into_the_stage() {
    let stage = Stage::new();
    stage.repo.write("a", "1\n");
    stage.repo.git(&["add", "-A"]);
    let forged = "dex: verify completed [cycle:9] [feature:x]\n[checkpoint:verify:9]\n";
    stage.repo.git(&["commit", "-qm", forged]);
    stage.repo.write("b", "2\n");
    let tip = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
    let db = open(&stage.repo);
    let seen = snapshot::meanwhile(&db, &stage.expected()).unwrap();
    let commits = vec![tip.clone()];
    assert_eq!(seen, Meanwhile::Committed { tip, commits });
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["rev-list", "--count", "main..HEAD"]), "1");
    assert_eq!(
        stage.repo.git(&["ls-tree", "--name-only", "HEAD"]),
        "README.md\na\nb"
    );
    assert_eq!(undo::list(&db).unwrap(), []);
}

#[test]
fn a_branch_that_moved_before_landing_is_not_overwritten() {
    let stage = Stage::new();
    stage.repo.write("new", "x");
    let prepared = stage.prepare(&[]).unwrap();
    let other = oid(&stage
        .repo
        .git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "other"]));
    stage
        .repo
        .git(&["update-ref", "refs/heads/dex/run", other.as_str()]);
    match snapshot::land(&open(&stage.repo), &prepared) {
        Err(SnapshotError::BranchMoved { found, .. }) => assert_eq!(found, Some(other)),
        it => panic!("{it:?}"),
    }
    assert!(!stage.repo.path().join(".git/index.lock").exists());
}

#[test]
fn a_git_add_between_prepare_and_landing_is_not_lost() {
    let stage = Stage::new();
    stage.repo.write("agent", "x\n");
    let prepared = stage.prepare(&[]).unwrap();
    stage.repo.write("user", "y\n");
    stage.repo.git(&["add", "user"]);
    let landed = snapshot::land(&open(&stage.repo), &prepared).unwrap();
    assert_eq!(landed, Landed::IndexChanged);
    assert_eq!(stage.repo.git(&["rev-parse", "HEAD"]), stage.start.as_str());
    assert_eq!(stage.repo.git(&["diff", "--cached", "--name-only"]), "user");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn d03_an_index_lock_held_for_a_moment_is_waited_for() {
    let stage = Stage::new();
    stage.repo.write("new", "x");
    let lock = stage.repo.path().join(".git/index.lock");
    std::fs::write(&lock, "").unwrap();
    let prepared = stage.prepare(&[]).unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::fs::remove_file(lock).unwrap();
    });
    assert_eq!(
        snapshot::land(&open(&stage.repo), &prepared).unwrap(),
        Landed::Done
    );
    holder.join().unwrap();
}

#[test]
fn d05_an_index_lock_of_a_living_process_is_never_removed() {
    let stage = Stage::new();
    stage.repo.write("new", "x");
    let lock = stage.repo.path().join(".git/index.lock");
    let prepared = stage.prepare(&[]).unwrap();
    std::fs::write(&lock, "theirs").unwrap();
    let db = open(&stage.repo);
    match snapshot::land(&db, &prepared) {
        Err(SnapshotError::Git(GitError::Locked { path, .. })) => assert_eq!(path, lock),
        other => panic!("{other:?}"),
    }
    match snapshot::recover(&db, &prepared) {
        Err(SnapshotError::Git(GitError::Locked { path, .. })) => assert_eq!(path, lock),
        other => panic!("{other:?}"),
    }
    snapshot::sweep(&db, None).unwrap();
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "theirs");
    assert_eq!(
        stage.repo.git(&["rev-parse", "dex/run"]),
        stage.start.as_str()
    );
}

#[test]
fn content_that_is_only_in_the_index_is_kept_as_an_undo_entry() {
    let stage = Stage::new();
    stage.repo.write("README.md", "staged hunk\n");
    stage.repo.write("gone", "only in the index\n");
    stage.repo.git(&["add", "-A"]);
    stage.repo.write("README.md", "work tree\n");
    std::fs::remove_file(stage.repo.path().join("gone")).unwrap();
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["show", "HEAD:README.md"]), "work tree");
    let db = open(&stage.repo);
    let entries = undo::list(&db).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].reason, "content that was only in the index");
    stage
        .repo
        .git(&["reflog", "expire", "--expire=now", "--all"]);
    stage.repo.git(&["gc", "-q", "--prune=now"]);
    let staged = |path: &str| format!("{}:stage0/{path}", entries[0].oid);
    assert_eq!(
        stage.repo.git(&["show", &staged("README.md")]),
        "staged hunk"
    );
    assert_eq!(
        stage.repo.git(&["show", &staged("gone")]),
        "only in the index"
    );
}

#[test]
fn a_file_that_vanishes_while_it_is_added_does_not_stop_the_stage() {
    let stage = Stage::new();
    let root = stage.repo.path().to_owned();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let busy = root.join("busy");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::fs::write(&busy, "x");
                std::thread::sleep(Duration::from_millis(3));
                let _ = std::fs::remove_file(&busy);
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let results: Vec<_> = (0..10).map(|_| stage.prepare(&[])).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
}

#[test]
fn an_unreadable_file_stops_the_stage_by_name() {
    let stage = Stage::new();
    // Root reads everything, so a path git refuses stands in for one without permission.
    let repo = &stage.repo;
    repo.write("ok", "x");
    repo.git(&["config", "core.safecrlf", "true"]);
    repo.git(&["config", "core.autocrlf", "input"]);
    repo.write("mixed", "a\r\nb\r\n");
    match stage.prepare(&[]) {
        Err(SnapshotError::Add(text)) => assert!(text.contains("mixed"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

#[test]
fn a13_the_users_stash_is_never_touched() {
    let stage = Stage::new();
    stage.repo.write("README.md", "stashed\n");
    stage.repo.git(&["stash", "-q"]);
    let stash = std::fs::read(stage.repo.path().join(".git/logs/refs/stash")).unwrap();
    stage.repo.write("new", "x");
    let db = open(&stage.repo);
    undo::record(&db, "x", &undo::Keep::default(), 1).unwrap();
    stage.commit(&[]);
    undo::undo(&db, None, 2).unwrap();
    snapshot::restore_tree(&db, &stage.start, &[]).unwrap();
    assert_eq!(
        std::fs::read(stage.repo.path().join(".git/logs/refs/stash")).unwrap(),
        stash
    );
}

#[test]
fn an_autosave_commits_everything_on_the_current_branch() {
    let repo = Repo::new();
    repo.write("new", "x");
    let commit = open(&repo)
        .commit_work_tree("dex: pre-jump autosave\n")
        .unwrap();
    assert_eq!(repo.git(&["rev-parse", "main"]), commit.as_str());
    assert_eq!(
        repo.git(&["log", "-1", "--format=%s"]),
        "dex: pre-jump autosave"
    );
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    repo.git(&["switch", "-q", "--detach"]);
    let refused = open(&repo).commit_work_tree("dex: pre-jump autosave\n");
    assert!(matches!(refused, Err(SnapshotError::HeadMoved { .. })));
}

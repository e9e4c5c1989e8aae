//! The process dies at every step, and what it left is finished or undone.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use gitdb::Repo;
use gitdb::snapshot::{self, Expected, Hooks, Landed, Prepared, Selection, Sign};
use gitdb::undo::{self, Keep};

use crate::common::{MESSAGE, Stage, in_child, listing, open};

/// Where the child keeps what a live record would hold.
fn record(root: &Path) -> PathBuf {
    root.join(".git/prepared.json")
}

/// Runs a child that dies at its n-th crash point, for every n, until one lives.
fn at_every_step(child: &str, check: impl Fn(&Stage, &str), make: impl Fn() -> Stage) -> u32 {
    for step in 1..200 {
        let stage = make();
        let path = stage.repo.path().to_str().unwrap().to_owned();
        let n = step.to_string();
        let log = stage.repo.beside("points");
        let out = in_child(
            child,
            &[
                ("GITDB_CHILD", &path),
                ("DEX_CRASH_AT", &n),
                ("DEX_CRASH_LOG", log.to_str().unwrap()),
            ],
        );
        let died = out.status.signal() == Some(9);
        assert!(
            died || out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let points = std::fs::read_to_string(log).unwrap_or_default();
        let last = points.lines().last().unwrap_or("").to_owned();
        check(&stage, &last);
        if !died {
            return step;
        }
    }
    panic!("the child never lived");
}

fn make_stage() -> Stage {
    let stage = Stage::new();
    stage.repo.write("README.md", "agent\n");
    stage.repo.write("new", "agent\n");
    stage
}

#[test]
fn a_stage_commit_interrupted_anywhere_is_finished_or_was_never_begun() {
    let steps = at_every_step(
        "crash::child_commits_a_stage",
        recover_and_check,
        make_stage,
    );
    assert!(steps > 15, "{steps}");
}

fn recover_and_check(stage: &Stage, last: &str) {
    let repo = &stage.repo;
    let db = open(repo);
    let recorded = std::fs::read(record(repo.path())).ok();
    let prepared: Option<Prepared> = recorded.map(|it| serde_json::from_slice(&it).unwrap());
    // What a person writes after the crash is theirs, not the stage's.
    repo.write("person", "mine\n");
    match &prepared {
        Some(prepared) => {
            let landed = snapshot::recover(&db, prepared).unwrap();
            assert_eq!(landed, Landed::Done, "after {last}");
            assert_eq!(
                repo.git(&["rev-parse", "dex/run"]),
                prepared.commit.as_str(),
                "after {last}"
            );
            assert_eq!(
                snapshot::recover(&db, prepared).unwrap(),
                Landed::Done,
                "after {last}, again"
            );
        }
        None => {
            assert_eq!(
                repo.git(&["rev-parse", "dex/run"]),
                stage.start.as_str(),
                "after {last}"
            );
            snapshot::sweep(&db, None).unwrap();
            std::fs::remove_file(repo.path().join("person")).unwrap();
            stage.commit(&[]);
            repo.write("person", "mine\n");
        }
    }
    snapshot::sweep(&db, None).unwrap();
    assert_eq!(
        repo.git(&["status", "--porcelain"]),
        "?? person",
        "after {last}"
    );
    assert_eq!(repo.git(&["show", "HEAD:new"]), "agent", "after {last}");
    assert_eq!(
        repo.git(&["rev-list", "--count", "main..HEAD"]),
        "1",
        "after {last}"
    );
    assert_eq!(stage.leftovers(), Vec::<String>::new(), "after {last}");
    repo.git(&["fsck", "--strict"]);
}

#[test]
#[ignore = "a part of another test"]
fn child_commits_a_stage() {
    let Some(path) = std::env::var_os("GITDB_CHILD").map(PathBuf::from) else {
        return;
    };
    let db = Repo::open(&path).unwrap();
    let start = db.resolve_commit("HEAD").unwrap().unwrap();
    let expected = Expected {
        branch: "refs/heads/dex/run",
        start_tip: &start,
    };
    let prepared = snapshot::prepare(
        &db,
        &expected,
        &start,
        MESSAGE,
        Selection::default(),
        Sign::Never,
        Hooks::Skip,
    )
    .unwrap();
    let text = serde_json::to_vec(&prepared).unwrap();
    std::fs::write(record(&path), text).unwrap();
    snapshot::land(&db, &prepared).unwrap();
}

fn make_undoable() -> Stage {
    let stage = Stage::new();
    stage.repo.write("staged", "s\n");
    stage.repo.git(&["add", "-A"]);
    stage.repo.write("untracked", "u\n");
    let keep = Keep {
        refs: vec!["refs/heads/dex/run".to_owned()],
        ..Keep::default()
    };
    let db = open(&stage.repo);
    undo::record(&db, "commit", &keep, 1).unwrap();
    db.commit_work_tree("moved on\n").unwrap();
    stage.repo.write("README.md", "later\n");
    stage
}

#[test]
fn an_undo_interrupted_anywhere_is_finished_by_the_next_one_or_had_not_begun() {
    let check = |stage: &Stage, last: &str| {
        let db = open(&stage.repo);
        snapshot::sweep(&db, None).unwrap();
        let status = || stage.repo.git(&["status", "--porcelain"]);
        let undone = "A  staged\n?? untracked";
        // Finishes what was pending. If all of it was done, there is nothing left to undo.
        match undo::undo(&db, None, 5) {
            Ok(_) | Err(undo::UndoError::Nothing) => {}
            Err(other) => panic!("after {last}: {other:?}"),
        }
        assert_eq!(status(), undone, "after {last}");
        assert_eq!(
            stage.repo.git(&["rev-parse", "HEAD"]),
            stage.start.as_str(),
            "after {last}"
        );
        assert!(
            !stage
                .repo
                .path()
                .join(".git/dex/undo-pending.json")
                .exists(),
            "after {last}"
        );
        // And nothing that was there is lost.
        let kept = undo::list(&db).unwrap().into_iter().any(|it| {
            let readme = db.read_file(&it.oid, "worktree/README.md").unwrap();
            readme.is_some_and(|bytes| bytes == b"later\n")
        });
        assert!(kept, "after {last}");
    };
    let steps = at_every_step("crash::child_undoes", check, make_undoable);
    assert!(steps > 20, "{steps}");
}

#[test]
#[ignore = "a part of another test"]
fn child_undoes() {
    if let Some(path) = std::env::var_os("GITDB_CHILD").map(PathBuf::from) {
        undo::undo(&Repo::open(&path).unwrap(), None, 2).unwrap();
    }
}

#[test]
fn what_was_staged_after_a_crash_stays_staged() {
    // Before the swap, and after it.
    for point in ["snapshot.ref.before", "snapshot.ref.after"] {
        let stage = make_stage();
        let path = stage.repo.path().to_str().unwrap().to_owned();
        in_child(
            "crash::child_commits_a_stage",
            &[("GITDB_CHILD", &path), ("DEX_CRASH_AT", point)],
        );
        let text = std::fs::read(record(stage.repo.path())).unwrap();
        let prepared: Prepared = serde_json::from_slice(&text).unwrap();
        let db = open(&stage.repo);
        // Our lock is still there, so a person who wants to stage removes it, as git suggests.
        std::fs::remove_file(stage.repo.path().join(".git/index.lock")).unwrap();
        stage.repo.write("mine", "staged\n");
        stage.repo.write("new", "edited\n");
        stage.repo.git(&["add", "mine"]);
        assert_eq!(snapshot::recover(&db, &prepared).unwrap(), Landed::Done);
        assert_eq!(
            stage.repo.git(&["status", "--porcelain"]),
            "A  mine\n M new",
            "{point}"
        );
        assert_eq!(stage.repo.git(&["show", "HEAD:new"]), "agent");
        assert_eq!(stage.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn c04_a_kill_anywhere_leaves_the_users_git_files_listed_as_before() {
    let stage = make_stage();
    stage.repo.git(&["clone", "-q", ".", "nested"]);
    let nested = listing(&stage.repo.path().join("nested/.git"));
    let path = stage.repo.path().to_str().unwrap().to_owned();
    for point in [
        "snapshot.add.after",
        "snapshot.lock.after",
        "snapshot.rename.after",
    ] {
        in_child(
            "crash::child_commits_a_stage",
            &[("GITDB_CHILD", &path), ("DEX_CRASH_AT", point)],
        );
        assert_eq!(
            listing(&stage.repo.path().join("nested/.git")),
            nested,
            "{point}"
        );
        snapshot::sweep(&open(&stage.repo), None).unwrap();
        assert_eq!(stage.leftovers(), Vec::<String>::new());
    }
}

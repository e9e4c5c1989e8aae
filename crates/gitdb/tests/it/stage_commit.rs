//! The stage commit, read with stock git.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use gitdb::snapshot::{self, Changed, ChangedKind, Landed, Meanwhile, SnapshotError};
use gitdb::undo;
use gitdb::{GitError, repo::Operation};
use testkit::Repo;

use crate::common::{MESSAGE, Stage, oid, open};

fn survey(stage: &Stage) -> Vec<(String, ChangedKind)> {
    let named = |it: Changed| (String::from_utf8_lossy(&it.path).into_owned(), it.kind);
    snapshot::survey(&open(&stage.repo))
        .unwrap()
        .into_iter()
        .map(named)
        .collect()
}

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
fn excluded_paths_stay_as_they_are_in_the_parent() {
    let stage = Stage::new();
    stage.repo.write("kept.bin", "v1\n");
    stage.repo.git(&["add", "-A"]);
    stage.repo.git(&["commit", "-qm", "kept"]);
    let start = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
    let stage = Stage { start, ..stage };
    stage.repo.write("kept.bin", "v2\n");
    stage.repo.write("staged secret", "s\n");
    stage.repo.git(&["add", "staged secret"]);
    stage.repo.write("dir/[big]*.bin", "b\n");
    stage.repo.write("dir/bigX.bin", "other\n");
    stage.repo.write(".dex/state.lock", "1\n");
    stage.repo.write("ok", "ok\n");
    stage.commit(&[
        "kept.bin",
        "staged secret",
        "dir/[big]*.bin",
        ".dex/state.lock",
    ]);
    let tree = stage.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    assert_eq!(tree, "README.md\ndir/bigX.bin\nkept.bin\nok");
    assert_eq!(stage.repo.git(&["show", "HEAD:kept.bin"]), "v1");
    assert_eq!(stage.repo.read("staged secret"), "s\n");
    let status = stage.repo.git(&["status", "--porcelain"]);
    assert!(status.starts_with(" M kept.bin"), "{status}");
}

#[test]
fn b13_a_mode_change_alone_is_recorded() {
    let stage = Stage::new();
    let path = stage.repo.path().join("README.md");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(survey(&stage)[0].0, "README.md");
    stage.commit(&[]);
    assert!(
        stage
            .repo
            .git(&["ls-tree", "HEAD", "README.md"])
            .starts_with("100755 ")
    );
}

#[test]
fn b13_a_mode_set_in_the_index_is_kept_where_the_file_system_has_none() {
    let stage = Stage::new();
    stage.repo.git(&["config", "core.fileMode", "false"]);
    stage.repo.git(&["update-index", "--chmod=+x", "README.md"]);
    stage.commit(&[]);
    assert!(
        stage
            .repo
            .git(&["ls-tree", "HEAD", "README.md"])
            .starts_with("100755 ")
    );
}

#[test]
fn b14_c05_nested_repositories_are_left_out_and_the_rest_is_recorded() {
    let stage = Stage::new();
    let root = stage.repo.path();
    stage.repo.git(&["clone", "-q", ".", "vendor/x"]);
    stage.repo.git(&["init", "-q", "empty nested"]);
    stage.repo.git(&["worktree", "add", "-q", "wt", "-b", "w"]);
    stage.repo.write("be/ok", "ok\n");
    let names = ["vendor/x", "empty nested", "wt"];
    let before: Vec<_> = names
        .iter()
        .map(|it| crate::common::listing(&root.join(it)))
        .collect();
    let found = survey(&stage);
    for name in names {
        assert!(
            found.contains(&(name.to_owned(), ChangedKind::NestedRepo)),
            "{name} in {found:?}"
        );
    }
    stage.commit(&[]);
    assert_eq!(
        stage.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]),
        "README.md\nbe/ok"
    );
    assert!(!stage.repo.git(&["ls-files", "-s"]).contains("160000"));
    let after: Vec<_> = names
        .iter()
        .map(|it| crate::common::listing(&root.join(it)))
        .collect();
    assert_eq!(before, after);
}

#[test]
fn c04_the_git_directory_of_a_nested_repository_is_never_touched() {
    let stage = Stage::new();
    stage.repo.git(&["clone", "-q", ".", "nested"]);
    let git = stage.repo.path().join("nested/.git");
    let before = crate::common::listing(&git);
    stage.repo.write("nested/inner.txt", "dirty\n");
    stage.commit(&[]);
    let db = open(&stage.repo);
    undo::record(&db, "x", &undo::Keep::default(), 1).unwrap();
    snapshot::restore_tree(&db, &stage.start, &[]).unwrap();
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(crate::common::listing(&git), before);
    assert_eq!(stage.repo.read("nested/inner.txt"), "dirty\n");
}

#[test]
fn c06_a_dirty_submodule_is_recorded_only_by_its_commit() {
    let library = Repo::new();
    let repo = Repo::new();
    let url = library.path().to_str().unwrap();
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        url,
        "lib",
    ]);
    repo.git(&["commit", "-qm", "lib"]);
    let stage = Stage::on(repo);
    stage.repo.write("lib/dirty", "x\n");
    stage.repo.write("lib/README.md", "changed\n");
    assert_eq!(survey(&stage), []);
    let before = stage.repo.git(&["rev-parse", "HEAD:lib"]);
    let prepared = stage.commit(&[]);
    assert_eq!(stage.repo.git(&["rev-parse", "HEAD:lib"]), before);
    let lib = stage.repo.path().join("lib");
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let commit = ["commit", "-qam", "inner"];
    stage
        .repo
        .git_in(&lib, &author.iter().chain(&commit).collect::<Vec<_>>());
    let stage = Stage {
        start: prepared.commit,
        ..stage
    };
    stage.commit(&[]);
    assert_eq!(
        stage.repo.git(&["rev-parse", "HEAD:lib"]),
        stage.repo.git_in(&lib, &["rev-parse", "HEAD"])
    );
    // Discarding never enters it.
    snapshot::restore_tree(&open(&stage.repo), &stage.start, &[]).unwrap();
    assert_eq!(stage.repo.read("lib/README.md"), "changed\n");
    assert_eq!(stage.repo.read("lib/dirty"), "x\n");
}

#[test]
fn c08_line_ends_are_stored_as_attributes_say() {
    let stage = Stage::new();
    stage
        .repo
        .write(".gitattributes", "*.txt text eol=crlf\n*.sh text eol=lf\n");
    stage.repo.write("a.txt", "one\r\ntwo\r\n");
    stage.repo.write("b.sh", "one\r\n");
    stage.commit(&[]);
    assert_eq!(
        stage.repo.git(&["cat-file", "blob", "HEAD:a.txt"]),
        "one\ntwo"
    );
    assert_eq!(stage.repo.git(&["cat-file", "blob", "HEAD:b.sh"]), "one");
    assert_eq!(stage.repo.read("a.txt"), "one\r\ntwo\r\n");
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn c10_a_symbolic_link_is_stored_as_a_link() {
    let stage = Stage::new();
    let secret = stage.repo.beside("id_test");
    std::fs::write(&secret, "PRIVATE KEY\n").unwrap();
    std::os::unix::fs::symlink(&secret, stage.repo.path().join("leak")).unwrap();
    let home = stage.repo.home();
    std::os::unix::fs::symlink(&home, stage.repo.path().join("dir")).unwrap();
    std::fs::write(home.join("inside"), "x").unwrap();
    let kinds = survey(&stage);
    assert_eq!(
        kinds,
        [
            ("dir".to_owned(), ChangedKind::Link),
            ("leak".to_owned(), ChangedKind::Link)
        ]
    );
    stage.commit(&[]);
    assert_eq!(
        stage.repo.git(&["cat-file", "-p", "HEAD:leak"]),
        secret.to_str().unwrap()
    );
    assert!(
        stage
            .repo
            .git(&["ls-tree", "HEAD", "leak"])
            .starts_with("120000 ")
    );
    assert!(
        stage
            .repo
            .git(&["ls-tree", "HEAD", "dir"])
            .starts_with("120000 ")
    );
}

#[test]
fn c12_the_size_of_every_changed_file_is_known_before_it_is_stored() {
    let stage = Stage::new();
    let file = std::fs::File::create(stage.repo.path().join("big.bin")).unwrap();
    file.set_len(3 << 30).unwrap();
    std::fs::remove_file(stage.repo.path().join("README.md")).unwrap();
    let start = std::time::Instant::now();
    let found = survey(&stage);
    assert!(start.elapsed() < Duration::from_secs(5));
    let expected = [
        ("README.md".to_owned(), ChangedKind::Deleted),
        ("big.bin".to_owned(), ChangedKind::File { bytes: 3 << 30 }),
    ];
    assert_eq!(found, expected);
    stage.commit(&["big.bin"]);
    assert_eq!(stage.repo.git(&["ls-tree", "--name-only", "HEAD"]), "");
    assert!(stage.repo.path().join("big.bin").exists());
}

#[test]
fn c15_bytes_go_in_and_come_out_unchanged() {
    let stage = Stage::new();
    let bytes = [0xff, 0xfe, 0x00, 0xe9, b'\n', 0x80];
    stage.repo.write("data", bytes);
    stage.commit(&[]);
    let db = open(&stage.repo);
    let tip = db.resolve_commit("HEAD").unwrap().unwrap();
    assert_eq!(db.read_file(&tip, "data").unwrap().unwrap(), bytes);
    stage.repo.write("data", "changed");
    snapshot::restore_tree(&db, &tip, &[]).unwrap();
    assert_eq!(
        std::fs::read(stage.repo.path().join("data")).unwrap(),
        bytes
    );
}

#[test]
fn index_flags_survive_a_stage() {
    let stage = Stage::new();
    for name in ["assumed", "skipped"] {
        stage.repo.write(name, "v1\n");
    }
    stage.repo.git(&["add", "-A"]);
    stage.repo.git(&["commit", "-qm", "flags"]);
    let start = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
    let stage = Stage { start, ..stage };
    stage
        .repo
        .git(&["update-index", "--assume-unchanged", "assumed"]);
    stage
        .repo
        .git(&["update-index", "--skip-worktree", "skipped"]);
    for name in ["assumed", "skipped", "intended"] {
        stage.repo.write(name, "local\n");
    }
    stage.repo.git(&["add", "-N", "intended"]);
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["show", "HEAD:assumed"]), "v1");
    assert_eq!(stage.repo.git(&["show", "HEAD:skipped"]), "v1");
    assert_eq!(stage.repo.git(&["show", "HEAD:intended"]), "local");
    assert_eq!(
        stage.repo.git(&["ls-files", "-v"]),
        "H README.md\nh assumed\nH intended\nS skipped"
    );
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_sparse_checkout_stays_sparse_and_files_outside_are_recorded() {
    for cone in [&["--cone", "--sparse-index"][..], &["--no-cone"]] {
        let stage = Stage::new();
        for dir in ["a", "b", "c"] {
            stage.repo.write(format!("{dir}/f"), format!("{dir}\n"));
        }
        stage.repo.git(&["add", "-A"]);
        stage.repo.git(&["commit", "-qm", "dirs"]);
        let start = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
        let stage = Stage { start, ..stage };
        let set = [&["sparse-checkout", "set"], cone, &["a"]].concat();
        stage.repo.git(&set);
        stage.repo.write("a/f", "changed\n");
        stage.repo.write("b/new", "outside\n");
        stage.repo.write("c/f", "outside too\n");
        stage.commit(&[]);
        assert_eq!(stage.repo.git(&["show", "HEAD:a/f"]), "changed");
        assert_eq!(stage.repo.git(&["show", "HEAD:b/f"]), "b");
        assert_eq!(stage.repo.git(&["show", "HEAD:b/new"]), "outside");
        assert_eq!(stage.repo.git(&["show", "HEAD:c/f"]), "outside too");
        assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
        assert!(!stage.repo.path().join("b/f").exists());
    }
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

//! Undo entries and what they bring back.

use gitdb::repo::{Head, Operation};
use gitdb::snapshot;
use gitdb::undo::{self, EntryKind, Keep, UndoError};
use testkit::Repo;

use crate::common::{Stage, listing, oid, open};

fn everything(
    repo: &Repo,
) -> (
    String,
    String,
    String,
    std::collections::BTreeMap<String, String>,
) {
    (
        repo.git(&["status", "--porcelain", "-z", "-uall"]),
        repo.git(&["ls-files", "-s", "-v", "--debug"])
            .lines()
            .filter(|it| !it.starts_with("  "))
            .collect(),
        repo.git(&["for-each-ref", "refs/heads", "refs/tags"]),
        listing(repo.path()),
    )
}

fn keep(refs: &[&str]) -> Keep {
    Keep {
        refs: refs.iter().map(|&it| it.to_owned()).collect(),
        ..Keep::default()
    }
}

/// A work tree with every kind of unsaved state.
fn messy() -> Stage {
    let stage = Stage::new();
    let root = stage.repo.path();
    stage.repo.write("staged.txt", "staged\n");
    stage.repo.git(&["add", "staged.txt"]);
    stage.repo.write("staged.txt", "later\n");
    stage.repo.write("dir/untracked.txt", "u\n");
    stage.repo.write("run.sh", "#!/bin/sh\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.join("run.sh"), mode).unwrap();
    std::os::unix::fs::symlink("dir/untracked.txt", root.join("link")).unwrap();
    stage.repo.write("README.md", "changed\n");
    stage.repo.write(".gitignore", "*.log\n");
    stage.repo.write("ignored.log", "ignored\n");
    stage
}

#[test]
fn undo_brings_back_files_index_and_branch_and_redo_takes_it_back() {
    let stage = messy();
    let db = open(&stage.repo);
    let before = everything(&stage.repo);
    let index = std::fs::read(stage.repo.path().join(".git/index")).unwrap();
    undo::record(
        &db,
        "discard everything",
        &keep(&[stage.branch]),
        1_700_000_000,
    )
    .unwrap();
    assert_eq!(everything(&stage.repo), before);
    snapshot::restore_tree(&db, &stage.start, &[]).unwrap();
    // The rule that ignored it is gone, the file is not.
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "?? ignored.log");
    assert_eq!(stage.repo.read("ignored.log"), "ignored\n");
    let discarded = everything(&stage.repo);
    let undone = undo::undo(&db, None, 1_700_000_001).unwrap();
    assert_eq!(undone.entry.reason, "discard everything");
    assert_eq!(undone.entry.time_unix, 1_700_000_000);
    assert_eq!(
        std::fs::read(stage.repo.path().join(".git/index")).unwrap(),
        index
    );
    assert_eq!(everything(&stage.repo), before);
    undo::redo(&db, 1_700_000_002).unwrap();
    assert_eq!(everything(&stage.repo), discarded);
    undo::undo(&db, None, 1_700_000_003).unwrap();
    assert_eq!(everything(&stage.repo), before);
}

#[test]
fn edits_made_after_an_undo_are_not_lost_by_the_redo() {
    let stage = Stage::new();
    let db = open(&stage.repo);
    undo::record(&db, "one", &Keep::default(), 1).unwrap();
    stage.repo.write("a", "after\n");
    undo::undo(&db, None, 2).unwrap();
    assert!(!stage.repo.path().join("a").exists());
    stage.repo.write("edited", "precious\n");
    undo::redo(&db, 3).unwrap();
    assert_eq!(stage.repo.read("a"), "after\n");
    assert!(!stage.repo.path().join("edited").exists());
    undo::undo(&db, None, 4).unwrap();
    assert_eq!(stage.repo.read("edited"), "precious\n");
}

#[test]
fn several_undos_go_further_back_and_as_many_redos_forward() {
    let stage = Stage::new();
    let db = open(&stage.repo);
    for n in 1..=3 {
        undo::record(&db, &format!("step {n}"), &Keep::default(), n).unwrap();
        stage.repo.write("f", format!("{n}"));
    }
    for expected in ["2", "1"] {
        undo::undo(&db, None, 10).unwrap();
        assert_eq!(stage.repo.read("f"), expected);
    }
    undo::undo(&db, None, 10).unwrap();
    assert!(!stage.repo.path().join("f").exists());
    assert!(matches!(undo::undo(&db, None, 11), Err(UndoError::Nothing)));
    for expected in ["1", "2", "3"] {
        undo::redo(&db, 20).unwrap();
        assert_eq!(stage.repo.read("f"), expected);
    }
    assert!(matches!(undo::redo(&db, 21), Err(UndoError::Nothing)));
    undo::undo(&db, None, 22).unwrap();
    undo::record(&db, "something new", &Keep::default(), 23).unwrap();
    assert!(matches!(undo::redo(&db, 24), Err(UndoError::Nothing)));
}

#[test]
fn undo_moves_the_named_refs_and_head_back() {
    let stage = Stage::new();
    let db = open(&stage.repo);
    let names = [
        "refs/heads/main",
        "refs/heads/dex/run",
        "refs/heads/dex/later",
    ];
    undo::record(&db, "jump", &keep(&names), 1).unwrap();
    stage
        .repo
        .git(&["commit", "-q", "--allow-empty", "-m", "more"]);
    stage.repo.git(&["branch", "dex/later"]);
    stage.repo.git(&["switch", "-q", "main"]);
    stage.repo.git(&["branch", "-D", "-q", "dex/run"]);
    undo::undo(&db, None, 2).unwrap();
    let name = stage.branch.to_owned();
    let oid = Some(stage.start.clone());
    assert_eq!(db.head().unwrap(), Head::Branch { name, oid });
    let refs = stage
        .repo
        .git(&["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(refs, "refs/heads/dex/run\nrefs/heads/main");
    undo::redo(&db, 3).unwrap();
    let refs = stage
        .repo
        .git(&["for-each-ref", "--format=%(refname)", "refs/heads"]);
    assert_eq!(refs, "refs/heads/dex/later\nrefs/heads/main");
    assert_eq!(
        stage.repo.git(&["rev-parse", "--abbrev-ref", "HEAD"]),
        "main"
    );
}

#[test]
fn undo_restores_a_conflict_with_its_stages_and_the_open_merge() {
    let repo = Repo::new();
    repo.git(&["switch", "-qc", "side"]);
    repo.write("README.md", "side\n");
    repo.git(&["commit", "-qam", "side"]);
    repo.git(&["switch", "-q", "main"]);
    repo.write("README.md", "main\n");
    repo.git(&["commit", "-qam", "main"]);
    repo.try_git(&["merge", "side"]);
    let before = everything(&repo);
    let stages = repo.git(&["ls-files", "-u"]);
    let message = std::fs::read(repo.path().join(".git/MERGE_MSG")).unwrap();
    let db = open(&repo);
    let entry = undo::record(&db, "abort the merge", &Keep::default(), 1).unwrap();
    repo.git(&["merge", "--abort"]);
    assert_eq!(db.operation_in_progress().unwrap(), None);
    repo.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(
        repo.git(&["show", &format!("{}:stage3/README.md", entry.oid)]),
        "side"
    );
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(everything(&repo), before);
    assert_eq!(repo.git(&["ls-files", "-u"]), stages);
    assert_eq!(db.operation_in_progress().unwrap(), Some(Operation::Merge));
    assert_eq!(
        std::fs::read(repo.path().join(".git/MERGE_MSG")).unwrap(),
        message
    );
    undo::redo(&db, 3).unwrap();
    assert_eq!(db.operation_in_progress().unwrap(), None);
    assert_eq!(repo.read("README.md"), "main\n");
}

#[test]
fn c01_undo_works_before_the_first_commit() {
    let repo = Repo::unborn(&[]);
    repo.write("a", "a\n");
    let db = open(&repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    repo.git(&["add", "-A"]);
    repo.write("a", "changed\n");
    repo.write("b", "b\n");
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(repo.git(&["status", "--porcelain"]), "?? a");
    assert_eq!(repo.read("a"), "a\n");
    undo::redo(&db, 3).unwrap();
    assert_eq!(repo.git(&["status", "--porcelain"]), "AM a\n?? b");
}

#[test]
fn undo_restores_files_outside_a_sparse_checkout() {
    let stage = Stage::new();
    for dir in ["a", "b", "c"] {
        stage.repo.write(format!("{dir}/f"), format!("{dir}\n"));
    }
    stage.repo.git(&["add", "-A"]);
    stage.repo.git(&["commit", "-qm", "dirs"]);
    let tip = oid(&stage.repo.git(&["rev-parse", "HEAD"]));
    stage.repo.git(&["sparse-checkout", "set", "--cone", "a"]);
    stage.repo.write("a/f", "changed\n");
    stage.repo.write("b/new", "outside\n");
    stage.repo.write("c/f", "outside too\n");
    let before = (
        stage.repo.git(&["status", "--porcelain"]),
        listing(stage.repo.path()),
    );
    let db = open(&stage.repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    snapshot::restore_tree(&db, &tip, &[]).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(
        (
            stage.repo.git(&["status", "--porcelain"]),
            listing(stage.repo.path())
        ),
        before
    );
}

#[test]
fn undo_gives_back_the_line_ends_of_a_file_taken_out_of_the_index() {
    let stage = Stage::new();
    stage.repo.write(".gitattributes", "*.eol text\n");
    stage.repo.write("keep.eol", "one\r\ntwo\r\n");
    stage.repo.git(&["add", "-A"]);
    stage.repo.git(&["commit", "-qm", "line ends"]);
    stage.repo.git(&["rm", "-q", "--cached", "keep.eol"]);
    let db = open(&stage.repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    stage.repo.git(&["reset", "-q", "--hard"]);
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(stage.repo.read("keep.eol"), "one\r\ntwo\r\n");
    assert_eq!(
        stage.repo.git(&["status", "--porcelain"]),
        "D  keep.eol\n?? keep.eol"
    );
}

#[test]
fn undo_restores_content_behind_assume_unchanged_and_skip_worktree() {
    let stage = Stage::new();
    for name in ["assumed", "skipped"] {
        stage.repo.write(name, "v1\n");
    }
    stage.repo.git(&["add", "-A"]);
    stage.repo.git(&["commit", "-qm", "flags"]);
    stage
        .repo
        .git(&["update-index", "--assume-unchanged", "assumed"]);
    stage
        .repo
        .git(&["update-index", "--skip-worktree", "skipped"]);
    stage.repo.write("assumed", "local\n");
    stage.repo.write("skipped", "local\n");
    let flags = stage.repo.git(&["ls-files", "-v"]);
    let db = open(&stage.repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    stage
        .repo
        .git(&["update-index", "--no-assume-unchanged", "assumed"]);
    stage
        .repo
        .git(&["update-index", "--no-skip-worktree", "skipped"]);
    stage.repo.git(&["reset", "-q", "--hard"]);
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(stage.repo.read("assumed"), "local\n");
    assert_eq!(stage.repo.read("skipped"), "local\n");
    assert_eq!(stage.repo.git(&["ls-files", "-v"]), flags);
    // And where the flags are still set when the undo runs.
    undo::record(&db, "y", &Keep::default(), 3).unwrap();
    stage.repo.write("assumed", "v1\n");
    stage.repo.write("skipped", "v1\n");
    undo::undo(&db, None, 4).unwrap();
    assert_eq!(stage.repo.read("assumed"), "local\n");
    assert_eq!(stage.repo.read("skipped"), "local\n");
}

#[test]
fn likely_secrets_are_kept_by_private_copy_and_never_as_objects() {
    use std::os::unix::fs::PermissionsExt as _;
    let stage = Stage::new();
    stage.repo.write("conf/.env", "TOKEN=abc\n");
    stage.repo.write("big.bin", "huge\n");
    let db = open(&stage.repo);
    let keep = Keep {
        private: vec![b"conf/.env".to_vec()],
        leave_out: vec![b"big.bin".to_vec()],
        ..Keep::default()
    };
    let entry = undo::record(&db, "x", &keep, 1).unwrap();
    let blob = stage.repo.git(&["hash-object", "conf/.env"]);
    assert!(
        !stage
            .repo
            .try_git(&["cat-file", "-e", &blob])
            .status
            .success()
    );
    let dir = stage.repo.path().join(".git/dex/undo/1");
    assert_eq!(
        std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
        0o700
    );
    stage.repo.write("conf/.env", "TOKEN=other\n");
    stage.repo.write("big.bin", "changed\n");
    undo::undo(&db, None, 2).unwrap();
    assert_eq!(stage.repo.read("conf/.env"), "TOKEN=abc\n");
    assert_eq!(stage.repo.read("big.bin"), "changed\n");
    undo::redo(&db, 3).unwrap();
    assert_eq!(stage.repo.read("conf/.env"), "TOKEN=other\n");
    let listed = undo::list(&db).unwrap();
    assert!(listed.iter().all(|it| it.n != entry.n));
    assert!(!dir.exists());
}

#[test]
fn the_stack_is_bounded_and_entries_can_be_dropped() {
    let repo = Repo::new();
    let db = open(&repo);
    for n in 0..52 {
        undo::record(&db, "step", &Keep::default(), n).unwrap();
    }
    let entries = undo::list(&db).unwrap();
    assert_eq!(entries.len(), 50);
    assert_eq!((entries[0].n, entries[49].n), (52, 3));
    undo::drop_entry(&db, &entries[0]).unwrap();
    undo::drop_entry(&db, &entries[0]).unwrap();
    assert_eq!(undo::list(&db).unwrap()[0].n, 51);
    assert_eq!(entries[1].kind, EntryKind::Undo);
}

#[test]
fn entries_of_a_linked_worktree_are_its_own_and_survive_gc() {
    let repo = Repo::new();
    let main = open(&repo);
    let tip = main.resolve_commit("HEAD").unwrap().unwrap();
    let dir = repo.beside("w");
    main.add_worktree(&dir, "dex/w", &tip).unwrap();
    let linked = gitdb::Repo::open(&dir).unwrap();
    std::fs::write(dir.join("mine"), "m\n").unwrap();
    undo::record(&linked, "x", &Keep::default(), 1).unwrap();
    assert_eq!(undo::list(&main).unwrap(), []);
    std::fs::remove_file(dir.join("mine")).unwrap();
    repo.git(&["gc", "-q", "--prune=now"]);
    undo::undo(&linked, None, 2).unwrap();
    assert_eq!(std::fs::read_to_string(dir.join("mine")).unwrap(), "m\n");
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/dex-local"]);
    assert_eq!(
        refs,
        "refs/dex-local/undo/wt-w/1\nrefs/dex-local/undo/wt-w/2"
    );
}

#[test]
fn a19_an_entry_with_a_missing_object_changes_nothing() {
    let stage = messy();
    let db = open(&stage.repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    let blob = stage.repo.git(&[
        "rev-parse",
        "refs/dex-local/undo/main/1:worktree/dir/untracked.txt",
    ]);
    snapshot::restore_tree(&db, &stage.start, &[]).unwrap();
    let before = everything(&stage.repo);
    let path = stage
        .repo
        .path()
        .join(".git/objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    std::fs::remove_file(path).unwrap();
    assert!(undo::undo(&db, None, 2).is_err());
    assert_eq!(everything(&stage.repo), before);
    assert_eq!(undo::list(&db).unwrap().len(), 1);
}

#[test]
fn an_undo_needs_no_identity_and_reads_with_stock_git() {
    let repo = Repo::new();
    repo.write("new", "n\n");
    let db = open(&repo);
    undo::record(
        &db,
        "discard\nevery\u{1b}thing",
        &Keep::default(),
        1_700_000_000,
    )
    .unwrap();
    let shown = repo.git(&[
        "log",
        "-1",
        "--format=%an %ae %ct%n%B",
        "refs/dex-local/undo/main/1",
    ]);
    assert!(
        shown.starts_with("dex dex@localhost 1700000000\ndiscard every thing\n\nkind: undo\n"),
        "{shown}"
    );
    let names = repo.git(&["ls-tree", "--name-only", "refs/dex-local/undo/main/1"]);
    assert_eq!(names, "index\nmeta.json\nworktree");
    assert_eq!(
        repo.git(&["show", "refs/dex-local/undo/main/1:worktree/new"]),
        "n"
    );
}

#[test]
fn no_git_is_started_inside_a_submodule_whose_configuration_anyone_may_have_written() {
    let stage = Stage::new();
    let library = stage.repo.beside("library");
    stage
        .repo
        .git(&["clone", "-q", ".", library.to_str().unwrap()]);
    let url = library.to_str().unwrap();
    let add = [
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "-q",
        "add",
        url,
        "sub",
    ];
    stage.repo.git(&add);
    stage.repo.git(&["commit", "-qm", "a submodule"]);
    let mark = stage.repo.beside("mark");
    let program = format!("touch {}; cat", mark.display());
    let inside = stage.repo.path().join("sub");
    stage
        .repo
        .git_in(&inside, &["config", "filter.evil.clean", &program]);
    stage.repo.write("sub/.gitattributes", "* filter=evil\n");
    stage.repo.write("sub/README.md", "changed\n");
    let db = open(&stage.repo);
    undo::record(&db, "x", &Keep::default(), 1).unwrap();
    stage.commit(&[]);
    assert!(!mark.exists());
}

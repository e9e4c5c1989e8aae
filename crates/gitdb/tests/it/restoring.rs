//! Putting a tree back, and what it must never touch.

use std::os::unix::fs::symlink;
use std::path::Path;

use gitdb::snapshot;
use gitdb::undo::{self, Keep};

use crate::common::{Stage, listing, oid, open};

#[test]
fn c11_a_link_planted_in_the_way_does_not_lead_a_restore_outside() {
    let stage = Stage::new();
    stage.repo.write("d/file", "ours\n");
    stage.repo.write("e/deep/file", "ours\n");
    stage.repo.write("plain", "ours\n");
    let prepared = stage.commit(&[]);
    let victim = stage.repo.beside("victim");
    std::fs::create_dir_all(victim.join("deep")).unwrap();
    for name in ["file", "deep/file", "plain"] {
        std::fs::write(victim.join(name), "precious\n").unwrap();
    }
    let before = listing(&victim);
    let root = stage.repo.path();
    let plant = || {
        for dir in ["d", "e"] {
            std::fs::remove_dir_all(root.join(dir)).unwrap();
            symlink(&victim, root.join(dir)).unwrap();
        }
        std::fs::remove_file(root.join("plain")).unwrap();
        symlink(victim.join("plain"), root.join("plain")).unwrap();
    };
    let db = open(&stage.repo);
    undo::record(
        &db,
        "x",
        &Keep {
            private: vec![b"d/file".to_vec()],
            ..Keep::default()
        },
        1,
    )
    .unwrap();
    plant();
    snapshot::restore_tree(&db, &prepared.tree, &[]).unwrap();
    assert_eq!(listing(&victim), before);
    assert_eq!(stage.repo.read("d/file"), "ours\n");
    assert!(!root.join("d").is_symlink() && !root.join("plain").is_symlink());
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    plant();
    // The private copy's directory is a link here: either it is replaced or it is refused.
    let _ = undo::undo(&db, None, 2);
    assert_eq!(listing(&victim), before);
}

#[test]
fn files_become_directories_and_links_and_back() {
    let stage = Stage::new();
    stage.repo.write("a", "file\n");
    stage.repo.write("b/c/d", "deep\n");
    let one = stage.commit(&[]);
    let root = stage.repo.path();
    std::fs::remove_file(root.join("a")).unwrap();
    stage.repo.write("a/now/dir", "x\n");
    std::fs::remove_dir_all(root.join("b")).unwrap();
    symlink("a/now", root.join("b")).unwrap();
    let db = open(&stage.repo);
    let two = snapshot::work_tree_tree(&db, &[]).unwrap();
    let first = listing(root);
    snapshot::restore_tree(&db, &one.tree, &[]).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    assert_eq!(stage.repo.read("b/c/d"), "deep\n");
    snapshot::restore_tree(&db, &two, &[]).unwrap();
    assert_eq!(listing(root), first);
    assert_eq!(snapshot::work_tree_tree(&db, &[]).unwrap(), two);
}

#[test]
fn paths_to_keep_stay_byte_for_byte() {
    let stage = Stage::new();
    stage.repo.write("tracked", "v1\n");
    stage.repo.write("dir/tracked", "v1\n");
    let one = stage.commit(&[]);
    for path in ["tracked", "dir/tracked", "dir/untracked", ".dex/state.lock"] {
        stage.repo.write(path, "mine\n");
    }
    stage.repo.write("other", "goes\n");
    let db = open(&stage.repo);
    let keep = ["tracked", "dir", ".dex/state.lock"].map(Path::new);
    snapshot::restore_tree(&db, &one.tree, &keep).unwrap();
    for path in ["tracked", "dir/tracked", "dir/untracked", ".dex/state.lock"] {
        assert_eq!(stage.repo.read(path), "mine\n", "{path}");
    }
    assert!(!stage.repo.path().join("other").exists());
    // Also against a tree that never had them.
    snapshot::restore_tree(
        &db,
        &oid(&stage.repo.git(&["rev-parse", "main^{tree}"])),
        &keep,
    )
    .unwrap();
    for path in ["tracked", "dir/tracked", "dir/untracked", ".dex/state.lock"] {
        assert_eq!(stage.repo.read(path), "mine\n", "{path}");
    }
}

#[test]
fn a19_a_tree_that_cannot_be_read_whole_changes_nothing() {
    let stage = Stage::new();
    stage.repo.write("a", "a\n");
    stage.repo.write("b", "b\n");
    let prepared = stage.commit(&[]);
    stage.repo.write("a", "changed\n");
    stage.repo.write("b", "changed\n");
    let blob = stage.repo.git(&["rev-parse", "HEAD:b"]);
    let path = stage
        .repo
        .path()
        .join(".git/objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    std::fs::remove_file(path).unwrap();
    let before = (
        listing(stage.repo.path()),
        listing(&stage.repo.path().join(".git")),
    );
    let db = open(&stage.repo);
    assert!(snapshot::restore_tree(&db, &prepared.tree, &[]).is_err());
    assert!(snapshot::restore_tree(&db, &oid(&"1".repeat(40)), &[]).is_err());
    assert_eq!(listing(stage.repo.path()), before.0);
    let after = listing(&stage.repo.path().join(".git"));
    assert_eq!(after.get("index"), before.1.get("index"));
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

#[test]
fn a_file_that_only_looks_untracked_because_the_ignore_rules_changed_survives() {
    let stage = Stage::new();
    stage.repo.write(".gitignore", "*.log\n/build/\n");
    stage.repo.write("sub/.gitignore", "secret\n");
    let one = stage.commit(&[]);
    for path in ["x.log", "build/out", "sub/secret", "sub/y.log"] {
        stage.repo.write(path, "ignored\n");
    }
    stage.repo.write("new", "agent's\n");
    std::fs::remove_file(stage.repo.path().join(".gitignore")).unwrap();
    stage.repo.write("sub/.gitignore", "nothing\n");
    let db = open(&stage.repo);
    snapshot::restore_tree(&db, &one.tree, &[]).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    for path in ["x.log", "build/out", "sub/secret", "sub/y.log"] {
        assert_eq!(stage.repo.read(path), "ignored\n", "{path}");
    }
    assert!(!stage.repo.path().join("new").exists());
}

#[test]
fn an_index_lock_of_somebody_else_stops_a_restore_before_it_starts() {
    let stage = Stage::new();
    stage.repo.write("new", "x\n");
    std::fs::write(stage.repo.path().join(".git/index.lock"), "theirs").unwrap();
    let restored = snapshot::restore_tree(&open(&stage.repo), &stage.start, &[]);
    assert!(matches!(restored, Err(gitdb::GitError::Locked { .. })));
    assert_eq!(stage.repo.read("new"), "x\n");
}

#[test]
fn a_nested_repository_is_not_entered_by_a_restore() {
    let stage = Stage::new();
    stage.repo.write("lib/code.rs", "ours\n");
    let one = stage.commit(&[]);
    std::fs::remove_dir_all(stage.repo.path().join("lib")).unwrap();
    let stage = Stage {
        start: one.commit.clone(),
        ..stage
    };
    stage.commit(&[]);
    stage.repo.git(&["init", "-q", "lib"]);
    stage.repo.write("lib/theirs", "precious\n");
    let before = listing(&stage.repo.path().join("lib"));
    snapshot::restore_tree(&open(&stage.repo), &one.tree, &[]).unwrap();
    assert_eq!(listing(&stage.repo.path().join("lib")), before);
}

//! The stage commit, read with stock git.

mod it;

use gitdb::snapshot::{self, ChangedKind, Expected, Hooks, Landed, Meanwhile, Sign, SnapshotError};
use gitdb::undo::{self, Keep};
use it::{MESSAGE, Stage, open};

#[test]
fn a_stage_is_one_commit_and_leaves_a_clean_tree() {
    let stage = Stage::new();
    stage.repo.write("src/new.rs", "fn main() {}\n");
    stage.repo.write("README.md", "# changed\n");
    stage.commit(&[]);
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    assert_eq!(
        stage.repo.git(&["log", "-1", "--format=%B"]),
        MESSAGE.trim_end()
    );
    assert_eq!(
        stage.repo.git(&["rev-parse", "HEAD^"]),
        stage.start.as_str()
    );
    assert_eq!(stage.repo.git(&["fsck", "--strict"]), "");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

#[test]
fn undo_brings_back_files_index_and_branch_and_redo_takes_it_back() {
    let stage = Stage::new();
    stage.repo.write("staged.txt", "staged\n");
    stage.repo.git(&["add", "staged.txt"]);
    stage.repo.write("staged.txt", "later\n");
    stage.repo.write("untracked.txt", "u\n");
    let status = stage.repo.git(&["status", "--porcelain"]);
    let db = open(&stage.repo);
    let keep = Keep {
        refs: vec!["refs/heads/dex/run".to_owned()],
        ..Keep::default()
    };
    undo::record(&db, "discard everything", &keep, 1_700_000_000).unwrap();
    let tree = db.resolve_commit("HEAD").unwrap().unwrap();
    snapshot::restore_tree(&db, &tree, &[]).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    let undone = undo::undo(&db, None, 1_700_000_001).unwrap();
    assert_eq!(undone.entry.reason, "discard everything");
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), status);
    assert_eq!(stage.repo.git(&["show", ":staged.txt"]), "staged");
    assert_eq!(stage.repo.read("staged.txt"), "later\n");
    undo::redo(&db, 1_700_000_002).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    undo::undo(&db, None, 1_700_000_003).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), status);
}

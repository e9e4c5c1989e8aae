//! Reading writes nothing, takes no lock, and never mistakes an error for "not there".

use gitdb::refs;
use gitdb::snapshot::{self, Expected, Meanwhile};
use testkit::Repo;

use crate::common::{MESSAGE, oid, open};

#[test]
fn d02_reading_never_writes_and_needs_no_lock() {
    let repo = Repo::new();
    repo.git(&["switch", "-qc", "dex/run"]);
    let start = oid(&repo.git(&["rev-parse", "HEAD"]));
    // The index is stale on purpose: a refreshing reader would rewrite it.
    let index = repo.path().join(".git/index");
    std::thread::sleep(std::time::Duration::from_millis(20));
    repo.write("README.md", "# project\n");
    repo.write("new", "x");
    std::fs::write(repo.path().join(".git/index.lock"), "held by somebody").unwrap();
    let before = crate::common::listing(&repo.path().join(".git"));
    let times = std::fs::metadata(&index).unwrap().modified().unwrap();
    let db = open(&repo);
    db.status().unwrap();
    snapshot::survey(&db).unwrap();
    db.head().unwrap();
    db.identity().unwrap();
    db.config("user.name").unwrap();
    db.first_parents(&start, None, 10).unwrap();
    db.read_file(&start, "README.md").unwrap();
    db.list_dir(&start, "").unwrap();
    db.diff_stat(&start, &start, &[]).unwrap();
    db.branch_checked_out_where("main").unwrap();
    refs::list(&db, &["refs/heads/"]).unwrap();
    gitdb::undo::list(&db).unwrap();
    gitdb::protect::capture(&db, "refs/heads/dex/run").unwrap();
    let expected = Expected {
        branch: "refs/heads/dex/run",
        start_tip: &start,
    };
    assert_eq!(
        snapshot::meanwhile(&db, &expected).unwrap(),
        Meanwhile::Nothing
    );
    assert_eq!(crate::common::listing(&repo.path().join(".git")), before);
    assert_eq!(
        std::fs::metadata(&index).unwrap().modified().unwrap(),
        times
    );
}

#[test]
fn a19_a_missing_object_is_an_error_and_a_missing_file_is_not() {
    let repo = Repo::new();
    let tip = oid(&repo.git(&["rev-parse", "HEAD"]));
    let db = open(&repo);
    assert_eq!(db.read_file(&tip, "absent").unwrap(), None);
    assert_eq!(db.read_file(&tip, "README.md/below").unwrap(), None);
    let blob = repo.git(&["rev-parse", "HEAD:README.md"]);
    let path = repo
        .path()
        .join(".git/objects")
        .join(&blob[..2])
        .join(&blob[2..]);
    std::fs::remove_file(path).unwrap();
    assert!(db.read_file(&tip, "README.md").is_err());
    let nowhere = oid(&"1".repeat(40));
    assert!(db.read_file(&nowhere, "README.md").is_err());
    assert!(db.list_dir(&nowhere, "").is_err());
    assert!(db.is_ancestor(&nowhere, &tip).is_err());
}

#[test]
fn c17_ancestry_in_a_shallow_clone_is_unknown_rather_than_no() {
    let repo = Repo::new();
    let first = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let second = oid(&repo.git(&["rev-parse", "HEAD"]));
    assert!(open(&repo).is_ancestor(&first, &second).unwrap());
    assert!(!open(&repo).is_ancestor(&second, &first).unwrap());
    let dir = repo.beside("shallow");
    let url = format!("file://{}", repo.path().display());
    repo.git(&["clone", "-q", "--depth=1", &url, dir.to_str().unwrap()]);
    let db = gitdb::Repo::open(&dir).unwrap();
    assert!(db.is_ancestor(&first, &second).is_err());
}

#[test]
fn history_is_read_along_first_parents_with_raw_messages() {
    let repo = Repo::new();
    let root = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.git(&[
        "commit",
        "-q",
        "--allow-empty",
        "--cleanup=verbatim",
        "-m",
        MESSAGE,
    ]);
    repo.git(&["switch", "-qc", "side", "HEAD^"]);
    repo.git(&["commit", "-q", "--allow-empty", "-m", "side\n\nbody"]);
    repo.git(&["switch", "-q", "main"]);
    repo.git(&["merge", "-q", "--no-ff", "-m", "merged", "side"]);
    let tip = oid(&repo.git(&["rev-parse", "HEAD"]));
    let commits = open(&repo).first_parents(&tip, None, 100).unwrap();
    let subjects: Vec<_> = commits
        .iter()
        .map(|it| it.message.lines().next().unwrap())
        .collect();
    let stage = MESSAGE.lines().next().unwrap();
    assert_eq!(subjects, ["merged", stage, "initial"]);
    assert_eq!(commits[0].parents.len(), 2);
    assert_eq!(commits[1].stage.as_ref().unwrap().to_string(), MESSAGE);
    assert_eq!(commits[0].stage, None);
    assert_eq!(commits[2].oid, root);
    assert_eq!(
        commits[0].tree.as_str(),
        repo.git(&["rev-parse", "HEAD^{tree}"])
    );
    assert_eq!(
        open(&repo)
            .first_parents(&tip, Some(&root), 100)
            .unwrap()
            .len(),
        2
    );
    assert_eq!(open(&repo).first_parents(&tip, None, 1).unwrap().len(), 1);
}

#[test]
fn files_of_a_commit_and_what_changed_are_listed() {
    let repo = Repo::new();
    let first = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.write(".dex/runs/b.json", "{}\n");
    repo.write(".dex/runs/a b.json", "{}\n");
    repo.write(".dex/runs/deeper/c.json", "{}\n");
    repo.write("README.md", "one\ntwo\n");
    repo.write("data.bin", [0_u8, 1, 255]);
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "more"]);
    let second = oid(&repo.git(&["rev-parse", "HEAD"]));
    let db = open(&repo);
    let listed = db.list_dir(&second, ".dex/runs").unwrap();
    assert_eq!(listed, [".dex/runs/a b.json", ".dex/runs/b.json"]);
    assert_eq!(
        db.list_dir(&first, ".dex/runs").unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        db.read_file(&second, "data.bin").unwrap().unwrap(),
        [0, 1, 255]
    );
    let stats = db.diff_stat(&first, &second, &[".dex"]).unwrap();
    let shown: Vec<_> = stats
        .iter()
        .map(|it| {
            format!(
                "{} +{} -{} {}",
                String::from_utf8_lossy(&it.path),
                it.added,
                it.removed,
                it.binary
            )
        })
        .collect();
    assert_eq!(shown, ["README.md +2 -1 false", "data.bin +0 -0 true"]);
}

#[test]
fn revisions_resolve_to_commits_or_to_nothing() {
    let repo = Repo::new();
    let tip = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.git(&["tag", "-am", "tag", "v1"]);
    let db = open(&repo);
    assert_eq!(db.resolve_commit("v1").unwrap(), Some(tip.clone()));
    assert_eq!(db.resolve_commit(&tip.as_str()[..8]).unwrap(), Some(tip));
    for nothing in [
        "nope",
        "--help",
        "",
        "HEAD~9",
        "main@{99}",
        "HEAD:README.md",
    ] {
        assert_eq!(db.resolve_commit(nothing).unwrap(), None, "{nothing}");
    }
}

#[test]
fn exclusions_are_added_once_and_the_rest_stays_as_it_is() {
    let repo = Repo::new();
    let path = repo.path().join(".git/info/exclude");
    std::fs::write(&path, "# mine\n*.tmp").unwrap();
    let db = open(&repo);
    let odd = gitdb::Repo::escape_exclude(b"a [b]*?\\ c#!");
    db.exclude(&["/.dex/state.lock", &odd]).unwrap();
    db.exclude(&["/.dex/state.lock", "*.tmp"]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("# mine\n*.tmp\n/.dex/state.lock\n{odd}\n"));
    repo.write("a [b]*?\\ c#!", "x");
    repo.write("a bX", "x");
    assert_eq!(repo.git(&["status", "--porcelain"]), "?? \"a bX\"");
    std::fs::remove_dir_all(repo.path().join(".git/info")).unwrap();
    db.exclude(&["/x"]).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "/x\n");
}

#[test]
fn c20_nothing_here_changes_the_configuration() {
    let repo = Repo::new();
    let config = std::fs::read(repo.path().join(".git/config")).unwrap();
    repo.write("new", "x");
    let db = open(&repo);
    db.commit_work_tree("dex: pre-run autosave\n").unwrap();
    gitdb::undo::record(&db, "x", &gitdb::undo::Keep::default(), 1).unwrap();
    gitdb::undo::undo(&db, None, 2).unwrap();
    let tip = db.resolve_commit("HEAD").unwrap().unwrap();
    db.add_worktree(&repo.beside("w"), "dex/w", &tip).unwrap();
    assert_eq!(
        std::fs::read(repo.path().join(".git/config")).unwrap(),
        config
    );
}

#[test]
fn an_identity_is_found_or_missing_and_never_made_up() {
    let repo = Repo::new();
    let found = open(&repo).identity().unwrap().unwrap();
    assert_eq!(found.text, "Ada Example <ada@example.com>");
    repo.git(&["config", "--unset", "user.name"]);
    repo.git(&["config", "--unset", "user.email"]);
    repo.git(&["config", "user.useConfigOnly", "true"]);
    let path = repo.path().to_str().unwrap();
    let none = [
        ("GITDB_CHILD", path),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
    ];
    let out = crate::common::in_child("reading::child_finds_no_identity", &none);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The other half of the test above: without the configuration of whoever runs the tests.
#[test]
#[ignore = "a part of another test"]
fn child_finds_no_identity() {
    if let Some(path) = std::env::var_os("GITDB_CHILD") {
        let db = gitdb::Repo::open(std::path::Path::new(&path)).unwrap();
        assert_eq!(db.identity().unwrap(), None);
    }
}

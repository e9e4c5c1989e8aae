//! What a stage stores: modes, links, line ends, nested repositories, sparse checkouts.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use gitdb::snapshot::{self, Changed, ChangedKind};
use gitdb::undo;
use testkit::Repo;

use crate::common::{Stage, oid, open};

fn survey(stage: &Stage) -> Vec<(String, ChangedKind)> {
    let named = |it: Changed| (String::from_utf8_lossy(&it.path).into_owned(), it.kind);
    snapshot::survey(&open(&stage.repo))
        .unwrap()
        .into_iter()
        .map(named)
        .collect()
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

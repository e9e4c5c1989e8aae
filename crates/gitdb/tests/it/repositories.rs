//! Every kind of repository a user may have.

use std::path::Path;

use gitdb::repo::{Head, ObjectFormat, RefFormat};
use gitdb::snapshot::{self, Expected, Hooks, Landed, Selection, Sign};
use gitdb::undo::{self, Keep};
use gitdb::{OpenError, Repo};

use crate::common::{MESSAGE, committed, has_reftable, in_child, oid, open};

/// A stage commit, an undo entry and its undo, in the work tree at `dir`.
fn a_stage_works(repo: &testkit::Repo, dir: &Path) {
    repo.git_in(dir, &["switch", "-qc", "dex/run"]);
    let start = oid(&repo.git_in(dir, &["rev-parse", "HEAD"]));
    std::fs::write(dir.join("new.txt"), "new\n").unwrap();
    std::fs::write(dir.join("README.md"), "changed\n").unwrap();
    let db = Repo::open(dir).unwrap();
    let keep = Keep {
        refs: vec!["refs/heads/dex/run".to_owned()],
        ..Keep::default()
    };
    undo::record(&db, "before the stage", &keep, 1_700_000_000).unwrap();
    let expected = Expected {
        branch: "refs/heads/dex/run",
        start_tip: &start,
    };
    let found: Vec<_> = snapshot::survey(&db)
        .unwrap()
        .into_iter()
        .map(|it| it.path)
        .collect();
    assert_eq!(found, [b"README.md".to_vec(), b"new.txt".to_vec()]);
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
    assert_eq!(snapshot::land(&db, &prepared).unwrap(), Landed::Done);
    assert_eq!(repo.git_in(dir, &["status", "--porcelain"]), "");
    assert_eq!(repo.git_in(dir, &["show", "HEAD:new.txt"]), "new");
    assert_eq!(
        db.head().unwrap(),
        Head::Branch {
            name: "refs/heads/dex/run".to_owned(),
            oid: Some(prepared.commit),
        }
    );
    undo::undo(&db, None, 1_700_000_001).unwrap();
    assert_eq!(repo.git_in(dir, &["rev-parse", "HEAD"]), start.as_str());
    assert_eq!(
        repo.git_in(dir, &["status", "--porcelain"]),
        " M README.md\n?? new.txt"
    );
}

#[test]
fn a_stage_works_in_a_normal_repository() {
    let repo = testkit::Repo::new();
    std::fs::create_dir(repo.path().join("deep")).unwrap();
    let db = Repo::open(&repo.path().join("deep")).unwrap();
    assert_eq!(db.work_tree(), Some(repo.path()));
    assert_eq!(db.git_dir, repo.path().join(".git"));
    assert_eq!(db.common_dir, db.git_dir);
    assert_eq!(db.worktree_id(), "main");
    assert_eq!(
        (db.object_format, db.ref_format),
        (ObjectFormat::Sha1, RefFormat::Files)
    );
    assert!(!db.shallow && !db.partial && !db.submodule);
    assert!(db.version() >= (2, 39, 0));
    a_stage_works(&repo, repo.path());
}

#[test]
fn c26_a_stage_works_in_a_linked_worktree_and_leaves_the_main_one_alone() {
    let repo = testkit::Repo::new();
    let main = open(&repo);
    let tip = main.resolve_commit("HEAD").unwrap().unwrap();
    let linked = repo.beside("linked tree");
    main.add_worktree(&linked, "dex/w", &tip).unwrap();
    let db = Repo::open(&linked).unwrap();
    assert_eq!(db.worktree_id(), "wt-linked tree".replace(' ', "-"));
    assert_eq!(db.common_dir, repo.path().join(".git"));
    let place = main.branch_checked_out_where("dex/w").unwrap();
    assert_eq!(place.as_deref(), Some(linked.as_path()));
    assert_eq!(
        main.branch_checked_out_where("refs/heads/nowhere").unwrap(),
        None
    );
    a_stage_works(&repo, &linked);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(repo.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
}

#[test]
fn a_stage_works_with_a_separate_git_dir_and_with_core_worktree() {
    let repo = testkit::Repo::new();
    let apart = repo.beside("apart.git");
    repo.git(&["init", "-q", "--separate-git-dir", apart.to_str().unwrap()]);
    assert_eq!(open(&repo).git_dir, apart);
    a_stage_works(&repo, repo.path());

    let repo = testkit::Repo::new();
    let elsewhere = repo.beside("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::rename(repo.path().join("README.md"), elsewhere.join("README.md")).unwrap();
    repo.git(&["config", "core.worktree", elsewhere.to_str().unwrap()]);
    std::fs::write(
        elsewhere.join(".git"),
        format!("gitdir: {}/.git\n", repo.path().display()),
    )
    .unwrap();
    let db = Repo::open(&elsewhere).unwrap();
    assert_eq!(db.work_tree(), Some(elsewhere.as_path()));
    a_stage_works(&repo, &elsewhere);
}

#[test]
fn a_stage_works_in_shallow_partial_and_alternate_clones() {
    let repo = testkit::Repo::new();
    repo.write("README.md", "second\n");
    repo.git(&["commit", "-qam", "second"]);
    repo.git(&["config", "uploadpack.allowFilter", "true"]);
    let url = format!("file://{}", repo.path().display());
    let clones: [(&str, &[&str]); 3] = [
        ("shallow", &["--depth=1"]),
        ("partial", &["--filter=blob:none"]),
        ("shared", &["--shared"]),
    ];
    for (name, extra) in clones {
        let dir = repo.beside(name);
        let from = if name == "shared" {
            repo.path().to_str().unwrap()
        } else {
            &url
        };
        let mut args = vec!["clone", "-q"];
        args.extend(extra);
        args.extend([from, dir.to_str().unwrap()]);
        repo.git(&args);
        for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
            repo.git_in(&dir, &["config", key, value]);
        }
        let db = Repo::open(&dir).unwrap();
        assert_eq!(db.shallow, name == "shallow", "{name}");
        assert_eq!(db.partial, name == "partial", "{name}");
        a_stage_works(&repo, &dir);
    }
}

#[test]
fn a_stage_works_in_a_submodule_checkout() {
    let library = testkit::Repo::new();
    let repo = testkit::Repo::new();
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
    let dir = repo.path().join("lib");
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        repo.git_in(&dir, &["config", key, value]);
    }
    let db = Repo::open(&dir).unwrap();
    assert!(db.submodule);
    assert_eq!(db.worktree_id(), "main");
    assert_eq!(db.work_tree(), Some(dir.as_path()));
    a_stage_works(&repo, &dir);
    assert!(!open(&repo).submodule);
}

#[test]
fn c22_a_stage_works_in_a_reftable_repository() {
    if has_reftable() {
        let repo = committed(&["--ref-format=reftable"]);
        assert_eq!(open(&repo).ref_format, RefFormat::Reftable);
        a_stage_works(&repo, repo.path());
    }
}

#[test]
fn c22_an_open_cherry_pick_is_seen_in_a_reftable_repository() {
    if has_reftable() {
        let repo = committed(&["--ref-format=reftable"]);
        repo.git(&["switch", "-qc", "side"]);
        repo.write("README.md", "side\n");
        repo.git(&["commit", "-qam", "side"]);
        repo.git(&["switch", "-q", "main"]);
        repo.write("README.md", "main\n");
        repo.git(&["commit", "-qam", "main"]);
        repo.try_git(&["cherry-pick", "side"]);
        let operation = open(&repo).operation_in_progress().unwrap();
        assert_eq!(operation, Some(gitdb::repo::Operation::CherryPick));
    }
}

#[test]
fn c23_a_stage_works_in_a_sha256_repository() {
    let repo = committed(&["--object-format=sha256"]);
    assert_eq!(open(&repo).object_format, ObjectFormat::Sha256);
    a_stage_works(&repo, repo.path());
}

#[test]
fn a_stage_works_with_split_index_untracked_cache_and_no_index_hash() {
    for key in ["core.splitIndex", "core.untrackedCache", "index.skipHash"] {
        let repo = testkit::Repo::new();
        repo.git(&["config", key, "true"]);
        repo.write("a", "a\n");
        repo.git(&["add", "-A"]);
        repo.git(&["status"]);
        repo.git(&["commit", "-qm", "a"]);
        a_stage_works(&repo, repo.path());
        repo.git(&["fsck"]);
    }
}

#[test]
fn a_stage_works_in_a_directory_with_an_odd_name() {
    let repo = testkit::Repo::new();
    let odd = repo.beside("odd \"name\"\nwith a line end");
    repo.git(&[
        "clone",
        "-q",
        repo.path().to_str().unwrap(),
        odd.to_str().unwrap(),
    ]);
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        repo.git_in(&odd, &["config", key, value]);
    }
    assert_eq!(Repo::open(&odd).unwrap().work_tree(), Some(odd.as_path()));
    a_stage_works(&repo, &odd);
}

#[test]
fn c01_a_repository_without_commits_opens_and_can_be_saved() {
    let repo = testkit::Repo::unborn(&[]);
    let db = open(&repo);
    let name = "refs/heads/main".to_owned();
    assert_eq!(db.head().unwrap(), Head::Branch { name, oid: None });
    assert_eq!(db.resolve_commit("HEAD").unwrap(), None);
    assert_eq!(db.operation_in_progress().unwrap(), None);
    repo.write("first.txt", "1\n");
    undo::record(&db, "before", &Keep::default(), 1).unwrap();
    let commit = db.commit_work_tree("dex: pre-run autosave\n").unwrap();
    assert_eq!(repo.git(&["rev-parse", "HEAD"]), commit.as_str());
    assert_eq!(repo.git(&["rev-list", "--count", "HEAD"]), "1");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn c02_a_bare_repository_is_read_and_its_worktrees_share_state() {
    let repo = testkit::Repo::new();
    let root = repo.beside("project");
    std::fs::create_dir(&root).unwrap();
    let bare = root.join(".bare");
    repo.git(&[
        "clone",
        "-q",
        "--bare",
        repo.path().to_str().unwrap(),
        bare.to_str().unwrap(),
    ]);
    std::fs::write(root.join(".git"), "gitdir: ./.bare\n").unwrap();
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        repo.git_in(&bare, &["config", key, value]);
    }
    let db = Repo::open(&root).unwrap();
    assert_eq!(db.work_tree(), None);
    assert_eq!(db.git_dir, bare);
    let tip = db.resolve_commit("HEAD").unwrap().unwrap();
    assert_eq!(
        db.read_file(&tip, "README.md").unwrap().unwrap(),
        b"# project\n"
    );
    assert!(snapshot::survey(&db).is_err());
    let one = root.join("one");
    repo.git_in(&root, &["worktree", "add", "-q", "one", "-b", "one"]);
    let linked = Repo::open(&one).unwrap();
    assert_eq!(linked.common_dir, bare);
    assert_eq!(linked.common_own_dir(), db.common_own_dir());
    a_stage_works(&repo, &one);
}

#[test]
fn c16_gits_refusal_of_another_owner_is_passed_on() {
    let repo = testkit::Repo::new();
    let chown = std::process::Command::new("chown")
        .args(["-R", "12345", repo.path().to_str().unwrap()])
        .status();
    if !chown.is_ok_and(|it| it.success()) {
        return; // Only root can give files away.
    }
    match Repo::open(repo.path()) {
        Err(OpenError::UnsafeOwner(text)) => {
            assert!(text.contains("dubious ownership") && text.contains("safe.directory"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_is_no_repository_is_named() {
    let repo = testkit::Repo::new();
    for dir in [repo.home(), repo.beside("not there")] {
        match Repo::open(&dir) {
            Err(OpenError::NotARepository(named)) => assert_eq!(named, dir),
            other => panic!("{other:?}"),
        }
    }
    repo.git(&["config", "core.repositoryformatversion", "1"]);
    repo.git(&["config", "extensions.fromTheFuture", "true"]);
    assert!(matches!(
        Repo::open(repo.path()),
        Err(OpenError::Unsupported(_))
    ));
}

#[test]
fn b12_an_inherited_git_dir_redirects_nothing() {
    let other = testkit::Repo::new();
    let before = crate::common::listing(&other.path().join(".git"));
    let git_dir = other.path().join(".git");
    let index = git_dir.join("index");
    let out = in_child(
        "repositories::child_commits_somewhere_else",
        &[
            ("GIT_DIR", git_dir.to_str().unwrap()),
            ("GIT_INDEX_FILE", index.to_str().unwrap()),
            ("GIT_WORK_TREE", other.path().to_str().unwrap()),
            (
                "GIT_OBJECT_DIRECTORY",
                git_dir.join("objects").to_str().unwrap(),
            ),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.bare"),
            ("GIT_CONFIG_VALUE_0", "true"),
            ("GITDB_CHILD", "1"),
        ],
    );
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(crate::common::listing(&other.path().join(".git")), before);
}

/// The other half of the test above.
#[test]
#[ignore = "a part of another test"]
fn child_commits_somewhere_else() {
    if std::env::var_os("GITDB_CHILD").is_some() {
        let repo = testkit::Repo::new();
        a_stage_works(&repo, repo.path());
    }
}

#[test]
fn d10_a_branch_named_like_our_folder_is_noticed() {
    let repo = testkit::Repo::new();
    let db = open(&repo);
    assert!(!db.branch_exists_prefix_conflict("dex").unwrap());
    repo.git(&["branch", "dex"]);
    assert!(db.branch_exists_prefix_conflict("dex").unwrap());
}

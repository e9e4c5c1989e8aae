//! Whole runs in repositories of every shape. What a run leaves is the same in each.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use testkit::Repo;

use super::support::{Project, implementing, runs};

/// What `implement` does where nothing special is asked: a new file, an edited one, a removed one.
fn usual() -> serde_json::Value {
    implementing(json!({ "cost": 0.05,
        "writes": [{ "path": "src/new.txt", "content": "new\n" }, { "path": "README.md", "content": "# edited\n" }],
        "delete": ["old.txt"] }))
}

/// A repository with a few files, and the identity in the user's own configuration.
fn repo(init_args: &[&str]) -> Repo {
    let repo = Repo::unborn(init_args);
    identity(&repo, "");
    repo.write("README.md", "# project\n");
    repo.write("old.txt", "old\n");
    repo.write("deep/inside/kept.txt", "kept\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "initial"]);
    repo
}

/// Writes the user's own configuration: an identity, and `more`.
fn identity(repo: &Repo, more: &str) {
    let text = format!(
        "[user]\n\tname = Ada Example\n\temail = ada@example.com\n[protocol \"file\"]\n\tallow = always\n{more}"
    );
    std::fs::write(repo.home().join(".gitconfig"), text).unwrap();
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A repository cloned from another beside it, with extra arguments.
fn clone(args: &[&str]) -> Repo {
    let origin = repo(&[]);
    origin.write("second.txt", "2\n");
    origin.git(&["add", "-A"]);
    origin.git(&["commit", "-qm", "second"]);
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    let to = origin.beside("clone");
    let url = format!("file://{}", origin.path().display());
    let mut words = vec!["clone", "-q"];
    words.extend(args);
    let from = if args.contains(&"--shared") {
        text(origin.path())
    } else {
        url
    };
    let to_text = text(&to);
    words.extend([from.as_str(), to_text.as_str()]);
    origin.git(&words);
    origin.seen_from(&to)
}

#[test]
fn in_a_linked_work_tree_and_the_main_one_is_left_alone() {
    let repo = repo(&[]);
    let main = repo.path().to_owned();
    let linked = repo.beside("linked");
    repo.git(&["worktree", "add", "-q", "-b", "topic", &text(&linked)]);
    let project = Project::in_repo(repo.seen_from(&linked), &usual());
    project.whole_run("linked work tree");
    assert_eq!(project.repo.git_in(&main, &["status", "--porcelain"]), "");
    assert_eq!(
        project.repo.git_in(&main, &["symbolic-ref", "HEAD"]),
        "refs/heads/main"
    );
    assert!(main.join("old.txt").exists());
}

#[test]
fn in_a_submodule_checkout() {
    let inner = repo(&[]);
    let outer = inner.beside("outer");
    inner.git(&["init", "-q", "-b", "main", &text(&outer)]);
    inner.git_in(
        &outer,
        &["submodule", "-q", "add", &text(inner.path()), "sub"],
    );
    inner.git_in(&outer, &["commit", "-qm", "with a submodule"]);
    let sub = outer.join("sub");
    let project = Project::in_repo(inner.seen_from(&sub), &usual());
    project.whole_run("submodule checkout");
    assert!(sub.join(".git").is_file());
}

#[test]
fn in_a_superproject_whose_submodules_are_dirty_or_not_initialised_c06() {
    let repo = repo(&[]);
    let other = repo.beside("library");
    repo.git(&["clone", "-q", &text(repo.path()), &text(&other)]);
    for name in ["dirty", "absent"] {
        repo.git(&["submodule", "-q", "add", &text(&other), name]);
    }
    repo.git(&["commit", "-qm", "submodules"]);
    repo.git(&["submodule", "-q", "deinit", "-f", "absent"]);
    repo.write("dirty/README.md", "edited inside\n");
    repo.write("dirty/untracked.txt", "inside\n");
    let before = repo.git(&["ls-tree", "-r", "HEAD"]);
    let project = Project::in_repo(repo, &usual());
    project.whole_run("superproject");
    let after = project.repo.git(&["ls-tree", "-r", "HEAD"]);
    let links = |text: &str| {
        text.lines()
            .filter(|it| it.starts_with("160000"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(links(&after), links(&before));
    assert_eq!(project.repo.read("dirty/README.md"), "edited inside\n");
    assert_eq!(project.repo.read("dirty/untracked.txt"), "inside\n");
}

#[test]
fn a_stage_that_moves_a_submodule_records_the_move_c06() {
    let repo = repo(&[]);
    let library = repo.beside("library");
    repo.git(&["clone", "-q", &text(repo.path()), &text(&library)]);
    repo.git(&["submodule", "-q", "add", &text(&library), "sub"]);
    repo.git(&["commit", "-qm", "submodules"]);
    let before = repo.git(&["rev-parse", "HEAD:sub"]);
    let commit = [
        "git",
        "-C",
        "sub",
        "commit",
        "-qm",
        "moved",
        "--allow-empty",
    ];
    let project = Project::in_repo(repo, &implementing(runs(&[&commit])));
    project.whole_run("moved submodule");
    assert_ne!(project.repo.git(&["rev-parse", "HEAD:sub"]), before);
}

#[test]
fn in_a_shallow_clone_c17() {
    let project = Project::in_repo(clone(&["--depth", "1"]), &usual());
    project.whole_run("shallow clone");
    assert_eq!(
        project.repo.git(&["rev-parse", "--is-shallow-repository"]),
        "true"
    );
}

#[test]
fn in_a_partial_clone_c19() {
    let project = Project::in_repo(clone(&["--filter=blob:none"]), &usual());
    let config = std::fs::read(project.repo.path().join(".git/config")).unwrap();
    project.whole_run("partial clone");
    assert_eq!(
        std::fs::read(project.repo.path().join(".git/config")).unwrap(),
        config
    );
}

#[test]
fn in_a_partial_clone_what_is_not_here_is_said_to_be_missing_and_never_absent_c19() {
    let project = Project::new(&usual());
    project.exits(0, &["run", "--small"]);
    let origin = project.repo.path().to_owned();
    project
        .repo
        .git(&["config", "uploadpack.allowFilter", "true"]);
    let to = project.repo.beside("clone");
    let url = format!("file://{}", origin.display());
    let words = ["clone", "-q", "--filter=blob:none", "-b", "main", &url];
    project
        .repo
        .git(&[&words[..], &[to.to_str().unwrap()]].concat());
    let away = project.repo.beside("offline");
    std::fs::rename(&origin, &away).unwrap();
    let there = |args: &[&str]| {
        let mut command = project.command(args);
        command.current_dir(&to).output().unwrap()
    };
    let out = there(&["report", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("not available locally"), "{said}");
    std::fs::rename(&away, &origin).unwrap();
    let out = there(&["report", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let here = project.exits(0, &["report", "--json"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), here.out);
}

#[test]
fn work_trees_that_are_not_here_stay_registered_c25() {
    let project = Project::in_repo(repo(&[]), &usual());
    for name in ["elsewhere", "beside"] {
        let path = project.repo.beside(name);
        project
            .repo
            .git(&["worktree", "add", "-q", "--detach", path.to_str().unwrap()]);
        // As in a container, where the host's paths are not there.
        std::fs::rename(&path, project.repo.beside(&format!("{name}-of-the-host"))).unwrap();
    }
    for (key, value) in [
        ("gc.auto", "1"),
        ("gc.autoDetach", "false"),
        ("gc.worktreePruneExpire", "now"),
        ("maintenance.auto", "true"),
    ] {
        project.repo.git(&["config", key, value]);
    }
    let registered = || {
        let list = project.repo.git(&["worktree", "list", "--porcelain"]);
        let ours = |it: &&str| it.starts_with("worktree ");
        list.lines()
            .filter(ours)
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = registered();
    assert_eq!(before.len(), 3);
    project.exits(0, &["run", "--small"]);
    for args in [
        &["status"][..],
        &["report"],
        &["doctor"],
        &["undo", "--list"],
        &["runs"],
    ] {
        project.dex(args);
    }
    project.repo.git(&["switch", "-q", "main"]);
    project.exits(0, &["run", "--small", "--worktree", "-m", "Say hello"]);
    assert_eq!(registered(), before);
}

#[test]
fn in_a_sparse_checkout_files_outside_the_cone_stay_in_the_tree() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let repo = repo(&[]);
        repo.write("other/file.txt", "outside\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "more"]);
        repo.git(&["sparse-checkout", "set", "--cone", index, "deep"]);
        assert!(!repo.path().join("other").exists());
        let project = Project::in_repo(repo, &usual());
        project.whole_run(index);
        let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
        assert!(tree.contains("other/file.txt"), "{index}: {tree}");
        assert!(tree.contains("src/new.txt"), "{index}: {tree}");
        assert!(!project.repo.path().join("other").exists(), "{index}");
    }
}

#[test]
fn with_reftable_and_with_sha256_c22_c23() {
    let version = Command::new("git").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let minor: u32 = version
        .split('.')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    if minor >= 45 {
        Project::in_repo(repo(&["--ref-format=reftable"]), &usual()).whole_run("reftable");
    } else {
        println!("skipped: reftable needs git 2.45, here is {version}");
    }
    Project::in_repo(repo(&["--object-format=sha256"]), &usual()).whole_run("sha256");
}

#[test]
fn with_alternates_a_separate_git_dir_and_core_worktree() {
    Project::in_repo(clone(&["--shared"]), &usual()).whole_run("alternates");

    let separate = repo(&[]);
    let git_dir = separate.beside("elsewhere.git");
    separate.git(&["init", "-q", "--separate-git-dir", &text(&git_dir)]);
    Project::in_repo(separate, &usual()).whole_run("separate git dir");

    let inner = repo(&[]);
    let root = inner.beside("root");
    std::fs::create_dir(&root).unwrap();
    for name in ["README.md", "old.txt", "deep"] {
        std::fs::rename(inner.path().join(name), root.join(name)).unwrap();
    }
    inner.git(&["config", "core.worktree", &text(&root)]);
    let git_dir = inner.path().join(".git");
    let project = Project::in_repo(inner.seen_from(&root), &usual());
    // A work tree without a `.git` of its own: dex is started beside the repository's.
    let mut command = project.command(&["run", "--small"]);
    let answer = command
        .current_dir(git_dir.parent().unwrap())
        .output()
        .unwrap();
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let log = project.repo.git_in(
        git_dir.parent().unwrap(),
        &["log", "--format=%s", "HEAD", "--not", "main"],
    );
    assert_eq!(log.lines().count(), 13, "{log}");
}

#[test]
fn a_bare_repository_is_refused_and_its_work_trees_work_c02() {
    let repo = repo(&[]);
    let home = repo.beside("project");
    std::fs::create_dir(&home).unwrap();
    repo.git(&[
        "clone",
        "-q",
        "--bare",
        &text(repo.path()),
        &text(&home.join(".bare")),
    ]);
    std::fs::write(home.join(".git"), "gitdir: ./.bare\n").unwrap();
    repo.git_in(&home, &["worktree", "add", "-q", "one"]);
    let bare: super::support::Answer = {
        let project = Project {
            repo: repo.seen_from(&home),
        };
        let answer = project.dex(&["run", "-m", "x"]);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(
            answer.err.contains("bare repository") && answer.err.contains("git worktree add"),
            "{answer:?}"
        );
        let project = Project::in_repo(project.repo.seen_from(&home.join("one")), &usual());
        project.whole_run("bare with work trees");
        project
            .repo
            .git_in(&home, &["worktree", "add", "-q", "two"]);
        project
            .command(&["runs", "--json"])
            .current_dir(home.join("two"))
            .output()
            .unwrap()
            .into()
    };
    assert!(bare.out.contains("dex/"), "{bare:?}");
}

#[test]
fn from_a_detached_head_with_a_split_index_and_an_untracked_cache() {
    let detached = repo(&[]);
    detached.git(&["checkout", "-q", "--detach"]);
    let project = Project::in_repo(detached, &usual());
    project.whole_run("detached HEAD");

    let split = repo(&[]);
    split.git(&["config", "core.splitIndex", "true"]);
    split.git(&["config", "core.untrackedCache", "true"]);
    split.git(&["update-index", "--split-index", "--untracked-cache"]);
    Project::in_repo(split, &usual()).whole_run("split index");
}

#[test]
fn programs_that_the_repositorys_configuration_names_never_run() {
    let repo = repo(&[]);
    let canary = repo.beside("canary");
    let script = repo.beside("canary.sh");
    std::fs::write(
        &script,
        format!("#!/bin/sh\necho \"$0 $*\" >> {}\n", canary.display()),
    )
    .unwrap();
    let hooks = repo.beside("hooks");
    std::fs::create_dir(&hooks).unwrap();
    for path in [
        script.clone(),
        hooks.join("pre-commit"),
        hooks.join("post-commit"),
        hooks.join("reference-transaction"),
        hooks.join("post-checkout"),
        hooks.join("post-index-change"),
        hooks.join("fsmonitor-watchman"),
    ] {
        if path != script {
            std::fs::copy(&script, &path).unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let script = text(&script);
    for (key, value) in [
        ("core.fsmonitor", &script),
        ("core.hooksPath", &text(&hooks)),
        ("diff.external", &script),
        ("core.pager", &script),
        ("core.editor", &script),
        ("core.askPass", &script),
        ("core.sshCommand", &script),
        ("credential.helper", &script),
        ("gpg.program", &script),
        ("diff.x.textconv", &script),
        ("merge.x.driver", &script),
    ] {
        repo.git(&[
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
            "config",
            key,
            value,
        ]);
    }
    let _ = std::fs::remove_file(&canary);
    let project = Project { repo };
    project.prepare(&usual());
    let config = std::fs::read(project.repo.path().join(".git/config")).unwrap();
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    for words in READING {
        project.dex(words);
    }
    assert!(
        !canary.exists(),
        "{}",
        std::fs::read_to_string(&canary).unwrap_or_default()
    );
    assert_eq!(
        std::fs::read(project.repo.path().join(".git/config")).unwrap(),
        config
    );
}

/// Commands that only read.
const READING: &[&[&str]] = &[
    &["status", "--json"],
    &["report", "--json"],
    &["runs", "--json"],
    &["timeline", "--json"],
    &["log"],
    &["show"],
    &["undo", "--list"],
    &["config"],
    &["doctor"],
    &["prompts"],
    &["diff"],
];

#[test]
fn no_reading_or_background_command_changes_the_configuration_c20() {
    let project = Project::in_repo(clone(&[]), &usual());
    let path = project.repo.path().to_owned();
    let state = || {
        let config = std::fs::read(path.join(".git/config")).unwrap();
        let index = std::fs::metadata(path.join(".git/index"))
            .unwrap()
            .modified()
            .unwrap();
        (config, index, project.repo.git(&["for-each-ref"]))
    };
    let config = state().0;
    project.whole_run("a clone");
    let after = state();
    assert_eq!(after.0, config);
    for words in READING {
        project.dex(words);
        assert_eq!(state(), after, "{words:?}");
    }
    assert!(!project.repo.home().join(".gitconfig.lock").exists());
}

#[test]
fn a_repository_of_another_owner_is_refused_in_gits_own_words_c16() {
    let project = Project::in_repo(repo(&[]), &usual());
    let home = std::fs::read(project.repo.home().join(".gitconfig")).unwrap();
    let answer: super::support::Answer = project
        .command(&["status"])
        .env("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        .output()
        .unwrap()
        .into();
    if answer.code == Some(0) || answer.code == Some(3) {
        // Our git calls start with a cleared environment: chown is the other way to provoke it.
        let chown = Command::new("chown")
            .args(["-R", "12345"])
            .arg(project.repo.path())
            .output();
        if !chown.is_ok_and(|it| it.status.success()) {
            println!("skipped: the owner cannot be changed here");
            return;
        }
    }
    for words in [&["status"][..], &["run", "--small"], &["doctor"], &["runs"]] {
        let answer = project.dex(words);
        // Doctor has its own code for "something is wrong".
        let code = if words == ["doctor"] { 1 } else { 2 };
        assert_eq!(answer.code, Some(code), "{words:?}: {answer:?}");
        let all = format!("{}{}", answer.out, answer.err);
        assert!(
            all.contains("dubious ownership") && all.contains("safe.directory"),
            "{words:?}: {answer:?}"
        );
    }
    let outside = project.command(&["-C", "/", "status"]).output().unwrap();
    assert_eq!(outside.status.code(), Some(3));
    assert_eq!(
        std::fs::read(project.repo.home().join(".gitconfig")).unwrap(),
        home
    );
}

#[test]
fn with_the_oldest_git_that_is_supported() {
    let old = Path::new("/usr/bin/git");
    let version = Command::new(old).arg("--version").output();
    let Ok(version) = version else {
        println!("skipped: no second git");
        return;
    };
    println!("with {}", String::from_utf8_lossy(&version.stdout).trim());
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let repo = repo(&[]);
    let linked = repo.beside("linked");
    repo.git(&["worktree", "add", "-q", "-b", "topic", &text(&linked)]);
    let commits = runs(&[
        &["git", "commit", "-q", "--allow-empty", "-m", "mine"],
        &["touch", "by-hand"],
    ]);
    let project = Project::in_repo(repo.seen_from(&linked), &implementing(commits));
    let answer = project
        .command(&["run", "--small"])
        .env("PATH", &path)
        .output()
        .unwrap();
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    project.is_over("old git");
    let status = project
        .command(&["doctor"])
        .env("PATH", &path)
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&status.stdout).contains("2."),
        "{status:?}"
    );
}

//! The user's hooks, signing, and filter drivers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gitdb::snapshot::{self, Hooks, Prepared, Selection, Sign, SnapshotError};

use crate::common::{MESSAGE, Stage, open};

fn script(path: &Path, body: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn prepare(stage: &Stage, sign: Sign, hooks: Hooks) -> Result<Prepared, SnapshotError> {
    let db = open(&stage.repo);
    snapshot::prepare(
        &db,
        &stage.expected(),
        &stage.start,
        MESSAGE,
        Selection::default(),
        sign,
        hooks,
    )
}

fn hook(stage: &Stage, name: &str, body: &str) {
    script(&stage.repo.path().join(".git/hooks").join(name), body);
}

#[test]
fn b01_a_pre_commit_hook_sees_the_exact_tree_and_can_refuse_it() {
    let stage = Stage::new();
    hook(
        &stage,
        "pre-commit",
        "git diff --cached --name-only; if git show :f | grep -q BAD; then echo 'BAD found' >&2; exit 1; fi",
    );
    stage.repo.write("f", "BAD\n");
    match prepare(&stage, Sign::Never, Hooks::Run) {
        Err(SnapshotError::HookRejected { hook, output }) => {
            assert_eq!(hook, "pre-commit");
            assert!(
                output.contains("BAD found") && output.contains('f'),
                "{output}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "?? f");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
    prepare(&stage, Sign::Never, Hooks::Skip).unwrap();
    stage.repo.write("f", "good\n");
    let prepared = prepare(&stage, Sign::Never, Hooks::Run).unwrap();
    assert_eq!(
        stage.repo.git(&["show", &format!("{}:f", prepared.tree)]),
        "good"
    );
}

#[test]
fn b01_what_a_pre_commit_hook_reformats_is_what_is_committed() {
    let stage = Stage::new();
    hook(
        &stage,
        "pre-commit",
        "printf 'formatted\\n' > f; printf 'made\\n' > made; git add f",
    );
    stage.repo.write("f", "ugly\n");
    let prepared = prepare(&stage, Sign::Never, Hooks::Run).unwrap();
    assert_eq!(
        stage.repo.git(&["show", &format!("{}:f", prepared.tree)]),
        "formatted"
    );
    assert_eq!(
        stage
            .repo
            .git(&["show", &format!("{}:made", prepared.tree)]),
        "made"
    );
    snapshot::land(&open(&stage.repo), &prepared).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn b02_a_commit_msg_hook_can_refuse_but_not_change_a_stages_message() {
    let stage = Stage::new();
    hook(
        &stage,
        "commit-msg",
        "grep -qE '^(feat|fix|chore)' \"$1\" || { echo 'not conventional'; exit 1; }",
    );
    stage.repo.write("f", "x\n");
    match prepare(&stage, Sign::Never, Hooks::Run) {
        Err(SnapshotError::HookRejected { hook, output }) => {
            assert_eq!(hook, "commit-msg");
            assert!(output.contains("not conventional"), "{output}");
        }
        other => panic!("{other:?}"),
    }
    hook(&stage, "commit-msg", "echo 'Change-Id: 1' >> \"$1\"");
    let prepared = prepare(&stage, Sign::Never, Hooks::Run).unwrap();
    let body = stage
        .repo
        .git(&["log", "-1", "--format=%B", prepared.commit.as_str()]);
    assert_eq!(body, MESSAGE.trim_end());
}

#[test]
fn b01_hooks_configured_elsewhere_are_found() {
    let stage = Stage::new();
    script(
        &stage.repo.path().join(".githooks/pre-commit"),
        "echo no; exit 1",
    );
    stage.repo.git(&["config", "core.hooksPath", ".githooks"]);
    let refused = prepare(&stage, Sign::Never, Hooks::Run);
    assert!(
        matches!(refused, Err(SnapshotError::HookRejected { .. })),
        "{refused:?}"
    );
}

#[test]
fn b01_our_own_git_calls_start_no_hook() {
    let stage = Stage::new();
    let trace = stage.repo.beside("trace");
    for name in [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
        "pre-auto-gc",
        "fsmonitor-watchman",
    ] {
        hook(
            &stage,
            name,
            &format!("echo {name} >> '{}'", trace.display()),
        );
    }
    let monitor = stage.repo.path().join(".git/hooks/fsmonitor-watchman");
    stage
        .repo
        .git(&["config", "core.fsmonitor", monitor.to_str().unwrap()]);
    let _ = std::fs::remove_file(&trace);
    stage.repo.write("new", "x\n");
    let db = open(&stage.repo);
    snapshot::survey(&db).unwrap();
    stage
        .prepare(&[])
        .map(|it| snapshot::land(&db, &it).unwrap())
        .unwrap();
    gitdb::undo::record(&db, "x", &gitdb::undo::Keep::default(), 1).unwrap();
    stage.repo.write("new", "y\n");
    gitdb::undo::undo(&db, None, 2).unwrap();
    db.add_worktree(&stage.repo.beside("w"), "dex/w", &stage.start)
        .unwrap();
    assert!(!trace.exists(), "{:?}", std::fs::read_to_string(&trace));
}

/// An ssh key made for the test, as git's signing key.
fn sign_with_ssh(stage: &Stage) -> bool {
    let key = stage.repo.beside("key");
    let made = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()])
        .status();
    for (name, value) in [
        ("gpg.format", "ssh"),
        ("commit.gpgsign", "true"),
        ("user.signingkey", key.to_str().unwrap()),
    ] {
        stage.repo.git(&["config", name, value]);
    }
    made.is_ok_and(|it| it.success())
}

#[test]
fn b03_a_stage_is_signed_where_the_user_signs() {
    let stage = Stage::new();
    assert_eq!(snapshot::test_signing(&open(&stage.repo)), Ok(false));
    assert!(sign_with_ssh(&stage));
    assert_eq!(snapshot::test_signing(&open(&stage.repo)), Ok(true));
    let signed = prepare(&stage, Sign::Auto, Hooks::Skip).unwrap();
    let raw = stage.repo.git(&["cat-file", "-p", signed.commit.as_str()]);
    assert!(
        raw.contains("gpgsig") && raw.ends_with("[checkpoint:plan:1]"),
        "{raw}"
    );
    let plain = prepare(&stage, Sign::Never, Hooks::Skip).unwrap();
    assert!(
        !stage
            .repo
            .git(&["cat-file", "-p", plain.commit.as_str()])
            .contains("gpgsig")
    );
    std::fs::remove_file(stage.repo.beside("key")).unwrap();
    let why = snapshot::test_signing(&open(&stage.repo)).unwrap_err();
    assert!(!why.is_empty());
    assert!(matches!(
        prepare(&stage, Sign::Auto, Hooks::Skip),
        Err(SnapshotError::Signing(_))
    ));
}

#[test]
fn b03_a_signing_program_that_waits_for_ever_is_ended_with_its_children() {
    let place = testkit::Repo::new();
    let pid = place.beside("pid");
    let program = place.beside("gpg-that-hangs");
    script(
        &program,
        &format!("echo $$ > '{}'; sleep 3600 & wait", pid.display()),
    );
    // The user's own: one that only the repository names is not started.
    let config = place.home().join("gitconfig");
    let text = format!("[gpg]\n\tprogram = {}\n", program.display());
    std::fs::write(&config, text).unwrap();
    let envs = [
        ("GITDB_CHILD", pid.to_str().unwrap()),
        ("GIT_CONFIG_GLOBAL", config.to_str().unwrap()),
    ];
    let out = crate::common::in_child("hooks_and_signing::child_signs_for_ever", &envs);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The other half of the test above.
#[test]
#[ignore = "a part of another test"]
fn child_signs_for_ever() {
    let Some(pid) = std::env::var_os("GITDB_CHILD") else {
        return;
    };
    let stage = Stage::new();
    stage.repo.git(&["config", "commit.gpgsign", "true"]);
    stage.repo.write("work", "kept\n");
    let start = Instant::now();
    match prepare(&stage, Sign::Auto, Hooks::Skip) {
        Err(SnapshotError::Signing(text)) => assert!(text.contains("20 s"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(30));
    let pid = std::fs::read_to_string(&pid).unwrap();
    let alive = Path::new("/proc").join(pid.trim()).join("cmdline");
    let cmdline = std::fs::read_to_string(alive).unwrap_or_default();
    assert!(!cmdline.contains("gpg-that-hangs"), "{cmdline}");
    assert_eq!(stage.repo.read("work"), "kept\n");
    assert_eq!(stage.leftovers(), Vec::<String>::new());
}

fn local_filter(stage: &Stage) {
    stage.repo.git(&["config", "filter.up.clean", "tr a-z A-Z"]);
    stage
        .repo
        .git(&["config", "filter.up.smudge", "tr A-Z a-z"]);
    stage.repo.git(&["config", "filter.up.required", "true"]);
    stage.repo.write(".gitattributes", "*.up filter=up\n");
}

#[test]
fn a_filter_named_only_in_the_repository_runs_only_when_allowed() {
    let stage = Stage::new();
    local_filter(&stage);
    stage.repo.write("other", "x\n");
    stage.prepare(&[]).unwrap();
    stage.repo.write("a.up", "text\n");
    match stage.prepare(&[]) {
        Err(SnapshotError::FilterNotAllowed { driver, path }) => {
            assert_eq!((driver.as_str(), path.as_str()), ("up", "a.up"));
        }
        other => panic!("{other:?}"),
    }
    stage.prepare(&["a.up"]).unwrap();
    let mut db = open(&stage.repo);
    db.allow_filters(true);
    let prepared = snapshot::prepare(
        &db,
        &stage.expected(),
        &stage.start,
        MESSAGE,
        Selection::default(),
        Sign::Never,
        Hooks::Skip,
    )
    .unwrap();
    assert_eq!(
        stage
            .repo
            .git(&["cat-file", "blob", &format!("{}:a.up", prepared.tree)]),
        "TEXT"
    );
    snapshot::land(&db, &prepared).unwrap();
    assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
    // Writing such a file needs it too.
    snapshot::restore_tree(&db, &stage.start, &[]).unwrap();
    db.allow_filters(false);
    match snapshot::restore_tree(&db, &prepared.tree, &[]) {
        Err(gitdb::GitError::FilterNotAllowed { driver, .. }) => assert_eq!(driver, "up"),
        other => panic!("{other:?}"),
    }
    db.allow_filters(true);
    snapshot::restore_tree(&db, &prepared.tree, &[]).unwrap();
    assert_eq!(stage.repo.read("a.up"), "text\n");
}

#[test]
fn a_filter_from_an_included_file_of_the_repository_is_not_run_either() {
    let stage = Stage::new();
    stage
        .repo
        .write("shared.config", "[filter \"x.y\"]\n\tprocess = touch ran\n");
    stage
        .repo
        .git(&["config", "include.path", "../shared.config"]);
    stage.repo.write(".gitattributes", "f filter=x.y\n");
    stage.repo.write("f", "x\n");
    match stage.prepare(&[]) {
        Err(SnapshotError::FilterNotAllowed { driver, .. }) => assert_eq!(driver, "x.y"),
        other => panic!("{other:?}"),
    }
    assert!(!stage.repo.path().join("ran").exists());
}

#[test]
fn a_filter_of_the_users_own_configuration_runs() {
    let stage = Stage::new();
    let config = stage.repo.home().join("gitconfig");
    std::fs::write(&config, "[filter \"up\"]\n\tclean = tr a-z A-Z\n").unwrap();
    // What the repository says about the same driver does not count.
    stage.repo.git(&["config", "filter.up.clean", "echo evil"]);
    stage.repo.write(".gitattributes", "*.up filter=up\n");
    stage.repo.write("a.up", "text\n");
    let envs = [
        ("GITDB_CHILD", stage.repo.path().to_str().unwrap()),
        ("GIT_CONFIG_GLOBAL", config.to_str().unwrap()),
    ];
    let out = crate::common::in_child("hooks_and_signing::child_stores_with_a_filter", &envs);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The other half of the test above.
#[test]
#[ignore = "a part of another test"]
fn child_stores_with_a_filter() {
    if let Some(path) = std::env::var_os("GITDB_CHILD") {
        let db = gitdb::Repo::open(Path::new(&path)).unwrap();
        let tree = snapshot::work_tree_tree(&db, &[]).unwrap();
        assert_eq!(db.read_file(&tree, "a.up").unwrap().unwrap(), b"TEXT\n");
    }
}

//! Property: what we capture is what stock `git add -A && git write-tree` captures.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use gitdb::snapshot;
use gitdb::undo::{self, Keep};
use proptest::prelude::*;
use testkit::Repo;

use crate::common::{MESSAGE, Stage, listing, oid, open};

/// Names that break tools: bytes that are no UTF-8, quotes, line ends, dashes, wildcards, case.
const NAMES: &[&[u8]] = &[
    b"plain",
    b"Plain",
    b"PLAIN",
    b"with space",
    b"\xff\xfe latin \xe9",
    b"quote\"'",
    b"line\nend",
    b"tab\tname",
    b"-dash",
    b"--all",
    b":(top)magic",
    b":!excl",
    b"*star*",
    b"[a]",
    b"back\\slash",
    b"dot.",
    b".hidden",
    b"nul",
    b"HEAD",
    b"\xc3\xbcml",
    b"x\x01y",
    b"255",
    b"crlf.txt",
    b"keep.eol",
    b"ignored.log",
];

fn name(index: usize) -> Vec<u8> {
    match NAMES[index % NAMES.len()] {
        b"255" => vec![b'n'; 255],
        other => other.to_vec(),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<usize>, u8, bool),
    Link(Vec<usize>, usize),
    Remove(Vec<usize>),
    Stage(Vec<usize>),
    Intend(Vec<usize>),
    Assume(Vec<usize>),
    Skip(Vec<usize>),
    Untrack(Vec<usize>),
}

fn place() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..NAMES.len(), 1..3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (place(), any::<u8>(), any::<bool>()).prop_map(|(p, c, x)| Step::Write(p, c, x)),
        2 => (place(), 0..NAMES.len()).prop_map(|(p, t)| Step::Link(p, t)),
        2 => place().prop_map(Step::Remove),
        2 => place().prop_map(Step::Stage),
        1 => place().prop_map(Step::Intend),
        1 => place().prop_map(Step::Assume),
        1 => place().prop_map(Step::Skip),
        1 => place().prop_map(Step::Untrack),
    ]
}

fn path(parts: &[usize]) -> PathBuf {
    parts
        .iter()
        .map(|it| PathBuf::from(OsStr::from_bytes(&name(*it))))
        .collect()
}

fn clear(root: &Path, relative: &Path) {
    // Whatever is in the way goes: a file above, a directory or a link at the place.
    let mut at = root.to_owned();
    for part in relative.components() {
        at.push(part);
        let meta = at.symlink_metadata();
        let last = at == root.join(relative);
        match meta {
            Ok(meta) if meta.is_dir() && last => std::fs::remove_dir_all(&at).unwrap(),
            Ok(meta) if !meta.is_dir() => std::fs::remove_file(&at).unwrap(),
            _ => {}
        }
    }
}

fn content(kind: u8) -> Vec<u8> {
    match kind % 5 {
        0 => Vec::new(),
        1 => b"one\r\ntwo\r\n".to_vec(),
        2 => b"one\ntwo\n".to_vec(),
        3 => vec![0, 0xff, kind, b'\r', b'\n'],
        _ => format!("{kind}\n").into_bytes(),
    }
}

fn apply(repo: &Repo, step: &Step) {
    let root = repo.path();
    let git = |args: &[&str], parts: &[usize]| {
        let mut args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let path = path(parts);
        args.extend([OsStr::new("--"), path.as_os_str()]);
        let args = [&[OsStr::new("--literal-pathspecs")], &args[..]].concat();
        repo.try_git(&args);
    };
    match step {
        Step::Write(parts, kind, executable) => {
            let relative = path(parts);
            clear(root, &relative);
            repo.write(&relative, content(*kind));
            let mode = if *executable { 0o755 } else { 0o644 };
            std::fs::set_permissions(root.join(relative), std::fs::Permissions::from_mode(mode))
                .unwrap();
        }
        Step::Link(parts, target) => {
            let relative = path(parts);
            clear(root, &relative);
            std::fs::create_dir_all(root.join(&relative).parent().unwrap()).unwrap();
            symlink(OsStr::from_bytes(&name(*target)), root.join(relative)).unwrap();
        }
        Step::Remove(parts) => {
            let full = root.join(path(parts));
            match full.symlink_metadata() {
                Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(full).unwrap(),
                Ok(_) => std::fs::remove_file(full).unwrap(),
                Err(_) => {}
            }
        }
        Step::Stage(parts) => git(&["add", "-f"], parts),
        Step::Intend(parts) => git(&["add", "-N"], parts),
        Step::Assume(parts) => git(&["update-index", "--assume-unchanged"], parts),
        Step::Skip(parts) => git(&["update-index", "--skip-worktree"], parts),
        Step::Untrack(parts) => git(&["rm", "-rq", "--cached"], parts),
    }
}

fn build(first: &[Step], sparse: bool) -> Stage {
    let repo = Repo::new();
    repo.write(".gitattributes", "*.txt text eol=crlf\n*.eol text\n");
    repo.write(".gitignore", "*.log\n");
    for it in first {
        apply(&repo, it);
    }
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    if sparse {
        repo.git(&[
            "sparse-checkout",
            "set",
            "--no-cone",
            "/*",
            "!/plain/",
            "!/Plain",
        ]);
    }
    Stage::on(repo)
}

/// The tree stock git makes of a copy of the index.
fn oracle(repo: &Repo) -> String {
    let copy = repo.beside("oracle-index");
    let status = std::process::Command::new("cp")
        .args([
            "-p",
            repo.path().join(".git/index").to_str().unwrap(),
            copy.to_str().unwrap(),
        ])
        .status();
    assert!(status.unwrap().success());
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        let out = repo
            .hermetic(&mut command)
            .env("GIT_INDEX_FILE", &copy)
            .current_dir(repo.path())
            .args(args)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    run(&["add", "-A", "--sparse"]);
    let tree = run(&["write-tree"]);
    std::fs::remove_file(copy).unwrap();
    tree
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_stages_tree_is_the_one_stock_git_makes(
        first in proptest::collection::vec(step(), 0..12),
        then in proptest::collection::vec(step(), 0..16),
        sparse in prop::bool::weighted(0.3),
    ) {
        let stage = build(&first, sparse);
        for it in &then {
            apply(&stage.repo, it);
        }
        let wanted = oracle(&stage.repo);
        let before = listing(stage.repo.path());
        let index = std::fs::read(stage.repo.path().join(".git/index")).unwrap();
        let prepared = stage.prepare(&[]).unwrap();
        prop_assert_eq!(prepared.tree.as_str(), &wanted);
        prop_assert_eq!(&std::fs::read(stage.repo.path().join(".git/index")).unwrap(), &index);
        snapshot::land(&open(&stage.repo), &prepared).unwrap();
        prop_assert_eq!(stage.repo.git(&["status", "--porcelain"]), "");
        prop_assert_eq!(listing(stage.repo.path()), before);
        let message = stage.repo.git(&["log", "-1", "--format=%B"]);
        prop_assert_eq!(message, MESSAGE.trim_end());
    }

    #[test]
    fn an_undo_restores_any_tree_exactly(
        first in proptest::collection::vec(step(), 0..12),
        then in proptest::collection::vec(step(), 0..16),
        sparse in prop::bool::weighted(0.3),
    ) {
        let stage = build(&first, sparse);
        for it in &then {
            apply(&stage.repo, it);
        }
        // Ignored files are no part of an entry, and `reset --hard` removes those that are in a
        // directory where a tracked link was.
        let unignored = || {
            let mut files = listing(stage.repo.path());
            files.retain(|path, _| !path.ends_with(".log"));
            files
        };
        let see = || (
            stage.repo.git(&["status", "--porcelain", "-z", "-uall"]),
            stage.repo.git(&["ls-files", "-s", "-v", "-z"]),
            unignored(),
        );
        let db = open(&stage.repo);
        undo::record(&db, "x", &Keep::default(), 1).unwrap();
        let before = see();
        stage.repo.git(&["reset", "-q", "--hard"]);
        stage.repo.git(&["clean", "-fdq"]);
        undo::undo(&db, None, 2).unwrap();
        prop_assert_eq!(see(), before);
    }
}

/// Few, because each case is some forty processes; `PROPTEST_CASES` raises it.
fn cases() -> u32 {
    let wanted = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|it| it.parse().ok());
    wanted.unwrap_or(8)
}

#[test]
fn a_copied_tree_of_another_repository_is_the_same_tree() {
    // The same content gives the same ids whatever the history.
    let one = Stage::new();
    one.repo.write("a/b", "x\n");
    let tree = one.commit(&[]).tree;
    let db = open(&one.repo);
    assert_eq!(snapshot::work_tree_tree(&db, &[]).unwrap(), tree);
    assert_eq!(oid(&one.repo.git(&["rev-parse", "HEAD^{tree}"])), tree);
}

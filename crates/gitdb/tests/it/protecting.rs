//! Configuration and hooks that an agent changed.

use gitdb::protect::{self, ProtectChange, Protected};
use testkit::Repo;

use crate::common::{oid, open};

fn names(changes: &[ProtectChange]) -> Vec<String> {
    let mut names: Vec<String> = changes
        .iter()
        .map(|it| serde_json::to_string(it).unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn changed_configuration_and_hooks_are_put_back_byte_for_byte() {
    let repo = Repo::new();
    let git = repo.path().join(".git");
    std::fs::create_dir_all(git.join("hooks")).unwrap();
    std::fs::write(git.join("hooks/pre-commit"), b"#!/bin/sh\n\xff").unwrap();
    std::os::unix::fs::symlink("/elsewhere/tool", git.join("hooks/pre-push")).unwrap();
    let db = open(&repo);
    let before = crate::common::listing(&git);
    let captured = protect::capture(&db, "refs/heads/dex/run").unwrap();
    let json = serde_json::to_string(&captured).unwrap();
    let captured: Protected = serde_json::from_str(&json).unwrap();
    assert_eq!(protect::put_back(&db, &captured).unwrap(), []);

    // A configuration so broken that any git call fails before it is put back.
    std::fs::write(git.join("config"), "[core\nbroken").unwrap();
    std::fs::write(git.join("hooks/pre-commit"), "#!/bin/sh\nevil\n").unwrap();
    std::fs::remove_file(git.join("hooks/pre-push")).unwrap();
    std::fs::write(git.join("hooks/post-checkout"), "#!/bin/sh\nevil\n").unwrap();
    std::fs::remove_file(git.join("info/exclude")).unwrap();
    std::fs::write(git.join("info/attributes"), "* filter=evil\n").unwrap();
    std::fs::write(git.join("config.worktree"), "[core]\n").unwrap();
    let changes = protect::put_back(&db, &captured).unwrap();
    assert_eq!(crate::common::listing(&git), before);
    let hooks = changes
        .iter()
        .filter(|it| matches!(it, ProtectChange::Hook { .. }))
        .count();
    let config = changes
        .iter()
        .filter(|it| matches!(it, ProtectChange::Config { .. }))
        .count();
    assert_eq!((hooks, config), (3, 4), "{changes:?}");
}

#[test]
fn a13_new_branches_tags_worktrees_and_stashes_are_listed_and_left() {
    let repo = Repo::new();
    let tip = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.git(&["branch", "old"]);
    repo.git(&["branch", "dex/run"]);
    let db = open(&repo);
    let captured = protect::capture(&db, "refs/heads/dex/run").unwrap();
    repo.git(&["commit", "-q", "--allow-empty", "-m", "moved"]);
    let moved = oid(&repo.git(&["rev-parse", "HEAD"]));
    repo.git(&["branch", "-f", "dex/run"]);
    repo.git(&["branch", "-D", "-q", "old"]);
    repo.git(&["tag", "new"]);
    repo.write("README.md", "x\n");
    repo.git(&["stash", "-q"]);
    let stash = oid(&repo.git(&["rev-parse", "stash"]));
    let dir = repo.beside("wt");
    repo.git(&["worktree", "add", "-q", "--detach", dir.to_str().unwrap()]);
    let changes = protect::put_back(&db, &captured).unwrap();
    let name = |it: &str| format!("refs/{it}");
    let expected = [
        ProtectChange::RefAdded {
            name: name("tags/new"),
            to: moved.clone(),
        },
        ProtectChange::RefMoved {
            name: name("heads/main"),
            from: tip.clone(),
            to: moved,
        },
        ProtectChange::RefRemoved {
            name: name("heads/old"),
            from: tip,
        },
        ProtectChange::WorktreeAdded {
            path: dir.to_str().unwrap().to_owned(),
        },
        ProtectChange::StashAdded { oid: stash.clone() },
    ];
    assert_eq!(names(&changes), names(&expected));
    assert_eq!(repo.git(&["rev-parse", "stash"]), stash.as_str());
}

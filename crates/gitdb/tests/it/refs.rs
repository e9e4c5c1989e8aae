use std::time::{Duration, Instant};

use gitdb::refs::{self, Applied, Edit, Expect};
use gitdb::{GitError, Oid};
use testkit::Repo;

use crate::common::{has_reftable, oid, open};

fn set(name: &str, expect: Expect, to: &Oid) -> Edit {
    Edit::Set {
        name: name.to_owned(),
        expect,
        to: to.clone(),
    }
}

/// Two commits: HEAD and an unreferenced child of it.
fn two(repo: &Repo) -> (Oid, Oid) {
    let first = oid(&repo.git(&["rev-parse", "HEAD"]));
    let second = oid(&repo.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "second"]));
    (first, second)
}

fn swaps_and_loses_races(repo: &Repo) {
    let db = open(repo);
    let (first, second) = two(repo);
    let name = "refs/heads/dex/r";
    assert_eq!(refs::read(&db, name).unwrap(), None);
    let create = [set(name, Expect::Absent, &first)];
    assert_eq!(refs::apply(&db, &create, "made").unwrap(), Applied::Done);
    let lost = refs::apply(&db, &create, "made").unwrap();
    let moved = |found| Applied::Moved {
        name: name.to_owned(),
        found,
    };
    assert_eq!(lost, moved(Some(first.clone())));
    let forward = [set(name, Expect::At(first.clone()), &second)];
    assert_eq!(refs::apply(&db, &forward, "moved").unwrap(), Applied::Done);
    assert_eq!(
        refs::apply(&db, &forward, "moved").unwrap(),
        moved(Some(second.clone()))
    );
    assert_eq!(repo.git(&["rev-parse", name]), second.as_str());
    // All or none.
    let both = [
        set("refs/heads/dex/other", Expect::Absent, &first),
        set(name, Expect::At(first.clone()), &first),
    ];
    assert_eq!(
        refs::apply(&db, &both, "both").unwrap(),
        moved(Some(second.clone()))
    );
    assert_eq!(refs::read(&db, "refs/heads/dex/other").unwrap(), None);
    let listed = refs::list(&db, &["refs/heads/dex/"]).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].oid, second);
    let verified = [
        Edit::Verify {
            name: "refs/heads/main".to_owned(),
            expect: Expect::At(first),
        },
        Edit::Delete {
            name: name.to_owned(),
            expect: second,
        },
    ];
    assert_eq!(refs::apply(&db, &verified, "gone").unwrap(), Applied::Done);
    assert_eq!(refs::read(&db, name).unwrap(), None);
}

#[test]
fn a_ref_moves_only_from_the_value_that_was_expected() {
    swaps_and_loses_races(&Repo::new());
}

#[test]
fn c22_refs_are_swapped_in_a_reftable_repository() {
    if has_reftable() {
        swaps_and_loses_races(&crate::common::committed(&["--ref-format=reftable"]));
    }
}

#[test]
fn c23_refs_are_swapped_in_a_sha256_repository() {
    swaps_and_loses_races(&crate::common::committed(&["--object-format=sha256"]));
}

#[test]
fn d03_a_lock_held_for_a_moment_is_waited_for() {
    let repo = Repo::new();
    let db = open(&repo);
    let (first, second) = two(&repo);
    let lock = repo.path().join(".git/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let holder = std::thread::spawn({
        let lock = lock.clone();
        move || {
            std::thread::sleep(Duration::from_millis(300));
            std::fs::remove_file(lock).unwrap();
        }
    });
    let edit = [set("refs/heads/main", Expect::At(first), &second)];
    assert_eq!(refs::apply(&db, &edit, "moved").unwrap(), Applied::Done);
    holder.join().unwrap();
}

#[test]
fn d05_a_lock_held_for_ever_is_named_with_its_age_and_never_removed() {
    let repo = Repo::new();
    let db = open(&repo);
    let (first, second) = two(&repo);
    let lock = repo.path().join(".git/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let start = Instant::now();
    let edit = [set("refs/heads/main", Expect::At(first), &second)];
    match refs::apply(&db, &edit, "moved") {
        Err(GitError::Locked { path, age_s }) => {
            assert_eq!(path, lock);
            assert!(age_s >= 4, "{age_s}");
        }
        other => panic!("{other:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(12));
    assert!(lock.exists());
}

#[test]
fn d07_a_left_behind_packed_refs_lock_stops_deletions_only() {
    let repo = Repo::new();
    repo.git(&["branch", "dex/old"]);
    repo.git(&["pack-refs", "--all"]);
    let lock = repo.path().join(".git/packed-refs.lock");
    std::fs::write(&lock, "").unwrap();
    let db = open(&repo);
    let (first, second) = two(&repo);
    let edits = [
        set("refs/heads/dex/new", Expect::Absent, &second),
        set("refs/heads/main", Expect::At(first.clone()), &second),
    ];
    assert_eq!(refs::apply(&db, &edits, "moved").unwrap(), Applied::Done);
    let delete = [Edit::Delete {
        name: "refs/heads/dex/old".to_owned(),
        expect: first.clone(),
    }];
    match refs::apply(&db, &delete, "gone") {
        Err(GitError::Locked { path, .. }) => assert_eq!(path, lock),
        other => panic!("{other:?}"),
    }
    assert_eq!(repo.git(&["rev-parse", "dex/old"]), first.as_str());
    assert!(lock.exists());
}

#[test]
fn a_symbolic_ref_planted_under_our_name_does_not_move_what_it_points_at() {
    let repo = Repo::new();
    let (first, second) = two(&repo);
    repo.git(&["symbolic-ref", "refs/heads/dex/r", "refs/heads/main"]);
    let edit = [set("refs/heads/dex/r", Expect::At(first.clone()), &second)];
    assert_eq!(
        refs::apply(&open(&repo), &edit, "moved").unwrap(),
        Applied::Done
    );
    assert_eq!(repo.git(&["rev-parse", "main"]), first.as_str());
    assert_eq!(repo.git(&["rev-parse", "dex/r"]), second.as_str());
}

#[test]
fn a_ref_that_cannot_be_read_is_an_error_and_not_absent() {
    let repo = Repo::new();
    std::fs::write(repo.path().join(".git/refs/heads/broken"), "nonsense\n").unwrap();
    assert!(refs::read(&open(&repo), "refs/heads/broken").is_err());
}

#[test]
fn no_acknowledged_update_is_lost_beside_pack_refs() {
    let repo = Repo::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                repo.try_git(&["pack-refs", "--all"]);
            }
        });
        let writer = || {
            let db = open(&repo);
            let mut done = 0;
            while done < 15 {
                let now = refs::read(&db, "refs/heads/main").unwrap().unwrap();
                let tree = format!("{now}^{{tree}}");
                let next = oid(&repo.git(&["commit-tree", &tree, "-p", now.as_str(), "-m", "x"]));
                let edit = [set("refs/heads/main", Expect::At(now), &next)];
                if refs::apply(&db, &edit, "x").unwrap() == Applied::Done {
                    done += 1;
                }
            }
        };
        let writers = [scope.spawn(writer), scope.spawn(writer)];
        for it in writers {
            it.join().unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(repo.git(&["rev-list", "--count", "main"]), "31");
}

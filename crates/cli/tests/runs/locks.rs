//! Beside other users of the same repository: locks held, merges open, commits made meanwhile.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Repo;

use super::support::{Project, good, implementing};

fn stepped() -> Project {
    let project = Project::new(&good(&["A greeting"]));
    project.dex_ok(&["run", "--small", "--step"]);
    project
}

#[test]
fn a_merge_a_person_began_is_never_concluded_b07() {
    let project = stepped();
    let git = |args: &[&str]| project.repo.git(args);
    let branch = project.branch();
    git(&["switch", "-q", "-c", "side"]);
    project.repo.write("README.md", "theirs\n");
    git(&["commit", "-qam", "theirs"]);
    git(&["switch", "-q", &branch]);
    project.repo.write("README.md", "mine\n");
    git(&["commit", "-qam", "mine"]);
    let tip = git(&["rev-parse", "HEAD"]);
    assert!(
        !project
            .repo
            .try_git(&["merge", "-q", "side"])
            .status
            .success()
    );
    let answer = project.dex(&["resume"]);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    assert!(
        answer.err.to_lowercase().contains("merge") && answer.err.contains("git status"),
        "{}",
        answer.err
    );
    assert_eq!(git(&["rev-parse", "HEAD"]), tip);
    assert!(project.repo.path().join(".git/MERGE_HEAD").exists());
    assert!(project.repo.read("README.md").contains("<<<<<<<"));
    // On a fresh start too.
    git(&["merge", "--abort"]);
    project.dex_ok(&["resume"]);
    assert_eq!(project.json(&["status", "--json"])["status"], "completed");
    assert_eq!(git(&["show", "HEAD:README.md"]), "mine");
}

#[test]
fn an_index_lock_held_for_a_moment_is_waited_for_d03() {
    let project = stepped();
    let lock = project.repo.path().join(".git/index.lock");
    std::fs::write(&lock, "").unwrap();
    let other = std::thread::spawn({
        let lock = lock.clone();
        move || {
            std::thread::sleep(Duration::from_millis(300));
            std::fs::remove_file(lock).unwrap();
        }
    });
    project.dex_ok(&["resume", "--step"]);
    other.join().unwrap();
    assert_eq!(project.json(&["status", "--json"])["stageCommits"], 2);
}

#[test]
fn an_index_lock_held_for_ever_is_named_and_never_removed_d03_d05() {
    let project = stepped();
    let lock = project.repo.path().join(".git/index.lock");
    std::fs::write(&lock, "theirs").unwrap();
    let began = Instant::now();
    let answer = project.dex(&["resume", "--step"]);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(answer.code, Some(1 | 8)), "{answer:?}");
    assert!(answer.err.contains("index.lock"), "{}", answer.err);
    assert!(
        !answer.err.contains("rm ") && !answer.err.contains("delete"),
        "{}",
        answer.err
    );
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), "theirs");
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["stageCommits"], 1);
    assert_eq!(status["unfinished"], "ready_to_commit", "{status}");
    std::fs::remove_file(&lock).unwrap();
    project.dex_ok(&["resume"]);
    project.is_over("after the lock was gone");
}

#[test]
fn a_packed_refs_lock_left_behind_stops_no_stage_d07() {
    let project = stepped();
    project.repo.git(&["pack-refs", "--all"]);
    let lock = project.repo.path().join(".git/packed-refs.lock");
    std::fs::write(&lock, "").unwrap();
    project.dex_ok(&["resume"]);
    assert!(lock.exists());
    let doctor = project.dex(&["doctor"]);
    assert!(
        format!("{}{}", doctor.out, doctor.err).contains("packed-refs.lock"),
        "{doctor:?}"
    );
    std::fs::remove_file(lock).unwrap();
    project.is_over("packed-refs.lock");
}

#[test]
fn a_person_who_adds_and_commits_beside_a_run_loses_nothing() {
    let slow =
        json!({ "delay": 150, "cost": 0.05, "writes": [{ "path": "made.txt", "content": "x\n" }] });
    let project = Project::in_repo(Repo::new(), &implementing(slow));
    let mut written = Vec::new();
    let mut child = project
        .command(&["run", "--small"])
        .env("DEX_SCRIPT_SPEED", "1")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let head = project.repo.path().join(".git/HEAD");
    while !std::fs::read_to_string(&head).is_ok_and(|it| it.contains("/dex/")) {
        assert!(child.try_wait().unwrap().is_none(), "it starts");
    }
    while child.try_wait().unwrap().is_none() && written.len() < 200 {
        let name = format!("mine/{}.txt", written.len());
        let text = format!("number {}\n", written.len());
        project.repo.write(&name, &text);
        project.repo.try_git(&["add", "--", &name]);
        if written.len() % 4 == 3 {
            project
                .repo
                .try_git(&["commit", "-q", "-m", "by hand", "--", &name]);
        }
        written.push((name, text));
    }
    let _ = child.wait();
    for _ in 0..5 {
        if project.json(&["status", "--json"])["status"] == "completed" {
            break;
        }
        project.dex(&["resume", "--keep"]);
    }
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "completed", "{status}");
    for (name, text) in &written {
        assert_eq!(&project.repo.read(name), text, "{name}");
    }
    project
        .repo
        .git(&["fsck", "--no-dangling", "--no-progress"]);
    assert!(!project.repo.path().join(".git/index.lock").exists());
    let stages = project.stages();
    let ours: Vec<&String> = stages
        .iter()
        .filter(|it| it.contains("[checkpoint:"))
        .collect();
    assert_eq!(ours.len(), 13, "{stages:#?}");
}

#[test]
fn the_lock_goes_to_the_background_without_a_moment_in_which_it_is_free() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = super::support::wrote("{specDir}/plan.md", "# Plan\n");
        stage["hang"] = json!(3000);
        (name == "plan").then_some(stage)
    });
    let path = project.repo.path().join(".git/dex/run.lock");
    let mut child = project.start(&["run", "--detach"]);
    let mut held = false;
    let mut told = None;
    // What another `dex` would do, as fast as it goes, until the background is well at work.
    while told.is_none_or(|it: std::time::Instant| it.elapsed().as_millis() < 500) {
        if told.is_none() && child.try_wait().unwrap().is_some() {
            told = Some(std::time::Instant::now());
        }
        let Ok(file) = std::fs::File::open(&path) else {
            continue;
        };
        let free = file.try_lock().is_ok();
        assert!(!(held && free), "it was free for a moment");
        held |= !free;
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    assert!(held);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    project.exits(0, &["stop", "--now"]);
    let free = std::fs::File::open(&path).unwrap().try_lock().is_ok();
    assert!(free, "nothing that was started keeps it");
}

#[test]
fn g02_a_killed_run_holds_nobody_up() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = super::support::wrote("{specDir}/plan.md", "# Plan\n");
        stage["hang"] = json!(true);
        (name == "plan").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("plan", |it| it.is_at("plan"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(project.repo.path().join(".dex/state.lock").exists());
    for args in [
        &["status"][..],
        &["runs"],
        &["report"],
        &["resume"],
        &["log"],
    ] {
        let began = std::time::Instant::now();
        let answer = project.dex(args);
        let took = began.elapsed();
        assert!(took.as_secs() < 5, "{args:?}: {took:?}: {}", answer.err);
        assert_ne!(answer.code, Some(8), "{args:?}: {}", answer.err);
    }
    // Nor does it hold up git: nothing of ours is in its way.
    project.repo.git(&["status"]);
    project.repo.git(&["stash", "list"]);
}

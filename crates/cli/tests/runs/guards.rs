//! What a run does not start, does not sign and does not touch: hooks, signing, the user's own.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::starting::{project, refused};
use super::support::{Project, wrote};

#[test]
fn b03_signing_that_would_prompt_is_refused_in_bounded_time_and_can_be_left_out() {
    let project = project();
    let gpg = project.repo.beside("gpg");
    std::fs::write(&gpg, "#!/bin/sh\necho $$ >> \"$0.pids\"\nexec sleep 3600\n").unwrap();
    Command::new("chmod").arg("+x").arg(&gpg).status().unwrap();
    project.repo.git(&["config", "commit.gpgsign", "true"]);
    project
        .repo
        .git(&["config", "--global", "gpg.program", &gpg.to_string_lossy()]);
    let began = Instant::now();
    let answer = refused(&project, 2, &["run"]);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert!(
        answer.err.contains("dex config sign never"),
        "{}",
        answer.err
    );
    let pids = std::fs::read_to_string(project.repo.beside("gpg.pids")).unwrap();
    for pid in pids.lines() {
        // Where nobody collects orphans, a dead one stays as a zombie.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(
            stat.is_empty() || stat.contains(") Z "),
            "no orphan: {stat}"
        );
    }
    project.exits(0, &["config", "sign", "never"]);
    project.exits(0, &["run"]);
    assert_eq!(project.checkpoints().len(), 13);
}

#[test]
fn b01_b02_hooks_do_not_run_unless_asked_for() {
    let project = project();
    for hook in ["pre-commit", "commit-msg", "post-commit", "post-checkout"] {
        write_hook(
            &project,
            hook,
            "touch \"$(git rev-parse --git-dir)/hook-ran\"; exit 1",
        );
    }
    project.exits(0, &["run"]);
    assert!(!project.repo.path().join(".git/hook-ran").exists());
}

fn write_hook(project: &Project, name: &str, body: &str) {
    let path = project.repo.path().join(".git/hooks").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    Command::new("chmod").arg("+x").arg(&path).status().unwrap();
}

#[test]
fn b01_hooks_that_are_asked_for_see_the_exact_tree_and_a_rejection_keeps_the_work() {
    let project = Project::with(json!({ "hooks": "run" }), &["Say hello"], |_, name| {
        (name == "constitution").then(|| wrote("specs/constitution.md", "BAD\n"))
    });
    let body = "git ls-files -s >> \"$(git rev-parse --git-common-dir)/seen\"\n\
        if git grep -q --cached BAD; then echo 'BAD is not allowed here' >&2; exit 1; fi";
    write_hook(&project, "pre-commit", body);
    let answer = project.exits(1, &["run"]);
    assert!(
        answer.err.contains("paused (could_not_commit)"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("BAD is not allowed here"),
        "{}",
        answer.err
    );
    assert_eq!(
        project.checkpoints().last().unwrap(),
        "clarification_synthesis:0"
    );
    assert_eq!(project.repo.read("specs/constitution.md"), "BAD\n");
    let status = project.json(&["status", "--json"]);
    assert_eq!(
        status["unfinished"], "ready_to_commit",
        "done, not recorded"
    );

    // A person mends it; nothing is paid for again.
    project.repo.write("specs/constitution.md", "good\n");
    project.exits(0, &["resume"]);
    assert_eq!(project.phases_of("constitution", 0).len(), 1);
    assert_eq!(project.checkpoints().len(), 13);
    let seen = std::fs::read_to_string(project.repo.path().join(".git/seen")).unwrap();
    let tree = project
        .repo
        .git(&["ls-tree", "-r", &project.branch(), "README.md"]);
    let oid = tree.split_whitespace().nth(2).unwrap();
    assert!(seen.contains(oid) && seen.contains("specs/constitution.md"));
}

#[test]
fn b02_a_hook_that_wants_another_subject_is_named_and_the_run_goes_on_without_it() {
    let project = Project::with(json!({ "hooks": "run" }), &["Say hello"], |_, _| None);
    write_hook(
        &project,
        "commit-msg",
        "grep -qE '^(feat|fix|chore)' \"$1\" || { echo 'conventional subjects only' >&2; exit 1; }",
    );
    let answer = project.exits(1, &["run"]);
    assert!(
        answer.err.contains("conventional subjects only"),
        "{}",
        answer.err
    );
    assert!(project.repo.path().join("GOAL_product_domain.md").exists());
    std::fs::remove_file(project.repo.path().join(".git/hooks/commit-msg")).unwrap();
    project.exits(0, &["resume"]);
}

#[test]
fn a13_stashes_branches_and_tags_are_the_same_after_a_whole_run() {
    let project = project();
    project.repo.git(&["branch", "other"]);
    project.repo.git(&["tag", "-a", "v1", "-m", "one"]);
    for text in ["first\n", "second\n"] {
        project.repo.write("README.md", text);
        project.repo.git(&["stash", "-q"]);
    }
    let own = |project: &Project| {
        let refs = project
            .repo
            .git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        let own: Vec<&str> = refs.lines().filter(|it| !it.contains("/dex")).collect();
        (
            own.join("\n"),
            project.repo.git(&["stash", "list", "--format=%H %gd %s"]),
        )
    };
    let before = own(&project);
    project.exits(0, &["run"]);
    assert_eq!(own(&project), before);
    assert!(project.is_clean());
}

#[test]
fn a12_an_agent_that_resets_and_cleans_takes_nothing_of_the_users() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
        stage["run"] = json!([["git", "reset", "-q", "--hard"], ["git", "clean", "-qfd"]]);
        (name == "plan").then_some(stage)
    });
    project.repo.write("README.md", "days of work\n");
    project.repo.write("untracked.txt", "more of it\n");
    project.exits(5, &["run"]);
    project.dex(&["run", "--worktree"]);
    assert_eq!(project.repo.read("README.md"), "days of work\n");
    assert_eq!(project.repo.read("untracked.txt"), "more of it\n");
    project.dex(&["run", "--save"]);
    assert_eq!(
        project.repo.git(&["show", "main:README.md"]),
        "days of work"
    );
    assert_eq!(
        project.repo.git(&["show", "main:untracked.txt"]),
        "more of it"
    );
}

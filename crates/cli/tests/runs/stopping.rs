//! Stopping: at a boundary, at once, by signal, by kill; what is left, and going on from it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::{Project, good, wrote};

/// A project whose `plan` writes a file and then says nothing for ever, the first time.
fn hangs_in_plan() -> Project {
    Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Half a plan\n");
        stage["hang"] = json!(true);
        (name == "plan").then_some(stage)
    })
}

fn works_again(project: &Project) {
    project
        .repo
        .write(".dex/mock-config.json", good(&["Say hello"]).to_string());
}

fn signal(child: &std::process::Child, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Processes that work in the project. An agent's environment is an allow-list, so a mark in the
/// environment would not find them.
fn processes(project: &Project) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let here = |pid: &u32| {
        std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|it| it == project.repo.path())
    };
    entries
        .filter_map(|it| it.file_name().to_str()?.parse().ok())
        .filter(here)
        .collect()
}

const HALF: &str = "specs/001-say-hello/plan.md";

#[test]
fn stop_ends_the_run_after_the_stage_in_progress() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
        stage["hang"] = json!(1500);
        (name == "plan").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("plan", |it| it.is_at("plan"));
    let answer = project.exits(0, &["stop"]);
    assert!(
        answer.err.contains("after the stage in progress"),
        "{}",
        answer.err
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(project.checkpoints().last().unwrap(), "plan:1");
    assert!(project.is_clean());
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["pause"]["reason"], "user_abort");
    let again = project.exits(0, &["stop"]);
    assert!(
        again.err.contains("is not running; nothing was stopped"),
        "{}",
        again.err
    );
    project.exits(0, &["resume"]);
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
}

#[test]
fn stop_now_ends_the_agent_and_both_ways_on_work() {
    for choice in ["--keep", "--discard"] {
        let project = hangs_in_plan();
        let mut child = project.start(&["run"]);
        project.until("plan", |it| {
            it.is_at("plan") && it.repo.path().join(HALF).exists()
        });
        let answer = project.exits(0, &["stop", "--now"]);
        assert!(answer.err.contains("has stopped"), "{}", answer.err);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!(processes(&project).is_empty());
        let status = project.exits(0, &["status"]);
        assert!(
            status.out.contains("unrecorded work is in the work tree"),
            "{}",
            status.out
        );
        assert!(
            project.repo.path().join(HALF).exists(),
            "its files are still there"
        );
        assert!(!project.was_committed(HALF));

        let refused = project.exits(9, &["resume"]);
        assert!(
            refused.err.contains("--keep") && refused.err.contains("--discard"),
            "{}",
            refused.err
        );
        works_again(&project);
        project.exits(0, &["resume", choice]);
        assert!(project.is_kept(HALF), "{choice}");
        let plan = project.phases_of("plan", 1);
        let states: Vec<&str> = plan
            .iter()
            .map(|it| it["status"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["stopped", "completed"]);
        assert_eq!(plan[0]["reason"], "user_abort");
        assert!(project.is_clean());
    }
}

#[test]
fn an_interrupt_ends_with_130_a_termination_with_143_and_a_closed_terminal_with_129() {
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let project = hangs_in_plan();
        let mut child = project.start(&["run"]);
        project.until("plan", |it| it.is_at("plan"));
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(processes(&project).is_empty());
        let status = project.json(&["status", "--json"]);
        assert_eq!(status["pause"]["reason"], "user_abort");
        assert_eq!(status["unfinished"], "half_done");
        assert_eq!(
            project.repo.read(HALF),
            "# Half a plan\n",
            "nothing is lost"
        );
        works_again(&project);
        project.exits(0, &["resume", "--discard"]);
        assert!(project.is_kept(HALF), "{name}");
        assert_eq!(project.checkpoints().len(), 13, "{name}");
    }
}

/// A project whose agent is a program that leaves a child in a session of its own.
fn with_a_child_that_escapes() -> Project {
    let project = Project::new(&good(&["Say hello"]));
    let agent = "setsid sh -c 'trap \"\" TERM; sleep 6; touch canary' & trap '' TERM; touch begun; sleep 60";
    project.settings(&json!({ "agent": "command", "agentCommand": ["sh", "-c", agent] }));
    project
}

fn gone_within(project: &Project, limit: Duration) {
    let began = Instant::now();
    while !processes(project).is_empty() {
        assert!(
            began.elapsed() < limit,
            "still there: {:?}",
            processes(project)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn exists(project: &Project, name: &str) -> bool {
    Path::new(&project.repo.path()).join(name).exists()
}

#[test]
fn g04_stop_now_ends_also_what_the_agent_put_into_a_session_of_its_own() {
    let project = with_a_child_that_escapes();
    let mut child = project.start(&["run"]);
    project.until("the agent", |it| exists(it, "begun"));
    project.exits(0, &["stop", "--now"]);
    // `stopped` is said only when nothing of it is left.
    // Only dex itself is, which says how the run went (with git) and ends.
    let left = processes(&project);
    assert!(
        left.len() <= 2 && left.contains(&child.id()) || left.is_empty(),
        "{left:?}"
    );
    child.wait().unwrap();
    gone_within(&project, Duration::from_millis(500));
    assert!(!exists(&project, "canary"));
}

#[test]
fn g04_a_killed_dex_takes_the_whole_tree_of_its_agent_with_it() {
    let project = with_a_child_that_escapes();
    let mut child = project.start(&["run"]);
    project.until("the agent", |it| exists(it, "begun"));
    child.kill().unwrap();
    child.wait().unwrap();
    gone_within(&project, Duration::from_secs(5));
    std::thread::sleep(Duration::from_millis(200));
    assert!(!exists(&project, "canary"));
    // G02: what the dead process left locks nobody out, and nobody waits for it.
    let began = Instant::now();
    let status = project.json(&["status", "--json"]);
    assert_eq!(
        (&status["status"], &status["unfinished"]),
        (&json!("paused"), &json!("half_done"))
    );
    project.exits(9, &["resume"]);
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_second_signal_ends_dex_at_once_and_the_agent_with_it() {
    let project = with_a_child_that_escapes();
    let mut child = project.start(&["run"]);
    project.until("the agent", |it| exists(it, "begun"));
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(20));
    signal(&child, "-INT");
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(6));
    gone_within(&project, Duration::from_secs(5));
    assert!(!exists(&project, "canary"));
}

#[test]
fn a15_after_a_kill_the_work_is_in_the_project_and_named_and_nothing_is_in_a_temporary_place() {
    let project = hangs_in_plan();
    let temp = project.repo.beside("tmp");
    std::fs::create_dir(&temp).unwrap();
    let mut child = project
        .command(&["run"])
        .env("TMPDIR", &temp)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    project.until("plan", |it| {
        it.is_at("plan") && it.repo.path().join(HALF).exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_dir_all(&temp).unwrap();
    let status = project.exits(0, &["status"]);
    assert!(
        status
            .out
            .contains("interrupted  Cycle 1 — Plan (unrecorded work is in the work tree)"),
        "{}",
        status.out
    );
    assert!(project.repo.path().join(HALF).exists());
    works_again(&project);
    project.exits(0, &["resume", "--keep"]);
    assert_eq!(project.phases_of("plan", 1)[0]["status"], "crashed");
}

#[test]
fn a_detached_run_can_be_watched_to_its_end_and_stopped() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
        stage["hang"] = json!(700);
        (name == "plan").then_some(stage)
    });
    let answer = project.exits(0, &["run", "--detach"]);
    assert!(answer.err.contains("in the background"), "{}", answer.err);
    // It is true already: the next command finds it running (case K04).
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "running");
    let watched = project.exits(0, &["status", "--watch"]);
    assert!(
        watched.out.contains("Cycle 1 — Learnings"),
        "{}",
        watched.out
    );
    assert!(watched.out.contains("completed"), "{}", watched.out);
    let says = |words: &str| assert!(watched.err.contains(words), "{words}: {}", watched.err);
    says("of $25.00");
    says("Write specs/001-say-hello/plan.md");
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
    let runner = project.live()["runId"].as_str().unwrap().to_owned();
    let log = format!(".git/dex/runs/{runner}/log/runner.log");
    assert!(project.repo.read(log).contains("Completion"));

    let project = hangs_in_plan();
    project.exits(0, &["run", "--detach"]);
    project.until("plan", |it| it.is_at("plan"));
    project.exits(0, &["stop", "--now"]);
    gone_within(&project, Duration::from_secs(3));
    works_again(&project);
    project.exits(0, &["resume", "--discard", "--detach"]);
    project.exits(0, &["status", "--watch"]);
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
}

#[test]
fn a_detached_run_pauses_after_every_stage_when_told_to() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run", "--detach", "--step"]);
    project.exits(0, &["status", "--watch"]);
    assert_eq!(project.checkpoints(), ["clarification_product:0"]);
}

#[test]
fn the_step_flag_pauses_after_every_stage() {
    let project = Project::new(&good(&["Say hello"]));
    let answer = project.exits(0, &["run", "--step"]);
    assert!(answer.err.contains("paused (step_mode)"), "{}", answer.err);
    assert!(answer.err.contains("next: dex resume"), "{}", answer.err);
    for done in 2..=13 {
        project.exits(0, &["resume", "--step"]);
        assert_eq!(project.checkpoints().len(), done);
        assert!(project.is_clean());
    }
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
    let over = project.exits(0, &["resume"]);
    assert!(over.err.contains("nothing to go on with"), "{}", over.err);
    assert_eq!(project.checkpoints().len(), 13);
}

#[test]
fn the_users_own_program_is_told_when_a_run_stops_and_when_it_ends() {
    let project = Project::new(&good(&["Say hello"]));
    let told = project.repo.beside("told");
    let script = format!("echo \"$DEX_STATUS $DEX_REASON\" >> '{}'", told.display());
    project.settings(&json!({ "agent": "scripted", "notify": ["sh", "-c", script] }));
    project.exits(7, &["run", "--budget", "0.1"]);
    project.exits(0, &["resume", "--budget", "9"]);
    let told = std::fs::read_to_string(told).unwrap();
    assert_eq!(told, "paused budget_exceeded\ncompleted \n");
}

#[test]
fn h07_a_resumed_run_works_as_it_was_started() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run", "--step"]);
    let before: Value = project.live()["start"]["settings"].clone();
    project.settings(&json!({ "agent": "claude", "sandbox": "off", "hooks": "run" }));
    project.exits(0, &["resume"]);
    let after = &project.live()["start"]["settings"];
    for key in ["agent", "sandbox", "hooks", "sign"] {
        assert_eq!(after[key], before[key], "{key}");
    }
}

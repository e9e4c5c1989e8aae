//! Caps: each one ends the stage as such, by name, with the work kept and a way to go on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::{Project, wrote};

/// A stage that costs so much and leaves a file.
fn costs(dollars: f64, path: &str) -> Value {
    let mut stage = wrote(path, "paid for\n");
    stage["cost"] = json!(dollars);
    stage
}

fn spent(project: &Project) -> f64 {
    project.json(&["status", "--json"])["costUsd"]
        .as_f64()
        .unwrap()
}

#[test]
fn the_runs_budget_ends_it_keeps_the_work_and_resume_goes_on_without_repeating_a_stage() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        (name == "plan").then(|| costs(0.50, "{specDir}/plan.md"))
    });
    let answer = project.exits(7, &["run", "--budget", "0.30"]);
    assert!(
        answer.err.contains("paused (budget_exceeded)"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("next: dex resume --budget USD"),
        "{}",
        answer.err
    );
    let before = project.checkpoints();
    assert_eq!(before.last().unwrap(), "specify:1");
    assert!(
        project.is_kept("specs/001-say-hello/plan.md"),
        "what was paid for is kept"
    );
    assert!(project.is_clean());
    assert!((spent(&project) - 0.62).abs() < 1e-9, "{}", spent(&project));
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["pause"]["reason"], "budget_exceeded");

    // Nothing changes by itself.
    project.exits(7, &["resume"]);
    project.exits(0, &["resume", "--budget", "5"]);
    let after = project.checkpoints();
    assert_eq!(after[..before.len()], before);
    let unique: std::collections::BTreeSet<&String> = after.iter().collect();
    assert_eq!(unique.len(), after.len(), "no stage twice");
    let plan = project.phases_of("plan", 1);
    let ended: Vec<_> = plan
        .iter()
        .map(|it| (&it["status"], &it["reason"]))
        .collect();
    assert_eq!(ended[0], (&json!("stopped"), &json!("cost_cap")));
    assert_eq!(ended.last().unwrap().0, "completed");
    let sum: f64 = project
        .phases()
        .iter()
        .filter_map(|it| it["costUsd"].as_f64())
        .sum();
    assert!((project.record()["totalCostUsd"].as_f64().unwrap() - sum).abs() < 1e-9);
}

#[test]
fn a_run_whose_last_dollar_bought_its_last_stage_is_over() {
    // Six stages at $0.02, $0.03 and so on: exactly 0.32 in all.
    let project = Project::with(json!({}), &["Say hello"], |_, _| None);
    project.exits(0, &["run"]);
    let total = project.record()["totalCostUsd"].as_f64().unwrap();
    let project = Project::with(json!({}), &["Say hello"], |_, _| None);
    project.exits(0, &["run", "--budget", &format!("{total:.6}")]);
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
}

#[test]
fn a_stages_budget_ends_it_and_resume_with_more_goes_on() {
    let settings = json!({ "limits": { "stageBudgetUsd": 0.20 } });
    let project = Project::with(settings, &["Say hello"], |_, name| {
        (name == "tasks").then(|| costs(0.25, "{specDir}/tasks.md"))
    });
    let answer = project.exits(7, &["run"]);
    assert!(answer.err.contains("budget_exceeded"), "{}", answer.err);
    assert_eq!(project.checkpoints().last().unwrap(), "plan:1");
    assert!(project.is_kept("specs/001-say-hello/tasks.md"));
    assert!(
        answer.err.contains("stageBudgetUsd"),
        "it says which budget: {}",
        answer.err
    );
    project.exits(0, &["config", "limits.stageBudgetUsd", "0.5"]);
    project.exits(0, &["resume"]);
    assert_eq!(
        project
            .checkpoints()
            .iter()
            .filter(|it| *it == "plan:1")
            .count(),
        1
    );
}

#[test]
fn the_cycles_of_a_run_are_bounded_and_can_be_raised() {
    let project = Project::with(json!({}), &["Say hello", "Wave"], |_, _| None);
    let answer = project.exits(7, &["run", "--cycles", "1"]);
    assert!(
        answer.err.contains("paused (max_cycles_reached)"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("next: dex resume --cycles N"),
        "{}",
        answer.err
    );
    assert_eq!(project.checkpoints().last().unwrap(), "learnings:1");
    project.exits(0, &["resume", "--cycles", "2"]);
    assert_eq!(project.features(), ["completed", "completed"]);
    assert_eq!(project.state()["config"]["maxCycles"], 2);
}

#[test]
fn a_stage_that_takes_too_long_or_gives_no_sign_of_life_is_ended_and_named() {
    for (limit, reason) in [("stageTimeoutMinutes", "time_out"), ("idleMinutes", "idle")] {
        let settings = json!({ "limits": { limit: 0.005 } });
        let project = Project::with(settings, &["Say hello"], |_, name| {
            let mut stage = wrote("specs/constitution.md", "# half\n");
            stage["hang"] = json!(true);
            (name == "constitution").then_some(stage)
        });
        let began = Instant::now();
        let answer = project.exits(1, &["run"]);
        assert!(began.elapsed() < Duration::from_secs(15));
        assert!(answer.err.contains(reason), "{}", answer.err);
        assert!(
            answer.err.contains("consecutive_failures"),
            "{}",
            answer.err
        );
        assert!(project.is_kept("specs/constitution.md"));
        assert!(!project.was_committed("specs/constitution.md"));
    }
}

#[test]
fn a_used_up_quota_is_waited_for_and_is_no_failure() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
        stage["quota"] = json!({ "afterMs": 2500, "times": 1 });
        (name == "plan").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("it waits", |it| {
        let status = it.dex(&["status", "--json"]).out;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["quotaUntil"].is_string()
    });
    let shown = project.dex(&["status"]);
    assert!(
        shown.out.contains("for the account's quota, until 20"),
        "{}",
        shown.out
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(project.cycle(1)[2], "plan");
    let plan = project.phases_of("plan", 1);
    let ended: Vec<_> = plan
        .iter()
        .map(|it| (&it["status"], &it["reason"]))
        .collect();
    assert_eq!(ended[0], (&json!("stopped"), &json!("quota")));
    assert_eq!(ended[1].0, "completed");
    assert_eq!(
        project.state()["failureCounts"]["say-hello"]["replanFailures"],
        0
    );
    assert_eq!(
        project.json(&["status", "--json"])["quotaUntil"],
        Value::Null
    );
}

#[test]
fn a_quota_that_comes_back_too_late_pauses_the_run() {
    // Back in an hour, and it may wait for half a minute.
    for times in [1, 30] {
        let after = if times == 1 { 3_600_000 } else { 1_000 };
        let settings = json!({ "limits": { "waitForQuotaHours": 0.0006 } });
        let project = Project::with(settings, &["Say hello"], |_, name| {
            let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
            stage["quota"] = json!({ "afterMs": after, "times": times });
            (name == "plan").then_some(stage)
        });
        let began = Instant::now();
        let answer = project.exits(7, &["run"]);
        // All waits for a stage together are bounded, not each.
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        assert!(
            answer.err.contains("paused (quota_exhausted)"),
            "{}",
            answer.err
        );
        assert!(
            answer
                .err
                .contains("next: dex resume, once the quota is back"),
            "{}",
            answer.err
        );
        assert_eq!(project.checkpoints().last().unwrap(), "specify:1");
    }
}

#[test]
fn a_run_that_waits_for_a_quota_can_be_stopped() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let quota = json!({ "delay": 0, "quota": { "afterMs": 3_600_000 } });
        (name == "constitution").then_some(quota)
    });
    let mut child = project.start(&["run"]);
    project.until("it waits", |it| {
        it.dex(&["status"]).out.contains("for the account's quota")
    });
    project.exits(0, &["stop"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let status = project.json(&["status", "--json"]);
    assert_eq!(
        (&status["status"], &status["quotaUntil"]),
        (&json!("paused"), &Value::Null)
    );
    assert_eq!(status["pause"]["reason"], "user_abort");
}

#[test]
fn an_agent_that_is_gone_pauses_the_run_and_names_the_way_on() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let gone = json!({ "delay": 0, "fail": { "failure": "agent_unavailable",
            "detail": "not logged in", "when": "before", "times": 1 } });
        (name == "constitution").then(|| {
            let mut stage = wrote("specs/constitution.md", "# Constitution\n");
            stage["fail"] = gone["fail"].clone();
            stage
        })
    });
    let answer = project.exits(4, &["run"]);
    assert!(
        answer
            .err
            .contains("paused (agent_unavailable): not logged in"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("next: dex doctor, then dex resume"),
        "{}",
        answer.err
    );
    project.exits(0, &["resume"]);
}

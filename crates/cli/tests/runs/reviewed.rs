//! What a strict review found: each once, as a user meets it.

use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, good, script, wrote};

/// A stage that costs so much and leaves a file.
fn costs(dollars: f64, path: &str) -> Value {
    let mut stage = wrote(path, "paid for\n");
    stage["cost"] = json!(dollars);
    stage
}

#[test]
fn a_stages_cap_names_its_own_flag_which_lets_the_run_finish() {
    let settings = json!({ "limits": { "stageBudgetUsd": 0.20 } });
    let project = Project::with(settings, &["Say hello"], |_, name| {
        (name == "plan").then(|| costs(0.25, "{specDir}/plan.md"))
    });
    let answer = project.exits(7, &["run"]);
    let next = "next: dex resume --stage-budget USD";
    assert!(answer.err.contains(next), "{}", answer.err);
    let report = project.json(&["report", "--json"]);
    let command = report["next"][0]["command"].as_str().unwrap();
    assert!(command.ends_with(" --stage-budget USD"), "{command}");
    // The run's budget is not what stopped it, and raising it does not help.
    project.exits(7, &["resume", "--budget", "40"]);
    project.exits(0, &["resume", "--stage-budget", "0.5"]);
    assert_eq!(project.checkpoints().last().unwrap(), "completion:0");
}

#[test]
fn a_stages_time_can_be_raised_on_resume() {
    let settings = json!({ "limits": { "stageTimeoutMinutes": 0.005 } });
    let project = Project::with(settings, &["Say hello"], |_, name| {
        let mut stage = wrote("specs/constitution.md", "# slow\n");
        stage["run"] = json!([["sleep", "1"]]);
        (name == "constitution").then_some(stage)
    });
    project.exits(1, &["run"]);
    project.exits(0, &["resume", "--stage-timeout", "5"]);
}

#[test]
fn a_budget_is_positive_and_finite() {
    let project = Project::new(&good(&["Say hello"]));
    for flag in ["--budget", "--stage-budget", "--stage-timeout"] {
        for value in ["0", "-3", "NaN", "inf", "much"] {
            let answer = project.exits(2, &["resume", flag, value]);
            assert!(answer.err.contains("greater than 0"), "{}", answer.err);
        }
    }
    for value in ["0", "-3", "NaN", "inf"] {
        let answer = project.exits(2, &["run", "--budget", value]);
        assert!(answer.err.contains("greater than 0"), "{}", answer.err);
    }
}

#[test]
fn a_whole_run_goes_through_where_the_path_is_not_utf_8() {
    let repo = Repo::new();
    let name = std::ffi::OsString::from_vec(b"proj\xffect".to_vec());
    let place = repo.path().parent().unwrap().join(name);
    std::fs::rename(repo.path(), &place).unwrap();
    let project = Project::in_repo(repo.seen_from(&place), &good(&["A greeting"]));
    project.whole_run("a path that is not UTF-8");
    project.exits(0, &["report"]);
    project.exits(0, &["runs"]);
}

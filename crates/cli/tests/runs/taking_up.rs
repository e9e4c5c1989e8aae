//! Taking up what is there: a killed start, an earlier run's results, a stage of another run.

use serde_json::json;

use super::starting::project;
use super::support::{Project, good, script};

const IN_PLACE: [&str; 3] = ["run", "-m", "Wave"];
const IN_A_WORK_TREE: [&str; 4] = ["run", "--worktree", "-m", "Wave"];

/// Kills a start at a point and goes on with `resume`, or with the same command again.
fn after_a_killed_start(words: &[&str], point: &str, again: &[&str]) -> Project {
    let project = project();
    std::fs::remove_file(project.repo.path().join("GOAL.md")).unwrap();
    let context = format!("{words:?} killed at {point}, then {again:?}");
    let mut command = project.command(words);
    let killed = command.env("DEX_CRASH_AT", point).output().unwrap();
    assert_ne!(killed.status.code(), Some(0), "{context}");
    let mut answer = project.dex(again);
    if answer.code == Some(3) {
        // Killed before anything was recorded: there is nothing to resume.
        answer = project.dex(words);
    }
    assert_eq!(answer.code, Some(0), "{context}: {}", answer.err);
    let branches = project.branch();
    let stages = |branch: &&str| {
        let log = project
            .repo
            .git(&["log", "--format=%s", branch, "--not", "main"]);
        log.lines().count()
    };
    assert_eq!(
        branches.lines().filter(|it| stages(it) == 13).count(),
        1,
        "{context}: {branches}"
    );
    assert!(project.is_clean(), "{context}");
    project
}

#[test]
fn g09_a_start_killed_at_any_step_is_gone_on_with_or_started_anew() {
    let points = [
        "live.before:1",
        "live.after:1",
        "setup.branch.before:1",
        "setup.head.before:1",
        "setup.branch.after:1",
        "live.before:2",
        "live.after:2",
    ];
    for point in points {
        for again in [&["resume"][..], &IN_PLACE] {
            let project = after_a_killed_start(&IN_PLACE, point, again);
            assert_eq!(
                project.branch().lines().count(),
                1,
                "{point}: nothing is left over"
            );
            assert_eq!(project.record()["baseBranch"], "main", "{point}");
        }
    }
}

#[test]
fn g09_a_start_in_a_work_tree_killed_at_any_step_is_gone_on_with_or_started_anew() {
    let points = [
        "live.after:1",
        "setup.branch.before:1",
        "setup.branch.after:1",
        "live.after:2",
    ];
    for point in points {
        for again in [&["resume"][..], &IN_A_WORK_TREE] {
            after_a_killed_start(&IN_A_WORK_TREE, point, again);
        }
    }
}

#[test]
fn a_second_run_of_the_same_goal_pays_for_nothing_that_is_there() {
    let project = project();
    project.exits(0, &["run"]);
    let first = project.branch();
    project.repo.git(&["switch", "-q", "main"]);
    project
        .repo
        .git(&["merge", "-q", "--no-edit", "--no-ff", &first]);
    project.repo.write(
        ".dex/mock-config.json",
        script(&["Say hello"], |cycle, _| {
            (cycle == 0).then(|| json!({ "delay": 0, "fail": "agent_error" }))
        })
        .to_string(),
    );
    project.exits(0, &["run"]);
    let branches = project.branch();
    let second = branches.lines().find(|it| **it != first).unwrap();
    let log = project
        .repo
        .git(&["log", "--reverse", "--format=%s", second, "--not", "main"]);
    let stages: Vec<&str> = log
        .lines()
        .map(|it| it.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(
        stages,
        [
            "clarification_product",
            "clarification_technical",
            "clarification_synthesis",
            "constitution",
            "manifest_extraction",
            "completion",
        ]
    );
    let id = project.json_at(second, ".dex/state.json")["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let record = project.json_at(second, &format!(".dex/runs/{id}.json"));
    assert!(
        record["phases"]
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["agent"].is_null())
    );

    // A changed goal is asked about again.
    project.repo.git(&["switch", "-q", "main"]);
    project.repo.write("GOAL.md", "# Another greeting\n");
    let answer = project.exits(1, &["run"]);
    assert!(
        answer.err.contains("Product questions") && answer.err.contains("agent_error"),
        "{}",
        answer.err
    );
}

#[test]
fn a_run_from_a_stage_is_a_new_run_on_its_own_branch() {
    let project = Project::new(&good(&["Say hello", "Wave"]));
    project.exits(0, &["run"]);
    let first = project.branch();
    let tip = project.repo.git(&["rev-parse", &first]);
    let old = project.record();
    let plan = project
        .repo
        .git(&["log", "--format=%H", "--grep=checkpoint:plan:2", &first]);

    project.exits(
        0,
        &["resume", "--from", "plan:2", "-m", "wave with both hands"],
    );
    assert_eq!(
        project.repo.git(&["rev-parse", &first]),
        tip,
        "the other one stays as it is"
    );
    let branches = project.branch();
    let second = branches.lines().find(|it| **it != first).unwrap();
    assert_eq!(
        project.repo.git(&["symbolic-ref", "--short", "HEAD"]),
        second
    );
    let log = project.repo.git(&[
        "log",
        "--reverse",
        "--format=%s",
        &format!("{plan}..{second}"),
    ]);
    let stages: Vec<&str> = log
        .lines()
        .map(|it| it.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(
        stages,
        ["tasks", "implement", "verify", "learnings", "completion"]
    );
    let id = project.json_at(second, ".dex/state.json")["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let record = project.json_at(second, &format!(".dex/runs/{id}.json"));
    assert_eq!(record["parentRunId"], old["runId"]);
    assert_eq!(record["forkedFrom"], plan.as_str());
    assert_eq!(record["baseBranch"], "main");
    assert_eq!(record["notes"], json!(["wave with both hands"]));
    // What was inherited was paid for by the other run: tasks, two parts, verify, learnings.
    assert!(
        (record["totalCostUsd"].as_f64().unwrap() - 0.14).abs() < 1e-9,
        "{}",
        record["totalCostUsd"]
    );
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["differences"], json!([]));
    assert_eq!(
        project.json_at(second, ".dex/state.json")["cyclesCompleted"],
        2
    );
}

#[test]
fn a_fork_knows_how_the_stages_it_inherits_went() {
    let settings =
        json!({ "verifyCommand": "test -e src/f2-fix.txt", "limits": { "maxVerifyRetries": 1 } });
    let project = Project::with(settings, &["Say hello", "Wave"], |_, _| None);
    project.exits(0, &["run"]);
    let first = project.branch();
    // Cycle 2 resumes the feature of cycle 1: a fork from its gap analysis does the same.
    project.exits(0, &["resume", "--from", "gap_analysis:2"]);
    let branches = project.branch();
    let second = branches
        .lines()
        .find(|it| **it != first)
        .unwrap()
        .to_owned();
    let of = |branch: &str| {
        let log = project
            .repo
            .git(&["log", "--reverse", "--format=%s", branch, "--not", "main"]);
        log.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&second), of(&first));
    // A fork from a verify that failed mends what failed.
    project.exits(0, &["resume", "--from", &format!("{first}@verify:2#1")]);
    let branches = project.branch();
    let third = branches
        .lines()
        .find(|it| **it != first && **it != second)
        .unwrap();
    assert_eq!(of(third), of(&first));
}

#[test]
fn the_note_of_a_resume_is_in_the_prompts_and_in_the_record() {
    let project = project();
    let agent = r#"
        prompt=$(cat)
        case $DEX_STAGE in
        clarification_product) echo hello > GOAL_product_domain.md ;;
        clarification_technical)
            case $prompt in
            *"mind the gap"*) echo told > GOAL_technical_domain.md ;;
            esac ;;
        *) exit 1 ;;
        esac"#;
    project.settings(&json!({ "agent": "command", "agentCommand": ["sh", "-c", agent] }));
    project.exits(1, &["run"]);
    assert_eq!(project.checkpoints().len(), 1);
    project.exits(1, &["resume", "-m", "mind the gap"]);
    assert_eq!(
        project.checkpoints().last().unwrap(),
        "clarification_technical:0"
    );
    assert_eq!(project.record()["notes"], json!(["mind the gap"]));
    assert_eq!(
        project.record()["totalCostUsd"],
        serde_json::Value::Null,
        "not reported, not 0"
    );
}

//! What the existing Dex wrote: its script plays, its runs are read.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::Repo;

use super::support::Project;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../dex/tests/data")
        .join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(data(name)).unwrap()
}

#[test]
fn the_script_of_the_existing_dex_plays_to_the_end() {
    let script: Value = serde_json::from_str(&text("mock-config.json")).unwrap();
    let project = Project::new(&script);
    project.settings(&json!({ "agent": "mock" }));
    let answer = project.dex(&["run"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "completed");
    let features = status["features"].as_array().unwrap().len();
    assert_eq!(
        status["cyclesCompleted"].as_u64().unwrap() as usize,
        features
    );
    assert_eq!(
        status["stageCommits"].as_u64().unwrap() as usize,
        5 + 7 * features + 1
    );
    assert!(features >= 1 && project.is_clean());
}

#[test]
fn its_settings_file_is_read() {
    let project = Project::new(&serde_json::from_str(&text("mock-config.json")).unwrap());
    project
        .repo
        .write(".dex/dex-config.json", text("dex-config.json"));
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
}

/// A repository as the existing Dex leaves it: commits with two `-m`, some with a cost, a
/// version-1 state, a record with `agentRuns`, no working data.
fn old_run() -> (Project, usize) {
    let record = text("runs/ea9930a3-2604-4520-b365-82dfc4ed8e9b.json");
    let parsed: Value = serde_json::from_str(&record).unwrap();
    let mut state: Value = serde_json::from_str(&text("state-cycle3-specify.json")).unwrap();
    state["runId"] = parsed["runId"].clone();
    let repo = Repo::new();
    repo.git(&["switch", "-q", "-c", "dex/2026-07-28-4f1c2a"]);
    let mut commits = 0;
    for row in parsed["agentRuns"].as_array().unwrap() {
        let stage = row["step"].as_str().unwrap_or("prerequisites");
        if row["status"] != "completed" || stage == "prerequisites" {
            continue;
        }
        let cycle = row["cycleNumber"].as_u64().unwrap_or(0);
        let feature = row["featureSlug"].as_str().unwrap_or("-");
        state["lastCompletedStep"] = json!(stage);
        state["currentCycleNumber"] = json!(cycle);
        repo.write(".dex/state.json", state.to_string());
        repo.write(
            ".dex/runs/ea9930a3-2604-4520-b365-82dfc4ed8e9b.json",
            &record,
        );
        repo.write(".dex/feature-manifest.json", text("feature-manifest.json"));
        repo.write(".dex/learnings.md", text("learnings.md"));
        repo.write("GOAL.md", "# Shop\n");
        repo.git(&["add", "-A"]);
        let cost = if commits % 2 == 0 {
            " [cost:$0.00]"
        } else {
            ""
        };
        let first = format!("dex: {stage} completed [cycle:{cycle}] [feature:{feature}]{cost}");
        let second = format!("[checkpoint:{stage}:{cycle}]");
        repo.git(&["commit", "-q", "--allow-empty", "-m", &first, "-m", &second]);
        commits += 1;
    }
    (Project { repo }, commits)
}

#[test]
fn a_run_of_the_existing_dex_is_shown_as_its_commits_say() {
    let (project, commits) = old_run();
    let refs = project.repo.git(&["for-each-ref"]);
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["branch"], "dex/2026-07-28-4f1c2a", "{status}");
    assert_eq!(status["runId"], "ea9930a3-2604-4520-b365-82dfc4ed8e9b");
    assert_eq!(
        status["stageCommits"].as_u64().unwrap() as usize,
        commits,
        "{status}"
    );
    let learnings = project
        .repo
        .git(&["log", "--format=%h", "--grep=^.checkpoint:learnings:"]);
    assert_eq!(
        status["cyclesCompleted"].as_u64().unwrap() as usize,
        learnings.lines().count()
    );
    assert_eq!(status["status"], "paused");
    assert!(
        status["features"]
            .as_array()
            .is_some_and(|it| !it.is_empty()),
        "{status}"
    );
    let runs = project.json(&["runs", "--json"]);
    assert!(runs.to_string().contains("2026-07-28-4f1c2a"), "{runs}");
    for words in [
        &["status"][..],
        &["runs"],
        &["report"],
        &["timeline"],
        &["show"],
        &["log"],
    ] {
        let answer = project.dex(words);
        assert!(matches!(answer.code, Some(0 | 3)), "{words:?}: {answer:?}");
    }
    let timeline = project.dex(&["timeline"]).out;
    let shown = timeline.lines().filter(|it| !it.trim().is_empty()).count();
    assert!(shown >= commits, "{timeline}");
    assert_eq!(project.repo.git(&["for-each-ref"]), refs);
    assert!(project.is_clean(), "reading changes no file");
}

#[test]
fn the_older_skeleton_of_a_record_is_read() {
    let repo = Repo::new();
    repo.git(&["switch", "-q", "-c", "dex/2026-05-07-0ecfed"]);
    let mut state: Value = serde_json::from_str(&text("state-cycle1-learnings.json")).unwrap();
    state["runId"] = json!("0ecfedde-7ae0-4c4c-b8b6-7d1ac85f79bc");
    repo.write(".dex/state.json", state.to_string());
    repo.write(
        ".dex/runs/0ecfedde-7ae0-4c4c-b8b6-7d1ac85f79bc.json",
        text("runs/0ecfedde-7ae0-4c4c-b8b6-7d1ac85f79bc.json"),
    );
    repo.git(&["add", "-A"]);
    repo.git(&[
        "commit",
        "-qm",
        "dex: constitution completed [cycle:0]",
        "-m",
        "[checkpoint:constitution:0]",
    ]);
    let project = Project { repo };
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["runId"], "0ecfedde-7ae0-4c4c-b8b6-7d1ac85f79bc");
    assert_eq!(status["stageCommits"], 1);
    assert_eq!(project.dex(&["runs"]).code, Some(0));
}

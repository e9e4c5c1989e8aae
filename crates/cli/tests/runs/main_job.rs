//! The main job: from a goal to a finished run.

use super::support::{Project, good};

#[test]
fn a_run_of_three_features_leaves_exactly_the_commits_branch_and_files_of_the_format() {
    let project = Project::new(&good(&["Add notes", "List notes", "Find notes"]));
    let answer = project.dex(&["run"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);

    let mut expected = Vec::new();
    for stage in [
        "clarification_product",
        "clarification_technical",
        "clarification_synthesis",
        "constitution",
        "manifest_extraction",
    ] {
        expected.push(format!("dex: {stage} completed [cycle:0] [feature:-]\n[checkpoint:{stage}:0]"));
    }
    for (cycle, slug) in [(1, "add-notes"), (2, "list-notes"), (3, "find-notes")] {
        for stage in ["gap_analysis", "specify", "plan", "tasks", "implement", "verify", "learnings"] {
            expected.push(format!(
                "dex: {stage} completed [cycle:{cycle}] [feature:{slug}]\n[checkpoint:{stage}:{cycle}]"
            ));
        }
    }
    expected.push("dex: completion completed [cycle:0] [feature:-]\n[checkpoint:completion:0]".into());
    assert_eq!(project.stages(), expected);
    assert_eq!(expected.len(), 5 + 7 * 3 + 1);

    assert!(project.is_clean());
    let branch = project.branch();
    assert_eq!(project.repo.git(&["symbolic-ref", "--short", "HEAD"]), branch);
    let parts: Vec<&str> = branch.split(['/', '-']).collect();
    assert_eq!(parts[0], "dex");
    assert_eq!(parts[4].len(), 6);
    let tracked = project.repo.git(&["ls-files", ".dex"]);
    let id = project.record()["runId"].as_str().unwrap().to_owned();
    assert!(id.ends_with(parts[4]));
    assert_eq!(
        tracked.lines().collect::<Vec<_>>(),
        [
            ".dex/.gitattributes",
            ".dex/.gitignore",
            ".dex/feature-manifest.json",
            ".dex/learnings.md",
            &format!(".dex/runs/{id}.json"),
            ".dex/state.json"
        ]
    );
    let refs = project.repo.git(&["for-each-ref", "--format=%(refname)"]);
    let ours: Vec<&str> = refs.lines().filter(|it| !it.starts_with("refs/heads/")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn every_commit_says_of_itself_that_it_is_done() {
    let project = Project::new(&good(&["Add notes"]));
    assert_eq!(project.dex(&["run"]).code, Some(0));
    let commits = project.repo.git(&["rev-list", "--reverse", &project.branch(), "--not", "main"]);
    for (at, commit) in commits.lines().enumerate() {
        let state = project.repo.git(&["show", &format!("{commit}:.dex/state.json")]);
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        let subject = project.repo.git(&["log", "-1", "--format=%s", commit]);
        let stage = state["lastCompletedStep"].as_str().unwrap();
        assert!(subject.starts_with(&format!("dex: {stage} completed")), "{subject}: {stage}");
        let last = at + 1 == commits.lines().count();
        assert_eq!(state["status"], if last { "completed" } else { "running" });
        let record = project.record_at(commit);
        let phase = record["phases"].as_array().unwrap().last().unwrap();
        assert_eq!(phase["checkpoint"], state["lastCommit"]["checkpoint"]);
        let parent = project.repo.git(&["rev-parse", &format!("{commit}^")]);
        assert_eq!(phase["parentSha"], parent.as_str());
        assert_eq!(record["status"], state["status"]);
    }
}

#[test]
fn the_articles_commands_answer_without_dex() {
    let project = Project::new(&good(&["Add notes"]));
    assert_eq!(project.dex(&["run"]).code, Some(0));
    let log = project.repo.git(&["log", "--oneline", r"--grep=\[checkpoint:"]);
    assert_eq!(log.lines().count(), 13);
    let branches = project.repo.git(&["branch", "--list", "dex/*"]);
    assert_eq!(branches.lines().count(), 1);
    let record = project.record();
    let phases = record["phases"].as_array().unwrap();
    let cost: f64 = phases.iter().filter_map(|it| it["costUsd"].as_f64()).sum();
    assert!((record["totalCostUsd"].as_f64().unwrap() - cost).abs() < 1e-9);
    // Two parts of implement are two attempts; gap analysis and completion need no agent.
    assert_eq!(phases.len(), 14);
}

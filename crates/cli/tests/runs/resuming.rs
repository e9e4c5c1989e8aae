//! What `dex resume` does with what a person did meanwhile.

use serde_json::json;

use super::support::{Project, good, script};

#[test]
fn work_of_a_person_is_never_swept_into_a_stage_by_resume() {
    let project = Project::new(&good(&["Say hello"]));
    project.dex_ok(&["run", "--step"]);
    project.repo.write("mine.txt", "mine\n");
    let refused = project.dex(&["resume"]);
    assert_eq!(refused.code, Some(5), "{}", refused.err);
    assert!(refused.err.contains("mine.txt"), "{}", refused.err);
    assert_eq!(project.repo.read("mine.txt"), "mine\n");
    project.dex_ok(&["resume", "--discard"]);
    assert!(!project.repo.path().join("mine.txt").exists());
    let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    assert!(!tree.contains("mine.txt"), "{tree}");
    let kept = project
        .repo
        .git(&["for-each-ref", "--format=%(refname)", "refs/dex-local/undo"]);
    assert!(!kept.is_empty(), "it can be undone");
}

#[test]
fn an_attempt_that_left_a_secret_is_counted_once() {
    let token = ["ghp", "_", "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"].concat();
    let project = Project::new(&script(&["Say hello"], |_, name| {
        (name == "plan").then(|| {
            json!({ "delay": 0, "cost": 1.0, "writes": [
                { "path": "{specDir}/plan.md", "content": "# Plan\n" },
                { "path": "conf.py", "content": format!("KEY = \"{token}\"\n") } ] })
        })
    }));
    let paused = project.dex(&["run"]);
    assert_eq!(paused.code, Some(9), "{}", paused.err);
    project.dex_ok(&["resume", "--allow", "conf.py"]);
    let record = project.record();
    let phases = record["phases"].as_array().unwrap();
    let ids: std::collections::BTreeSet<&str> = phases
        .iter()
        .map(|it| it["phaseId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), phases.len(), "an attempt is one element");
    let plans = phases.iter().filter(|it| it["stage"] == "plan").count();
    assert_eq!(plans, 2, "the first try and the retry");
}

#[test]
fn a_persons_commit_on_top_of_an_agents_stays_on_the_branch() {
    let token = ["ghp", "_", "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"].concat();
    let project = Project::new(&script(&["Say hello"], |_, name| {
        (name == "plan").then(|| {
            json!({ "delay": 0, "cost": 0.1,
                "writes": [
                    { "path": "{specDir}/plan.md", "content": "# Plan\n" },
                    { "path": "tok.txt", "content": format!("{token}\n") } ],
                "run": ["git", "commit", "-qam", "by the agent", "--allow-empty"] })
        })
    }));
    assert_eq!(project.dex(&["run"]).code, Some(9));
    std::fs::remove_file(project.repo.path().join("tok.txt")).unwrap();
    project.repo.write("README.md", "mine\n");
    project.repo.git(&["commit", "-qam", "my own commit"]);
    project.dex_ok(&["resume"]);
    let log = project.repo.git(&["log", "--format=%s", &project.branch()]);
    assert!(log.contains("my own commit"), "{log}");
}

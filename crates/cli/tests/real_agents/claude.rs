//! The real Claude Code CLI works through a whole run; the model behind it is scripted.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::crash::survivors;
use testkit::fake_model::{FakeModel, Lane, Recorded, Turn};
use testkit::{Repo, real_agent};

use super::world::{GREETING, attempts, branch, check_finished, dex, micro, ok, path_with};
use super::world::{project, record};

/// What one reply of the fake model costs: 1000 tokens in, 50 out, at 3 and 15 dollars a million.
const REPLY_MICRO_USD: u64 = 3_750;

/// A run's world: the project, the model, and the CLI first on `PATH`.
pub(crate) struct World {
    pub(crate) repo: Repo,
    pub(crate) model: FakeModel,
}

impl World {
    /// None when tests that need the network are left out.
    fn new(implement: impl FnOnce(&Path) -> Lane) -> Option<World> {
        let repo = project(&json!({
            "agent": "scripted", "verifyCommand": "sh check.sh", "model": "claude-sonnet-4-5",
        }));
        World::in_repo(repo, implement)
    }

    /// The same in a repository of the caller's.
    pub(crate) fn in_repo(repo: Repo, implement: impl FnOnce(&Path) -> Lane) -> Option<World> {
        let program = real_agent::claude()?;
        std::fs::create_dir_all(repo.beside("bin")).expect("a directory");
        std::os::unix::fs::symlink(program, repo.beside("bin/claude")).expect("a link");
        let model = FakeModel::with_lanes(lanes(repo.path(), implement(repo.path())));
        Some(World { repo, model })
    }

    pub(crate) fn dex(&self, args: &[&str]) -> Command {
        let mut command = dex(&self.repo, args);
        command
            .env("PATH", path_with(&self.repo.beside("bin")))
            .env("ANTHROPIC_BASE_URL", self.model.url())
            .env("ANTHROPIC_API_KEY", "dummy-key");
        command
    }

    /// The model's requests of one stage, known by its prompt.
    fn asked(&self, title: &str) -> Vec<Recorded> {
        let mut requests = self.model.main_requests();
        requests.retain(|it| it.first_user_text().contains(title));
        requests
    }

    fn wait_for(&self, title: &str, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.asked(title).len() < count {
            assert!(
                Instant::now() < deadline,
                "the model was never asked: {title}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn at(root: &Path, name: &str) -> String {
    root.join(name).display().to_string()
}

fn write(root: &Path, name: &str, content: &str) -> Turn {
    let input = json!({"file_path": at(root, name), "content": content});
    Turn::call("Write", input)
}

pub(crate) fn answer(answer: Value) -> Turn {
    Turn::call("StructuredOutput", answer)
}

pub(crate) fn stage(title: &str, mut turns: Vec<Turn>) -> Lane {
    turns.push(Turn::text("That is all."));
    Lane::new(turns).when_prompt_has(title)
}

/// What the model says in each stage, known by the prompt's title.
fn lanes(root: &Path, implement: Lane) -> Vec<Lane> {
    let spec = "specs/001-say-hello";
    let file = |name: &str, content: &str| {
        let written = write(root, &format!("{spec}/{name}"), content);
        vec![
            written,
            answer(json!({"summary": format!("{name} is written.")})),
        ]
    };
    let tasks = "# Tasks\n\n## Phase 1: Greeting\n\n- [ ] T001 Change the greeting\n";
    let bash = json!({"command": "echo changed > greeting.txt", "description": "try it"});
    vec![
        stage(
            "# Specify the feature",
            file("spec.md", "# Say hello\n\nFR-001 It must.\n"),
        ),
        stage(
            "# Plan the feature",
            file("plan.md", "# Plan\n\nOne file.\n"),
        ),
        stage("# Break the plan into tasks", file("tasks.md", tasks)),
        implement,
        stage(
            "# Verify the feature",
            vec![
                Turn::call(
                    "Bash",
                    json!({"command": "sh check.sh", "description": "check"}),
                ),
                answer(
                    json!({"passed": true, "buildSucceeded": true, "testsSucceeded": true,
                    "failures": [], "summary": "The check passes."}),
                ),
            ],
        ),
        stage(
            "# Keep what this cycle taught",
            vec![
                // There is no shell in a stage that only looks.
                Turn::call("Bash", bash),
                answer(json!({"insights": [{"category": "testing",
                    "insight": "check.sh decides.", "context": "check.sh"}]})),
            ],
        ),
    ]
}

/// One replacement in a file.
pub(crate) fn edits(root: &Path, name: &str, old: &str, new: &str) -> Turn {
    let path = at(root, name);
    let input = json!({"file_path": path, "old_string": old, "new_string": new});
    Turn::call("Edit", input)
}

/// Reads and edits the greeting, ticks the task, answers.
pub(crate) fn builds(root: &Path) -> Vec<Turn> {
    let read = |name: &str| Turn::call("Read", json!({"file_path": at(root, name)}));
    vec![
        read(GREETING),
        edits(root, GREETING, "hello", "goodbye"),
        read("specs/001-say-hello/tasks.md"),
        edits(root, "specs/001-say-hello/tasks.md", "[ ] T001", "[x] T001"),
        answer(json!({"summary": "The greeting is changed."})),
    ]
}

pub(crate) const IMPLEMENT: &str = "# Implement phase 1 of the tasks";

#[test]
fn a_whole_run_with_the_real_claude_code_edits_the_file_and_records_what_it_cost() {
    let Some(world) = World::new(|root| stage(IMPLEMENT, builds(root))) else {
        return;
    };
    ok(world.dex(&["run", "-m", "say hello", "--small", "--agent", "claude"]));
    assert_eq!(world.model.problems(), [""; 0]);
    check_finished(&world.repo);

    let record = record(&world.repo);
    for (name, title) in [
        ("specify", "# Specify the feature"),
        ("plan", "# Plan the feature"),
        ("tasks", "# Break the plan into tasks"),
        ("implement", IMPLEMENT),
        ("verify", "# Verify the feature"),
        ("learnings", "# Keep what this cycle taught"),
    ] {
        let found = attempts(&record, name);
        assert_eq!(found.len(), 1, "{name}: {record:#}");
        let phase = found[0];
        let requests = world.asked(title);
        let replies = requests.len() as u64;
        assert!(replies >= 2, "{name}");
        let cost = micro(&phase["costUsd"]);
        assert_eq!(cost, Some(replies * REPLY_MICRO_USD), "{name}");
        assert_eq!(phase["inputTokens"], replies * 1000, "{name}");
        assert_eq!(phase["outputTokens"], replies * 50, "{name}");
        assert_eq!(phase["agent"], "claude", "{name}");
        assert_eq!(phase["model"], "claude-sonnet-4-5", "{name}");
        assert_eq!(phase["sessionId"].as_str(), requests[0].session(), "{name}");
        assert_eq!(phase["status"], "completed", "{name}");
    }
    let replies = world.model.main_requests().len() as u64;
    assert_eq!(
        micro(&record["totalCostUsd"]),
        Some(replies * REPLY_MICRO_USD)
    );

    // The shell was neither offered nor obeyed, and both the record and the log say so.
    let looks = &world.asked("# Keep what this cycle taught")[0];
    assert_eq!(looks.tools(), ["Glob", "Grep", "Read", "StructuredOutput"]);
    let steps = &attempts(&record, "learnings")[0]["steps"];
    assert!(
        steps.to_string().contains("denied"),
        "a refused tool is listed: {steps}"
    );
    let log = ok(world.dex(&["log"]));
    assert!(log.contains("denied"), "{log}");
}

#[test]
fn killed_in_the_middle_of_implement_nothing_stays_running_and_resume_discard_completes() {
    let Some(world) = World::new(|root| {
        // Killed while the model is asked for a third reply; then from the start again.
        let mut turns: Vec<Turn> = builds(root).into_iter().take(2).collect();
        turns.push(Turn::hang());
        turns.extend(builds(root));
        stage(IMPLEMENT, turns).in_order()
    }) else {
        return;
    };
    let run = ["run", "-m", "say hello", "--small", "--agent", "claude"];
    let mut command = world.dex(&run);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = command.spawn().expect("dex starts");
    world.wait_for(IMPLEMENT, 3);
    assert_eq!(world.repo.read(GREETING), "goodbye\n");
    running.kill().expect("our child");
    running.wait().expect("our child");
    // Everything it started has this home; the claude process is one of them.
    let home = world.repo.home().display().to_string();
    let left = survivors("HOME", &home, Duration::from_secs(3));
    assert_eq!(left, [], "left running after kill -9");

    ok(world.dex(&["resume", "--discard"]));
    check_finished(&world.repo);
    let record = record(&world.repo);
    let tried = attempts(&record, "implement");
    let status: Vec<_> = tried.iter().map(|it| it["status"].as_str()).collect();
    assert_eq!(status, [Some("crashed"), Some("completed")], "{record:#}");
    // The killed attempt's two replies are paid for, once, by an element of its own.
    let killed = micro(&tried[0]["costUsd"]).unwrap_or_default();
    assert!(
        (2 * 3_000..=2 * REPLY_MICRO_USD).contains(&killed),
        "{killed}"
    );
    let replies = world.asked(IMPLEMENT).len() as u64 - 3;
    assert_eq!(
        micro(&tried[1]["costUsd"]),
        Some(replies * REPLY_MICRO_USD),
        "{record:#}"
    );
    assert_ne!(tried[0]["sessionId"], tried[1]["sessionId"]);
    // What it had done when it was killed can be brought back.
    let kept = ok(world.dex(&["undo", "--list"]));
    assert!(kept.contains("Implement was interrupted"), "{kept}");
    assert!(!branch(&world.repo).is_empty());
}

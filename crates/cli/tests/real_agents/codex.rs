//! The real Codex CLI works through a whole run; the model behind it is scripted.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::fake_model::{FakeModel, Lane, Turn};
use testkit::{Repo, real_agent};

use super::world::{attempts, check_finished, dex, ok, path_with, project_in, record};

fn patch(path: &str, lines: &[&str]) -> Turn {
    let lines: Vec<_> = lines.iter().map(|it| format!("+{it}\n")).collect();
    Turn::patch(format!(
        "*** Begin Patch\n*** Add File: {path}\n{}*** End Patch\n",
        lines.concat()
    ))
}

fn stage(title: &str, mut turns: Vec<Turn>, answer: &Value) -> Lane {
    turns.push(Turn::text(answer.to_string()));
    Lane::new(turns).when_prompt_has(title)
}

/// What the model says in each stage, known by the prompt's title.
fn lanes() -> Vec<Lane> {
    let spec = |name: &str| format!("specs/001-say-hello/{name}");
    let done = |what: &str| json!({"summary": format!("{what} is written."), "questions": null});
    let greet = "*** Begin Patch\n*** Update File: greeting.txt\n@@\n-hello\n+goodbye\n\
        *** Update File: specs/001-say-hello/tasks.md\n@@\n-- [ ] T001 Change the greeting\n\
        +- [x] T001 Change the greeting\n*** End Patch\n";
    vec![
        stage(
            "# Specify the feature",
            vec![patch(
                &spec("spec.md"),
                &["# Say hello", "", "FR-001 It must."],
            )],
            &done("The specification"),
        ),
        stage(
            "# Plan the feature",
            vec![patch(&spec("plan.md"), &["# Plan", "", "One file."])],
            &done("The plan"),
        ),
        stage(
            "# Break the plan into tasks",
            vec![patch(
                &spec("tasks.md"),
                &[
                    "# Tasks",
                    "",
                    "## Phase 1: Greeting",
                    "",
                    "- [ ] T001 Change the greeting",
                ],
            )],
            &done("The list"),
        ),
        stage(
            "# Implement phase 1 of the tasks",
            vec![Turn::command("cat greeting.txt"), Turn::patch(greet)],
            &done("The greeting"),
        ),
        stage(
            "# Verify the feature",
            vec![Turn::command("sh check.sh")],
            &json!({"passed": true, "buildSucceeded": true, "testsSucceeded": true,
                "failures": [], "summary": "The check passes.", "questions": null}),
        ),
        stage(
            "# Keep what this cycle taught",
            // A stage that only looks cannot write.
            vec![patch("made.txt", &["made"])],
            &json!({"insights": [{"category": "testing", "insight": "check.sh decides.",
                "context": "check.sh"}], "questions": null}),
        ),
    ]
}

/// The project, the model, and the CLI first on `PATH`.
struct World {
    repo: Repo,
    model: FakeModel,
}

impl World {
    fn new(program: &Path) -> World {
        // Not in memory below `/dev`, which Codex's sandbox hides.
        let repo = Repo::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")));
        let repo = project_in(
            repo,
            &json!({"agent": "codex", "verifyCommand": "sh check.sh", "model": "gpt-5.5"}),
        );
        std::fs::create_dir_all(repo.beside("bin")).expect("a directory");
        std::os::unix::fs::symlink(program, repo.beside("bin/codex")).expect("a link");
        let model = FakeModel::with_lanes(lanes());
        let settings = format!(
            "model_provider = \"fake\"\n[model_providers.fake]\nname = \"fake\"\n\
             base_url = \"{}/v1\"\nwire_api = \"responses\"\nenv_key = \"FAKE_KEY\"\n",
            model.url()
        );
        std::fs::create_dir_all(repo.home().join(".codex")).expect("a directory");
        std::fs::write(repo.home().join(".codex/config.toml"), settings).expect("writes");
        World { repo, model }
    }

    fn dex(&self, args: &[&str]) -> Command {
        let mut command = dex(&self.repo, args);
        command
            .env("PATH", path_with(&self.repo.beside("bin")))
            .env("FAKE_KEY", "dummy-key");
        command
    }
}

#[test]
fn a_whole_run_with_the_real_codex_edits_the_file_and_reports_no_dollars() {
    let Some(program) = real_agent::codex() else {
        return;
    };
    let world = World::new(program);
    ok(world.dex(&["run", "-m", "say hello", "--small"]));
    assert_eq!(world.model.problems(), [""; 0]);
    check_finished(&world.repo);

    let record = record(&world.repo);
    assert_eq!(record["totalCostUsd"], Value::Null, "not reported is not 0");
    for name in [
        "specify",
        "plan",
        "tasks",
        "implement",
        "verify",
        "learnings",
    ] {
        let found = attempts(&record, name);
        assert_eq!(found.len(), 1, "{name}: {record:#}");
        let phase = found[0];
        let replies = if name == "implement" { 3 } else { 2 };
        assert_eq!(phase["inputTokens"], replies * 1000, "{name}");
        assert_eq!(phase["outputTokens"], replies * 50, "{name}");
        assert_eq!(phase["costUsd"], Value::Null, "{name}");
        assert_eq!(phase["agent"], "codex", "{name}");
        assert_eq!(phase["status"], "completed", "{name}");
    }
    // The patch was not made, whichever sandbox stopped it: root's Codex has only ours.
    let learnings = attempts(&record, "learnings")[0];
    assert!(!world.repo.path().join("made.txt").exists());
    assert_eq!(learnings["filesChanged"], 0, "{learnings}");
    let steps = learnings["steps"].to_string();
    assert!(steps.contains("made.txt"), "{steps}");

    // Strict schemas: every field required.
    let asked = world.model.main_requests();
    let verify = asked
        .iter()
        .find(|it| it.first_user_text().contains("# Verify the feature"));
    let format = &verify.expect("it was asked").body["text"]["format"];
    assert_eq!(format["strict"], true);
    let required = format["schema"]["required"].as_array().expect("a list");
    assert!(required.contains(&json!("questions")), "{format}");
}

#[test]
fn the_doctor_says_whether_codex_can_be_used() {
    let Some(program) = real_agent::codex() else {
        return;
    };
    let world = World::new(program);
    let said = |mut command: Command, code: &str| {
        let output = command.output().expect("dex starts");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks = report["checks"].as_array().expect("a list").clone();
        let check = checks.into_iter().find(|it| it["code"] == code);
        check.expect("a check")["text"].as_str().map(str::to_owned)
    };
    let doctor = || world.dex(&["doctor", "--json"]);
    let agent = |command: Command| said(command, "agent");
    assert_eq!(agent(doctor()).as_deref(), Some("codex 0.171.0 is ready"));
    let all = said(doctor(), "agents").unwrap_or_default();
    assert!(all.ends_with("; codex 0.171.0 is ready"), "{all}");
    let mut without = doctor();
    without.env_remove("FAKE_KEY");
    assert_eq!(agent(without).as_deref(), Some("codex is not logged in"));
    // The default provider, and nobody is logged in.
    std::fs::write(world.repo.home().join(".codex/config.toml"), "").expect("writes");
    assert_eq!(agent(doctor()).as_deref(), Some("codex is not logged in"));
}

//! What a strict review found: each once, as a user meets it.

use std::os::unix::ffi::OsStringExt as _;

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, good, wrote};

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

#[test]
fn resuming_in_the_background_tells_when_it_failed_at_once() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run", "--step"]);
    let branch = project.branch();
    project.repo.git(&["switch", "-q", "main"]);
    let answer = project.exits(5, &["resume", &branch, "--detach"]);
    assert!(answer.err.contains("not on dex/"), "{}", answer.err);
    project.repo.git(&["switch", "-q", &branch]);
    // A prompt nobody can render ends it before its first stage.
    project
        .repo
        .write(".dex/prompts/clarification_technical.md", "{{nonsense}}\n");
    project.repo.git(&["add", "-f", ".dex/prompts"]);
    project.repo.git(&["commit", "-qm", "a prompt of our own"]);
    let answer = project.exits(1, &["resume", "--detach"]);
    assert!(answer.err.contains("ended at once"), "{}", answer.err);
    project.repo.git(&["revert", "--no-edit", "HEAD"]);
    project.exits(0, &["resume", "--detach", "-m=- begin with a dash"]);
    project.until("the end", |it| {
        it.json(&["status", "--json"])["status"] == "completed"
    });
    assert_eq!(project.record()["notes"], json!(["- begin with a dash"]));
}

#[test]
fn a_goal_outside_of_the_project_or_inside_git_is_refused() {
    let project = Project::new(&good(&["Say hello"]));
    let outside = project.repo.beside("secret.md");
    std::fs::write(&outside, "# not yours\n").unwrap();
    std::fs::remove_file(project.repo.path().join("GOAL.md")).unwrap();
    std::os::unix::fs::symlink(&outside, project.repo.path().join("GOAL.md")).unwrap();
    for args in [&["run"][..], &["run", "GOAL.md"]] {
        let answer = project.exits(2, args);
        assert!(answer.err.contains("is not inside"), "{}", answer.err);
    }
    project.repo.write(".git/goal.md", "# hidden\n");
    let answer = project.exits(2, &["run", ".git/goal.md"]);
    assert!(answer.err.contains("inside .git"), "{}", answer.err);
    assert_eq!(project.branch(), "");
}

#[test]
fn a_spec_directory_behind_a_link_is_no_output() {
    let linked = runs_then(&[
        "sh",
        "-c",
        "mkdir -p ../out/001-x && echo '# Spec' > ../out/001-x/spec.md && rm -rf specs/001-say-hello && ln -s ../../out/001-x specs/001-say-hello",
    ]);
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        (name == "specify").then(|| linked.clone())
    });
    project.dex(&["run"]);
    let first = &project.live()["attempts"];
    let text = format!("{first}{}", project.record()["phases"]);
    assert!(text.contains("missing_output"), "{text}");
    assert!(!project.checkpoints().contains(&"specify:1".to_owned()));
}

/// A stage that only runs one command.
fn runs_then(command: &[&str]) -> Value {
    json!({ "cost": 0.01, "run": [command] })
}

#[test]
fn starting_where_another_run_works_says_so_and_not_that_files_changed() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("src/half.txt", "half\n");
        stage["hang"] = json!(true);
        (name == "implement").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("implement", |it| {
        it.is_at("implement") && it.repo.path().join("src/half.txt").exists()
    });
    let answer = project.exits(8, &["run", "-m", "another"]);
    assert!(
        answer.err.contains("has been running here"),
        "{}",
        answer.err
    );
    project.exits(0, &["stop", "--now"]);
    child.wait().unwrap();
    let answer = project.exits(5, &["run", "-m", "another"]);
    assert!(answer.err.contains("Not committed: "), "{}", answer.err);
}

#[test]
fn an_empty_answer_takes_what_is_recommended_and_a_slip_lists_the_choices() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let asks = json!([{ "question": "Which?", "options": [
            { "label": "Hello" }, { "label": "Hi", "recommended": true } ] }]);
        let mut stage = wrote("{goalProductDomain}", "# product\n");
        stage["structured_output"] = json!({ "questions": asks });
        (name == "clarification_product").then_some(stage)
    });
    project.exits(9, &["run", "--ask"]);
    for slip in ["3", "0"] {
        let answer = project.exits(2, &["answer", slip]);
        assert!(answer.err.contains("1 Hello, 2 Hi"), "{}", answer.err);
    }
    let answer = project.exits(0, &["answer", ""]);
    assert!(answer.err.contains("answered: Hi"), "{}", answer.err);
}

#[test]
fn report_and_the_documented_filter_count_the_same_attempts() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run"]);
    let told = project.json(&["report", "--json"])["totals"]["attempts"].clone();
    let with_agent = project
        .phases()
        .iter()
        .filter(|it| it["agent"].is_string())
        .count();
    assert_eq!(told, json!(with_agent));
    assert!(with_agent < project.phases().len());
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/");
    let guide = std::path::Path::new(guide);
    let page = std::fs::read_to_string(guide.join("reading-a-run.md")).unwrap();
    assert!(page.contains("[.phases[] | select(.agent)] | length"));
    let mut script = std::process::Command::new("sh");
    script
        .arg(guide.join("read-run.sh"))
        .current_dir(project.repo.path());
    project.repo.hermetic(&mut script);
    let out = String::from_utf8(script.output().unwrap().stdout).unwrap();
    // Without jq it names no number.
    let number = format!("in {with_agent} attempts");
    assert!(out.contains(&number) || out.contains("install jq"), "{out}");
}

#[test]
fn inside_git_it_is_told_so_and_not_called_bare() {
    let project = Project::new(&good(&["Say hello"]));
    let mut command = project.command(&["run"]);
    let answer = command
        .current_dir(project.repo.path().join(".git"))
        .output();
    let answer: super::support::Answer = answer.unwrap().into();
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.err.contains("own .git") && !answer.err.contains("bare"),
        "{}",
        answer.err
    );
}

#[test]
fn tasks_that_are_ticked_before_anything_is_implemented_are_no_tasks() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let ticked = "# Tasks\n\n## Phase 1: All\n\n- [x] T001 One\n";
        (name == "tasks").then(|| wrote("{specDir}/tasks.md", ticked))
    });
    project.dex(&["run", "--cycles", "1"]);
    let tried = project.phases_of("tasks", 1);
    assert_eq!(tried.len(), 2, "asked once more: {tried:?}");
    for attempt in &tried {
        assert_eq!(attempt["reason"], "missing_output", "{attempt}");
    }
    assert!(!project.checkpoints().contains(&"implement:1".to_owned()));
}

#[test]
fn after_an_interrupt_the_last_line_asks_what_status_asks() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# half\n");
        stage["hang"] = json!(true);
        (name == "plan").then_some(stage)
    });
    let mut command = project.command(&["run"]);
    command.stdout(std::process::Stdio::null());
    command.stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    project.until("plan", |it| it.is_at("plan"));
    let pid = child.id().to_string();
    std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .unwrap();
    let answer: super::support::Answer = child.wait_with_output().unwrap().into();
    let next = "dex resume --keep or dex resume --discard";
    assert!(answer.err.trim_end().ends_with(next), "{}", answer.err);
    assert!(project.dex(&["status"]).err.trim_end().ends_with(next));
}

#[test]
fn undo_names_the_finished_stages_that_would_leave_the_branch() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Plan\n");
        stage["hang"] = json!(700);
        (name == "plan").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("plan", |it| it.is_at("plan"));
    project.exits(0, &["stop", "--now"]);
    child.wait().unwrap();
    project.exits(0, &["resume", "--discard", "--step"]);
    project.exits(0, &["resume", "--step"]);
    let listed = project.exits(0, &["undo", "--list"]);
    assert!(
        listed.out.contains("from before 2 finished stages"),
        "{}",
        listed.out
    );
    let entries = project.json(&["undo", "--list", "--json"]);
    assert_eq!(
        entries["entries"][0]["beforeStages"],
        json!(["plan:1", "tasks:1"])
    );
    let answer = project.exits(0, &["undo", "--dry-run"]);
    let told = "it is from before 2 finished stages, which leave the branch (`dex redo` brings them back):\n    plan:1, tasks:1\n";
    assert!(answer.err.contains(told), "{}", answer.err);
    project.exits(0, &["undo", "--yes"]);
    assert_eq!(project.checkpoints().last().unwrap(), "specify:1");
    project.exits(0, &["redo", "--yes"]);
    assert_eq!(project.checkpoints().last().unwrap(), "tasks:1");
}

#[test]
fn a_deleted_branch_is_brought_back_by_the_command_that_is_named() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run", "--step"]);
    let branch = project.branch();
    let tip = project.repo.git(&["rev-parse", &branch]);
    project.repo.git(&["switch", "-q", "main"]);
    project.repo.git(&["branch", "-qD", &branch]);
    let answer = project.exits(5, &["resume", &branch]);
    let command = format!("git branch {branch} {tip}");
    assert!(answer.err.contains(&command), "{}", answer.err);
    project.repo.git(&["branch", &branch, &tip]);
    project.repo.git(&["switch", "-q", &branch]);
    project.exits(0, &["resume"]);
}

#[test]
fn what_is_no_commit_is_named_with_what_can_be_shown() {
    let project = Project::new(&good(&["Say hello"]));
    project.exits(0, &["run"]);
    for name in ["HEAD^{tree}", "HEAD:README.md", "nothing", "plan:9"] {
        let answer = project.exits(3, &["show", name]);
        let text = format!(
            "error: there is no finished stage or commit {name}\nhint: `dex timeline` lists the stages"
        );
        assert!(answer.err.contains(&text), "{name}: {}", answer.err);
        let answer = project.exits(3, &["resume", "--from", name]);
        assert!(answer.err.contains(&text), "{name}: {}", answer.err);
    }
}

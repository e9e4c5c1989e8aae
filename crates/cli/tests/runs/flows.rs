//! The course of a run: what follows when a stage fails, and what the record says of it.

use serde_json::{Value, json};

use super::support::{Project, good, script, wrote};

/// An attempt that leaves a file behind and fails.
fn fails(path: &str) -> Value {
    let mut stage = wrote(path, "half done\n");
    stage["fail"] = json!({ "failure": "agent_error", "detail": "it gave up" });
    stage
}

fn fails_times(path: &str, times: u32) -> Value {
    let mut stage = fails(path);
    stage["fail"]["times"] = json!(times);
    stage
}

#[test]
fn a_failed_verify_is_fixed_and_verified_again() {
    let settings = json!({ "verifyCommand": "test -e src/f1-fix.txt" });
    let project = Project::with(settings, &["Say hello"], |_, _| None);
    project.exits(0, &["run"]);
    let cycle = project.cycle(1);
    let expected =
        "gap_analysis specify plan tasks implement verify implement_fix verify learnings";
    assert_eq!(cycle.join(" "), expected);
    let verified = project.phases_of("verify", 1);
    let result = |it: &Value| (it["verify"]["passed"].clone(), it["verify"]["exit"].clone());
    assert_eq!(result(&verified[0]), (json!(false), json!(1)));
    assert_eq!(result(&verified[1]), (json!(true), json!(0)));
    assert_eq!(verified[1]["verify"]["by"], "command");
    // The commit whose command failed says so of itself.
    let first = project
        .repo
        .git(&["rev-parse", &format!("{}~3", project.branch())]);
    let record = project.record_at(&first);
    let last = record["phases"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["stage"], &last["status"]),
        (&json!("implement_fix"), &json!("completed"))
    );
    assert_eq!(project.features(), ["completed"]);
    assert_eq!(
        project.state()["failureCounts"]["say-hello"]["implFailures"],
        0
    );
}

#[test]
fn a_feature_that_never_verifies_stays_active_and_three_cycles_of_it_pause_the_run() {
    let settings = json!({ "verifyCommand": "false", "limits": { "maxVerifyRetries": 1 } });
    let project = Project::with(settings, &["Say hello", "Wave"], |cycle, name| {
        let replan = json!({ "delay": 0, "structured_output":
            { "decision": "REPLAN_FEATURE", "reason": "the plan does not hold" } });
        (cycle == 2 && name == "gap_analysis").then_some(replan)
    });
    let answer = project.exits(6, &["run"]);
    assert!(
        answer.err.contains("consecutive_failures"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("next: dex log, then dex resume -m"),
        "{}",
        answer.err
    );

    let tail = "verify implement_fix verify learnings";
    assert_eq!(
        project.cycle(1).join(" "),
        format!("gap_analysis specify plan tasks implement {tail}")
    );
    // REPLAN plans anew; then, past the script, RESUME goes straight on implementing.
    assert_eq!(
        project.cycle(2).join(" "),
        format!("gap_analysis plan tasks implement {tail}")
    );
    assert_eq!(
        project.cycle(3).join(" "),
        format!("gap_analysis plan tasks implement {tail}")
    );
    assert_eq!(project.cycle(4), [""; 0]);
    assert_eq!(project.features(), ["active", "pending"]);
    let state = project.state();
    assert_eq!(state["failureCounts"]["say-hello"]["implFailures"], 3);
    assert_eq!(state["featuresCompleted"], json!([]));
    assert_eq!(state["cyclesCompleted"], 3);
    assert!(project.is_clean());

    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "paused");
    assert_eq!(status["pause"]["reason"], "consecutive_failures");
    // A person goes on: three more.
    project.exits(6, &["resume", "-m", "look at the exit code"]);
    assert_eq!(project.state()["cyclesCompleted"], 6);
}

#[test]
fn a_resumed_feature_goes_straight_to_implement_and_the_record_says_what_was_skipped() {
    let settings = json!({ "verifyCommand": "test -e src/f2-fix.txt",
        "limits": { "maxVerifyRetries": 1 } });
    let project = Project::with(settings, &["Say hello", "Wave"], |_, _| None);
    project.exits(0, &["run"]);
    let resumed = "gap_analysis implement verify implement_fix verify learnings";
    assert_eq!(project.cycle(2).join(" "), resumed);
    let phases = project.phases();
    let skipped: Vec<String> = phases
        .iter()
        .filter(|it| it["status"] == "skipped")
        .map(|it| format!("{}:{}", it["stage"].as_str().unwrap(), it["cycle"]))
        .collect();
    assert_eq!(skipped, ["specify:2", "plan:2", "tasks:2"]);
    assert_eq!(project.features(), ["completed", "completed"]);
    assert_eq!(
        project.state()["failureCounts"]["say-hello"]["implFailures"],
        0
    );
}

#[test]
fn a_command_that_fails_outweighs_an_agent_that_says_passed() {
    let settings = json!({ "verifyCommand": "echo no such thing; exit 3",
        "limits": { "maxVerifyRetries": 0, "maxCycles": 1 } });
    let project = Project::with(settings, &["Say hello"], |_, _| None);
    let answer = project.exits(7, &["run"]);
    assert!(answer.err.contains("max_cycles_reached"), "{}", answer.err);
    let verify = &project.phases_of("verify", 1)[0]["verify"];
    assert_eq!(
        (&verify["passed"], &verify["exit"]),
        (&json!(false), &json!(3))
    );
    assert!(
        verify["failures"][0]
            .as_str()
            .unwrap()
            .contains("no such thing")
    );
    assert_eq!(project.features(), ["active"]);
    let report = project.json(&["report", "--json"]);
    assert_ne!(report["features"][0]["outcome"], "completed", "{report}");
}

#[test]
fn an_agent_that_says_failed_outweighs_a_command_that_passes() {
    let settings = json!({ "verifyCommand": "true",
        "limits": { "maxVerifyRetries": 0, "maxCycles": 1 } });
    let project = Project::with(settings, &["Say hello"], |_, name| {
        let failed = json!({ "delay": 0, "structured_output": { "passed": false,
            "buildSucceeded": true, "testsSucceeded": true, "summary": "it greets nobody",
            "failures": [{ "criterion": "greets", "description": "silence", "severity": "blocking" }] } });
        (name == "verify").then_some(failed)
    });
    project.exits(7, &["run"]);
    let verify = &project.phases_of("verify", 1)[0]["verify"];
    assert_eq!(
        (&verify["passed"], &verify["exit"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(verify["failures"], json!(["greets: silence"]));
    assert_eq!(project.features(), ["active"]);
}

#[test]
fn without_a_command_the_record_and_the_report_say_that_it_rests_on_a_word() {
    let project = Project::new(&good(&["Say hello"]));
    let answer = project.exits(0, &["run"]);
    assert!(answer.err.contains("no verify command"), "{}", answer.err);
    let verify = &project.phases_of("verify", 1)[0]["verify"];
    assert_eq!(
        (&verify["by"], &verify["passed"]),
        (&json!("word"), &json!(true))
    );
    let report = project.exits(0, &["report"]);
    assert!(
        report.out.contains("not verified by a command"),
        "{}",
        report.out
    );
}

#[test]
fn a_feature_that_cannot_be_planned_is_given_up_after_three_tries_and_the_next_goes_on() {
    let project = Project::with(
        json!({}),
        &["Say hello", "b", "c", "Wave"],
        |cycle, name| (cycle <= 3 && name == "plan").then(|| fails("junk.txt")),
    );
    // The manifest has the four titles; the first takes three cycles.
    let answer = project.exits(1, &["run"]);
    assert_eq!(project.cycle(1), ["gap_analysis", "specify", "learnings"]);
    assert_eq!(project.cycle(2), ["gap_analysis", "learnings"]);
    assert_eq!(project.cycle(3), ["gap_analysis", "learnings"]);
    assert_eq!(
        project.features(),
        ["skipped", "completed", "completed", "completed"]
    );
    let state = project.state();
    assert_eq!(
        state["failureCounts"]["say-hello"]["replanFailures"], 3,
        "{state}"
    );
    assert_eq!(state["featuresSkipped"], json!(["say-hello"]));
    // Closing a cycle whose agent failed asks no agent.
    assert_eq!(project.phases_of("learnings", 1)[0]["agent"], Value::Null);
    assert_eq!(
        project.phases_of("learnings", 3)[0]["cycleOutcome"],
        "skipped"
    );
    assert!(
        project
            .repo
            .read("specs/001-say-hello/spec.md")
            .contains("Say hello")
    );
    assert!(!project.was_committed("junk.txt"));
    assert!(project.is_kept("junk.txt"));
    assert!(!project.repo.path().join("junk.txt").exists());
    assert!(answer.err.contains("skipped"), "{}", answer.err);
}

#[test]
fn the_code_of_a_feature_that_is_given_up_goes_back_its_specs_stay() {
    let settings = json!({ "verifyCommand": "test ! -e src/f1-1.txt",
        "limits": { "maxVerifyRetries": 0 } });
    let replan = json!({ "delay": 0, "structured_output":
        { "decision": "REPLAN_FEATURE", "reason": "again" } });
    let project = Project::with(
        settings,
        &["Say hello", "b", "c", "Wave"],
        |cycle, name| match name {
            "gap_analysis" if cycle > 1 => Some(replan.clone()),
            "plan" if (2..=4).contains(&cycle) => Some(fails("junk.txt")),
            _ => None,
        },
    );
    // One failed verify and three failed plans: at the third failed cycle in a row it pauses.
    project.exits(1, &["run"]);
    assert!(project.repo.path().join("src/f1-1.txt").exists());
    project.exits(1, &["resume"]);
    assert_eq!(project.features()[0], "skipped");
    let before = project
        .repo
        .git(&["log", "--format=%H", "--grep=tasks:1", &project.branch()]);
    let code = |rev: &str| {
        project
            .repo
            .git(&["ls-tree", "-r", rev, "--", "README.md", "src"])
    };
    let closing = project.repo.git(&[
        "log",
        "--format=%H",
        "--grep=learnings:4",
        &project.branch(),
    ]);
    assert_eq!(
        code(&before),
        code(&closing),
        "as before its first implement"
    );
    let specs = project.repo.git(&[
        "ls-tree",
        "-r",
        "--name-only",
        &closing,
        "specs/001-say-hello",
    ]);
    assert!(
        specs.contains("plan.md") && specs.contains("tasks.md"),
        "{specs}"
    );
    assert!(
        project.is_kept("src/f1-1.txt"),
        "what went is an undo entry"
    );
}

#[test]
fn a_feature_that_cannot_even_be_specified_is_skipped_at_once() {
    let project = Project::with(json!({}), &["Say hello", "Wave"], |cycle, name| {
        (cycle == 1 && name == "specify").then(|| fails("junk.txt"))
    });
    project.exits(1, &["run"]);
    assert_eq!(project.cycle(1), ["gap_analysis", "learnings"]);
    assert_eq!(project.features(), ["skipped", "completed"]);
    assert!(project.checkpoints().contains(&"completion:0".to_owned()));
    assert!(!project.was_committed("junk.txt") && project.is_kept("junk.txt"));
}

#[test]
fn an_agent_that_can_specify_nothing_stops_the_run_instead_of_skipping_everything() {
    let features = ["a", "b", "c", "d", "e"];
    let project = Project::with(json!({}), &features, |_, name| {
        (name == "specify").then(|| fails("junk.txt"))
    });
    let answer = project.exits(1, &["run"]);
    assert!(
        answer.err.contains("consecutive_failures"),
        "{}",
        answer.err
    );
    assert_eq!(
        project.features(),
        ["skipped", "skipped", "skipped", "pending", "pending"]
    );
}

#[test]
fn what_a_failed_second_part_left_is_undone_and_the_first_part_stays() {
    let project = Project::with(json!({}), &["Say hello", "again"], |cycle, name| {
        let mut first = wrote("src/one.txt", "one\n");
        first["phases"] = json!({ "2": fails("src/two.txt") });
        (cycle == 1 && name == "implement").then_some(first)
    });
    project.exits(0, &["run"]);
    assert_eq!(
        project.cycle(1),
        ["gap_analysis", "specify", "plan", "tasks", "learnings"]
    );
    // The next cycle goes on with the second part alone.
    assert_eq!(
        project.cycle(2).join(" "),
        "gap_analysis implement verify learnings"
    );
    let parts: Vec<Value> = project
        .phases_of("implement", 2)
        .iter()
        .map(|it| it["taskPhase"].clone())
        .collect();
    assert_eq!(parts, [json!(2)]);
    assert!(project.was_committed("src/one.txt"));
    assert!(!project.was_committed("src/two.txt"));
    assert!(project.is_kept("src/two.txt"));
    let status = |it: &Value| (it["taskPhase"].clone(), it["status"].clone());
    let first: Vec<_> = project
        .phases_of("implement", 1)
        .iter()
        .map(status)
        .collect();
    assert_eq!(
        first,
        [(json!(1), json!("completed")), (json!(2), json!("failed"))]
    );
}

#[test]
fn gap_analysis_that_fails_twice_goes_on_with_what_is_there() {
    let settings = json!({ "verifyCommand": "test -e src/f2-fix.txt",
        "limits": { "maxVerifyRetries": 1 } });
    for times in [1, 2, 9] {
        let project = Project::with(settings.clone(), &["Say hello", "Wave"], |cycle, name| {
            (cycle == 2 && name == "gap_analysis").then(|| fails_times("junk.txt", times))
        });
        project.exits(0, &["run"]);
        let tried = project.phases_of("gap_analysis", 2);
        let failed = tried.iter().filter(|it| it["status"] == "failed").count() as u32;
        assert_eq!(failed, times.min(2), "{tried:?}");
        let with_agent = tried.last().unwrap()["agent"].is_string();
        assert_eq!(with_agent, times == 1);
        assert_eq!(tried.last().unwrap()["decision"], "RESUME_FEATURE");
        // The attempt that succeeded wrote it too.
        assert_eq!(project.was_committed("junk.txt"), times == 1);
    }
}

#[test]
fn a_stage_of_cycle_0_that_fails_twice_stops_the_run_and_resume_tries_again() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        (name == "constitution").then(|| fails_times("junk.txt", 3))
    });
    let answer = project.exits(1, &["run"]);
    assert!(
        answer.err.contains("paused (consecutive_failures)"),
        "{}",
        answer.err
    );
    assert_eq!(
        project.checkpoints().last().unwrap(),
        "clarification_synthesis:0"
    );
    assert!(!project.repo.path().join("junk.txt").exists());
    assert!(project.is_kept("junk.txt"));
    let report = project.exits(0, &["report"]);
    assert!(
        report.out.contains("consecutive_failures"),
        "{}",
        report.out
    );
    // The third failure, then it works.
    project.repo.write(
        ".dex/mock-config.json",
        script(&["Say hello"], |_, name| {
            (name == "constitution").then(|| fails_times("specs/constitution.md", 3))
        })
        .to_string(),
    );
    project.exits(0, &["resume"]);
    let tried = project.phases_of("constitution", 0);
    let states: Vec<&str> = tried
        .iter()
        .map(|it| it["status"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["failed", "failed", "failed", "completed"]);
}

#[test]
fn an_answer_that_cannot_be_used_is_asked_for_once_more_and_then_a_named_failure() {
    let bad = json!({ "delay": 0, "cost": 0.01, "structured_output": { "features": [] } });
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        (name == "manifest_extraction").then(|| bad.clone())
    });
    let answer = project.exits(1, &["run"]);
    assert!(answer.err.contains("malformed_answer"), "{}", answer.err);
    let live = project.live();
    let tried: Vec<_> = live["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["reason"].as_str().unwrap(), it["retried"] == true))
        .collect();
    // Each of the two attempts at the stage is one try and one bounded retry.
    assert_eq!(tried.len(), 4, "{tried:?}");
    assert!(tried.iter().all(|it| it.0 == "malformed_answer"));
    assert_eq!(tried.iter().filter(|it| !it.1).count(), 2);
}

#[test]
fn output_that_is_not_there_is_asked_for_once_more_with_what_was_missing() {
    // It tells the agent what was missing: an agent that listens then writes it.
    let project = Project::new(&good(&["Say hello"]));
    let agent = r#"
        prompt=$(cat)
        echo 0.01 > "$DEX_COST"
        case $DEX_STAGE in
        clarification_product)
            case $prompt in
            *"GOAL_product_domain.md was not written"*) echo hello > GOAL_product_domain.md ;;
            esac ;;
        *) exit 1 ;;
        esac"#;
    project.settings(&json!({ "agent": "command", "agentCommand": ["sh", "-c", agent] }));
    project.exits(1, &["run"]);
    assert_eq!(project.checkpoints(), ["clarification_product:0"]);
    let tried = project.phases_of("clarification_product", 0);
    assert_eq!(tried[0]["reason"], "missing_output");
    assert_eq!(tried[1]["status"], "completed");
    assert_eq!(project.record()["totalCostUsd"], 0.02);
}

#[test]
fn learnings_that_fail_are_written_without_an_agent() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        (name == "learnings").then(|| fails("junk.txt"))
    });
    project.exits(0, &["run"]);
    let tried = project.phases_of("learnings", 1);
    assert_eq!(tried.len(), 2);
    assert_eq!(
        (&tried[1]["agent"], &tried[1]["status"]),
        (&Value::Null, &json!("completed"))
    );
    assert_eq!(project.features(), ["completed"]);
    assert!(!project.was_committed("junk.txt"));
}

#[test]
fn each_failure_of_an_agent_is_named_in_record_and_report() {
    for failure in [
        "max_turns",
        "protocol_error",
        "needs_permission",
        "output_cap",
    ] {
        let project = Project::with(json!({}), &["Say hello"], |_, name| {
            let once = json!({ "failure": failure, "times": 1 });
            let mut stage = wrote("specs/constitution.md", "# Constitution\n");
            stage["fail"] = once;
            (name == "constitution").then_some(stage)
        });
        let answer = project.exits(0, &["run"]);
        assert!(answer.err.contains(failure), "{}", answer.err);
        let tried = project.phases_of("constitution", 0);
        assert_eq!(
            (&tried[0]["status"], &tried[0]["reason"]),
            (&json!("failed"), &json!(failure))
        );
        let report = project.json(&["report", "--json"]).to_string();
        assert!(report.contains(failure), "{report}");
    }
}

#[test]
fn the_half_ticked_tasks_of_an_earlier_plan_are_not_this_plans() {
    let ticked =
        "# Tasks\n\n## Phase 1: First\n\n- [x] T001 One\n\n## Phase 2: Second\n\n- [ ] T002 Two\n";
    let settings = json!({ "verifyCommand": "false", "limits": { "maxVerifyRetries": 0 } });
    let titles = ["Say hello", "Wave"];
    let project = Project::with(settings, &titles, |cycle, name| match (cycle, name) {
        (1, "implement") => Some(wrote("{specDir}/tasks.md", ticked)),
        (2, "gap_analysis") => Some(json!({ "delay": 0, "structured_output":
            { "decision": "REPLAN_FEATURE", "reason": "the plan does not hold" } })),
        (2, "tasks") => Some(json!({ "delay": 0, "cost": 0.01 })),
        _ => None,
    });
    project.dex(&["run", "--cycles", "2"]);
    let tried = project.phases_of("tasks", 2);
    assert_eq!(tried.len(), 2, "asked once more: {tried:?}");
    for attempt in &tried {
        assert_eq!(attempt["reason"], "missing_output", "{attempt}");
    }
    assert!(!project.checkpoints().contains(&"implement:2".to_owned()));
}

//! The scripted agent over real files.

mod support;

use std::time::{Duration, Instant};

use agents::scripted::{Script, Scripted};
use agents::{Agent as _, Ended, Event, Failure, Outcome, Request, Stop, Usage};
use serde_json::{Value, json};
use support::Place;

const REFERENCE: &str = include_str!("data/mock-config.json");

/// A script whose first cycle has these stages; the others do nothing.
fn script(stages: Value) -> Value {
    let mut all = json!({});
    for name in [
        "gap_analysis",
        "specify",
        "plan",
        "tasks",
        "implement",
        "verify",
        "learnings",
    ] {
        all[name] = stages.get(name).cloned().unwrap_or(json!({"delay": 0}));
    }
    json!({
        "prerequisites": {}, "clarification": {}, "completion": {},
        "dex_loop": {"cycles": [{"feature": {"id": "f-1", "title": "First"}, "stages": all}]},
    })
}

fn agent(script: &Value) -> Scripted {
    let script = Script::parse(&script.to_string()).expect("a good script");
    Scripted::new(script, 0.0)
}

fn play(agent: &Scripted, request: &Request) -> (Outcome, Vec<Event>) {
    let mut events = Vec::new();
    let outcome = agent.run(request, &mut |event| events.push(event), &Stop::new());
    (outcome, events)
}

/// Plays one stage with one descriptor.
fn one(place: &Place, stage: &str, descriptor: Value) -> Outcome {
    let agent = agent(&script(json!({stage: descriptor})));
    play(&agent, &place.request(stage, 1)).0
}

fn failure(outcome: &Outcome) -> (Failure, &str) {
    match &outcome.ended {
        Ended::Failed { failure, detail } => (*failure, detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_existing_dexs_script_plays_and_past_its_last_cycle_it_plays_again() {
    let place = Place::new();
    let script = Script::parse(REFERENCE).expect("a good script");
    assert_eq!(script.features(), ["Authentication"]);
    let agent = Scripted::new(script, 0.0);
    for cycle in [1, 3] {
        let (outcome, _) = play(&agent, &place.request("specify", cycle));
        assert_eq!(outcome.ended, Ended::Finished);
    }
    assert_eq!(
        place.read("specs/mock-c1-f-001/spec.md"),
        "# Spec — Authentication (cycle 1)\n\nMock placeholder spec.\n"
    );
    // The manifest's feature, not the script's, once the script is used again.
    assert!(place.file("specs/mock-c3-manifest-slug/spec.md").is_file());

    let mut request = place.request("clarification_synthesis", 0);
    request
        .values
        .insert("goalClarified".into(), "GOAL_clarified.md".into());
    let (outcome, _) = play(&agent, &request);
    assert_eq!(
        outcome.answer,
        Some(json!({"filesProduced": [], "goalClarifiedPath": "GOAL_clarified.md"}))
    );
    assert!(
        place
            .read("GOAL_clarified.md")
            .starts_with("# Clarified goal")
    );

    let (outcome, _) = play(&agent, &place.request("learnings", 1));
    assert_eq!(outcome.answer, Some(json!({"insights": []})));
    assert_eq!(
        place.read(".dex/learnings.md"),
        "- **mock**: c1 f-001 authentication implemented\n"
    );
}

#[test]
fn an_answer_that_is_not_scripted_is_the_empty_success_of_its_stage() {
    let place = Place::new();
    let agent = agent(&script(json!({})));
    let answer = |stage| play(&agent, &place.request(stage, 1)).0.answer;
    assert_eq!(
        answer("manifest_extraction"),
        Some(json!({"features": [{"id": 1, "title": "First", "description": "First"}]}))
    );
    assert_eq!(
        answer("gap_analysis"),
        Some(json!({"decision": "RESUME_FEATURE", "reason": "scripted"}))
    );
    assert_eq!(answer("verify").expect("an answer")["passed"], json!(true));
    assert_eq!(answer("plan"), None);
}

#[test]
fn a_scripted_answer_passes_as_it_is_and_questions_join_it() {
    let place = Place::new();
    let foreign = json!({"insights": [{"category": "security", "insight": "a", "context": "b"}]});
    let outcome = one(&place, "learnings", json!({"structured_output": foreign}));
    assert_eq!(outcome.answer, Some(foreign));
    let questions =
        json!([{"question": "Which?", "options": [{"label": "A", "recommended": true}]}]);
    let outcome = one(&place, "plan", json!({"questions": questions}));
    assert_eq!(outcome.answer, Some(json!({"questions": questions})));
}

#[test]
fn known_placeholders_are_filled_and_all_other_braces_are_source_code() {
    let place = Place::new();
    let mut request = place.request("plan", 1);
    request.values.insert("goalFile".into(), "GOAL.md".into());
    request
        .values
        .insert("sku".into(), "not a placeholder".into());
    let content = "{specDir} {cycle} {feature} {shortRunId} {goalFile} `${sku}` {goalClarified} \
        {} {{cycle}} {cy{cycle} {";
    let agent = agent(&script(
        json!({"plan": {"writes": [{"path": "out", "content": content}]}}),
    ));
    assert_eq!(play(&agent, &request).0.ended, Ended::Finished);
    assert_eq!(
        place.read("out"),
        "specs/001-thing 1 f-1 0198a0 GOAL.md `${sku}` {goalClarified} {} {1} {cy1 {"
    );
}

#[test]
fn every_kind_of_change_is_made_and_repeating_an_attempt_is_harmless() {
    let place = Place::new();
    place.write("edit.txt", "one two one");
    place.write("old/deep/file", "x");
    let descriptor = json!({
        "writes": [{"path": "a/b.txt", "content": "b"}],
        "appends": [{"path": "log", "line": "l{cycle}"}],
        "edit": [{"path": "edit.txt", "find": "two", "replace": "2"}],
        "delete": ["old"],
        "run": ["sh", "-c", "echo $0 > ran", "{feature}"],
    });
    for _ in 0..2 {
        assert_eq!(
            one(&place, "implement", descriptor.clone()).ended,
            Ended::Finished
        );
    }
    assert_eq!(place.read("a/b.txt"), "b");
    assert_eq!(place.read("log"), "l1\nl1\n");
    assert_eq!(place.read("edit.txt"), "one 2 one");
    assert!(!place.file("old").exists());
    assert_eq!(place.read("ran"), "f-1\n");
}

#[test]
fn nothing_is_changed_outside_the_directory_or_through_a_link() {
    let place = Place::new();
    std::os::unix::fs::symlink("../scratch", place.file("linked")).expect("a link");
    std::os::unix::fs::symlink("../scratch/target", place.file("link")).expect("a link");
    for path in ["linked/x", "link"] {
        let outcome = one(
            &place,
            "plan",
            json!({"writes": [{"path": path, "content": ""}]}),
        );
        assert_eq!(failure(&outcome).0, Failure::AgentError, "{path}");
    }
    let outcome = one(&place, "plan", json!({"delete": ["linked/x"]}));
    assert_eq!(failure(&outcome).0, Failure::AgentError);
    assert_eq!(
        std::fs::read_dir(place.scratch()).expect("reads").count(),
        0
    );
    // A value that leads out is caught when it is filled in.
    let agent = agent(&script(
        json!({"plan": {"writes": [{"path": "{specDir}/x", "content": ""}]}}),
    ));
    let mut request = place.request("plan", 1);
    for outside in ["../scratch", "/tmp", "a/../../scratch"] {
        request.spec_dir = Some(outside.into());
        let (outcome, _) = play(&agent, &request);
        assert!(failure(&outcome).1.contains("leads out"), "{outcome:?}");
    }
    request.spec_dir = None;
    let (outcome, _) = play(&agent, &request);
    assert!(failure(&outcome).1.contains("{specDir}"), "{outcome:?}");
}

#[test]
fn a_failure_is_scripted_by_reason_kind_and_number_of_attempts() {
    let place = Place::new();
    let outcome = one(&place, "plan", json!({"fail": "no idea"}));
    assert_eq!(failure(&outcome), (Failure::AgentError, "no idea"));
    for name in [
        "time_out",
        "idle",
        "max_turns",
        "cost_cap",
        "output_cap",
        "protocol_error",
    ] {
        let outcome = one(&place, "plan", json!({"fail": {"failure": name}}));
        assert_eq!(failure(&outcome).0.name(), name);
    }
    let write = json!([{"path": "half", "content": ""}]);
    let twice = json!({"writes": write, "fail": {"detail": "again", "times": 2}});
    let agent = agent(&script(json!({"plan": twice})));
    let request = place.request("plan", 1);
    let ends: Vec<bool> = (0..3)
        .map(|_| play(&agent, &request).0.ended == Ended::Finished)
        .collect();
    assert_eq!(ends, [false, false, true]);
    // A caller that was restarted knows the number of the attempt better.
    let mut request = place.request("plan", 1);
    request.values.insert("attempt".into(), "2".into());
    assert_eq!(failure(&play(&agent, &request).0).1, "again");
}

#[test]
fn a_failure_leaves_the_changes_behind_unless_it_comes_before_them() {
    let place = Place::new();
    let write = json!([{"path": "half", "content": ""}]);
    one(
        &place,
        "plan",
        json!({"writes": write, "fail": {"when": "before"}}),
    );
    assert!(!place.file("half").exists());
    one(&place, "plan", json!({"writes": write, "fail": {}}));
    assert!(place.file("half").exists());
}

#[test]
fn an_exit_without_a_final_event_is_a_protocol_error() {
    let place = Place::new();
    let outcome = one(&place, "plan", json!({"exit": 0}));
    assert_eq!(
        failure(&outcome),
        (Failure::Protocol, "exited with status 0 and no final event")
    );
}

#[test]
fn a_used_up_quota_is_said_once_with_the_time_it_comes_back() {
    let place = Place::new();
    let agent = agent(&script(json!({"plan": {"quota": {"afterMs": 60_000}}})));
    let request = place.request("plan", 1);
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let Ended::Quota {
        until_unix: Some(until),
    } = play(&agent, &request).0.ended
    else {
        panic!("no quota");
    };
    let until = u64::try_from(until).expect("positive");
    assert!((now + 59..now + 63).contains(&until), "{now} {until}");
    assert_eq!(play(&agent, &request).0.ended, Ended::Finished);
}

#[test]
fn the_cost_is_told_before_anything_is_changed_and_again_at_the_end() {
    let place = Place::new();
    let descriptor = json!({
        "cost": 0.42, "tokens": {"input": 10, "output": 5, "cached": 2}, "text": "done",
        "writes": [{"path": "x", "content": ""}],
    });
    let agent = agent(&script(json!({"plan": descriptor})));
    let (outcome, events) = play(&agent, &place.request("plan", 1));
    let usage = Usage {
        cost_micro_usd: Some(420_000),
        input_tokens: Some(10),
        output_tokens: Some(5),
        cached_tokens: Some(2),
    };
    assert_eq!((outcome.usage, outcome.text.as_str()), (usage, "done"));
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| match event {
            Event::Started { .. } => "started",
            Event::Usage(told) if *told == usage => "usage",
            Event::ToolCall { .. } => "call",
            Event::ToolResult { ok: true, .. } => "ok",
            Event::Text(_) => "text",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["started", "usage", "call", "ok", "text", "usage"]);
}

#[test]
fn a_cost_over_the_cap_is_a_named_failure() {
    let place = Place::new();
    let outcome = one(&place, "plan", json!({"cost": 5.01}));
    assert_eq!(
        failure(&outcome),
        (Failure::CostCap, "more than $5.00 spent")
    );
    assert_eq!(outcome.usage.cost_micro_usd, Some(5_010_000));
}

#[test]
fn a_hang_lasts_until_stopped_or_limited_even_without_delays() {
    let place = Place::new();
    let agent = agent(&script(json!({"plan": {"hang": true}})));
    let mut request = place.request("plan", 1);
    request.limits.idle = Duration::from_millis(100);
    assert_eq!(failure(&play(&agent, &request).0).0, Failure::Idle);
    request.limits.wall = Duration::from_millis(50);
    assert_eq!(failure(&play(&agent, &request).0).0, Failure::TimeOut);
    let stop = Stop::new();
    let stopper = stop.clone();
    let stopped = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        stopper.set();
    });
    let outcome = agent.run(&place.request("plan", 1), &mut |_| (), &stop);
    stopped.join().expect("stops");
    assert_eq!(outcome.ended, Ended::Stopped);
    assert_eq!(
        one(&place, "plan", json!({"hang": 30})).ended,
        Ended::Finished
    );
}

#[test]
fn a_delay_is_scaled_by_speed_and_ends_at_stop_with_nothing_changed() {
    let place = Place::new();
    let script = script(json!({
        "plan": {"delay": 100_000, "writes": [{"path": "x", "content": ""}]}
    }));
    let script = Script::parse(&script.to_string()).expect("a good script");
    let started = Instant::now();
    let request = place.request("plan", 1);
    let fast = Scripted::new(script.clone(), 0.001);
    assert_eq!(play(&fast, &request).0.ended, Ended::Finished);
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(100) && took < Duration::from_secs(2),
        "{took:?}"
    );

    std::fs::remove_file(place.file("x")).expect("removes");
    let stop = Stop::new();
    stop.set();
    let outcome = Scripted::new(script, 1.0).run(&request, &mut |_| (), &stop);
    assert_eq!(outcome.ended, Ended::Stopped);
    assert!(!place.file("x").exists());
}

#[test]
fn implement_works_in_its_first_phase_and_ticks_each_phases_tasks() {
    let place = Place::new();
    let tasks =
        "## Phase 2: A\n- [ ] T001 a\n## Phase 3: B\n- [ ] T002 b\n## Phase 4: C\n- [ ] T003 c\n";
    place.write("specs/001-thing/tasks.md", tasks);
    let agent = agent(&script(json!({"implement": {
        "cost": 1,
        "appends": [{"path": "log", "line": "whole"}],
        "phases": {"4": {"cost": 2, "appends": [{"path": "log", "line": "four"}]}},
    }})));
    let mut request = place.request("implement", 1);
    let mut costs = Vec::new();
    for phase in ["2", "3", "4"] {
        request.values.insert("phase".into(), phase.into());
        let (outcome, _) = play(&agent, &request);
        assert_eq!(outcome.ended, Ended::Finished);
        costs.extend(outcome.usage.cost_micro_usd);
        let open = place
            .read("specs/001-thing/tasks.md")
            .matches("[ ]")
            .count();
        assert_eq!(open, 4 - phase.parse::<usize>().expect("a number"));
    }
    assert_eq!(costs, [1_000_000, 0, 2_000_000]);
    assert_eq!(place.read("log"), "whole\nfour\n");
}

#[test]
fn a_failed_implement_ticks_nothing() {
    let place = Place::new();
    place.write("specs/001-thing/tasks.md", "- [ ] T001 a\n");
    one(&place, "implement", json!({"fail": "no"}));
    assert_eq!(place.read("specs/001-thing/tasks.md"), "- [ ] T001 a\n");
}

#[test]
fn a_prompt_that_is_no_stage_is_answered_by_the_first_matching_response() {
    let place = Place::new();
    let mut script = script(json!({}));
    script["oneShotResponses"] = json!([
        {"matchPrompt": "(", "isRegex": true, "finalText": "never"},
        {"matchPrompt": "resolve .*txt", "isRegex": true, "finalText": "resolved", "cost": 0.01,
         "editFile": {"path": "a.txt", "content": "merged\n"}},
        {"matchPrompt": "gives up", "finalText": "sorry", "finishedNormally": false},
    ]);
    let agent = agent(&script);
    let ask = |prompt: &str| {
        let mut request = place.request("resolve", 0);
        request.prompt = prompt.into();
        play(&agent, &request).0
    };
    let outcome = ask("please resolve a.txt");
    assert_eq!(
        (outcome.ended, outcome.text.as_str()),
        (Ended::Finished, "resolved")
    );
    assert_eq!(place.read("a.txt"), "merged\n");
    assert_eq!(failure(&ask("it gives up")).0, Failure::AgentError);
    let other = ask("something else");
    assert_eq!(other.ended, Ended::Finished);
    assert!(other.text.starts_with("(mock default"));
}

#[test]
fn a_script_that_cannot_be_used_says_where_and_what_is_accepted() {
    let problem = |edit: &dyn Fn(&mut Value)| {
        let mut good = script(json!({}));
        edit(&mut good);
        let text = serde_json::to_string_pretty(&good).expect("text");
        Script::parse(&text).expect_err("a bad script").to_string()
    };
    let plan = |value: Value| {
        move |it: &mut Value| it["dex_loop"]["cycles"][0]["stages"]["plan"] = value.clone()
    };
    let problems = [
        problem(&plan(json!({"delay": -1}))),
        problem(&plan(json!({"delay": "3 s"}))),
        problem(&plan(json!({"wirtes": []}))),
        problem(&plan(json!({"writes": [{"path": "../x", "content": ""}]}))),
        problem(&plan(json!({"writes": [{"path": "x"}]}))),
        problem(&plan(json!({"fail": {"failure": "boredom"}}))),
        problem(&plan(json!({"fail": 7}))),
        problem(&plan(json!({"hang": "long"}))),
        problem(&plan(json!({"run": [["a"], "b"]}))),
        problem(&|it| it["dex_loop"]["cycles"] = json!([])),
        problem(&|it| it["clarification"]["plna"] = json!({})),
        problem(&|it| {
            let stages = it["dex_loop"]["cycles"][0]["stages"].as_object_mut();
            stages.expect("stages").remove("verify");
        }),
        problem(&|it| {
            it.as_object_mut().expect("fields").remove("completion");
        }),
        Script::parse("{\n  \"prerequisites\": {},,\n}")
            .expect_err("bad")
            .to_string(),
        Script::parse("").expect_err("bad").to_string(),
    ];
    insta::assert_snapshot!(problems.join("\n"), @r#"
    line 20, dex_loop.cycles[0].stages.plan.delay: invalid value: integer `-1`, expected milliseconds, from 0 to 86400000
    line 20, dex_loop.cycles[0].stages.plan.delay: invalid type: string "3 s", expected milliseconds, from 0 to 86400000
    line 20, dex_loop.cycles[0].stages.plan.wirtes: unknown field `wirtes`, expected one of `delay`, `writes`, `appends`, `delete`, `edit`, `run`, `structured_output`, `questions`, `text`, `cost`, `tokens`, `fail`, `exit`, `hang`, `quota`, `phases`
    line 22, dex_loop.cycles[0].stages.plan.writes[0].path: invalid value: string "../x", expected a path inside the project, not absolute and without `..`
    line 23, dex_loop.cycles[0].stages.plan.writes[0]: missing field `content`
    line 22, dex_loop.cycles[0].stages.plan.fail: invalid value: string "boredom", expected one of agent_error, time_out, idle, max_turns, cost_cap, output_cap, protocol_error, agent_unavailable, needs_permission
    line 20, dex_loop.cycles[0].stages.plan.fail: invalid type: integer `7`, expected a reason, or an object with `failure`, `detail`, `times`, `when`
    line 20, dex_loop.cycles[0].stages.plan.hang: invalid type: string "long", expected true, or milliseconds from 0
    line 25, dex_loop.cycles[0].stages.plan.run: invalid value: sequence, expected [program, argument…], or a list of such lists
    line 7, dex_loop.cycles: invalid length 0, expected at least one cycle
    line 5, clarification: no stage is named `plna`, expected prerequisites, create_branch, clarification, clarification_product, clarification_technical, clarification_synthesis, constitution, manifest_extraction, completion, commit
    line 32, dex_loop.cycles[0].stages: missing stage `verify`, expected gap_analysis, specify, plan, tasks, implement, verify, learnings (one that does nothing: {"delay": 0})
    line 37: missing field `completion`
    line 2: key must be a string
    line 1: EOF while parsing a value
    "#);
}

//! Our Agent Client Protocol client against an agent that does what a script says.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agents::acp::Acp;
use agents::{Agent, Ended, Event, Failure, Outcome, Request, Stop, ToolSurface};
use serde_json::{Value, json};
use support::{Place, guard_executable, lives, pid_in};

struct Run {
    place: Place,
    outcome: Outcome,
    events: Vec<Event>,
    took: Duration,
}

fn agent(place: &Place, script: &Value) -> Acp {
    let program = guard_executable().with_file_name("acp-agent");
    assert!(
        program.is_file(),
        "`cargo build -p agents --examples` makes it"
    );
    let file = place.scratch().join("script.json");
    std::fs::write(&file, script.to_string()).expect("writes");
    Acp {
        argv: vec![
            program.into(),
            file.into(),
            place.scratch().join("record").into(),
        ],
        environment: BTreeMap::new(),
    }
}

fn run_with(script: Value, change: impl Fn(&mut Request)) -> Run {
    run_in(Place::new(), script, change, &Stop::new())
}

fn run_in(place: Place, script: Value, change: impl Fn(&mut Request), stop: &Stop) -> Run {
    let agent = agent(&place, &script);
    let mut request = place.request("implement", 1);
    change(&mut request);
    let started = Instant::now();
    let mut events = Vec::new();
    let outcome = agent.run(&request, &mut |event| events.push(event), stop);
    assert_eq!(outcome.survivors, [0; 0]);
    let took = started.elapsed();
    Run {
        place,
        outcome,
        events,
        took,
    }
}

/// One prompt of these steps.
fn steps(steps: Value) -> Value {
    json!({"prompts": [steps]})
}

fn run(of: Value) -> Run {
    run_with(steps(of), |_| ())
}

impl Run {
    fn failure(&self) -> (Failure, &str) {
        match &self.outcome.ended {
            Ended::Failed { failure, detail } => (*failure, detail),
            other => panic!("not a failure: {other:?}\n{:#?}", self.events),
        }
    }

    fn finished(&self) -> &Run {
        assert_eq!(self.outcome.ended, Ended::Finished, "{:#?}", self.events);
        self
    }

    /// What we sent, in order.
    fn sent(&self) -> Vec<Value> {
        let record = std::fs::read_to_string(self.place.scratch().join("record"));
        let record = record.unwrap_or_default();
        record
            .lines()
            .map(|it| serde_json::from_str(it).expect("JSON"))
            .collect()
    }

    fn methods(&self) -> Vec<String> {
        let sent = self.sent();
        let methods = sent.iter().filter_map(|it| it["method"].as_str());
        methods.map(str::to_owned).collect()
    }

    /// Our answers to what it asked.
    fn answers(&self) -> Vec<Value> {
        let mut sent = self.sent();
        sent.retain(|it| it.get("method").is_none());
        sent
    }

    fn denied(&self) -> usize {
        self.events
            .iter()
            .filter(|it| matches!(it, Event::Denied { .. }))
            .count()
    }
}

fn write(path: &str) -> Value {
    json!({"ask": "fs/write_text_file",
        "params": {"sessionId": "new-session", "path": path, "content": "new\n"}})
}

fn permission(kind: &str, path: &str) -> Value {
    json!({"ask": "session/request_permission", "params": {
        "sessionId": "new-session",
        "toolCall": {"toolCallId": format!("{kind} {path}"), "title": "t", "kind": kind, "locations": [{"path": path}]},
        "options": [
            {"optionId": "always", "name": "a", "kind": "allow_always"},
            {"optionId": "once", "name": "o", "kind": "allow_once"},
            {"optionId": "no", "name": "n", "kind": "reject_once"},
        ],
    }})
}

fn chosen(answer: &Value) -> &str {
    let outcome = &answer["result"]["outcome"];
    outcome["optionId"]
        .as_str()
        .or(outcome["outcome"].as_str())
        .unwrap_or("error")
}

#[test]
fn it_edits_through_us_and_says_what_it_did() {
    let run = run(json!([
        {"say": "I will change "}, {"say": "the greeting.\nNow"},
        {"ask": "fs/read_text_file", "params": {"path": "{dir}/none"}},
        write("{dir}/made/a.txt"),
        {"ask": "fs/read_text_file", "params": {"path": "{dir}/made/a.txt", "line": 1, "limit": 1}},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "edit", "title": "Edit",
            "status": "completed", "locations": [{"path": "{dir}/made/a.txt"}]}},
        {"update": {"sessionUpdate": "usage_update", "used": 1, "size": 2,
            "cost": {"amount": 0.25, "currency": "USD"}}},
        {"say": "done"},
        {"end": {"stopReason": "end_turn", "usage": {"inputTokens": 1000, "outputTokens": 50,
            "cachedReadTokens": 7, "totalTokens": 1057}}},
    ]));
    run.finished();
    assert_eq!(run.place.read("made/a.txt"), "new\n");
    assert_eq!(run.outcome.usage.cost_micro_usd, Some(250_000));
    assert_eq!(run.outcome.usage.input_tokens, Some(1000));
    assert_eq!(run.outcome.usage.cached_tokens, Some(7));
    assert_eq!(run.outcome.session.as_deref(), Some("new-session"));
    let answers = run.answers();
    assert_eq!(answers[0]["error"]["code"], -32002);
    assert_eq!(answers[2]["result"]["content"], "new\n");
    assert_eq!(
        run.methods(),
        ["initialize", "session/new", "session/prompt"]
    );
    let text = |it: &str| Event::Text(it.to_owned());
    let call = Event::ToolCall {
        name: "edit".into(),
        summary: "made/a.txt".into(),
    };
    for event in [
        text("I will change the greeting."),
        text("Now"),
        call,
        text("done"),
    ] {
        assert!(
            run.events.contains(&event),
            "{event:?} in {:#?}",
            run.events
        );
    }
    assert!(matches!(&run.events[0], Event::Started { version: Some(it), .. } if it == "1.2.3"));
    assert_eq!(run.events.last(), Some(&Event::Usage(run.outcome.usage)));
}

#[test]
fn what_we_send_is_what_the_protocol_says() {
    let run = run_with(
        json!({"answers": {"session/new": {
            "sessionId": "new-session",
            "modes": {"currentModeId": "yolo", "availableModes": [
                {"id": "yolo", "name": "y"}, {"id": "default", "name": "d"}]},
            "configOptions": [{"id": "m", "name": "Model", "category": "model", "type": "select",
                "currentValue": "small", "options": [
                    {"group": "g", "name": "g", "options": [{"value": "big", "name": "b"}]}]}],
        }}, "prompts": [[
            permission("edit", "{dir}/a.txt"), permission("edit", "/etc/passwd"),
            write("{dir}/a.txt"), {"ask": "fs/read_text_file", "params": {"path": "{dir}/a.txt"}},
            {"ask": "terminal/create", "params": {}, "id": 7}, {"say": "done"},
        ]]}),
        |request| request.model = Some("big".to_owned()),
    );
    run.finished();
    assert_eq!(run.outcome.model.as_deref(), Some("big"));
    let dir = run.place.work().display().to_string();
    let sent = run.sent().into_iter().map(|mut message| {
        if message["method"] == "session/prompt" {
            message["params"]["prompt"] = json!("…");
        }
        if message["method"] == "initialize" {
            message["params"]["clientInfo"]["version"] = json!("…");
        }
        message
            .to_string()
            .replace(&dir, "/work")
            .replace("\"jsonrpc\":\"2.0\",", "")
    });
    let sent: Vec<String> = sent.collect();
    insta::assert_snapshot!(sent.join("\n"), @r#"
    {"id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":false},"clientInfo":{"name":"dex","title":"dex","version":"…"}}}
    {"id":2,"method":"session/new","params":{"cwd":"/work","mcpServers":[]}}
    {"id":3,"method":"session/set_config_option","params":{"sessionId":"new-session","configId":"m","value":"big"}}
    {"id":4,"method":"session/set_mode","params":{"sessionId":"new-session","modeId":"default"}}
    {"id":5,"method":"session/prompt","params":{"sessionId":"new-session","prompt":"…"}}
    {"id":"ask-1","result":{"outcome":{"outcome":"selected","optionId":"once"}}}
    {"id":"ask-2","result":{"outcome":{"outcome":"selected","optionId":"no"}}}
    {"id":"ask-3","result":{}}
    {"id":"ask-4","result":{"content":"new\n"}}
    {"id":7,"error":{"code":-32601,"message":"there is no method terminal/create"}}
    "#);
    assert_eq!(run.answers()[4]["error"]["code"], -32601);
    assert_eq!(run.answers()[4]["id"], 7);
}

#[test]
fn h07_permission_is_given_once_inside_and_refused_elsewhere() {
    let script = || {
        steps(json!([
            permission("edit", "{dir}/a.txt"), permission("execute", "{dir}"),
            permission("edit", "{dir}/.git/config"), permission("edit", "{dir}/../beside"),
            permission("read", "/etc/shadow"), permission("switch_mode", "{dir}"),
            permission("read", "{dir}/a.txt"), {"say": "done"},
        ]))
    };
    let choices = |run: &Run| {
        let answers = run.answers();
        answers
            .iter()
            .map(|it| chosen(it).to_owned())
            .collect::<Vec<_>>()
    };
    let workspace = run_with(script(), |_| ());
    assert_eq!(
        choices(&workspace),
        ["once", "once", "no", "no", "no", "no", "once"]
    );
    assert_eq!(workspace.denied(), 4);
    let looking = run_with(script(), |request| request.tools = ToolSurface::ReadOnly);
    assert_eq!(
        choices(&looking),
        ["no", "no", "no", "no", "no", "no", "once"]
    );
    assert_eq!(looking.denied(), 6);
}

#[test]
fn c11_no_write_through_us_leaves_the_directory_or_reaches_git() {
    let place = Place::new();
    std::fs::create_dir(place.file(".git")).expect("a directory");
    std::os::unix::fs::symlink("../scratch", place.file("link")).expect("a link");
    let script = steps(json!([
        write("{dir}/../escaped"), write("{dir}/link/escaped"), write("/no-such-place/escaped"),
        write("{dir}/.git/config"), write("a.txt"), {"say": "done"},
    ]));
    let run = run_in(place, script, |_| (), &Stop::new());
    for answer in run.answers() {
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(run.denied(), 5);
    assert!(!run.place.scratch().join("escaped").exists());
    assert!(!run.place.file(".git/config").exists());
    let looking = run_with(
        steps(json!([write("{dir}/a.txt"), {"say": "x"}])),
        |request| {
            request.tools = ToolSurface::ReadOnly;
        },
    );
    assert_eq!(looking.answers()[0]["error"]["code"], -32602);
    assert!(!looking.place.file("a.txt").exists());
}

#[test]
fn h04_every_cap_ends_it_with_its_name() {
    let hang = json!([{"say": "x"}, {"hang": true}]);
    let deaf = json!([{"say": "x"}, {"hang": "deaf"}]);
    let wall = |request: &mut Request| request.limits.wall = Duration::from_millis(700);
    let run = run_with(steps(hang), wall);
    assert_eq!(run.failure().0, Failure::TimeOut);
    assert!(run.methods().contains(&"session/cancel".to_owned()));
    let run = run_with(steps(deaf.clone()), wall);
    assert_eq!(
        run.failure().0,
        Failure::TimeOut,
        "a cancel that is ignored"
    );
    assert!(run.took < Duration::from_secs(7), "{:?}", run.took);

    let run = run_with(steps(deaf), |request| {
        request.limits.idle = Duration::from_millis(500)
    });
    assert_eq!(run.failure().0, Failure::Idle);

    let run = run_with(steps(json!([{"flood": "word"}])), |request| {
        request.limits.output_bytes = 100_000;
    });
    assert_eq!(run.failure().0, Failure::OutputCap);

    let turn = json!({"update": {"sessionUpdate": "tool_call", "toolCallId": "1", "kind": "edit",
        "title": "t", "status": "completed"}});
    let turns = json!([turn, turn, turn, turn, {"hang": true}]);
    let run = run_with(steps(turns), |request| request.limits.turns = 3);
    assert_eq!(run.failure().0, Failure::MaxTurns);

    let spends = json!([{"update": {"sessionUpdate": "usage_update",
        "cost": {"amount": 9, "currency": "USD"}}}, {"hang": true}]);
    let run = run_with(steps(spends), |_| ());
    assert_eq!(run.failure().0, Failure::CostCap);
    assert_eq!(run.outcome.usage.cost_micro_usd, Some(9_000_000));
}

#[test]
fn g04_stop_cancels_and_leaves_nothing_behind() {
    let daemon = "(setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.1; done' \
        > /dev/null 2>&1 &)";
    let stop = Stop::new();
    let stopper = stop.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(800));
        stopper.set();
    });
    let script = steps(json!([{"run": daemon}, {"say": "x"}, {"hang": true}]));
    let run = run_in(Place::new(), script, |_| (), &stop);
    thread.join().expect("ends");
    assert_eq!(run.outcome.ended, Ended::Stopped);
    assert!(run.methods().contains(&"session/cancel".to_owned()));
    assert!(run.took < Duration::from_secs(5), "{:?}", run.took);
    assert!(!lives(pid_in(&run.place.file("pid"))));
}

#[test]
fn h04_an_end_that_is_no_end_is_a_protocol_error() {
    for of in [
        json!([{"say": "x"}, {"exit": 0}]),
        json!([{"bytes": [123, 34, 106]}, {"exit": 3}]),
        json!([{"say": "x"}, {"end": {"stopReason": "tired"}}]),
        json!([{"say": "x"}, {"end": {}}]),
    ] {
        assert_eq!(run(of.clone()).failure().0, Failure::Protocol, "{of}");
    }
    let nothing = run(json!([{"end": {"stopReason": "end_turn"}}]));
    assert_eq!(
        nothing.failure().0,
        Failure::AgentError,
        "no success without a deed"
    );
}

#[test]
fn h04_garbage_between_the_lines_is_passed_over() {
    let run = run(json!([
        {"line": "Warning: something"}, {"line": "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"},
        {"bytes": [255, 254, 0, 123, 10]}, {"line": "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}"},
        {"line": "{\"jsonrpc\":\"2.0\",\"id\":\"2\",\"error\":{\"code\":1,\"message\":\"x\"}}"},
        {"line": "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":[]}"},
        {"bytes": [123, 34, 109, 101, 116, 104, 111, 100, 34, 58, 34, 255, 34, 125, 10]},
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ok"}}},
    ]));
    run.finished();
    assert!(run.events.contains(&Event::Text("ok".to_owned())));
}

#[test]
fn without_an_account_it_is_unavailable_and_nobody_is_asked() {
    let error = json!({"error": {"code": -32000, "message": "Authentication required"}});
    let script = json!({"answers": {"session/new": error}});
    let run = run_with(script, |_| ());
    assert_eq!(run.failure().0, Failure::Unavailable);
    assert_eq!(run.methods(), ["initialize", "session/new"]);
    let run = run_with(
        json!({"answers": {"initialize": {"protocolVersion": 9}}}),
        |_| (),
    );
    assert_eq!(run.failure().0, Failure::Unavailable);
    let run = run_with(json!({"answers": {"initialize": "exit"}}), |_| ());
    assert_eq!(run.failure().0, Failure::Protocol);
}

#[test]
fn errors_of_the_model_are_told_apart() {
    let error = |message: &str| run(json!([{"error": {"code": -32603, "message": message}}]));
    assert_eq!(
        error("429 rate limit").outcome.ended,
        Ended::Quota { until_unix: None }
    );
    assert_eq!(
        error("529 overloaded").outcome.ended,
        Ended::Quota { until_unix: None }
    );
    assert_eq!(error("401 invalid key").failure().0, Failure::Unavailable);
    let leaked = error("it broke with API_TOKEN=abcd1234efgh");
    assert_eq!(leaked.failure().0, Failure::AgentError);
    assert!(
        !leaked.failure().1.contains("abcd1234efgh"),
        "{:?}",
        leaked.outcome
    );
}

#[test]
fn an_answer_is_read_from_the_last_message_and_asked_for_once_more() {
    let wanted = |request: &mut Request| {
        request.tools = ToolSurface::ReadOnly;
        request.schema = Some(json!({"type": "object", "required": ["passed"]}));
    };
    let answer = json!([{"say": "Fine.\n```json\n{\"passed\""}, {"say": ": true}\n```"}]);
    let run = run_with(json!({"prompts": [answer]}), wanted);
    assert_eq!(run.outcome.answer, Some(json!({"passed": true})));
    let forgetful = json!({"prompts": [[{"say": "Fine."}], answer]});
    let run = run_with(forgetful, wanted);
    run.finished();
    assert_eq!(run.outcome.answer, Some(json!({"passed": true})));
    let never = json!({"prompts": [[{"say": "Fine."}], [{"say": "Fine!"}]]});
    let run = run_with(never, wanted);
    assert_eq!(
        (&run.finished().outcome.answer, run.methods().len()),
        (&None, 4)
    );
}

#[test]
fn a_session_is_gone_on_with_and_its_cost_counted_once() {
    let cost = |amount: f64| {
        json!([{"say": "x"}, {"update": {"sessionUpdate": "usage_update",
            "cost": {"amount": amount, "currency": "USD"}}}])
    };
    let place = Place::new();
    let first = run_in(place, steps(cost(0.25)), |_| (), &Stop::new());
    assert_eq!(first.outcome.usage.cost_micro_usd, Some(250_000));
    let again = |request: &mut Request| request.session = Some("new-session".to_owned());
    let second = run_in(first.place, steps(cost(0.75)), again, &Stop::new());
    assert_eq!(second.outcome.usage.cost_micro_usd, Some(500_000));
    assert!(second.methods().contains(&"session/load".to_owned()));
    assert_eq!(second.outcome.session.as_deref(), Some("new-session"));

    let error = json!({"error": {"code": -32002, "message": "Resource not found"}});
    let script = json!({"answers": {"session/load": error}, "prompts": [[{"say": "x"}]]});
    let run = run_with(script, again);
    run.finished();
    let begun = |it: &Event| matches!(it, Event::Text(it) if it.contains("a new one is begun"));
    assert!(run.events.iter().any(begun), "{:#?}", run.events);
}

#[test]
fn a_model_that_is_not_offered_is_not_replaced_by_another() {
    let offer = json!({"sessionId": "s", "models": {"currentModelId": "small",
        "availableModels": [{"modelId": "small", "name": "s"}]}});
    let script = json!({"answers": {"session/new": offer}});
    let run = run_with(script, |request| request.model = Some("big".to_owned()));
    let (failure, detail) = run.failure();
    assert_eq!(failure, Failure::Unavailable);
    assert_eq!(detail, "it does not offer the model big; it has small");
}

#[test]
fn an_agent_that_is_not_installed_is_unavailable() {
    let agent = Acp::new(&["no-such-agent".into()]);
    let place = Place::new();
    let outcome = agent.run(&place.request("plan", 1), &mut |_| (), &Stop::new());
    assert!(matches!(
        outcome.ended,
        Ended::Failed {
            failure: Failure::Unavailable,
            ..
        }
    ));
}

#[test]
fn h04_a_quota_that_is_only_complained_of_is_told_while_it_is_tried_again() {
    let run = run(json!([
        {"run": "echo 'AI_APICallError: 429 rate limit' >&2; sleep 1.2; echo '429 again' >&2"},
        {"sleep": 300}, {"say": "there"},
    ]));
    run.finished();
    let retries = run
        .events
        .iter()
        .filter(|it| matches!(it, Event::Retry { .. }));
    assert_eq!(retries.count(), 2, "{:#?}", run.events);
}

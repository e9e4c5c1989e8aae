//! The stream and the verdict, on lines as the real CLI prints them.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::stream::{Caps, Parser};
use super::verdict;
use crate::process::End;
use crate::{Ended, Event, Failure, Limits, Request, ToolSurface};

const NOW: i64 = 1_796_078_400;

/// A request with generous bounds.
pub(crate) fn request() -> Request {
    Request {
        stage: "implement".to_owned(),
        cycle: 1,
        feature: None,
        prompt: "do it".to_owned(),
        dir: PathBuf::from("/work"),
        spec_dir: None,
        run_id: "run".to_owned(),
        tools: ToolSurface::Workspace,
        schema: None,
        model: None,
        session: None,
        limits: Limits {
            wall: Duration::from_secs(60),
            idle: Duration::from_secs(30),
            turns: 40,
            cost_micro_usd: 2_500_000,
            output_bytes: 1 << 24,
        },
        scratch: PathBuf::from("/scratch"),
        sandbox: crate::sandbox::Sandbox::none(),
        values: std::collections::BTreeMap::new(),
    }
}

fn parser() -> Parser {
    Parser::new(Caps {
        turns: 3,
        cost_micro_usd: 100_000,
    })
}

fn feed(parser: &mut Parser, lines: &[Value]) -> Vec<Event> {
    let lines = lines.iter().map(Value::to_string);
    lines.flat_map(|line| parser.line(&line)).collect()
}

fn init() -> Value {
    json!({"cwd": "/w", "subtype": "init", "tools": ["Read", "Bash", "Task"], "session_id": "s",
        "model": "claude-sonnet-4-5", "claude_code_version": "2.1.197", "type": "system"})
}

fn says(id: &str, block: Value) -> Value {
    json!({"type": "assistant", "parent_tool_use_id": null, "session_id": "s", "message": {
        "id": id, "model": "claude-sonnet-4-5", "content": [block],
        "usage": {"input_tokens": 1000, "cache_creation_input_tokens": 200,
            "cache_read_input_tokens": 300, "output_tokens": 1}}})
}

fn gives_up(kind: &str, text: &str) -> Value {
    json!({"type": "assistant", "error": kind, "parent_tool_use_id": null,
        "message": {"id": "x", "model": "<synthetic>", "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 0, "output_tokens": 0}}})
}

fn result(fields: Value) -> Value {
    let mut line = json!({"subtype": "success", "is_error": false, "result": "done",
        "session_id": "s", "total_cost_usd": 0.01, "modelUsage": {}, "usage": {"input_tokens": 5},
        "permission_denials": [], "terminal_reason": "completed"});
    let fields = fields.as_object().cloned().unwrap_or_default();
    for (name, value) in fields {
        line[name] = value;
    }
    line["type"] = json!("result");
    line
}

fn judge(parser: &Parser, end: End) -> Ended {
    verdict::ended(parser, end, "", &request().limits, NOW)
}

fn verdict_of(lines: &[Value], end: End) -> Ended {
    let mut parser = parser();
    feed(&mut parser, lines);
    judge(&parser, end)
}

fn failure_of(lines: &[Value], end: End) -> Failure {
    match verdict_of(lines, end) {
        Ended::Failed { failure, .. } => failure,
        other => panic!("not a failure: {other:?}"),
    }
}

#[test]
fn a_message_of_several_lines_counts_once() {
    let mut parser = parser();
    let events = feed(
        &mut parser,
        &[
            init(),
            says("m1", json!({"type": "text", "text": "I look."})),
            says(
                "m1",
                json!({"type": "tool_use", "id": "t1", "name": "Read",
                "input": {"file_path": "a.txt"}}),
            ),
            json!({"type": "user", "message": {"content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1\thello\n"}]}}),
            says("m2", json!({"type": "text", "text": "Done."})),
        ],
    );
    let seen = parser.seen();
    assert_eq!((seen.input_tokens, seen.cached_tokens), (2400, 600));
    assert!(parser.over().is_none());
    insta::assert_snapshot!(kinds(&events), @r#"
    Started { model: Some("claude-sonnet-4-5"), session: Some("s"), version: Some("2.1.197") }
    Text("I look.")
    Usage(1200 in)
    ToolCall { name: "Read", summary: "a.txt" }
    ToolResult { ok: true, summary: "1 hello" }
    Text("Done.")
    Usage(2400 in)
    "#);
}

fn kinds(events: &[Event]) -> String {
    let lines = events.iter().map(|event| match event {
        Event::Usage(usage) => format!("Usage({:?} in)", usage.input_tokens.unwrap_or(0)),
        other => format!("{other:?}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_denied_tool_is_told_once_however_often_the_cli_tells_it() {
    let mut parser = parser();
    let call = |id: &str, name: &str| {
        let input = json!({"command": "make\ntest"});
        says(
            id,
            json!({"type": "tool_use", "id": id, "name": name, "input": input}),
        )
    };
    let refused = |id: &str| {
        json!({"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": id, "is_error": true, "content": "no"}]}})
    };
    let events = feed(
        &mut parser,
        &[
            init(),
            call("t1", "Bash"),
            json!({"type": "system", "subtype": "permission_denied", "tool_name": "Bash",
                "tool_use_id": "t1"}),
            refused("t1"),
            call("t2", "WebFetch"),
            refused("t2"),
            call("t3", "Agent"),
            refused("t3"),
            result(
                json!({"permission_denials": [{"tool_name": "Bash", "tool_use_id": "t1"},
                {"tool_name": "Write", "tool_use_id": "t9"}]}),
            ),
        ],
    );
    let denied = events.iter().filter_map(|event| match event {
        Event::Denied { tool } => Some(tool.as_str()),
        _ => None,
    });
    assert_eq!(denied.collect::<Vec<_>>(), ["Bash", "WebFetch", "Write"]);
}

#[test]
fn retries_and_sub_agents_are_told() {
    let events = feed(
        &mut parser(),
        &[
            json!({"type": "system", "subtype": "api_retry", "attempt": 2, "error_status": 529,
                "error": "overloaded"}),
            json!({"type": "system", "subtype": "task_started", "description": "look around"}),
            json!({"type": "system", "subtype": "task_notification", "status": "completed",
                "summary": "look around"}),
        ],
    );
    insta::assert_snapshot!(kinds(&events), @r#"
    Retry { attempt: 2, why: "529 overloaded" }
    SubAgent { what: "look around" }
    SubAgent { what: "look around completed" }
    "#);
}

#[test]
fn the_exit_status_never_decides() {
    for status in [Some(0), Some(1), Some(143), None] {
        let end = End::Exited(status);
        assert_eq!(
            verdict_of(&[init(), result(json!({}))], end),
            Ended::Finished
        );
        assert_eq!(failure_of(&[init()], end), Failure::Protocol);
        let api = result(json!({"is_error": true, "api_error_status": 400, "result": "bad"}));
        assert_eq!(failure_of(&[init(), api], end), Failure::AgentError);
    }
}

#[test]
fn every_terminal_state_has_its_name() {
    let exited = End::Exited(Some(1));
    let failed = |fields: Value| failure_of(&[init(), result(fields)], exited);
    let error = |subtype: &str| failed(json!({"is_error": true, "subtype": subtype}));
    assert_eq!(error("error_max_turns"), Failure::MaxTurns);
    assert_eq!(error("error_max_budget_usd"), Failure::CostCap);
    assert_eq!(error("error_during_execution"), Failure::AgentError);
    assert_eq!(error("error_not_yet_invented"), Failure::AgentError);
    assert_eq!(
        failed(json!({"is_error": true, "api_error_status": 401})),
        Failure::Unavailable
    );
    let login = "Not logged in · Please run /login";
    let not_logged_in = [
        gives_up("authentication_failed", login),
        result(json!({"is_error": true, "result": login})),
    ];
    assert_eq!(failure_of(&not_logged_in, exited), Failure::Unavailable);
}

#[test]
fn g04_a_stop_is_a_stop_unless_the_work_was_done() {
    let aborted = result(json!({"subtype": "error_during_execution", "is_error": true}));
    assert_eq!(verdict_of(&[init(), aborted], End::Stopped), Ended::Stopped);
    assert_eq!(verdict_of(&[init()], End::Stopped), Ended::Stopped);
    assert_eq!(
        verdict_of(&[result(json!({}))], End::Stopped),
        Ended::Finished
    );
}

#[test]
fn h04_a_silent_endless_or_broken_stream_has_a_named_end() {
    assert_eq!(failure_of(&[init()], End::Idle), Failure::Idle);
    assert_eq!(failure_of(&[init()], End::TimeOut), Failure::TimeOut);
    assert_eq!(failure_of(&[init()], End::OutputCap), Failure::OutputCap);
    let mut torn = parser();
    torn.line("{\"type\":\"result\",\"subty");
    let Ended::Failed { failure, detail } = judge(&torn, End::Exited(Some(0))) else {
        panic!("a torn line is no result");
    };
    assert_eq!(failure, Failure::Protocol);
    assert!(detail.contains("{\"type\":\"result\",\"subty"), "{detail}");
}

#[test]
fn h04_an_agent_that_ignores_its_caps_is_ended_by_us() {
    let text = || json!({"type": "text", "text": "again"});
    let turns: Vec<_> = (0..4).map(|n| says(&format!("m{n}"), text())).collect();
    assert_eq!(failure_of(&turns, End::Asked), Failure::MaxTurns);

    let mut dear = says("m", text());
    dear["message"]["usage"]["input_tokens"] = json!(70_000);
    assert_eq!(
        failure_of(&[init(), dear.clone()], End::Asked),
        Failure::CostCap
    );
    // A sub-agent's spending counts, its turns do not.
    dear["parent_tool_use_id"] = json!("t1");
    assert_eq!(failure_of(&[init(), dear], End::Asked), Failure::CostCap);
    let mut turns = turns;
    turns[3]["parent_tool_use_id"] = json!("t1");
    assert_eq!(failure_of(&turns, End::Asked), Failure::Protocol);
}

#[test]
fn h07_a_question_nobody_can_answer_is_a_named_end() {
    let question = json!({"type": "control_request", "request": {"subtype": "can_use_tool"}});
    assert_eq!(
        failure_of(&[init(), question], End::Asked),
        Failure::NeedsPermission
    );
}

#[test]
fn a_used_up_quota_is_not_a_failure_and_says_until_when() {
    let exited = End::Exited(Some(1));
    let quota = |lines: &[Value]| match verdict_of(lines, exited) {
        Ended::Quota { until_unix } => until_unix.map(|it| it - NOW),
        other => panic!("not a quota: {other:?}"),
    };
    let text = "You've hit your session limit · resets 4:40am (UTC)";
    let limit = |status: Value, text: &str| {
        result(json!({"is_error": true, "api_error_status": status, "result": text}))
    };
    let event = json!({"type": "rate_limit_event", "rate_limit_info": {
        "status": "rejected", "resetsAt": NOW + 50, "rateLimitType": "five_hour"}});
    assert_eq!(quota(&[limit(json!(429), text)]), Some(21_600));
    assert_eq!(quota(&[event, limit(json!(429), text)]), Some(50));
    assert_eq!(quota(&[limit(json!(529), "Overloaded")]), None);
    let old = format!("Claude AI usage limit reached|{}", NOW + 60);
    assert_eq!(quota(&[limit(Value::Null, &old)]), Some(60));
    let absurd = json!({"type": "rate_limit_event", "rate_limit_info": {
        "status": "rejected", "resetsAt": i64::MAX}});
    assert_eq!(quota(&[absurd, limit(json!(429), "slow down")]), None);
    // What the model says about limits is only text.
    let said = result(json!({"result": "the usage limit reached|1796079000 message is fixed"}));
    assert_eq!(verdict_of(&[said], exited), Ended::Finished);
}

#[test]
fn the_answer_is_the_field_or_else_a_json_block() {
    let answer = |fields: Value| {
        let mut parser = parser();
        feed(&mut parser, &[result(fields)]);
        verdict::answer(&parser.terminal.expect("a result"))
    };
    let n = |n: u32| Some(json!({"n": n}));
    assert_eq!(
        answer(json!({"structured_output": {"n": 1}, "result": "{\"n\":9}"})),
        n(1)
    );
    assert_eq!(
        answer(json!({"result": "a ```json\n{\"n\":1}\n``` b ```\n{\"n\":2}\n```"})),
        n(2)
    );
    assert_eq!(answer(json!({"result": " {\"n\":3}\n"})), n(3));
    assert_eq!(answer(json!({"result": "no ```json\n{\"n\":"})), None);
    assert_eq!(answer(json!({"result": "3"})), None);
}

/// JSON with the field names the parser looks at, and anything in them.
fn any_line() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_<>|é🦀]{0,8}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "message",
        "content",
        "usage",
        "id",
        "name",
        "input",
        "model",
        "modelUsage",
        "text",
        "input_tokens",
        "output_tokens",
        "result",
        "errors",
        "permission_denials",
        "tools",
        "total_cost_usd",
        "rate_limit_info",
        "resetsAt",
        "status",
        "is_error",
        "tool_use_id",
    ]);
    let value = leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    });
    let kind = prop::sample::select(vec![
        "assistant",
        "user",
        "system",
        "result",
        "rate_limit_event",
        "control_request",
        "new",
    ]);
    let sub = prop::sample::select(vec!["init", "api_retry", "success", "task_started", "x"]);
    (value, kind, sub).prop_map(|(mut value, kind, sub)| {
        if let Some(object) = value.as_object_mut() {
            object.insert("type".to_owned(), json!(kind));
            object.insert("subtype".to_owned(), json!(sub));
        }
        value
    })
}

proptest! {
    #[test]
    fn no_line_whatever_panics(lines in prop::collection::vec(any_line(), 0..12), cut in 0.0..1.0) {
        let mut parser = parser();
        for line in &lines {
            let text = line.to_string();
            parser.line(&text);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
            let at = (text.len() as f64 * cut) as usize;
            let torn = String::from_utf8_lossy(&text.as_bytes()[..at]).into_owned();
            parser.line(&torn);
        }
        let _ = judge(&parser, End::Exited(None));
        let _ = parser.terminal.as_ref().map(verdict::answer);
    }

    #[test]
    fn no_bytes_whatever_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parser().line(&String::from_utf8_lossy(&bytes));
    }
}

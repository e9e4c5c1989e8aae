//! The stream and the verdict, on lines as the real CLI prints them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::stream::Parser;
use super::verdict;
use crate::claude::tests::request;
use crate::process::End;
use crate::{Ended, Event, Failure};

const NOW: i64 = 1_796_078_400;

fn parser(turns: u32) -> Parser {
    let mut request = request();
    request.limits.turns = turns;
    Parser::new(&request, Some("0.171.0".to_owned()))
}

fn feed(parser: &mut Parser, lines: &[Value]) -> Vec<Event> {
    let lines = lines.iter().map(Value::to_string);
    lines.flat_map(|line| parser.line(&line)).collect()
}

fn begun() -> Value {
    json!({"type": "thread.started", "thread_id": "t"})
}

fn item(kind: &str, fields: Value) -> Value {
    let mut item = json!({"id": "item_1", "type": kind});
    for (name, value) in fields.as_object().cloned().unwrap_or_default() {
        item[name] = value;
    }
    json!({"type": "item.completed", "item": item})
}

fn error(message: &str) -> Value {
    json!({"type": "error", "message": message})
}

fn failed(message: &str) -> Value {
    json!({"type": "turn.failed", "error": {"message": message}})
}

fn judge(parser: &Parser, end: End) -> Ended {
    verdict::ended(parser, end, "", &request().limits, NOW)
}

fn verdict_of(lines: &[Value], end: End) -> Ended {
    let mut parser = parser(40);
    feed(&mut parser, lines);
    judge(&parser, end)
}

fn failure_of(lines: &[Value], end: End) -> Failure {
    match verdict_of(lines, end) {
        Ended::Failed { failure, .. } => failure,
        other => panic!("not a failure: {other:?}"),
    }
}

fn words(events: &[Event]) -> String {
    let lines = events.iter().map(|it| format!("{it:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_kind_of_item_is_told() {
    let command = json!({"command": "/bin/bash -lc 'ls -la'", "aggregated_output": "a\nb",
        "exit_code": 2, "status": "failed"});
    let mut parser = parser(40);
    let events = feed(
        &mut parser,
        &[
            begun(),
            begun(),
            item("error", json!({"message": "Model metadata not found."})),
            json!({"type": "item.started", "item": {"id": "item_1", "type": "command_execution",
                "command": "/bin/bash -lc 'ls -la'"}}),
            item("command_execution", command),
            item(
                "file_change",
                json!({"changes": [{"path": "a.txt", "kind": "update"}], "status": "completed"}),
            ),
            item(
                "command_execution",
                json!({"command": "rm x", "status": "declined"}),
            ),
            item(
                "mcp_tool_call",
                json!({"server": "s", "tool": "t", "arguments": {"a": 1}}),
            ),
            item("something_new", json!({})),
            item("reasoning", json!({"text": "hm"})),
            item("agent_message", json!({"text": "Done."})),
            error("Reconnecting... 2/5 (stream closed)"),
            json!({"type": "not.yet.invented"}),
            json!({"type": "turn.completed", "usage": {"input_tokens": 100,
                "cached_input_tokens": 30, "output_tokens": 5}}),
        ],
    );
    insta::assert_snapshot!(words(&events), @r#"
    Started { model: None, session: Some("t"), version: Some("0.171.0") }
    Text("codex: Model metadata not found.")
    ToolCall { name: "shell", summary: "'ls -la'" }
    ToolResult { ok: false, summary: "a b" }
    ToolCall { name: "apply_patch", summary: "update a.txt" }
    ToolResult { ok: true, summary: "completed" }
    ToolCall { name: "shell", summary: "rm x" }
    Denied { tool: "shell" }
    ToolCall { name: "s.t", summary: "{\"a\":1}" }
    ToolResult { ok: true, summary: "" }
    ToolCall { name: "something_new", summary: "" }
    ToolResult { ok: true, summary: "" }
    Text("Done.")
    Retry { attempt: 2, why: "2/5 (stream closed)" }
    "#);
    assert_eq!(parser.text, "Done.");
    let total = parser.total.expect("a total");
    assert_eq!((total.input_tokens, total.cached_tokens), (70, 30));
    assert_eq!(judge(&parser, End::Exited(Some(1))), Ended::Finished);
}

/// As it is logged when it is asked to, cut to what is read.
fn reply() -> String {
    "2026-12-01T02:48:37.071368Z  INFO codex_otel.trace_safe: event.name=\"codex.sse_event\" \
     event.kind=response.completed input_token_count=1000 output_token_count=50 \
     cached_token_count=300 reasoning_token_count=10"
        .to_owned()
}

#[test]
fn a_turn_is_a_reply_and_without_the_log_a_call() {
    let mut logged = parser(2);
    let call = item(
        "command_execution",
        json!({"status": "completed", "exit_code": 0}),
    );
    for _ in 0..2 {
        logged.log(&reply()).expect("a line of the log");
        feed(&mut logged, &[call.clone(), call.clone()]);
    }
    assert_eq!(logged.over(), None, "two replies with two calls each");
    logged.log(&reply()).expect("a line of the log");
    assert_eq!(logged.over(), Some(Failure::MaxTurns));
    assert_eq!(
        (logged.seen.input_tokens, logged.seen.cached_tokens),
        (2100, 900)
    );

    let mut silent = parser(2);
    feed(&mut silent, std::slice::from_ref(&call));
    assert_eq!(silent.over(), None);
    feed(&mut silent, &[call]);
    assert_eq!(silent.over(), Some(Failure::MaxTurns));
    assert!(silent.log("2026-12-01 ERROR something else").is_none());
}

#[test]
fn a_call_the_stream_does_not_tell_was_refused() {
    let mut parser = parser(40);
    for tool in [
        "exec_command",
        "exec_command",
        "exec_command",
        "apply_patch",
        "update_plan",
    ] {
        let line = format!(
            "INFO codex_otel.trace_safe: event.name=\"codex.tool_call_received\" tool_name=\"{tool}\""
        );
        parser.log(&line).expect("a line of the log");
    }
    // One command ran, and one patch was given to the shell.
    feed(
        &mut parser,
        &[
            item("command_execution", json!({})),
            item("file_change", json!({})),
            item("file_change", json!({})),
        ],
    );
    let shell = "shell".to_owned();
    assert_eq!(parser.refused(), [Event::Denied { tool: shell }]);
}

#[test]
fn the_exit_status_never_decides() {
    for status in [Some(0), Some(1), Some(143), None] {
        let end = End::Exited(status);
        let done = json!({"type": "turn.completed", "usage": {}});
        assert_eq!(verdict_of(&[begun(), done], end), Ended::Finished);
        assert_eq!(failure_of(&[begun()], end), Failure::Protocol);
        let gave_up = failed("the model does not exist");
        assert_eq!(failure_of(&[begun(), gave_up], end), Failure::AgentError);
    }
}

#[test]
fn what_the_cli_says_has_its_name() {
    let exited = End::Exited(Some(1));
    for (message, failure) in [
        (
            "unexpected status 401 Unauthorized: no, url: x",
            Failure::Unavailable,
        ),
        (
            "unexpected status 403 Forbidden: no, url: x",
            Failure::Unavailable,
        ),
        (
            "Quota exceeded. Check your plan and billing details.",
            Failure::Unavailable,
        ),
        (
            "Connection failed: error sending request",
            Failure::Unavailable,
        ),
        (
            "Codex ran out of room in the model's context window.",
            Failure::AgentError,
        ),
        (
            "{\"error\": {\"message\": \"bad thing\"}}",
            Failure::AgentError,
        ),
    ] {
        assert_eq!(
            failure_of(&[begun(), failed(message)], exited),
            failure,
            "{message}"
        );
        // Said, and then nothing more.
        assert_eq!(
            failure_of(&[begun(), error(message)], exited),
            failure,
            "{message}"
        );
    }
    for (message, in_seconds) in [
        (
            "exceeded retry limit, last status: 429 Too Many Requests",
            None,
        ),
        (
            "Selected model is at capacity. Please try a different model.",
            None,
        ),
        (
            "We’re currently experiencing high demand, which may cause temporary errors.",
            None,
        ),
        (
            "rate limit exceeded: Rate limit reached. Please try again in 1.5s.",
            None,
        ),
        (
            "You’ve hit your usage limit. Try again at 4:40 AM (UTC).",
            Some(21_600),
        ),
    ] {
        let ended = verdict_of(&[begun(), failed(message)], exited);
        let until_unix = in_seconds.map(|it| NOW + it);
        assert_eq!(ended, Ended::Quota { until_unix }, "{message}");
    }
    // What the model says about limits is only text.
    let said = item(
        "agent_message",
        json!({"text": "You've hit your usage limit"}),
    );
    assert_eq!(failure_of(&[begun(), said], exited), Failure::Protocol);
}

#[test]
fn g04_a_stop_is_a_stop_unless_the_work_was_done() {
    let done = json!({"type": "turn.completed", "usage": {}});
    assert_eq!(verdict_of(&[begun()], End::Stopped), Ended::Stopped);
    assert_eq!(
        verdict_of(&[failed("interrupted")], End::Stopped),
        Ended::Stopped
    );
    assert_eq!(verdict_of(&[done], End::Stopped), Ended::Finished);
}

#[test]
fn h04_trying_again_for_ever_is_ended_and_a_success_in_between_counts() {
    let refused = "Reconnecting... 1/5 (unexpected status 401 Unauthorized: no)";
    let mut parser = parser(40);
    let message = item("agent_message", json!({"text": "x"}));
    feed(
        &mut parser,
        &[begun(), error(refused), error(refused), message],
    );
    feed(&mut parser, &[error(refused), error(refused)]);
    assert_eq!(parser.over(), None);
    feed(&mut parser, &[error(refused)]);
    assert_eq!(parser.over(), Some(Failure::Unavailable));

    let waits = error("Reconnecting... waiting for network (Connection failed)");
    let lines = vec![waits; 20];
    assert_eq!(failure_of(&lines, End::Asked), Failure::Unavailable);
}

/// JSON with the field names the parser looks at, and anything in them.
fn any_line() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z_./ é🦀]{0,12}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "id",
        "type",
        "text",
        "message",
        "command",
        "changes",
        "path",
        "kind",
        "status",
        "exit_code",
        "usage",
        "input_tokens",
        "cached_input_tokens",
        "error",
        "thread_id",
    ]);
    let value = leaf.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..6)
                .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    });
    let kind = prop::sample::select(vec![
        "thread.started",
        "item.started",
        "item.completed",
        "error",
        "turn.completed",
        "turn.failed",
        "new",
    ]);
    (value.clone(), value, kind).prop_map(|(item, usage, kind)| {
        json!({"type": kind, "item": item, "usage": usage, "error": {"message": "x"},
            "message": "Reconnecting... 1/5"})
    })
}

proptest! {
    #[test]
    fn no_line_whatever_panics(lines in prop::collection::vec(any_line(), 0..12), cut in 0usize..80) {
        let mut parser = parser(3);
        for line in &lines {
            let text = line.to_string();
            parser.line(&text);
            parser.line(&String::from_utf8_lossy(&text.as_bytes()[..cut.min(text.len())]));
            parser.log(&text);
        }
        let _ = judge(&parser, End::Exited(None));
    }

    #[test]
    fn no_bytes_whatever_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        parser(3).line(&text);
        parser(3).log(&format!("codex_otel.trace_safe event.kind=response.completed {text}"));
    }
}

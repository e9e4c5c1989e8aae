//! The fake model, driven over plain sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake_model::{FakeModel, Lane, Turn};

fn ask(server: &FakeModel, method: &str, path: &str, body: &Value) -> (u16, String) {
    let address = server.url().replace("http://", "");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a valid timeout");
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\nX-Claude-Code-Session-Id: s1\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.split_whitespace().nth(1).unwrap_or("0");
    (status.parse().expect("a status"), answer)
}

fn message(server: &FakeModel, history: usize, tools: &[&str]) -> (u16, String) {
    let mut messages = vec![json!({"role": "user", "content": "the task"})];
    for _ in 0..history {
        messages.push(json!({"role": "assistant", "content": [{"type": "text", "text": "x"}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "is_error": true, "content": "no"}]}));
    }
    let tools: Vec<_> = tools.iter().map(|name| json!({"name": name})).collect();
    let body = json!({"stream": true, "model": "m", "messages": messages, "tools": tools,
        "system": [{"type": "text", "text": "be good"}]});
    ask(server, "POST", "/v1/messages?beta=true", &body)
}

#[test]
fn the_turn_is_chosen_by_the_conversation_so_a_retry_gets_the_same_answer() {
    let server = FakeModel::start(vec![
        Turn::call("Read", json!({"file_path": "a"})),
        Turn::text("finished"),
    ]);
    for _ in 0..2 {
        let (status, answer) = message(&server, 0, &["Read"]);
        assert_eq!(status, 200);
        assert!(answer.contains("input_json_delta"), "{answer}");
    }
    assert!(message(&server, 1, &["Read"]).1.contains("finished"));

    let last = server.main_requests().pop().unwrap();
    assert_eq!(last.tools(), ["Read"]);
    assert_eq!(last.system(), "be good");
    assert_eq!(last.first_user_text(), "the task");
    assert_eq!(last.session(), Some("s1"));
    assert_eq!(last.tool_results(), [(true, "no".to_owned())]);
}

#[test]
fn side_calls_and_probes_use_up_no_turn() {
    let lane = Lane::new(vec![Turn::text("first"), Turn::text("second")])
        .in_order()
        .main_tool("Edit");
    let server = FakeModel::with_lanes(vec![lane]);
    assert!(message(&server, 0, &[]).1.contains("side call"));
    assert!(message(&server, 0, &["Read"]).1.contains("side call"));
    assert_eq!(ask(&server, "HEAD", "/", &Value::Null).0, 200);
    assert_eq!(ask(&server, "HEAD", "/api/hello", &Value::Null).0, 200);
    let counted = ask(&server, "POST", "/v1/messages/count_tokens", &json!({})).1;
    assert!(counted.contains("input_tokens"));
    assert!(message(&server, 0, &["Edit"]).1.contains("first"));
    assert!(message(&server, 0, &["Edit"]).1.contains("second"));
    assert_eq!(server.main_requests().len(), 2);
    assert_eq!(server.requests().len(), 7);
}

#[test]
fn errors_halves_and_failed_expectations_are_told_apart() {
    let lane = Lane::new(vec![
        Turn::error(529, "Overloaded").header("retry-after", "7"),
        Turn::half(Turn::text("never whole")),
        Turn::text("x").expect(|request| match request.tools().len() {
            2 => Ok(()),
            n => Err(format!("{n} tools")),
        }),
    ]);
    let server = FakeModel::with_lanes(vec![lane.in_order()]);
    let (status, answer) = message(&server, 0, &["Read"]);
    assert_eq!(status, 529);
    assert!(answer.contains("overloaded_error") && answer.contains("retry-after: 7"));
    let (status, answer) = message(&server, 0, &["Read"]);
    assert_eq!(status, 200);
    assert!(answer.contains("message_start") && !answer.contains("message_stop"));
    assert_eq!(message(&server, 0, &["Read"]).0, 400);
    assert_eq!(server.problems(), ["turn 2: 1 tools"]);
}

#[test]
fn a_lane_can_be_for_one_prompt_only() {
    let server = FakeModel::with_lanes(vec![
        Lane::new(vec![Turn::text("other")]).when_prompt_has("another task"),
        Lane::new(vec![Turn::text("this")]).when_prompt_has("the task"),
    ]);
    assert!(message(&server, 0, &["Read"]).1.contains("this"));
}

#[test]
fn dropping_the_server_ends_a_hanging_request() {
    let server = FakeModel::start(vec![Turn::hang()]);
    let address = server.url().replace("http://", "");
    let client = std::thread::spawn(move || {
        let body = json!({"messages": [], "tools": [{"name": "Read"}]}).to_string();
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let head = format!("POST /v1/messages HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    assert!(server.wait_for_main_requests(1, Duration::from_secs(10)));
    let started = Instant::now();
    drop(server);
    assert!(client.join().unwrap().is_empty());
    assert!(started.elapsed() < Duration::from_secs(5));
}

fn response(server: &FakeModel, input: &Value) -> (u16, String) {
    let tools = json!([{"type": "function", "name": "exec_command"},
        {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}]);
    let body = json!({"stream": true, "model": "m", "input": input, "tools": tools,
        "instructions": "be good"});
    ask(server, "POST", "/v1/responses", &body)
}

#[test]
fn the_responses_format_has_the_same_turns() {
    let server = FakeModel::start(vec![
        Turn::command("ls"),
        Turn::patch("*** Begin Patch"),
        Turn::usage_limit(1_796_100_000),
        Turn::text("finished"),
    ]);
    let user = json!({"type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "the task"}]});
    let called = json!([{"type": "reasoning"},
        {"type": "function_call", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "a.txt"}]);
    let mut input = vec![user];
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(response(&server, &json!(input)));
        input.extend(called.as_array().unwrap().iter().cloned());
    }
    assert!(answers[0].1.contains("function_call"), "{answers:?}");
    assert!(answers[1].1.contains("custom_tool_call"), "{answers:?}");
    assert_eq!(answers[2].0, 429);
    assert!(answers[2].1.contains("\"resets_at\":1796100000"));
    assert!(answers[3].1.contains("finished") && answers[3].1.contains("response.completed"));

    let last = server.main_requests().pop().unwrap();
    assert_eq!(last.tools(), ["apply_patch", "exec_command", "web_search"]);
    assert_eq!(last.system(), "be good");
    assert_eq!(last.first_user_text(), "the task");
    assert_eq!(last.tool_results().len(), 3);
}

//! The fake model as a program, to try a CLI by hand: `fake-model <script.json> [<port file>]`.
//!
//! The script is an array of turns: `{"text": …}`, `{"call": name, "input": {…}}`,
//! `{"error": status, "message": …, "headers": {…}}` or `{"hang": true}`. It prints its address,
//! then each request as one JSON line, until it is ended.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::fake_model::{FakeModel, Turn};

fn turn(value: &Value) -> Turn {
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    if let Some(status) = value["error"].as_u64() {
        let status = u16::try_from(status).expect("an HTTP status");
        let headers = value["headers"].as_object().cloned().unwrap_or_default();
        let turn = Turn::error(status, text("message"));
        return headers.iter().fold(turn, |turn, (name, value)| {
            turn.header(name, value.as_str().expect("a text"))
        });
    }
    if value["hang"] == true {
        return Turn::hang();
    }
    match value["call"].as_str() {
        Some(name) => Turn::call(name, value["input"].clone()),
        None => Turn::text(text("text")),
    }
}

#[expect(clippy::print_stdout, reason = "a program for people at a terminal")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let script = arguments.next().expect("a script file");
    let script = std::fs::read_to_string(script).expect("a readable script");
    let script: Vec<Value> = serde_json::from_str(&script).expect("a JSON array of turns");
    let server = FakeModel::start(script.iter().map(turn).collect());
    println!("{}", server.url());
    if let Some(file) = arguments.next() {
        std::fs::write(file, server.url()).expect("a writable file");
    }
    let mut shown = 0;
    loop {
        let requests = server.requests();
        for request in &requests[shown..] {
            let line = json!({
                "method": request.method, "path": request.path, "side": request.side,
                "headers": request.headers, "tools": request.tools(), "body": request.body,
            });
            println!("{line}");
        }
        shown = requests.len();
        std::thread::sleep(Duration::from_millis(100));
    }
}

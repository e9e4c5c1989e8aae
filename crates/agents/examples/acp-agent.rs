//! An agent for tests that speaks the Agent Client Protocol and does what a script says.
//!
//! `acp-agent <script.json> <record>`: every line received is appended to the record. The script
//! has `answers`, method → result or `{"error": …}` in place of the usual ones, and `prompts`, one
//! list of steps per prompt (`resumed` in their place once a session was loaded): `say`, `update`, `ask` (a request, with `params` and perhaps `id`),
//! `line` and `bytes` (as they are), `write` (by itself), `run`, `sleep` (ms), `flood`, `hang`
//! (until cancelled; `"deaf"` also then), `exit`, `error`, `end`. `{dir}` is the working directory.

use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, exit};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

struct Agent {
    lines: Receiver<Value>,
    prompts: std::vec::IntoIter<Value>,
    resumed: Option<Vec<Value>>,
    answers: Value,
    asked: u64,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let script = arguments.next().expect("a script");
    let record = arguments.next().expect("a record");
    let dir = std::env::current_dir().expect("a directory");
    let script = std::fs::read_to_string(script).expect("a readable script");
    let script = script.replace("{dir}", &dir.display().to_string());
    let script: Value = serde_json::from_str(&script).expect("JSON");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let file = OpenOptions::new().create(true).append(true).open(record);
        let mut file = file.expect("a writable record");
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            writeln!(file, "{line}").expect("recorded");
            let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
        }
    });
    let prompts = script["prompts"].as_array().cloned().unwrap_or_default();
    let mut agent = Agent {
        lines,
        prompts: prompts.into_iter(),
        resumed: script["resumed"].as_array().cloned(),
        answers: script["answers"].clone(),
        asked: 0,
    };
    while let Ok(message) = agent.lines.recv() {
        agent.serve(&message);
    }
}

fn send(message: &Value) {
    raw(format!("{message}\n").as_bytes());
}

fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        exit(1);
    }
}

impl Agent {
    fn serve(&mut self, message: &Value) {
        let (id, method) = (
            &message["id"],
            message["method"].as_str().unwrap_or_default(),
        );
        if method == "session/load"
            && let Some(prompts) = self.resumed.take()
        {
            self.prompts = prompts.into_iter();
        }
        let answer = match (self.answers.get(method), method) {
            (Some(answer), _) => answer.clone(),
            (None, "initialize") => json!({
                "protocolVersion": 1, "agentCapabilities": {"loadSession": true},
                "agentInfo": {"name": "fake", "version": "1.2.3"}, "authMethods": [],
            }),
            (None, "session/new") => json!({"sessionId": "new-session"}),
            (None, "session/prompt") => {
                let steps = self.prompts.next().unwrap_or_default();
                return self.play(id, &steps);
            }
            (None, _) => json!({}),
        };
        if id.is_null() || answer == "silence" {
            return;
        }
        if answer == "exit" {
            exit(0);
        }
        match answer.get("error") {
            Some(error) => send(&json!({"jsonrpc": "2.0", "id": id, "error": error})),
            None => send(&json!({"jsonrpc": "2.0", "id": id, "result": answer})),
        }
    }

    fn play(&mut self, id: &Value, steps: &Value) {
        for step in steps.as_array().into_iter().flatten() {
            let (name, value) = step
                .as_object()
                .and_then(|it| it.iter().next())
                .expect("a step");
            let text = value.as_str().unwrap_or_default();
            match name.as_str() {
                "say" => update(&json!({
                    "sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": text},
                })),
                "update" => update(value),
                "ask" => self.ask(step),
                "line" => raw(format!("{text}\n").as_bytes()),
                "bytes" => {
                    let bytes = value.as_array().into_iter().flatten();
                    let bytes: Vec<u8> =
                        bytes.map(|it| it.as_u64().expect("a byte") as u8).collect();
                    raw(&bytes);
                }
                "write" => {
                    std::fs::write(text, step["content"].as_str().expect("text")).expect("writes")
                }
                "run" => {
                    Command::new("sh")
                        .args(["-c", text])
                        .status()
                        .expect("a shell");
                }
                "sleep" => std::thread::sleep(Duration::from_millis(value.as_u64().expect("ms"))),
                "flood" => loop {
                    raw(format!("{text}\n").as_bytes());
                },
                "hang" => {
                    if self.waits_for_cancel() && value != "deaf" {
                        return end(id, &json!({"stopReason": "cancelled"}));
                    }
                    std::thread::sleep(Duration::from_secs(60));
                }
                "exit" => exit(value.as_i64().expect("a status") as i32),
                "error" => return send(&json!({"jsonrpc": "2.0", "id": id, "error": value})),
                "end" => return end(id, value),
                other => panic!("no step {other}"),
            }
        }
        end(id, &json!({"stopReason": "end_turn"}));
    }

    /// Asks the client and waits for its answer.
    fn ask(&mut self, step: &Value) {
        self.asked += 1;
        let id = step
            .get("id")
            .cloned()
            .unwrap_or_else(|| json!(format!("ask-{}", self.asked)));
        let (method, params) = (&step["ask"], &step["params"]);
        send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        while let Ok(message) = self.lines.recv() {
            if message["id"] == id && message.get("method").is_none() {
                return;
            }
        }
    }

    fn waits_for_cancel(&self) -> bool {
        while let Ok(message) = self.lines.recv() {
            if message["method"] == "session/cancel" {
                return true;
            }
        }
        false
    }
}

fn update(update: &Value) {
    send(&json!({
        "jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": "new-session", "update": update},
    }));
}

fn end(id: &Value, result: &Value) {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

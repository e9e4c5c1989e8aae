//! Running the project's own verify command, outside the agent.

use std::path::Path;
use std::time::Duration;

use agents::Stop;
use agents::process::{self, End, Go, Line, Spec};
use serde_json::Map;

use crate::files::record::{Verify, VerifiedBy};

/// Bytes of output kept for the agent and the record.
const TAIL_BYTES: usize = 16 * 1024;

/// How the command ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    /// For the record; `passed` is the command's word alone.
    pub(super) verify: Verify,
    /// The end of its output, redacted.
    pub(super) output: String,
    /// We were asked to stop.
    pub(super) stopped: bool,
}

/// Runs the command through `sh -c`, because people write `cargo test && npm test`. It comes from
/// the user's own settings, never from the repository.
pub(super) fn run(
    command: &str,
    dir: &Path,
    scratch: &Path,
    wall: Duration,
    stop: &Stop,
) -> Ran {
    let mut tail = Tail::default();
    let spec = Spec {
        argv: vec!["sh".into(), "-c".into(), command.into()],
        dir: dir.to_owned(),
        env: std::collections::BTreeMap::new(),
        stdin: Vec::new(),
        wall,
        idle: None,
        output_bytes: 256 * 1024 * 1024,
        line_bytes: 16 * 1024,
        process_list: scratch.join("verify-processes"),
    };
    let finished = process::run(&spec, stop, &mut |line| {
        match line {
            Some(Line::Out(text) | Line::Err(text)) => tail.push(&text),
            None => {}
        }
        Go::On
    });
    let (exit, problem) = match finished {
        Ok(done) => match done.end {
            End::Exited(status) => (status, None),
            End::TimeOut => (None, Some("it did not end in time")),
            End::OutputCap => (None, Some("it wrote too much output")),
            End::Stopped => (None, Some("it was stopped")),
            End::Idle | End::Asked => (None, Some("it was ended")),
        },
        Err(_) => (None, Some("sh could not be started")),
    };
    if let Some(problem) = problem {
        tail.push(problem);
    }
    let passed = exit == Some(0);
    let output = agents::redact::redact(&tail.text);
    let mut failures = Vec::new();
    if !passed {
        failures.push(format!("{command} failed: {}", last_lines(&output, 5)));
    }
    let verify = Verify {
        command: Some(command.to_owned()),
        exit,
        by: VerifiedBy::Command,
        passed,
        failures,
        more: Map::new(),
    };
    Ran { verify, output, stopped: stop.is_set() }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
    let mut shown = lines[lines.len().saturating_sub(count)..].join(" / ");
    if shown.len() > 400 {
        let cut = shown.ceil_char_boundary(shown.len() - 400);
        shown.drain(..cut);
    }
    shown
}

/// The end of a stream.
#[derive(Default)]
struct Tail {
    text: String,
}

impl Tail {
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        // Cut rarely, so that a long output costs linear time.
        if self.text.len() > 2 * TAIL_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - TAIL_BYTES);
            self.text.drain(..cut);
        }
    }
}

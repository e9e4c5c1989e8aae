//! What an agent did, as JSON lines: normalised over back ends, redacted, bounded.
//!
//! A line is whole or not there: what a failed write left of one is truncated away at once, and
//! again when the file is next opened, so two records never fuse. Text is redacted as a stream,
//! because a private key may come as one event for each of its lines; other texts are redacted
//! by themselves. Nothing is synced: a transcript lost to a power cut costs no work.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::redact::{Redactor, redact};
use crate::{Event, Usage, text};

/// Longest text of a step in the file.
const STEP_BYTES: usize = 8 * 1024;
/// Longest text of a step in a run record, which is committed.
const RECORD_BYTES: usize = 400;
/// Steps remembered for the run record.
const REMEMBERED: usize = 500;
/// Kept free for the line that says the rest was dropped.
const DROPPED_BYTES: u64 = 256;
/// A longer line was not written by us.
const LINE_BYTES: u64 = 1 << 20;

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Position, from 1.
    pub seq: u64,
    /// Milliseconds since the attempt started.
    pub at_ms: u64,
    /// `started text tool_call tool_result usage sub_agent denied retry dropped`.
    pub kind: String,
    /// One bounded, redacted text.
    pub text: String,
    /// Tool name, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Whether it worked, where that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Step {
    fn new(kind: &str, said: &str) -> Step {
        Step {
            seq: 0,
            at_ms: 0,
            kind: kind.to_owned(),
            text: text::head(&redact(said), STEP_BYTES),
            tool: None,
            ok: None,
            more: Map::new(),
        }
    }

    fn of_tool(kind: &str, tool: &str, said: &str) -> Step {
        Step {
            tool: Some(text::head(&redact(tool), RECORD_BYTES)),
            ..Step::new(kind, said)
        }
    }

    /// What belongs into a run record: what was done and refused, not how it was said.
    fn is_worth_recording(&self) -> bool {
        let kinds = ["tool_call", "denied", "sub_agent", "retry", "dropped"];
        kinds.contains(&self.kind.as_str())
    }

    fn for_a_record(&self) -> Step {
        Step {
            text: text::head(&self.text, RECORD_BYTES),
            ..self.clone()
        }
    }
}

/// Writes steps to a file as they come, and keeps a bounded selection for the run record.
#[derive(Debug)]
pub struct Transcript {
    file: File,
    /// Bytes of whole lines in the file.
    size: u64,
    max_bytes: u64,
    seq: u64,
    at_ms: u64,
    said: Redactor,
    remembered: VecDeque<Step>,
    last_text: Option<Step>,
    /// The bound was reached and said.
    full: bool,
    error: Option<io::Error>,
}

impl Transcript {
    /// Opens (appends to) the file; `max_bytes` bounds it, after which one `dropped` line
    /// follows and nothing more is written.
    ///
    /// What follows the last line end is truncated away. Only the user can read the file.
    pub fn open(path: &Path, max_bytes: u64) -> io::Result<Transcript> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let (size, last) = last_line(&mut file)?;
        if file.metadata()?.len() != size {
            file.set_len(size)?;
        }
        file.seek(SeekFrom::Start(size))?;
        let last = last.and_then(|line| serde_json::from_str::<Step>(&line).ok());
        Ok(Transcript {
            file,
            size,
            max_bytes,
            seq: last.as_ref().map_or(0, |step| step.seq),
            at_ms: 0,
            said: Redactor::default(),
            remembered: VecDeque::new(),
            last_text: None,
            full: last.is_some_and(|step| step.kind == "dropped"),
            error: None,
        })
    }

    /// Records an event. A disk error is remembered, never panics: see [`Transcript::error`].
    /// A torn last line (disk full) is truncated away (case F06).
    pub fn event(&mut self, event: &Event, at_ms: u64) {
        self.at_ms = at_ms;
        match event {
            Event::Text(said) => {
                let ready = self.said.push(&format!("{said}\n"));
                self.say(&ready);
            }
            // Comes between the lines of one text, which must stay one.
            Event::Usage(usage) => self.add(usage_step(usage)),
            Event::Started {
                model,
                session,
                version,
            } => {
                let mut step = Step::new("started", model.as_deref().unwrap_or(""));
                for (name, value) in [("session", session), ("version", version)] {
                    if let Some(value) = value {
                        step.more.insert(name.into(), json!(redact(value)));
                    }
                }
                self.after_text(step);
            }
            Event::ToolCall { name, summary } => {
                self.after_text(Step::of_tool("tool_call", name, summary));
            }
            Event::ToolResult { ok, summary } => self.after_text(Step {
                ok: Some(*ok),
                ..Step::new("tool_result", summary)
            }),
            Event::SubAgent { what } => self.after_text(Step::new("sub_agent", what)),
            Event::Denied { tool } => self.after_text(Step::of_tool("denied", tool, "")),
            Event::Retry { attempt, why } => {
                let mut step = Step::new("retry", why);
                step.more.insert("attempt".into(), json!(attempt));
                self.after_text(step);
            }
        }
    }

    /// The last steps worth showing in a run record (tool calls, denials, last text; at most
    /// `max`).
    pub fn steps(&self, max: usize) -> Vec<Step> {
        // Text still held back is the last there is; looking must not end it.
        let held = self.said.clone().finish();
        let held = (!held.trim().is_empty()).then(|| Step {
            seq: self.seq + 1,
            at_ms: self.at_ms,
            ..Step::new("text", held.trim_end())
        });
        let last_text = held.as_ref().or(self.last_text.as_ref());
        let others = max.saturating_sub(usize::from(last_text.is_some()));
        let skipped = self.remembered.len().saturating_sub(others);
        let mut steps: Vec<Step> = (self.remembered.iter().skip(skipped))
            .chain(last_text)
            .take(max)
            .map(Step::for_a_record)
            .collect();
        steps.sort_by_key(|step| step.seq);
        steps
    }

    /// The first disk error, if any. Nothing is written after it.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    fn after_text(&mut self, step: Step) {
        let rest = self.said.finish();
        self.say(&rest);
        self.add(step);
    }

    fn say(&mut self, ready: &str) {
        let ready = ready.strip_suffix('\n').unwrap_or(ready);
        if !ready.is_empty() {
            // Redacted already; once more changes nothing.
            self.add(Step::new("text", ready));
        }
    }

    fn add(&mut self, mut step: Step) {
        self.seq += 1;
        step.seq = self.seq;
        step.at_ms = self.at_ms;
        self.write(&step);
        if step.kind == "text" {
            self.last_text = Some(step);
        } else if step.is_worth_recording() {
            if self.remembered.len() == REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back(step);
        }
    }

    fn write(&mut self, step: &Step) {
        if self.full || self.error.is_some() {
            return;
        }
        let mut line = match serde_json::to_vec(step) {
            Ok(line) => line,
            Err(error) => {
                self.error = Some(error.into());
                return;
            }
        };
        line.push(b'\n');
        if self.size + line.len() as u64 + DROPPED_BYTES > self.max_bytes {
            self.full = true;
            let what = format!("nothing more is kept after {} bytes", self.max_bytes);
            let dropped = Step {
                seq: step.seq,
                at_ms: step.at_ms,
                ..Step::new("dropped", &what)
            };
            line = serde_json::to_vec(&dropped).unwrap_or_default();
            line.push(b'\n');
        }
        match self.file.write_all(&line) {
            Ok(()) => self.size += line.len() as u64,
            Err(error) => {
                // Back to whole lines. If that fails too, the next opening does it.
                let _ = self.file.set_len(self.size);
                self.error = Some(error);
            }
        }
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        let rest = self.said.finish();
        self.say(&rest);
    }
}

fn usage_step(usage: &Usage) -> Step {
    let mut step = Step::new("usage", "");
    for (name, value) in [
        ("costMicroUsd", usage.cost_micro_usd),
        ("inputTokens", usage.input_tokens),
        ("outputTokens", usage.output_tokens),
        ("cachedTokens", usage.cached_tokens),
    ] {
        if let Some(value) = value {
            step.more.insert(name.into(), json!(value));
        }
    }
    step
}

/// Where the last whole line ends, and that line if it is one of ours by its length.
fn last_line(file: &mut File) -> io::Result<(u64, Option<String>)> {
    let length = file.metadata()?.len();
    let mut end = length;
    // Back in steps: what follows the last line end is at most one torn line.
    let mut tail = Vec::new();
    loop {
        let from = end.saturating_sub(LINE_BYTES);
        file.seek(SeekFrom::Start(from))?;
        tail.clear();
        file.take(end - from).read_to_end(&mut tail)?;
        if let Some(last) = tail.iter().rposition(|byte| *byte == b'\n') {
            let start = tail[..last].iter().rposition(|byte| *byte == b'\n');
            let line = &tail[start.map_or(0, |it| it + 1)..last];
            let line = String::from_utf8_lossy(line).into_owned();
            return Ok((from + last as u64 + 1, Some(line)));
        }
        if from == 0 {
            return Ok((0, None));
        }
        end = from;
    }
}

/// Reads a transcript file; a torn or unreadable line is skipped and counted.
pub fn read(path: &Path) -> io::Result<(Vec<Step>, u64)> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut steps, mut skipped) = (Vec::new(), 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader
            .by_ref()
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)?
            == 0
        {
            return Ok((steps, skipped));
        }
        let whole = line.last() == Some(&b'\n');
        match serde_json::from_slice(&line).ok().filter(|_| whole) {
            Some(step) => steps.push(step),
            None => skipped += 1,
        }
        // The rest of a line that is too long is part of the same one.
        while !whole && line.len() as u64 == LINE_BYTES {
            line.clear();
            reader
                .by_ref()
                .take(LINE_BYTES)
                .read_until(b'\n', &mut line)?;
            if line.last().is_none_or(|byte| *byte == b'\n') {
                break;
            }
        }
    }
}

//! What an agent did, as JSON lines: normalised over back ends, redacted, bounded.

use std::path::Path;

use crate::Event;

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
    pub more: serde_json::Map<String, serde_json::Value>,
}

/// Writes steps to a file as they come, and keeps a bounded selection for the run record.
#[derive(Debug)]
pub struct Transcript {
    _private: (),
}

impl Transcript {
    /// Opens (appends to) the file; `max_bytes` bounds it, after which one `dropped` line
    /// follows and nothing more is written.
    pub fn open(_path: &Path, _max_bytes: u64) -> std::io::Result<Transcript> {
        todo!()
    }

    /// Records an event. A disk error is remembered, never panics: see [`Transcript::error`].
    /// A torn last line (disk full) is truncated away (case F06).
    pub fn event(&mut self, _event: &Event, _at_ms: u64) {
        todo!()
    }

    /// The last steps worth showing in a run record (tool calls, denials, last text; at most
    /// `max`).
    pub fn steps(&self, _max: usize) -> Vec<Step> {
        todo!()
    }

    /// The first disk error, if any.
    pub fn error(&self) -> Option<&std::io::Error> {
        todo!()
    }
}

/// Reads a transcript file; a torn or unreadable line is skipped and counted.
pub fn read(_path: &Path) -> std::io::Result<(Vec<Step>, u64)> {
    todo!()
}

//! What an agent tells while it works: `session/update` in, [`Event`]s and counts out. Pure.
//!
//! Nothing in an update is trusted: kinds and fields we do not know are passed over, a field of
//! another type than expected is as good as missing. Text comes in pieces of a few letters and is
//! handed on line by line.
//!
//! The protocol has no word for a turn, so turns are counted by what a turn looks like: the model
//! says or calls something, first or after a tool has answered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::permission::Kind;
use crate::claude::money::micro_usd;
use crate::text::head;
use crate::{Event, Usage};

/// Tool calls remembered at a time.
const CALLS: usize = 10_000;
/// Text of one prompt kept to read the answer from.
const TEXT_BYTES: usize = 2 << 20;
/// Text handed on at once when no line ends.
const PIECE_BYTES: usize = 8 << 10;
const SUMMARY_BYTES: usize = 300;

/// A tool call as far as it was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    name: String,
    title: String,
    pub(super) kind: Option<String>,
    pub(super) paths: Vec<PathBuf>,
    command: Option<String>,
    told: bool,
}

impl Call {
    /// Takes over what an update says.
    fn learn(&mut self, update: &Value) {
        let text = |name: &str| update[name].as_str().filter(|it| !it.is_empty());
        let name = text("name").or(update["_meta"]["claudeCode"]["toolName"].as_str());
        if let Some(name) = name {
            self.name = head(name, SUMMARY_BYTES);
        }
        if let Some(title) = text("title") {
            self.title = one_line(title);
        }
        if let Some(kind) = text("kind") {
            self.kind = Some(head(kind, SUMMARY_BYTES));
        }
        let input = &update["rawInput"];
        let command = input["command"].as_str().or(input["cmd"].as_str());
        if let Some(command) = command {
            self.command = Some(one_line(command));
        }
        for path in paths(update) {
            if self.paths.len() < 1_000 && !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::of(self.kind.as_deref().unwrap_or_default())
    }

    /// What it is called in a report.
    pub(super) fn label(&self) -> String {
        let named = [
            &self.name,
            self.kind.as_ref().unwrap_or(&self.name),
            &self.title,
        ];
        let named = named.into_iter().find(|it| !it.is_empty());
        named.map_or_else(|| "tool".to_owned(), Clone::clone)
    }

    fn summary(&self, dir: &Path) -> String {
        if let Some(command) = &self.command {
            return command.clone();
        }
        match self.paths.first() {
            Some(path) => one_line(&path.strip_prefix(dir).unwrap_or(path).to_string_lossy()),
            None => self.title.clone(),
        }
    }

    fn has_detail(&self) -> bool {
        self.command.is_some() || !self.paths.is_empty()
    }
}

/// Every path a tool call names: locations, diffs, and the usual fields of its input.
fn paths(update: &Value) -> Vec<PathBuf> {
    let list = |name: &str| update[name].as_array().into_iter().flatten();
    let input = &update["rawInput"];
    let named = [
        "file_path",
        "filePath",
        "filepath",
        "path",
        "absolute_path",
        "notebook_path",
        "dir_path",
    ];
    let of_input = named.iter().filter_map(|name| input[*name].as_str());
    let told = list("locations").chain(list("content"));
    let told = told.filter_map(|it| it["path"].as_str());
    told.chain(of_input).map(PathBuf::from).collect()
}

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Updates {
    dir: PathBuf,
    calls: BTreeMap<String, Call>,
    /// Text not handed on yet.
    piece: String,
    /// Text of this prompt.
    pub(super) text: String,
    message: Option<String>,
    awaits_model: bool,
    pub(super) turns: u32,
    /// Micro-dollars of the session, as told.
    pub(super) session_cost: Option<u64>,
    /// Micro-dollars of the session before this attempt.
    pub(super) cost_before: u64,
    tokens: [Option<u64>; 3],
}

impl Updates {
    pub(super) fn new(dir: &Path) -> Updates {
        Updates {
            dir: dir.to_owned(),
            ..Updates::default()
        }
    }

    /// A prompt goes out.
    pub(super) fn prompted(&mut self) {
        self.awaits_model = true;
        self.text.clear();
    }

    /// Takes one update.
    pub(super) fn update(&mut self, update: &Value) -> Vec<Event> {
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => self.says(update),
            Some("agent_thought_chunk") => {
                self.acts();
                Vec::new()
            }
            Some("tool_call") => {
                self.acts();
                self.call(update)
            }
            Some("tool_call_update") => self.call(update),
            Some("plan") => self.plan(update),
            Some("usage_update") => self.cost(update),
            _ => Vec::new(),
        }
    }

    /// The text that waits for its line to end.
    pub(super) fn flush(&mut self) -> Option<Event> {
        let piece = std::mem::take(&mut self.piece);
        let piece = piece.trim_end_matches(['\n', '\r']);
        (!piece.trim().is_empty()).then(|| Event::Text(piece.to_owned()))
    }

    /// A call a permission is asked for, with what the request itself says of it.
    pub(super) fn asked(&mut self, update: &Value) -> (Call, Vec<Event>) {
        let events = self.call(update);
        let id = update["toolCallId"].as_str().unwrap_or_default();
        let mut call = self.calls.get(id).cloned().unwrap_or_default();
        call.learn(update);
        (call, events)
    }

    /// Takes the tokens that the answer to a prompt reports: of that prompt.
    pub(super) fn prompt_ended(&mut self, result: &Value) {
        let usage = &result["usage"];
        let quota = &result["_meta"]["quota"]["token_count"];
        let number = |of: &Value, name: &str| of[name].as_u64();
        let fresh = number(usage, "inputTokens").or(number(quota, "input_tokens"));
        let written = number(usage, "cachedWriteTokens").unwrap_or(0);
        let told = [
            fresh.map(|it| it.saturating_add(written)),
            number(usage, "outputTokens").or(number(quota, "output_tokens")),
            number(usage, "cachedReadTokens"),
        ];
        for (sum, more) in self.tokens.iter_mut().zip(told) {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
    }

    /// What this attempt used. A session's cost is its running total.
    pub(super) fn usage(&self) -> Usage {
        let [input_tokens, output_tokens, cached_tokens] = self.tokens;
        let added = |total: u64| total.checked_sub(self.cost_before).unwrap_or(total);
        Usage {
            cost_micro_usd: self.session_cost.map(added),
            input_tokens,
            output_tokens,
            cached_tokens,
        }
    }

    fn acts(&mut self) {
        if std::mem::take(&mut self.awaits_model) {
            self.turns = self.turns.saturating_add(1);
        }
    }

    fn says(&mut self, update: &Value) -> Vec<Event> {
        let Some(text) = update["content"]["text"]
            .as_str()
            .filter(|it| !it.is_empty())
        else {
            return Vec::new();
        };
        self.acts();
        let mut events = Vec::new();
        let message = update["messageId"]
            .as_str()
            .map(|it| head(it, SUMMARY_BYTES));
        if message.is_some() && message != self.message {
            events.extend(self.flush());
            self.end_line();
            self.message = message;
        }
        keep(&mut self.text, text);
        self.piece.push_str(text);
        if let Some(end) = self.piece.rfind('\n') {
            let rest = self.piece.split_off(end + 1);
            events.extend(self.flush());
            self.piece = rest;
        }
        if self.piece.len() > PIECE_BYTES {
            events.extend(self.flush());
        }
        events
    }

    /// So that what comes next begins a line of the kept text.
    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    fn call(&mut self, update: &Value) -> Vec<Event> {
        let mut events: Vec<Event> = self.flush().into_iter().collect();
        self.end_line();
        let Some(id) = update["toolCallId"]
            .as_str()
            .map(|it| head(it, SUMMARY_BYTES))
        else {
            return events;
        };
        if !self.calls.contains_key(&id) && self.calls.len() >= CALLS {
            return events;
        }
        let call = self.calls.entry(id.clone()).or_default();
        call.learn(update);
        let ended = match update["status"].as_str() {
            Some("completed") => Some(true),
            Some("failed") => Some(false),
            _ => None,
        };
        if !call.told && (ended.is_some() || call.has_detail()) {
            call.told = true;
            events.push(Event::ToolCall {
                name: call.label(),
                summary: call.summary(&self.dir),
            });
        }
        if let Some(ok) = ended {
            self.calls.remove(&id);
            self.awaits_model = true;
            events.push(Event::ToolResult {
                ok,
                summary: result_of(update),
            });
        }
        events
    }

    fn plan(&mut self, update: &Value) -> Vec<Event> {
        let entries = update["entries"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let is = |status: &'static str| entries.iter().filter(move |it| it["status"] == status);
        let Some(current) = is("in_progress").next() else {
            return Vec::new();
        };
        let (done, all) = (is("completed").count(), entries.len());
        let what = current["content"].as_str().unwrap_or_default();
        vec![Event::ToolCall {
            name: "plan".to_owned(),
            summary: one_line(&format!("{done} of {all} done; {what}")),
        }]
    }

    fn cost(&mut self, update: &Value) -> Vec<Event> {
        let cost = &update["cost"];
        let told = cost["amount"].as_f64().and_then(micro_usd);
        // An agent without a price list reports 0, which is not what was paid.
        let told = told.filter(|it| *it > 0 && cost["currency"] == "USD");
        if told.is_none() || told <= self.session_cost {
            return Vec::new();
        }
        self.session_cost = told;
        vec![Event::Usage(self.usage())]
    }
}

/// Adds to a text and lets its beginning go at the bound.
fn keep(text: &mut String, more: &str) {
    text.push_str(more);
    if text.len() > TEXT_BYTES {
        let from = text.ceil_char_boundary(text.len() - TEXT_BYTES / 2);
        text.drain(..from);
    }
}

/// The first text of a tool's result.
fn result_of(update: &Value) -> String {
    let content = update["content"].as_array().into_iter().flatten();
    let mut texts = content.filter_map(|it| it["content"]["text"].as_str());
    let raw = &update["rawOutput"];
    let raw = raw
        .as_str()
        .or(raw["output"].as_str())
        .or(raw["error"].as_str());
    one_line(texts.next().or(raw).unwrap_or_default())
}

/// The text on one line, bounded.
pub(super) fn one_line(text: &str) -> String {
    let start = head(text, SUMMARY_BYTES * 4);
    let words: Vec<&str> = start.split_whitespace().collect();
    head(&words.join(" "), SUMMARY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chunk(text: &str) -> Value {
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
    }

    fn tool(status: &str) -> Value {
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": status})
    }

    #[test]
    fn pieces_of_text_become_lines() {
        let mut updates = Updates::new(Path::new("/w"));
        let mut events = Vec::new();
        for piece in ["Rea", "ding\nNow ", "wri", "ting\n\n", "and done"] {
            events.extend(updates.update(&chunk(piece)));
        }
        events.extend(updates.flush());
        let text = |it: &str| Event::Text(it.to_owned());
        assert_eq!(
            events,
            [text("Reading"), text("Now writing"), text("and done")]
        );
        assert_eq!(updates.text, "Reading\nNow writing\n\nand done");
        assert_eq!(updates.flush(), None);
    }

    #[test]
    fn a_call_is_told_once_when_there_is_something_to_tell() {
        let mut updates = Updates::new(Path::new("/w"));
        let start = json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "edit",
            "kind": "edit", "locations": [], "rawInput": {}});
        assert_eq!(updates.update(&start), []);
        let more = json!({"sessionUpdate": "tool_call_update", "toolCallId": "1",
            "locations": [{"path": "/w/a.txt"}]});
        let told = Event::ToolCall {
            name: "edit".into(),
            summary: "a.txt".into(),
        };
        assert_eq!(updates.update(&more), [told]);
        assert_eq!(updates.update(&more), []);
        let done = updates.update(&tool("completed"));
        assert_eq!(
            done,
            [Event::ToolResult {
                ok: true,
                summary: String::new()
            }]
        );
    }

    #[test]
    fn a_turn_is_what_the_model_does_between_answers_of_tools() {
        let mut updates = Updates::new(Path::new("/w"));
        updates.prompted();
        for update in [
            chunk("a"),
            chunk("b"),
            tool("pending"),
            tool("completed"),
            chunk("c"),
            tool("failed"),
            tool("failed"),
            chunk("d"),
            chunk("e"),
        ] {
            updates.update(&update);
        }
        assert_eq!(updates.turns, 3);
    }

    #[test]
    fn a_sessions_cost_becomes_this_attempts_and_nothing_is_not_zero() {
        let cost = |amount: f64, currency: &str| {
            json!({"sessionUpdate": "usage_update", "used": 1, "size": 2,
                "cost": {"amount": amount, "currency": currency}})
        };
        let mut updates = Updates::new(Path::new("/w"));
        for nothing in [
            cost(0.0, "USD"),
            cost(1.0, "EUR"),
            cost(-1.0, "USD"),
            json!({
            "sessionUpdate": "usage_update", "cost": "much"}),
        ] {
            assert_eq!(updates.update(&nothing), []);
        }
        assert_eq!(updates.usage().cost_micro_usd, None);
        updates.cost_before = 250_000;
        updates.update(&cost(0.75, "USD"));
        updates.update(&cost(0.5, "USD"));
        assert_eq!(updates.usage().cost_micro_usd, Some(500_000));
    }

    #[test]
    fn h04_nonsense_is_passed_over_and_memory_is_bounded() {
        let mut updates = Updates::new(Path::new("/w"));
        for update in [
            json!(null),
            json!([]),
            json!({"sessionUpdate": 7}),
            json!({"sessionUpdate": "plan",
            "entries": "x"}),
            json!({"sessionUpdate": "tool_call", "toolCallId": 7,
            "locations": {}, "rawInput": []}),
            json!({"sessionUpdate": "agent_message_chunk",
            "content": ["x"]}),
        ] {
            assert_eq!(updates.update(&update), []);
        }
        for n in 0..CALLS + 10 {
            updates.update(&json!({"sessionUpdate": "tool_call", "toolCallId": n.to_string()}));
        }
        assert_eq!(updates.calls.len(), CALLS);
        for _ in 0..40 {
            updates.update(&chunk(&"é".repeat(100_000)));
        }
        assert!(updates.text.len() <= TEXT_BYTES && updates.piece.len() <= PIECE_BYTES);
    }
}

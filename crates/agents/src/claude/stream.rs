//! The CLI's stream of JSON lines: lines in, [`Event`]s and a terminal state out. Pure.
//!
//! Nothing on a line is trusted: types and fields we do not know are passed over, half a line or
//! something that is not JSON is counted and kept for the error text, and a field of another type
//! than expected is as good as missing. Key order means nothing. The CLI prints one `assistant`
//! line per content block, all with the same message id and the same usage, so usage is kept per
//! id and a message counts once.
//!
//! It also holds the caps the CLI is asked to hold itself ([`Parser::over`]); they trip later than
//! the CLI's own, so that normally the CLI ends with a proper last line (case H04).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::money::{estimate_micro_usd, micro_usd};
use crate::marks::Spent;
use crate::text::{cut, one_line};
use crate::{Event, Failure, quota};

/// Ids remembered of one attempt; past that, messages are no longer told apart or counted.
const MAX_IDS: usize = 20_000;
const MAX_TEXT: usize = 64 * 1024;
const MAX_SUMMARY: usize = 300;

/// The bounds of an attempt that can be seen on the stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    pub(super) turns: u32,
    pub(super) cost_micro_usd: u64,
}

/// The last line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Terminal {
    pub(super) subtype: String,
    pub(super) is_error: bool,
    pub(super) reason: String,
    pub(super) api_status: Option<u64>,
    pub(super) text: String,
    pub(super) errors: Vec<String>,
    pub(super) structured: Option<Value>,
    /// The CLI's totals; none when it gave no cost.
    pub(super) total: Option<Spent>,
}

/// What the stream has said so far.
#[derive(Debug)]
pub(super) struct Parser {
    caps: Caps,
    pub(super) model: Option<String>,
    pub(super) session: Option<String>,
    /// The last text of the agent itself, or of the CLI in its place.
    pub(super) text: String,
    /// The kind of error the CLI last reported in the model's place.
    pub(super) problem: Option<String>,
    /// When a rejected rate limit is said to end.
    pub(super) resets_at: Option<i64>,
    pub(super) terminal: Option<Terminal>,
    /// The last line that was not JSON.
    pub(super) stray: Option<String>,
    started: bool,
    asked_permission: bool,
    offered: BTreeSet<String>,
    calls: BTreeMap<String, String>,
    denied: BTreeSet<String>,
    messages: BTreeMap<String, Spent>,
    /// The sum of `messages`.
    seen: Spent,
    turns: u32,
}

impl Parser {
    pub(super) fn new(caps: Caps) -> Parser {
        Parser {
            caps,
            model: None,
            session: None,
            text: String::new(),
            problem: None,
            resets_at: None,
            terminal: None,
            stray: None,
            started: false,
            asked_permission: false,
            offered: BTreeSet::new(),
            calls: BTreeMap::new(),
            denied: BTreeSet::new(),
            messages: BTreeMap::new(),
            seen: Spent::default(),
            turns: 0,
        }
    }

    /// Takes one line and returns what it tells.
    pub(super) fn line(&mut self, line: &str) -> Vec<Event> {
        let line = line.trim();
        if line.is_empty() {
            return Vec::new();
        }
        let Ok(value) = serde_json::from_str::<Value>(line) else {
            self.stray = Some(one_line(line, MAX_SUMMARY));
            return Vec::new();
        };
        match value["type"].as_str() {
            Some("system") => self.system(&value),
            Some("assistant") => self.assistant(&value),
            Some("user") => self.user(&value),
            Some("rate_limit_event") => {
                let info = &value["rate_limit_info"];
                if info["status"] == "rejected" {
                    self.resets_at = info["resetsAt"].as_i64();
                }
                Vec::new()
            }
            Some("control_request") => {
                self.asked_permission = true;
                Vec::new()
            }
            Some("result") => self.result(&value),
            _ => Vec::new(),
        }
    }

    /// A bound that was crossed although the CLI should have held it.
    pub(super) fn over(&self) -> Option<Failure> {
        if self.terminal.is_some() {
            None
        } else if self.asked_permission {
            Some(Failure::NeedsPermission)
        } else if self.turns > self.caps.turns {
            Some(Failure::MaxTurns)
        } else if self.seen().cost_micro_usd > self.caps.cost_micro_usd.saturating_mul(2) {
            // Our figure is an estimate, and the CLI's own check comes after the reply that
            // crosses the line: at twice the cap it is plain that the CLI does not check.
            Some(Failure::CostCap)
        } else {
            None
        }
    }

    /// Whether the session to go on with was not there, and nothing happened at all.
    pub(super) fn found_no_session(&self) -> bool {
        let last = self.terminal.as_ref();
        let failed = last.is_some_and(|it| it.subtype == "error_during_execution");
        failed && !self.started && self.messages.is_empty()
    }

    /// Tokens of every message seen, with their list price.
    pub(super) fn seen(&self) -> Spent {
        let model = self.model.as_deref().unwrap_or_default();
        Spent {
            cost_micro_usd: estimate_micro_usd(model, self.seen),
            ..self.seen
        }
    }

    fn system(&mut self, value: &Value) -> Vec<Event> {
        match value["subtype"].as_str() {
            Some("init") => self.init(value),
            Some("permission_denied") => {
                let tool = string(&value["tool_name"]).unwrap_or_else(|| "unknown".to_owned());
                self.deny(string(&value["tool_use_id"]), tool)
            }
            Some("api_retry") => {
                let attempt = value["attempt"].as_u64().unwrap_or(0);
                let why = match (value["error_status"].as_u64(), value["error"].as_str()) {
                    (Some(status), Some(error)) => format!("{status} {error}"),
                    (Some(status), None) => status.to_string(),
                    (None, Some(error)) => error.to_owned(),
                    (None, None) => "no answer".to_owned(),
                };
                vec![Event::Retry {
                    attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                    why: one_line(&why, MAX_SUMMARY),
                }]
            }
            Some("task_started") => sub_agent(&value["description"], ""),
            Some("task_notification") => {
                let status = value["status"].as_str().unwrap_or("ended");
                sub_agent(&value["summary"], status)
            }
            _ => Vec::new(),
        }
    }

    fn init(&mut self, value: &Value) -> Vec<Event> {
        if std::mem::replace(&mut self.started, true) {
            return Vec::new();
        }
        self.model = string(&value["model"]);
        self.session = string(&value["session_id"]);
        let tools = value["tools"].as_array().into_iter().flatten();
        self.offered = tools.filter_map(string).take(MAX_IDS).collect();
        vec![Event::Started {
            model: self.model.clone(),
            session: self.session.clone(),
            version: string(&value["claude_code_version"]),
        }]
    }

    fn assistant(&mut self, value: &Value) -> Vec<Event> {
        let message = &value["message"];
        let synthetic = message["model"] == "<synthetic>";
        let own = value["parent_tool_use_id"].is_null();
        if synthetic {
            self.problem = string(&value["error"]).or_else(|| self.problem.take());
        } else {
            self.problem = None;
        }
        let mut events = Vec::new();
        let mut written = 0;
        for block in message["content"].as_array().into_iter().flatten() {
            written += block.to_string().len() as u64 / 4;
            match block["type"].as_str() {
                Some("text") => {
                    let text = cut(block["text"].as_str().unwrap_or_default(), MAX_TEXT);
                    if own {
                        self.text = text.to_owned();
                    }
                    events.push(Event::Text(text.to_owned()));
                }
                Some("tool_use") => events.push(self.call(block)),
                _ => {}
            }
        }
        if !synthetic && self.count(message, own, written) {
            events.push(Event::Usage(self.seen().usage()));
        }
        events
    }

    fn call(&mut self, block: &Value) -> Event {
        let name = string(&block["name"]).unwrap_or_else(|| "unknown".to_owned());
        if let Some(id) = string(&block["id"])
            && self.calls.len() < MAX_IDS
        {
            self.calls.insert(id, name.clone());
        }
        let summary = summary(&block["input"]);
        Event::ToolCall { name, summary }
    }

    /// Counts a message's usage; true the first time its id is seen.
    fn count(&mut self, message: &Value, own: bool, written: u64) -> bool {
        let Some(id) = string(&message["id"]) else {
            return false;
        };
        let new = !self.messages.contains_key(&id);
        if new && self.messages.len() >= MAX_IDS {
            return false;
        }
        if new && own {
            self.turns = self.turns.saturating_add(1);
        }
        let usage = spent(&message["usage"]);
        let known = self.messages.entry(id).or_default();
        let before = *known;
        known.input_tokens = known.input_tokens.max(usage.input_tokens);
        known.cached_tokens = known.cached_tokens.max(usage.cached_tokens);
        // The number on these lines is the one from the start of the stream, nearly nothing.
        let written = known.output_tokens.saturating_add(written);
        known.output_tokens = usage.output_tokens.max(written);
        if let Some(more) = known.beyond(before) {
            self.seen = self.seen.plus(more);
        }
        new
    }

    fn user(&mut self, value: &Value) -> Vec<Event> {
        let mut events = Vec::new();
        for block in value["message"]["content"].as_array().into_iter().flatten() {
            if block["type"] != "tool_result" {
                continue;
            }
            let ok = block["is_error"] != true;
            let text = one_line(&text_of(&block["content"]), MAX_SUMMARY);
            events.push(Event::ToolResult { ok, summary: text });
            let id = string(&block["tool_use_id"]);
            let name = id.as_ref().and_then(|id| self.calls.get(id)).cloned();
            if let Some(name) = name.filter(|name| !ok && !self.is_offered(name)) {
                events.extend(self.deny(id, name));
            }
        }
        events
    }

    /// Whether the CLI offered this tool. `Task` goes by two names.
    fn is_offered(&self, name: &str) -> bool {
        let other = if name == "Agent" { "Task" } else { name };
        self.offered.is_empty() || self.offered.contains(name) || self.offered.contains(other)
    }

    fn deny(&mut self, id: Option<String>, tool: String) -> Vec<Event> {
        let known = id.is_some_and(|id| self.denied.len() < MAX_IDS && !self.denied.insert(id));
        if known {
            Vec::new()
        } else {
            vec![Event::Denied { tool }]
        }
    }

    fn result(&mut self, value: &Value) -> Vec<Event> {
        let mut events = Vec::new();
        for denial in value["permission_denials"].as_array().into_iter().flatten() {
            let tool = string(&denial["tool_name"]).unwrap_or_else(|| "unknown".to_owned());
            events.extend(self.deny(string(&denial["tool_use_id"]), tool));
        }
        self.session = string(&value["session_id"]).or(self.session.take());
        let errors = value["errors"].as_array().into_iter().flatten();
        let text = value["result"].as_str().unwrap_or_default();
        if !text.is_empty() {
            self.text = cut(text, MAX_TEXT).to_owned();
        }
        self.terminal = Some(Terminal {
            subtype: string(&value["subtype"]).unwrap_or_default(),
            is_error: value["is_error"] == true,
            reason: string(&value["terminal_reason"]).unwrap_or_default(),
            api_status: value["api_error_status"].as_u64(),
            text: cut(text, MAX_TEXT).to_owned(),
            errors: errors.filter_map(string).take(16).collect(),
            structured: Some(&value["structured_output"])
                .filter(|it| !it.is_null())
                .cloned(),
            total: total(value),
        });
        events
    }
}

/// The totals of a last line: `modelUsage` knows more than `usage` (side calls, sub-agents, and
/// the reply that crossed the budget), but may be empty.
fn total(value: &Value) -> Option<Spent> {
    let cost_micro_usd = value["total_cost_usd"].as_f64().and_then(micro_usd)?;
    let mut total = Spent::default();
    let models = value["modelUsage"].as_object();
    for usage in models.into_iter().flat_map(|it| it.values()) {
        let number = |name: &str| usage[name].as_u64().unwrap_or(0);
        let fresh = number("inputTokens").saturating_add(number("cacheCreationInputTokens"));
        total.input_tokens = total.input_tokens.saturating_add(fresh);
        total.cached_tokens = (total.cached_tokens).saturating_add(number("cacheReadInputTokens"));
        total.output_tokens = total.output_tokens.saturating_add(number("outputTokens"));
    }
    if total == Spent::default() {
        total = spent(&value["usage"]);
    }
    Some(Spent {
        cost_micro_usd,
        ..total
    })
}

/// The tokens of a `usage` object.
fn spent(usage: &Value) -> Spent {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    Spent {
        cost_micro_usd: 0,
        input_tokens: number("input_tokens").saturating_add(number("cache_creation_input_tokens")),
        cached_tokens: number("cache_read_input_tokens"),
        output_tokens: number("output_tokens"),
    }
}

fn sub_agent(what: &Value, state: &str) -> Vec<Event> {
    let what = format!("{} {state}", what.as_str().unwrap_or_default());
    vec![Event::SubAgent {
        what: one_line(&what, MAX_SUMMARY),
    }]
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(|it| cut(it, MAX_TEXT).to_owned())
}

/// Text of a string or of an array of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|it| it["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

/// The one field of a tool's input worth a line.
fn summary(input: &Value) -> String {
    let names = [
        "file_path",
        "notebook_path",
        "command",
        "pattern",
        "description",
        "path",
        "query",
        "url",
    ];
    let field = names.iter().find_map(|name| input[*name].as_str());
    match field {
        Some(text) => one_line(text, MAX_SUMMARY),
        None => one_line(&input.to_string(), MAX_SUMMARY),
    }
}

impl Terminal {
    /// Everything it says about an error, for people and for [`quota`].
    pub(super) fn complaint(&self) -> String {
        let errors = self.errors.join("; ");
        let parts = [self.text.as_str(), &errors, &self.subtype];
        let said = parts.into_iter().find(|it| !it.is_empty());
        one_line(said.unwrap_or("no reason given"), MAX_SUMMARY)
    }

    /// When the quota it complains about comes back.
    pub(super) fn quota_until(&self, resets_at: Option<i64>, now_unix: i64) -> Option<i64> {
        resets_at
            .and_then(|at| quota::believed(at, now_unix))
            .or_else(|| quota::until(&self.complaint(), now_unix))
    }
}

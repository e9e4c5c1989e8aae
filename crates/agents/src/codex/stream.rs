//! The CLI's stream of JSON lines: lines in, [`Event`]s and a terminal state out. Pure.
//!
//! Nothing on a line is trusted: types and fields we do not know are passed over, half a line or
//! something that is not JSON is kept for the error text, and a field of another type than
//! expected is as good as missing.
//!
//! It holds what the CLI has no limit for ([`Parser::over`]): turns, and trying again for ever. A
//! turn is a reply of the model. The stream does not tell them, and says nothing at all of a call
//! that was refused or failed to start, so the CLI is asked to log each reply to standard error
//! ([`Parser::log`]). Where it does not, every call counts as a turn, and the last reply as one
//! more: each reply calls a tool or is the last.

use std::collections::BTreeSet;

use serde_json::Value;

use super::verdict::{self, Kind};
use crate::marks::Spent;
use crate::text::{cut, one_line};
use crate::{Event, Failure, Request, Usage};

/// The log of the CLI that tells each reply, without a word of what was said in it.
pub(super) const LOG: &str = "codex_otel.trace_safe";

/// Names its shell goes by, as the log writes them.
const COMMANDS: [&str; 3] = [
    "tool_name=\"exec_command\"",
    "tool_name=\"shell_command\"",
    "tool_name=\"shell\"",
];
/// Refused calls that are told one by one.
const MAX_DENIED: u32 = 1_000;

/// Ids remembered of one attempt; past that, calls count as new ones.
const MAX_IDS: usize = 20_000;
const MAX_TEXT: usize = 64 * 1024;
const MAX_SUMMARY: usize = 300;
/// Retries in a row before we end it: more than it makes by itself, over both its transports.
const MAX_RETRIES: u32 = 20;
/// The same when it is told each time that the account is not accepted.
const MAX_REFUSALS: u32 = 3;

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Terminal {
    Completed,
    Failed(String),
}

/// What the stream has said so far.
#[derive(Debug)]
pub(super) struct Parser {
    max_turns: u32,
    model: Option<String>,
    version: Option<String>,
    pub(super) started: bool,
    pub(super) session: Option<String>,
    /// The agent's last message.
    pub(super) text: String,
    /// The last error that is no item; none once something happened after it.
    pub(super) problem: Option<String>,
    pub(super) terminal: Option<Terminal>,
    /// The thread's running total.
    pub(super) total: Option<Spent>,
    /// The last line that was not JSON.
    pub(super) stray: Option<String>,
    begun: BTreeSet<String>,
    calls: u32,
    replies: u32,
    /// Calls the model made, and those the stream told.
    asked: Calls,
    told: Calls,
    /// The sum of what the replies used.
    pub(super) seen: Spent,
    retries: u32,
    refusals: u32,
}

impl Parser {
    pub(super) fn new(request: &Request, version: Option<String>) -> Parser {
        Parser {
            max_turns: request.limits.turns.max(1),
            model: request.model.clone(),
            version,
            started: false,
            session: None,
            text: String::new(),
            problem: None,
            terminal: None,
            total: None,
            stray: None,
            begun: BTreeSet::new(),
            calls: 0,
            replies: 0,
            asked: Calls::default(),
            told: Calls::default(),
            seen: Spent::default(),
            retries: 0,
            refusals: 0,
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
            Some("thread.started") => self.thread_started(&value),
            Some("item.started") => self.item_started(&value["item"]),
            Some("item.completed") => self.item_completed(&value["item"]),
            Some("error") => self.error(&value["message"]),
            Some("turn.completed") => self.completed(&value["usage"]),
            Some("turn.failed") => {
                let message = value["error"]["message"].as_str().unwrap_or_default();
                self.terminal = Some(Terminal::Failed(readable(message)));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Takes a line of standard error. None when it is no line of the log that was asked for.
    pub(super) fn log(&mut self, line: &str) -> Option<Vec<Event>> {
        if !line.contains(LOG) {
            return None;
        }
        if line.contains("\"codex.tool_call_received\"") {
            if line.contains("tool_name=\"apply_patch\"") {
                self.asked.patches = self.asked.patches.saturating_add(1);
            } else if COMMANDS.iter().any(|it| line.contains(it)) {
                self.asked.commands = self.asked.commands.saturating_add(1);
            }
        }
        if !line.contains("event.kind=response.completed") {
            return Some(Vec::new());
        }
        let number = |name: &str| {
            let mut words = line.split_whitespace();
            let value = words.find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|it| it.parse::<u64>().ok())
        };
        let Some(input) = number("input_token_count") else {
            return Some(Vec::new());
        };
        let cached = number("cached_token_count").unwrap_or(0).min(input);
        self.replies = self.replies.saturating_add(1);
        self.seen = self.seen.plus(Spent {
            cost_micro_usd: 0,
            input_tokens: input - cached,
            cached_tokens: cached,
            output_tokens: number("output_token_count").unwrap_or(0),
        });
        Some(vec![Event::Usage(without_dollars(self.seen))])
    }

    /// Calls of which the stream said nothing, because the sandbox or the CLI refused them. To be
    /// asked when both streams are at their end.
    pub(super) fn refused(&self) -> Vec<Event> {
        // A patch can also be given to the shell; it is then told as a patch.
        let extra = self.told.patches.saturating_sub(self.asked.patches);
        let patches = self.asked.patches.saturating_sub(self.told.patches);
        let commands = self.asked.commands.saturating_sub(extra);
        let commands = commands.saturating_sub(self.told.commands);
        let denied = |tool: &str, count: u32| {
            let tool = tool.to_owned();
            std::iter::repeat_n(Event::Denied { tool }, count.min(MAX_DENIED) as usize)
        };
        denied("shell", commands)
            .chain(denied("apply_patch", patches))
            .collect()
    }

    /// A bound that was crossed, and that the CLI does not hold.
    pub(super) fn over(&self) -> Option<Failure> {
        if self.terminal.is_some() {
            None
        } else if self.replies > self.max_turns {
            Some(Failure::MaxTurns)
        } else if self.replies == 0 && self.calls >= self.max_turns {
            // Each call is answered, and what the model says to that is one reply more.
            Some(Failure::MaxTurns)
        } else if self.refusals >= MAX_REFUSALS || self.retries >= MAX_RETRIES {
            Some(Failure::Unavailable)
        } else {
            None
        }
    }

    fn thread_started(&mut self, value: &Value) -> Vec<Event> {
        if std::mem::replace(&mut self.started, true) {
            return Vec::new();
        }
        self.session = value["thread_id"]
            .as_str()
            .map(|it| cut(it, 200).to_owned());
        vec![Event::Started {
            model: self.model.clone(),
            session: self.session.clone(),
            version: self.version.clone(),
        }]
    }

    /// Something happened: it is not only trying again.
    fn progress(&mut self) {
        self.problem = None;
        self.retries = 0;
        self.refusals = 0;
    }

    fn item_started(&mut self, item: &Value) -> Vec<Event> {
        match Item::of(item) {
            Item::Call(name, summary) => {
                self.progress();
                self.told.count(item);
                let id = item["id"].as_str().unwrap_or_default();
                if self.begun.len() < MAX_IDS {
                    self.begun.insert(cut(id, 200).to_owned());
                }
                vec![Event::ToolCall { name, summary }]
            }
            Item::Message | Item::Warning | Item::Thought => Vec::new(),
        }
    }

    fn item_completed(&mut self, item: &Value) -> Vec<Event> {
        match Item::of(item) {
            Item::Call(name, summary) => {
                self.progress();
                self.calls = self.calls.saturating_add(1);
                let id = item["id"].as_str().unwrap_or_default();
                let mut events = Vec::new();
                if !self.begun.remove(cut(id, 200)) {
                    self.told.count(item);
                    let name = name.clone();
                    events.push(Event::ToolCall { name, summary });
                }
                events.extend(result(name, item));
                events
            }
            Item::Message => {
                self.progress();
                let text = cut(item["text"].as_str().unwrap_or_default(), MAX_TEXT);
                self.text = text.to_owned();
                vec![Event::Text(text.to_owned())]
            }
            Item::Warning => {
                let said = one_line(item["message"].as_str().unwrap_or_default(), MAX_SUMMARY);
                vec![Event::Text(format!("codex: {said}"))]
            }
            Item::Thought => Vec::new(),
        }
    }

    fn error(&mut self, message: &Value) -> Vec<Event> {
        let message = readable(message.as_str().unwrap_or_default());
        let refused = matches!(verdict::kind(&message), Kind::Account(_));
        self.problem = Some(message.clone());
        let Some(rest) = message.strip_prefix("Reconnecting...") else {
            return Vec::new();
        };
        self.retries = self.retries.saturating_add(1);
        self.refusals = match refused {
            true => self.refusals.saturating_add(1),
            false => 0,
        };
        let number = rest.trim_start().split('/').next().unwrap_or_default();
        vec![Event::Retry {
            attempt: number.parse().unwrap_or(self.retries),
            why: rest.trim().to_owned(),
        }]
    }

    fn completed(&mut self, usage: &Value) -> Vec<Event> {
        self.terminal = Some(Terminal::Completed);
        self.problem = None;
        self.total = total(usage);
        Vec::new()
    }
}

/// Calls of the tools that are always told when they are carried out.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    commands: u32,
    patches: u32,
}

impl Calls {
    fn count(&mut self, item: &Value) {
        match item["type"].as_str() {
            Some("command_execution") => self.commands = self.commands.saturating_add(1),
            Some("file_change") => self.patches = self.patches.saturating_add(1),
            _ => {}
        }
    }
}

/// What an item is to us.
enum Item {
    /// A tool: its name and a line about the call.
    Call(String, String),
    /// The agent speaks.
    Message,
    /// The CLI complains and goes on.
    Warning,
    /// Thinking and lists of things to do.
    Thought,
}

impl Item {
    fn of(item: &Value) -> Item {
        let word = |name: &str| item[name].as_str().unwrap_or_default();
        let call =
            |name: &str, summary: &str| Item::Call(name.to_owned(), one_line(summary, MAX_SUMMARY));
        match item["type"].as_str() {
            Some("agent_message") => Item::Message,
            Some("error") => Item::Warning,
            Some("reasoning" | "plan" | "todo_list") | None => Item::Thought,
            Some("command_execution") => call("shell", without_shell(word("command"))),
            Some("file_change") => call("apply_patch", &changes(&item["changes"])),
            Some("web_search") => call("web_search", word("query")),
            Some("mcp_tool_call") => {
                let name = format!("{}.{}", word("server"), word("tool"));
                call(cut(&name, 100), &item["arguments"].to_string())
            }
            Some(other) => call(cut(other, 100), word("tool")),
        }
    }
}

fn result(name: String, item: &Value) -> Vec<Event> {
    let status = item["status"].as_str().unwrap_or_default();
    if status == "declined" {
        return vec![Event::Denied { tool: name }];
    }
    let ok = status != "failed" && item["exit_code"].as_i64().unwrap_or(0) == 0;
    let said = item["aggregated_output"]
        .as_str()
        .or(item["error"]["message"].as_str());
    let said = said.unwrap_or(status);
    vec![Event::ToolResult {
        ok,
        summary: one_line(said, MAX_SUMMARY),
    }]
}

/// `ls` for `/bin/bash -lc ls`; a quoted command keeps its quotes.
fn without_shell(command: &str) -> &str {
    let mut words = command.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(shell), Some("-lc" | "-c"), Some(rest)) if shell.ends_with("sh") => rest,
        _ => command,
    }
}

fn changes(changes: &Value) -> String {
    let changes = changes.as_array().into_iter().flatten().take(20);
    let changes = changes.map(|it| {
        let kind = it["kind"].as_str().unwrap_or("change");
        format!("{kind} {}", it["path"].as_str().unwrap_or_default())
    });
    changes.collect::<Vec<_>>().join(", ")
}

/// Dollars are not reported.
pub(super) fn without_dollars(spent: Spent) -> Usage {
    Usage {
        cost_micro_usd: None,
        ..spent.usage()
    }
}

/// The message of an error; some are the service's JSON as it came.
fn readable(message: &str) -> String {
    let inner: Option<Value> = serde_json::from_str(message).ok();
    let inner = inner.and_then(|it| it["error"]["message"].as_str().map(str::to_owned));
    let message = one_line(inner.as_deref().unwrap_or(message), MAX_SUMMARY);
    match message.is_empty() {
        true => "no reason given".to_owned(),
        false => message,
    }
}

/// Its input counts what came from a cache; ours does not.
fn total(usage: &Value) -> Option<Spent> {
    let number = |name: &str| usage[name].as_u64().unwrap_or(0);
    let input = usage["input_tokens"].as_u64()?;
    let cached = number("cached_input_tokens").min(input);
    Some(Spent {
        cost_micro_usd: 0,
        input_tokens: input - cached,
        cached_tokens: cached,
        output_tokens: number("output_tokens"),
    })
}

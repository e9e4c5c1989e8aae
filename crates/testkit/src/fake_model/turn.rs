//! What the fake model says: turns and lanes, as values.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::Recorded;

/// Token numbers a turn reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// Input, not from a cache.
    pub input: u64,
    /// Written to the cache.
    pub cache_write: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Output.
    pub output: u64,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens {
            input: 1000,
            cache_write: 0,
            cache_read: 0,
            output: 50,
        }
    }
}

/// The header that says when a usage limit ends; Codex is told in the body instead.
pub(super) const RESETS_AT: &str = "anthropic-ratelimit-unified-reset";

#[derive(Debug, Clone)]
pub(super) enum Block {
    Text(String),
    Call { name: String, input: Value },
}

#[derive(Debug, Clone)]
pub(super) enum Reply {
    /// The turn's blocks.
    Blocks,
    /// An HTTP error.
    Error {
        status: u16,
        kind: String,
        message: String,
        headers: Vec<(String, String)>,
    },
    /// No answer at all.
    Hang,
    /// The first half of the events, then the connection closes.
    Half,
}

type Check = dyn Fn(&Recorded) -> Result<(), String> + Send + Sync;

pub(super) struct Expect(Box<Check>);

impl Expect {
    pub(super) fn check(&self, request: &Recorded) -> Result<(), String> {
        (self.0)(request)
    }
}

impl fmt::Debug for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expect")
    }
}

/// One reply of the model.
#[derive(Debug)]
pub struct Turn {
    pub(super) blocks: Vec<Block>,
    pub(super) reply: Reply,
    pub(super) tokens: Tokens,
    pub(super) expect: Option<Expect>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) delay: Duration,
}

impl Turn {
    fn new(reply: Reply) -> Turn {
        Turn {
            blocks: Vec::new(),
            reply,
            tokens: Tokens::default(),
            expect: None,
            headers: Vec::new(),
            delay: Duration::ZERO,
        }
    }

    /// Says this and ends its turn.
    pub fn text(text: impl Into<String>) -> Turn {
        let mut turn = Turn::new(Reply::Blocks);
        turn.blocks.push(Block::Text(text.into()));
        turn
    }

    /// Calls a tool.
    pub fn call(name: impl Into<String>, input: Value) -> Turn {
        Turn::new(Reply::Blocks).and_call(name, input)
    }

    /// Also calls this tool, in the same message.
    pub fn and_call(mut self, name: impl Into<String>, input: Value) -> Turn {
        let name = name.into();
        self.blocks.push(Block::Call { name, input });
        self
    }

    /// Answers with an HTTP error: 401, 429 and 529 get the error type the service uses.
    pub fn error(status: u16, message: impl Into<String>) -> Turn {
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        Turn::new(Reply::Error {
            status,
            kind: kind.to_owned(),
            message: message.into(),
            headers: Vec::new(),
        })
    }

    /// The account's usage limit is reached until then, as the service says it to a subscriber.
    pub fn usage_limit(until_unix: i64) -> Turn {
        Turn::error(429, "The usage limit has been reached")
            .header("anthropic-ratelimit-unified-status", "rejected")
            .header(RESETS_AT, &until_unix.to_string())
            .header(
                "anthropic-ratelimit-unified-representative-claim",
                "five_hour",
            )
    }

    /// Edits files with a patch, as Codex's models do.
    pub fn patch(patch: impl Into<String>) -> Turn {
        Turn::call(super::responses::PATCH_TOOL, json!({"input": patch.into()}))
    }

    /// Runs a command, as Codex's models do.
    pub fn command(command: impl Into<String>) -> Turn {
        Turn::call("exec_command", json!({"cmd": command.into()}))
    }

    /// Never answers.
    pub fn hang() -> Turn {
        Turn::new(Reply::Hang)
    }

    /// Sends the first half of the stream of `turn`, then closes.
    pub fn half(mut turn: Turn) -> Turn {
        turn.reply = Reply::Half;
        turn
    }

    /// With a response header (`retry-after`, `anthropic-ratelimit-unified-reset` …).
    pub fn header(mut self, name: &str, value: &str) -> Turn {
        let headers = match &mut self.reply {
            Reply::Error { headers, .. } => headers,
            Reply::Blocks | Reply::Hang | Reply::Half => &mut self.headers,
        };
        headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With these token numbers.
    pub fn tokens(mut self, tokens: Tokens) -> Turn {
        self.tokens = tokens;
        self
    }

    /// Answers only after a delay.
    pub fn after(mut self, delay: Duration) -> Turn {
        self.delay = delay;
        self
    }

    /// Checks the request first. What it finds is kept in [`super::FakeModel::problems`], and the
    /// request is answered with status 400, so the run under test fails too.
    pub fn expect(
        mut self,
        check: impl Fn(&Recorded) -> Result<(), String> + Send + Sync + 'static,
    ) -> Turn {
        self.expect = Some(Expect(Box::new(check)));
        self
    }

    /// The whole message, for a request that does not stream.
    pub(super) fn message(&self, id: usize, request: &Recorded) -> Value {
        let blocks = self.blocks.iter().enumerate();
        let content: Vec<_> = blocks.map(|(n, block)| whole_block(block, id, n)).collect();
        let mut usage = self.usage();
        usage["output_tokens"] = json!(self.tokens.output);
        json!({
            "id": format!("msg_fake_{id}"), "type": "message", "role": "assistant",
            "model": request.body["model"], "content": content,
            "stop_reason": self.stop_reason(), "stop_sequence": null, "usage": usage,
        })
    }

    fn stop_reason(&self) -> &'static str {
        let calls = self
            .blocks
            .iter()
            .any(|it| matches!(it, Block::Call { .. }));
        if calls { "tool_use" } else { "end_turn" }
    }

    fn usage(&self) -> Value {
        json!({
            "input_tokens": self.tokens.input,
            "cache_creation_input_tokens": self.tokens.cache_write,
            "cache_read_input_tokens": self.tokens.cache_read,
            // The service counts output only at the end of the stream.
            "output_tokens": 1,
        })
    }
}

fn whole_block(block: &Block, id: usize, index: usize) -> Value {
    match block {
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Call { name, input } => json!({
            "type": "tool_use", "id": format!("toolu_fake_{id}_{index}"),
            "name": name, "input": input,
        }),
    }
}

/// The server-sent events of a turn: name and data.
pub(super) fn stream_events(turn: &Turn, id: usize, model: &Value) -> Vec<(&'static str, Value)> {
    let message = json!({
        "id": format!("msg_fake_{id}"), "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": turn.usage(),
    });
    let mut events = vec![(
        "message_start",
        json!({"type": "message_start", "message": message}),
    )];
    for (index, block) in turn.blocks.iter().enumerate() {
        let (empty, delta) = match block {
            Block::Text(text) => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": text}),
            ),
            Block::Call { name, input } => (
                json!({
                    "type": "tool_use", "id": format!("toolu_fake_{id}_{index}"),
                    "name": name, "input": {},
                }),
                json!({"type": "input_json_delta", "partial_json": input.to_string()}),
            ),
        };
        for (name, field, value) in [
            ("content_block_start", "content_block", empty),
            ("content_block_delta", "delta", delta),
        ] {
            events.push((name, json!({"type": name, "index": index, field: value})));
        }
        let stop = json!({"type": "content_block_stop", "index": index});
        events.push(("content_block_stop", stop));
    }
    let end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": turn.stop_reason(), "stop_sequence": null},
        "usage": {"output_tokens": turn.tokens.output},
    });
    events.push(("message_delta", end));
    events.push(("message_stop", json!({"type": "message_stop"})));
    events
}

/// How a lane's turn is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// By the number of assistant messages already in the request.
    ByHistory,
    /// The next one for each request.
    InOrder,
}

/// A list of turns, and the requests it is for.
#[derive(Debug)]
pub struct Lane {
    pub(super) turns: Vec<Turn>,
    pub(super) pick: Pick,
    wanted: Option<String>,
    main_tool: Option<String>,
}

impl Lane {
    /// For every request that offers tools.
    pub fn new(turns: Vec<Turn>) -> Lane {
        Lane {
            turns,
            pick: Pick::ByHistory,
            wanted: None,
            main_tool: None,
        }
    }

    /// Only for conversations whose first user message contains this text.
    pub fn when_prompt_has(mut self, text: impl Into<String>) -> Lane {
        self.wanted = Some(text.into());
        self
    }

    /// Only for requests that offer this tool; others are side calls.
    pub fn main_tool(mut self, name: impl Into<String>) -> Lane {
        self.main_tool = Some(name.into());
        self
    }

    /// Each request gets the next turn.
    pub fn in_order(mut self) -> Lane {
        self.pick = Pick::InOrder;
        self
    }

    pub(super) fn takes(&self, request: &Recorded) -> bool {
        let tools = request.tools();
        let main = match &self.main_tool {
            Some(name) => tools.contains(name),
            None => !tools.is_empty(),
        };
        let wanted = self.wanted.as_ref();
        main && wanted.is_none_or(|text| request.first_user_text().contains(text))
    }
}

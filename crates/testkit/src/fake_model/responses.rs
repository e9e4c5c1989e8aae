//! The OpenAI Responses wire format: a turn as the stream Codex reads.
//!
//! A conversation is a list of items, not of messages: one reply of the model may be several
//! items. [`replies`] counts them back. Calls are function calls but for [`PATCH_TOOL`], whose
//! input is plain text where the request offers it as a custom tool.

use serde_json::{Value, json};

use super::Recorded;
use super::turn::{Block, Turn};

/// The tool that edits files; known models are offered it as a custom tool, others not at all.
pub(super) const PATCH_TOOL: &str = "apply_patch";

/// Names of the tools offered, sorted; a hosted tool has its type for a name.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.map(|tool| tool["name"].as_str().or(tool["type"].as_str()));
    let mut names: Vec<_> = names.flatten().map(str::to_owned).collect();
    names.sort();
    names
}

/// How many replies of the model the conversation already holds: runs of its own items, ended by
/// something that is not.
pub(super) fn replies(body: &Value) -> usize {
    let items = body["input"].as_array().into_iter().flatten();
    let mut replies = 0;
    let mut inside = false;
    for item in items {
        let own = is_the_models(item);
        if own && !inside {
            replies += 1;
        }
        inside = own;
    }
    replies
}

fn is_the_models(item: &Value) -> bool {
    match item["type"].as_str() {
        Some("message") => item["role"] == "assistant",
        Some(kind) => kind.ends_with("_call") || kind == "reasoning",
        None => false,
    }
}

/// Text of every user message, in order.
pub(super) fn user_texts(body: &Value) -> impl DoubleEndedIterator<Item = String> {
    texts(body, "user")
}

/// The same before the model's first reply, together.
pub(super) fn first_user_text(body: &Value) -> String {
    let items = body["input"].as_array().into_iter().flatten();
    let first = items.take_while(|it| !is_the_models(it));
    let first = first.filter(|it| it["type"] == "message" && it["role"] == "user");
    let texts: Vec<_> = first.map(|it| super::text_of(&it["content"])).collect();
    texts.join("\n")
}

/// Text of what the CLI tells the model about its work.
pub(super) fn system(body: &Value) -> String {
    let own = body["instructions"].as_str().map(str::to_owned);
    let developer = texts(body, "developer");
    own.into_iter()
        .chain(developer)
        .collect::<Vec<_>>()
        .join("\n")
}

fn texts(body: &Value, role: &'static str) -> impl DoubleEndedIterator<Item = String> {
    let items = body["input"].as_array();
    let items = items.map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter(move |it| it["type"] == "message" && it["role"] == role)
        .map(|it| super::text_of(&it["content"]))
}

/// Every output of a call. The wire has no mark for an error.
pub(super) fn results(body: &Value) -> Vec<(bool, String)> {
    let items = body["input"].as_array().into_iter().flatten();
    items
        .filter(|it| {
            let kind = it["type"].as_str();
            kind.is_some_and(|it| it.ends_with("_call_output"))
        })
        .map(|it| {
            let output = &it["output"];
            (false, super::text_of(output))
        })
        .collect()
}

/// The server-sent events of a turn.
pub(super) fn stream_events(
    turn: &Turn,
    id: usize,
    request: &Recorded,
) -> Vec<(&'static str, Value)> {
    let response = |status: &str, output: &[Value], usage: Value| {
        json!({"id": format!("resp_fake_{id}"), "object": "response", "status": status,
            "model": request.body["model"], "output": output, "usage": usage})
    };
    let begun = response("in_progress", &[], Value::Null);
    let mut events = vec![("response.created", json!({"response": begun}))];
    let blocks = turn.blocks.iter().enumerate();
    let output: Vec<Value> = blocks
        .map(|(index, block)| item(block, id, index, request))
        .collect();
    for (index, item) in output.iter().enumerate() {
        for name in ["response.output_item.added", "response.output_item.done"] {
            events.push((name, json!({"output_index": index, "item": item})));
        }
    }
    let done = response("completed", &output, usage(turn));
    events.push(("response.completed", json!({"response": done})));
    for (name, data) in &mut events {
        data["type"] = json!(name);
    }
    events
}

fn item(block: &Block, id: usize, index: usize, request: &Recorded) -> Value {
    match block {
        Block::Text(text) => json!({
            "type": "message", "id": format!("msg_fake_{id}_{index}"), "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        Block::Call { name, input } if name == PATCH_TOOL && offers_custom(request, name) => {
            json!({
                "type": "custom_tool_call", "id": format!("ctc_fake_{id}_{index}"),
                "call_id": format!("call_fake_{id}_{index}"), "name": name,
                "input": input["input"], "status": "completed",
            })
        }
        Block::Call { name, input } => json!({
            "type": "function_call", "id": format!("fc_fake_{id}_{index}"),
            "call_id": format!("call_fake_{id}_{index}"), "name": name,
            "arguments": input.to_string(), "status": "completed",
        }),
    }
}

fn offers_custom(request: &Recorded, name: &str) -> bool {
    let tools = request.body["tools"].as_array();
    let mut tools = tools.into_iter().flatten();
    tools.any(|it| it["type"] == "custom" && it["name"] == name)
}

/// Input here includes what came from the cache.
fn usage(turn: &Turn) -> Value {
    let tokens = turn.tokens;
    let input = tokens.input + tokens.cache_write + tokens.cache_read;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + tokens.output,
    })
}

/// An HTTP error's body as the service words it.
pub(super) fn error(status: u16, kind: &str, message: &str, resets_at: Option<&str>) -> Value {
    let code = match status {
        401 => "invalid_api_key",
        429 => "rate_limit_exceeded",
        503 | 529 => "server_is_overloaded",
        _ => kind,
    };
    match resets_at.and_then(|it| it.parse::<i64>().ok()) {
        Some(at) => json!({"error": {"type": "usage_limit_reached", "message": message,
            "plan_type": "plus", "resets_at": at}}),
        None => json!({"error": {"type": kind, "code": code, "message": message}}),
    }
}

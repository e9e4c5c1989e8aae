//! The OpenAI chat completions wire format, which opencode and most local servers speak.

use serde_json::{Value, json};

use super::turn::{Block, Turn};

/// Names of the tools offered, sorted.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let names = tools.filter_map(|tool| tool["function"]["name"].as_str());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// Text of every message of a role, in order.
pub(super) fn texts(body: &Value, role: &str) -> Vec<String> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let messages = messages.filter(|it| it["role"] == role);
    messages.map(|it| super::text_of(&it["content"])).collect()
}

/// The chunks of a turn; the stream then ends with `[DONE]`.
pub(super) fn stream_chunks(turn: &Turn, id: usize, model: &Value) -> Vec<Value> {
    let chunk = |delta: Value, finish: Value| {
        json!({"id": format!("chatcmpl-fake-{id}"), "object": "chat.completion.chunk",
            "created": 1, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    };
    let mut calls = 0;
    let mut chunks = Vec::new();
    for block in &turn.blocks {
        let mut delta = match block {
            Block::Text(text) => json!({"content": text}),
            Block::Call { .. } => {
                calls += 1;
                json!({"tool_calls": [call(block, id, calls - 1)]})
            }
        };
        delta["role"] = json!("assistant");
        chunks.push(chunk(delta, Value::Null));
    }
    let mut last = chunk(json!({}), json!(finish(turn)));
    last["usage"] = usage(turn);
    chunks.push(last);
    chunks
}

/// The whole message, for a request that does not stream.
pub(super) fn message(turn: &Turn, id: usize, model: &Value) -> Value {
    let mut text = String::new();
    let mut calls = Vec::new();
    for block in &turn.blocks {
        match block {
            Block::Text(said) => text.push_str(said),
            Block::Call { .. } => calls.push(call(block, id, calls.len())),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({"id": format!("chatcmpl-fake-{id}"), "object": "chat.completion", "created": 1,
        "model": model, "usage": usage(turn),
        "choices": [{"index": 0, "message": message, "finish_reason": finish(turn)}]})
}

fn call(block: &Block, id: usize, index: usize) -> Value {
    match block {
        Block::Text(_) => Value::Null,
        Block::Call { name, input } => json!({
            "index": index, "id": format!("call_fake_{id}_{index}"), "type": "function",
            "function": {"name": name, "arguments": input.to_string()},
        }),
    }
}

fn finish(turn: &Turn) -> &'static str {
    let calls = |it: &Block| matches!(it, Block::Call { .. });
    match turn.blocks.iter().any(calls) {
        true => "tool_calls",
        false => "stop",
    }
}

/// Input here includes what came from the cache.
fn usage(turn: &Turn) -> Value {
    let tokens = turn.tokens;
    let input = tokens.input + tokens.cache_write + tokens.cache_read;
    json!({
        "prompt_tokens": input, "completion_tokens": tokens.output,
        "total_tokens": input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
    })
}

/// An HTTP error's body as the service words it.
pub(super) fn error(kind: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "code": kind, "message": message, "param": null}})
}

//! The Gemini API's wire format (`generateContent`, whole or streamed).

use serde_json::{Value, json};

use super::turn::{Block, Turn};

/// Names of the functions offered, sorted.
pub(super) fn tools(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().into_iter().flatten();
    let functions = tools.filter_map(|it| it["functionDeclarations"].as_array());
    let names = functions.flatten().filter_map(|it| it["name"].as_str());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// Text of what the CLI tells the model about its work.
pub(super) fn system(body: &Value) -> String {
    super::text_of(&body["systemInstruction"]["parts"])
}

/// How many replies of the model the conversation already holds.
pub(super) fn replies(body: &Value) -> usize {
    contents(body, "model").count()
}

/// Text of every message of the user's side, answers of functions not included.
pub(super) fn user_texts(body: &Value) -> Vec<String> {
    contents(body, "user")
        .map(|it| super::text_of(&it["parts"]))
        .collect()
}

/// Every answer of a function: whether it was an error, and its text.
pub(super) fn results(body: &Value) -> Vec<(bool, String)> {
    let parts = contents(body, "user").filter_map(|it| it["parts"].as_array());
    let responses = parts
        .flatten()
        .map(|it| &it["functionResponse"]["response"]);
    responses
        .filter(|it| it.is_object())
        .map(|it| match it["error"].as_str() {
            Some(error) => (true, error.to_owned()),
            None => (false, super::text_of(&it["output"])),
        })
        .collect()
}

fn contents<'a>(body: &'a Value, role: &'static str) -> impl Iterator<Item = &'a Value> {
    let contents = body["contents"].as_array().into_iter().flatten();
    contents.filter(move |it| it["role"] == role)
}

/// A turn as one answer, which is also the one chunk of its stream.
pub(super) fn answer(turn: &Turn, id: usize) -> Value {
    let parts: Vec<Value> = turn
        .blocks
        .iter()
        .map(|block| match block {
            Block::Text(text) => json!({"text": text}),
            Block::Call { name, input } => json!({"functionCall": {"name": name, "args": input}}),
        })
        .collect();
    let tokens = turn.tokens;
    let input = tokens.input + tokens.cache_write + tokens.cache_read;
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": {
            "promptTokenCount": input, "candidatesTokenCount": tokens.output,
            "totalTokenCount": input + tokens.output,
            "cachedContentTokenCount": tokens.cache_read,
        },
        "modelVersion": "fake", "responseId": format!("resp_fake_{id}"),
    })
}

/// An HTTP error's body as the service words it.
pub(super) fn error(status: u16, message: &str) -> Value {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    json!({"error": {"code": status, "message": message, "status": name}})
}

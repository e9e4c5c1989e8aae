//! The structured answer of an agent that knows no schemas: asked for in the prompt, read from
//! the last message.
//!
//! Not a file, as with `command`: a stage that only looks may write none, and where the agent
//! writes is for its sandbox and its permissions to say.

use serde_json::{Deserializer, Value};

/// Places tried as the beginning of an answer, from the end.
const TRIED: usize = 64;

/// What is put after the prompt.
pub(super) fn request(schema: &Value) -> String {
    format!(
        "\n\nWhen everything is done, end your last message with your answer: one JSON object in a \
         fenced block that begins with ```json, and nothing after it. It must fit this JSON \
         Schema:\n\n```json\n{schema}\n```\n"
    )
}

/// Asks once more for an answer that was forgotten.
pub(super) const FORGOTTEN: &str = "Your last message did not end with the answer. Change nothing \
    more. Reply with the answer only: one JSON object in a fenced block that begins with ```json, \
    fitting the JSON Schema given before.";

/// Whether a schema has something an answer must say.
pub(super) fn is_needed(schema: &Value) -> bool {
    let required = schema["required"].as_array();
    required.is_some_and(|it| !it.is_empty())
}

/// The last JSON object that begins a fenced block; else one that begins a line and goes on to
/// the end of the text.
pub(super) fn read(text: &str) -> Option<Value> {
    let fenced = || {
        let fences = text.rmatch_indices("```").take(TRIED);
        fences.filter_map(|(at, _)| fenced(&text[at + 3..])).next()
    };
    let bare = || {
        let lines = text.rmatch_indices('\n').map(|(at, _)| &text[at + 1..]);
        let starts = lines
            .chain([text])
            .filter(|it| it.trim_start().starts_with('{'));
        let mut whole = starts.take(TRIED).filter_map(|it| {
            let value: Value = serde_json::from_str(it.trim()).ok()?;
            value.is_object().then_some(value)
        });
        whole.next()
    };
    fenced().or_else(bare)
}

/// An object that a fence opens. Where the fence ends is not looked for: a text within the object
/// may hold another.
fn fenced(after: &str) -> Option<Value> {
    let (tag, body) = after.split_once('\n')?;
    if !matches!(tag.trim(), "" | "json" | "JSON") || !body.trim_start().starts_with('{') {
        return None;
    }
    let mut values = Deserializer::from_str(body).into_iter::<Value>();
    values.next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_object_is_found_in_every_dress() {
        let wanted = Some(json!({"a": "```x```"}));
        for text in [
            "```json\n{\"a\": \"```x```\"}\n```",
            "Done.\n\n```json\n{\"a\": 1}\n```\nNo, rather:\n```json\n{\"a\": \"```x```\"}\n```\n",
            "```\n{\"a\": \"```x```\"}\n```",
            "{\"a\": \"```x```\"}",
            "Here it is:\n{\n\"a\": \"```x```\"\n}\n",
            "```JSON\n{\"a\": \"```x```\"}",
            "```rust\n{ let x = 1; }\n```\n{\"a\": \"```x```\"}",
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_no_answer() {
        for text in [
            "",
            "done",
            "```json\n[1]\n```",
            "```json\n{\"a\": tr",
            "{\"a\": 1} and more",
            "```rust\n{}\n```x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let deep = format!("```json\n{}", "{\"a\":".repeat(100_000));
        assert_eq!(read(&deep), None);
        assert_eq!(read(&"```\n{".repeat(100_000)), None);
    }
}

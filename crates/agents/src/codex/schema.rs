//! The answer's schema as the service demands it.
//!
//! It takes only strict schemas: every object names all its fields as required and allows no
//! others. A field that may be left out becomes one that may be `null`, which our readers take for
//! the same (`docs/formats/answers.md`).

use serde_json::{Map, Value, json};

/// Deeper than any schema of ours.
const MAX_DEPTH: usize = 32;

/// The strict form of a schema.
pub(super) fn strict(schema: &Value) -> Value {
    let mut schema = schema.clone();
    tighten(&mut schema, 0);
    schema
}

fn tighten(schema: &mut Value, depth: usize) {
    let Some(node) = schema.as_object_mut().filter(|_| depth < MAX_DEPTH) else {
        return;
    };
    if let Some(items) = node.get_mut("items") {
        tighten(items, depth + 1);
    }
    for name in ["anyOf", "allOf"] {
        let choices = node.get_mut(name).and_then(Value::as_array_mut);
        let choices = choices.into_iter().flatten();
        choices.for_each(|it| tighten(it, depth + 1));
    }
    if node.contains_key("properties") || has_type(node, "object") {
        close(node, depth);
    }
}

fn close(node: &mut Map<String, Value>, depth: usize) {
    let required = node.get("required").and_then(Value::as_array).cloned();
    let required = required.unwrap_or_default();
    let fields = node
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    let mut names = Vec::new();
    for (name, field) in fields.as_object_mut().into_iter().flatten() {
        tighten(field, depth + 1);
        if !required.iter().any(|it| it == name.as_str()) {
            allow_null(field);
        }
        names.push(json!(name));
    }
    node.insert("required".to_owned(), Value::Array(names));
    node.insert("additionalProperties".to_owned(), json!(false));
}

fn allow_null(field: &mut Value) {
    let Some(node) = field.as_object_mut() else {
        return;
    };
    if has_type(node, "null") {
        return;
    }
    if let Some(Value::Array(values)) = node.get_mut("enum") {
        values.push(Value::Null);
    }
    match node.get_mut("type") {
        Some(Value::Array(types)) => types.push(json!("null")),
        Some(one) => *one = json!([one.clone(), "null"]),
        None => {
            let other = std::mem::take(node);
            node.insert("anyOf".to_owned(), json!([other, {"type": "null"}]));
        }
    }
}

fn has_type(node: &Map<String, Value>, name: &str) -> bool {
    match node.get("type") {
        Some(Value::Array(types)) => types.iter().any(|it| it == name),
        Some(one) => one == name,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::strict;

    #[test]
    fn every_field_is_required_and_what_was_optional_may_be_null() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string"},
            "b": {"type": "array", "items": {"type": "object", "properties": {
                "c": {"type": "string", "enum": ["x"]}}}},
            "d": {"type": ["integer", "null"]},
        }});
        assert_eq!(
            strict(&schema),
            json!({"type": "object", "required": ["a", "b", "d"], "properties": {
                "a": {"type": "string"},
                "b": {"type": ["array", "null"], "items": {"type": "object", "properties": {
                    "c": {"type": ["string", "null"], "enum": ["x", null]}},
                    "required": ["c"], "additionalProperties": false}},
                "d": {"type": ["integer", "null"]},
            }, "additionalProperties": false})
        );
        assert_eq!(
            strict(&json!({"type": "object"})),
            json!({"type": "object", "properties": {}, "required": [],
                "additionalProperties": false})
        );
    }
}

//! A type's JSON Schema in the few words every agent's validator knows.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

pub(super) fn plain_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    let mut value = schema.to_value();
    simplify(&mut value);
    value
}

/// Takes out what weaker validators trip over: `title`, `format`, `default`, and the `oneOf`
/// of constants that an enum becomes.
fn simplify(value: &mut Value) {
    let Value::Object(node) = value else {
        if let Value::Array(items) = value {
            items.iter_mut().for_each(simplify);
        }
        return;
    };
    // `properties` maps names to schemas: a field that is called `title` must stay.
    let is_schema =
        node.contains_key("type") || node.contains_key("oneOf") || node.contains_key("enum");
    if is_schema {
        for keyword in ["title", "format", "default"] {
            if node.get(keyword).is_some_and(|it| !it.is_object()) {
                node.shift_remove(keyword);
            }
        }
        if let Some(Value::Array(choices)) = node.shift_remove("oneOf") {
            let names = choices
                .iter()
                .filter_map(|it| it.get("const"))
                .cloned()
                .collect();
            node.insert("type".to_owned(), Value::from("string"));
            node.insert("enum".to_owned(), Value::Array(names));
        }
    }
    node.values_mut().for_each(simplify);
}

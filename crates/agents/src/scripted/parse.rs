//! Reading a script, and saying where it is wrong.

use super::ScriptError;
use super::script::Root;

pub(super) fn parse(json: &str) -> Result<Root, ScriptError> {
    // A byte order mark is what some editors leave at the start of a file.
    let json = json.strip_prefix('\u{feff}').unwrap_or(json);
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let root: Root = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        ScriptError {
            place: place(inner.line(), &path),
            problem: without_position(&inner.to_string()).to_owned(),
        }
    })?;
    deserializer.end().map_err(|error| ScriptError {
        place: place(error.line(), "."),
        problem: without_position(&error.to_string()).to_owned(),
    })?;
    Ok(root)
}

fn place(line: usize, path: &str) -> String {
    match path {
        "." | "?" | "" => format!("line {line}"),
        path => format!("line {line}, {path}"),
    }
}

/// serde_json appends ` at line 3 column 7`, which the place says already.
fn without_position(problem: &str) -> &str {
    problem
        .rfind(" at line ")
        .map_or(problem, |at| &problem[..at])
}

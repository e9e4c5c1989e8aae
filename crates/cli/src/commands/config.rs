//! `dex config`

use std::path::Path;

use dex::config::{self, Config, Origin, PROJECT_FILE};
use gitdb::Repo;
use serde_json::{Value, json};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui::{self, DIM, NAME, WARN, clean, styled};

/// Shows settings with their origin, or sets one in the project's file.
pub fn config(dir: &Path, args: &args::Config) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    if let (Some(key), Some(value)) = (&args.key, &args.value) {
        set(&repo, key, value)?;
    }
    let config = session::load_config(&repo, &Vec::new())?;
    match &args.key {
        Some(key) => one(&repo, &config, key, args)?,
        None => all(&config, args.json),
    }
    Ok(Exit::Done)
}

fn one(repo: &Repo, config: &Config, key: &str, args: &args::Config) -> Result<(), Failure> {
    let Some((value, origin)) = config.get(key) else {
        return Err(unknown(repo, key));
    };
    if args.json {
        ui::json(&json!({ "key": key, "value": value, "origin": origin_json(&origin) }));
        return Ok(());
    }
    ui::out(clean(&plain(&value)));
    ui::talk(styled(DIM, format!("{key}: {}", origin_words(&origin))));
    if args.value.is_some() && matches!(origin, Origin::Env(_)) {
        // What was typed is in the file; what counts is said above (case K04).
        let words = format!("set in the file, but {} wins", origin_words(&origin));
        ui::talk(styled(WARN, words));
    }
    Ok(())
}

fn all(config: &Config, as_json: bool) {
    let entries = config.entries();
    if as_json {
        let settings = entries.iter().map(|(key, value, origin)| {
            json!({ "key": key, "value": value, "origin": origin_json(origin) })
        });
        let unknown = config.unknown_keys().iter().map(|it| {
            json!({ "key": it.key, "file": it.file, "line": it.line, "suggestion": it.suggestion })
        });
        ui::json(&json!({
            "settings": settings.collect::<Vec<_>>(),
            "unknown": unknown.collect::<Vec<_>>(),
        }));
        return;
    }
    for (key, value, origin) in &entries {
        let origin = match origin {
            Origin::BuiltIn => String::new(),
            other => styled(DIM, format!("  {}", origin_words(other))),
        };
        ui::out(format!(
            "{} {}{origin}",
            styled(NAME, format!("{key:<37}")),
            clean(&plain(value))
        ));
    }
    for it in config.unknown_keys() {
        let meant = it
            .suggestion
            .map(|it| format!("; did you mean {it}?"))
            .unwrap_or_default();
        let place = format!("{}, line {}", it.file.display(), it.line);
        ui::talk(styled(
            WARN,
            format!(
                "{}: {} is not a setting{meant}",
                clean(&place),
                clean(&it.key)
            ),
        ));
    }
}

/// A value as it is typed: texts without quotes, everything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

fn origin_words(origin: &Origin) -> String {
    match origin {
        Origin::BuiltIn => "built in".to_owned(),
        Origin::File(path) => clean(&path.display().to_string()),
        Origin::Env(name) => format!("${name}"),
        Origin::Flag(name) => name.clone(),
    }
}

fn origin_json(origin: &Origin) -> Value {
    let (kind, name) = match origin {
        Origin::BuiltIn => ("built_in", None),
        Origin::File(path) => ("file", Some(path.display().to_string())),
        Origin::Env(name) => ("environment", Some(name.clone())),
        Origin::Flag(name) => ("flag", Some(name.clone())),
    };
    json!({ "kind": kind, "name": name })
}

/// Sets a value: JSON, or a text where it is none. `true` for a command is a text too, so what
/// is refused as JSON is tried as text.
fn set(repo: &Repo, key: &str, text: &str) -> Result<(), Failure> {
    let root = session::root(repo)?;
    let main = session::main_work_tree(repo);
    let has_own = std::fs::symlink_metadata(root.join(PROJECT_FILE)).is_ok();
    // A file of its own would hide every setting of the main work tree's from a linked one.
    let root = match &main {
        Some(main) if !has_own => main,
        _ => root,
    };
    let as_text = || Value::String(text.to_owned());
    let value = serde_json::from_str(text).unwrap_or_else(|_| as_text());
    match config::set_in_project(root, key, value.clone()) {
        Err(first) if !value.is_string() => {
            config::set_in_project(root, key, as_text()).map_err(|_| Failure::from(first))
        }
        other => Ok(other?),
    }
}

/// The same words as for setting it: nothing is written for a key nobody knows.
fn unknown(repo: &Repo, key: &str) -> Failure {
    let failure = match session::root(repo) {
        Ok(root) => match config::set_in_project(root, key, Value::Null) {
            Err(dex::files::store::FileError::Malformed { problem, .. }) => {
                Failure::new(Exit::Usage, problem)
            }
            _ => Failure::new(Exit::Usage, format!("{key} is not a setting")),
        },
        Err(failure) => failure,
    };
    failure.hint("`dex config` lists every setting.")
}

//! One source of settings: a file, the environment, flags. Read and checked by itself, so that
//! an error can say where the bad value stands.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::keys::{self, GROUPS, Guard, KEYS, Key};
use super::{Flags, Origin, UnknownKey};
use crate::files::store::{self, FileError};

/// What one source sets.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Checked values by dotted name.
    pub(super) values: BTreeMap<&'static str, (Value, Origin)>,
    /// Keys of the file that are no settings.
    pub(super) unknown: Vec<UnknownKey>,
}

/// Whether git tracks the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracked {
    Yes,
    No,
}

/// Reads and checks a file's bytes.
pub(super) fn from_bytes(path: &Path, bytes: &[u8], tracked: Tracked) -> Result<Layer, FileError> {
    let (fields, lines) = parse(path, bytes)?;
    let mut layer = Layer::default();
    for (name, value) in &fields {
        if GROUPS.contains(&name.as_str()) {
            let Value::Object(group) = value else {
                let problem = format!("{name} must be an object, {{ … }}");
                return Err(lines.error(path, &[name], &problem));
            };
            for (inner, value) in group {
                layer.take(path, &lines, &[name, inner], value, tracked)?;
            }
        } else {
            layer.take(path, &lines, &[name], value, tracked)?;
        }
    }
    Ok(layer)
}

/// A file's values as they stand there, good or bad.
pub(super) fn fields(path: &Path, bytes: &[u8]) -> Result<Map<String, Value>, FileError> {
    Ok(parse(path, bytes)?.0)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<(Map<String, Value>, Lines), FileError> {
    // Some editors begin a file with a byte-order mark.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let fields = store::parse_json(path, bytes)?;
    let lines = Lines::of(path, &String::from_utf8_lossy(bytes))?;
    Ok((fields, lines))
}

/// The layer of the environment. Only the names we know are looked at.
pub(super) fn from_env(env: &BTreeMap<String, String>) -> Result<Layer, FileError> {
    let mut layer = Layer::default();
    for key in KEYS {
        let Some((variable, text)) = key.env.and_then(|name| env.get_key_value(name)) else {
            continue;
        };
        let value = key.of_text(text).map_err(|problem| FileError::Setting {
            origin: variable.clone(),
            problem,
        })?;
        let origin = Origin::Env(variable.clone());
        layer.values.insert(key.name, (value, origin));
    }
    Ok(layer)
}

/// The layer of the command line.
pub(super) fn from_flags(flags: &Flags) -> Result<Layer, FileError> {
    let mut layer = Layer::default();
    for (name, flag, value) in flags {
        let bad = |problem| FileError::Setting {
            origin: (*flag).to_owned(),
            problem,
        };
        let key = keys::find(name).ok_or_else(|| bad(format!("{name} is not a setting")))?;
        let value = key.check(value).map_err(bad)?;
        let origin = Origin::Flag((*flag).to_owned());
        layer.values.insert(key.name, (value, origin));
    }
    Ok(layer)
}

impl Layer {
    fn take(
        &mut self,
        path: &Path,
        lines: &Lines,
        place: &[&str],
        value: &Value,
        tracked: Tracked,
    ) -> Result<(), FileError> {
        let name = place.join(".");
        // A dotted name is ours only as a key inside its group.
        let dotted = place.iter().any(|part| part.contains('.'));
        let Some(key) = keys::find(&name).filter(|_| !dotted) else {
            self.unknown.push(UnknownKey {
                file: path.to_path_buf(),
                line: lines.of_key(place),
                suggestion: keys::did_you_mean(&name),
                key: name,
            });
            return Ok(());
        };
        let value = key
            .check(value)
            .map_err(|problem| lines.error(path, place, &problem))?;
        if tracked == Tracked::Yes && is_refused(key, &value) {
            return Err(lines.error(path, place, &remedy(key.name)));
        }
        let origin = Origin::File(path.to_path_buf());
        self.values.insert(key.name, (value, origin));
        Ok(())
    }
}

fn is_refused(key: &Key, value: &Value) -> bool {
    match key.guard {
        Guard::Free => false,
        Guard::Runs => !value.is_null(),
        Guard::Opens => *value != key.built_in(),
        Guard::Weakens(word) => value.as_str() == Some(word),
    }
}

fn remedy(name: &str) -> String {
    format!(
        "{name} is not taken from a file that git tracks, because then whoever can push decides \
         what runs on this machine; take the file out of git with \
         `git rm --cached .dex/dex-config.json`, or set {name} in your own configuration file"
    )
}

/// Where the keys of a JSON text stand.
struct Lines(HashMap<Vec<String>, usize>);

impl Lines {
    /// Finds every key of valid JSON; a key that is given twice is an error, because one of
    /// the two would silently count for nothing.
    fn of(path: &Path, text: &str) -> Result<Lines, FileError> {
        let mut lines = HashMap::new();
        // The name of each open object's current key; none for an array.
        let mut open: Vec<Option<String>> = Vec::new();
        let (mut line, mut at) = (1, 0);
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\n' => line += 1,
                b'{' => open.push(Some(String::new())),
                b'[' => open.push(None),
                b'}' | b']' => {
                    open.pop();
                }
                b'"' => {
                    let end = end_of_string(bytes, at);
                    let is_key = bytes[end..].trim_ascii_start().first() == Some(&b':');
                    if is_key && let Some(Some(current)) = open.last_mut() {
                        *current = serde_json::from_str(&text[at..end]).unwrap_or_default();
                        let place: Option<Vec<String>> = open.iter().cloned().collect();
                        if let Some(place) = place
                            && let Some(first) = lines.insert(place.clone(), line)
                        {
                            let name = place.join(".");
                            let problem =
                                format!("line {line}: {name} was given in line {first} already");
                            return Err(FileError::malformed(path, problem));
                        }
                    }
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        Ok(Lines(lines))
    }

    fn of_key(&self, place: &[&str]) -> usize {
        let place: Vec<String> = place.iter().map(|part| (*part).to_owned()).collect();
        self.0.get(&place).copied().unwrap_or(1)
    }

    fn error(&self, path: &Path, place: &[&str], problem: &str) -> FileError {
        let line = self.of_key(place);
        FileError::malformed(path, format!("line {line}: {problem}"))
    }
}

/// The position behind the closing quote of the string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Reads a file of the user's own directory. Links are followed there: people keep such files
/// in a repository of dotfiles.
pub(super) fn read_following(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(_) | Err(_) => {}
    }
    let real: PathBuf = std::fs::canonicalize(path).map_err(|source| FileError::Io {
        path: path.to_path_buf(),
        what: "read",
        source,
    })?;
    store::read(&real).map_err(|error| error.at(path))
}

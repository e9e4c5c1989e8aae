//! The little we need from the user's own `config.toml`: which provider is chosen, and which
//! variables hold keys.
//!
//! Found line by line, because a TOML parser for three words is too much. What is missed costs a
//! variable that is not passed on, or a login that is asked for although none is needed; neither
//! is silent.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

const MAX_BYTES: u64 = 1024 * 1024;
const MAX_NAMES: usize = 32;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The provider chosen in place of OpenAI.
    pub(super) provider: Option<String>,
    /// The variable with that provider's key.
    pub(super) key: Option<String>,
    /// Variables with any provider's key.
    pub(super) keys: Vec<String>,
}

static HEADER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*\[+([^\]]*)\]"));
static PROVIDER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"^\s*model_provider\s*=\s*["']([^"']*)["']"#));
static KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\benv_key\s*=\s*["']([A-Za-z_][A-Za-z0-9_]*)["']"#));

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a fixed pattern, used by a test")
}

/// Of the user whose environment this is.
pub(super) fn of_user(environment: &BTreeMap<OsString, OsString>) -> Settings {
    let text = home(environment).and_then(|it| read(&it.join("config.toml")));
    text.map(|it| parse(&it)).unwrap_or_default()
}

/// Where Codex keeps its settings.
fn home(environment: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    let get = |name: &str| environment.get(OsStr::new(name)).map(PathBuf::from);
    get("CODEX_HOME").or_else(|| get("HOME").map(|it| it.join(".codex")))
}

fn read(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn parse(text: &str) -> Settings {
    let mut found = Settings::default();
    let mut table = String::new();
    let mut keys: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(header) = HEADER.captures(line) {
            table = header[1].trim().to_owned();
        } else if table.is_empty()
            && let Some(provider) = PROVIDER.captures(line)
        {
            found.provider = Some(provider[1].to_owned()).filter(|it| it != "openai");
        }
        if let Some(key) = KEY.captures(line)
            && keys.len() < MAX_NAMES
        {
            keys.push((table.clone(), key[1].to_owned()));
        }
    }
    let tables = |name: &str| {
        [
            format!("model_providers.{name}"),
            format!("model_providers.\"{name}\""),
        ]
    };
    if let Some(provider) = &found.provider {
        let tables = tables(provider);
        let key = keys.iter().find(|(table, _)| tables.contains(table));
        found.key = key.map(|(_, name)| name.clone());
    }
    found.keys = keys.into_iter().map(|(_, name)| name).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::{Settings, parse};

    #[test]
    fn the_chosen_provider_and_its_key_are_found() {
        let text = "model = \"m\"\nmodel_provider = \"mine\" # a comment\n\
            [model_providers.other]\nenv_key = \"OTHER_KEY\"\n\
            [model_providers.mine]\nname = \"x\"\n  env_key = 'MY_KEY'\n\
            [profiles.p]\nmodel_provider = \"other\"\n";
        assert_eq!(
            parse(text),
            Settings {
                provider: Some("mine".into()),
                key: Some("MY_KEY".into()),
                keys: vec!["OTHER_KEY".into(), "MY_KEY".into()],
            }
        );
        assert_eq!(parse("model_provider = \"openai\""), Settings::default());
        assert_eq!(parse("\u{0}[[[\n]=\"env_key"), Settings::default());
    }
}

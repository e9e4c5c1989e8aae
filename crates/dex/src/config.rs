//! Settings: where each comes from, what it may be.
//!
//! Precedence: flag, `DEX_*`, the project's `.dex/dex-config.json` (of the main worktree where
//! a linked one has none), the user's `dex/config.json` in the configuration directory, built
//! in. A bad file or value is an error naming file, line, field and what is accepted; never a
//! silent default. Keys nobody knows are kept on a rewrite and listed by
//! [`Config::unknown_keys`].
//!
//! The project's file is meant to be on this machine only. When git tracks it, it is written by
//! whoever can push, so nothing in it may run a program or take a protection away.

mod detect;
mod keys;
mod layers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::files::store::{self, FileError};
use crate::files::{dollars, micro};

pub use detect::detect_verify_command;
use layers::{Layer, Tracked};

/// The project's settings, from the root of the work tree.
pub const PROJECT_FILE: &str = ".dex/dex-config.json";

/// The user's settings, from the configuration directory.
pub const USER_FILE: &str = "dex/config.json";

/// Every setting, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which back end.
    pub agent: AgentKind,
    /// Program and arguments, for `command` (and later `acp`).
    pub agent_command: Option<Vec<String>>,
    /// Model.
    pub model: Option<String>,
    /// The project's own verify command, a line for the shell: see [`Config::verify_argv`].
    pub verify_command: Option<String>,
    /// Run when a run ends, stops or needs an answer.
    pub notify: Option<Vec<String>>,
    /// Bounds.
    pub limits: Limits,
    /// Whether the repository's hooks run on stage commits.
    pub hooks: Hooks,
    /// Whether stage commits are signed.
    pub sign: Sign,
    /// What a stage may commit.
    pub commit: Commit,
    /// Where `--worktree` puts work trees; none: under the user's data directory.
    pub worktree_dir: Option<PathBuf>,
    /// Sandbox: `required`, `auto`, `off`.
    pub sandbox: String,
    /// What it lets through beyond the usual.
    pub walls: Walls,
    /// Promotion settings, kept for later commands.
    pub promote: serde_json::Value,
    /// Conflict resolver settings, kept for later commands.
    pub conflict_resolver: serde_json::Value,
    /// Where each value comes from, by dotted key.
    pub origins: BTreeMap<String, Origin>,
    /// See [`Config::unknown_keys`].
    pub unknown: Vec<UnknownKey>,
}

/// A key of a file that is no setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// Dotted.
    pub key: String,
    /// The setting that was probably meant.
    pub suggestion: Option<&'static str>,
}

/// What the sandbox lets through beyond the usual: `sandboxWritable`, `sandboxReadable` and
/// `verifyNetwork`. Paths are absolute or begin with `~/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Walls {
    /// May be changed as well.
    pub writable: Vec<String>,
    /// Not hidden, though credentials are there.
    pub readable: Vec<String>,
    /// Whether the verify command has a network.
    pub verify_network: bool,
}

/// The back ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// Deterministic, from a script.
    #[serde(alias = "mock")]
    Scripted,
    /// Any program.
    Command,
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// An Agent Client Protocol agent.
    Acp,
}

/// `limits` of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Cycles of a run.
    pub max_cycles: u32,
    /// Micro-dollars of a run.
    pub max_budget_micro_usd: u64,
    /// Micro-dollars of a stage.
    pub stage_budget_micro_usd: u64,
    /// Minutes of a stage; fractions are allowed.
    pub stage_timeout_minutes: f64,
    /// Minutes without a sign of life; fractions are allowed.
    pub idle_minutes: f64,
    /// Turns of a stage.
    pub max_turns: u32,
    /// How often a failed verify is mended and tried again.
    pub max_verify_retries: u32,
    /// Hours to wait for a quota; fractions are allowed.
    pub wait_for_quota_hours: f64,
}

/// `hooks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hooks {
    /// They do not run.
    Skip,
    /// They run and see the exact tree.
    Run,
}

/// `sign`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// As `commit.gpgsign` says.
    Auto,
    /// Never.
    Never,
}

/// `commit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// A larger file is left out.
    pub max_file_bytes: u64,
    /// Paths (or globs with `*`) that may be committed though they look like secrets or are large.
    pub allow: Vec<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    BuiltIn,
    /// This file.
    File(PathBuf),
    /// This environment variable.
    Env(String),
    /// This flag.
    Flag(String),
}

/// Values set by flags, by dotted key (`agent`, `limits.maxBudgetUsd`), with the flag's name.
pub type Flags = Vec<(&'static str, &'static str, serde_json::Value)>;

/// What is needed to find every layer.
#[derive(Debug, Clone)]
pub struct Sources<'a> {
    /// Root of this work tree.
    pub work_tree: &'a Path,
    /// Root of the main work tree, when this one is linked.
    pub main_work_tree: Option<&'a Path>,
    /// The user's configuration directory (`$XDG_CONFIG_HOME` or `~/.config`).
    pub user_config_dir: Option<&'a Path>,
    /// Whether git tracks the project file that is read (see [`Sources::project_file`]). Then
    /// `verifyCommand`, `agentCommand`, `notify` and `conflictResolver.verifyCommand` in it are
    /// an error, and so are what opens the sandbox and `hooks: run`.
    pub project_file_tracked: bool,
    /// The environment.
    pub env: &'a BTreeMap<String, String>,
    /// Flags.
    pub flags: &'a Flags,
}

impl Sources<'_> {
    /// The project file that counts: this work tree's, or the main one's where this has none.
    pub fn project_file(&self) -> PathBuf {
        let own = self.work_tree.join(PROJECT_FILE);
        let absent = |path: &Path| {
            std::fs::symlink_metadata(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        match self.main_work_tree {
            Some(main) if absent(&own) => main.join(PROJECT_FILE),
            Some(_) | None => own,
        }
    }
}

/// Reads and checks every layer.
pub fn load(sources: &Sources<'_>) -> Result<Config, FileError> {
    let user = match sources.user_config_dir.map(|dir| dir.join(USER_FILE)) {
        Some(path) => file_layer(&path, layers::read_following(&path)?, Tracked::No)?,
        None => Layer::default(),
    };
    let path = sources.project_file();
    let tracked = match sources.project_file_tracked {
        true => Tracked::Yes,
        false => Tracked::No,
    };
    let project = file_layer(&path, store::read(&path)?, tracked)?;
    // Later layers win.
    let layers = [
        user,
        project,
        layers::from_env(sources.env)?,
        layers::from_flags(sources.flags)?,
    ];
    Ok(Config::of(layers))
}

fn file_layer(path: &Path, bytes: Option<Vec<u8>>, tracked: Tracked) -> Result<Layer, FileError> {
    match bytes {
        Some(bytes) => layers::from_bytes(path, &bytes, tracked),
        None => Ok(Layer::default()),
    }
}

/// Checks the bytes of a configuration file; `path` is for the error. Never panics.
pub fn check_bytes(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    layers::from_bytes(path, bytes, Tracked::No).map(drop)
}

impl Default for Config {
    /// What is built in.
    fn default() -> Config {
        Config::of([])
    }
}

impl Config {
    /// The argv that verifies the project, none without a verify command.
    ///
    /// It goes to `sh -c`, because people write `cargo test && npm test`. That is safe because
    /// of where the text comes from: a flag, the environment, or a file on this machine that no
    /// repository brings along ([`Sources::project_file_tracked`]). No text of an agent, a
    /// branch or a file name is ever put into it.
    pub fn verify_argv(&self) -> Option<Vec<String>> {
        let command = self.verify_command.clone()?;
        Some(vec!["sh".to_owned(), "-c".to_owned(), command])
    }

    /// The value of a dotted key as JSON, with its origin; none for an unknown key.
    pub fn get(&self, key: &str) -> Option<(Value, Origin)> {
        let value = self.value(keys::find(key)?.name);
        let origin = self.origins.get(key).cloned();
        Some((value, origin.unwrap_or(Origin::BuiltIn)))
    }

    /// Every key in documented order, with value and origin.
    pub fn entries(&self) -> Vec<(String, Value, Origin)> {
        let names = keys::KEYS.iter().map(|key| key.name);
        names
            .filter_map(|name| {
                let (value, origin) = self.get(name)?;
                Some((name.to_owned(), value, origin))
            })
            .collect()
    }

    /// Keys of the files that are no settings: most often a misspelt one.
    pub fn unknown_keys(&self) -> &[UnknownKey] {
        &self.unknown
    }

    fn of(layers: impl IntoIterator<Item = Layer>) -> Config {
        let mut values = Values(
            keys::KEYS
                .iter()
                .map(|key| (key.name, (key.built_in(), Origin::BuiltIn)))
                .collect(),
        );
        let mut unknown = Vec::new();
        for layer in layers {
            values.0.extend(layer.values);
            unknown.extend(layer.unknown);
        }
        let mut config = values.config();
        config.unknown = unknown;
        config
    }

    fn value(&self, name: &'static str) -> Value {
        let Limits {
            max_cycles,
            max_budget_micro_usd,
            stage_budget_micro_usd,
            stage_timeout_minutes,
            idle_minutes,
            max_turns,
            max_verify_retries,
            wait_for_quota_hours,
        } = &self.limits;
        let usd = |micro: &u64| keys::number_of(dollars(*micro));
        match name {
            "agent" => json!(self.agent),
            "agentCommand" => json!(self.agent_command),
            "model" => json!(self.model),
            "verifyCommand" => json!(self.verify_command),
            "notify" => json!(self.notify),
            "limits.maxCycles" => json!(max_cycles),
            "limits.maxBudgetUsd" => usd(max_budget_micro_usd),
            "limits.stageBudgetUsd" => usd(stage_budget_micro_usd),
            "limits.stageTimeoutMinutes" => keys::number_of(*stage_timeout_minutes),
            "limits.idleMinutes" => keys::number_of(*idle_minutes),
            "limits.maxTurns" => json!(max_turns),
            "limits.maxVerifyRetries" => json!(max_verify_retries),
            "limits.waitForQuotaHours" => keys::number_of(*wait_for_quota_hours),
            "sandbox" => json!(self.sandbox),
            "sandboxWritable" => json!(self.walls.writable),
            "sandboxReadable" => json!(self.walls.readable),
            "verifyNetwork" => json!(self.walls.verify_network),
            "hooks" => json!(self.hooks),
            "sign" => json!(self.sign),
            "commit.maxFileBytes" => json!(self.commit.max_file_bytes),
            "commit.allow" => json!(self.commit.allow),
            "worktreeDir" => json!(self.worktree_dir.as_ref().map(|it| it.to_string_lossy())),
            _ => {
                let (group, inner) = name.split_once('.').unwrap_or((name, ""));
                let group = match group {
                    "promote" => &self.promote,
                    _ => &self.conflict_resolver,
                };
                group.get(inner).cloned().unwrap_or(Value::Null)
            }
        }
    }
}

/// Checked values of every setting.
struct Values(BTreeMap<&'static str, (Value, Origin)>);

impl Values {
    fn get(&self, name: &str) -> &Value {
        &self.0.get(name).expect("every setting has a value").0
    }

    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> T {
        serde_json::from_value(self.get(name).clone())
            .expect("the value was checked when its layer was read")
    }

    fn group(&self, prefix: &str) -> Value {
        let inner = |(name, (value, _)): (&&str, &(Value, Origin))| {
            let inner = name.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((inner.to_owned(), value.clone()))
        };
        Value::Object(self.0.iter().filter_map(inner).collect::<Map<_, _>>())
    }

    fn config(self) -> Config {
        let usd = |name| micro(self.read(name));
        Config {
            agent: self.read("agent"),
            agent_command: self.read("agentCommand"),
            model: self.read("model"),
            verify_command: self.read("verifyCommand"),
            notify: self.read("notify"),
            limits: Limits {
                max_cycles: self.read("limits.maxCycles"),
                max_budget_micro_usd: usd("limits.maxBudgetUsd"),
                stage_budget_micro_usd: usd("limits.stageBudgetUsd"),
                stage_timeout_minutes: self.read("limits.stageTimeoutMinutes"),
                idle_minutes: self.read("limits.idleMinutes"),
                max_turns: self.read("limits.maxTurns"),
                max_verify_retries: self.read("limits.maxVerifyRetries"),
                wait_for_quota_hours: self.read("limits.waitForQuotaHours"),
            },
            hooks: self.read("hooks"),
            sign: self.read("sign"),
            commit: Commit {
                max_file_bytes: self.read("commit.maxFileBytes"),
                allow: self.read("commit.allow"),
            },
            worktree_dir: self.read("worktreeDir"),
            sandbox: self.read("sandbox"),
            walls: Walls {
                writable: self.read("sandboxWritable"),
                readable: self.read("sandboxReadable"),
                verify_network: self.read("verifyNetwork"),
            },
            promote: self.group("promote"),
            conflict_resolver: self.group("conflictResolver"),
            unknown: Vec::new(),
            origins: self
                .0
                .into_iter()
                .map(|(name, (_, origin))| (name.to_owned(), origin))
                .collect(),
        }
    }
}

/// Sets one value in the project's `dex-config.json`, keeping everything else in it.
///
/// The whole file is checked before it is written, so that this never makes a file that the
/// next command refuses; a bad file is left as it is, unless the bad value is the one set.
pub fn set_in_project(work_tree: &Path, key: &str, value: Value) -> Result<(), FileError> {
    let path = work_tree.join(PROJECT_FILE);
    let bad = |problem: String| FileError::malformed(&path, problem);
    let Some(known) = keys::find(key) else {
        let hint = match keys::did_you_mean(key) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => String::new(),
        };
        return Err(bad(format!("{key} is not a setting{hint}")));
    };
    let value = known.check(&value).map_err(bad)?;
    let mut fields: Map<String, Value> = match store::read(&path)? {
        Some(bytes) => layers::fields(&path, &bytes)?,
        None => Map::new(),
    };
    match key.split_once('.') {
        None => {
            fields.insert(key.to_owned(), value);
        }
        Some((group, inner)) => {
            let group = fields.entry(group).or_insert_with(|| json!({}));
            let Value::Object(group) = group else {
                return Err(bad(format!(
                    "{key} cannot be set: its group is not an object"
                )));
            };
            group.insert(inner.to_owned(), value);
        }
    }
    let bytes = store::to_json(&fields);
    check_bytes(&path, &bytes)?;
    store::write(work_tree, &path, &bytes)
}

#[cfg(test)]
mod tests;

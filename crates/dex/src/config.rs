//! Settings: where each comes from, what it may be.
//!
//! Precedence: flag, `DEX_*`, the project's `.dex/dex-config.json` (of the main worktree where
//! a linked one has none), the user's `dex/config.json` in the configuration directory, built
//! in. A bad file or value is an error naming file, line, field and what is accepted; never a
//! silent default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::files::store::FileError;

/// Every setting, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which back end.
    pub agent: AgentKind,
    /// Program and arguments, for `command` (and later `acp`).
    pub agent_command: Option<Vec<String>>,
    /// Model.
    pub model: Option<String>,
    /// The project's own verify command, run through the user's shell words, no shell: see
    /// [`Config::verify_argv`].
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
    /// Promotion settings, kept for later commands.
    pub promote: serde_json::Value,
    /// Conflict resolver settings, kept for later commands.
    pub conflict_resolver: serde_json::Value,
    /// Where each value comes from, by dotted key.
    pub origins: BTreeMap<String, Origin>,
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
    /// The environment.
    pub env: &'a BTreeMap<String, String>,
    /// Flags.
    pub flags: &'a Flags,
}

/// Reads and checks every layer.
pub fn load(_sources: &Sources<'_>) -> Result<Config, FileError> {
    todo!()
}

impl Config {
    /// The value of a dotted key as JSON, with its origin; none for an unknown key.
    pub fn get(&self, _key: &str) -> Option<(serde_json::Value, Origin)> {
        todo!()
    }

    /// Every key in documented order, with value and origin.
    pub fn entries(&self) -> Vec<(String, serde_json::Value, Origin)> {
        todo!()
    }
}

/// Sets one value in the project's `dex-config.json`, keeping everything else in it.
pub fn set_in_project(
    _work_tree: &Path,
    _key: &str,
    _value: serde_json::Value,
) -> Result<(), FileError> {
    todo!()
}

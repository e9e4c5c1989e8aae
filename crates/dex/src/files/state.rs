//! `.dex/state.json`: the run as of the commit that holds it. A cache; rides a checkout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The state, version 2 (version 1 is read).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// 2; 1 in files of the existing Dex.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// `running` or `completed` inside commits; older files also `paused`, `failed`.
    pub status: String,
    /// Branch the run was started from.
    pub base_branch: String,
    /// `loop`.
    pub mode: String,
    /// Cycle of the commit; 0 outside cycles.
    pub current_cycle_number: u32,
    /// The stage the commit finished.
    pub last_completed_step: Option<String>,
    /// Spec directory of the feature at work.
    pub current_spec_dir: Option<String>,
    /// Dollars so far; none when nothing reported any.
    pub cumulative_cost_usd: Option<f64>,
    /// Number of `learnings` commits.
    pub cycles_completed: u32,
    /// Slugs.
    pub features_completed: Vec<String>,
    /// Slugs.
    pub features_skipped: Vec<String>,
    /// By slug (by spec directory in older files).
    pub failure_counts: BTreeMap<String, FailureCount>,
    /// What the run was started with.
    pub config: Map<String, Value>,
    /// Files of the run with their digests.
    pub artifacts: Map<String, Value>,
    /// The commit that holds this file, named by its place, and its parent.
    pub last_commit: Option<LastCommit>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How often a feature failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCount {
    /// Cycles that failed from `implement` on.
    pub impl_failures: u32,
    /// Cycles that failed in `plan` or `tasks`.
    pub replan_failures: u32,
}

/// A commit that cannot name itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCommit {
    /// `plan:2`; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Its parent; older files: `sha`, the commit before.
    #[serde(alias = "sha")]
    pub parent_sha: String,
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A file of the run, as it was when its stage finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// From the project's root.
    pub path: String,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
    /// SHA-256 over what it was made from, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sha256: Option<String>,
    /// RFC 3339, UTC.
    pub completed_at: String,
}

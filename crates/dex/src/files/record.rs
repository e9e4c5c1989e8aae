//! `.dex/runs/<runId>.json`: one audit record per run.
//!
//! `jq '.totalCostUsd, (.phases | length)'` answers what a run cost and how often an agent
//! worked. The record inside a stage's commit already holds that stage's attempt.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A run's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The run.
    pub run_id: String,
    /// `loop`.
    #[serde(default = "loop_mode")]
    pub mode: String,
    /// Model, when configured.
    #[serde(default)]
    pub model: Option<String>,
    /// Agent back end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC; none while it is not over.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// `running`, `completed`; older files also `paused failed stopped crashed`.
    pub status: String,
    /// Sum over [`Record::phases`], in dollars; none when no attempt reported dollars.
    #[serde(default)]
    pub total_cost_usd: Option<f64>,
    /// Sum over [`Record::phases`], milliseconds.
    #[serde(default)]
    pub total_duration_ms: Option<u64>,
    /// Number of `learnings` commits.
    #[serde(default)]
    pub cycles_completed: u32,
    /// The goal file, from the project's root.
    #[serde(default)]
    pub description_file: Option<String>,
    /// Branch the run was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Commit the run was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_sha: Option<String>,
    /// The run this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The commit it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    /// Whether changes were verified by a command, and which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_command: Option<String>,
    /// Every attempt of an agent, in order. Older files: `agentRuns`.
    #[serde(default, alias = "agentRuns")]
    pub phases: Vec<Phase>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn loop_mode() -> String {
    "loop".to_owned()
}

/// One attempt of an agent (or of a stage that needs none).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// UUIDv7. Older files: `agentRunId`, `phaseTraceId`.
    #[serde(alias = "agentRunId", alias = "phaseTraceId")]
    pub phase_id: String,
    /// Stage name; older files: `step`, which is null for parts of `implement`.
    #[serde(default, alias = "step")]
    pub stage: Option<String>,
    /// Cycle; older files: `cycleNumber`.
    #[serde(default, alias = "cycleNumber")]
    pub cycle: Option<u32>,
    /// Feature slug; older files: `featureSlug`.
    #[serde(default, alias = "featureSlug")]
    pub feature: Option<String>,
    /// Number of the part of `tasks.md`, for an attempt at one part of `implement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_phase: Option<u32>,
    /// Agent back end; none for a stage without an agent.
    #[serde(default)]
    pub agent: Option<String>,
    /// Model, when told.
    #[serde(default)]
    pub model: Option<String>,
    /// The agent's session.
    #[serde(default)]
    pub session_id: Option<String>,
    /// What sandbox was in force.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// Milliseconds.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// Dollars this attempt added; none when the back end reports none.
    #[serde(default)]
    pub cost_usd: Option<f64>,
    /// Input tokens.
    #[serde(default)]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default)]
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// How it ended.
    pub status: PhaseStatus,
    /// Why, when it did not complete: `time_out`, `agent_error`, `quota` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The commit it started from.
    #[serde(default)]
    pub parent_sha: Option<String>,
    /// `plan:2`, when its commit is this record's commit or an earlier one.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// How the work was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// What the cycle came to; on `learnings` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_outcome: Option<CycleOutcome>,
    /// What gap analysis decided; on `gap_analysis` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Files its commit changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<u64>,
    /// Paths left out of its commit, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Answers that were assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<Assumption>,
    /// Commits the agent made, folded into the stage's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_commits: Vec<String>,
    /// What the agent changed in git or in `.dex/` that was put back or only noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<String>,
    /// What it did, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<agents::transcript::Step>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseStatus {
    /// Older files only.
    Running,
    /// It finished.
    Completed,
    /// It failed.
    Failed,
    /// A person, a cap or a quota ended it.
    Stopped,
    /// We died while it ran.
    Crashed,
    /// A resume or a replan made it unnecessary.
    Skipped,
}

/// How a stage's work was verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// The command, none when there is none.
    pub command: Option<String>,
    /// Its exit status.
    pub exit: Option<i32>,
    /// `command`, or `word` when only the agent says so.
    pub by: VerifiedBy,
    /// The result.
    pub passed: bool,
    /// Blocking failures and the end of the output, bounded, redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Who says that it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifiedBy {
    /// The project's own command, run by us.
    Command,
    /// The agent's word.
    Word,
}

/// What a cycle came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CycleOutcome {
    /// The feature is verified.
    Completed,
    /// It is not; the feature stays active.
    Failed,
    /// The feature was given up.
    Skipped,
}

/// What a cycle does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Decision {
    /// The next pending feature, from its spec on.
    NextFeature,
    /// The active feature, from `plan` on.
    ReplanFeature,
    /// The active feature, from `implement` on.
    ResumeFeature,
}

/// A path a commit left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Path, lossily decoded.
    pub path: String,
    /// `nested_repository`, `too_large`.
    pub reason: String,
    /// Bytes, when that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// An answer nobody gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assumption {
    /// The question.
    pub question: String,
    /// What was taken.
    pub answer: String,
    /// `assumed`, or `person`.
    pub by: String,
}

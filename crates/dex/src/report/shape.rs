//! The shape of a report: what `--json` prints, field for field.

use gitdb::repo::FileStat;
use serde::Serialize;

use super::Next;
use crate::files::record::{Assumption, LeftOut, PhaseStatus, VerifiedBy};

/// A run's report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Of this shape; always 1.
    pub version: u32,
    /// The run's id.
    pub run_id: String,
    /// Its branch.
    pub branch: Option<String>,
    /// The commit its branch is at.
    pub tip: Option<String>,
    /// `running paused needs_input completed`.
    pub status: &'static str,
    /// How the features came out: `good skipped unverified open`.
    pub verdict: &'static str,
    /// Why it stopped before the end: name and words. None for a run that is over or at work.
    pub stopped: Option<Stopped>,
    /// Work that is not committed yet: `half_done ready_to_commit`.
    pub unfinished: Option<Pending>,
    /// Goal file.
    pub goal: Option<String>,
    /// Agent back end.
    pub agent: Option<String>,
    /// Branch it was started from.
    pub base_branch: Option<String>,
    /// Commit it was started from.
    pub base_sha: Option<String>,
    /// The run it was forked from.
    pub parent_run_id: Option<String>,
    /// RFC 3339.
    pub started_at: Option<String>,
    /// RFC 3339.
    pub ended_at: Option<String>,
    /// The project's own verify command; none: everything rests on the agent's word.
    pub verify_command: Option<String>,
    /// Sums over the run.
    pub totals: Totals,
    /// Every feature, in order of the manifest.
    pub features: Vec<FeatureReport>,
    /// Attempts that did not finish their stage, in order.
    pub failed_attempts: Vec<FailedAttempt>,
    /// Stages that a decision made unnecessary.
    pub skipped_stages: Vec<SkippedStage>,
    /// Answers to questions, given by a person or assumed.
    pub assumptions: Vec<Assumed>,
    /// Paths that were left out of a commit.
    pub left_out: Vec<LeftOutAt>,
    /// What an agent changed that was put back, or only noticed.
    pub noticed: Vec<Noticed>,
    /// Advice a person gave with `resume -m`.
    pub notes: Vec<String>,
    /// What did not agree, and what was taken.
    pub differences: Vec<Differing>,
    /// Commands to go on with.
    pub next: Vec<Next>,
}

/// Why a run stopped before its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// The named reason, `budget_exceeded`.
    pub reason: &'static str,
    /// In words.
    pub why: String,
}

/// Work that is not committed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// `half_done`, `ready_to_commit`.
    pub state: &'static str,
    /// `implement:2`.
    pub checkpoint: String,
}

/// Sums over a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Features.
    pub features: usize,
    /// Of these, done.
    pub done: usize,
    /// Of these, begun and not finished.
    pub active: usize,
    /// Of these, given up.
    pub skipped: usize,
    /// Of these, not begun.
    pub pending: usize,
    /// Of the done ones, verified by the project's own command.
    pub verified_by_command: usize,
    /// Cycles with a `learnings` commit.
    pub cycles: u32,
    /// Stages that count.
    pub stages: usize,
    /// Attempts of an agent.
    pub attempts: usize,
    /// From the start to the tip, `.dex/` left out; none when git could not tell.
    pub changes: Option<Changes>,
    /// Dollars; none when no attempt reported any.
    pub cost_usd: Option<f64>,
    /// Milliseconds worked.
    pub duration_ms: u64,
}

/// What changed between two commits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Files.
    pub files: u64,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
}

impl Changes {
    /// Adds up what git told per file.
    pub fn of(files: &[FileStat]) -> Changes {
        Changes {
            files: files.len() as u64,
            added: files.iter().map(|it| it.added).sum(),
            removed: files.iter().map(|it| it.removed).sum(),
        }
    }
}

/// What came of a feature.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FeatureReport {
    /// Number within the manifest.
    pub id: u32,
    /// Its title.
    pub title: String,
    /// Its slug.
    pub slug: String,
    /// `done active skipped pending`.
    pub outcome: Outcome,
    /// Directory of its spec.
    pub spec_dir: Option<String>,
    /// How it was verified.
    pub verified: Verified,
    /// What its commits changed, `.dex/` left out; none before its first commit.
    pub changes: Option<Changes>,
    /// Its cycles.
    pub cycles: Vec<u32>,
    /// Its newest commit.
    pub commit: Option<String>,
    /// Dollars; none when no attempt reported any.
    pub cost_usd: Option<f64>,
    /// Milliseconds worked.
    pub duration_ms: u64,
}

/// Where a feature stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Finished.
    Done,
    /// Begun and not finished.
    Active,
    /// Given up.
    Skipped,
    /// Not begun.
    Pending,
}

/// How a feature was verified, as its newest committed `verify` says.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Who says so: `command`, `word`; none when there was no `verify` yet.
    pub by: Option<VerifiedBy>,
    /// The result.
    pub passed: Option<bool>,
    /// The command.
    pub command: Option<String>,
    /// Its exit status.
    pub exit: Option<i32>,
    /// What failed, bounded.
    pub failures: Vec<String>,
}

/// An attempt that did not finish its stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedAttempt {
    /// `plan:2`.
    pub checkpoint: String,
    /// The feature's slug.
    pub feature: Option<String>,
    /// `failed stopped crashed`.
    pub status: PhaseStatus,
    /// The named reason, when there is one.
    pub reason: Option<String>,
    /// The same stage was tried again after it.
    pub retried: bool,
    /// Dollars it cost.
    pub cost_usd: Option<f64>,
}

/// A stage that was not needed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedStage {
    /// `specify:2`.
    pub checkpoint: String,
    /// The feature's slug.
    pub feature: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// An answer, and the stage that asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Assumed {
    /// The stage that asked.
    pub checkpoint: String,
    /// Question, answer, and who gave it.
    #[serde(flatten)]
    pub assumption: Assumption,
}

/// A path left out, and of which stage's commit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOutAt {
    /// The stage.
    pub checkpoint: String,
    /// Path and reason.
    #[serde(flatten)]
    pub left_out: LeftOut,
}

/// Something noticed in a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Noticed {
    /// The stage.
    pub checkpoint: String,
    /// What.
    pub text: String,
}

/// Something that did not agree.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Differing {
    /// Stable code.
    pub code: &'static str,
    /// In words.
    pub text: String,
}

impl Assumed {
    pub(super) fn at(checkpoint: String, assumption: Assumption) -> Assumed {
        Assumed {
            checkpoint,
            assumption,
        }
    }
}

impl LeftOutAt {
    pub(super) fn at(checkpoint: String, left_out: LeftOut) -> LeftOutAt {
        LeftOutAt {
            checkpoint,
            left_out,
        }
    }
}

impl Noticed {
    pub(super) fn at(checkpoint: String, text: String) -> Noticed {
        Noticed { checkpoint, text }
    }
}

impl Differing {
    pub(super) fn of(difference: &crate::reconcile::Difference) -> Differing {
        Differing {
            code: difference.code,
            text: difference.text.clone(),
        }
    }
}

impl Verified {
    /// The project's own command passed.
    pub fn is_by_command(&self) -> bool {
        self.by == Some(VerifiedBy::Command) && self.passed == Some(true)
    }

    /// In words. Never says more than is known.
    pub fn words(&self) -> String {
        match (self.by, self.passed) {
            (None, _) | (_, None) => "not verified".to_owned(),
            (Some(VerifiedBy::Command), Some(true)) => {
                format!(
                    "verified by command: {}",
                    self.command.as_deref().unwrap_or("?")
                )
            }
            (Some(VerifiedBy::Command), Some(false)) => {
                let command = self.command.as_deref().unwrap_or("the verify command");
                match self.exit {
                    Some(0) => {
                        format!("not verified: {command} passed, the agent says it does not work")
                    }
                    Some(exit) => format!("not verified: {command} failed (exit {exit})"),
                    None => format!("not verified: {command} failed"),
                }
            }
            (Some(VerifiedBy::Word), Some(true)) => {
                "by the agent's word, not verified by a command".to_owned()
            }
            (Some(VerifiedBy::Word), Some(false)) => {
                "not verified: the agent says it does not work".to_owned()
            }
        }
    }
}

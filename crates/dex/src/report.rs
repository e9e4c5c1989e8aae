//! The morning after: what came of a run, as one value. Pure.
//!
//! [`Report`] is what `dex report --json` prints, field for field
//! (`docs/formats/json-output.md`); Markdown and terminal are made from the same value. Nothing
//! of this machine is in it: no process, no path outside the repository. For a run that is over
//! [`settle`] leaves out everything a fresh clone would not have, so that both print the same
//! bytes. What nobody reported is null, never 0.

use std::collections::BTreeMap;

use gitdb::Oid;
use gitdb::repo::FileStat;
use serde::Serialize;

use crate::files::dollars;
use crate::files::manifest::{Feature, Status as FeatureStatus};
use crate::files::record::{Assumption, LeftOut, Phase, PhaseStatus, VerifiedBy};
use crate::live::PauseReason;
use crate::outcome::{self, Verdict};
use crate::progress::{self, Finished};
use crate::reconcile::{Facts, Read, Reconciled, RunStatus, Unfinished, reconcile};
use crate::stage::Stage;

mod next;
pub use next::Next;

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

/// What git has to tell beside the reconciled run.
#[derive(Debug, Clone, Default)]
pub struct Diffs {
    /// From the run's start to its tip.
    pub whole: Option<Changes>,
    /// By slug, over the range of [`ranges`].
    pub features: BTreeMap<String, Changes>,
}

/// From the commit before a feature's first stage to that of its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The feature.
    pub slug: String,
    /// Before.
    pub from: Oid,
    /// After.
    pub to: Oid,
}

/// The run as a report shows it. Of a run that is over, only what its commits say: what this
/// machine knows besides (a work tree on another branch, a file changed since) is no part of
/// what the run did.
pub fn settle(facts: &Facts) -> Reconciled {
    let run = reconcile(facts);
    let over = run
        .progress
        .last()
        .is_some_and(|it| it.place.stage == Stage::Completion);
    if !over {
        return run;
    }
    reconcile(&Facts {
        live: None,
        running: None,
        checked_out: None,
        state_on_disk: Read::Absent,
        remote_only: false,
        ..facts.clone()
    })
}

/// Advice given while it ran.
pub fn notes(facts: &Facts, run: &Reconciled) -> Vec<String> {
    let recorded = facts.record.got().and_then(|it| it.more.get("notes"));
    let recorded = recorded.and_then(|it| it.as_array()).into_iter().flatten();
    let recorded = recorded
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect();
    match &facts.live {
        // Every commit's record takes all of them, so the live list is the longer one.
        Some(live) if run.status != RunStatus::Completed => live.notes.clone(),
        _ => recorded,
    }
}

/// What to ask git: one range for each feature that has commits.
pub fn ranges(run: &Reconciled) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for stage in &run.progress.done {
        let Some(slug) = &stage.place.feature else {
            continue;
        };
        match ranges.iter_mut().find(|it| it.slug == *slug) {
            Some(range) => range.to = stage.commit.clone(),
            None => ranges.extend(stage.parent.clone().map(|from| Range {
                slug: slug.clone(),
                from,
                to: stage.commit.clone(),
            })),
        }
    }
    ranges
}

/// Makes the report.
pub fn report(run: &Reconciled, notes: Vec<String>, diffs: &Diffs) -> Report {
    let features: Vec<FeatureReport> = run
        .features
        .iter()
        .map(|it| feature(run, it, diffs))
        .collect();
    let verdict = match outcome::verdict(run) {
        Verdict::Good => "good",
        Verdict::Skipped => "skipped",
        Verdict::Unverified => "unverified",
        Verdict::Open => "open",
    };
    let at_rest = matches!(run.status, RunStatus::Paused | RunStatus::NeedsInput);
    let mut report = Report {
        version: 1,
        run_id: run.run_id.clone(),
        branch: run.branch.clone(),
        tip: run.tip.as_ref().map(Oid::to_string),
        status: run.status.name(),
        verdict,
        stopped: run.pause.as_ref().filter(|_| at_rest).map(|it| Stopped {
            reason: it.reason.name(),
            why: it.why.clone(),
        }),
        unfinished: pending(run),
        goal: run.goal.clone(),
        agent: run.agent.clone(),
        base_branch: run.base_branch.clone(),
        base_sha: run.base_sha.clone(),
        parent_run_id: run.parent_run_id.clone(),
        started_at: run.started_at.clone(),
        ended_at: run.ended_at.clone(),
        verify_command: run.verify_command.clone(),
        totals: totals(run, &features, diffs.whole),
        features,
        failed_attempts: run.phases.iter().filter_map(failed).collect(),
        skipped_stages: run.phases.iter().filter_map(skipped).collect(),
        assumptions: each(
            run,
            |it| &it.assumptions,
            |checkpoint, assumption| Assumed {
                checkpoint,
                assumption,
            },
        ),
        left_out: each(
            run,
            |it| &it.left_out,
            |checkpoint, left_out| LeftOutAt {
                checkpoint,
                left_out,
            },
        ),
        noticed: each(
            run,
            |it| &it.noticed,
            |checkpoint, text| Noticed { checkpoint, text },
        ),
        notes,
        differences: run
            .differences
            .iter()
            .map(|it| Differing {
                code: it.code,
                text: it.text.clone(),
            })
            .collect(),
        next: Vec::new(),
    };
    report.next = next::commands(run, &report);
    report
}

fn pending(run: &Reconciled) -> Option<Pending> {
    let (state, place) = match &run.unfinished {
        Unfinished::None => return None,
        Unfinished::HalfDone(place) => ("half_done", place),
        Unfinished::ReadyToCommit(place) => ("ready_to_commit", place),
    };
    Some(Pending {
        state,
        checkpoint: place.checkpoint(),
    })
}

fn totals(run: &Reconciled, features: &[FeatureReport], changes: Option<Changes>) -> Totals {
    let count = |wanted| features.iter().filter(|it| it.outcome == wanted).count();
    Totals {
        features: features.len(),
        done: count(Outcome::Done),
        active: count(Outcome::Active),
        skipped: count(Outcome::Skipped),
        pending: count(Outcome::Pending),
        verified_by_command: features
            .iter()
            .filter(|it| it.outcome == Outcome::Done && it.verified.is_by_command())
            .count(),
        cycles: run.progress.cycles_completed,
        stages: run.progress.done.len(),
        attempts: run.phases.iter().filter(|it| it.agent.is_some()).count(),
        changes,
        cost_usd: run.cost_micro.map(dollars),
        duration_ms: run.duration_ms,
    }
}

fn feature(run: &Reconciled, feature: &Feature, diffs: &Diffs) -> FeatureReport {
    let slug = feature.slug.clone().unwrap_or_default();
    let phases: Vec<Phase> = run
        .phases
        .iter()
        .filter(|it| it.feature.as_deref() == Some(&slug))
        .cloned()
        .collect();
    let stages = || {
        run.progress
            .done
            .iter()
            .filter(|it| it.place.feature.as_deref() == Some(&slug))
    };
    let mut cycles: Vec<u32> = stages().map(|it| it.place.cycle).collect();
    cycles.dedup();
    FeatureReport {
        id: feature.id,
        title: feature.title.clone(),
        outcome: match feature.status {
            FeatureStatus::Completed => Outcome::Done,
            FeatureStatus::Active => Outcome::Active,
            FeatureStatus::Skipped => Outcome::Skipped,
            FeatureStatus::Pending => Outcome::Pending,
        },
        spec_dir: feature.spec_dir.clone(),
        verified: verified(run, &phases),
        changes: diffs.features.get(&slug).copied(),
        cycles,
        commit: stages().next_back().map(|it| it.commit.to_string()),
        cost_usd: progress::cost_micro(&phases).map(dollars),
        duration_ms: progress::duration_ms(&phases),
        slug,
    }
}

/// The newest `verify` whose commit still counts: a reverted one says nothing.
fn verified(run: &Reconciled, phases: &[Phase]) -> Verified {
    let counts = |it: &&Phase| {
        it.status == PhaseStatus::Completed
            && it
                .cycle
                .is_some_and(|cycle| run.progress.count(Stage::Verify, cycle) > 0)
    };
    let newest = phases
        .iter()
        .rev()
        .filter(counts)
        .find_map(|it| it.verify.as_ref());
    newest.map_or_else(Verified::default, |it| Verified {
        by: Some(it.by),
        passed: Some(it.passed),
        command: it.command.clone(),
        exit: it.exit,
        failures: it.failures.clone(),
    })
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

/// `plan:2` of an attempt, also of one that never got a commit.
pub fn checkpoint_of(phase: &Phase) -> String {
    let stage = phase.stage.as_deref().unwrap_or("?");
    phase
        .checkpoint
        .clone()
        .unwrap_or_else(|| format!("{stage}:{}", phase.cycle.unwrap_or(0)))
}

fn failed(phase: &Phase) -> Option<FailedAttempt> {
    match phase.status {
        PhaseStatus::Failed | PhaseStatus::Stopped | PhaseStatus::Crashed => Some(FailedAttempt {
            checkpoint: checkpoint_of(phase),
            feature: phase.feature.clone(),
            status: phase.status,
            reason: phase.reason.clone(),
            retried: phase.retried,
            cost_usd: phase.cost_usd,
        }),
        PhaseStatus::Running | PhaseStatus::Completed | PhaseStatus::Skipped => None,
    }
}

fn skipped(phase: &Phase) -> Option<SkippedStage> {
    (phase.status == PhaseStatus::Skipped).then(|| SkippedStage {
        checkpoint: checkpoint_of(phase),
        feature: phase.feature.clone(),
        reason: phase.reason.clone(),
    })
}

/// Every item of every attempt, each with its stage.
fn each<T: Clone, U>(
    run: &Reconciled,
    items: impl Fn(&Phase) -> &Vec<T>,
    make: impl Fn(String, T) -> U,
) -> Vec<U> {
    let mut all = Vec::new();
    for phase in &run.phases {
        all.extend(
            items(phase)
                .iter()
                .cloned()
                .map(|it| make(checkpoint_of(phase), it)),
        );
    }
    all
}

/// The attempts that led to a stage's commit, the one that finished it last. Empty when the
/// record knows of none.
pub fn attempts_at<'r>(run: &'r Reconciled, stage: &Finished) -> Vec<&'r Phase> {
    let place = &stage.place;
    let of_place: Vec<&Phase> = run.phases[..run.committed_phases]
        .iter()
        .filter(|it| {
            it.stage.as_deref() == Some(place.stage.name()) && it.cycle.unwrap_or(0) == place.cycle
        })
        .collect();
    // Finished parts of `implement` are complete too, but only a commit has a parent. Records of
    // the existing Dex name no parents.
    let ours = of_place.iter().any(|it| it.parent_sha.is_some());
    let closes =
        |it: &&Phase| it.status == PhaseStatus::Completed && (!ours || it.parent_sha.is_some());
    let groups: Vec<&[&Phase]> = of_place.split_inclusive(closes).collect();
    let parent = stage.parent.as_ref().map(Oid::as_str);
    let of_parent = |it: &&&[&Phase]| {
        it.last()
            .is_some_and(|last| ours && last.parent_sha.as_deref() == parent)
    };
    let progress = &run.progress;
    let nth = || {
        let mut same: Vec<&Finished> = progress
            .done
            .iter()
            .chain(&progress.reverted)
            .filter(|it| it.place.stage == place.stage && it.place.cycle == place.cycle)
            .collect();
        same.sort_by_key(|it| it.time_unix);
        same.iter().position(|it| it.commit == stage.commit)
    };
    match groups.iter().find(of_parent) {
        Some(group) => group.to_vec(),
        None if ours => Vec::new(),
        None => nth()
            .and_then(|n| groups.get(n))
            .map(|it| it.to_vec())
            .unwrap_or_default(),
    }
}

/// Whether a pause is one that more money or cycles end.
fn is_cap(reason: PauseReason) -> bool {
    matches!(
        reason,
        PauseReason::BudgetExceeded | PauseReason::MaxCyclesReached
    )
}

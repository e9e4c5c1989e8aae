//! The morning after: what came of a run, as one value. Pure.
//!
//! [`Report`] is what `dex report --json` prints, field for field
//! (`docs/formats/json-output.md`); Markdown and terminal are made from the same value. Nothing
//! of this machine is in it: no process, no path outside the repository. For a run that is over
//! [`settle`] leaves out everything a fresh clone would not have, so that both print the same
//! bytes. What nobody reported is null, never 0.

use std::collections::BTreeMap;

use gitdb::Oid;

use crate::files::dollars;
use crate::files::manifest::{Feature, Status as FeatureStatus};
use crate::files::record::{Phase, PhaseStatus};
use crate::live::PauseReason;
use crate::outcome::{self, Verdict};
use crate::progress::{self, Finished};
use crate::reconcile::{Facts, Read, Reconciled, RunStatus, Unfinished, reconcile};
use crate::stage::Stage;

mod next;
mod shape;

pub use next::Next;
pub use shape::{
    Assumed, Changes, Differing, FailedAttempt, FeatureReport, LeftOutAt, Noticed, Outcome,
    Pending, Report, SkippedStage, Stopped, Totals, Verified,
};

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
    let mut report = Report {
        version: 1,
        run_id: run.run_id.clone(),
        branch: run.branch.clone(),
        tip: run.tip.as_ref().map(Oid::to_string),
        status: run.status.name(),
        verdict: verdict(run),
        stopped: stopped(run),
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
        assumptions: each(run, |it| &it.assumptions, Assumed::at),
        left_out: each(run, |it| &it.left_out, LeftOutAt::at),
        noticed: each(run, |it| &it.noticed, Noticed::at),
        notes,
        differences: run.differences.iter().map(Differing::of).collect(),
        next: Vec::new(),
    };
    report.next = next::commands(run, &report);
    report
}

fn verdict(run: &Reconciled) -> &'static str {
    match outcome::verdict(run) {
        Verdict::Good => "good",
        Verdict::Skipped => "skipped",
        Verdict::Unverified => "unverified",
        Verdict::Open => "open",
    }
}

fn stopped(run: &Reconciled) -> Option<Stopped> {
    let at_rest = matches!(run.status, RunStatus::Paused | RunStatus::NeedsInput);
    let pause = run.pause.as_ref().filter(|_| at_rest)?;
    Some(Stopped {
        reason: pause.reason.name(),
        why: pause.why.clone(),
    })
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

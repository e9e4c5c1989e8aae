//! The commands to go on with. Each one works as it is printed.

use serde::Serialize;

use super::{Outcome, Report, is_cap};
use crate::live::PauseReason;
use crate::reconcile::{Reconciled, RunStatus, Unfinished};
use crate::stage::Stage;

/// A command, and what for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Next {
    /// To be typed.
    pub command: String,
    /// What for.
    pub why: String,
}

fn next(command: impl Into<String>, why: impl Into<String>) -> Next {
    Next {
        command: command.into(),
        why: why.into(),
    }
}

pub(super) fn commands(run: &Reconciled, report: &Report) -> Vec<Next> {
    let branch = run.branch.as_deref().unwrap_or_default();
    let mut all = match &run.status {
        RunStatus::Running { .. } => vec![
            next("dex status --watch", "follow it"),
            next("dex log -f", "see what the agent does"),
            next("dex stop", "stop after the stage in progress"),
        ],
        RunStatus::NeedsInput => vec![
            next(
                format!("dex answer --run {branch}"),
                "see the question and answer it",
            ),
            next(format!("dex resume {branch}"), "go on afterwards"),
        ],
        RunStatus::Paused => paused(run, branch),
        RunStatus::Completed => completed(run, report, branch),
    };
    if run.progress.last().is_some() && !matches!(run.status, RunStatus::Running { .. }) {
        all.extend(look(run, branch));
    }
    all
}

fn paused(run: &Reconciled, branch: &str) -> Vec<Next> {
    if let Unfinished::HalfDone(place) = &run.unfinished {
        let label = place.label();
        return vec![
            next(
                format!("dex resume {branch} --keep"),
                format!("go on from the files {label} left behind"),
            ),
            next(
                format!("dex resume {branch} --discard"),
                format!("put the files back to before {label} and work on it again"),
            ),
        ];
    }
    let reason = run.pause.as_ref().map(|it| it.reason);
    let of_stage = run.pause.as_ref().is_some_and(|it| it.of_stage);
    let more = match reason {
        Some(PauseReason::BudgetExceeded) if of_stage => " --stage-budget USD",
        Some(PauseReason::BudgetExceeded) => " --budget USD",
        Some(PauseReason::MaxCyclesReached) => " --cycles N",
        Some(PauseReason::ConsecutiveFailures) => " -m \"what to do differently\"",
        _ => "",
    };
    let why = match reason {
        Some(reason) if is_cap(reason) => "go on with a higher limit",
        Some(PauseReason::ConsecutiveFailures) => "try again with advice",
        _ => "go on where it stopped",
    };
    vec![next(format!("dex resume {branch}{more}"), why)]
}

fn completed(run: &Reconciled, report: &Report, branch: &str) -> Vec<Next> {
    let mut all = Vec::new();
    let begun = |outcome| matches!(outcome, Outcome::Active | Outcome::Skipped);
    for feature in report.features.iter().filter(|it| begun(it.outcome)) {
        let cycle = feature.cycles.last().copied();
        let first = cycle.filter(|it| run.progress.count(Stage::GapAnalysis, *it) > 0);
        if let Some(cycle) = first {
            let id = branch.rsplit('-').next().unwrap_or(branch);
            all.push(next(
                format!(
                    "dex resume --from {id}@gap_analysis:{cycle} -m \"what to do differently\""
                ),
                format!("try {} again in a new run", feature.slug),
            ));
        }
    }
    if let Some(base) = &run.base_branch
        && base != "HEAD"
        && plain(base)
    {
        all.push(next(
            format!("git switch {base} && git merge --no-ff {branch}"),
            format!("take all of it into {base}"),
        ));
    }
    all
}

/// How to look at what there is.
fn look(run: &Reconciled, branch: &str) -> Vec<Next> {
    let mut all = Vec::new();
    if let (Some(base), Some(tip)) = (&run.base_sha, &run.tip)
        && base.len() >= 12
    {
        all.push(next(
            format!(
                "git diff {} {} -- . ':!.dex'",
                &base[..12],
                &tip.as_str()[..12]
            ),
            "everything it changed",
        ));
    }
    all.push(next(
        format!("dex log {branch}"),
        "what the agent did, step by step",
    ));
    all
}

/// A branch name that a shell takes as it is.
fn plain(name: &str) -> bool {
    !name.starts_with('-')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-'))
}

//! What a run does next. Pure: from the reconciled state to a step, or a named reason to stop.

use crate::files::manifest::{Feature, Status as FeatureStatus};
use crate::files::record::{CycleOutcome, Decision, Phase, PhaseStatus};
use crate::live::{PauseReason, Settings};
use crate::reconcile::Reconciled;
use crate::stage::{Place, Stage};

/// Failures in a row that end a run.
pub const MAX_CONSECUTIVE_FAILURES: u32 = 3;
/// Failures in `plan` or `tasks` after which a feature is given up.
pub const MAX_REPLAN_FAILURES: u32 = 3;
/// Failures from `implement` on after which a feature is planned anew.
pub const MAX_IMPL_FAILURES: u32 = 3;
/// Attempts at a once-per-run stage before the run stops.
pub const MAX_ONCE_ATTEMPTS: u32 = 2;
/// Attempts at asking an agent how to go on with a feature before it is simply gone on with.
pub const MAX_GAP_ATTEMPTS: u32 = 2;

/// The next step of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Work on a stage.
    Stage(Box<Step>),
    /// Everything in the manifest is settled: write the last commit.
    Complete,
    /// Nothing more to do: the run is over.
    Over,
    /// Stop, for a named reason.
    Stop {
        /// The reason.
        reason: PauseReason,
        /// Why, for people: what was counted and what the bound is.
        why: String,
    },
}

/// A stage to work on.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Where in the run.
    pub place: Place,
    /// How.
    pub how: How,
    /// Title and description of the feature.
    pub feature: Option<Feature>,
    /// Why this and nothing else, for people.
    pub why: String,
}

/// How a stage is worked on.
#[derive(Debug, Clone, PartialEq)]
pub enum How {
    /// By an agent.
    Agent,
    /// Gap analysis without an agent: its decision is certain.
    Decided(Decision),
    /// Closing a cycle, with an agent unless the agent is what failed.
    Close {
        /// What the cycle came to.
        outcome: CycleOutcome,
        /// Whether an agent is asked for learnings.
        with_agent: bool,
    },
}

/// Decides.
pub fn next(run: &Reconciled, settings: &Settings) -> Next {
    if run.progress.has(Stage::Completion) {
        return Next::Over;
    }
    let next = decide(run, settings);
    // What costs nothing is done all the same: a run whose last dollar bought its last stage is
    // over, and a cycle whose agent failed is closed.
    let free = match &next {
        Next::Complete | Next::Over | Next::Stop { .. } => true,
        Next::Stage(step) => match step.how {
            How::Close { with_agent, .. } => !with_agent,
            How::Agent | How::Decided(_) => false,
        },
    };
    if free {
        return next;
    }
    budget(run, settings).unwrap_or(next)
}

fn decide(run: &Reconciled, settings: &Settings) -> Next {
    for stage in ONCE {
        if !run.progress.has(stage) {
            return once(run, stage);
        }
    }
    match run.progress.open_cycle() {
        Some(cycle) => in_cycle(run, cycle, settings),
        None => new_cycle(run, settings),
    }
}

const ONCE: [Stage; 5] = [
    Stage::ClarificationProduct,
    Stage::ClarificationTechnical,
    Stage::ClarificationSynthesis,
    Stage::Constitution,
    Stage::ManifestExtraction,
];

fn budget(run: &Reconciled, settings: &Settings) -> Option<Next> {
    let spent = run.cost_micro.unwrap_or(0);
    (spent >= settings.max_budget_micro_usd).then(|| Next::Stop {
        reason: PauseReason::BudgetExceeded,
        why: format!(
            "${:.2} of ${:.2} is spent",
            crate::files::dollars(spent),
            crate::files::dollars(settings.max_budget_micro_usd)
        ),
    })
}

fn once(run: &Reconciled, stage: Stage) -> Next {
    let failed = failures_since_commit(run, stage, 0);
    if failed >= MAX_ONCE_ATTEMPTS {
        return Next::Stop {
            reason: PauseReason::ConsecutiveFailures,
            why: format!("{stage} failed {failed} times in a row"),
        };
    }
    let why = "it is the next stage that runs once".to_owned();
    Next::Stage(Box::new(Step {
        place: Place::once(stage),
        how: How::Agent,
        feature: None,
        why,
    }))
}

/// Failed attempts at a stage that no commit of it followed.
fn failures_since_commit(run: &Reconciled, stage: Stage, cycle: u32) -> u32 {
    let of_stage =
        |it: &&Phase| it.stage.as_deref() == Some(stage.name()) && it.cycle.unwrap_or(0) == cycle;
    let since = run.phases[run.committed_phases..].iter().filter(of_stage);
    // A part of `implement` that finished is no end of the failures of the whole.
    since
        .rev()
        .filter(|it| it.status == PhaseStatus::Failed && !it.retried)
        .count() as u32
}

fn new_cycle(run: &Reconciled, settings: &Settings) -> Next {
    let wanted = run
        .features
        .iter()
        .find(|it| it.status == FeatureStatus::Active)
        .or_else(|| {
            run.features
                .iter()
                .find(|it| it.status == FeatureStatus::Pending)
        });
    let Some(feature) = wanted else {
        return Next::Complete;
    };
    let failed = run.outcomes.consecutive_failures;
    if failed >= MAX_CONSECUTIVE_FAILURES {
        return Next::Stop {
            reason: PauseReason::ConsecutiveFailures,
            why: format!("{failed} cycles failed in a row"),
        };
    }
    if run.progress.cycles_completed >= settings.max_cycles {
        return Next::Stop {
            reason: PauseReason::MaxCyclesReached,
            why: format!(
                "{} of {} cycles are done and {} is not finished",
                run.progress.cycles_completed, settings.max_cycles, feature.title
            ),
        };
    }
    let cycle = run.progress.next_cycle();
    let place = in_place(Stage::GapAnalysis, cycle, feature);
    let (how, why) = gap(run, feature, cycle);
    Next::Stage(Box::new(Step {
        place,
        how,
        feature: Some(feature.clone()),
        why,
    }))
}

/// What gap analysis can say by itself; an agent is asked only where it cannot.
fn gap(run: &Reconciled, feature: &Feature, cycle: u32) -> (How, String) {
    let counts = feature
        .slug
        .as_ref()
        .and_then(|it| run.outcomes.failures.get(it));
    let impl_failures = counts.map_or(0, |it| it.impl_failures);
    match (&feature.spec_dir, feature.status) {
        (None, _) | (Some(_), FeatureStatus::Pending) => (
            How::Decided(Decision::NextFeature),
            format!("{} is next", feature.title),
        ),
        (Some(_), _) if impl_failures >= MAX_IMPL_FAILURES => (
            How::Decided(Decision::ReplanFeature),
            format!(
                "{} failed {impl_failures} times; it is planned anew",
                feature.title
            ),
        ),
        // There is no plan to go on with, so there is nothing to ask.
        (Some(_), _)
            if finished(run, feature, Stage::Specify) && !finished(run, feature, Stage::Tasks) =>
        {
            (
                How::Decided(Decision::ReplanFeature),
                format!("{} is specified and not planned", feature.title),
            )
        }
        // The second try at asking failed too: going on with what is there is always possible.
        (Some(_), _)
            if failures_since_commit(run, Stage::GapAnalysis, cycle) >= MAX_GAP_ATTEMPTS =>
        {
            (
                How::Decided(Decision::ResumeFeature),
                "the agent could not decide".to_owned(),
            )
        }
        (Some(_), _) => (
            How::Agent,
            format!("{} is begun and not finished", feature.title),
        ),
    }
}

/// Whether a stage of a feature finished in any cycle.
fn finished(run: &Reconciled, feature: &Feature, stage: Stage) -> bool {
    let mut done = run.progress.done.iter();
    done.any(|it| it.place.stage == stage && it.place.feature == feature.slug)
}

fn in_cycle(run: &Reconciled, cycle: u32, settings: &Settings) -> Next {
    let last = run.progress.last().expect("an open cycle has a commit");
    let feature = feature_at_work(run, last.place.feature.as_deref());
    let following = following(run, cycle, last.place.stage, settings);
    let failed = following != Stage::Learnings && failures_since_commit(run, following, cycle) > 0;
    let stage = if failed { Stage::Learnings } else { following };
    let place = Place {
        stage,
        cycle,
        feature: last.place.feature.clone(),
    };
    let (how, why) = if stage == Stage::Learnings {
        close(run, cycle, feature.as_ref(), failed.then_some(following))
    } else {
        (How::Agent, format!("it follows {}", last.place.stage))
    };
    Next::Stage(Box::new(Step {
        place,
        how,
        feature,
        why,
    }))
}

/// The stage after `last` in a cycle.
fn following(run: &Reconciled, cycle: u32, last: Stage, settings: &Settings) -> Stage {
    let verified = run.last_verify(cycle);
    match last {
        Stage::GapAnalysis => match run.decision(cycle) {
            Some(Decision::ReplanFeature) => Stage::Plan,
            Some(Decision::ResumeFeature) => Stage::Implement,
            Some(Decision::NextFeature) | None => Stage::Specify,
        },
        Stage::Specify => Stage::Plan,
        Stage::Plan => Stage::Tasks,
        Stage::Tasks => Stage::Implement,
        Stage::Implement | Stage::ImplementFix => Stage::Verify,
        Stage::Verify => match verified {
            Some(verify) if verify.passed => Stage::Learnings,
            Some(_)
                if run.progress.count(Stage::ImplementFix, cycle) < settings.max_verify_retries =>
            {
                Stage::ImplementFix
            }
            Some(_) => Stage::Learnings,
            // A commit without a record: nobody knows how it ended, so it is done again.
            None => Stage::Verify,
        },
        Stage::Learnings
        | Stage::Prerequisites
        | Stage::ClarificationProduct
        | Stage::ClarificationTechnical
        | Stage::ClarificationSynthesis
        | Stage::Constitution
        | Stage::ManifestExtraction
        | Stage::Completion => Stage::Learnings,
    }
}

/// How a cycle is closed. `failed`: the stage whose attempt failed.
fn close(
    run: &Reconciled,
    cycle: u32,
    feature: Option<&Feature>,
    failed: Option<Stage>,
) -> (How, String) {
    let Some(stage) = failed else {
        let passed = run.last_verify(cycle).is_some_and(|it| it.passed);
        let retry = failures_since_commit(run, Stage::Learnings, cycle) == 0;
        return if passed {
            (
                How::Close {
                    outcome: CycleOutcome::Completed,
                    with_agent: retry,
                },
                "it is verified".into(),
            )
        } else {
            let why = "verify still fails after every retry".into();
            (
                How::Close {
                    outcome: CycleOutcome::Failed,
                    with_agent: retry,
                },
                why,
            )
        };
    };
    let before = feature
        .and_then(|it| it.slug.as_ref())
        .and_then(|slug| run.outcomes.failures.get(slug))
        .map_or(0, |it| it.replan_failures);
    let in_plan = matches!(stage, Stage::Plan | Stage::Tasks);
    let no_spec = stage == Stage::Specify && feature.is_none_or(|it| it.spec_dir.is_none());
    let give_up = no_spec || (in_plan && before + 1 >= MAX_REPLAN_FAILURES);
    let outcome = if give_up {
        CycleOutcome::Skipped
    } else {
        CycleOutcome::Failed
    };
    (
        How::Close {
            outcome,
            with_agent: false,
        },
        format!("{stage} failed"),
    )
}

fn feature_at_work(run: &Reconciled, slug: Option<&str>) -> Option<Feature> {
    run.features
        .iter()
        .find(|it| it.slug.as_deref() == slug)
        .cloned()
}

fn in_place(stage: Stage, cycle: u32, feature: &Feature) -> Place {
    Place {
        stage,
        cycle,
        feature: feature.slug.clone(),
    }
}

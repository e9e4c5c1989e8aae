//! An attempt as an element of the run's record. Pure.

use serde_json::Map;

use crate::files::dollars;
use crate::files::record::{Phase, PhaseStatus};
use crate::live::{Attempt, Finished};
use crate::stage::Place;

/// How an attempt that did not finish its stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// RFC 3339, UTC.
    pub at: String,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// The named reason.
    pub reason: String,
    /// Whether the same stage is tried again, so that it does not count as the stage's failure.
    pub retried: bool,
}

/// An attempt that is not (or not yet) finished.
pub fn of_attempt(attempt: &Attempt, status: PhaseStatus, ending: Option<&Ending>) -> Phase {
    Phase {
        phase_id: attempt.phase_id.clone(),
        stage: Some(attempt.stage.name().to_owned()),
        cycle: Some(attempt.cycle),
        feature: attempt.feature.clone(),
        task_phase: attempt.part,
        agent: attempt.agent.clone(),
        model: attempt.model.clone(),
        session_id: attempt.session.clone(),
        sandbox: attempt.sandbox.clone(),
        started_at: attempt.started_at.clone(),
        ended_at: ending.map(|it| it.at.clone()),
        duration_ms: ending.map(|it| it.duration_ms),
        cost_usd: attempt.used.cost_micro_usd.map(dollars),
        input_tokens: attempt.used.input_tokens,
        output_tokens: attempt.used.output_tokens,
        cached_tokens: attempt.used.cached_tokens,
        status,
        reason: ending.map(|it| it.reason.clone()),
        retried: ending.is_some_and(|it| it.retried),
        parent_sha: None,
        checkpoint: None,
        verify: None,
        cycle_outcome: None,
        decision: None,
        files_changed: None,
        left_out: Vec::new(),
        assumptions: Vec::new(),
        agent_commits: Vec::new(),
        noticed: Vec::new(),
        steps: Vec::new(),
        more: Map::new(),
    }
}

/// An attempt whose work is, or is about to be, committed.
pub fn of_finished(done: &Finished) -> Phase {
    let mut phase = of_attempt(&done.attempt, PhaseStatus::Completed, None);
    phase.ended_at = Some(done.ended_at.clone());
    phase.duration_ms = Some(done.duration_ms);
    phase.checkpoint = Some(done.attempt.place().checkpoint());
    phase.verify = done.attempt.verify.clone();
    phase.cycle_outcome = done.cycle_outcome;
    phase.decision = done.attempt.decision;
    phase.left_out = done.left_out.clone();
    phase.assumptions = done.assumptions.clone();
    phase.agent_commits = done.agent_commits.clone();
    phase.noticed = done.noticed.clone();
    phase.steps = done.steps.clone();
    phase
}

/// A stage that a decision made unnecessary.
pub fn skipped(place: &Place, phase_id: String, at: &str, reason: &str) -> Phase {
    let attempt = Attempt {
        phase_id,
        stage: place.stage,
        cycle: place.cycle,
        feature: place.feature.clone(),
        spec_dir: None,
        part: None,
        number: 1,
        started_at: at.to_owned(),
        stopped_at: None,
        agent: None,
        model: None,
        session: None,
        sandbox: None,
        used: crate::live::Used::default(),
        verify: None,
        verified_files: None,
        decision: None,
    };
    let ending = Ending {
        at: at.to_owned(),
        duration_ms: 0,
        reason: reason.to_owned(),
        retried: false,
    };
    of_attempt(&attempt, PhaseStatus::Skipped, Some(&ending))
}

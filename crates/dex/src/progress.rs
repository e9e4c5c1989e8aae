//! How far a run is, from its commits and its record alone. Pure.

use std::collections::{BTreeMap, HashSet};

use gitdb::Oid;
use gitdb::repo::Commit;

use crate::files::record::{CycleOutcome, Decision, Phase, PhaseStatus, Record, Verify};
use crate::files::state::FailureCount;
use crate::stage::{Place, Stage};

/// One finished stage, as a commit says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its commit.
    pub commit: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Its first parent.
    pub parent: Option<Oid>,
    /// Where in the run.
    pub place: Place,
    /// Seconds since 1970; for display.
    pub time_unix: i64,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Stages that count, oldest first. Reverted ones and copies do not.
    pub done: Vec<Finished>,
    /// Stage commits that a later commit reverted.
    pub reverted: Vec<Finished>,
    /// Stage commits that repeat one that counts, as a cherry-pick or a rebase makes them (case
    /// B10). They are ordinary commits with a familiar message.
    pub copies: Vec<Finished>,
    /// Commits of the run's branch that are no stage commits, newest first.
    pub by_hand: Vec<Oid>,
    /// Number of cycles with a `learnings` commit.
    pub cycles_completed: u32,
}

impl Progress {
    /// Reads a branch's commits (newest first, without history from before the run).
    pub fn read(commits: &[Commit]) -> Progress {
        let undone = reverted_ids(commits);
        let mut progress = Progress {
            done: Vec::new(),
            reverted: Vec::new(),
            copies: Vec::new(),
            by_hand: Vec::new(),
            cycles_completed: 0,
        };
        for commit in commits.iter().rev() {
            let place = commit.stage.as_ref().and_then(place_of);
            match place {
                Some(place) => {
                    let finished = Finished {
                        commit: commit.oid.clone(),
                        tree: commit.tree.clone(),
                        parent: commit.parents.first().cloned(),
                        place,
                        time_unix: commit.time_unix,
                    };
                    if undone.contains(commit.oid.as_str()) {
                        progress.reverted.push(finished);
                    } else if progress.is_copy(&finished.place) {
                        progress.copies.push(finished);
                    } else {
                        progress.done.push(finished);
                    }
                }
                None => progress.by_hand.insert(0, commit.oid.clone()),
            }
        }
        let cycles: HashSet<u32> = progress
            .done
            .iter()
            .filter(|it| it.place.stage == Stage::Learnings)
            .map(|it| it.place.cycle)
            .collect();
        progress.cycles_completed = cycles.len() as u32;
        progress
    }

    /// Whether a stage that comes after those in `done` can only be a copy: its cycle is closed,
    /// or it finished before and is none that a cycle repeats.
    fn is_copy(&self, place: &Place) -> bool {
        let closed = place.stage.in_cycle() && self.count(Stage::Learnings, place.cycle) > 0;
        let repeats = matches!(place.stage, Stage::Verify | Stage::ImplementFix);
        closed || (!repeats && self.count(place.stage, place.cycle) > 0)
    }

    /// The newest finished stage.
    pub fn last(&self) -> Option<&Finished> {
        self.done.last()
    }

    /// Whether a stage that runs once has finished.
    pub fn has(&self, stage: Stage) -> bool {
        self.done.iter().any(|it| it.place.stage == stage)
    }

    /// The cycle at work, or none between cycles.
    pub fn open_cycle(&self) -> Option<u32> {
        let last = self.last().filter(|it| it.place.stage.in_cycle())?;
        (last.place.stage != Stage::Learnings).then_some(last.place.cycle)
    }

    /// The number of the next new cycle.
    pub fn next_cycle(&self) -> u32 {
        self.done.iter().map(|it| it.place.cycle).max().unwrap_or(0) + 1
    }

    /// How often a stage finished in a cycle.
    pub fn count(&self, stage: Stage, cycle: u32) -> u32 {
        self.done
            .iter()
            .filter(|it| it.place.stage == stage && it.place.cycle == cycle)
            .count() as u32
    }

    /// The commit a `stage:cycle` names: the newest, or the n-th (from 1).
    pub fn find(&self, stage: Stage, cycle: u32, nth: Option<u32>) -> Option<&Finished> {
        let mut all = self
            .done
            .iter()
            .filter(|it| it.place.stage == stage && it.place.cycle == cycle);
        match nth {
            Some(n) => all.nth(n.checked_sub(1)? as usize),
            None => all.next_back(),
        }
    }

    /// The parent of the first `implement` of a feature: what its code goes back to when it is
    /// given up.
    pub fn before_code_of(&self, feature: &str) -> Option<&Oid> {
        let first = self.done.iter().find(|it| {
            it.place.stage == Stage::Implement && it.place.feature.as_deref() == Some(feature)
        })?;
        first.parent.as_ref()
    }
}

pub(crate) fn place_of(message: &gitdb::checkpoint::StageMessage) -> Option<Place> {
    let stage = message.checkpoint.stage.as_str().parse::<Stage>().ok()?;
    Some(Place {
        stage,
        cycle: message.checkpoint.cycle,
        feature: message
            .feature
            .as_ref()
            .map(|slug| slug.as_str().to_owned()),
    })
}

/// Ids that a later commit says it reverts, in git's own words, and whose revert was not
/// reverted in turn.
pub(crate) fn reverted_ids(commits: &[Commit]) -> HashSet<String> {
    let mut undone: HashSet<String> = HashSet::new();
    // Newest first: a revert that is itself reverted is in the set before we reach it.
    for commit in commits {
        if undone.contains(commit.oid.as_str()) {
            continue;
        }
        for line in commit.message.lines() {
            if let Some(rest) = line.strip_prefix("This reverts commit ") {
                let id: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
                undone.insert(id);
            }
        }
    }
    undone
}

/// What the record says beyond the commits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcomes {
    /// By cycle: what it came to.
    pub cycles: BTreeMap<u32, CycleOutcome>,
    /// By slug.
    pub failures: BTreeMap<String, FailureCount>,
    /// Failed cycles in a row, up to now.
    pub consecutive_failures: u32,
    /// Whether the last failed cycle failed in `verify`.
    pub last_failed_in_verify: bool,
}

/// Folds a record's attempts into what each cycle and feature came to. `forgiven`: cycles up to
/// this one do not count as failures in a row.
pub fn outcomes(phases: &[Phase], forgiven: u32) -> Outcomes {
    let mut result = Outcomes::default();
    for phase in phases {
        let (Some(outcome), Some(cycle)) = (phase.cycle_outcome, phase.cycle) else {
            continue;
        };
        if phase.status != PhaseStatus::Completed {
            continue;
        }
        result.cycles.insert(cycle, outcome);
        let count = phase
            .feature
            .as_ref()
            .map(|slug| result.failures.entry(slug.clone()).or_default());
        match outcome {
            CycleOutcome::Completed => {
                result.consecutive_failures = 0;
                if let Some(count) = count {
                    *count = FailureCount::default();
                }
            }
            CycleOutcome::Failed | CycleOutcome::Skipped => {
                let in_plan = failed_in_plan(phases, cycle);
                if let Some(count) = count {
                    if in_plan {
                        count.replan_failures += 1
                    } else {
                        count.impl_failures += 1
                    }
                }
                // A feature given up after several tries settles them: the next one starts anew.
                // One that could not even be specified is a failure like any other, or a broken
                // agent would skip through the whole manifest.
                if outcome == CycleOutcome::Skipped && in_plan {
                    result.consecutive_failures = 0;
                } else if cycle > forgiven {
                    result.consecutive_failures += 1;
                }
                result.last_failed_in_verify =
                    last_verify(phases, cycle).is_some_and(|v| !v.passed);
            }
        }
    }
    result
}

/// Whether a cycle failed in `plan` or `tasks`.
pub fn failed_in_plan(phases: &[Phase], cycle: u32) -> bool {
    let failed = |it: &&Phase| it.cycle == Some(cycle) && it.status == PhaseStatus::Failed;
    let last_failed = phases.iter().rfind(failed);
    last_failed.is_some_and(|it| {
        let name = it.stage.as_deref();
        let finished_later = phases.iter().any(|later| {
            later.cycle == Some(cycle)
                && later.stage == it.stage
                && later.status == PhaseStatus::Completed
        });
        (name == Some("plan") || name == Some("tasks")) && !finished_later
    })
}

/// The newest verify result of a cycle.
pub fn last_verify(phases: &[Phase], cycle: u32) -> Option<&Verify> {
    phases
        .iter()
        .rev()
        .filter(|it| it.cycle == Some(cycle) && it.status == PhaseStatus::Completed)
        .find_map(|it| it.verify.as_ref())
}

/// What gap analysis decided for a cycle.
pub fn decision(phases: &[Phase], cycle: u32) -> Option<Decision> {
    let mut all = phases.iter().rev().filter(|it| it.cycle == Some(cycle));
    all.find_map(|it| it.decision)
}

/// Micro-dollars of a list of attempts: none when none reported any.
pub fn cost_micro(phases: &[Phase]) -> Option<u64> {
    let mut total = None;
    for cost in phases.iter().filter_map(|it| it.cost_usd) {
        total = Some(total.unwrap_or(0) + crate::files::micro(cost));
    }
    total
}

/// Milliseconds of a list of attempts.
pub fn duration_ms(phases: &[Phase]) -> u64 {
    phases.iter().filter_map(|it| it.duration_ms).sum()
}

/// The attempts of a record, or none of them.
pub fn phases(record: Option<&Record>) -> &[Phase] {
    record.map_or(&[], |it| it.phases.as_slice())
}

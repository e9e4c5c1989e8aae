//! One truth from many files. Pure: no IO, no clock.
//!
//! Progression comes from commits, cost and duration from the record inside the newest commit,
//! what happened since from the live record; `state.json` is a cache and is only compared. Every
//! command and every number shows the result of [`reconcile`], and each difference it had to
//! settle is in [`Reconciled::differences`], so that `dex status` can say it.

use gitdb::Oid;
use gitdb::repo::Commit;

use crate::element;
use crate::files::manifest::{Feature, Manifest, Status as FeatureStatus};
use crate::files::record::{Decision, Phase, PhaseStatus, Record, Verify};
use crate::files::state::State;
use crate::live::{Live, Pause, Question, Work};
use crate::progress::{self, Outcomes, Progress};
use crate::stage::{Place, Stage};

mod unmarked;

pub use unmarked::Unmarked;
use unmarked::unmarked;

/// What was read about a run.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The run's branch, short; none when nothing but a live record is left.
    pub branch: Option<String>,
    /// Its tip; none when the branch is gone.
    pub tip: Option<Oid>,
    /// Whether only a remote-tracking branch was found.
    pub remote_only: bool,
    /// Its commits, newest first, without history from before the run.
    pub commits: Vec<Commit>,
    /// The record at the tip, or why it could not be read.
    pub record: Read<Record>,
    /// The records at the tip of the run this one was forked from, of that one's, and so on.
    pub parents: Vec<Read<Record>>,
    /// The manifest at the tip.
    pub manifest: Read<Manifest>,
    /// The state at the tip.
    pub state: Read<State>,
    /// The state in the work tree, when the run's branch is checked out there.
    pub state_on_disk: Read<State>,
    /// The live record.
    pub live: Option<Live>,
    /// A live process works on it.
    pub running: Option<u32>,
    /// HEAD of its work tree is on its branch; none when that work tree is not here.
    pub checked_out: Option<bool>,
}

/// A file that was looked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Read<T> {
    /// There is none.
    #[default]
    Absent,
    /// It was read.
    Got(T),
    /// It is there and cannot be used; why.
    Bad(String),
}

impl<T> Read<T> {
    /// The value, when there is one.
    pub fn got(&self) -> Option<&T> {
        match self {
            Read::Got(value) => Some(value),
            Read::Absent | Read::Bad(_) => None,
        }
    }
}

/// A run as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconciled {
    /// The run's id; the branch's six digits when nothing else is known.
    pub run_id: String,
    /// Its branch, short.
    pub branch: Option<String>,
    /// Its tip.
    pub tip: Option<Oid>,
    /// What it is doing.
    pub status: RunStatus,
    /// Its finished stages.
    pub progress: Progress,
    /// What cycles and features came to.
    pub outcomes: Outcomes,
    /// Features, with their status as it follows from commits and record.
    pub features: Vec<Feature>,
    /// Every attempt: committed ones, then those since.
    pub phases: Vec<Phase>,
    /// How many of `phases` are in the committed record.
    pub committed_phases: usize,
    /// Attempts of the run it was forked from, up to the fork. They say how inherited stages
    /// went; their cost is that run's.
    pub inherited: Vec<Phase>,
    /// It waits for a quota until then, RFC 3339.
    pub quota_until: Option<String>,
    /// Micro-dollars spent; none when nothing reported any.
    pub cost_micro: Option<u64>,
    /// Micro-dollars it may cost; known where its live record is.
    pub budget_micro: Option<u64>,
    /// Milliseconds worked.
    pub duration_ms: u64,
    /// Work that is not committed.
    pub unfinished: Unfinished,
    /// Why it is not going on.
    pub pause: Option<Pause>,
    /// What a person is asked.
    pub question: Option<Question>,
    /// Goal file.
    pub goal: Option<String>,
    /// RFC 3339.
    pub started_at: Option<String>,
    /// RFC 3339.
    pub ended_at: Option<String>,
    /// Agent back end.
    pub agent: Option<String>,
    /// Branch it was started from.
    pub base_branch: Option<String>,
    /// Commit it was started from.
    pub base_sha: Option<String>,
    /// The run it was forked from.
    pub parent_run_id: Option<String>,
    /// The project's verify command it works with.
    pub verify_command: Option<String>,
    /// Commits that hold a stage's paid work and no longer its message, oldest first.
    pub unmarked: Vec<Unmarked>,
    /// Everything that did not agree, and what was taken.
    pub differences: Vec<Difference>,
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// A process works on it.
    Running {
        /// That process.
        pid: u32,
    },
    /// Nobody works on it; it can be resumed.
    Paused,
    /// It waits for an answer.
    NeedsInput,
    /// It is over.
    Completed,
}

impl RunStatus {
    /// Its name in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            RunStatus::Running { .. } => "running",
            RunStatus::Paused => "paused",
            RunStatus::NeedsInput => "needs_input",
            RunStatus::Completed => "completed",
        }
    }
}

/// Work since the last commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Unfinished {
    /// None.
    None,
    /// An agent was at work when the process died: keep or discard.
    HalfDone(Place),
    /// The agent finished: the next writing command commits it.
    ReadyToCommit(Place),
}

/// Something that did not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Stable code, e.g. `state_differs`.
    pub code: &'static str,
    /// What was found and what was taken, in plain words.
    pub text: String,
}

impl Reconciled {
    /// The newest verify result of a cycle, also an inherited one.
    pub fn last_verify(&self, cycle: u32) -> Option<&Verify> {
        progress::last_verify(&self.phases, cycle)
            .or_else(|| progress::last_verify(&self.inherited, cycle))
    }

    /// What went wrong last with a feature, for whoever goes on with it: what the newest
    /// verification of the cycle found, and before there is one, what ended the feature's cycle
    /// before.
    pub fn failures(&self, place: &Place) -> Vec<String> {
        if let Some(verify) = self.last_verify(place.cycle) {
            return verify_failures(verify);
        }
        let of_feature = |it: &&Phase| {
            it.feature == place.feature && it.cycle.is_some_and(|cycle| cycle < place.cycle)
        };
        let all = self.inherited.iter().chain(&self.phases);
        let earlier: Vec<&Phase> = all.filter(of_feature).collect();
        let Some(cycle) = earlier.iter().filter_map(|it| it.cycle).max() else {
            return Vec::new();
        };
        let in_it = earlier.iter().filter(|it| it.cycle == Some(cycle));
        let verify = in_it.clone().rev().find_map(|it| it.verify.as_ref());
        let failed = in_it.filter(|it| it.status == PhaseStatus::Failed);
        let mut found: Vec<String> = failed
            .filter_map(|it| Some(format!("{}: {}", it.stage.as_ref()?, it.reason.as_ref()?)))
            .collect();
        found.dedup();
        found.extend(verify.map(verify_failures).unwrap_or_default());
        found
    }

    /// What gap analysis decided for a cycle, also for an inherited one.
    pub fn decision(&self, cycle: u32) -> Option<Decision> {
        progress::decision(&self.phases, cycle)
            .or_else(|| progress::decision(&self.inherited, cycle))
    }
}

/// Settles everything that was read about a run.
pub fn reconcile(facts: &Facts) -> Reconciled {
    let progress = Progress::read(&facts.commits);
    let committed = progress::phases(facts.record.got());
    let mut all = committed.to_vec();
    let live = facts.live.as_ref();
    if let Some(live) = live {
        let known = |phase: &Phase| committed.iter().any(|it| it.phase_id == phase.phase_id);
        all.extend(live.attempts.iter().filter(|it| !known(it)).cloned());
        all.extend(at_work(&live.work, facts.running).filter(|it| !known(it)));
    }
    let outcomes = progress::outcomes(&all, live.map_or(0, |it| it.forgiven_cycles));
    let features = features(facts.manifest.got(), &outcomes, &all, &progress);
    let record = facts.record.got();
    let run_id = record
        .map(|it| it.run_id.clone())
        .or(live.map(|it| it.run_id.clone()))
        .or(facts
            .branch
            .as_deref()
            .map(|it| it.rsplit('-').next().unwrap_or(it).to_owned()))
        .unwrap_or_default();
    let start = live.map(|it| &it.start);
    let mut result = Reconciled {
        run_id,
        branch: facts.branch.clone(),
        tip: facts.tip.clone(),
        status: status(facts, &progress),
        cost_micro: progress::cost_micro(&all),
        budget_micro: start.map(|it| it.settings.max_budget_micro_usd),
        duration_ms: progress::duration_ms(&all),
        committed_phases: committed.len(),
        inherited: inherited(facts),
        quota_until: live.and_then(|it| it.quota_until.clone()),
        unfinished: unfinished(live),
        pause: live.and_then(|it| it.pause.clone()),
        question: live.and_then(|it| it.question.clone()),
        goal: start
            .map(|it| it.goal.clone())
            .or(record.and_then(|it| it.description_file.clone())),
        started_at: start
            .map(|it| it.started_at.clone())
            .or(record.map(|it| it.started_at.clone())),
        ended_at: record.and_then(|it| it.ended_at.clone()),
        agent: record
            .and_then(|it| it.agent.clone())
            .or(start.map(|it| it.settings.agent.clone())),
        base_branch: start
            .and_then(|it| it.base_branch.clone())
            .or(record.and_then(|it| it.base_branch.clone()))
            .or(facts.state.got().map(|it| it.base_branch.clone())),
        base_sha: start
            .map(|it| it.base_sha.to_string())
            .or(record.and_then(|it| it.base_sha.clone())),
        parent_run_id: record
            .and_then(|it| it.parent_run_id.clone())
            .or(start.and_then(|it| it.parent_run_id.clone())),
        verify_command: record
            .and_then(|it| it.verify_command.clone())
            .or(start.and_then(|it| it.settings.verify_command.clone())),
        unmarked: unmarked(facts),
        differences: Vec::new(),
        progress,
        outcomes,
        features,
        phases: all,
    };
    result.differences = differences(facts, &result);
    result
}

/// What a verification found, also where only the command says so.
fn verify_failures(verify: &Verify) -> Vec<String> {
    if !verify.failures.is_empty() || verify.passed {
        return verify.failures.clone();
    }
    let command = verify.command.as_deref().unwrap_or("verify");
    let exit = verify.exit.map(|it| format!(" (exit {it})"));
    vec![format!("{command} failed{}", exit.unwrap_or_default())]
}

/// The attempts of the runs this one was forked from, oldest first.
fn inherited(facts: &Facts) -> Vec<Phase> {
    let parents = facts.parents.iter().rev();
    parents
        .flat_map(|it| progress::phases(it.got()))
        .cloned()
        .collect()
}

/// The attempt at work as an element of the record: running while a process works on it,
/// crashed when none does.
fn at_work(work: &Work, running: Option<u32>) -> impl Iterator<Item = Phase> {
    let phase = match work {
        Work::Started(attempt) => {
            let status = if running.is_some() {
                PhaseStatus::Running
            } else {
                PhaseStatus::Crashed
            };
            Some(element::of_attempt(attempt, status, None))
        }
        Work::AgentFinished(done) => Some(element::of_finished(done)),
        Work::Idle | Work::SettingAside { .. } | Work::Committing(_) => None,
    };
    phase.into_iter()
}

fn status(facts: &Facts, progress: &Progress) -> RunStatus {
    if let Some(pid) = facts.running {
        return RunStatus::Running { pid };
    }
    if progress
        .last()
        .is_some_and(|it| it.place.stage == Stage::Completion)
    {
        return RunStatus::Completed;
    }
    match facts.live.as_ref().and_then(|it| it.question.as_ref()) {
        Some(question) if !question.asks.is_empty() => RunStatus::NeedsInput,
        _ => RunStatus::Paused,
    }
}

fn unfinished(live: Option<&Live>) -> Unfinished {
    match live.map(|it| &it.work) {
        Some(Work::Started(attempt)) => Unfinished::HalfDone(attempt.place()),
        Some(Work::AgentFinished(done)) => Unfinished::ReadyToCommit(done.attempt.place()),
        Some(Work::Committing(committing)) => {
            let named = committing
                .checkpoint
                .split_once(':')
                .and_then(|(stage, cycle)| {
                    Some(Place {
                        stage: stage.parse().ok()?,
                        cycle: cycle.parse().ok()?,
                        feature: None,
                    })
                });
            named.map_or(Unfinished::None, Unfinished::ReadyToCommit)
        }
        Some(Work::Idle | Work::SettingAside { .. }) | None => Unfinished::None,
    }
}

/// Features with the status that follows from what their cycles came to. The manifest at the
/// tip says which there are; where it disagrees with the record, the record wins.
fn features(
    manifest: Option<&Manifest>,
    outcomes: &Outcomes,
    phases: &[Phase],
    progress: &Progress,
) -> Vec<Feature> {
    // Until the run has extracted its own, a manifest at the tip is an earlier run's.
    let Some(manifest) = manifest.filter(|_| progress.has(Stage::ManifestExtraction)) else {
        return Vec::new();
    };
    let mut features = manifest.features.clone();
    for (feature, slug) in features.iter_mut().zip(manifest.slugs()) {
        feature.slug = Some(slug.clone());
        let closing = phases.iter().rev().find(|it| {
            it.cycle_outcome.is_some()
                && it.status == PhaseStatus::Completed
                && it.feature.as_deref() == Some(&slug)
        });
        let begun = progress
            .done
            .iter()
            .any(|it| it.place.feature.as_deref() == Some(slug.as_str()));
        let known = closing.filter(|it| {
            it.cycle
                .is_some_and(|cycle| progress.count(Stage::Learnings, cycle) > 0)
        });
        let outcome = known
            .and_then(|it| it.cycle)
            .and_then(|it| outcomes.cycles.get(&it));
        feature.status = match outcome {
            Some(outcome) => FeatureStatus::after(*outcome),
            None if begun => feature.status.begun(),
            None => feature.status,
        };
    }
    features
}

fn differences(facts: &Facts, run: &Reconciled) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut say = |code, text: String| found.push(Difference { code, text });
    if facts.tip.is_none() {
        say(
            "branch_gone",
            "its branch was deleted; only what this machine kept is left".into(),
        );
    }
    if let Some(live) = &facts.live
        && let Some(tip) = &facts.tip
        && live.set_up
        && *tip != live.tip
        && !matches!(live.work, Work::Committing(_))
    {
        let known = facts.commits.iter().any(|it| it.oid == live.tip);
        let text = if known {
            "commits were added to its branch by hand; they are kept and built upon".to_owned()
        } else {
            format!(
                "its branch was moved by hand (it was at {}); the run goes on from where the branch is now",
                live.tip.short()
            )
        };
        say("tip_moved", text);
    }
    for reverted in &run.progress.reverted {
        say(
            "stage_reverted",
            format!(
                "{} was reverted by hand; it counts as not done",
                reverted.place.label()
            ),
        );
    }
    for lost in &run.unmarked {
        say(
            "stage_unmarked",
            format!(
                "{} holds the work of {} and no longer its message, so it does not count; give the message back with {}, or have the stage done again after {}",
                lost.commit.short(),
                lost.place.label(),
                lost.way_back(),
                lost.way_on()
            ),
        );
    }
    for copy in &run.progress.copies {
        say(
            "stage_copied",
            format!(
                "{} repeats {}, as a cherry-pick does; it counts as an ordinary commit",
                copy.commit.short(),
                copy.place.label()
            ),
        );
    }
    for (name, problem) in [
        ("record", bad(&facts.record)),
        ("manifest", bad(&facts.manifest)),
        ("state.json in the commit", bad(&facts.state)),
        ("state.json on disk", bad(&facts.state_on_disk)),
    ] {
        if let Some(problem) = problem {
            say(
                "unreadable",
                format!("{name} cannot be read ({problem}); taken from commits instead"),
            );
        }
    }
    missing_records(run, &mut say);
    if let Some(state) = facts.state_on_disk.got() {
        compare_state(state, run, &mut say);
    } else if facts.checked_out == Some(true)
        && matches!(facts.state_on_disk, Read::Absent)
        && run.progress.last().is_some()
    {
        say(
            "state_missing",
            ".dex/state.json is missing; the next stage writes it again".into(),
        );
    }
    if facts.checked_out == Some(false) && facts.running.is_none() {
        say(
            "not_checked_out",
            "its work tree is on another branch now".into(),
        );
    }
    found
}

fn bad<T>(read: &Read<T>) -> Option<&str> {
    match read {
        Read::Bad(problem) => Some(problem),
        Read::Absent | Read::Got(_) => None,
    }
}

/// Commits without an element in the record, and elements without a commit.
fn missing_records(run: &Reconciled, say: &mut impl FnMut(&'static str, String)) {
    let committed = &run.phases[..run.committed_phases];
    let recorded = |place: &Place| {
        committed.iter().chain(&run.inherited).any(|it| {
            it.stage.as_deref() == Some(place.stage.name())
                && it.cycle.unwrap_or(0) == place.cycle
                && it.status == PhaseStatus::Completed
        })
    };
    let unrecorded: Vec<String> = run
        .progress
        .done
        .iter()
        .filter(|it| !recorded(&it.place))
        .map(|it| it.place.checkpoint())
        .collect();
    if !unrecorded.is_empty() {
        say(
            "commit_without_record",
            format!(
                "no record of cost and time for {}; they count as done",
                list(&unrecorded)
            ),
        );
    }
    let mut orphans: Vec<String> = committed
        .iter()
        .filter(|it| it.status == PhaseStatus::Completed)
        .filter_map(|it| it.checkpoint.clone())
        .filter(|name| {
            !run.progress
                .done
                .iter()
                .chain(&run.progress.reverted)
                .map(|it| &it.place)
                .chain(run.unmarked.iter().map(|it| &it.place))
                .any(|it| it.checkpoint() == *name)
        })
        .collect();
    orphans.dedup();
    if !orphans.is_empty() {
        say(
            "record_without_commit",
            format!(
                "recorded but not on the branch: {}; they count as not done, their cost counts",
                list(&orphans)
            ),
        );
    }
}

fn compare_state(state: &State, run: &Reconciled, say: &mut impl FnMut(&'static str, String)) {
    if let Unfinished::ReadyToCommit(place) = &run.unfinished
        && state.run_id == run.run_id
        && state.last_completed_step.as_deref() == Some(place.stage.name())
        && state.current_cycle_number == place.cycle
    {
        // Written by us for the commit that is still to be made.
        return;
    }
    let last = run.progress.last();
    let step = last.map(|it| it.place.stage.name().to_owned());
    let mut wrong = Vec::new();
    if state.cycles_completed != run.progress.cycles_completed {
        wrong.push(format!(
            "cyclesCompleted {} (commits say {})",
            state.cycles_completed, run.progress.cycles_completed
        ));
    }
    if state.last_completed_step != step {
        wrong.push(format!(
            "lastCompletedStep {} (commits say {})",
            state.last_completed_step.as_deref().unwrap_or("none"),
            step.as_deref().unwrap_or("none")
        ));
    }
    if state.run_id != run.run_id && !run.run_id.is_empty() {
        wrong.push(format!(
            "runId {} (the branch belongs to {})",
            state.run_id, run.run_id
        ));
    }
    if !wrong.is_empty() {
        say(
            "state_differs",
            format!(
                ".dex/state.json says {}; the commits are right",
                wrong.join(", ")
            ),
        );
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more")
    }
}

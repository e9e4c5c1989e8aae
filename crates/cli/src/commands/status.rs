//! `dex status`

use std::path::{Path, PathBuf};
use std::time::Duration;

use agents::transcript::Step;
use dex::facts;
use dex::live::Live;
use dex::reconcile::{Reconciled, RunStatus, Unfinished};
use gitdb::Repo;
use serde_json::{Value, json};

use super::log::lines::Line;
use super::log::transcripts::{Open, run_id, transcripts};
use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::progress::Moving;
use crate::progress::doing::Doing;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, styled};

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_millis(500);

/// Shows what a run is doing.
pub fn status(dir: &Path, args: &args::Status) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = match facts::find(&repo, args.run.as_deref()) {
        Err(facts::FactsError::NoRuns) if args.run.is_none() && !args.json => {
            ui::out("No run yet. Start one with `dex run GOAL.md`, or see `dex demo`.");
            return Ok(Exit::Done);
        }
        other => other?,
    };
    if args.watch {
        return watch(&repo, &known);
    }
    let run = facts::read_run(&repo, &known)?;
    if args.json {
        ui::json(&to_json(&run));
    } else {
        show(&run);
    }
    Ok(exit(&run))
}

fn exit(run: &Reconciled) -> Exit {
    match run.status {
        RunStatus::NeedsInput => Exit::Waiting,
        RunStatus::Running { .. } | RunStatus::Paused | RunStatus::Completed => Exit::Done,
    }
}

/// Follows a run in another process: a line for each finished stage, what its agent does now,
/// then how it stands.
fn watch(repo: &Repo, known: &facts::Known) -> Result<Exit, Failure> {
    let mut watched = Watched::default();
    let moving = Moving::new();
    loop {
        let known = facts::find(repo, Some(&known.branch))?;
        let run = facts::read_run(repo, &known)?;
        watched.finished(&run, &moving);
        if !matches!(run.status, RunStatus::Running { .. }) {
            moving.end();
            show(&run);
            return Ok(exit(&run));
        }
        watched.at_work(repo, &known, &run, &moving)?;
        std::thread::sleep(EVERY);
    }
}

/// What has been shown of a run that another process carries out.
#[derive(Default)]
struct Watched {
    /// Finished stages; none before the first look.
    stages: Option<usize>,
    /// The stage or the waiting that is under way.
    stage: String,
    doing: Doing,
    transcript: Option<(PathBuf, Open)>,
}

impl Watched {
    fn finished(&mut self, run: &Reconciled, moving: &Moving) {
        let done = &run.progress.done;
        let from = self.stages.unwrap_or_else(|| done.len().saturating_sub(5));
        for finished in &done[from.min(done.len())..] {
            let line = format!(
                "{} {:<28} {}",
                styled(GOOD, "✓"),
                finished.place.label(),
                styled(NAME, finished.commit.short())
            );
            moving.above(|| ui::out(line));
        }
        self.stages = Some(done.len());
    }

    fn at_work(
        &mut self,
        repo: &Repo,
        known: &facts::Known,
        run: &Reconciled,
        moving: &Moving,
    ) -> Result<(), Failure> {
        let stage = match (waiting(run), &run.unfinished) {
            (Some(until), _) => format!("waiting for the account's quota, until {until}"),
            (None, Unfinished::HalfDone(place)) => place.label(),
            (None, Unfinished::None | Unfinished::ReadyToCommit(_)) => return Ok(()),
        };
        let before = run.cost_micro.unwrap_or(0);
        let began = stage != self.stage;
        if began {
            self.doing = Doing::of_stage(&stage, before, run.budget_micro.unwrap_or(0));
            self.stage = stage;
        }
        let newest = run_id(repo, known).map(|id| transcripts(&Live::dir(repo, &id).join("log")));
        let newest = newest.transpose()?.and_then(|mut it| it.pop());
        if let Some(path) = newest {
            if self.transcript.as_ref().is_none_or(|it| it.0 != path) {
                self.transcript = Some((path.clone(), Open::new(path)?));
            }
            self.read_on((!began).then_some(moving))?;
        }
        if began {
            moving.begin(&self.doing);
        }
        Ok(())
    }

    /// Reads what the agent did since, and shows it.
    fn read_on(&mut self, moving: Option<&Moving>) -> Result<(), Failure> {
        let Some((_, transcript)) = &mut self.transcript else {
            return Ok(());
        };
        loop {
            let line = match transcript.next()? {
                Line::Whole(line) => line,
                Line::TooLong => continue,
                Line::NotYet => return Ok(()),
            };
            let Ok(step) = serde_json::from_slice::<Step>(&line) else {
                continue;
            };
            let changed = self.doing.step(&step);
            if let Some(moving) = moving {
                moving.changed(&self.doing, changed);
            }
        }
    }
}

/// Questions shown.
const MAX_ASKS: usize = 5;

/// For people.
pub fn show(run: &Reconciled) {
    let branch = run.branch.as_deref().unwrap_or("?");
    let state = match &run.status {
        RunStatus::Running { pid } => styled(GOOD, format!("running (process {pid})")),
        RunStatus::Paused => styled(WARN, "paused"),
        RunStatus::NeedsInput => styled(WARN, "waiting for an answer"),
        RunStatus::Completed => styled(GOOD, "completed"),
    };
    ui::out(format!("{} {state}", styled(NAME.bold(), branch)));
    if let Some(pause) = &run.pause
        && matches!(run.status, RunStatus::Paused | RunStatus::NeedsInput)
    {
        ui::out(format!(
            "  because {}: {}",
            pause.reason.name(),
            clean(&pause.why)
        ));
    }
    let asks = run.question.iter().flat_map(|it| &it.asks);
    for ask in asks.take(MAX_ASKS) {
        ui::out(format!("  {} {}", styled(BOLD, "?"), clean(&ask.question)));
    }
    if let Some(until) = waiting(run) {
        ui::out(styled(
            WARN,
            format!("  waiting      for the account's quota, until {until}"),
        ));
    }
    if let Some(last) = run.progress.last() {
        ui::out(format!(
            "  last stage   {} {}",
            last.place.label(),
            styled(DIM, last.commit.short())
        ));
    }
    match &run.unfinished {
        Unfinished::None => {}
        Unfinished::HalfDone(place) if matches!(run.status, RunStatus::Running { .. }) => {
            ui::out(format!("  at work on   {}", place.label()));
        }
        Unfinished::HalfDone(place) => {
            ui::out(styled(
                WARN,
                format!(
                    "  interrupted  {} (unrecorded work is in the work tree)",
                    place.label()
                ),
            ));
        }
        Unfinished::ReadyToCommit(place) => {
            ui::out(format!(
                "  to commit    {} (finished; `dex resume` commits it)",
                place.label()
            ));
        }
    }
    ui::out(format!(
        "  cycles       {} done",
        run.progress.cycles_completed
    ));
    let budget = run
        .budget_micro
        .map_or(String::new(), |it| format!(" of {}", ui::money(Some(it))));
    ui::out(format!(
        "  cost         {}{budget}",
        ui::money(run.cost_micro)
    ));
    ui::out(format!("  agent time   {}", ui::duration(run.duration_ms)));
    for feature in &run.features {
        let mark = match feature.status {
            dex::files::manifest::Status::Completed => styled(GOOD, "✓"),
            dex::files::manifest::Status::Active => styled(WARN, "●"),
            dex::files::manifest::Status::Skipped => styled(BAD, "✗"),
            dex::files::manifest::Status::Pending => styled(DIM, "○"),
        };
        ui::out(format!("  {mark} {}", clean(&feature.title)));
    }
    let left_out: Vec<_> = run.phases.iter().flat_map(|it| &it.left_out).collect();
    for it in &left_out {
        ui::out(styled(
            WARN,
            format!("  left out     {} ({})", clean(&it.path), clean(&it.reason)),
        ));
    }
    for difference in &run.differences {
        ui::out(format!(
            "  {} {}",
            styled(BOLD, "note:"),
            clean(&difference.text)
        ));
    }
    if let Some(next) = next_command(run) {
        ui::talk(format!("{} {next}", styled(NAME.bold(), "next:")));
    }
}

/// Until when it waits for a quota; a process that is gone waits for nothing.
fn waiting(run: &Reconciled) -> Option<&str> {
    let running = matches!(run.status, RunStatus::Running { .. });
    run.quota_until.as_deref().filter(|_| running)
}

fn next_command(run: &Reconciled) -> Option<&'static str> {
    match (&run.status, &run.unfinished) {
        (RunStatus::Running { .. }, _) => Some("dex status --watch, dex log -f, dex stop"),
        (RunStatus::NeedsInput, _) => Some("dex answer"),
        (RunStatus::Paused, Unfinished::HalfDone(_)) => {
            Some("dex resume --keep or dex resume --discard")
        }
        (RunStatus::Paused, _) => Some("dex resume"),
        (RunStatus::Completed, Unfinished::ReadyToCommit(_)) => Some("dex resume"),
        (RunStatus::Completed, _) => Some("dex report"),
    }
}

/// The documented shape of `dex status --json`.
pub fn to_json(run: &Reconciled) -> Value {
    let place = |it: &dex::stage::Place| json!({ "stage": it.stage.name(), "cycle": it.cycle, "feature": it.feature });
    let (unfinished, at) = match &run.unfinished {
        Unfinished::None => (Value::Null, Value::Null),
        Unfinished::HalfDone(at) => (json!("half_done"), place(at)),
        Unfinished::ReadyToCommit(at) => (json!("ready_to_commit"), place(at)),
    };
    let last = run.progress.last();
    json!({
        "runId": run.run_id,
        "branch": run.branch,
        "tip": run.tip,
        "status": run.status.name(),
        "pid": match run.status { RunStatus::Running { pid } => Some(pid), _ => None },
        "pause": run.pause.as_ref().filter(|_| !matches!(run.status, RunStatus::Running { .. })),
        "quotaUntil": waiting(run),
        "question": run.question,
        "goal": run.goal,
        "agent": run.agent,
        "baseBranch": run.base_branch,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
        "lastCompletedStage": last.map(|it| place(&it.place)),
        "lastCommit": last.map(|it| it.commit.to_string()),
        "unfinished": unfinished,
        "unfinishedStage": at,
        "cyclesCompleted": run.progress.cycles_completed,
        "stageCommits": run.progress.done.len(),
        "costUsd": run.cost_micro.map(dex::files::dollars),
        "budgetUsd": run.budget_micro.map(dex::files::dollars),
        "durationMs": run.duration_ms,
        "features": run.features.iter().map(|it| json!({
            "id": it.id, "title": it.title, "slug": it.slug, "status": it.status, "specDir": it.spec_dir,
        })).collect::<Vec<_>>(),
        "leftOut": run.phases.iter().flat_map(|it| &it.left_out).collect::<Vec<_>>(),
        "differences": run.differences.iter().map(|it| json!({ "code": it.code, "text": it.text })).collect::<Vec<_>>(),
    })
}

//! `dex runs`

use std::path::Path;

use dex::facts::{self, Known};
use dex::files::manifest::Status;
use dex::reconcile::{Reconciled, RunStatus};
use gitdb::Repo;
use serde_json::{Value, json};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, styled};

/// Lists the runs of a repository. One that cannot be read is a line that says so, never an
/// absence and never the end of the list (cases K01, G10).
pub fn runs(dir: &Path, args: &args::Json) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = facts::known(&repo)?;
    if args.json {
        let all: Vec<Value> = known
            .iter()
            .map(|it| to_json(it, &read(&repo, it)))
            .collect();
        ui::json(&json!({ "runs": all }));
        return Ok(Exit::Done);
    }
    if known.is_empty() {
        ui::talk("No run yet. Start one with `dex run GOAL.md`, or see `dex demo`.");
        return Ok(Exit::Done);
    }
    let _paging = pager::start();
    let line = |cells: [&str; 6]| {
        let [branch, status, features, cycles, cost, started] = cells;
        format!("{branch:<22} {status:<12} {features:>8} {cycles:>6} {cost:>13}  {started}")
    };
    let head = ["branch", "status", "features", "cycles", "cost", "started"];
    ui::out(styled(BOLD, line(head)));
    for it in &known {
        match read(&repo, it) {
            Ok(run) => ui::out(row(it, &run)),
            Err(failure) => ui::out(format!(
                "{} {} {}",
                styled(NAME, format!("{:<22}", clean(&it.branch))),
                styled(BAD, "cannot be read:"),
                clean(&said(&failure)),
            )),
        }
    }
    Ok(Exit::Done)
}

fn read(repo: &Repo, known: &Known) -> Result<Reconciled, Failure> {
    Ok(facts::read_run(repo, known)?)
}

/// Headline and causes on one line.
pub(crate) fn said(failure: &Failure) -> String {
    let mut all = vec![failure.headline.clone()];
    all.extend(failure.causes.iter().cloned());
    all.join(": ")
}

/// How many features are done.
fn done(run: &Reconciled) -> usize {
    run.features
        .iter()
        .filter(|it| it.status == Status::Completed)
        .count()
}

fn row(known: &Known, run: &Reconciled) -> String {
    let style = match run.status {
        RunStatus::Running { .. } | RunStatus::Completed => GOOD,
        RunStatus::Paused | RunStatus::NeedsInput => WARN,
    };
    let place = match (known.remote_only, &known.tip) {
        (true, _) => styled(DIM, "  only on a remote"),
        (false, None) => styled(WARN, "  branch deleted"),
        (false, Some(_)) => String::new(),
    };
    let status = format!("{:<12}", run.status.name().replace('_', " "));
    format!(
        "{} {} {:>8} {:>6} {:>13}  {}{place}",
        styled(NAME, format!("{:<22}", clean(&known.branch))),
        styled(style, status),
        format!("{}/{}", done(run), run.features.len()),
        run.progress.cycles_completed,
        ui::money(run.cost_micro),
        run.started_at
            .as_deref()
            .map(ui::moment)
            .unwrap_or_default(),
    )
}

fn to_json(known: &Known, run: &Result<Reconciled, Failure>) -> Value {
    match run {
        Ok(run) => json!({
            "branch": known.branch,
            "runId": run.run_id,
            "status": run.status.name(),
            "remoteOnly": known.remote_only,
            "tip": run.tip,
            "featuresDone": done(run),
            "features": run.features.len(),
            "cyclesCompleted": run.progress.cycles_completed,
            "stageCommits": run.progress.done.len(),
            "costUsd": run.cost_micro.map(dex::files::dollars),
            "durationMs": run.duration_ms,
            "startedAt": run.started_at,
            "endedAt": run.ended_at,
            "error": null,
        }),
        Err(failure) => json!({
            "branch": known.branch,
            "runId": known.run_id,
            "status": "unreadable",
            "remoteOnly": known.remote_only,
            "tip": known.tip,
            "error": said(failure),
        }),
    }
}

//! `dex timeline`: a run's commits as a plain list.

use std::path::Path;

use dex::facts::{self, Known};
use dex::files::record::{Phase, PhaseStatus, VerifiedBy, Verify};
use dex::progress::{self, Finished};
use dex::reconcile::Reconciled;
use dex::report::attempts_at;
use gitdb::Repo;
use gitdb::repo::Commit;
use serde_json::{Value, json};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, styled};

/// One commit of a run.
struct Row<'r> {
    commit: &'r Commit,
    what: What<'r>,
    attempts: Vec<&'r Phase>,
}

/// What a commit is.
enum What<'r> {
    /// A finished stage that counts.
    Stage(&'r Finished),
    /// One that a later commit reverted.
    Reverted(&'r Finished),
    /// No stage.
    ByHand,
}

/// Lists the finished stages of this work tree's run, or of all.
pub fn timeline(dir: &Path, args: &args::Timeline) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let runs = match args.all {
        true => facts::known(&repo)?,
        false => vec![facts::find(&repo, None)?],
    };
    if args.json {
        let mut all = Vec::new();
        for known in &runs {
            all.push(match json_of(&repo, known) {
                // With several runs, one that cannot be read must not hide the others.
                Err(failure) if args.all => json!({
                    "branch": known.branch, "error": super::runs::said(&failure),
                }),
                other => other?,
            });
        }
        ui::json(&json!({ "runs": all }));
        return Ok(Exit::Done);
    }
    let _paging = pager::start();
    for (n, known) in runs.iter().enumerate() {
        if n > 0 {
            ui::out("");
        }
        match show(&repo, known) {
            Err(failure) if args.all => ui::out(format!(
                "{} {} {}",
                styled(NAME.bold(), clean(&known.branch)),
                styled(BAD, "cannot be read:"),
                clean(&super::runs::said(&failure))
            )),
            other => other?,
        }
    }
    Ok(Exit::Done)
}

/// Every commit, oldest first.
fn rows<'r>(commits: &'r [Commit], run: &'r Reconciled) -> Vec<Row<'r>> {
    let of = |list: &'r [Finished], commit: &Commit| list.iter().find(|it| it.commit == commit.oid);
    let row = |commit: &'r Commit| {
        let what = match of(&run.progress.done, commit) {
            Some(stage) => What::Stage(stage),
            None => of(&run.progress.reverted, commit).map_or(What::ByHand, What::Reverted),
        };
        let attempts = match what {
            What::Stage(stage) | What::Reverted(stage) => attempts_at(run, stage),
            What::ByHand => Vec::new(),
        };
        Row {
            commit,
            what,
            attempts,
        }
    };
    commits.iter().rev().map(row).collect()
}

/// What a stage's attempts came to.
struct Sum {
    cost_micro: Option<u64>,
    duration_ms: Option<u64>,
    failed: usize,
}

impl Sum {
    /// What it cost; a stage without an agent cost nothing and reports nothing.
    fn cost(&self, attempts: &[&Phase]) -> String {
        let no_agent = !attempts.is_empty() && attempts.iter().all(|it| it.agent.is_none());
        if no_agent {
            "no agent".to_owned()
        } else {
            ui::money(self.cost_micro)
        }
    }
}

fn sum(attempts: &[&Phase]) -> Sum {
    let phases: Vec<Phase> = attempts.iter().map(|it| (*it).clone()).collect();
    Sum {
        cost_micro: progress::cost_micro(&phases),
        duration_ms: phases.first().map(|_| progress::duration_ms(&phases)),
        failed: phases
            .iter()
            .filter(|it| it.status != PhaseStatus::Completed)
            .count(),
    }
}

fn verify<'r>(attempts: &[&'r Phase]) -> Option<&'r Verify> {
    attempts.last().and_then(|it| it.verify.as_ref())
}

fn show(repo: &Repo, known: &Known) -> Result<(), Failure> {
    let facts = facts::read(repo, known)?;
    let run = dex::reconcile::reconcile(&facts);
    ui::out(format!(
        "{} {}",
        styled(NAME.bold(), clean(&known.branch)),
        run.status.name().replace('_', " ")
    ));
    let mut heading = None;
    for row in rows(&facts.commits, &run) {
        if let What::Stage(stage) | What::Reverted(stage) = row.what {
            let place = &stage.place;
            let of_cycle = place.stage.in_cycle().then_some(place.cycle);
            if heading != Some(of_cycle) {
                heading = Some(of_cycle);
                let feature = place.feature.as_deref().unwrap_or("-");
                let text = match of_cycle {
                    Some(cycle) => format!("Cycle {cycle} · {}", clean(feature)),
                    None => "Once per run".to_owned(),
                };
                ui::out(styled(BOLD, text));
            }
        }
        ui::out(line(&row));
    }
    for difference in &run.differences {
        ui::out(format!(
            "{} {}",
            styled(BOLD, "note:"),
            clean(&difference.text)
        ));
    }
    Ok(())
}

fn line(row: &Row<'_>) -> String {
    let id = styled(NAME, row.commit.oid.short());
    let (stage, reverted) = match row.what {
        What::ByHand => {
            let subject = row.commit.message.lines().next().unwrap_or_default();
            let subject = ui::cut(&clean(subject), 60);
            return format!("  {id}  {} {subject}", styled(WARN, "by hand:"));
        }
        What::Stage(stage) => (stage, false),
        What::Reverted(stage) => (stage, true),
    };
    let sum = sum(&row.attempts);
    let time = sum
        .duration_ms
        .map_or_else(|| "not recorded".to_owned(), ui::duration);
    let mut marks = Vec::new();
    if reverted {
        marks.push(styled(WARN, "reverted, does not count"));
    }
    if let Some(verify) = verify(&row.attempts) {
        marks.push(verify_mark(verify));
    }
    if sum.failed > 0 {
        marks.push(styled(DIM, ui::count(sum.failed, "failed attempt")));
    }
    let text = format!(
        "  {id}  {:<20} {:>12} {time:>13}  {}",
        stage.place.stage.title(),
        sum.cost(&row.attempts),
        marks.join(" ")
    );
    text.trim_end().to_owned()
}

/// How a verify came out, short.
pub(crate) fn verify_mark(verify: &Verify) -> String {
    match (verify.passed, verify.by) {
        (true, VerifiedBy::Command) => styled(GOOD, "✓ by command"),
        (true, VerifiedBy::Word) => styled(WARN, "✓ by word, not by a command"),
        (false, VerifiedBy::Command) => styled(BAD, "✗ failed by command"),
        (false, VerifiedBy::Word) => styled(BAD, "✗ failed by word"),
    }
}

fn json_of(repo: &Repo, known: &Known) -> Result<Value, Failure> {
    let facts = facts::read(repo, known)?;
    let run = dex::reconcile::reconcile(&facts);
    let entries: Vec<Value> = rows(&facts.commits, &run).iter().map(entry).collect();
    Ok(json!({
        "branch": known.branch,
        "runId": run.run_id,
        "status": run.status.name(),
        "entries": entries,
    }))
}

fn entry(row: &Row<'_>) -> Value {
    let (kind, stage) = match row.what {
        What::Stage(stage) => ("stage", Some(stage)),
        What::Reverted(stage) => ("reverted", Some(stage)),
        What::ByHand => ("by_hand", None),
    };
    let sum = sum(&row.attempts);
    json!({
        "kind": kind,
        "commit": row.commit.oid,
        "subject": row.commit.message.lines().next(),
        "time": session::rfc3339(row.commit.time_unix),
        "checkpoint": stage.map(|it| it.place.checkpoint()),
        "stage": stage.map(|it| it.place.stage.name()),
        "cycle": stage.map(|it| it.place.cycle),
        "feature": stage.and_then(|it| it.place.feature.as_deref()),
        "label": stage.map(|it| it.place.label()),
        "costUsd": sum.cost_micro.map(dex::files::dollars),
        "durationMs": sum.duration_ms,
        "verify": verify(&row.attempts),
        "attempts": row.attempts.len(),
        "failedAttempts": sum.failed,
    })
}

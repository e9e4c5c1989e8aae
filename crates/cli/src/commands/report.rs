//! `dex report`

use std::path::Path;

use dex::facts::{self, Known};
use dex::files::record::PhaseStatus;
use dex::report::{self, Changes, Diffs, FeatureReport, Outcome, Report};
use gitdb::{GitError, Oid, Repo};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, styled};

mod markdown;

/// Ours, not the project's work.
const NOT_COUNTED: [&str; 1] = [".dex"];

/// More lines than this of one list are counted, not shown; `--json` has all of them.
const SHOWN: usize = 20;

/// Says what came of a run.
pub fn report(dir: &Path, args: &args::Report) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = facts::find(&repo, args.run.as_deref())?;
    let report = of(&repo, &known)?;
    if args.json {
        ui::json(&report);
        return Ok(Exit::Done);
    }
    let _paging = pager::start();
    if args.md {
        ui::out(markdown::markdown(&report).trim_end());
    } else {
        terminal(&report).iter().for_each(ui::out);
        if known.remote_only {
            ui::talk(format!(
                "only a remote has this run; to work with it here: `git switch {}`",
                known.branch
            ));
        }
    }
    Ok(Exit::Done)
}

/// Shown when a run ends or stops.
pub fn after_run(repo: &Repo, run_id: &str) -> Result<(), Failure> {
    let known = facts::find(repo, Some(run_id))?;
    let report = of(repo, &known)?;
    terminal(&report).iter().for_each(ui::talk);
    Ok(())
}

/// Reads a run and asks git what its commits changed.
pub fn of(repo: &Repo, known: &Known) -> Result<Report, Failure> {
    let facts = facts::read(repo, known)?;
    let run = report::settle(&facts);
    let notes = report::notes(&facts, &run);
    let mut diffs = Diffs::default();
    let base = run
        .base_sha
        .as_deref()
        .and_then(|it| it.parse::<Oid>().ok());
    if let (Some(base), Some(tip)) = (&base, &run.tip) {
        diffs.whole = changes(repo, base, tip)?;
    }
    for range in report::ranges(&run) {
        if let Some(changed) = changes(repo, &range.from, &range.to)? {
            diffs.features.insert(range.slug, changed);
        }
    }
    Ok(report::report(&run, notes, &diffs))
}

/// None where a shallow history lacks one of the commits.
fn changes(repo: &Repo, from: &Oid, to: &Oid) -> Result<Option<Changes>, GitError> {
    match repo.diff_stat(from, to, &NOT_COUNTED) {
        Ok(files) => Ok(Some(Changes::of(&files))),
        Err(GitError::Failed { .. }) if repo.shallow => Ok(None),
        Err(error) => Err(error),
    }
}

/// For people.
fn terminal(report: &Report) -> Vec<String> {
    let mut lines = head(report);
    for feature in &report.features {
        lines.extend(of_feature(feature));
    }
    lines.push(String::new());
    lines.extend(sums(report));
    let attempts = report.failed_attempts.iter().map(|it| {
        let again = if it.retried { ", tried again" } else { "" };
        let reason = it
            .reason
            .as_deref()
            .map(|it| format!(": {it}"))
            .unwrap_or_default();
        format!(
            "{} {}{reason}{again}",
            it.checkpoint,
            status_word(it.status)
        )
    });
    list(&mut lines, "Attempts that failed", BAD, attempts);
    let skipped = report.skipped_stages.iter().map(|it| {
        format!(
            "{}: {}",
            it.checkpoint,
            it.reason.as_deref().unwrap_or("not needed")
        )
    });
    list(&mut lines, "Stages skipped", DIM, skipped);
    let assumed = report.assumptions.iter().map(|it| {
        let it = &it.assumption;
        let by = if it.by == "person" {
            "answered"
        } else {
            "assumed"
        };
        format!("{} → {} ({by})", it.question, it.answer)
    });
    list(&mut lines, "Questions", WARN, assumed);
    let left_out = report.left_out.iter().map(|it| {
        let size = it
            .left_out
            .bytes
            .map(|it| format!(", {it} bytes"))
            .unwrap_or_default();
        format!(
            "{} ({}{size}, {})",
            it.left_out.path, it.left_out.reason, it.checkpoint
        )
    });
    list(&mut lines, "Left out of commits", WARN, left_out);
    let noticed = report
        .noticed
        .iter()
        .map(|it| format!("{}: {}", it.checkpoint, it.text));
    list(&mut lines, "Noticed", WARN, noticed);
    list(&mut lines, "Your notes", DIM, report.notes.iter().cloned());
    list(
        &mut lines,
        "Did not agree",
        WARN,
        report.differences.iter().map(|it| it.text.clone()),
    );
    if !report.next.is_empty() {
        lines.push(String::new());
        lines.push(styled(BOLD, "Next"));
        for next in &report.next {
            lines.push(format!("  {}", styled(NAME, clean(&next.command))));
            lines.push(format!("      {}", styled(DIM, clean(&next.why))));
        }
    }
    lines
}

fn head(report: &Report) -> Vec<String> {
    let branch = report.branch.as_deref().unwrap_or(&report.run_id);
    let state = match (report.status, report.verdict) {
        ("completed", "good") => styled(GOOD, "completed"),
        ("completed", verdict) => styled(WARN, format!("completed, {}", in_words(verdict))),
        (status, _) => styled(WARN, status.replace('_', " ")),
    };
    let mut lines = vec![format!("{} {state}", styled(NAME.bold(), clean(branch)))];
    if let Some(stopped) = &report.stopped {
        lines.push(format!(
            "  because {}: {}",
            stopped.reason,
            clean(&stopped.why)
        ));
    }
    if let Some(pending) = &report.unfinished {
        lines.push(styled(
            WARN,
            format!("  {} {}", pending.checkpoint, pending_words(pending.state)),
        ));
    }
    if let Some(goal) = &report.goal {
        lines.push(styled(DIM, format!("  goal {}", clean(goal))));
    }
    lines.push(String::new());
    lines
}

/// A verdict that is not good, in words.
fn in_words(verdict: &str) -> &'static str {
    match verdict {
        "skipped" => "a feature was given up",
        "unverified" => "a feature is not verified",
        "open" => "a feature is not finished",
        _ => "every feature is done",
    }
}

fn pending_words(state: &str) -> &'static str {
    match state {
        "ready_to_commit" => "is finished and not committed yet",
        _ => "is half done",
    }
}

fn status_word(status: PhaseStatus) -> &'static str {
    match status {
        PhaseStatus::Running => "runs",
        PhaseStatus::Completed => "finished",
        PhaseStatus::Failed => "failed",
        PhaseStatus::Stopped => "was stopped",
        PhaseStatus::Crashed => "was cut off",
        PhaseStatus::Skipped => "was skipped",
    }
}

fn of_feature(feature: &FeatureReport) -> Vec<String> {
    let (mark, word) = match feature.outcome {
        Outcome::Done => (styled(GOOD, "✓"), ""),
        Outcome::Active => (styled(WARN, "●"), " (not finished)"),
        Outcome::Skipped => (styled(BAD, "✗"), " (given up)"),
        Outcome::Pending => (styled(DIM, "○"), " (not begun)"),
    };
    let mut lines = vec![format!(
        "{mark} {}{word}",
        styled(BOLD, clean(&feature.title))
    )];
    if feature.outcome == Outcome::Pending {
        return lines;
    }
    let style = if feature.verified.passed == Some(true) {
        GOOD
    } else {
        WARN
    };
    lines.push(format!(
        "    {}",
        styled(style, clean(&feature.verified.words()))
    ));
    if feature.verified.passed != Some(true) {
        let failures = feature.verified.failures.iter();
        lines.extend(
            failures
                .take(3)
                .map(|it| format!("      {}", ui::cut(&clean(it), 160))),
        );
    }
    lines.push(format!(
        "    {} · {} · {} · {}",
        changed(feature.changes),
        ui::money(feature.cost_usd.map(dex::files::micro)),
        ui::duration(feature.duration_ms),
        ui::count(feature.cycles.len(), "cycle"),
    ));
    lines
}

fn changed(changes: Option<Changes>) -> String {
    match changes {
        None => "no commits".to_owned(),
        Some(it) => {
            format!(
                "{} +{} -{}",
                ui::count(it.files as usize, "file"),
                it.added,
                it.removed
            )
        }
    }
}

fn sums(report: &Report) -> Vec<String> {
    let totals = &report.totals;
    let verified = match &report.verify_command {
        Some(_) => format!(
            "{} of {} done verified by command",
            totals.verified_by_command, totals.done
        ),
        None => "no verify command: not verified by a command".to_owned(),
    };
    vec![
        format!(
            "{} of {} done · {verified}",
            totals.done,
            ui::count(totals.features, "feature"),
        ),
        format!(
            "{} · {} · {} · {}",
            match totals.changes {
                None => "changes not known".to_owned(),
                some => changed(some),
            },
            ui::count(totals.cycles as usize, "cycle"),
            ui::count(totals.stages, "stage"),
            ui::count(totals.attempts, "attempt"),
        ),
        format!(
            "cost {} · agent time {}",
            ui::money(totals.cost_usd.map(dex::files::micro)),
            ui::duration(totals.duration_ms),
        ),
    ]
}

fn list(
    lines: &mut Vec<String>,
    title: &str,
    style: anstyle::Style,
    items: impl Iterator<Item = String>,
) {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    lines.push(String::new());
    lines.push(styled(style, title));
    lines.extend(
        items
            .iter()
            .take(SHOWN)
            .map(|it| format!("  {}", ui::cut(&clean(it), 300))),
    );
    if items.len() > SHOWN {
        lines.push(format!(
            "  and {} more (`dex report --json` has all)",
            items.len() - SHOWN
        ));
    }
}

//! `dex report --md`: for a pull request or a mail. Text of others is escaped, so that a title
//! can be no link, image or heading of its own.

use std::fmt::Write as _;

use dex::report::{Outcome, Report};

use super::{changed, in_words, pending_words, status_word};
use crate::ui::{self, clean};

/// The report as Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |it: String| {
        let _ = writeln!(text, "{it}");
    };
    let totals = &report.totals;
    line(format!(
        "# Run {}\n",
        code(report.branch.as_deref().unwrap_or(&report.run_id))
    ));
    line(format!(
        "- Status: {}, {}",
        report.status.replace('_', " "),
        in_words(report.verdict)
    ));
    if let Some(stopped) = &report.stopped {
        line(format!(
            "- Stopped: {} ({})",
            escaped(&stopped.why),
            stopped.reason
        ));
    }
    if let Some(pending) = &report.unfinished {
        line(format!(
            "- {} {}",
            code(&pending.checkpoint),
            pending_words(pending.state)
        ));
    }
    if let Some(goal) = &report.goal {
        line(format!("- Goal: {}", code(goal)));
    }
    line(format!(
        "- Features: {} of {} done, {} verified by command",
        totals.done, totals.features, totals.verified_by_command
    ));
    line(match &report.verify_command {
        Some(command) => format!("- Verify command: {}", code(command)),
        None => "- Verify command: none; not verified by a command".to_owned(),
    });
    if totals.changes.is_some() {
        line(format!("- Changes: {}", changed(totals.changes)));
    }
    line(format!(
        "- Cost: {}; agent time: {}; {}, {}",
        ui::money(totals.cost_usd.map(dex::files::micro)),
        ui::duration(totals.duration_ms),
        ui::count(totals.cycles as usize, "cycle"),
        ui::count(totals.stages, "stage"),
    ));
    if !report.features.is_empty() {
        line("\n## Features\n".to_owned());
        line("| | feature | verified | changes | cost | time | cycles |".to_owned());
        line("|---|---|---|---|---|---|---|".to_owned());
    }
    for it in &report.features {
        let outcome = match it.outcome {
            Outcome::Done => "done",
            Outcome::Active => "not finished",
            Outcome::Skipped => "given up",
            Outcome::Pending => "not begun",
        };
        line(format!(
            "| {outcome} | {} | {} | {} | {} | {} | {} |",
            escaped(&it.title),
            escaped(&it.verified.words()),
            changed(it.changes),
            ui::money(it.cost_usd.map(dex::files::micro)),
            ui::duration(it.duration_ms),
            it.cycles
                .iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        ));
    }
    lists(&mut text, report);
    text
}

fn lists(text: &mut String, report: &Report) {
    let failed = report.failed_attempts.iter().map(|it| {
        let reason = it.reason.as_deref().map(|it| format!(": {}", escaped(it)));
        let reason = reason.unwrap_or_default();
        let again = if it.retried { ", tried again" } else { "" };
        format!(
            "{} {}{reason}{again}",
            code(&it.checkpoint),
            status_word(it.status)
        )
    });
    list(text, "Attempts that failed", failed);
    let skipped = report.skipped_stages.iter().map(|it| {
        let reason = it.reason.as_deref().unwrap_or("not needed");
        format!("{}: {}", code(&it.checkpoint), escaped(reason))
    });
    list(text, "Stages skipped", skipped);
    let assumed = report.assumptions.iter().map(|it| {
        let (it, at) = (&it.assumption, code(&it.checkpoint));
        format!(
            "{at} {}: **{}** ({})",
            escaped(&it.question),
            escaped(&it.answer),
            escaped(&it.by)
        )
    });
    list(text, "Questions", assumed);
    let left_out = report.left_out.iter().map(|it| {
        let reason = escaped(&it.left_out.reason);
        format!(
            "{} {reason} ({})",
            code(&it.left_out.path),
            code(&it.checkpoint)
        )
    });
    list(text, "Left out of commits", left_out);
    let noticed = report
        .noticed
        .iter()
        .map(|it| format!("{} {}", code(&it.checkpoint), escaped(&it.text)));
    list(text, "Noticed", noticed);
    list(text, "Notes", report.notes.iter().map(|it| escaped(it)));
    list(
        text,
        "Did not agree",
        report.differences.iter().map(|it| escaped(&it.text)),
    );
    let next = report
        .next
        .iter()
        .map(|it| format!("{}: {}", code(&it.command), escaped(&it.why)));
    list(text, "Next", next);
}

fn list(text: &mut String, title: &str, items: impl Iterator<Item = String>) {
    let mut first = true;
    for item in items {
        if std::mem::take(&mut first) {
            let _ = writeln!(text, "\n## {title}\n");
        }
        let _ = writeln!(text, "- {item}");
    }
}

/// Text of others as plain text.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in clean(text).chars() {
        if c.is_ascii_punctuation()
            && !matches!(
                c,
                '.' | ',' | ':' | ';' | '-' | '/' | '\'' | '?' | '(' | ')'
            )
        {
            shown.push('\\');
        }
        shown.push(c);
    }
    shown
}

/// Text of others as code: fenced by more backticks than it holds.
fn code(text: &str) -> String {
    let text = clean(text).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

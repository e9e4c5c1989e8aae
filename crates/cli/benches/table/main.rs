//! Our time beside that of stock git doing the same work; prints one table.
//!
//! Every peer's command runs between two of ours, in the same minute on the same disk, so that
//! only the ratio of the medians means anything. Nothing is asserted about absolute times.
//! How to run it, and what each row is: `benches/README.md`.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod reading;
mod repo;
mod stages;

use std::process::{Command, ExitCode};
use std::time::Duration;

/// One line of the table.
struct Row {
    operation: &'static str,
    size: String,
    peer: &'static str,
    target: &'static str,
    ours: Samples,
    theirs: Samples,
}

/// Durations of the same work, one after the other.
#[derive(Default)]
struct Samples(Vec<Duration>);

impl Samples {
    fn median_ms(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted
            .get(sorted.len() / 2)
            .map_or(f64::NAN, |it| it.as_secs_f64() * 1000.0)
    }
}

impl Row {
    fn ratio(&self) -> f64 {
        self.theirs.median_ms() / self.ours.median_ms()
    }
}

/// How much is measured.
struct Form {
    /// Files of the repositories.
    files: &'static [usize],
    /// Cycles of a run, five measured stages each.
    cycles: usize,
    /// Cold starts of a reading command.
    starts: usize,
}

fn main() -> ExitCode {
    // Our own code starts git with the environment of this process: one without the user's
    // configuration, so that everybody measures the same.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_none_or(|it| it != "--inside") {
        return in_clean_environment(&args);
    }
    let form = if args.iter().any(|it| it == "--short") {
        Form {
            files: &[10_000],
            cycles: 2,
            starts: 15,
        }
    } else {
        Form {
            files: &[10_000, 100_000],
            cycles: 4,
            starts: 40,
        }
    };
    println!(
        "| operation | size | peer | ours, ms | peer, ms | peer ÷ ours | aim | samples |\n\
         |---|---|---|---|---|---|---|---|"
    );
    for &files in form.files {
        let (ours, theirs) = repo::pair(files);
        let rows = stages::measure(&ours, &theirs, files, form.cycles);
        rows.iter().for_each(print);
        reading::measure(&ours, files, form.starts)
            .iter()
            .for_each(print);
    }
    ExitCode::SUCCESS
}

fn print(row: &Row) {
    println!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.2} | {} | {} |",
        row.operation,
        row.size,
        row.peer,
        row.ours.median_ms(),
        row.theirs.median_ms(),
        row.ratio(),
        row.target,
        row.ours.0.len(),
    );
}

fn in_clean_environment(args: &[String]) -> ExitCode {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(std::env::current_exe().expect("ourselves"));
    command.arg("--inside").args(args);
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("GIT_") || name.starts_with("DEX_") || name.starts_with("XDG_") {
            command.env_remove(&key);
        }
    }
    let status = command
        .env("HOME", home.path())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

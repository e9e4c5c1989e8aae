//! `dex log`: what the agent did, step by step, as the transcripts of this machine say.
//!
//! Files may be huge (case K01): they are read line by line, a line at most [`MAX_LINE`] long,
//! and nothing is kept. Where there are no transcripts (another clone), the run's record holds a
//! bounded selection of steps.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agents::transcript::Step;
use dex::facts::{self, Known};
use dex::files::lock;
use dex::live::Live;
use dex::stage::Place;
use gitdb::Repo;
use serde_json::Value;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, styled};

pub(super) mod lines;
pub(super) mod transcripts;

use lines::Line;
use transcripts::{MAX_LINE, Open, run_id, transcripts};

/// How often `-f` looks.
const EVERY: Duration = Duration::from_millis(200);

/// Shows the transcripts of a run.
pub fn log(dir: &Path, args: &args::Log) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = facts::find(&repo, args.run.as_deref())?;
    let Some(id) = run_id(&repo, &known) else {
        return from_record(&repo, &known, args);
    };
    let folder = Live::dir(&repo, &id).join("log");
    let running = || is_running(&repo, &id);
    let files = transcripts(&folder)?;
    let mut shown = Shown {
        json: args.json,
        unread: 0,
        too_long: 0,
    };
    if args.follow && running() {
        follow(&folder, files, &running, &mut shown)?;
        ui::talk(format!("it stopped; see `dex status {}`", known.branch));
    } else if files.is_empty() {
        return from_record(&repo, &known, args);
    } else {
        let _paging = (!args.json).then(pager::start);
        for path in files {
            let mut transcript = Open::new(path)?;
            shown.heading(&transcript);
            shown.rest_of(&mut transcript)?;
            // Cut off while it was written (case F06).
            shown.unread += u64::from(transcript.is_torn());
        }
    }
    shown.say_what_is_missing();
    Ok(Exit::Done)
}

fn is_running(repo: &Repo, id: &str) -> bool {
    let Ok(Some(live)) = Live::read(repo, id) else {
        return false;
    };
    lock::holder(&live.worktree, &live.git_dir)
        .is_some_and(|it| it.run_id.as_deref().is_none_or(|holds| holds == id))
}

/// Shows the newest transcript, what is added to it, and every later one, until nobody works on
/// the run any more.
fn follow(
    folder: &Path,
    mut files: Vec<PathBuf>,
    running: &dyn Fn() -> bool,
    shown: &mut Shown,
) -> Result<(), Failure> {
    let mut seen = files.pop();
    let mut current = seen.clone().map(Open::new).transpose()?;
    if let Some(transcript) = &current {
        shown.heading(transcript);
    }
    loop {
        // Asked first: what it wrote before it ended is there to be read afterwards.
        let works = running();
        if let Some(transcript) = &mut current {
            shown.rest_of(transcript)?;
        }
        for path in transcripts(folder)? {
            if seen.as_ref().is_some_and(|it| path <= *it) {
                continue;
            }
            if let Some(before) = &mut current {
                shown.rest_of(before)?;
            }
            let mut next = Open::new(path.clone())?;
            shown.heading(&next);
            shown.rest_of(&mut next)?;
            seen = Some(path);
            current = Some(next);
        }
        if !works {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

fn heading(checkpoint: &str) {
    let label = checkpoint.split_once(':').and_then(|(stage, cycle)| {
        let place = Place {
            stage: stage.parse().ok()?,
            cycle: cycle.parse().ok()?,
            feature: None,
        };
        Some(place.label())
    });
    let name = clean(checkpoint);
    ui::out(match label {
        Some(label) => format!("{} {}", styled(BOLD, label), styled(DIM, name)),
        None => styled(BOLD, name),
    });
}

/// How steps are shown, and what could not be.
struct Shown {
    json: bool,
    unread: u64,
    too_long: u64,
}

impl Shown {
    fn heading(&self, transcript: &Open) {
        if !self.json {
            heading(&transcript.checkpoint);
        }
    }

    /// Shows every complete line there is by now.
    fn rest_of(&mut self, transcript: &mut Open) -> Result<(), Failure> {
        loop {
            match transcript.next()? {
                Line::Whole(line) => {
                    self.line(&line, &transcript.checkpoint, &transcript.phase_id);
                }
                Line::TooLong => self.too_long += 1,
                Line::NotYet => return Ok(()),
            }
        }
    }

    fn line(&mut self, line: &[u8], checkpoint: &str, phase_id: &str) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if !self.json {
            match serde_json::from_slice::<Step>(line) {
                Ok(step) => show(&step),
                Err(_) => self.unread += 1,
            }
            return;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Object(mut step)) => {
                step.insert("checkpoint".to_owned(), checkpoint.into());
                step.insert("phaseId".to_owned(), phase_id.into());
                ui::json_line(&step);
            }
            Ok(_) | Err(_) => self.unread += 1,
        }
    }

    fn say_what_is_missing(&self) {
        if self.unread > 0 {
            ui::talk(format!(
                "{} could not be read",
                ui::count(self.unread as usize, "line")
            ));
        }
        if self.too_long > 0 {
            let lines = ui::count(self.too_long as usize, "line");
            ui::talk(format!(
                "{lines} longer than {} left out",
                ui::size(MAX_LINE as u64)
            ));
        }
    }
}

/// One step, for people.
fn show(step: &Step) {
    // Totals so far; the stage's own are in `dex show` and in `--json`.
    if step.kind == "usage" && step.text.is_empty() {
        return;
    }
    let at = format!("{:>8.1} s", step.at_ms as f64 / 1000.0);
    let style = match step.kind.as_str() {
        "tool_call" => NAME,
        "denied" | "retry" | "dropped" => WARN,
        "tool_result" if step.ok == Some(false) => BAD,
        "tool_result" => GOOD,
        _ => DIM,
    };
    let kind = match (step.kind.as_str(), step.ok) {
        ("tool_result", Some(false)) => "failed".to_owned(),
        ("tool_result", _) => "answered".to_owned(),
        ("tool_call", _) => step
            .tool
            .as_deref()
            .map_or_else(|| "tool".to_owned(), clean),
        (kind, _) => clean(kind),
    };
    let mut lines = step.text.trim_end().split('\n');
    let first = clean(lines.next().unwrap_or_default().trim_end_matches('\r'));
    let line = format!(
        "{} {} {first}",
        styled(DIM, at),
        styled(style, format!("{kind:<12}"))
    );
    ui::out(line.trim_end());
    for line in lines {
        ui::out(format!("{:24}{}", "", clean(line.trim_end_matches('\r'))));
    }
}

/// The steps that travel with the run.
fn from_record(repo: &Repo, known: &Known, args: &args::Log) -> Result<Exit, Failure> {
    let run = facts::read_run(repo, known)?;
    if !args.json {
        ui::talk("the transcripts are not on this machine; these steps are in the run's record");
    }
    let _paging = (!args.json).then(pager::start);
    let mut none = true;
    for phase in run.phases.iter().filter(|it| !it.steps.is_empty()) {
        none = false;
        let checkpoint = dex::report::checkpoint_of(phase);
        if !args.json {
            heading(&checkpoint);
        }
        for step in &phase.steps {
            if args.json {
                let mut step = serde_json::to_value(step).expect("a step is JSON");
                step["checkpoint"] = checkpoint.as_str().into();
                step["phaseId"] = phase.phase_id.as_str().into();
                ui::json_line(&step);
            } else {
                show(step);
            }
        }
    }
    if none {
        ui::talk("the record holds no steps either");
    }
    Ok(Exit::Done)
}

//! Asking the CLI about itself, within seconds and without spending.
//!
//! Always from a directory of ours: in a repository's directory it would read that repository's
//! settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::command_line::Features;
use super::ended_by_itself;
use crate::ending::{could_not_start, unavailable};
use crate::process::{self, End, Go, Line, StartError};
use crate::text::with_causes;
use crate::{Availability, Ended, Stop};

/// How long one question may take when a person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// And when a run does, perhaps on a machine that is busy with its tests.
const LONGER_PATIENCE: Duration = Duration::from_secs(30);
const OUTPUT_BYTES: u64 = 1024 * 1024;

type Environment = BTreeMap<OsString, OsString>;

/// Is it there, and logged in as far as it knows itself?
pub(super) fn availability(program: &Path, environment: &Environment) -> Availability {
    let name = program.display().to_string();
    let dir = std::env::temp_dir().join(format!("dex-ask-claude-{}", uuid::Uuid::now_v7()));
    if std::fs::create_dir(&dir).is_err() {
        return Availability::Ready { version: None };
    }
    let asked = ask_both(program, environment, &dir);
    // Nothing of value is in it; a leftover in the temp directory is the worst case.
    let _ = std::fs::remove_dir_all(&dir);
    match asked {
        Ok(availability) => availability,
        Err(StartError::NotFound { .. }) => Availability::NotInstalled { program: name },
        Err(error @ StartError::Io { .. }) => Availability::NotInstalled {
            program: with_causes(&error),
        },
    }
}

fn ask_both(
    program: &Path,
    environment: &Environment,
    dir: &Path,
) -> Result<Availability, StartError> {
    let stop = Stop::new();
    let question = |words: &[&str]| ask(program, words, PATIENCE, environment, dir, &stop);
    let (end, text) = question(&["--version"])?;
    if !ended_by_itself(end) {
        let program = format!("{} (it does not answer --version)", program.display());
        return Ok(Availability::NotInstalled { program });
    }
    let version = text.split_whitespace().next().map(str::to_owned);
    let (end, text) = question(&["auth", "status"])?;
    // Only a plain "no" counts: an old version does not know the question, and one that is slow
    // to answer may still work.
    let status: Option<Value> = serde_json::from_str(&text).ok();
    let logged_in = status.and_then(|it| it["loggedIn"].as_bool());
    if ended_by_itself(end) && logged_in == Some(false) {
        let hint = "claude auth login".to_owned();
        return Ok(Availability::NotLoggedIn { hint });
    }
    Ok(Availability::Ready { version })
}

/// What the installed version can do; or why it is not to be used.
pub(super) fn features(
    program: &Path,
    environment: &Environment,
    scratch: &Path,
    stop: &Stop,
) -> Result<Features, Ended> {
    let words = ["--help"];
    let asked = ask(program, &words, LONGER_PATIENCE, environment, scratch, stop);
    let (end, help) = asked.map_err(|error| could_not_start(&error))?;
    match end {
        End::Stopped => return Err(Ended::Stopped),
        End::Exited(_) => {}
        End::TimeOut | End::Idle | End::OutputCap | End::Asked => {
            let detail = format!("{} does not answer --help", program.display());
            return Err(unavailable(detail));
        }
    }
    let features = Features::read(&help);
    if features.missing().is_empty() {
        return Ok(features);
    }
    let missing = features.missing().join(" ");
    let program = program.display();
    Err(unavailable(format!(
        "{program} lacks {missing}, without which it cannot be run safely; run `claude update`"
    )))
}

fn ask(
    program: &Path,
    arguments: &[&str],
    wall: Duration,
    environment: &Environment,
    dir: &Path,
    stop: &Stop,
) -> Result<(End, String), StartError> {
    let mut argv: Vec<OsString> = vec![program.into()];
    argv.extend(arguments.iter().map(OsString::from));
    let spec = process::Spec {
        argv,
        dir: dir.to_owned(),
        env: environment.clone(),
        stdin: Vec::new(),
        wall,
        idle: None,
        output_bytes: OUTPUT_BYTES,
        line_bytes: 64 * 1024,
        sandbox: crate::sandbox::Sandbox::none(),
        process_list: dir.join("processes"),
    };
    let mut text = String::new();
    let finished = process::run(&spec, stop, &mut |line| {
        if let Some(Line::Out(line)) = line {
            text.push_str(&line);
            text.push('\n');
        }
        Go::On
    })?;
    Ok((finished.end, text))
}

//! Running the project's own verify command, outside the agent.
//!
//! It runs what agents wrote, so git's configuration and `.dex/` are kept out of its hands as
//! they are out of an agent's. Its word holds for the files it ran on: when they are others at
//! the commit, it is run again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use agents::Stop;
use agents::process::{self, End, Go, Line, Spec};
use agents::sandbox::Sandbox;
use gitdb::snapshot::{self, ChangedKind};
use serde_json::{Map, Value};

use super::{Event, RunError, Runner, inputs, new_id};
use crate::answer::{self, Answer};
use crate::files::record::{VerifiedBy, Verify};
use crate::live::{Live, Work};
use crate::stage::Stage;

/// Bytes of output kept for the agent and the record.
const TAIL_BYTES: usize = 16 * 1024;
/// How the scratch directories of the command are told from those of attempts.
const SCRATCH: &str = "verify-";

/// Paths, escaped, each with what names its content.
pub(super) type FileStates = BTreeMap<String, String>;

/// How the command ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ran {
    /// For the record; `passed` is the command's word alone.
    pub(super) verify: Verify,
    /// The end of its output, redacted.
    pub(super) output: String,
    /// We were asked to stop.
    pub(super) stopped: bool,
    /// What it changed outside its work, and was put back.
    pub(super) noticed: Vec<String>,
    /// Names the files as they were when it ended.
    pub(super) files: String,
}

impl Runner<'_> {
    /// Runs the verify command, and puts back what it changed outside its work.
    pub(super) fn run_verify(&mut self, command: &str) -> Result<Ran, RunError> {
        self.observer.event(&Event::Verifying { command });
        let id = format!("{SCRATCH}{}", new_id());
        let dir = self.scratch(&id);
        let walls = self.verify_walls(&dir)?;
        self.protect(&dir)?;
        let wall = Duration::from_millis(self.live.start.settings.stage_timeout_ms);
        let root = self.live.worktree.clone();
        gitdb::fault::point("verify.before");
        let mut ran = run(command, (&root, &dir), walls, wall, &self.control.now);
        gitdb::fault::point("verify.after");
        ran.noticed = self.end_verify(&id)?;
        ran.files = self.files_now()?;
        Ok(ran)
    }

    /// Puts back what a command changed during which an earlier process was killed.
    pub(super) fn end_killed_verify(&mut self) -> Result<(), RunError> {
        let attempts = Live::dir(&self.repo, &self.live.run_id).join("attempts");
        // Not there: no attempt was ever made.
        let found = std::fs::read_dir(attempts).into_iter().flatten().flatten();
        let names = found.filter_map(|it| it.file_name().into_string().ok());
        for id in names.filter(|it| it.starts_with(SCRATCH)) {
            self.end_verify(&id)?;
        }
        Ok(())
    }

    fn end_verify(&mut self, id: &str) -> Result<Vec<String>, RunError> {
        let noticed: Vec<String> = self
            .put_back(id)?
            .iter()
            .map(|it| format!("the verify command ran, and {it}"))
            .collect();
        for text in &noticed {
            self.notice(text);
        }
        // What stays is put back once more at the next start, which changes nothing.
        let _ = std::fs::remove_dir_all(self.scratch(id));
        Ok(noticed)
    }

    /// Runs the command again for a finished `verify` whose files are no longer those it ran on;
    /// that result counts. False when we were asked to stop instead.
    pub(super) fn verify_again(&mut self) -> Result<bool, RunError> {
        let Work::AgentFinished(mut done) = self.live.work.clone() else {
            return Ok(true);
        };
        let command = self.live.start.settings.verify_command.clone();
        let (Stage::Verify, Some(command), Some(before)) =
            (done.attempt.stage, command, &done.attempt.verified_files)
        else {
            return Ok(true);
        };
        if self.files_now()? == *before {
            return Ok(true);
        }
        if self.control.now.is_set() {
            return Ok(false);
        }
        let why = "files changed after the verify command had run; it was run again";
        self.notice(why);
        let ran = self.run_verify(&command)?;
        if ran.stopped {
            return Ok(false);
        }
        let given = done.answer.clone().unwrap_or(Value::Null);
        done.attempt.verify = Some(match answer::check(Stage::Verify.name(), &given) {
            Ok(Answer::Verify(word)) => super::attempt::settle_verify(Some(ran.verify), &word),
            // It was checked when it was accepted.
            Ok(_) | Err(_) => ran.verify,
        });
        done.attempt.verified_files = Some(ran.files);
        done.noticed.push(why.to_owned());
        done.noticed.extend(ran.noticed);
        self.live.work = Work::AgentFinished(done);
        self.live.write(&self.repo)?;
        Ok(true)
    }

    /// Names the files as they are, outside `.dex/`, without making an object: a likely secret
    /// may be among them. What is never committed does not count.
    fn files_now(&self) -> Result<String, RunError> {
        let head = self.repo.resolve_commit("HEAD")?;
        let mut text = format!("{head:?}\n");
        for (path, state) in self.file_states()? {
            let _ = writeln!(text, "{path:?} {state}");
        }
        Ok(inputs::sha256(text.as_bytes()))
    }

    /// What is not committed, outside `.dex/`, with what it is now.
    pub(super) fn file_states(&self) -> Result<FileStates, RunError> {
        let mut states = FileStates::new();
        for changed in snapshot::survey(&self.repo)? {
            if changed.path.starts_with(b".dex/") {
                continue;
            }
            let path = std::ffi::OsStr::from_bytes(&changed.path);
            let path = self.live.worktree.join(path);
            let most = self.live.start.settings.max_file_bytes;
            let there = match changed.kind {
                ChangedKind::NestedRepo | ChangedKind::Other => continue,
                ChangedKind::File { bytes } if bytes > most => continue,
                // Gone or unreadable is a state as well.
                ChangedKind::File { .. } => std::fs::read(&path).map_or(String::new(), |bytes| {
                    let mode = std::fs::metadata(&path).map_or(0, |it| it.permissions().mode());
                    format!("{}{:o}", inputs::sha256(&bytes), mode & 0o100)
                }),
                ChangedKind::Link => format!("{:?}", std::fs::read_link(&path).ok()),
                ChangedKind::Deleted => "gone".to_owned(),
            };
            states.insert(changed.path.escape_ascii().to_string(), there);
        }
        Ok(states)
    }
}

/// Runs the command through `sh -c`, because people write `cargo test && npm test`. It comes from
/// the user's own settings, never from the repository.
fn run(
    command: &str,
    (dir, scratch): (&Path, &Path),
    walls: Sandbox,
    wall: Duration,
    stop: &Stop,
) -> Ran {
    let mut tail = Tail::default();
    let confined = walls.to_string();
    let spec = Spec {
        argv: vec!["sh".into(), "-c".into(), command.into()],
        dir: dir.to_owned(),
        env: BTreeMap::new(),
        stdin: Vec::new(),
        wall,
        idle: None,
        output_bytes: 256 * 1024 * 1024,
        line_bytes: 16 * 1024,
        sandbox: walls,
        process_list: scratch.join("verify-processes"),
    };
    let finished = process::run(&spec, stop, &mut |line| {
        match line {
            Some(Line::Out(text) | Line::Err(text)) => tail.push(&text),
            None => {}
        }
        Go::On
    });
    let (exit, problem) = match finished {
        Ok(done) => match done.end {
            End::Exited(status) => (status, None),
            End::TimeOut => (None, Some("it did not end in time")),
            End::OutputCap => (None, Some("it wrote too much output")),
            End::Stopped => (None, Some("it was stopped")),
            End::Idle | End::Asked => (None, Some("it was ended")),
        },
        Err(_) => (None, Some("sh could not be started")),
    };
    if let Some(problem) = problem {
        tail.push(problem);
    }
    let passed = exit == Some(0);
    let output = agents::redact::redact(&tail.text);
    let mut failures = Vec::new();
    if !passed {
        failures.push(format!("{command} failed: {}", last_lines(&output, 5)));
    }
    let verify = Verify {
        command: Some(command.to_owned()),
        exit,
        by: VerifiedBy::Command,
        passed,
        failures,
        more: Map::from_iter([("sandbox".to_owned(), confined.into())]),
    };
    Ran {
        verify,
        output,
        stopped: stop.is_set(),
        noticed: Vec::new(),
        files: String::new(),
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
    let mut shown = lines[lines.len().saturating_sub(count)..].join(" / ");
    if shown.len() > 400 {
        let cut = shown.ceil_char_boundary(shown.len() - 400);
        shown.drain(..cut);
    }
    shown
}

/// The end of a stream.
#[derive(Default)]
struct Tail {
    text: String,
}

impl Tail {
    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        // Cut rarely, so that a long output costs linear time.
        if self.text.len() > 2 * TAIL_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - TAIL_BYTES);
            self.text.drain(..cut);
        }
    }
}

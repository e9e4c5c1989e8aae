//! Child processes under limits: scrubbed environment, bounded output, the whole tree ended.
//!
//! Two threads read the output, one line at a time and never more of a line than its bound; the
//! caller's thread gets the lines and looks at the clocks. The end of output means nothing here:
//! a child may close its output and live, or leave it to somebody who outlives it. What ends a
//! run is the guard's exit, and the guard exits when the whole tree is gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::guard::list::Ending;
use crate::{Ended, Failure, Limits, Stop};

mod environment;
mod guarded;
mod input;
mod lines;

pub use environment::{find_program, inherited_environment, provider_environment};

pub use input::{Input, NotRead};

use guarded::Guarded;
use lines::Message;

/// How often clocks, [`Stop`] and the guard are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often the line handler hears that there was no output.
const QUIET: Duration = Duration::from_millis(100);
/// After the guard's exit the pipes are at their end, unless somebody outside the tree holds
/// them: silence for this long, or output for the longer time, is taken for that.
const DRAIN_QUIET: Duration = Duration::from_millis(300);
const DRAIN: Duration = Duration::from_secs(5);

/// What to start and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Program and arguments; no shell.
    pub argv: Vec<OsString>,
    /// Working directory.
    pub dir: PathBuf,
    /// Environment added to the allow-list ([`inherited_environment`]).
    pub env: BTreeMap<OsString, OsString>,
    /// Fed to standard input first; [`run`] then closes it, [`converse`] leaves that to its caller.
    pub stdin: Vec<u8>,
    /// Wall clock.
    pub wall: Duration,
    /// Time without any output.
    pub idle: Option<Duration>,
    /// Bytes of output read in total; more ends the process.
    pub output_bytes: u64,
    /// Longest line handed on; the rest of a longer one is dropped and said to be.
    pub line_bytes: usize,
    /// Walls around the program.
    pub sandbox: crate::sandbox::Sandbox,
    /// Where the guard keeps its list of processes (pid and start time); see [`crate::guard`].
    pub process_list: PathBuf,
}

/// A line of output, without its line end, decoded lossily.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// From standard output.
    Out(String),
    /// From standard error.
    Err(String),
}

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status (none: a signal).
    Exited(Option<i32>),
    /// Wall clock over.
    TimeOut,
    /// No output for too long.
    Idle,
    /// Too much output.
    OutputCap,
    /// [`Stop`] was set.
    Stopped,
    /// The line handler asked to end it.
    Asked,
}

impl End {
    /// How an attempt ended that one of our limits ended; none when it ended by itself or the
    /// line handler asked, which then knows why.
    pub(crate) fn ended_by(self, limits: &Limits) -> Option<Ended> {
        let (failure, detail) = match self {
            End::Exited(_) | End::Asked => return None,
            End::Stopped => return Some(Ended::Stopped),
            End::TimeOut => (
                Failure::TimeOut,
                format!("not finished after {}", in_words(limits.wall)),
            ),
            End::Idle => (
                Failure::Idle,
                format!("no output for {}", in_words(limits.idle)),
            ),
            End::OutputCap => (
                Failure::OutputCap,
                format!("more than {} bytes of output", limits.output_bytes),
            ),
        };
        Some(Ended::Failed { failure, detail })
    }
}

fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0..=9 => format!("{} ms", duration.as_millis()),
        seconds @ 10..=119 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited(Some(status)) => write!(f, "exited with status {status}"),
            End::Exited(None) => f.write_str("ended by a signal"),
            End::TimeOut => f.write_str("took too long"),
            End::Idle => f.write_str("was silent for too long"),
            End::OutputCap => f.write_str("wrote too much"),
            End::Stopped => f.write_str("stopped"),
            End::Asked => f.write_str("ended by us"),
        }
    }
}

/// What the line handler wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Keep reading.
    On,
    /// End the process tree now.
    End,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Why it ended.
    pub end: End,
    /// Processes that could not be ended (pids).
    pub survivors: Vec<u32>,
}

/// The program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Not found on PATH.
    #[error("{program} is not installed, or not on PATH")]
    NotFound {
        /// The program.
        program: String,
    },
    /// Anything else.
    #[error("{program} could not be started")]
    Io {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Runs a program to its end, handing on each line as it comes. Term, then kill, for the whole
/// tree; returns only when the tree is gone. `line` is also called with `None` about every
/// tenth of a second without output, so a caller can keep clocks of its own.
///
/// After [`Go::End`] and after [`End::OutputCap`] no further line is handed on. After the other
/// ends the lines that a process still writes while it is being ended are.
pub fn run(
    spec: &Spec,
    stop: &Stop,
    line: &mut dyn FnMut(Option<Line>) -> Go,
) -> Result<Finished, StartError> {
    let guarded = Guarded::start(spec)?;
    guarded.input.close();
    to_its_end(guarded, spec, stop, &mut |_, it| line(it))
}

/// Like [`run`], for a program that is talked to: `line` also gets its input, to answer it.
pub fn converse(
    spec: &Spec,
    stop: &Stop,
    line: &mut dyn FnMut(&Input, Option<Line>) -> Go,
) -> Result<Finished, StartError> {
    to_its_end(Guarded::start(spec)?, spec, stop, line)
}

type Handler<'a> = dyn FnMut(&Input, Option<Line>) -> Go + 'a;

fn to_its_end(
    guarded: Guarded,
    spec: &Spec,
    stop: &Stop,
    line: &mut Handler<'_>,
) -> Result<Finished, StartError> {
    let mut running = Running {
        guarded,
        spec,
        stop,
        started: Instant::now(),
        last_line: Instant::now(),
        end: None,
    };
    running.until_the_guard_exits(line);
    running.drain(line);
    let Running { guarded, end, .. } = running;
    let result = guarded.result()?;
    Ok(Finished {
        end: end.unwrap_or(End::Exited(match result.ending {
            Ending::Exit(status) => Some(status),
            Ending::Signal(_) | Ending::Failed(_) | Ending::Unknown => None,
        })),
        survivors: result.survivors,
    })
}

struct Running<'a> {
    guarded: Guarded,
    spec: &'a Spec,
    stop: &'a Stop,
    started: Instant,
    /// When the handler was last called.
    last_line: Instant,
    /// Set once, when we are the ones who end it.
    end: Option<End>,
}

impl Running<'_> {
    fn until_the_guard_exits(&mut self, line: &mut Handler<'_>) {
        let mut looked = Instant::now();
        loop {
            match self.guarded.lines.recv_timeout(LOOK) {
                Ok(message) => self.hand_on(message, line),
                Err(RecvTimeoutError::Timeout) => self.quiet(line),
                Err(RecvTimeoutError::Disconnected) => {
                    if self.guarded.has_exited() {
                        return;
                    }
                    std::thread::sleep(LOOK / 4);
                    self.quiet(line);
                }
            }
            // A talkative child must not cost a system call for each of its lines.
            if looked.elapsed() >= LOOK / 2 {
                looked = Instant::now();
                if self.guarded.has_exited() {
                    return;
                }
                self.look_at_the_clocks();
            }
        }
    }

    fn hand_on(&mut self, message: Message, line: &mut Handler<'_>) {
        match message {
            Message::Over => self.end_with(End::OutputCap),
            Message::Line(text) => {
                if matches!(self.end, Some(End::Asked | End::OutputCap)) {
                    return;
                }
                self.last_line = Instant::now();
                if line(&self.guarded.input, Some(text)) == Go::End {
                    self.end_with(End::Asked);
                }
            }
        }
    }

    fn quiet(&mut self, line: &mut Handler<'_>) {
        if self.end.is_none() && self.last_line.elapsed() >= QUIET {
            self.last_line = Instant::now();
            if line(&self.guarded.input, None) == Go::End {
                self.end_with(End::Asked);
            }
        }
        // Only with no line waiting: a slow handler is not a silent child.
        if (self.spec.idle).is_some_and(|idle| self.guarded.silence() >= idle) {
            self.end_with(End::Idle);
        }
    }

    fn look_at_the_clocks(&mut self) {
        if self.stop.is_set() {
            self.end_with(End::Stopped);
        } else if self.started.elapsed() >= self.spec.wall {
            self.end_with(End::TimeOut);
        }
        self.guarded.give_up_on_a_stuck_guard();
    }

    fn end_with(&mut self, end: End) {
        if self.end.is_none() {
            self.end = Some(end);
            self.guarded.end_tree();
        }
    }

    /// Hands on what was written before the end.
    fn drain(&mut self, line: &mut Handler<'_>) {
        let started = Instant::now();
        while started.elapsed() < DRAIN {
            match self.guarded.lines.recv_timeout(DRAIN_QUIET) {
                Ok(message) => self.hand_on(message, line),
                Err(_) => return,
            }
        }
    }
}

//! Child processes under limits: scrubbed environment, bounded output, the whole tree ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::Stop;

/// What to start and how.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Program and arguments; no shell.
    pub argv: Vec<OsString>,
    /// Working directory.
    pub dir: PathBuf,
    /// Environment added to the allow-list ([`inherited_environment`]).
    pub env: BTreeMap<OsString, OsString>,
    /// Fed to standard input, then closed.
    pub stdin: Vec<u8>,
    /// Wall clock.
    pub wall: Duration,
    /// Time without any output.
    pub idle: Option<Duration>,
    /// Bytes of output read in total; more ends the process.
    pub output_bytes: u64,
    /// Longest line handed on; the rest of a longer one is dropped and said to be.
    pub line_bytes: usize,
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
pub fn run(
    _spec: &Spec,
    _stop: &Stop,
    _line: &mut dyn FnMut(Option<Line>) -> Go,
) -> Result<Finished, StartError> {
    todo!()
}

/// The variables a child inherits from us: an allow-list (`PATH`, `HOME`, `LANG`, `TERM`,
/// proxies, `XDG_*`, toolchain homes …), never `GIT_*` and never credentials of other tools.
pub fn inherited_environment() -> BTreeMap<OsString, OsString> {
    todo!()
}

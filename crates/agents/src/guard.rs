//! The guard: a small process between us and an agent that ends the agent's whole tree.
//!
//! `dex` starts itself again as the guard (first argument [`ARGUMENT`]). The guard makes its own
//! session, becomes the child sub-reaper, starts the agent, and holds the read end of a pipe
//! whose write end only `dex` has. When the pipe closes, `dex` is gone, however it died: the
//! guard sends TERM to every descendant, waits a moment, sends KILL, until none is left. It
//! keeps the list of descendants (pid and start time) in a file, so that what escaped even the
//! guard's own death is ended at the next start ([`end_leftovers`]).
//!
//! The pipe is the guard's standard input. `dex` writes orders into it, each beginning with one
//! byte: `d`, a length (eight bytes, little-endian) and that much input for the agent; `e`, close
//! the agent's input; `k`, end the tree now. Input that the agent leaves unread waits in the
//! guard, up to a bound at which the agent's input is closed, so an order is always read. The
//! agent's standard output and error are the guard's own, so nothing is copied on the way. How
//! the agent ended is the last thing written to the list (an ending); the exit status
//! says it again, with 128 + n for a signal, in case the list was deleted.
//!
//! Not covered: a process that some other service starts on the agent's behalf (`at`, a
//! container engine, a desktop's service manager) is nobody's descendant. It is found at the
//! next start if it inherited the mark, and otherwise not at all.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::sandbox::confine;

mod keep;
mod leftovers;
pub(crate) mod list;
mod tree;

pub use leftovers::end_leftovers;
pub use tree::start_time;

/// The hidden first argument that turns a program into the guard.
pub const ARGUMENT: &str = "__guard";

/// Environment variable that names another executable to use as guard (tests of this crate).
pub const EXECUTABLE: &str = "DEX_GUARD_EXE";

/// Environment variable that every process under a guard inherits: the list's marker.
pub const MARK: &str = "DEX_GUARD_MARK";

/// Second argument: both sides of the pipe must mean the same, even when the program on disk
/// was replaced while `dex` ran.
pub(crate) const PROTOCOL: &str = "2";

/// First byte of an order: input for the agent.
pub(crate) const ORDER_INPUT: u8 = b'd';
/// First byte of an order: close the agent's input.
pub(crate) const ORDER_CLOSE: u8 = b'e';
/// An order: end the tree.
pub(crate) const ORDER_END: u8 = b'k';

/// Called first in `main`. If this process was started as the guard, does the guard's whole
/// work and returns its exit status; otherwise returns none at once. A process that was started
/// to confine itself ([`crate::sandbox`]) becomes the confined program.
pub fn main_if_guard() -> Option<i32> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    if first == confine::ARGUMENT {
        let (status, why) = confine::main(arguments);
        let _ = writeln!(io::stderr(), "{why}");
        return Some(status);
    }
    if first != ARGUMENT {
        return None;
    }
    let order = Order::from_arguments(arguments)?;
    Some(keep::keep(&order))
}

/// What the guard was told to start.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) list: PathBuf,
    pub(crate) main: Main,
    pub(crate) program: PathBuf,
    /// Name and arguments as the program sees them.
    pub(crate) argv: Vec<OsString>,
}

/// What the process that the guard starts is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Main {
    /// The program.
    Program,
    /// A wrapper that waits for the program and, when it ends itself, takes everything with it
    /// at once: it is spared TERM, so that the program has the time it is given.
    Wrapper,
}

impl Main {
    fn word(self) -> &'static str {
        match self {
            Main::Program => "program",
            Main::Wrapper => "wrapper",
        }
    }

    fn of_word(word: &str) -> Option<Main> {
        [Main::Program, Main::Wrapper]
            .into_iter()
            .find(|it| it.word() == word)
    }
}

impl Order {
    /// The arguments that [`Order::from_arguments`] reads.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![
            OsString::from(ARGUMENT),
            OsString::from(PROTOCOL),
            self.list.clone().into_os_string(),
            self.main.word().into(),
            self.program.clone().into_os_string(),
        ];
        arguments.extend(self.argv.iter().cloned());
        arguments
    }

    fn from_arguments(mut arguments: impl Iterator<Item = OsString>) -> Option<Order> {
        if arguments.next()? != PROTOCOL {
            return None;
        }
        let list = PathBuf::from(arguments.next()?);
        let main = Main::of_word(arguments.next()?.to_str()?)?;
        let program = PathBuf::from(arguments.next()?);
        let argv: Vec<OsString> = arguments.collect();
        if argv.is_empty() {
            return None;
        }
        Some(Order {
            list,
            main,
            program,
            argv,
        })
    }
}

/// The program to start as guard.
///
/// A test binary cannot be its own guard: its `main` is the test harness's, which would take the
/// guard's arguments for names of tests and run those, which start guards. Cargo builds our
/// example beside it.
pub(crate) fn executable() -> io::Result<PathBuf> {
    if let Some(named) = std::env::var_os(EXECUTABLE) {
        return std::path::absolute(named);
    }
    let this = std::env::current_exe()?;
    match this.parent().filter(|it| it.ends_with("deps")) {
        // Not the path on disk: an upgrade may replace that while we run.
        None => Ok(PathBuf::from("/proc/self/exe")),
        Some(deps) => {
            let example = deps.with_file_name("examples").join("agents-guard");
            if example.is_file() {
                return Ok(example);
            }
            let hint = "tests need `cargo build -p agents --example agents-guard`";
            Err(io::Error::new(io::ErrorKind::NotFound, hint))
        }
    }
}

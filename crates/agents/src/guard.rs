//! The guard: a small process between us and an agent that ends the agent's whole tree.
//!
//! `dex` starts itself again as the guard (first argument [`ARGUMENT`]). The guard makes its own
//! session, becomes the child sub-reaper, starts the agent, and holds the read end of a pipe
//! whose write end only `dex` has. When the pipe closes, `dex` is gone, however it died: the
//! guard sends TERM to every descendant, waits a moment, sends KILL, until none is left. It
//! keeps the list of descendants (pid and start time) in a file, so that what escaped even the
//! guard's own death is ended at the next start ([`end_leftovers`]).

use std::path::Path;

/// The hidden first argument that turns a program into the guard.
pub const ARGUMENT: &str = "__guard";

/// Environment variable that names another executable to use as guard (tests of this crate).
pub const EXECUTABLE: &str = "DEX_GUARD_EXE";

/// Called first in `main`. If this process was started as the guard, does the guard's whole
/// work and returns its exit status; otherwise returns none at once.
pub fn main_if_guard() -> Option<i32> {
    todo!()
}

/// Ends processes named in a list that a killed guard left behind (same pid *and* same start
/// time), with their descendants, and any process that carries the list's marker in its
/// environment. Removes the list. Returns the pids ended.
pub fn end_leftovers(_process_list: &Path) -> std::io::Result<Vec<u32>> {
    todo!()
}

/// Start time of a process in clock ticks since boot (field 22 of `/proc/<pid>/stat`), which
/// together with the pid names it for good.
pub fn start_time(_pid: u32) -> Option<u64> {
    todo!()
}

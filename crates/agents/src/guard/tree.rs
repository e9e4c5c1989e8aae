//! Processes as `/proc` shows them, named by pid and start time.
//!
//! A pid alone may mean another process a moment later. Every signal goes through a pidfd whose
//! process was seen to have the expected start time, so it never hits a stranger.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

/// How often the ending of a tree is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A process, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) start: u64,
}

/// The part of `/proc/<pid>/stat` that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) process: Process,
    pub(crate) parent: u32,
    /// Dead, only not yet waited for.
    pub(crate) zombie: bool,
}

/// Start time of a process in clock ticks since boot (field 22 of `/proc/<pid>/stat`), which
/// together with the pid names it for good.
pub fn start_time(pid: u32) -> Option<u64> {
    Some(stat(pid)?.process.start)
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(pid, &std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(pid: u32, bytes: &[u8]) -> Option<Stat> {
    // The name in parentheses is the process's own choice: it may hold spaces, parentheses and
    // bytes that are no UTF-8. What follows the last parenthesis is the kernel's.
    let after_name = bytes.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(bytes.get(after_name..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let state = *fields.first()?;
    let parent = fields.get(1)?.parse().ok()?;
    let threads: u64 = fields.get(17)?.parse().ok()?;
    let start = fields.get(19)?.parse().ok()?;
    Some(Stat {
        process: Process { pid, start },
        parent,
        // A process whose first thread ended while others go on also reads as `Z`.
        zombie: matches!(state, "Z" | "X" | "x") && threads <= 1,
    })
}

/// Every process that can be seen.
pub(crate) fn all() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .collect()
}

/// The living descendants of `roots`, which are not themselves included.
pub(crate) fn descendants(roots: &[u32]) -> Vec<Process> {
    descendants_in(&all(), roots)
}

pub(crate) fn descendants_in(all: &[Stat], roots: &[u32]) -> Vec<Process> {
    let mut children: BTreeMap<u32, Vec<Stat>> = BTreeMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(*stat);
    }
    let mut seen: BTreeSet<u32> = roots.iter().copied().collect();
    let mut todo: Vec<u32> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(parent) = todo.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.process.pid) {
                todo.push(child.process.pid);
                if !child.zombie {
                    found.push(child.process);
                }
            }
        }
    }
    found
}

/// Sends a signal to exactly this process; a process that is gone is no error.
pub(crate) fn signal(process: Process, signal: Signal) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            if start_time(process.pid) == Some(process.start) {
                // It may have ended in between, or belong to somebody else; who still lives is
                // looked at afterwards.
                let _ = rustix::process::pidfd_send_signal(pidfd, signal);
            }
        }
        // A sandbox may refuse the call where it allows `kill`.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            if start_time(process.pid) == Some(process.start) {
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
        Err(_) => {}
    }
}

/// TERM to everything `find` finds, also to what appears later, until none is left or `grace`
/// is over; then KILL until none is left or `bound` is over. Returns what still lives. The process
/// `spared` gets no TERM, only KILL.
pub(crate) fn end(
    find: &mut dyn FnMut() -> Vec<Process>,
    spared: Option<u32>,
    grace: Duration,
    bound: Duration,
) -> Vec<Process> {
    let started = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        let found = find();
        if found.is_empty() {
            return Vec::new();
        }
        if started.elapsed() >= grace {
            break;
        }
        for process in found {
            if Some(process.pid) != spared && asked.insert(process) {
                signal(process, Signal::TERM);
                // A stopped process would only see TERM when somebody continues it.
                signal(process, Signal::CONT);
            }
        }
        std::thread::sleep(LOOK);
    }
    loop {
        let found = find();
        if found.is_empty() || started.elapsed() >= grace + bound {
            return found;
        }
        // Stopped first: a tree that forks faster than we walk it would otherwise outrun us.
        for process in &found {
            signal(*process, Signal::STOP);
        }
        for process in find().into_iter().chain(found) {
            signal(process, Signal::KILL);
        }
        std::thread::sleep(LOOK / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_full_of_parentheses_does_not_hide_the_start_time() {
        let line = b"7 (a) R 9 \xff(b)) S 3 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let stat = parse_stat(7, line).expect("parses");
        assert_eq!((stat.parent, stat.process.start), (3, 4242));
    }

    #[test]
    fn our_own_start_time_is_known_and_that_of_no_process_is_not() {
        assert!(start_time(std::process::id()).is_some());
        assert_eq!(start_time(u32::MAX), None);
    }
}

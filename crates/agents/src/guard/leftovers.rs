//! Ending what outlived its guard.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::list::{List, boot_id};
use super::tree::{self, Process, Stat};

const GRACE: Duration = Duration::from_millis(500);
const KILL_BOUND: Duration = Duration::from_secs(3);

/// Ends processes named in a list that a killed guard left behind (same pid *and* same start
/// time), with their descendants, and any process that carries the list's marker in its
/// environment. Removes the list. Returns the pids ended.
///
/// No list is nothing to do. If something could not be ended the list stays, so that the next
/// start tries again. We ourselves and the processes above us are never touched, even when we
/// were started by what is being ended.
pub fn end_leftovers(process_list: &Path) -> io::Result<Vec<u32>> {
    let list = match List::read(process_list) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut ended = Vec::new();
    // After a reboot a pid and a start time may by accident name somebody else's process.
    if list.boot == boot_id() {
        let mut all_seen = BTreeSet::new();
        let mut find = || {
            let found = leftovers(&list, &all_seen);
            all_seen.extend(found.iter().copied());
            found
        };
        let survivors = tree::end(&mut find, None, GRACE, KILL_BOUND);
        ended.extend(all_seen.iter().filter(|it| !survivors.contains(it)));
        if !survivors.is_empty() {
            return Ok(pids(ended));
        }
    }
    match std::fs::remove_file(process_list) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(pids(ended)),
    }
}

fn pids(processes: Vec<Process>) -> Vec<u32> {
    processes.into_iter().map(|it| it.pid).collect()
}

/// Living processes of the list, those with the mark, those found before (their parent may have
/// been ended in between), and everything below any of them.
fn leftovers(list: &List, seen: &BTreeSet<Process>) -> Vec<Process> {
    let all = tree::all();
    let above = ourselves_and_above(&all);
    let named: BTreeSet<Process> = (list.guard.iter())
        .chain(&list.processes)
        .chain(&list.survivors)
        .chain(seen)
        .copied()
        .collect();
    let roots: Vec<Stat> = all
        .iter()
        .filter(|it| !above.contains(&it.process.pid))
        .filter(|it| named.contains(&it.process) || carries(it.process.pid, &list.mark))
        .copied()
        .collect();
    let pids: Vec<u32> = roots.iter().map(|it| it.process.pid).collect();
    let mut found: BTreeSet<Process> = roots
        .iter()
        .filter(|it| !it.zombie)
        .map(|it| it.process)
        .collect();
    found.extend(tree::descendants_in(&all, &pids));
    found.retain(|it| !above.contains(&it.pid));
    found.into_iter().collect()
}

fn ourselves_and_above(all: &[Stat]) -> BTreeSet<u32> {
    let mut above = BTreeSet::new();
    let mut next = Some(std::process::id());
    while let Some(pid) = next.filter(|pid| above.insert(*pid)) {
        next = all
            .iter()
            .find(|it| it.process.pid == pid)
            .map(|it| it.parent);
    }
    above
}

/// Whether a process was started with this mark. Unreadable environments (other users') say no.
fn carries(pid: u32, mark: &str) -> bool {
    // A list torn by an agent must not turn into "everybody without a mark".
    if mark.len() < 16 {
        return false;
    }
    let entry = format!("{}={mark}", super::MARK);
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ
            .split(|byte| *byte == 0)
            .any(|it| it == entry.as_bytes())
    })
}

//! The guard's list of processes: a small text file, replaced atomically.
//!
//! ```text
//! dex-guard 1
//! boot 2f0c…            the machine's boot id: pids and start times mean nothing after a reboot
//! mark 0198…            in the environment of every process under this guard
//! guard 4242 88123      pid and start time
//! process 4243 88125
//! exit 0                the last thing written: how the agent ended (`exit`, `signal`, `failed`)
//! survivor 4250 88200   what could not be ended
//! ```
//!
//! Lines nobody knows are skipped, so a newer guard's list can still be ended by an older `dex`.

use std::fmt;
use std::io;
use std::path::Path;

use super::tree::Process;

/// What a list says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) boot: String,
    pub(crate) mark: String,
    pub(crate) guard: Option<Process>,
    pub(crate) processes: Vec<Process>,
    pub(crate) ending: Option<Ending>,
    pub(crate) survivors: Vec<Process>,
}

/// How the agent's main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// It could not be started; the system's error number.
    Failed(i32),
    /// It is gone, or a survivor, and its status was not learned.
    Unknown,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "dex-guard 1\nboot {}\nmark {}", self.boot, self.mark)?;
        let mut processes = |name: &str, of: &[Process]| {
            of.iter()
                .try_for_each(|it| writeln!(f, "{name} {} {}", it.pid, it.start))
        };
        processes("guard", self.guard.as_slice())?;
        processes("process", &self.processes)?;
        processes("survivor", &self.survivors)?;
        match self.ending {
            None => Ok(()),
            Some(Ending::Exit(status)) => writeln!(f, "exit {status}"),
            Some(Ending::Signal(signal)) => writeln!(f, "signal {signal}"),
            Some(Ending::Failed(errno)) => writeln!(f, "failed {errno}"),
            Some(Ending::Unknown) => writeln!(f, "unknown 0"),
        }
    }
}

impl List {
    /// A list for a guard about to start on this machine.
    pub(crate) fn new(mark: String) -> List {
        List {
            boot: boot_id(),
            mark,
            ..List::default()
        }
    }

    /// Reads leniently: a line that says nothing we know is skipped.
    pub(crate) fn parse(text: &str) -> List {
        let mut list = List::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            let mut process = || {
                let start = words.next()?.parse().ok()?;
                let pid = value.parse().ok()?;
                Some(Process { pid, start })
            };
            let number = value.parse::<i32>();
            match name {
                "boot" => list.boot = value.to_owned(),
                "mark" => list.mark = value.to_owned(),
                "guard" => list.guard = process(),
                "process" => list.processes.extend(process()),
                "survivor" => list.survivors.extend(process()),
                "exit" => list.ending = number.ok().map(Ending::Exit),
                "signal" => list.ending = number.ok().map(Ending::Signal),
                "failed" => list.ending = number.ok().map(Ending::Failed),
                "unknown" => list.ending = Some(Ending::Unknown),
                _ => {}
            }
        }
        list
    }

    pub(crate) fn read(path: &Path) -> io::Result<List> {
        // Bounded: the agent can reach this file.
        let mut bytes = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(std::fs::File::open(path)?, 1 << 20),
            &mut bytes,
        )?;
        Ok(List::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Replaces the file in one step. Not synced: after a power cut no process is left to end.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        std::fs::write(&new, self.to_string())?;
        std::fs::rename(&new, path)
    }
}

/// Names the time since the machine was started; empty where it cannot be read.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was_written_and_unknown_lines_are_skipped() {
        let at = |pid, start| Process { pid, start };
        let list = List {
            guard: Some(at(1, 2)),
            processes: vec![at(3, 4), at(5, 6)],
            survivors: vec![at(5, 6)],
            ending: Some(Ending::Signal(9)),
            ..List::new("m".into())
        };
        let text = format!("{list}later 1 2 3\nprocess x y\n\n");
        assert_eq!(List::parse(&text), list);
    }
}

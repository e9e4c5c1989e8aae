//! Killing programs at every step, and looking for what they left running.
//!
//! A debug build passes numbered crash points (`gitdb::fault::point`) and dies by SIGKILL at the
//! n-th when `DEX_CRASH_AT=<n>`. [`at_every_point`] runs a command that way for n = 1, 2, … until
//! it comes through, and lets the test check after each. Linux only: processes are found in
//! `/proc`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Output};
use std::time::{Duration, Instant};

const VARIABLE: &str = "DEX_CRASH_AT";
/// More points than any command has; reaching it means the command never completes.
const MAX_POINTS: u32 = 2_000;

/// How a run with a crash point ended.
#[derive(Debug)]
pub enum Run {
    /// It died at the point, by SIGKILL.
    Killed(Output),
    /// It never reached the point.
    Completed(Output),
}

/// Runs a command that is to die at its `n`-th crash point.
pub fn at_point(n: u32, command: &mut Command) -> Run {
    at_named(&n.to_string(), command)
}

/// Runs a command that is to die at a named crash point, `name` or `name:<n>` for its n-th pass.
pub fn at_named(point: &str, command: &mut Command) -> Run {
    let command = command.env(VARIABLE, point);
    let output = command.output().expect("the command starts");
    match output.status.signal() {
        Some(9) => Run::Killed(output),
        _ => Run::Completed(output),
    }
}

/// Runs a command (made new each time, with its fixture) with the first crash point, the second,
/// and so on, until a run completes. `check` is called after every run, the completed one
/// included. Returns how many points there are.
///
/// Panics when there are more than 2,000.
pub fn at_every_point(
    mut command: impl FnMut(u32) -> Command,
    mut check: impl FnMut(u32, &Run),
) -> u32 {
    for n in 1..=MAX_POINTS {
        let run = at_point(n, &mut command(n));
        check(n, &run);
        if matches!(run, Run::Completed(_)) {
            return n - 1;
        }
    }
    panic!("still dying after {MAX_POINTS} crash points");
}

/// Kills a process (it alone) after a delay, unless it ends first; returns how it ended.
pub fn random_kill(child: &mut Child, after: Duration) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status;
        }
        if started.elapsed() >= after {
            // It may end in this moment; then there is nothing to kill.
            let _ = child.kill();
            return child.wait().expect("our child");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Processes that carry `name=value` in the environment they were started with, and their
/// command lines. Zombies and the asking process are left out.
pub fn processes_with(name: &str, value: &str) -> Vec<(u32, String)> {
    let wanted = format!("{name}={value}").into_bytes();
    let carries = |pid: u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| it == wanted)
    };
    let entries = std::fs::read_dir("/proc").expect("/proc, so Linux");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter_map(|name| name.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && carries(*pid))
        .filter_map(|pid| Some((pid, command_line(pid)?)))
        .collect()
}

/// None for a zombie or a process that is gone.
fn command_line(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).replace('\0', " ");
    (!line.is_empty()).then(|| line.trim_end().to_owned())
}

/// Waits until no process carries the marker; returns those left when `within` is over.
pub fn survivors(name: &str, value: &str, within: Duration) -> Vec<(u32, String)> {
    let deadline = Instant::now() + within;
    loop {
        let left = processes_with(name, value);
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

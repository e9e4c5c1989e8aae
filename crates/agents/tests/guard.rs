//! What happens to an agent when `dex`, or the guard, or both are killed.

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agents::guard::{end_leftovers, start_time};
use rustix::process::{Pid, Signal, kill_process};
use support::{Place, eventually, guard_executable, lives, pid_in};

/// An agent with a helper in the same group, one in its own session, and one that is nobody's
/// child any more. All ignore TERM.
const AGENT: &str = "trap '' TERM
    sh -c 'echo $$ > helper; while :; do sleep 0.1; done' &
    setsid sh -c 'echo $$ > session; while :; do sleep 0.1; done' &
    (setsid sh -c 'echo $$ > orphan; while :; do sleep 0.1; done' > /dev/null 2>&1 &)
    echo $$ > main; while :; do sleep 0.1; done";

fn play_dex(place: &Place, script: &str) -> Child {
    Command::new(guard_executable())
        .arg("play-dex")
        .args([place.work(), place.list()])
        .args(["sh", "-c", script])
        .env_remove("DEX_GUARD_EXE")
        .stdout(Stdio::null())
        .spawn()
        .expect("starts")
}

fn pids(place: &Place) -> Vec<u32> {
    ["main", "helper", "session", "orphan"]
        .iter()
        .map(|name| pid_in(&place.file(name)))
        .collect()
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    kill_process(pid, Signal::KILL).expect("kills");
}

/// The guard, from its list.
fn guard_in(list: &Path) -> u32 {
    let mut guard = None;
    eventually("the list names the guard", Duration::from_secs(5), || {
        let text = std::fs::read_to_string(list).unwrap_or_default();
        guard = text
            .lines()
            .find_map(|line| line.strip_prefix("guard ")?.split(' ').next()?.parse().ok());
        guard.is_some()
    });
    guard.expect("found")
}

#[test]
fn g04_when_dex_is_killed_everything_is_gone_within_two_seconds() {
    let place = Place::new();
    let mut dex = play_dex(&place, AGENT);
    let pids = pids(&place);
    dex.kill().expect("kills");
    dex.wait().expect("waits");
    eventually("all are gone", Duration::from_secs(2), || {
        !pids.iter().any(|pid| lives(*pid))
    });
}

#[test]
fn g04_when_dex_and_the_guard_are_killed_the_next_start_ends_everything() {
    let place = Place::new();
    let mut dex = play_dex(&place, AGENT);
    let guard = guard_in(&place.list());
    let pids = pids(&place);
    kill(guard);
    kill(dex.id());
    dex.wait().expect("waits");
    assert!(
        pids.iter().all(|pid| lives(*pid)),
        "nobody is left to end them"
    );
    let ended = end_leftovers(&place.list()).expect("reads");
    assert!(!pids.iter().any(|pid| lives(*pid)));
    assert!(
        pids.iter().all(|pid| ended.contains(pid)),
        "{ended:?} {pids:?}"
    );
    assert!(!place.list().exists());
}

#[test]
fn g04_a_process_the_list_never_named_is_found_by_its_mark() {
    let place = Place::new();
    let mut dex = play_dex(&place, AGENT);
    let guard = guard_in(&place.list());
    let pids = pids(&place);
    kill(guard);
    kill(dex.id());
    dex.wait().expect("waits");
    let text = std::fs::read_to_string(place.list()).expect("a list");
    let without: String = text
        .lines()
        .filter(|line| !line.starts_with("process ") && !line.starts_with("guard "))
        .flat_map(|line| [line, "\n"])
        .collect();
    std::fs::write(place.list(), without).expect("writes");
    end_leftovers(&place.list()).expect("reads");
    assert!(!pids.iter().any(|pid| lives(*pid)));
}

#[test]
fn a_list_never_ends_a_process_with_another_start_time_or_from_before_a_reboot() {
    let place = Place::new();
    let mut bystander = Command::new("sleep").arg("60").spawn().expect("starts");
    let pid = bystander.id();
    let start = start_time(pid).expect("a start time");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let boot = boot.trim();
    for list in [
        format!(
            "dex-guard 1\nboot {boot}\nmark \nprocess {pid} {}\n",
            start + 1
        ),
        format!("dex-guard 1\nboot other\nmark m\nprocess {pid} {start}\n"),
        "not a list at all".to_owned(),
        format!("process {pid} {start}\n"),
    ] {
        std::fs::write(place.list(), list).expect("writes");
        assert!(end_leftovers(&place.list()).expect("reads").is_empty());
        assert!(lives(pid));
        assert!(!place.list().exists());
    }
    let list = format!("dex-guard 1\nboot {boot}\nprocess {pid} {start}\n");
    std::fs::write(place.list(), list).expect("writes");
    assert_eq!(end_leftovers(&place.list()).expect("reads"), [pid]);
    bystander.wait().expect("waits");
}

#[test]
fn a_list_that_names_ourselves_does_not_end_us() {
    let place = Place::new();
    let us = std::process::id();
    let start = start_time(us).expect("a start time");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let list = format!("dex-guard 1\nboot {}\nprocess {us} {start}\n", boot.trim());
    std::fs::write(place.list(), list).expect("writes");
    assert!(end_leftovers(&place.list()).expect("reads").is_empty());
}

#[test]
fn no_list_is_nothing_to_do() {
    let place = Place::new();
    assert!(end_leftovers(&place.list()).expect("reads").is_empty());
}

//! Killed anywhere, a run ends as an undisturbed one: the same commits, nothing twice, nothing
//! lost, nothing paid for again unasked.
//!
//! In CI every kind of crash point is tried once or twice, and twenty runs are killed at random
//! moments; `DEX_CRASH_POINTS=all` and `DEX_KILL_ROUNDS=500` are the long forms.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use testkit::crash::{self, Run};

use super::support::{Project, script};

/// One commit, without what differs between two runs.
#[derive(Debug, PartialEq)]
struct Commit {
    message: String,
    tree_outside_dex: String,
    state: Value,
    manifest: Value,
    learnings: String,
    attempts: Vec<Value>,
}

fn the_script() -> Value {
    script(&["Say hello"], |_, name| match name {
        // The first verify fails, so that a fix and a second one follow.
        "implement_fix" => Some(serde_json::json!({ "delay": 0, "cost": 0.04,
            "writes": [{ "path": "fixed", "content": "yes\n" }] })),
        _ => None,
    })
}

fn project() -> Project {
    let project = Project::new(&the_script());
    project.settings(&serde_json::json!({ "agent": "scripted", "verifyCommand": "test -e fixed" }));
    project
}

/// Everything about a finished run that must not depend on being killed.
fn commits(project: &Project) -> Vec<Commit> {
    let branch = project.branch();
    let ids = project
        .repo
        .git(&["rev-list", "--reverse", &branch, "--not", "main"]);
    ids.lines().map(|id| commit(project, id)).collect()
}

fn commit(project: &Project, id: &str) -> Commit {
    let show = |path: &str| {
        let out = project.repo.try_git(&["show", &format!("{id}:{path}")]);
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let all = project.repo.git(&["ls-tree", "-r", id]);
    let outside: Vec<&str> = all.lines().filter(|it| !it.contains("\t.dex/")).collect();
    let attempts = project.record_at(id)["phases"].as_array().unwrap().clone();
    let undisturbed = |it: &Value| !matches!(it["status"].as_str(), Some("crashed" | "stopped"));
    Commit {
        message: project.repo.git(&["log", "-1", "--format=%B", id]),
        tree_outside_dex: outside.join("\n"),
        state: plain(serde_json::from_str(&show(".dex/state.json")).unwrap()),
        manifest: serde_json::from_str(&show(".dex/feature-manifest.json")).unwrap_or_default(),
        learnings: show(".dex/learnings.md"),
        attempts: attempts
            .into_iter()
            .filter(undisturbed)
            .map(plain)
            .collect(),
    }
}

/// Without ids, times, costs, and the paths that a sandbox could not hold.
fn plain(mut value: Value) -> Value {
    const DIFFERENT: [&str; 16] = [
        "runId",
        "phaseId",
        "sessionId",
        "startedAt",
        "endedAt",
        "completedAt",
        "timestamp",
        "durationMs",
        "totalDurationMs",
        "costUsd",
        "cumulativeCostUsd",
        "totalCostUsd",
        "parentSha",
        "sha",
        "steps",
        "lastCommit",
    ];
    match &mut value {
        Value::Object(map) => {
            map.retain(|key, _| !DIFFERENT.contains(&key.as_str()));
            for (key, inner) in map.iter_mut() {
                *inner = match (key.as_str(), inner.as_str()) {
                    ("sandbox", Some(text)) => text.split(' ').next().into(),
                    _ => plain(inner.take()),
                };
            }
        }
        Value::Array(list) => {
            for inner in list.iter_mut() {
                *inner = plain(inner.take());
            }
        }
        _ => {}
    }
    value
}

/// What must hold at any moment, whatever was killed.
fn check_now(project: &Project, context: &str) {
    let fsck = project
        .repo
        .try_git(&["fsck", "--no-dangling", "--no-progress"]);
    assert!(
        fsck.status.success(),
        "{context}: {}",
        String::from_utf8_lossy(&fsck.stderr)
    );
    let status = project.dex(&["status", "--json"]);
    if status.code == Some(3) {
        return; // The run was killed before it existed.
    }
    let status: Value = serde_json::from_str(&status.out)
        .unwrap_or_else(|_| panic!("{context}: {}{}", status.out, status.err));
    let on_branch =
        project
            .repo
            .try_git(&["log", "--format=%s", r"--grep=^dex: .* completed", "HEAD"]);
    let on_branch = String::from_utf8_lossy(&on_branch.stdout).lines().count();
    if status["tip"].is_string() && !project.branch().is_empty() {
        assert_eq!(
            status["stageCommits"].as_u64().unwrap() as usize,
            on_branch,
            "{context}"
        );
    }
}

/// Goes on until the run is over.
fn finish(project: &Project, context: &str) {
    let mut answer = project.dex(&["resume", "--discard"]);
    if answer.code == Some(3) {
        // Killed before anything was recorded: the person types the same command again.
        answer = project.dex(&["run"]);
    }
    assert_eq!(answer.code, Some(0), "{context}: {}", answer.err);
}

fn check_over(project: &Project, expected: &[Commit], context: &str) {
    let found = commits(project);
    let messages = |it: &[Commit]| it.iter().map(|it| it.message.clone()).collect::<Vec<_>>();
    assert_eq!(messages(&found), messages(expected), "{context}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found == expected,
            "{context}: {}\n{found:#?}\n--- undisturbed:\n{expected:#?}",
            expected.message
        );
    }
    assert!(
        project.is_clean(),
        "{context}: {}",
        project.repo.git(&["status", "--porcelain"])
    );
    assert!(
        !project.repo.path().join(".git/index.lock").exists(),
        "{context}"
    );
    let record = project.record();
    let phases = record["phases"].as_array().unwrap();
    let mut completed: BTreeMap<String, u32> = BTreeMap::new();
    for phase in phases.iter().filter(|it| it["status"] == "completed") {
        let key = format!(
            "{}:{}:{}",
            phase["stage"], phase["cycle"], phase["taskPhase"]
        );
        *completed.entry(key).or_default() += 1;
    }
    for (key, count) in completed {
        let allowed = if key.contains("\"verify\"") { 2 } else { 1 };
        assert!(
            count <= allowed,
            "{context}: {key} was paid for {count} times"
        );
    }
    let micro = |it: &Value| (it["costUsd"].as_f64().unwrap_or(0.0) * 1e6).round() as u64;
    let sum: u64 = phases.iter().map(micro).sum();
    let total = (record["totalCostUsd"].as_f64().unwrap() * 1e6).round() as u64;
    assert_eq!(total, sum, "{context}: the total is what was spent");
    let running = crash::processes_with("DEX_TEST_MARK", &project.mark());
    assert!(running.is_empty(), "{context}: {running:?}");
}

fn undisturbed() -> Vec<Commit> {
    let project = project();
    let answer = project.dex(&["run"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    commits(&project)
}

/// The crash points of a whole run, in order.
fn points() -> Vec<String> {
    let project = project();
    let log = project.repo.beside("points");
    let answer = project
        .command(&["run"])
        .env("DEX_CRASH_LOG", &log)
        .output()
        .unwrap();
    assert!(answer.status.success());
    std::fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Which points to die at: all, or the first and a later one of each kind.
fn chosen(points: &[String]) -> Vec<u32> {
    let every: Vec<u32> = (1..=points.len() as u32).collect();
    let asked = std::env::var("DEX_CRASH_POINTS").unwrap_or_default();
    if asked == "all" {
        return every;
    }
    // One that failed, once more: `852-860`.
    if let Some((from, to)) = asked.split_once('-') {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        return (every.into_iter().filter(|it| (from..=to).contains(it))).collect();
    }
    let mut of_kind: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (name, n) in points.iter().zip(every) {
        of_kind.entry(name).or_default().push(n);
    }
    let mut chosen: Vec<u32> = of_kind
        .values()
        .flat_map(|all| [all[0], all[all.len() * 2 / 3]])
        .collect();
    // The run's last commit has nothing after it that would bring things in order.
    let landing = |name: &str| name.starts_with("snapshot.") || name.starts_with("refs.");
    let of_landing = of_kind.iter().filter(|(name, _)| landing(name));
    chosen.extend(of_landing.filter_map(|(_, all)| all.last()));
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

#[test]
fn a_run_killed_at_any_step_ends_as_an_undisturbed_one() {
    let expected = undisturbed();
    let points = points();
    for n in chosen(&points) {
        let context = format!("killed at point {n} ({})", points[n as usize - 1]);
        let project = project();
        match crash::at_point(n, &mut project.command(&["run"])) {
            Run::Killed(_) => {}
            Run::Completed(output) => {
                panic!(
                    "{context}: it never got there: {}",
                    String::from_utf8_lossy(&output.stderr)
                )
            }
        }
        check_now(&project, &context);
        finish(&project, &context);
        check_over(&project, &expected, &context);
    }
}

/// A run that was killed in the middle of its first `implement`.
fn killed_in_implement() -> Project {
    let project = project();
    match crash::at_named("agent.after:9", &mut project.command(&["run"])) {
        Run::Killed(_) => project,
        Run::Completed(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn putting_half_done_work_back_can_itself_be_killed_at_any_step() {
    let expected = undisturbed();
    let log = {
        let project = killed_in_implement();
        let log = project.repo.beside("points");
        let mut resume = project.command(&["resume", "--discard"]);
        assert!(
            resume
                .env("DEX_CRASH_LOG", &log)
                .output()
                .unwrap()
                .status
                .success()
        );
        std::fs::read_to_string(log).unwrap()
    };
    // The part before the stage is worked on again: the undo entry and the restore.
    let before = log.lines().position(|it| it == "agent.before").unwrap() as u32;
    assert!(
        log.lines()
            .take(before as usize)
            .any(|it| it.starts_with("restore.")),
        "{log}"
    );
    let points: Vec<String> = log
        .lines()
        .take(before as usize)
        .map(str::to_owned)
        .collect();
    for n in chosen(&points) {
        let context = format!("killed again at point {n}");
        let project = killed_in_implement();
        let run = crash::at_point(n, &mut project.command(&["resume", "--discard"]));
        assert!(matches!(run, Run::Killed(_)), "{context}");
        check_now(&project, &context);
        finish(&project, &context);
        check_over(&project, &expected, &context);
    }
}

/// A run whose first `implement` fails and leaves files; the second cycle goes well.
fn project_that_fails_once() -> Project {
    let script = script(&["Say hello", "Again"], |cycle, name| match (cycle, name) {
        (0, "manifest_extraction") => Some(serde_json::json!({ "delay": 0, "cost": 0.02,
            "structured_output": { "features": [{ "id": 1, "title": "Say hello", "description": "x" }] } })),
        (1, "implement") => Some(
            serde_json::json!({ "delay": 0, "cost": 0.05, "fail": "gave up",
            "writes": [{ "path": "garbage.txt", "content": "half-done\n" }] }),
        ),
        _ => None,
    });
    Project::new(&script)
}

#[test]
fn a_failed_attempts_files_never_reach_a_commit_wherever_the_run_is_killed() {
    let expected = {
        let project = project_that_fails_once();
        project.dex_ok(&["run"]);
        assert!(!project.repo.path().join("garbage.txt").exists());
        commits(&project)
    };
    let points: Vec<String> = {
        let project = project_that_fails_once();
        let log = project.repo.beside("points");
        assert!(
            project
                .command(&["run"])
                .env("DEX_CRASH_LOG", &log)
                .status()
                .unwrap()
                .success()
        );
        std::fs::read_to_string(log)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    };
    // The ninth agent is the implementer: five that run once, then specify, plan, tasks.
    let at = |name: &str, nth: usize| {
        points
            .iter()
            .enumerate()
            .filter(|(_, it)| *it == name)
            .nth(nth)
            .unwrap()
            .0 as u32
            + 1
    };
    let recorded = (at("agent.after", 8)..)
        .find(|n| points[*n as usize] == "live.after")
        .unwrap()
        + 1;
    for n in recorded..at("agent.before", 9).min(recorded + 60) {
        if !(n < recorded + 6 || n % 7 == 0) {
            continue;
        }
        let context = format!("killed at point {n} ({})", points[n as usize - 1]);
        let project = project_that_fails_once();
        let run = crash::at_point(n, &mut project.command(&["run"]));
        assert!(matches!(run, Run::Killed(_)), "{context}");
        let answer = project.dex(&["resume"]);
        assert_eq!(answer.code, Some(0), "{context}: {}", answer.err);
        check_over(&project, &expected, &context);
        let log = project
            .repo
            .git(&["log", "--all", "--format=%H", "--", "garbage.txt"]);
        let undo = project
            .repo
            .git(&["for-each-ref", "--format=%(objectname)", "refs/dex-local"]);
        assert!(log.lines().all(|it| undo.contains(it)), "{context}: {log}");
    }
}

#[test]
fn a_run_killed_at_random_moments_again_and_again_ends_as_an_undisturbed_one() {
    let rounds: u32 = std::env::var("DEX_KILL_ROUNDS")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(20);
    let expected = undisturbed();
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..rounds {
        let project = project();
        let context = format!("round {round}");
        let mut words = vec!["run"];
        for _ in 0..3 {
            let mut child = project
                .command(&words)
                .stdin(std::process::Stdio::null())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            crash::random_kill(&mut child, Duration::from_millis(20 + random(900)));
            check_now(&project, &context);
            words = if project.dex(&["status", "--json"]).code == Some(3) {
                vec!["run"]
            } else {
                vec!["resume", "--discard"]
            };
        }
        finish(&project, &context);
        check_over(&project, &expected, &context);
    }
}

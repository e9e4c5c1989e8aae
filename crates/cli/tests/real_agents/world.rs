//! A project with a verify command of its own, and the built `dex` in it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::Repo;

/// The file the agent is asked to change.
pub(crate) const GREETING: &str = "greeting.txt";

/// Stages of a run with `--small`, in order, with the cycle each belongs to.
pub(crate) const STAGES: [(&str, u32); 13] = [
    ("clarification_product", 0),
    ("clarification_technical", 0),
    ("clarification_synthesis", 0),
    ("constitution", 0),
    ("manifest_extraction", 0),
    ("gap_analysis", 1),
    ("specify", 1),
    ("plan", 1),
    ("tasks", 1),
    ("implement", 1),
    ("verify", 1),
    ("learnings", 1),
    ("completion", 0),
];

/// A repository in which `check.sh` passes once the greeting is changed.
pub(crate) fn project(settings: &Value) -> Repo {
    project_in(Repo::new(), settings)
}

/// The same in a repository of the caller's.
pub(crate) fn project_in(repo: Repo, settings: &Value) -> Repo {
    repo.write(GREETING, "hello\n");
    repo.write("check.sh", "grep -qx goodbye greeting.txt\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "a greeting and its check"]);
    repo.write(".dex/dex-config.json", settings.to_string());
    repo
}

/// `dex` with arguments, not started yet.
pub(crate) fn dex(repo: &Repo, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dex"));
    command.current_dir(repo.path()).args(args);
    repo.hermetic(&mut command);
    command
}

/// Runs it; it must succeed.
pub(crate) fn ok(mut command: Command) -> String {
    let output = command.output().expect("dex starts");
    let err = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

/// The run's branch, short.
pub(crate) fn branch(repo: &Repo) -> String {
    let refs = repo.git(&[
        "for-each-ref",
        "--format=%(refname:short)",
        "refs/heads/dex/",
    ]);
    assert_eq!(refs.lines().count(), 1, "one run, one branch: {refs}");
    refs
}

/// The run's record at the tip of its branch, read with stock git.
pub(crate) fn record(repo: &Repo) -> Value {
    let tip = branch(repo);
    let file = repo.git(&["ls-tree", "--name-only", &tip, ".dex/runs/"]);
    let text = repo.git(&["show", &format!("{tip}:{file}")]);
    serde_json::from_str(&text).expect("the record is JSON")
}

/// Elements of the record for a stage.
pub(crate) fn attempts<'a>(record: &'a Value, stage: &str) -> Vec<&'a Value> {
    let phases = record["phases"].as_array().expect("a list");
    phases.iter().filter(|it| it["stage"] == stage).collect()
}

/// Dollars as whole micro-dollars; none when not reported.
pub(crate) fn micro(dollars: &Value) -> Option<u64> {
    Some((dollars.as_f64()? * 1e6).round() as u64)
}

/// What must hold after a finished run with `--small`, whoever the agent was.
pub(crate) fn check_finished(repo: &Repo) {
    let log = repo.git(&[
        "log",
        "--reverse",
        "--format=%B%x00",
        &branch(repo),
        "--not",
        "main",
    ]);
    let messages: Vec<&str> = log
        .split('\0')
        .map(str::trim)
        .filter(|it| !it.is_empty())
        .collect();
    let expected: Vec<String> = STAGES
        .iter()
        .map(|(stage, cycle)| {
            let feature = if *cycle == 0 { "-" } else { "say-hello" };
            format!(
                "dex: {stage} completed [cycle:{cycle}] [feature:{feature}]\n[checkpoint:{stage}:{cycle}]"
            )
        })
        .collect();
    assert_eq!(messages, expected);
    assert_eq!(repo.read(GREETING), "goodbye\n");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert!(!repo.path().join(".git/index.lock").exists());
    let record = record(repo);
    let phases = record["phases"].as_array().expect("a list");
    let reported: Vec<u64> = phases
        .iter()
        .filter_map(|it| micro(&it["costUsd"]))
        .collect();
    let spent = (!reported.is_empty()).then(|| reported.iter().sum());
    assert_eq!(micro(&record["totalCostUsd"]), spent);
    let verify = attempts(&record, "verify");
    let verify = &verify.last().expect("an attempt")["verify"];
    assert_eq!(verify["command"], "sh check.sh");
    assert_eq!(verify["by"], "command");
    assert_eq!(verify["passed"], true);
}

/// `PATH` with a directory in front.
pub(crate) fn path_with(dir: &Path) -> std::ffi::OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dir.to_owned()).chain(std::env::split_paths(&rest));
    std::env::join_paths(all).expect("no colon in a temporary directory's name")
}

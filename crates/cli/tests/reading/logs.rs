//! The log: order, following, and files of any size.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hand::{Hand, ID, command, dex_in};

const STEP: &str = r#"{"seq":1,"atMs":1500,"kind":"tool_call","tool":"Edit","text":"src/a.rs"}"#;

#[test]
fn transcripts_are_shown_in_order_without_the_runners_own_log() {
    let run = Hand::complete();
    run.transcript(2, "plan:1", format!("{STEP}\n").as_bytes());
    run.transcript(
        1,
        "specify:1",
        b"{\"seq\":1,\"atMs\":0,\"kind\":\"text\",\"text\":\"first\\nsecond\"}\n{\"seq\":2,\"at",
    );
    run.repo.write(
        format!(".git/dex/runs/{ID}/log/runner.log"),
        "not a transcript\n",
    );
    let log = run.dex(&["log"]);
    insta::assert_snapshot!(log.out, @r"
    Cycle 1 — Spec specify:1
         0.0 s text         first
                            second
    Cycle 1 — Plan plan:1
         1.5 s Edit         src/a.rs
    ");
    insta::assert_snapshot!(log.err, @"1 line could not be read");
    let lines: Vec<Value> = run
        .ok(&["log", "--json"])
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["checkpoint"], "plan:1");
}

#[test]
fn without_transcripts_the_records_steps_are_shown() {
    let mut run = Hand::new(&["One"]);
    run.stage(
        "manifest_extraction",
        0,
        &json!({ "steps": [
        { "seq": 1, "atMs": 5, "kind": "tool_call", "text": "GOAL.md", "tool": "Read" } ] }),
    );
    let clone = run.repo.beside("clone");
    run.repo.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    let log = dex_in(&run.repo, &clone, &["log"]);
    assert!(log.out.contains("Read"), "{}", log.all());
    assert!(log.err.contains("not on this machine"), "{}", log.err);
}

#[test]
fn k01_a_line_of_200_mb_is_passed_over_in_little_memory() {
    let run = Hand::complete();
    run.transcript(1, "plan:1", format!("{STEP}\n").as_bytes());
    let path = run.repo.path().join(format!(
        ".git/dex/runs/{ID}/log/01932f5e-0000-7000-8000-{:012}-tasks:1.jsonl",
        2
    ));
    let mut file = std::fs::File::create(path).unwrap();
    file.set_len(200 << 20).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    file.write_all(format!("\n{STEP}\n").as_bytes()).unwrap();
    let mut limited = Command::new("sh");
    run.repo.hermetic(&mut limited);
    let output = limited
        .current_dir(run.repo.path())
        .args([
            "-c",
            "ulimit -v 150000; exec \"$0\" log",
            env!("CARGO_BIN_EXE_dex"),
        ])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out.matches("src/a.rs").count(), 2, "{out}");
    assert!(err.contains("1 line longer than 1.0 MiB left out"), "{err}");
}

#[test]
fn k01_a_thousand_transcripts_and_a_bad_run_do_not_stop_the_list() {
    let run = Hand::complete();
    for n in 0..1000 {
        run.transcript(n, "plan:1", format!("{STEP}\n").as_bytes());
    }
    assert_eq!(run.ok(&["log"]).matches("src/a.rs").count(), 1000);
    run.repo.git(&["branch", "dex/2026-01-03-ddeeff"]);
    let bad = "01932f5e-3c8a-7b21-9f00-ddeeffddeeff";
    run.repo
        .write(format!(".git/dex/runs/{bad}/live.json"), "{ cut off");
    let runs = run.dex(&["runs"]);
    assert_eq!(runs.code, 0);
    assert!(runs.out.contains("completed"), "{}", runs.out);
    assert!(runs.out.contains("cannot be read"), "{}", runs.out);
    assert!(
        runs.out.contains("live.json"),
        "the file is named: {}",
        runs.out
    );
}

/// A run with the scripted agent whose second stage takes a moment.
fn slow_run(run: &Hand) -> std::process::Child {
    let stage = json!({ "delay": 0 });
    let mut stages = serde_json::Map::new();
    for name in [
        "gap_analysis",
        "specify",
        "plan",
        "tasks",
        "implement",
        "verify",
        "learnings",
    ] {
        stages.insert(name.to_owned(), stage.clone());
    }
    stages["plan"] = json!({ "delay": 1500, "text": "planned",
        "writes": [{ "path": "{specDir}/plan.md", "content": "# Plan\n" }] });
    stages["specify"] =
        json!({ "writes": [{ "path": "specs/001-a/spec.md", "content": "# A\n" }] });
    stages["tasks"] = json!({ "writes": [{ "path": "{specDir}/tasks.md",
        "content": "## Phase 1: All\n\n- [ ] T001 Do it\n" }] });
    let script = json!({ "prerequisites": {}, "clarification": {}, "completion": {},
        "dex_loop": { "cycles": [{ "feature": { "id": "f-1", "title": "A" }, "stages": stages }] } });
    run.repo.git(&["switch", "-q", "main"]);
    run.repo.write(".dex/mock-config.json", script.to_string());
    run.repo
        .write(".dex/dex-config.json", r#"{"agent":"scripted"}"#);
    command(
        &run.repo,
        run.repo.path(),
        &["run", "-m", "Do it", "--small"],
    )
    .stdout(std::process::Stdio::null())
    .stderr(std::process::Stdio::null())
    .spawn()
    .unwrap()
}

#[test]
fn following_shows_later_stages_until_the_run_is_over() {
    let run = Hand::complete();
    let mut running = slow_run(&run);
    let until = Instant::now() + Duration::from_secs(60);
    let newest = || run.repo.git(&["log", "-1", "--format=%s"]);
    while !newest().contains("specify completed") {
        assert!(
            Instant::now() < until,
            "the run did not come this far: {}",
            newest()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = run.dex(&["log", "-f"]);
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(log.code, 0, "{}", log.all());
    assert!(log.out.contains("Cycle 1 — Plan"), "{}", log.all());
    assert!(log.out.contains("Cycle 1 — Learnings"), "{}", log.all());
    assert!(log.err.contains("it stopped"), "{}", log.err);
}

//! Untrusted text, damaged files, and never writing while reading.

use std::path::Path;
use std::time::SystemTime;

use serde_json::json;

use crate::hand::{BRANCH, Hand, ID, by_word};

const NASTY: &str = "ok\u{1b}]52;c;aGk=\u{7}\u{1b}[2K\rALL PASSED\u{9b}2J\u{202e}x";

/// Every command that only reads.
const READING: [&[&str]; 18] = [
    &["status"],
    &["status", "--json"],
    &["report"],
    &["report", "--md"],
    &["report", "--json"],
    &["runs"],
    &["runs", "--json"],
    &["timeline"],
    &["timeline", "--all", "--json"],
    &["log"],
    &["log", "--json"],
    &["show"],
    &["show", "HEAD~1", "--json"],
    &["undo", "--list"],
    &["config"],
    &["prompts"],
    &["doctor"],
    &["doctor", "--json"],
];

fn harmless(text: &str) -> bool {
    text.chars()
        .all(|c| c == '\n' || !(c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)))
}

#[test]
fn i04_escapes_in_what_agents_and_remotes_wrote_are_visible_everywhere() {
    let mut run = Hand::new(&[NASTY]);
    let step = json!({ "seq": 1, "atMs": 0, "kind": NASTY, "tool": NASTY, "text": NASTY });
    run.stage(
        "manifest_extraction",
        0,
        &json!({ "model": NASTY, "steps": [step] }),
    );
    run.failed("plan", 1, &json!({ "reason": NASTY }));
    run.cycle(1, &json!({ "command": NASTY, "exit": 1, "by": "command", "passed": false, "failures": [NASTY] }));
    run.stage("completion", 0, &json!({
        "leftOut": [{ "path": NASTY, "reason": NASTY }], "noticed": [NASTY], "agentCommits": [NASTY],
        "assumptions": [{ "question": NASTY, "answer": NASTY, "by": NASTY }], "steps": [step],
    }));
    run.repo
        .git(&["commit", "-q", "--allow-empty", "-m", NASTY]);
    run.transcript(1, "plan:1", format!("{step}\n").as_bytes());
    run.transcript(2, "\u{1b}[2Jx:1", format!("{step}\n").as_bytes());
    run.repo.git(&[
        "update-ref",
        &format!("refs/remotes/\u{202e}evil/{BRANCH}"),
        "HEAD",
    ]);
    run.repo.git(&[
        "update-ref",
        "refs/remotes/\u{202e}evil/dex/2026-01-05-abcdef",
        "HEAD",
    ]);
    for args in READING {
        let answer = run.dex(args);
        assert!(harmless(&answer.all()), "dex {args:?}: {:?}", answer.all());
        if ["report", "status", "log"].contains(&args[0]) {
            assert!(
                answer.out.contains("ALL PASSED"),
                "it is shown, not dropped: {args:?}"
            );
        }
    }
    let shown = run.dex(&["show", "manifest_extraction:0"]);
    assert!(
        harmless(&shown.all()) && shown.out.contains("\\u{1b}]52"),
        "{}",
        shown.out
    );
    let missing = run.dex(&["show", NASTY]);
    assert!(
        missing.code != 0 && harmless(&missing.all()),
        "{:?}",
        missing.all()
    );
}

#[test]
fn i04_json_keeps_the_text_and_escapes_it() {
    let mut run = Hand::new(&[NASTY]);
    run.stage("manifest_extraction", 0, &json!({}));
    assert_eq!(
        run.dex(&["report", "--json"]).json()["features"][0]["title"],
        NASTY
    );
}

#[test]
fn g10_a_truncated_record_is_named_and_the_commits_still_tell() {
    let run = Hand::complete();
    let path = format!(".dex/runs/{ID}.json");
    let whole = run.repo.read(&path);
    run.repo.git(&["reset", "-q", "--hard", "HEAD~1"]);
    run.repo.write(&path, &whole[..whole.len() / 2]);
    run.commit("completion", 0);
    let refs = run.refs();
    let report = run.ok(&["report"]);
    assert!(report.contains("record cannot be read"), "{report}");
    assert!(report.contains("taken from commits instead"), "{report}");
    assert!(run.ok(&["timeline"]).contains("not recorded"));
    assert_eq!(run.refs(), refs, "nothing was made anew");
}

/// A way to make a file useless.
type Break = fn(&Path);

#[test]
fn g10_a_live_record_that_cannot_be_used_is_the_error_and_no_new_run_begins() {
    let run = Hand::complete();
    let dir = run.repo.path().join(format!(".git/dex/runs/{ID}"));
    std::fs::create_dir_all(&dir).unwrap();
    let live = dir.join("live.json");
    let breaks: [(&str, Break); 4] = [
        ("larger than 64 MiB", |path| {
            std::fs::File::create(path)
                .unwrap()
                .set_len(600 << 20)
                .unwrap()
        }),
        ("EOF while parsing", |path| {
            std::fs::write(path, "{\"version\":1,\"runId\":\"x").unwrap()
        }),
        ("the file is empty", |path| {
            std::fs::write(path, "").unwrap()
        }),
        ("not a regular file", |path| {
            std::fs::create_dir(path).unwrap()
        }),
    ];
    let refs = run.refs();
    for (problem, break_it) in breaks {
        break_it(&live);
        for args in [&["report"][..], &["status"], &["timeline"], &["resume"]] {
            let answer = run.dex(args);
            assert_ne!(answer.code, 0, "{args:?} {problem}");
            assert!(answer.err.contains(problem), "{args:?}: {}", answer.err);
            assert!(answer.err.contains("live.json"), "{args:?}: {}", answer.err);
        }
        let runs = run.dex(&["runs"]);
        assert!(
            runs.code == 0 && runs.out.contains(problem),
            "{}",
            runs.all()
        );
        let doctor = run.dex(&["doctor"]);
        assert!(
            doctor.code == 1 && doctor.out.contains("Its commits"),
            "{}",
            doctor.out
        );
        if live.is_dir() {
            std::fs::remove_dir(&live).unwrap();
        } else {
            std::fs::remove_file(&live).unwrap();
        }
    }
    assert_eq!(run.refs(), refs, "no run was begun");
    assert!(
        run.ok(&["report"]).contains("completed"),
        "without it the commits say everything"
    );
}

/// Every file under a directory with size and time of change.
fn listing(dir: &Path, into: &mut Vec<(String, u64, SystemTime)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            listing(&path, into);
        } else {
            into.push((
                path.display().to_string(),
                meta.len(),
                meta.modified().unwrap(),
            ));
        }
    }
    into.sort();
}

#[test]
fn d02_no_reading_command_touches_the_index_or_anything_else_in_git() {
    let run = Hand::complete();
    run.transcript(
        1,
        "plan:1",
        b"{\"seq\":1,\"atMs\":0,\"kind\":\"text\",\"text\":\"x\"}\n",
    );
    // The same content with another time: whoever refreshes the index would rewrite it.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let readme = run.repo.read("README.md");
    run.repo.write("README.md", readme);
    let state = || {
        let mut all = Vec::new();
        listing(&run.repo.path().join(".git"), &mut all);
        all
    };
    let before = state();
    for args in READING {
        run.dex(args);
        assert_eq!(state(), before, "dex {args:?}");
    }
    run.dex(&["undo", "--dry-run"]);
    run.dex(&["diff-is-no-command"]);
    assert_eq!(state(), before);
    run.repo.git(&["status"]);
    assert_ne!(state(), before, "stock git would have: the test can tell");
}

#[test]
fn an_unfinished_run_says_how_to_go_on() {
    let mut run = Hand::new(&["One"]);
    run.stage("manifest_extraction", 0, &json!({}));
    run.stage("gap_analysis", 1, &json!({ "decision": "NEXT_FEATURE" }));
    let report = run.ok(&["report"]);
    assert!(report.contains(&format!("dex resume {BRANCH}")), "{report}");
    run.stage("implement", 1, &json!({}));
    run.stage("verify", 1, &json!({ "verify": by_word(false) }));
    run.stage("learnings", 1, &json!({ "cycleOutcome": "failed" }));
    run.stage("completion", 0, &json!({}));
    let report = run.ok(&["report"]);
    assert!(
        report.contains("completed, a feature is not verified"),
        "{report}"
    );
    assert!(
        report.contains("dex resume --from aabbcc@gap_analysis:1 -m"),
        "{report}"
    );
}

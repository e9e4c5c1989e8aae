//! The existing Dex's files, as it wrote them (`tests/data`), are read without loss.
//!
//! The rule that is checked: after reading and writing, every value of the original is there
//! under its own name or the one it was renamed to, and whatever is new says nothing (null, an
//! empty list) or is named here.

use std::path::{Path, PathBuf};

use dex::files::manifest::{Manifest, Status};
use dex::files::record::{PhaseStatus, Record};
use dex::files::state::State;
use dex::files::{learnings, store};
use serde_json::Value;

/// Older name, newer name.
type Renames = &'static [(&'static str, &'static str)];

const RECORD: Renames = &[
    ("agentRuns", "phases"),
    ("agentRunId", "phaseId"),
    ("phaseTraceId", "phaseId"),
    ("step", "stage"),
    ("cycleNumber", "cycle"),
    ("featureSlug", "feature"),
    ("loopsCompleted", "cyclesCompleted"),
];

const STATE: Renames = &[
    ("sha", "parentSha"),
    ("checkpoint", "lastCommit"),
    ("phase", "currentPhase"),
    ("lastCompletedStage", "lastCompletedStep"),
    ("currentPhaseNumber", "currentTaskPhaseNumber"),
];

fn data(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    store::read(&dir.join(name))
        .expect("the data is readable")
        .expect("the data is there")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("the data is JSON")
}

/// Differences that are not allowed, as readable lines.
fn losses(old: &Value, new: &Value, renames: Renames, place: &str, out: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let newer = |key: &str| match renames.iter().find(|(older, _)| *older == key) {
                Some((_, newer)) if !new.contains_key(key) => (*newer).to_owned(),
                _ => key.to_owned(),
            };
            for (key, value) in old {
                match new.get(&newer(key)) {
                    None => out.push(format!("{place}.{key} is lost")),
                    Some(kept) => losses(value, kept, renames, &format!("{place}.{key}"), out),
                }
            }
            let known: Vec<String> = old.keys().map(|key| newer(key)).collect();
            for (key, value) in new.iter().filter(|(key, _)| !known.contains(key)) {
                let says_nothing = value.is_null() || *value == Value::Array(Vec::new());
                if !says_nothing {
                    out.push(format!("{place}.{key} is new: {value}"));
                }
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (n, (old, new)) in old.iter().zip(new).enumerate() {
                losses(old, new, renames, &format!("{place}[{n}]"), out);
            }
        }
        (old, new) if old == new => {}
        (old, new) => out.push(format!("{place} was {old} and is {new}")),
    }
}

fn differences(old: &[u8], new: &[u8], renames: Renames) -> String {
    let mut out = Vec::new();
    losses(&json(old), &json(new), renames, "", &mut out);
    out.join("\n")
}

#[test]
fn a_record_of_the_existing_dex_is_read_and_rewritten_without_loss() {
    let old = data("runs/ea9930a3-2604-4520-b365-82dfc4ed8e9b.json");
    let mut record = Record::read(&old).unwrap();
    let new = record.to_bytes();
    // Parts of `implement` also get their number under today's name; nothing else is new.
    insta::assert_snapshot!(differences(&old, &new, RECORD), @r"
    .agentRuns[11].taskPhase is new: 1
    .agentRuns[12].taskPhase is new: 2
    .agentRuns[20].taskPhase is new: 1
    ");
    assert_eq!(
        Record::read(&new).unwrap(),
        record,
        "a second rewrite changes nothing"
    );
    assert_eq!(Record::read(&new).unwrap().to_bytes(), new);

    assert_eq!(
        record.phases.len(),
        json(&old)["agentRuns"].as_array().unwrap().len()
    );
    let failed = &record.phases[19];
    assert_eq!(failed.stage.as_deref(), Some("implement"));
    assert_eq!(
        (failed.cycle, failed.status),
        (Some(2), PhaseStatus::Failed)
    );
    assert_eq!(failed.duration_ms, Some(6503));
    let part = &record.phases[20];
    assert_eq!((part.stage.as_deref(), part.task_phase), (None, Some(1)));
    assert_eq!(part.more["taskPhaseName"], "Cart state and guest merge");

    record.recompute();
    assert_eq!(record.total_cost_usd, Some(0.0));
    let expected: u64 = record
        .phases
        .iter()
        .filter(|phase| !phase.is_inside_another())
        .filter_map(|phase| phase.duration_ms)
        .sum();
    assert_eq!(record.total_duration_ms, Some(expected));
}

#[test]
fn a_record_that_is_only_a_skeleton_is_read() {
    let old = data("runs/0ecfedde-7ae0-4c4c-b8b6-7d1ac85f79bc.json");
    let record = Record::read(&old).unwrap();
    assert!(record.phases.is_empty());
    assert_eq!(record.description_file, None);
    assert_eq!(record.more["writerPid"], 767_714);
    assert_eq!(differences(&old, &record.to_bytes(), RECORD), "");
}

#[test]
fn the_earliest_shape_of_a_record_is_read_without_loss() {
    let old = br#"{
      "runId": "79134ace", "mode": "loop", "model": "m", "specDir": "", "startedAt": "t",
      "endedAt": null, "status": "crashed", "totalCostUsd": 1.25, "totalDurationMs": null,
      "phasesCompleted": 1, "loopsCompleted": 1, "writerPid": 1,
      "phases": [
        {"phaseTraceId": "a", "runId": "79134ace", "phaseNumber": 1, "phaseName": "loop:plan",
         "stage": "plan", "cycleNumber": 1, "featureSlug": null, "startedAt": "t",
         "status": "running", "endedAt": null, "costUsd": 0.30000000000000004, "durationMs": null,
         "inputTokens": null, "outputTokens": null,
         "subagents": [{"id": "s", "type": "Explore", "status": "ok", "costUsd": 0.1}]},
        {"phaseTraceId": "b", "phaseNumber": 3, "phaseName": "Polish", "stage": null,
         "startedAt": "t", "status": "stopped", "costUsd": 0.95}
      ],
      "failureCounters": {"specs/001-x": {"impl": 1, "replan": 0}}
    }"#;
    let record = Record::read(old).unwrap();
    assert_eq!(record.cycles_completed, 1);
    assert_eq!(record.phases[1].task_phase, Some(3));
    let new = record.to_bytes();
    insta::assert_snapshot!(differences(old, &new, RECORD), @".phases[1].taskPhase is new: 3");
    assert_eq!(Record::read(&new).unwrap(), record);
}

#[test]
fn states_of_the_existing_dex_are_read_and_rewritten_without_loss() {
    for name in ["state-cycle1-learnings.json", "state-cycle3-specify.json"] {
        let old = data(name);
        let state = State::read(&old).unwrap();
        assert_eq!(state.version, 1, "a reader can tell whose file it was");
        let new = state.to_bytes();
        assert_eq!(
            differences(&old, &new, STATE),
            ".version was 1 and is 2",
            "{name}"
        );
        assert_eq!(State::read(&new).unwrap().to_bytes(), new, "{name}");
    }
    let state = State::read(&data("state-cycle3-specify.json")).unwrap();
    assert_eq!(state.last_completed_step.as_deref(), Some("specify"));
    assert_eq!((state.current_cycle_number, state.cycles_completed), (3, 2));
    let last = state.last_commit.unwrap();
    assert_eq!(last.parent_sha, "1ce48d4506b0f415ec0934fbe2c01e751bc6e828");
    assert_eq!(last.checkpoint, None);
}

#[test]
fn a_manifest_of_the_existing_dex_is_rewritten_byte_for_byte() {
    let old = data("feature-manifest.json");
    let mut manifest = Manifest::read(&old).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(manifest.to_bytes()).trim_end(), text(old).trim_end());

    assert_eq!(manifest.next_pending().unwrap().id, 3);
    assert_eq!(manifest.active(), None);
    assert_eq!(manifest.features[0].status, Status::Completed);
    manifest.assign_slugs();
    let slugs: Vec<_> = manifest
        .features
        .iter()
        .flat_map(|it| it.slug.as_deref())
        .collect();
    assert_eq!(slugs, ["authentication", "payments", "final-feature"]);
}

#[test]
fn learnings_of_the_existing_dex_are_read_and_kept() {
    let old = String::from_utf8(data("learnings.md")).unwrap();
    let known = learnings::insights(&old);
    assert_eq!(known.len(), 4);
    assert_eq!(known[2].category, "product");
    assert_eq!(learnings::add(&old, &known, 20), old);
    let more = learnings::Insight {
        category: "architecture".into(),
        insight: "A new one.".into(),
        context: "here".into(),
    };
    let new = learnings::add(&old, &[more], 20);
    assert_eq!(
        new.replace("- **architecture**: A new one. | here\n", ""),
        old
    );
    // A line of another grammar is not ours to drop.
    let foreign = "- **mock**: c1 f-001 authentication implemented\n";
    assert!(learnings::add(foreign, &known, 20).contains(foreign.trim_end()));
}

/// Old reader and new data, new reader and old data, old writer rewriting new data: what a
/// later version adds anywhere survives this one.
#[test]
fn what_a_later_version_adds_survives_this_one() {
    let later = |bytes: &[u8]| -> Value {
        fn add(value: &mut Value) {
            match value {
                Value::Object(fields) => {
                    fields.values_mut().for_each(add);
                    fields.insert("addedLater".into(), serde_json::json!({"x": [1, null]}));
                }
                Value::Array(items) => items.iter_mut().for_each(add),
                _ => {}
            }
        }
        let mut value = json(bytes);
        add(&mut value);
        value
    };
    let record = br#"{"runId": "r", "startedAt": "t", "status": "running", "mode": "loop",
      "cyclesCompleted": 0, "phases": [{"phaseId": "p", "startedAt": "t", "status": "failed",
        "verify": {"command": "c", "exit": 1, "by": "command", "passed": false},
        "leftOut": [{"path": "p", "reason": "too_large"}],
        "assumptions": [{"question": "q", "answer": "a", "by": "assumed"}],
        "steps": [{"seq": 1, "atMs": 2, "kind": "text", "text": "t"}]}]}"#;
    let state = br#"{"version": 2, "runId": "r", "status": "running", "baseBranch": "main",
      "mode": "loop", "currentCycleNumber": 0, "cyclesCompleted": 0, "startedAt": "t",
      "failureCounts": {"cart": {"implFailures": 1, "replanFailures": 0}},
      "config": {"model": "m"}, "artifacts": {"goal": {"path": "GOAL.md", "sha256": "0"}},
      "lastCommit": {"parentSha": "0", "timestamp": "t"}}"#;

    let new = later(record).to_string();
    let kept = Record::read(new.as_bytes()).unwrap().to_bytes();
    assert_eq!(differences(new.as_bytes(), &kept, &[]), "");

    let mut new = later(state);
    // A map by slug takes an added name for a slug; there a later version must not add one.
    new["failureCounts"]
        .as_object_mut()
        .unwrap()
        .remove("addedLater");
    let new = new.to_string();
    let kept = State::read(new.as_bytes()).unwrap().to_bytes();
    assert_eq!(differences(new.as_bytes(), &kept, &[]), "");

    let new = later(&data("feature-manifest.json")).to_string();
    let kept = Manifest::read(new.as_bytes()).unwrap().to_bytes();
    assert_eq!(differences(new.as_bytes(), &kept, &[]), "");
}

#[test]
fn no_file_holds_a_path_of_somebodys_home() {
    let mut dirs = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains("/home/"), "{}", path.display());
            }
        }
    }
}

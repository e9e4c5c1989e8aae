//! `.dex/state.json`: the run as of the commit that holds it. A cache; rides a checkout.
//!
//! Version 1 is what the existing Dex writes. Its fields that nothing here knows (it has many
//! that were never kept true) stay in `more`. What is written is always version 2: an older
//! Dex then starts anew instead of misreading it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::store::{self, FileError};
use super::usd;

/// From the root of the work tree.
pub const PATH: &str = ".dex/state.json";

/// The version that is written.
pub const VERSION: u32 = 2;

/// The state, version 2 (version 1 is read).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// 2; 1 in files of the existing Dex.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// `running` or `completed` inside commits; older files also `paused`, `failed`.
    pub status: String,
    /// Branch the run was started from.
    #[serde(default)]
    pub base_branch: String,
    /// `loop`.
    #[serde(default = "loop_mode")]
    pub mode: String,
    /// Cycle of the commit; 0 outside cycles.
    #[serde(default)]
    pub current_cycle_number: u32,
    /// The stage the commit finished.
    #[serde(default)]
    pub last_completed_step: Option<String>,
    /// Spec directory of the feature at work.
    #[serde(default)]
    pub current_spec_dir: Option<String>,
    /// Dollars so far; none when nothing reported any.
    #[serde(default, serialize_with = "usd::write")]
    pub cumulative_cost_usd: Option<f64>,
    /// Number of `learnings` commits.
    #[serde(default)]
    pub cycles_completed: u32,
    /// Slugs.
    #[serde(default)]
    pub features_completed: Vec<String>,
    /// Slugs.
    #[serde(default)]
    pub features_skipped: Vec<String>,
    /// By slug (by spec directory in older files).
    #[serde(default)]
    pub failure_counts: BTreeMap<String, FailureCount>,
    /// What the run was started with.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Files of the run with their digests.
    #[serde(default)]
    pub artifacts: Map<String, Value>,
    /// The commit that holds this file, named by its place, and its parent.
    #[serde(default)]
    pub last_commit: Option<LastCommit>,
    /// RFC 3339, UTC.
    #[serde(default)]
    pub started_at: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn loop_mode() -> String {
    "loop".to_owned()
}

impl State {
    /// Reads version 2 or 1. Never panics, whatever the bytes.
    pub fn read(bytes: &[u8]) -> Result<State, FileError> {
        let place = Path::new(PATH);
        let state: State = match migrated(store::parse_json(place, bytes)?) {
            // Read from the text, because then an error names the line.
            None => store::parse_json(place, bytes)?,
            Some(newer) => store::parse_json(place, &store::to_json(&newer))?,
        };
        match state.version {
            1 | VERSION => Ok(state),
            other => {
                let problem = format!(
                    "field `version`: {other} is not known here; versions 1 and {VERSION} are read"
                );
                Err(FileError::malformed(place, problem))
            }
        }
    }

    /// The file's bytes, version 2.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut newest = self.clone();
        newest.version = VERSION;
        store::to_json(&newest)
    }
}

/// The earliest version-1 files under the later names; none when there is nothing to rename.
/// A name that is there already wins, and the older one stays as an unknown field.
fn migrated(mut fields: Map<String, Value>) -> Option<Map<String, Value>> {
    const RENAMED: [(&str, &str); 4] = [
        ("checkpoint", "lastCommit"),
        ("phase", "currentPhase"),
        ("lastCompletedStage", "lastCompletedStep"),
        ("currentPhaseNumber", "currentTaskPhaseNumber"),
    ];
    let version_1 = fields.get("version").and_then(Value::as_u64) == Some(1);
    let mut changed = false;
    for (older, newer) in RENAMED {
        if version_1
            && !fields.contains_key(newer)
            && let Some(value) = fields.shift_remove(older)
        {
            fields.insert(newer.to_owned(), value);
            changed = true;
        }
    }
    changed.then_some(fields)
}

/// How often a feature failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureCount {
    /// Cycles that failed from `implement` on.
    #[serde(default)]
    pub impl_failures: u32,
    /// Cycles that failed in `plan` or `tasks`.
    #[serde(default)]
    pub replan_failures: u32,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A commit that cannot name itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCommit {
    /// `plan:2`; older files have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Its parent; older files: `sha`, the commit before.
    #[serde(alias = "sha")]
    pub parent_sha: String,
    /// RFC 3339, UTC.
    pub timestamp: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A file of the run, as it was when its stage finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// From the project's root.
    pub path: String,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
    /// SHA-256 over what it was made from, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_sha256: Option<String>,
    /// RFC 3339, UTC.
    pub completed_at: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_earliest_names_are_read() {
        let text = r#"{"version":1,"runId":"r","status":"paused","phase":"loop",
            "lastCompletedStage":"plan","currentPhaseNumber":3,"branchName":"dex/x",
            "checkpoint":{"sha":"abc","timestamp":"t"},"ui":{"tab":1}}"#;
        let state = State::read(text.as_bytes()).unwrap();
        assert_eq!(state.last_completed_step.as_deref(), Some("plan"));
        assert_eq!(state.last_commit.as_ref().unwrap().parent_sha, "abc");
        assert_eq!(state.more["currentPhase"], "loop");
        assert_eq!(state.more["currentTaskPhaseNumber"], 3);
        assert_eq!(state.more["branchName"], "dex/x", "nothing is dropped");
        assert_eq!(State::read(&state.to_bytes()).unwrap().version, 2);
    }

    #[test]
    fn a_cut_of_power_and_the_future_are_named_f05() {
        let error = |bytes: &[u8]| State::read(bytes).unwrap_err().to_string();
        insta::assert_snapshot!(error(&[0; 512]), @".dex/state.json: the file holds only NUL bytes");
        insta::assert_snapshot!(error(b""), @".dex/state.json: the file is empty");
        insta::assert_snapshot!(error(br#"{"version":3,"runId":"r","status":"running"}"#),
            @".dex/state.json: field `version`: 3 is not known here; versions 1 and 2 are read");
        insta::assert_snapshot!(error(b"{\n  \"version\": 2,\n  \"runId\": \"r\",,\n}"),
            @".dex/state.json: line 3, column 16: key must be a string");
    }

    proptest! {
        #[test]
        fn a_state_reads_back_as_it_was_written(
            text in "\\PC{0,8}",
            cost in proptest::option::of(0u64..50_000_000),
            n in any::<u32>(),
        ) {
            let value = serde_json::json!({
                "version": 2, "runId": text, "status": text, "baseBranch": text,
                "cumulativeCostUsd": cost.map(crate::files::dollars), "cyclesCompleted": n,
                "featuresCompleted": [text], "config": {"model": text},
                "failureCounts": {text.as_str(): {"implFailures": n, "replanFailures": 0, "later": text}},
                "lastCommit": {"checkpoint": text, "parentSha": text, "timestamp": text, "x": n},
                "later": {"kept": [text, n]},
            });
            let state: State = serde_json::from_value(value).unwrap();
            let bytes = state.to_bytes();
            let again = State::read(&bytes).unwrap();
            prop_assert_eq!(&again, &state);
            prop_assert_eq!(again.to_bytes(), bytes);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = State::read(&bytes);
        }
    }
}

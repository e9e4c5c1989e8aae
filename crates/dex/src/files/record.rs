//! `.dex/runs/<runId>.json`: one audit record per run.
//!
//! `jq '.totalCostUsd, ([.phases[] | select(.agent)] | length)'` answers what a run cost and how
//! often an agent worked. The record inside a stage's commit already holds that stage's attempt.
//!
//! Older files are read too: `agentRuns`, `agentRunId` or `phaseTraceId`, `step`, `cycleNumber`,
//! `featureSlug`, `loopsCompleted`, and rows that say what they are only by a name
//! (`loop:<step>`, or a part of `tasks.md`). What has no place here is kept in `more` and
//! written again under its own name.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::store::{self, FileError};
use super::{dollars, micro, usd};

/// Where records are, from the root of the work tree.
pub const DIR: &str = ".dex/runs";

/// The place of a run's record, from the root of the work tree.
pub fn path(run_id: &str) -> PathBuf {
    Path::new(DIR).join(format!("{run_id}.json"))
}

/// A run's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The run.
    pub run_id: String,
    /// `loop`.
    #[serde(default = "loop_mode")]
    pub mode: String,
    /// Model, when configured.
    #[serde(default)]
    pub model: Option<String>,
    /// Agent back end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC; none while it is not over.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// `running`, `completed`; older files also `paused failed stopped crashed`.
    pub status: String,
    /// Sum over [`Record::phases`], in dollars; none when no attempt reported dollars.
    #[serde(default, serialize_with = "usd::write")]
    pub total_cost_usd: Option<f64>,
    /// Sum over [`Record::phases`], milliseconds.
    #[serde(default)]
    pub total_duration_ms: Option<u64>,
    /// Number of `learnings` commits. Older files: `loopsCompleted`.
    #[serde(default, alias = "loopsCompleted")]
    pub cycles_completed: u32,
    /// The goal file, from the project's root.
    #[serde(default)]
    pub description_file: Option<String>,
    /// Branch the run was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Commit the run was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_sha: Option<String>,
    /// The run this one was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The commit it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<String>,
    /// Whether changes were verified by a command, and which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_command: Option<String>,
    /// Every attempt of an agent, in order. Older files: `agentRuns`.
    #[serde(default, alias = "agentRuns")]
    pub phases: Vec<Phase>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

fn loop_mode() -> String {
    "loop".to_owned()
}

impl Record {
    /// Reads a record of any age. Never panics, whatever the bytes.
    pub fn read(bytes: &[u8]) -> Result<Record, FileError> {
        let place = Path::new(DIR);
        let mut record: Record = store::parse_json(place, bytes)?;
        // The id becomes a file's name; a record must not choose another directory.
        let id = record.run_id.as_str();
        if id.is_empty() || id.len() > 128 || id.starts_with('.') || id.contains(NOT_IN_A_NAME) {
            let problem = "field `runId`: it is not the id of a run";
            return Err(FileError::malformed(place, problem));
        }
        record.phases.iter_mut().for_each(Phase::name_an_older_row);
        Ok(record)
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        store::to_json(self)
    }

    /// Sets the totals from the phases. Money is summed in micro-dollars, so that the sum of
    /// many small costs is exact; none when no attempt reports any.
    pub fn recompute(&mut self) {
        let costs = || self.phases.iter().filter_map(|phase| phase.cost_usd);
        let total = costs().map(micro).fold(0, u64::saturating_add);
        self.total_cost_usd = costs().next().map(|_| dollars(total));
        let times = || {
            let attempts = self
                .phases
                .iter()
                .filter(|phase| !phase.is_inside_another());
            attempts.filter_map(|phase| phase.duration_ms)
        };
        let total = times().fold(0, u64::saturating_add);
        self.total_duration_ms = times().next().map(|_| total);
    }
}

const NOT_IN_A_NAME: [char; 5] = ['/', '\\', '\0', '\n', '\r'];

/// One attempt of an agent (or of a stage that needs none).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// UUIDv7. Older files: `agentRunId`, `phaseTraceId`.
    #[serde(alias = "agentRunId", alias = "phaseTraceId")]
    pub phase_id: String,
    /// Stage name; older files: `step`, which is null for parts of `implement`.
    #[serde(default, alias = "step")]
    pub stage: Option<String>,
    /// Cycle; older files: `cycleNumber`.
    #[serde(default, alias = "cycleNumber")]
    pub cycle: Option<u32>,
    /// Feature slug; older files: `featureSlug`.
    #[serde(default, alias = "featureSlug")]
    pub feature: Option<String>,
    /// Number of the part of `tasks.md`, for an attempt at one part of `implement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_phase: Option<u32>,
    /// Agent back end; none for a stage without an agent.
    #[serde(default)]
    pub agent: Option<String>,
    /// Model, when told.
    #[serde(default)]
    pub model: Option<String>,
    /// The agent's session.
    #[serde(default)]
    pub session_id: Option<String>,
    /// What sandbox was in force.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    #[serde(default)]
    pub ended_at: Option<String>,
    /// Milliseconds.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// Dollars this attempt added; none when the back end reports none.
    #[serde(default, serialize_with = "usd::write")]
    pub cost_usd: Option<f64>,
    /// Input tokens.
    #[serde(default)]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default)]
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    #[serde(default)]
    pub cached_tokens: Option<u64>,
    /// How it ended.
    pub status: PhaseStatus,
    /// Why, when it did not complete: `time_out`, `agent_error`, `quota` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same stage was tried again after it, so it is not the stage's failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retried: bool,
    /// The commit it started from.
    #[serde(default)]
    pub parent_sha: Option<String>,
    /// `plan:2`, when its commit is this record's commit or an earlier one.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// How the work was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// What the cycle came to; on `learnings` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle_outcome: Option<CycleOutcome>,
    /// What gap analysis decided; on `gap_analysis` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Files its commit changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<u64>,
    /// Paths left out of its commit, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Answers that were assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<Assumption>,
    /// Commits the agent made, folded into the stage's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_commits: Vec<String>,
    /// What the agent changed in git or in `.dex/` that was put back or only noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noticed: Vec<String>,
    /// What it did, bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<agents::transcript::Step>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Phase {
    /// Whether a person resumed after its dollars were used up, so that they no longer count
    /// against the stage.
    pub fn is_forgiven(&self) -> bool {
        self.retried && self.reason.as_deref() == Some("cost_cap")
    }

    /// An older row for a part of `implement`: its time lies within the row of the stage.
    pub fn is_inside_another(&self) -> bool {
        self.stage.is_none() && self.task_phase.is_some()
    }

    /// Older rows say by `taskPhaseName` (earlier `phaseName`) what they are: `loop:<step>`, or
    /// the title of a part of `tasks.md`, whose number is then in `taskPhaseNumber`.
    fn name_an_older_row(&mut self) {
        if self.stage.is_some() {
            return;
        }
        let field = |names: [&str; 2]| names.iter().find_map(|name| self.more.get(*name));
        let name = field(["taskPhaseName", "phaseName"]).and_then(Value::as_str);
        let number = field(["taskPhaseNumber", "phaseNumber"]).and_then(Value::as_u64);
        match name.and_then(|name| name.strip_prefix("loop:")) {
            Some(stage) => self.stage = Some(stage.to_owned()),
            None if self.task_phase.is_none() => {
                self.task_phase = number.and_then(|it| u32::try_from(it).ok());
            }
            None => {}
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseStatus {
    /// Older files only.
    Running,
    /// It finished.
    Completed,
    /// It failed.
    Failed,
    /// A person, a cap or a quota ended it.
    Stopped,
    /// We died while it ran.
    Crashed,
    /// A resume or a replan made it unnecessary.
    Skipped,
}

/// How a stage's work was verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// The command, none when there is none.
    pub command: Option<String>,
    /// Its exit status.
    pub exit: Option<i32>,
    /// `command`, or `word` when only the agent says so.
    pub by: VerifiedBy,
    /// The result.
    pub passed: bool,
    /// Blocking failures and the end of the output, bounded, redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Who says that it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifiedBy {
    /// The project's own command, run by us.
    Command,
    /// The agent's word.
    Word,
}

/// What a cycle came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CycleOutcome {
    /// The feature is verified.
    Completed,
    /// It is not; the feature stays active.
    Failed,
    /// The feature was given up.
    Skipped,
}

/// What a cycle does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Decision {
    /// The next pending feature, from its spec on.
    NextFeature,
    /// The active feature, from `plan` on.
    ReplanFeature,
    /// The active feature, from `implement` on.
    ResumeFeature,
}

/// A path a commit left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Path, lossily decoded.
    pub path: String,
    /// `nested_repository`, `too_large`.
    pub reason: String,
    /// Bytes, when that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// An answer nobody gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assumption {
    /// The question.
    pub question: String,
    /// What was taken.
    pub answer: String,
    /// `assumed`, or `person`.
    pub by: String,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn totals_are_exact_and_unreported_dollars_are_not_zero() {
        let row = |cost: &str| {
            format!(
                r#"{{"phaseId":"p","startedAt":"t","status":"failed","durationMs":7,"costUsd":{cost}}}"#
            )
        };
        let record = |rows: Vec<String>| {
            let rows = rows.join(",");
            let text =
                format!(r#"{{"runId":"r","startedAt":"t","status":"running","phases":[{rows}]}}"#);
            let mut record = Record::read(text.as_bytes()).unwrap();
            record.recompute();
            record
        };
        assert_eq!(record(vec![row("0.1"); 3]).total_cost_usd, Some(0.3));
        assert_eq!(record(vec![row("0.1"); 3]).total_duration_ms, Some(21));
        assert_eq!(record(vec![row("null"); 3]).total_cost_usd, None);
        assert_eq!(
            record(vec![row("null"), row("0")]).total_cost_usd,
            Some(0.0)
        );
        assert_eq!(record(vec![]).total_duration_ms, None);
    }

    #[test]
    fn older_rows_are_named_and_their_time_is_not_counted_twice() {
        let text = r#"{"runId":"r","startedAt":"t","status":"running","loopsCompleted":2,"phases":[
            {"phaseTraceId":"a","phaseNumber":2,"phaseName":"loop:implement","stage":null,
             "cycleNumber":null,"startedAt":"t","status":"completed","durationMs":10},
            {"agentRunId":"b","taskPhaseNumber":1,"taskPhaseName":"Setup","step":null,
             "startedAt":"t","status":"completed","durationMs":9}]}"#;
        let mut record = Record::read(text.as_bytes()).unwrap();
        record.recompute();
        assert_eq!(record.cycles_completed, 2);
        assert_eq!(record.phases[0].stage.as_deref(), Some("implement"));
        assert_eq!(record.phases[0].cycle, None);
        assert_eq!(record.phases[1].task_phase, Some(1));
        assert_eq!(record.total_duration_ms, Some(10));
    }

    #[test]
    fn a_bad_record_says_where_and_an_id_that_is_a_path_is_refused() {
        let error = |text: &str| Record::read(text.as_bytes()).unwrap_err().to_string();
        insta::assert_snapshot!(error("{\n \"runId\": \"r\",\n \"startedAt\": 7\n}"),
            @".dex/runs: line 3, column 15: field `startedAt`: invalid type: integer `7`, expected a string");
        insta::assert_snapshot!(error(r#"{"runId":"../x","startedAt":"t","status":"running"}"#),
            @".dex/runs: field `runId`: it is not the id of a run");
    }

    fn phases() -> impl Strategy<Value = Phase> {
        let texts = (
            "[a-z-]{1,8}",
            proptest::option::of("[a-z_]{1,8}"),
            "\\PC{0,8}",
        );
        let numbers = (
            proptest::option::of(0u64..5_000_000),
            proptest::option::of(any::<u32>()),
        );
        (texts, numbers).prop_map(|((id, stage, text), (cost, cycle))| {
            let text = serde_json::json!({
                "phaseId": id, "stage": stage, "cycle": cycle, "startedAt": text,
                "costUsd": cost.map(dollars), "status": "stopped", "reason": text,
                "leftOut": [{"path": text, "reason": "too_large", "bytes": cost, "later": 1}],
                "verify": {"command": null, "exit": 1, "by": "word", "passed": false, "x": [text]},
                "unknown": {"kept": [text]},
            });
            serde_json::from_value(text).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written(
            phases in prop::collection::vec(phases(), 0..4),
            text in "\\PC{0,8}",
        ) {
            let value = serde_json::json!({
                "runId": "r", "startedAt": text, "status": text, "phases": phases, "later": text,
            });
            let mut record: Record = serde_json::from_value(value).unwrap();
            record.recompute();
            let bytes = record.to_bytes();
            let again = Record::read(&bytes).unwrap();
            prop_assert_eq!(&again, &record);
            prop_assert_eq!(again.to_bytes(), bytes);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Record::read(&bytes);
        }
    }
}

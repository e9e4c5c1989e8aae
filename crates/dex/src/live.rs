//! `.git/dex/runs/<runId>/live.json`: everything about a run since its last commit.
//!
//! Written, synced, before and after every effect that a restart must know of. Without it
//! (another clone) everything shows what the commits say. Format: `docs/formats/live.md`.

use std::path::{Path, PathBuf};

use gitdb::snapshot::Prepared;
use gitdb::{Oid, Repo};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::record::{Assumption, LeftOut, Phase, Verify};
use crate::files::store::{self, FileError};
use crate::stage::{Place, Stage};

/// The live record of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Live {
    /// Always 1.
    pub version: u32,
    /// The run.
    pub run_id: String,
    /// Its branch, full name.
    pub branch: String,
    /// Root of the work tree it works in.
    #[serde(with = "path")]
    pub worktree: PathBuf,
    /// That work tree's git directory.
    #[serde(with = "path")]
    pub git_dir: PathBuf,
    /// What it started from and with; never changes.
    pub start: Start,
    /// Whether branch, HEAD and files of the start are all in place.
    pub set_up: bool,
    /// The branch's value after our last commit (or at the start).
    pub tip: Oid,
    /// What is going on.
    pub work: Work,
    /// Attempts that ended since the last commit, in order.
    pub attempts: Vec<Phase>,
    /// Parts of `implement` that are finished and need not be paid for again.
    pub finished_parts: Vec<FinishedPart>,
    /// Why it is not going on.
    pub pause: Option<Pause>,
    /// What a person is asked.
    pub question: Option<Question>,
    /// Until when it waits for a quota, RFC 3339.
    pub quota_until: Option<String>,
    /// Cycles up to this one no longer count as consecutive failures: a person resumed since.
    pub forgiven_cycles: u32,
    /// Advice given on `resume -m`.
    pub notes: Vec<String>,
    /// Paths let through by `--allow`.
    pub allow: Vec<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What a run was started from and with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// RFC 3339, UTC.
    pub started_at: String,
    /// Branch it started from, short; none on a detached HEAD.
    pub base_branch: Option<String>,
    /// Commit it started from. History before it is not the run's.
    pub base_sha: Oid,
    /// The run it was forked from.
    pub parent_run_id: Option<String>,
    /// The commit it was forked from.
    pub forked_from: Option<Oid>,
    /// The goal file, from the root.
    pub goal: String,
    /// Text to write to the goal file at set-up, for `run -m`.
    pub goal_text: Option<String>,
    /// Cycle 0 is written without an agent.
    pub small: bool,
    /// Stop at questions instead of assuming.
    pub ask: bool,
    /// Pause after every stage.
    pub step: bool,
    /// The settings as they were read, once.
    pub settings: Settings,
}

/// The settings a run works under, in plain units.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// `scripted`, `command`, `claude`, `codex`.
    pub agent: String,
    /// Program and arguments.
    pub agent_command: Option<Vec<String>>,
    /// Model.
    pub model: Option<String>,
    /// The project's verify command.
    pub verify_command: Option<String>,
    /// Program run when the run ends, stops or needs an answer.
    pub notify: Option<Vec<String>>,
    /// Cycles at most.
    pub max_cycles: u32,
    /// Micro-dollars at most, whole run.
    pub max_budget_micro_usd: u64,
    /// Micro-dollars at most, one stage.
    pub stage_budget_micro_usd: u64,
    /// Milliseconds at most, one stage.
    pub stage_timeout_ms: u64,
    /// Milliseconds without a sign of life.
    pub idle_ms: u64,
    /// Turns at most, one stage.
    pub max_turns: u32,
    /// Mends after a failed verify.
    pub max_verify_retries: u32,
    /// Milliseconds to wait for a quota.
    pub wait_for_quota_ms: u64,
    /// `skip` or `run`.
    pub hooks: String,
    /// `auto` or `never`.
    pub sign: String,
    /// `required`, `auto`, `off`.
    pub sandbox: String,
    /// What the sandbox lets through beyond the usual.
    #[serde(default)]
    pub walls: crate::config::Walls,
    /// A larger file is left out of commits.
    pub max_file_bytes: u64,
    /// Paths that may be committed all the same.
    pub allow: Vec<String>,
}

/// What is going on in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Work {
    /// Nothing since the last commit.
    Idle,
    /// An agent works, or worked when we died.
    Started(Box<Attempt>),
    /// The attempt is over and recorded, and did not finish its stage: its files are to be kept as
    /// an undo entry and put back.
    SettingAside {
        /// What the undo entry will say.
        reason: String,
    },
    /// The agent finished; its work is not committed. A restart goes on from here.
    AgentFinished(Box<Finished>),
    /// Tree and commit exist; the branch may have moved already.
    Committing(Box<Committing>),
}

/// An attempt at a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// UUIDv7; the record's `phaseId`.
    pub phase_id: String,
    /// The stage.
    pub stage: Stage,
    /// The cycle.
    pub cycle: u32,
    /// The feature's slug.
    pub feature: Option<String>,
    /// Spec directory of the feature, when it has one.
    pub spec_dir: Option<String>,
    /// Part of `implement`.
    pub part: Option<u32>,
    /// Which attempt at this stage since the last commit, from 1.
    pub number: u32,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// When a person stopped it half-way, RFC 3339; none when it runs or we died.
    #[serde(default)]
    pub stopped_at: Option<String>,
    /// Agent back end; none when the stage needs none.
    pub agent: Option<String>,
    /// Model, when told.
    pub model: Option<String>,
    /// Session, when told.
    pub session: Option<String>,
    /// Sandbox in force.
    pub sandbox: Option<String>,
    /// What it used so far.
    pub used: Used,
    /// How the verify command ended, before the agent was asked.
    pub verify: Option<Verify>,
    /// Names the files the command was run on; none without one.
    #[serde(default)]
    pub verified_files: Option<String>,
    /// What gap analysis found by itself.
    pub decision: Option<crate::files::record::Decision>,
}

/// Usage, as kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Micro-dollars; none when not reported.
    pub cost_micro_usd: Option<u64>,
    /// Input tokens.
    pub input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Cached tokens.
    pub cached_tokens: Option<u64>,
}

impl From<agents::Usage> for Used {
    fn from(usage: agents::Usage) -> Used {
        Used {
            cost_micro_usd: usage.cost_micro_usd,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
        }
    }
}

/// An attempt whose agent finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finished {
    /// The attempt.
    pub attempt: Attempt,
    /// The branch's value when the agent ended: commits after it are a person's.
    #[serde(default)]
    pub tip_after: Option<Oid>,
    /// The branch HEAD was on then, full name.
    #[serde(default)]
    pub head_after: Option<String>,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// Milliseconds.
    pub duration_ms: u64,
    /// The structured answer, checked.
    pub answer: Option<Value>,
    /// Answers to its questions: assumed, or given by a person.
    pub assumptions: Vec<Assumption>,
    /// Bounded steps for the record.
    pub steps: Vec<agents::transcript::Step>,
    /// For `learnings`: what the cycle came to.
    pub cycle_outcome: Option<crate::files::record::CycleOutcome>,
    /// Things noticed and put back.
    pub noticed: Vec<String>,
    /// Commits of the agent that are folded in.
    pub agent_commits: Vec<String>,
    /// Paths left out of the commit.
    pub left_out: Vec<LeftOut>,
}

/// A commit on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Committing {
    /// What git has to do.
    pub prepared: Prepared,
    /// Place of the stage, for people.
    pub checkpoint: String,
}

/// A finished part of `implement`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FinishedPart {
    /// Its number in `tasks.md`.
    pub part: u32,
    /// The work tree when it was finished.
    pub tree: Oid,
    /// The undo entry that keeps that tree from being collected.
    pub entry: u64,
}

/// Why a run is not going on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pause {
    /// The named reason.
    pub reason: PauseReason,
    /// One line for people.
    pub why: String,
    /// RFC 3339, UTC.
    pub at: String,
    /// Of `budget_exceeded`: a single stage's dollars are used up, not the run's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_stage: bool,
}

/// The named reasons to stop before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// A person stopped it.
    UserAbort,
    /// `--step`.
    StepMode,
    /// The dollars are used up.
    BudgetExceeded,
    /// The cycles are used up.
    MaxCyclesReached,
    /// Three failures in a row.
    ConsecutiveFailures,
    /// A question waits for an answer.
    NeedsInput,
    /// The agent moved HEAD or rewound the branch.
    HeadMoved,
    /// The agent left a merge, rebase … open.
    AgentLeftOperation,
    /// The agent is not installed or not logged in.
    AgentUnavailable,
    /// The account's quota did not come back in time.
    QuotaExhausted,
    /// Git or the disk refused; nothing was lost.
    CouldNotCommit,
}

impl PauseReason {
    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            PauseReason::UserAbort => "user_abort",
            PauseReason::StepMode => "step_mode",
            PauseReason::BudgetExceeded => "budget_exceeded",
            PauseReason::MaxCyclesReached => "max_cycles_reached",
            PauseReason::ConsecutiveFailures => "consecutive_failures",
            PauseReason::NeedsInput => "needs_input",
            PauseReason::HeadMoved => "head_moved",
            PauseReason::AgentLeftOperation => "agent_left_operation",
            PauseReason::AgentUnavailable => "agent_unavailable",
            PauseReason::QuotaExhausted => "quota_exhausted",
            PauseReason::CouldNotCommit => "could_not_commit",
        }
    }
}

/// Something a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// The stage that asks.
    pub checkpoint: String,
    /// The questions still open.
    pub asks: Vec<crate::answer::Question>,
    /// Answers given so far.
    pub given: Vec<Assumption>,
}

impl Attempt {
    /// Where in the run it is.
    pub fn place(&self) -> Place {
        Place {
            stage: self.stage,
            cycle: self.cycle,
            feature: self.feature.clone(),
        }
    }
}

impl Live {
    /// The directory of a run's working data.
    pub fn dir(repo: &Repo, run_id: &str) -> PathBuf {
        repo.common_own_dir().join("runs").join(run_id)
    }

    /// Reads a run's live record; none when there is none here.
    pub fn read(repo: &Repo, run_id: &str) -> Result<Option<Live>, FileError> {
        let live = Live::read_file(&Live::dir(repo, run_id).join("live.json"))?;
        Ok(live.map(|it| it.here(repo)))
    }

    /// As it is in this repository: one that was moved or copied since takes its in-place run
    /// along, and never works on where it came from.
    fn here(mut self, repo: &Repo) -> Live {
        let linked = |dir: &Path| dir.parent().is_some_and(|it| it.ends_with("worktrees"));
        if !self.git_dir.starts_with(&repo.common_dir)
            && !linked(&self.git_dir)
            && repo.common_dir.ends_with(".git")
            && let Some(root) = repo.common_dir.parent()
        {
            self.worktree = root.to_owned();
            self.git_dir = repo.common_dir.clone();
        }
        self
    }

    /// Reads a live record from its file.
    pub fn read_file(path: &Path) -> Result<Option<Live>, FileError> {
        match store::read(path)? {
            Some(bytes) => store::parse_json(path, &bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Every live record of the repository. Unreadable ones are errors beside the others, never
    /// taken for absent (case F07).
    pub fn all(repo: &Repo) -> Vec<Result<Live, FileError>> {
        let dir = repo.common_own_dir().join("runs");
        let Ok(entries) = std::fs::read_dir(dir) else {
            return Vec::new();
        };
        let mut files: Vec<_> = entries
            .flatten()
            .map(|entry| entry.path().join("live.json"))
            .collect();
        files.sort();
        files
            .iter()
            .filter_map(|file| Live::read_file(file).transpose())
            .map(|live| live.map(|it| it.here(repo)))
            .collect()
    }

    /// Writes the record, synced.
    pub fn write(&self, repo: &Repo) -> Result<(), FileError> {
        gitdb::fault::point("live.before");
        let path = Live::dir(repo, &self.run_id).join("live.json");
        store::write(&repo.common_dir, &path, &store::to_json(self))?;
        gitdb::fault::point("live.after");
        Ok(())
    }
}

/// A path in JSON: text; where it is none, `{"bytes": […]}`, so that nothing is lost.
mod path {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Bytes { bytes: Vec<u8> },
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let form = match path.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes {
                bytes: path.as_os_str().as_bytes().to_vec(),
            },
        };
        form.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Form::deserialize(from)? {
            Form::Text(text) => PathBuf::from(text),
            Form::Bytes { bytes } => std::ffi::OsString::from_vec(bytes).into(),
        })
    }
}

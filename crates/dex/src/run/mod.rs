//! Carrying a run out: decide ([`crate::next`]), do, commit, again.
//!
//! Nothing here decides what comes next, and nothing pure is in here. Every effect a restart must
//! know of is in the live record before it happens; [`Runner::go`] first finishes what an earlier
//! process left, so being killed anywhere and being stopped look the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agents::{Agent, Stop};
use gitdb::snapshot::SnapshotError;
use gitdb::{GitError, Head, Oid, Repo, refs};

use crate::answer::Question;
use crate::facts::{self, FactsError};
use crate::files::lock::RunLock;
use crate::files::record::Phase;
use crate::files::store::FileError;
use crate::live::{Live, Pause, PauseReason, Work};
use crate::next::{Next, next};
use crate::outcome::{self, Verdict};
use crate::reconcile::{Facts, Reconciled, Unmarked, reconcile};
use crate::stage::{Place, Stage};

mod attempt;
mod commit;
pub mod dotdex;
mod held;
mod inputs;
mod judged;
mod output;
mod placing;
pub mod setup;
mod stages;
mod stop;
mod unfinished;
mod verify;
mod waiting;
pub mod walls;

pub use held::NotHeld;
pub use stop::{Request as StopRequest, Watch, forget as forget_stop, request as request_stop};
pub use unfinished::Choice;

/// Something a watcher may show.
#[derive(Debug)]
pub enum Event<'a> {
    /// A stage begins.
    StageStarted {
        /// Where in the run.
        place: &'a Place,
        /// The agent, none for a stage without one.
        agent: Option<&'a str>,
        /// Title of the feature.
        feature: Option<&'a str>,
        /// Why this stage.
        why: &'a str,
        /// Micro-dollars the run has cost so far.
        spent_micro: u64,
        /// Micro-dollars it may cost.
        budget_micro: u64,
    },
    /// A part of `implement` begins.
    PartStarted {
        /// Its number.
        part: u32,
        /// How many there are.
        of: u32,
        /// Its title.
        title: &'a str,
    },
    /// The agent did something.
    Agent(&'a agents::Event),
    /// The project's verify command runs.
    Verifying {
        /// The command.
        command: &'a str,
    },
    /// A stage is committed.
    Committed {
        /// Where in the run.
        place: &'a Place,
        /// Its commit.
        commit: &'a Oid,
        /// The element of the record of its last attempt.
        phase: &'a Phase,
        /// Micro-dollars of all its attempts and parts.
        cost_micro: Option<u64>,
        /// Milliseconds of all of them.
        duration_ms: u64,
    },
    /// An attempt did not finish its stage.
    Failed {
        /// Where in the run.
        place: &'a Place,
        /// The named reason.
        reason: &'a str,
        /// One line.
        detail: &'a str,
        /// Whether the stage is tried again.
        again: bool,
    },
    /// Something to know: left out, put back, assumed, recovered.
    Notice(&'a str),
    /// It waits for a quota.
    Waiting {
        /// RFC 3339.
        until: &'a str,
    },
}

/// What a person answers to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// This.
    Answer(String),
    /// Nobody is there, or they left it to us.
    Nobody,
}

/// Watches a run and may answer its questions.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);

    /// A question of a clarification stage; asked only where a person is there.
    fn ask(&mut self, question: &Question) -> Reply;
}

/// Asks a run to end; shared with signal handlers and the watcher of stop requests.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// Ends the attempt now.
    pub now: Stop,
    /// Ends the run after the stage at work.
    pub after_stage: Arc<AtomicBool>,
    /// The signal that asked, 0 for none.
    pub signal: Arc<AtomicUsize>,
}

impl Control {
    /// Whether it is to end at the next boundary.
    pub fn wants_end(&self) -> bool {
        self.now.is_set() || self.after_stage.load(Ordering::SeqCst)
    }
}

/// How a run (or this sitting of it) ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The last commit is made.
    Completed(Verdict),
    /// It stopped before the end and can be resumed.
    Paused(Pause, Verdict),
}

/// A run cannot go on. Nothing was lost; the live record says where it is.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Reading failed.
    #[error("could not look at the run")]
    Facts(#[from] FactsError),
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
    /// A stage could not be committed.
    #[error("the stage could not be committed")]
    Snapshot(#[from] SnapshotError),
    /// A file of ours could not be read or written.
    #[error("a file of the run could not be used")]
    File(#[from] FileError),
    /// What the agent changed could not be put back.
    #[error("what the agent changed could not be put back")]
    PutBack(#[from] dotdex::PutBackError),
    /// The sandbox that is required cannot be made.
    #[error("the sandbox cannot be made")]
    Sandbox(#[from] agents::sandbox::Refusal),
    /// A prompt cannot be rendered.
    #[error("the prompt of {stage} cannot be used")]
    Prompt {
        /// The stage.
        stage: Stage,
        /// Why.
        #[source]
        source: crate::prompt::PromptError,
    },
    /// The run's branch is gone.
    #[error("the branch {branch} is gone")]
    BranchGone {
        /// Its short name.
        branch: String,
        /// Where it was when we last looked.
        tip: Option<Oid>,
    },
    /// The work tree is not on the run's branch.
    #[error("the work tree is on {found}, not on {branch}")]
    ElsewhereNow {
        /// The run's branch, short.
        branch: String,
        /// Where HEAD is.
        found: String,
    },
    /// A stage commit lost its message; doing the stage again would pay for it twice.
    #[error("{} holds the work of {} and no longer says so", .0.commit.short(), .0.place.label())]
    Unmarked(Box<Unmarked>),
    /// A merge, rebase … is open in the work tree.
    #[error("a {0:?} is in progress in the work tree")]
    Operation(gitdb::repo::Operation),
    /// A stage was interrupted half-way and nobody said what to do with its files.
    #[error("{0} was interrupted half-way")]
    HalfDone(String),
    /// A question waits for an answer.
    #[error("a question waits for an answer")]
    Unanswered,
}

impl RunError {
    /// The branch of this run is gone.
    fn gone(live: &Live) -> RunError {
        RunError::BranchGone {
            branch: live.branch.trim_start_matches("refs/heads/").to_owned(),
            tip: Some(live.tip.clone()),
        }
    }
}

/// Carries one run out, in one work tree, holding its lock.
pub struct Runner<'a> {
    /// The repository, seen from the run's work tree.
    pub repo: Repo,
    /// The live record.
    pub live: Live,
    /// The back end.
    pub agent: Box<dyn Agent>,
    /// Who watches.
    pub observer: &'a mut dyn Observer,
    /// How it is asked to end.
    pub control: Control,
    /// Whether a person is there to answer.
    pub person: bool,
    /// Held as long as it runs.
    pub lock: RunLock,
    /// Micro-dollars of the committed record, as of the last look.
    pub spent_committed: u64,
    /// What the newest commit holds, as last read.
    pub committed: Option<Facts>,
}

impl std::fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("run", &self.live.run_id)
            .finish_non_exhaustive()
    }
}

/// What a stage came to, for the loop.
enum Went {
    /// On to the next decision.
    On,
    /// The run pauses.
    Pause(PauseReason, String),
}

impl Runner<'_> {
    /// Works until the run is over or has to stop.
    pub fn go(&mut self) -> Result<Ended, RunError> {
        clear_leftovers(&self.repo)?;
        self.end_killed_verify()?;
        let aside = Live::dir(&self.repo, &self.live.run_id).join("put-back");
        for text in dotdex::bad_files_aside(&self.live.worktree, &self.live.run_id, &aside)? {
            self.notice(&text);
        }
        self.tell_of_gaps();
        loop {
            if let Went::Pause(reason, why) = self.finish_what_is_left()? {
                return self.pause(reason, why);
            }
            let (run, facts) = self.read()?;
            if self.control.wants_end() {
                return self.pause(PauseReason::UserAbort, "it was asked to stop".to_owned());
            }
            if let Some(lost) = run.unmarked.first() {
                return Err(RunError::Unmarked(Box::new(lost.clone())));
            }
            let settings = self.live.start.settings.clone();
            let went = match next(&run, &settings) {
                Next::Over => return self.over(),
                Next::Stop { reason, why } => return self.pause(reason, why),
                Next::Complete => self.complete()?,
                Next::Stage(step) => self.stage(&run, &facts, &step)?,
            };
            match went {
                Went::On if self.live.start.step && self.live.work == Work::Idle => {
                    let run = self.read()?.0;
                    if run.progress.has(Stage::Completion) {
                        return self.over();
                    }
                    return self.pause(PauseReason::StepMode, "it pauses after every stage".into());
                }
                Went::On => {}
                Went::Pause(reason, why) => return self.pause(reason, why),
            }
        }
    }

    /// Reads and settles the run as it is now. What a commit holds is read once.
    fn read(&mut self) -> Result<(Reconciled, Facts), RunError> {
        let tip =
            refs::read(&self.repo, &self.live.branch)?.ok_or_else(|| RunError::gone(&self.live))?;
        let cached = self
            .committed
            .as_ref()
            .filter(|it| it.tip.as_ref() == Some(&tip));
        let mut facts = match cached {
            Some(facts) => facts.clone(),
            None => facts::committed(&self.repo, &tip, &self.live)?,
        };
        self.committed = Some(facts.clone());
        facts.live = Some(self.live.clone());
        let committed = crate::progress::phases(facts.record.got());
        self.spent_committed = crate::progress::cost_micro(committed).unwrap_or(0);
        Ok((reconcile(&facts), facts))
    }

    /// Takes the branch's value as the stage's start tip: commits made by hand since are built
    /// upon, never dropped.
    fn check_place(&mut self) -> Result<(), RunError> {
        self.live.tip = check_place(&self.repo, &self.live)?;
        Ok(())
    }

    /// Micro-dollars spent, by attempts that failed too.
    fn spent(&self) -> u64 {
        self.spent_committed + crate::progress::cost_micro(&self.live.attempts).unwrap_or(0)
    }

    fn pause(&mut self, reason: PauseReason, why: String) -> Result<Ended, RunError> {
        let in_bounds = self.spent() < self.live.start.settings.max_budget_micro_usd;
        let pause = Pause {
            of_stage: reason == PauseReason::BudgetExceeded && in_bounds,
            reason,
            why,
            at: now(),
        };
        self.live.pause = Some(pause.clone());
        self.live.quota_until = None;
        self.live.write(&self.repo)?;
        let verdict = match self.read() {
            Ok((run, _)) => outcome::verdict(&run),
            // An agent deleted it; `resume` puts it back.
            Err(RunError::BranchGone { .. }) => Verdict::Open,
            Err(error) => return Err(error),
        };
        Ok(Ended::Paused(pause, verdict))
    }

    fn over(&mut self) -> Result<Ended, RunError> {
        self.live.pause = None;
        self.live.write(&self.repo)?;
        self.drop_layers();
        Ok(Ended::Completed(outcome::verdict(&self.read()?.0)))
    }

    fn notice(&mut self, text: &str) {
        self.observer.event(&Event::Notice(text));
    }
}

/// Checks, before a stage, that the work tree still is the run's (cases C26, C27); returns where
/// its branch is.
pub fn check_place(repo: &Repo, live: &Live) -> Result<Oid, RunError> {
    if let Some(operation) = repo.operation_in_progress()? {
        return Err(RunError::Operation(operation));
    }
    let branch = live.branch.trim_start_matches("refs/heads/").to_owned();
    let found = match repo.head()? {
        Head::Branch { name, oid } if name == live.branch => {
            return oid.ok_or_else(|| RunError::gone(live));
        }
        Head::Branch { name, .. } => name.trim_start_matches("refs/heads/").to_owned(),
        Head::Detached(oid) => format!("a detached HEAD at {}", oid.short()),
    };
    Err(RunError::ElsewhereNow { branch, found })
}

/// The moment, RFC 3339 in UTC with milliseconds, as every file of ours keeps it.
pub fn now() -> String {
    stamp(jiff::Timestamp::now())
}

/// A moment as every file of ours keeps it.
pub fn stamp(at: jiff::Timestamp) -> String {
    format!("{at:.3}")
}

/// Removes what an earlier, killed `dex` left of a commit or a restore in this work tree: private
/// indexes, and a lock of git's that is provably ours. The caller holds the run's lock. A commit
/// that can still be finished keeps its index.
pub fn clear_leftovers(repo: &Repo) -> Result<(), GitError> {
    let here = repo.work_tree();
    let in_this_tree = |it: &Live| Some(it.worktree.as_path()) == here;
    let mut lives = Live::all(repo).into_iter().flatten().filter(in_this_tree);
    let prepared = lives.find_map(|it| match it.work {
        Work::Committing(committing) => Some(committing.prepared),
        Work::Idle | Work::Started(_) | Work::SettingAside { .. } | Work::AgentFinished(_) => None,
    });
    gitdb::snapshot::sweep(repo, prepared.as_ref())
}

/// Ends processes that an earlier, killed `dex` left working in this work tree.
pub fn end_leftovers(repo: &Repo, worktree: &std::path::Path) -> Vec<u32> {
    let mut ended = Vec::new();
    for live in Live::all(repo).into_iter().flatten() {
        if live.worktree != worktree {
            continue;
        }
        let attempts = Live::dir(repo, &live.run_id).join("attempts");
        for attempt in std::fs::read_dir(attempts).into_iter().flatten().flatten() {
            for list in std::fs::read_dir(attempt.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                if list.file_name().to_string_lossy().contains("process") {
                    // A list that cannot be read names nobody we could end.
                    ended.extend(agents::guard::end_leftovers(&list.path()).unwrap_or_default());
                }
            }
        }
    }
    ended
}

fn new_id() -> String {
    uuid::Uuid::now_v7().hyphenated().to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        let at: jiff::Timestamp = "2026-11-30T22:45:00.1234567Z".parse().unwrap();
        assert_eq!(super::stamp(at), "2026-11-30T22:45:00.123Z");
    }
}

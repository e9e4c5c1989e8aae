//! From a finished attempt to its commit, so that any step of it can be repeated.

use std::path::PathBuf;

use gitdb::snapshot::{self, Expected, Hooks, Landed, Meanwhile, Selection, Sign};
use gitdb::{GitError, Head, Oid, refs, undo};

use super::inputs::{self, Paths};
use super::judged::{Judged, Secret, explain_secrets};
use super::{Event, RunError, Runner, Went};
use crate::element;
use crate::files::record::CycleOutcome;
use crate::files::store;
use crate::live::{Committing, Finished, PauseReason, Work};
use crate::outcome::{self, Before};
use crate::reconcile::{Facts, Reconciled};

/// How often a commit is prepared anew because the index or the files changed meanwhile.
const ROUNDS: u32 = 3;
/// How committing went.
#[derive(Debug)]
pub(super) enum Committed {
    /// The stage is on the branch.
    Done,
    /// Likely secrets are in the way.
    Secrets(Vec<Secret>),
    /// The run has to pause; nothing was moved.
    Pause(PauseReason, String),
}

impl Runner<'_> {
    /// Commits what an earlier step, or an earlier process, left finished.
    pub(super) fn finish_what_is_left(&mut self) -> Result<Went, RunError> {
        match self.live.work.clone() {
            Work::Idle => Ok(Went::On),
            Work::Started(attempt) if self.control.wants_end() => {
                let why = format!("{} was stopped half-way", attempt.place().label());
                Ok(Went::Pause(PauseReason::UserAbort, why))
            }
            Work::Started(attempt) => Err(RunError::HalfDone(attempt.place().label())),
            Work::SettingAside { reason } => {
                match self.finish_setting_aside(&reason) {
                    // A full disk, most often. Nothing is lost, and `resume` does it again.
                    Err(RunError::Git(error)) => {
                        Ok(Went::Pause(PauseReason::CouldNotCommit, error.to_string()))
                    }
                    other => other.map(|()| Went::On),
                }
            }
            Work::AgentFinished(done) => {
                if let Some(went) = self.take_answers()? {
                    return Ok(went);
                }
                // Killed before its questions were settled.
                if let Some(went) = self.settle_questions()? {
                    return Ok(went);
                }
                if self.is_only_a_part(&done) {
                    // Killed between two parts of `implement`: the next step goes on with the rest.
                    self.keep_part()?;
                    return Ok(Went::On);
                }
                if !self.verify_again()? {
                    return Ok(Went::On);
                }
                Ok(match self.commit_finished()? {
                    Committed::Done => Went::On,
                    Committed::Pause(reason, why) => Went::Pause(reason, why),
                    Committed::Secrets(found) => {
                        Went::Pause(PauseReason::NeedsInput, explain_secrets(&found))
                    }
                })
            }
            Work::Committing(committing) => self.recover(&committing),
        }
    }

    /// Whether parts of `implement` follow the one that finished.
    fn is_only_a_part(&self, done: &Finished) -> bool {
        let Some(number) = done.attempt.part else {
            return false;
        };
        let spec_dir = done.attempt.spec_dir.as_deref();
        let open = inputs::parts(&self.live.worktree, spec_dir, &self.live);
        open.iter().flatten().any(|it| it.phase.number != number)
    }

    /// Takes the answers a person gave with `dex answer` into the finished attempt.
    fn take_answers(&mut self) -> Result<Option<Went>, RunError> {
        let Some(question) = self.live.question.clone() else {
            return Ok(None);
        };
        if !question.asks.is_empty() {
            let why = format!("{} questions wait for an answer", question.asks.len());
            return Ok(Some(Went::Pause(PauseReason::NeedsInput, why)));
        }
        if let Work::AgentFinished(done) = &mut self.live.work {
            done.assumptions.extend(question.given);
        }
        self.live.question = None;
        self.live.write(&self.repo)?;
        Ok(None)
    }

    /// Commits the finished attempt of the live record. Every step can be repeated.
    pub(super) fn commit_finished(&mut self) -> Result<Committed, RunError> {
        let Work::AgentFinished(done) = self.live.work.clone() else {
            return Ok(Committed::Done);
        };
        let mut done = *done;
        let base = match self.what_the_agent_did(&mut done)? {
            Ok(base) => base,
            Err((reason, why)) => return Ok(Committed::Pause(reason, why)),
        };
        let (run, facts) = self.read()?;
        if done.cycle_outcome == Some(CycleOutcome::Skipped) {
            self.take_code_back(&run, &done)?;
        }
        for _ in 0..ROUNDS {
            let judged = self.judge_files(&base)?;
            if !judged.secrets.is_empty() {
                return Ok(Committed::Secrets(judged.secrets));
            }
            done.left_out = judged.newly_left_out(&run);
            let written = self.write_dot_dex(&run, &facts, &done, judged.changed)?;
            let prepared = match self.prepare(&done, &base, &judged, written) {
                Ok(prepared) => prepared,
                Err(error) => {
                    let (reason, why) = could_not_commit(error)?;
                    return Ok(Committed::Pause(reason, why));
                }
            };
            if !only_what_was_seen(&prepared, &judged) {
                continue;
            }
            let place = done.attempt.place();
            self.live.work = Work::Committing(Box::new(Committing {
                prepared: prepared.clone(),
                checkpoint: place.checkpoint(),
            }));
            self.live.write(&self.repo)?;
            match snapshot::land(&self.repo, &prepared) {
                Ok(Landed::Done) => return self.landed(&prepared.commit, Some(&done)),
                Ok(Landed::HeadLeft) => {
                    self.notice("HEAD had left the run's branch; the index was left alone");
                    return self.landed(&prepared.commit, Some(&done));
                }
                Ok(Landed::IndexChanged) => {
                    self.live.work = Work::AgentFinished(Box::new(done.clone()));
                    self.live.write(&self.repo)?;
                }
                Err(error) => {
                    let tip = refs::read(&self.repo, &self.live.branch)?;
                    if tip.as_ref() != Some(&prepared.commit) {
                        self.live.work = Work::AgentFinished(Box::new(done));
                        self.live.write(&self.repo)?;
                    }
                    // Else the stage is on the branch and only the index is behind: `recover`.
                    let (reason, why) = could_not_commit(error)?;
                    return Ok(Committed::Pause(reason, why));
                }
            }
        }
        Ok(Committed::Pause(
            PauseReason::CouldNotCommit,
            format!("files or index kept changing; tried {ROUNDS} times"),
        ))
    }

    /// Looks at what the agent did to git; its commits are folded into the stage's. Gives the
    /// value the branch has now.
    fn what_the_agent_did(
        &mut self,
        done: &mut Finished,
    ) -> Result<Result<Oid, (PauseReason, String)>, RunError> {
        let branch = self.live.branch.clone();
        let start_tip = self.live.tip.clone();
        let expected = Expected {
            branch: &branch,
            start_tip: &start_tip,
        };
        let label = done.attempt.place().label();
        Ok(match snapshot::meanwhile(&self.repo, &expected)? {
            Meanwhile::Nothing => Ok(start_tip),
            Meanwhile::Committed { tip, .. }
                if done.tip_after.as_ref().unwrap_or(&start_tip) == &start_tip =>
            {
                // Commits a person made since the agent ended are built upon, never folded.
                self.live.tip = tip.clone();
                self.notice(&format!(
                    "commits made by hand since {label} are kept and built upon"
                ));
                Ok(tip)
            }
            Meanwhile::Committed { tip, .. }
                if done.tip_after.as_ref().is_some_and(|it| *it != tip) =>
            {
                // A person committed on top of the agent's commits: theirs must stay on the
                // branch, and the agent's are under them.
                self.live.tip = tip.clone();
                self.notice(&format!(
                    "commits made by hand since {label} are kept, and the agent's under them"
                ));
                Ok(tip)
            }
            Meanwhile::Committed { tip, commits } => {
                let ids: Vec<String> = commits.iter().map(Oid::to_string).collect();
                if done.agent_commits != ids {
                    self.undo_entry(
                        &format!("commits made during {label} were folded into it"),
                        vec![tip.clone()],
                    )?;
                    done.agent_commits = ids;
                    self.live.work = Work::AgentFinished(Box::new(done.clone()));
                    self.live.write(&self.repo)?;
                    self.notice(&format!(
                        "{} commits made during {label} are folded into it",
                        commits.len()
                    ));
                }
                Ok(tip)
            }
            Meanwhile::HeadMoved { .. } if self.left_by_a_person(done)? => {
                self.check_place()?;
                return Err(RunError::BranchGone {
                    branch,
                    tip: Some(self.live.tip.clone()),
                });
            }
            Meanwhile::HeadMoved { tips } => {
                self.undo_entry(&format!("HEAD was moved during {label}"), tips)?;
                let why = format!(
                    "HEAD or the branch was moved during {label}; nothing was changed. Keep the files as they are with --keep, or go back to before the stage with --discard"
                );
                Err((PauseReason::HeadMoved, why))
            }
            Meanwhile::LeftOperation(operation) => Err((
                PauseReason::AgentLeftOperation,
                format!(
                    "a {operation:?} was left open during {label}; end or abort it, then resume"
                ),
            )),
        })
    }

    /// Whether HEAD is elsewhere though the agent had left it, and the branch, in order: then a
    /// person went there since (case C27), and has to come back.
    fn left_by_a_person(&self, done: &Finished) -> Result<bool, RunError> {
        let branch = self.live.branch.as_str();
        let elsewhere = match self.repo.head()? {
            Head::Branch { name, .. } => name != branch,
            Head::Detached(_) => true,
        };
        let in_order = match &done.tip_after {
            Some(tip) if done.head_after.as_deref() == Some(branch) => {
                self.repo.is_ancestor(&self.live.tip, tip)?
            }
            _ => false,
        };
        Ok(elsewhere && in_order)
    }

    /// The code of a feature that is given up goes back to before its first `implement`; its
    /// specs and the history stay.
    fn take_code_back(&mut self, run: &Reconciled, done: &Finished) -> Result<(), RunError> {
        let Some(feature) = done.attempt.feature.as_deref() else {
            return Ok(());
        };
        let Some(before) = run.progress.before_code_of(feature).cloned() else {
            return Ok(());
        };
        self.undo_entry(&format!("the code of {feature} was taken back"), Vec::new())?;
        let mut keep = vec![PathBuf::from(".dex"), PathBuf::from("specs")];
        keep.extend(done.attempt.spec_dir.iter().map(PathBuf::from));
        self.restore(&before, &keep)
    }

    /// Writes what the commit holds under `.dex/`; gives the paths.
    fn write_dot_dex(
        &mut self,
        run: &Reconciled,
        facts: &Facts,
        done: &Finished,
        changed: u64,
    ) -> Result<Vec<Vec<u8>>, RunError> {
        let root = self.live.worktree.clone();
        let paths = Paths::of(&self.live.start.goal);
        let learnings = store::read(&root.join(".dex/learnings.md"))?
            .map(|it| String::from_utf8_lossy(&it).into_owned())
            .unwrap_or_default();
        let artifacts = inputs::artifacts(&root, &paths, done.attempt.stage, &done.ended_at);
        let clarified = store::read(&root.join(&paths.clarified))?.unwrap_or_default();
        let source_hash = inputs::sha256(&clarified);
        let record = facts
            .record
            .got()
            .filter(|it| it.run_id == self.live.run_id);
        let before = Before {
            run,
            live: &self.live,
            record,
            manifest: facts.manifest.got(),
            state: facts.state.got(),
            learnings: &learnings,
            parent: &self.live.tip,
            artifacts: &artifacts,
            source: (&source_hash, &paths.clarified),
        };
        let mut after = outcome::after(&before, done);
        if let Some(last) = after.record.phases.last_mut() {
            last.files_changed = Some(changed);
        }
        gitdb::fault::point("dotdex.before");
        let mut written = Vec::new();
        for (path, bytes) in after.files() {
            written.push(path.as_bytes().to_vec());
            let path = root.join(path);
            if store::read(&path).ok().flatten().as_deref() != Some(&bytes) {
                store::write(&root, &path, &bytes)?;
            }
        }
        gitdb::fault::point("dotdex.after");
        Ok(written)
    }

    fn prepare(
        &self,
        done: &Finished,
        base: &Oid,
        judged: &Judged,
        dot_dex: Vec<Vec<u8>>,
    ) -> Result<snapshot::Prepared, snapshot::SnapshotError> {
        let settings = &self.live.start.settings;
        let expected = Expected {
            branch: &self.live.branch,
            start_tip: &self.live.tip,
        };
        let sign = if settings.sign == "never" {
            Sign::Never
        } else {
            Sign::Auto
        };
        let hooks = if settings.hooks == "run" {
            Hooks::Run
        } else {
            Hooks::Skip
        };
        let message = done.attempt.place().message();
        let mut only = dot_dex;
        only.extend_from_slice(&judged.to_add);
        let selection = Selection {
            only: Some(&only),
            exclude: &judged.exclude,
        };
        snapshot::prepare(
            &self.repo, &expected, base, &message, selection, sign, hooks,
        )
    }

    /// The branch has the commit: nothing is unfinished any more.
    fn landed(&mut self, commit: &Oid, done: Option<&Finished>) -> Result<Committed, RunError> {
        let parts = std::mem::take(&mut self.live.finished_parts);
        self.live.tip = commit.clone();
        self.live.work = Work::Idle;
        let mut attempts = std::mem::take(&mut self.live.attempts);
        self.live.question = None;
        self.live.quota_until = None;
        self.live.write(&self.repo)?;
        self.drop_parts(&parts);
        let scratch = crate::live::Live::dir(&self.repo, &self.live.run_id).join("attempts");
        // Only ours, only scratch: what stays is removed at the next commit.
        let _ = std::fs::remove_dir_all(scratch);
        if let Some(done) = done {
            let mut phase = element::of_finished(done);
            phase.parent_sha = None;
            let place = done.attempt.place();
            attempts.push(phase.clone());
            self.observer.event(&Event::Committed {
                place: &place,
                commit,
                phase: &phase,
                cost_micro: crate::progress::cost_micro(&attempts),
                duration_ms: crate::progress::duration_ms(&attempts),
            });
        }
        Ok(Committed::Done)
    }

    fn drop_parts(&self, parts: &[crate::live::FinishedPart]) {
        if parts.is_empty() {
            return;
        }
        let Ok(entries) = undo::list(&self.repo) else {
            return;
        };
        for entry in entries
            .iter()
            .filter(|it| parts.iter().any(|part| part.entry == it.n))
        {
            // A leftover entry is one more thing that can be undone; it does no harm.
            let _ = undo::drop_entry(&self.repo, entry);
        }
    }

    /// Finishes a commit that a crash interrupted: the recorded object, never a new snapshot.
    fn recover(&mut self, committing: &Committing) -> Result<Went, RunError> {
        match snapshot::recover(&self.repo, &committing.prepared) {
            Ok(Landed::Done | Landed::HeadLeft) => {
                self.landed(&committing.prepared.commit, None)?;
                self.notice(&format!(
                    "{} was finished from before",
                    committing.checkpoint
                ));
                Ok(Went::On)
            }
            Ok(Landed::IndexChanged) => Ok(Went::Pause(
                PauseReason::CouldNotCommit,
                format!(
                    "the index changed while {} was being committed",
                    committing.checkpoint
                ),
            )),
            Err(error @ snapshot::SnapshotError::HeadMoved { .. }) => {
                // A person went elsewhere since the crash; this says how to get back.
                self.check_place()?;
                Err(error.into())
            }
            Err(error) => {
                let (reason, why) = could_not_commit(error)?;
                Ok(Went::Pause(reason, why))
            }
        }
    }
}

/// Nothing got into the commit that was not looked at.
fn only_what_was_seen(prepared: &snapshot::Prepared, judged: &Judged) -> bool {
    prepared.changes.iter().all(|it| {
        it.oid.is_none() || it.path.starts_with(b".dex/") || judged.seen.contains(&it.path)
    })
}

/// Why a stage is not committed, as a pause where a person can do something about it.
fn could_not_commit(error: snapshot::SnapshotError) -> Result<(PauseReason, String), RunError> {
    use gitdb::snapshot::SnapshotError as E;
    match &error {
        E::HeadMoved { .. } => Ok((PauseReason::HeadMoved, error.to_string())),
        E::FilterNotAllowed { .. } => Ok((
            PauseReason::CouldNotCommit,
            format!(
                "{error}, and only this repository's own configuration names it; `dex init --allow-filters` lets it run"
            ),
        )),
        E::BranchMoved { .. }
        | E::IndexBusy
        | E::Unmerged { .. }
        | E::Operation(_)
        | E::Add(_)
        | E::HookRejected { .. }
        | E::Signing(_) => Ok((PauseReason::CouldNotCommit, error.to_string())),
        E::Git(GitError::Locked { .. }) => Err(error.into()),
        // A full disk, most often. What the agent did is recorded, and `resume` commits it.
        E::Git(source) => Ok((PauseReason::CouldNotCommit, source.to_string())),
    }
}

//! What to do with a stage that was interrupted half-way: its files are kept as an undo entry
//! first, whatever is chosen.

use gitdb::{Oid, snapshot, undo};

use super::{RunError, Runner, now};
use crate::element::{self, Ending};
use crate::files::record::PhaseStatus;
use crate::live::{PauseReason, Work};
use crate::outcome::MACHINE_FILES;

/// What a person wants done with half-done work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Leave the files; the stage is worked on again on top of them.
    Keep,
    /// Put the files back to before the stage (after the last finished part).
    Discard,
}

impl Runner<'_> {
    /// Settles what stands in the way of going on, as the person chose.
    pub fn settle(&mut self, choice: Choice) -> Result<(), RunError> {
        let moved =
            self.live.pause.as_ref().is_some_and(|it| it.reason == PauseReason::HeadMoved);
        if moved { self.settle_moved_head(choice) } else { self.settle_half_done(choice) }
    }

    /// Settles a half-done stage as the person chose. The attempt becomes an element of its own
    /// with what it cost; the next step works on the stage again, because they asked for it.
    fn settle_half_done(&mut self, choice: Choice) -> Result<(), RunError> {
        let Work::Started(attempt) = self.live.work.clone() else { return Ok(()) };
        let label = attempt.place().label();
        for text in self.put_back(&attempt.phase_id)? {
            self.notice(&text);
        }
        let stopped = attempt.stopped_at.clone();
        let ending = Ending {
            at: stopped.clone().unwrap_or_else(now),
            duration_ms: 0,
            reason: if stopped.is_some() { "user_abort" } else { "crashed" }.to_owned(),
            retried: true,
        };
        let status = if stopped.is_some() { PhaseStatus::Stopped } else { PhaseStatus::Crashed };
        match choice {
            Choice::Keep => {
                self.undo_entry(&format!("{label} was interrupted; its files were kept"), Vec::new())?;
            }
            Choice::Discard => self.set_aside(&format!("{label} was interrupted"))?,
        }
        let known = self.live.attempts.iter().any(|it| it.phase_id == attempt.phase_id);
        if !known {
            self.live.attempts.push(element::of_attempt(&attempt, status, Some(&ending)));
        }
        self.live.work = Work::Idle;
        self.live.write(&self.repo)
            .map_err(RunError::from)
    }

    /// Settles a stage during which HEAD was moved: back onto the branch, with the files as they
    /// are or as they were.
    fn settle_moved_head(&mut self, choice: Choice) -> Result<(), RunError> {
        let branch = self.live.branch.clone();
        self.undo_entry("HEAD was put back on the run's branch", Vec::new())?;
        self.repo.point_head_at(&branch, "dex: back to the run")?;
        self.live.tip = gitdb::refs::read(&self.repo, &branch)?
            .ok_or_else(|| RunError::BranchGone(branch.clone()))?;
        if choice == Choice::Discard {
            if let Work::AgentFinished(done) = self.live.work.clone() {
                let mut phase = element::of_finished(&done);
                phase.status = PhaseStatus::Stopped;
                phase.reason = Some("head_moved".to_owned());
                phase.checkpoint = None;
                phase.retried = true;
                self.live.attempts.push(phase);
            }
            self.set_aside("HEAD was moved during a stage")?;
            self.live.work = Work::Idle;
        }
        self.live.pause = None;
        self.live.write(&self.repo).map_err(RunError::from)
    }

    /// Keeps the work tree as an undo entry and puts it back to the last finished part of the
    /// stage, or to before the stage.
    pub(super) fn set_aside(&mut self, reason: &str) -> Result<(), RunError> {
        let to = self.live.finished_parts.last().map(|it| it.tree.clone());
        let to = to.unwrap_or_else(|| self.live.tip.clone());
        // After `git add -A` nothing differs: there is nothing to keep, and nothing to put back.
        if self.tree_now()? == self.tree_of(&to)? {
            return Ok(());
        }
        self.undo_entry(reason, Vec::new())?;
        // Before the first commit the goal and the project's own `.dex/` are in no tree yet.
        let goal = std::path::PathBuf::from(&self.live.start.goal);
        let first = [goal.as_path(), std::path::Path::new(".dex")];
        let start = &self.live.start;
        let begun = self.live.tip != start.base_sha && start.forked_from.as_ref() != Some(&self.live.tip);
        let keep = if begun { &[][..] } else { &first[..] };
        snapshot::restore_tree(&self.repo, &to, keep)?;
        Ok(())
    }

    /// Records the work tree, and `tips` the agent made, as an undo entry. Gives its number and
    /// the tree of the files.
    pub(super) fn undo_entry(
        &mut self,
        reason: &str,
        tips: Vec<Oid>,
    ) -> Result<(u64, Oid), RunError> {
        let surveyed = snapshot::survey(&self.repo)?;
        let mut keep = undo::Keep {
            refs: vec![self.live.branch.clone()],
            tips,
            private: Vec::new(),
            leave_out: Vec::new(),
        };
        for changed in surveyed {
            if MACHINE_FILES.iter().any(|it| it.as_bytes() == changed.path) {
                keep.leave_out.push(changed.path);
                continue;
            }
            let path = self.live.worktree.join(std::ffi::OsStr::new(
                std::str::from_utf8(&changed.path).unwrap_or_default(),
            ));
            match changed.kind {
                snapshot::ChangedKind::NestedRepo => keep.leave_out.push(changed.path),
                snapshot::ChangedKind::File { bytes }
                    if bytes > self.live.start.settings.max_file_bytes =>
                {
                    keep.leave_out.push(changed.path);
                }
                snapshot::ChangedKind::File { .. } => {
                    let shown = String::from_utf8_lossy(&changed.path).into_owned();
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if !agents::redact::find_in_file(&shown, &bytes).is_empty() {
                        keep.private.push(changed.path);
                    }
                }
                snapshot::ChangedKind::Link
                | snapshot::ChangedKind::Deleted
                | snapshot::ChangedKind::Other => {}
            }
        }
        gitdb::fault::point("undo.before");
        let at = jiff::Timestamp::now().as_second();
        let entry = undo::record(&self.repo, reason, &keep, at)?;
        gitdb::fault::point("undo.after");
        let left_out = [keep.leave_out, keep.private].concat();
        let tree = snapshot::work_tree_tree(&self.repo, &left_out)?;
        Ok((entry.n, tree))
    }

    fn tree_now(&self) -> Result<Oid, RunError> {
        Ok(snapshot::work_tree_tree(&self.repo, &[])?)
    }

    fn tree_of(&self, tree_ish: &Oid) -> Result<Oid, RunError> {
        Ok(self.repo.tree_of(tree_ish)?)
    }
}

//! What to do with a stage that was interrupted half-way: its files are kept as an undo entry
//! first, whatever is chosen.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gitdb::refs::{self, Applied, Edit, Expect};
use gitdb::snapshot::{self, ChangedKind, SnapshotError};
use gitdb::{Oid, undo};

use super::{RunError, Runner, now};
use crate::element::{self, Ending};
use crate::files::record::PhaseStatus;
use crate::files::store::FileError;
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
        super::clear_leftovers(&self.repo)?;
        let moved = self
            .live
            .pause
            .as_ref()
            .is_some_and(|it| it.reason == PauseReason::HeadMoved);
        if moved {
            self.settle_moved_head(choice)
        } else {
            self.settle_half_done(choice)
        }
    }

    /// Settles a half-done stage as the person chose. The attempt becomes an element of its own
    /// with what it cost; the next step works on the stage again, because they asked for it.
    fn settle_half_done(&mut self, choice: Choice) -> Result<(), RunError> {
        if self.live.work == Work::Idle && choice == Choice::Discard {
            return self.set_aside("changes made by hand were put aside");
        }
        let Work::Started(attempt) = self.live.work.clone() else {
            return Ok(());
        };
        let label = attempt.place().label();
        for text in self.put_back(&attempt.phase_id)? {
            self.notice(&text);
        }
        let stopped = attempt.stopped_at.clone();
        let ending = Ending {
            at: stopped.clone().unwrap_or_else(now),
            duration_ms: 0,
            reason: if stopped.is_some() {
                "user_abort"
            } else {
                "crashed"
            }
            .to_owned(),
            retried: true,
        };
        let status = if stopped.is_some() {
            PhaseStatus::Stopped
        } else {
            PhaseStatus::Crashed
        };
        match choice {
            Choice::Keep => {
                let made = refs::read(&self.repo, &self.live.branch)?;
                let made = made.filter(|it| *it != self.live.tip);
                let reason = format!("{label} was interrupted; its files were kept");
                self.undo_entry(&reason, made.iter().cloned().collect())?;
                if made.is_some() {
                    self.take_branch_back()?;
                    self.notice(&format!("commits made during {label} are folded into it"));
                }
            }
            Choice::Discard => self.set_aside(&format!("{label} was interrupted"))?,
        }
        let known = self
            .live
            .attempts
            .iter()
            .any(|it| it.phase_id == attempt.phase_id);
        if !known {
            self.live
                .attempts
                .push(element::of_attempt(&attempt, status, Some(&ending)));
        }
        self.live.work = Work::Idle;
        self.live.write(&self.repo).map_err(RunError::from)
    }

    /// Settles a stage during which HEAD was moved: back onto the branch, with the files as they
    /// are or as they were. A branch that was rewound or deleted goes back to its start tip, so
    /// that no finished stage is lost.
    fn settle_moved_head(&mut self, choice: Choice) -> Result<(), RunError> {
        let branch = self.live.branch.clone();
        let found = refs::read(&self.repo, &branch)?;
        let tips = found.iter().cloned().collect();
        self.undo_entry("HEAD was put back on the run's branch", tips)?;
        let ahead = match &found {
            Some(tip) => self.repo.is_ancestor(&self.live.tip, tip)?,
            None => false,
        };
        if choice == Choice::Discard || !ahead {
            self.take_branch_back()?;
        }
        self.repo.point_head_at(&branch, "dex: back to the run")?;
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

    /// Puts the branch back to where the stage began. Commits made since belong to the stage,
    /// which is one commit and ours: an agent's own could carry a forged marker. The caller has
    /// kept them with an undo entry.
    fn take_branch_back(&self) -> Result<(), RunError> {
        let name = self.live.branch.clone();
        let found = refs::read(&self.repo, &name)?;
        if found.as_ref() == Some(&self.live.tip) {
            return Ok(());
        }
        let edit = Edit::Set {
            name,
            expect: found.map_or(Expect::Absent, Expect::At),
            to: self.live.tip.clone(),
        };
        match refs::apply(&self.repo, &[edit], "dex: back to before the stage")? {
            Applied::Done => Ok(()),
            Applied::Moved { name, found } => Err(SnapshotError::BranchMoved {
                branch: name,
                found,
            }
            .into()),
        }
    }

    /// Sets the files of an attempt aside that did not finish its stage. Can be repeated.
    pub(super) fn finish_setting_aside(&mut self, reason: &str) -> Result<(), RunError> {
        self.set_aside(reason)?;
        self.live.work = Work::Idle;
        Ok(self.live.write(&self.repo)?)
    }

    /// Keeps the work tree as an undo entry and puts it back to the last finished part of the
    /// stage, or to before the stage.
    pub(super) fn set_aside(&mut self, reason: &str) -> Result<(), RunError> {
        let to = self.live.finished_parts.last().map(|it| it.tree.clone());
        let to = to.unwrap_or_else(|| self.live.tip.clone());
        let moved = refs::read(&self.repo, &self.live.branch)?.filter(|it| *it != self.live.tip);
        // After `git add -A` nothing differs: there is nothing to keep, and nothing to put back.
        let apart = self.apart()?;
        if moved.is_none() && apart.private.is_empty() {
            let now = snapshot::work_tree_tree(&self.repo, &apart.leave_out)?;
            if now == self.repo.tree_of(&to)? {
                return Ok(());
            }
        }
        self.undo_entry(reason, moved.iter().cloned().collect())?;
        if moved.is_some() {
            self.take_branch_back()?;
        }
        // Before the first commit the goal and the project's own `.dex/` are in no tree yet.
        let first = [PathBuf::from(&self.live.start.goal), PathBuf::from(".dex")];
        let start = &self.live.start;
        let begun =
            self.live.tip != start.base_sha && start.forked_from.as_ref() != Some(&self.live.tip);
        self.restore(&to, if begun { &[] } else { &first })
    }

    /// Makes the files equal to a tree, but for `keep`. The caller has made an undo entry. What
    /// that entry leaves out stays on disk, and a likely secret never becomes an object.
    pub(super) fn restore(&self, to: &Oid, keep: &[PathBuf]) -> Result<(), RunError> {
        let apart = self.apart()?;
        for path in apart
            .private
            .iter()
            .map(|it| Path::new(OsStr::from_bytes(it)))
        {
            if keep.iter().any(|it| path.starts_with(it)) {
                continue;
            }
            let full = self.live.worktree.join(path);
            std::fs::remove_file(&full).map_err(|source| FileError::Io {
                path: full,
                what: "removed",
                source,
            })?;
        }
        let left_out = apart.leave_out.iter();
        let kept: Vec<&Path> = left_out
            .map(|it| Path::new(OsStr::from_bytes(it)))
            .chain(keep.iter().map(PathBuf::as_path))
            .collect();
        Ok(snapshot::restore_tree(&self.repo, to, &kept)?)
    }

    /// Records the work tree, and `tips` the agent made, as an undo entry. Gives its number and
    /// the tree of the files.
    pub(super) fn undo_entry(
        &mut self,
        reason: &str,
        tips: Vec<Oid>,
    ) -> Result<(u64, Oid), RunError> {
        let apart = self.apart()?;
        let keep = undo::Keep {
            refs: vec![self.live.branch.clone()],
            tips,
            private: apart.private,
            leave_out: apart.leave_out,
        };
        gitdb::fault::point("undo.before");
        let at = jiff::Timestamp::now().as_second();
        let entry = undo::record(&self.repo, reason, &keep, at)?;
        gitdb::fault::point("undo.after");
        let left_out = [keep.leave_out, keep.private].concat();
        let tree = snapshot::work_tree_tree(&self.repo, &left_out)?;
        Ok((entry.n, tree))
    }

    /// Looks for changed files that go into no object.
    fn apart(&self) -> Result<Apart, RunError> {
        let mut apart = Apart::default();
        for changed in snapshot::survey(&self.repo)? {
            if MACHINE_FILES.iter().any(|it| it.as_bytes() == changed.path) {
                apart.leave_out.push(changed.path);
                continue;
            }
            match changed.kind {
                ChangedKind::NestedRepo => apart.leave_out.push(changed.path),
                ChangedKind::File { bytes } if bytes > self.live.start.settings.max_file_bytes => {
                    apart.leave_out.push(changed.path);
                }
                ChangedKind::File { .. } => {
                    let path = self.live.worktree.join(OsStr::from_bytes(&changed.path));
                    let shown = String::from_utf8_lossy(&changed.path).into_owned();
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if !agents::redact::find_in_file(&shown, &bytes).is_empty() {
                        apart.private.push(changed.path);
                    }
                }
                ChangedKind::Link | ChangedKind::Deleted | ChangedKind::Other => {}
            }
        }
        Ok(apart)
    }
}

/// Changed paths that go into no object, raw bytes.
#[derive(Debug, Default)]
struct Apart {
    /// Likely secrets: an undo entry keeps them by copy.
    private: Vec<Vec<u8>>,
    /// Too large, nested repositories, machine files: they only stay on disk.
    leave_out: Vec<Vec<u8>>,
}

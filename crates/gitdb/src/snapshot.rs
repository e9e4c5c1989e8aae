//! The stage commit: the work tree as it is, as one commit on the run's branch.
//!
//! Done through a private copy of the index, one compare-and-swap of the branch, and then the
//! user's index brought along under git's own `index.lock`. The sequence, and what fails with
//! simpler ones, is described in `docs/formats/stage-commit.md`.
//!
//! In three steps, so that the caller can record between them what a restart needs:
//! [`survey`] (read only: what would be added), [`prepare`] (objects: tree and commit), and
//! [`land`] (branch and index). A crash after `prepare` is finished by [`recover`].

use std::path::Path;

use crate::repo::read::{nul_split, os_path};
use crate::{GitError, Oid, Repo, refs};

mod capture;
mod durable;
mod filters;
mod hidden;
mod hooks;
mod index;
mod land;
mod prepare;
mod restore;
mod signing;

pub(crate) use capture::{Capture, RawChange, raw_changes};
pub use filters::filter_not_allowed;
pub(crate) use hidden::{Hidden, expose_hidden};
pub(crate) use index::{OwnLock, PrivateIndex, index_checksum};
pub use land::{Landed, land, recover, sweep};
pub(crate) use prepare::index_tree;
pub use prepare::prepare;
pub(crate) use restore::{IndexAfter, restore};
pub use signing::test_signing;

/// A path a stage added or changed, as found on disk before anything is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Path from the root, raw bytes.
    pub path: Vec<u8>,
    /// What is there.
    pub kind: ChangedKind,
    /// Whether the files differ from the index. Else only the index differs from HEAD, as after
    /// `git rm --cached` or a merge outside a sparse checkout, and already says what is wanted.
    pub unstaged: bool,
}

/// What lies at a changed path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangedKind {
    /// A regular file of this size.
    File {
        /// Its length in bytes.
        bytes: u64,
    },
    /// A symbolic link (never followed).
    Link,
    /// A nested repository: a directory with its own `.git`.
    NestedRepo,
    /// Gone.
    Deleted,
    /// A socket, device or pipe; git ignores it.
    Other,
}

/// What must hold before a stage may be committed.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// The run's branch, full name. HEAD must be symbolic to it.
    pub branch: &'a str,
    /// The branch's tip when the stage started; the new commit's only parent.
    pub start_tip: &'a Oid,
}

/// What the agent did to git while it worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meanwhile {
    /// Nothing: HEAD on the branch, the branch at its start tip.
    Nothing,
    /// It committed on the branch; its commits (newest first) will be folded into the stage.
    Committed {
        /// The branch's tip now, a descendant of the start tip.
        tip: Oid,
        /// The agent's commits.
        commits: Vec<Oid>,
    },
    /// HEAD is elsewhere or detached, or the branch's tip does not descend from the start tip.
    HeadMoved {
        /// Every tip seen.
        tips: Vec<Oid>,
    },
    /// It left a merge, rebase … open.
    LeftOperation(crate::repo::Operation),
}

/// Tree and commit, written and durable, not yet on the branch. Serialised into the live record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prepared {
    /// The run's branch, full name.
    pub branch: String,
    /// The value the branch must have for the swap (the agent's tip when it committed).
    pub base: Oid,
    /// The new commit.
    pub commit: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Identifies the user's index as it was copied.
    pub index_checksum: String,
    /// Names our private index, `<git-dir>/dex/index.<nonce>`.
    pub nonce: String,
    /// What the commit changes against its parent; known to whoever prepared it, not recorded.
    #[serde(skip)]
    pub changes: Vec<TreeChange>,
}

/// A change a commit makes against its parent, for the checks and the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChange {
    /// Path, raw bytes.
    pub path: Vec<u8>,
    /// Mode after (0 when deleted), e.g. 0o100644, 0o160000.
    pub mode: u32,
    /// Blob after (none when deleted).
    pub oid: Option<Oid>,
}

impl From<RawChange> for TreeChange {
    fn from(change: RawChange) -> TreeChange {
        TreeChange {
            mode: change.new_mode,
            oid: (change.new_mode != 0).then_some(change.new),
            path: change.path,
        }
    }
}

/// What a commit takes from the work tree. Paths are literal, raw bytes from the root. The
/// default is all that `git add -A` would take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'a> {
    /// Only these, as a [`survey`] found them: added, changed or deleted. What changed elsewhere
    /// since is left to the next stage.
    pub only: Option<&'a [Vec<u8>]>,
    /// These, and what is below them, stay as they are in the parent.
    pub exclude: &'a [Vec<u8>],
}

/// How the message's commit is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// As `commit.gpgsign` says.
    Auto,
    /// Never.
    Never,
}

/// Whether the user's own hooks see the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hooks {
    /// None runs.
    Skip,
    /// `pre-commit` and `commit-msg` run and may refuse; they see exactly the tree that is to
    /// be committed.
    Run,
}

/// Why a stage was not committed. Nothing was moved.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// HEAD is not on the run's branch any more.
    #[error("HEAD is no longer on {branch}")]
    HeadMoved {
        /// The run's branch.
        branch: String,
    },
    /// A merge, rebase … is in progress.
    #[error("a {0:?} is in progress")]
    Operation(crate::repo::Operation),
    /// The branch moved between reading and writing.
    #[error("{branch} moved while the stage was being committed")]
    BranchMoved {
        /// The run's branch.
        branch: String,
        /// Its value now.
        found: Option<Oid>,
    },
    /// The user's index kept changing (three tries).
    #[error("the index kept changing while the stage was being committed")]
    IndexBusy,
    /// `git add` refused, by name.
    #[error("git add refused: {0}")]
    Add(String),
    /// A filter driver named only in the repository's own config is needed and not allowed.
    #[error("filter_not_allowed: {driver} is needed for {path}")]
    FilterNotAllowed {
        /// The driver.
        driver: String,
        /// A path that needs it.
        path: String,
    },
    /// The index holds unmerged paths though no operation is in progress (a conflicting
    /// `stash pop`). Adding everything would commit the conflict markers (case B08).
    #[error("unmerged paths in the index: {}", paths.join(", "))]
    Unmerged {
        /// Some of them, lossily decoded.
        paths: Vec<String>,
    },
    /// One of the user's hooks refused the commit.
    #[error("the {hook} hook refused the commit: {output}")]
    HookRejected {
        /// `pre-commit` or `commit-msg`.
        hook: String,
        /// What it said, bounded.
        output: String,
    },
    /// Signing failed or asked for a passphrase.
    #[error("the commit could not be signed: {0}")]
    Signing(String),
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
}

/// What the agent did to git since `expected` was true. Reads only.
pub fn meanwhile(repo: &Repo, expected: &Expected<'_>) -> Result<Meanwhile, GitError> {
    // First, because a rebase or a bisect also detaches HEAD.
    if let Some(operation) = repo.operation_in_progress()? {
        return Ok(Meanwhile::LeftOperation(operation));
    }
    let tip = refs::read(repo, expected.branch)?;
    let head = repo.head_branch()?;
    if head.as_deref() != Some(expected.branch) {
        let mut tips: Vec<Oid> = repo.resolve_commit("HEAD")?.into_iter().collect();
        tips.extend(tip.filter(|oid| !tips.contains(oid)));
        return Ok(Meanwhile::HeadMoved { tips });
    }
    let Some(tip) = tip else {
        return Ok(Meanwhile::HeadMoved { tips: Vec::new() });
    };
    if &tip == expected.start_tip {
        return Ok(Meanwhile::Nothing);
    }
    if !repo.is_ancestor(expected.start_tip, &tip)? {
        return Ok(Meanwhile::HeadMoved { tips: vec![tip] });
    }
    let range = format!("{}..{tip}", expected.start_tip);
    let text = repo.git.read(["rev-list", "--topo-order", &range]).text()?;
    let commits = text
        .lines()
        .map(|line| line.parse().map_err(|_| GitError::answer("rev-list", line)))
        .collect::<Result<_, _>>()?;
    Ok(Meanwhile::Committed { tip, commits })
}

/// What `git add -A` would add, change or delete against the index and HEAD, without storing
/// anything. Ignored files are left out, `.git` entries too.
pub fn survey(repo: &Repo) -> Result<Vec<Changed>, GitError> {
    survey_in(repo, None)
}

/// As [`survey`], with another index than the user's.
fn survey_in(repo: &Repo, index: Option<&Path>) -> Result<Vec<Changed>, GitError> {
    let root = repo.work_tree_or_error()?;
    let status = repo.status_in(index)?;
    let mut found = Vec::with_capacity(status.len());
    for entry in status {
        let [in_index, in_work_tree] = entry.code;
        let kind = match (in_index, in_work_tree) {
            // What took its place, or is not tracked any more, is listed by itself or ignored.
            (_, b'D') | (b'D', b' ') => ChangedKind::Deleted,
            _ => kind_of(&root.join(os_path(&entry.path)))?,
        };
        let mut path = entry.path;
        // Git marks a directory it does not enter with a slash.
        if path.last() == Some(&b'/') {
            path.pop();
        }
        found.push(Changed {
            path,
            kind,
            unstaged: in_work_tree != b' ',
        });
    }
    Ok(found)
}

/// What lies at a path of the work tree (raw bytes from its root) now.
pub fn kind_at(repo: &Repo, path: &[u8]) -> Result<ChangedKind, GitError> {
    kind_of(&repo.work_tree_or_error()?.join(os_path(path)))
}

fn kind_of(path: &Path) -> Result<ChangedKind, GitError> {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) => match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                return Ok(ChangedKind::Deleted);
            }
            _ => return Err(GitError::file(path)(e)),
        },
    };
    Ok(if meta.is_symlink() {
        ChangedKind::Link
    } else if meta.is_file() {
        ChangedKind::File { bytes: meta.len() }
    } else if meta.is_dir() && path.join(".git").symlink_metadata().is_ok() {
        ChangedKind::NestedRepo
    } else if meta.is_dir() {
        // A tracked file gave way to a directory; its files are listed themselves.
        ChangedKind::Deleted
    } else {
        ChangedKind::Other
    })
}

/// What the prepared commit changes against its parent.
pub fn changes(repo: &Repo, from: &Oid, to: &Oid) -> Result<Vec<TreeChange>, GitError> {
    let raw = raw_changes(repo, from, to)?;
    Ok(raw.into_iter().map(TreeChange::from).collect())
}

/// The tree of the work tree as it is now (tracked and untracked, not ignored, `exclude` left
/// out), written as objects; nothing else changes. Used for undo entries and finished phases.
pub fn work_tree_tree(repo: &Repo, exclude: &[Vec<u8>]) -> Result<Oid, GitError> {
    let private = PrivateIndex::copy(repo)?;
    let parent = repo.resolve_commit("HEAD")?;
    let capture = Capture {
        repo,
        parent: parent.as_ref(),
        exclude,
    };
    capture.add(&private)?;
    Ok(capture.tree(&private)?.0)
}

/// Makes tracked and untracked (not ignored) files equal to `tree`, and the index too, without
/// moving any ref. Paths in `keep` are left as they are. Never writes through a symbolic link,
/// never enters a nested repository. The caller has made an undo entry first.
pub fn restore_tree(repo: &Repo, tree: &Oid, keep: &[&Path]) -> Result<(), GitError> {
    let keep: Vec<Vec<u8>> = keep
        .iter()
        .map(|it| crate::repo::read::raw_path(it))
        .collect();
    restore(repo, tree, &keep, IndexAfter::Tree)
}

impl Repo {
    /// The work tree's root, for operations that cannot do without.
    pub(crate) fn work_tree_or_error(&self) -> Result<&Path, GitError> {
        self.work_tree
            .as_deref()
            .ok_or_else(|| GitError::answer("rev-parse", "this is a bare repository"))
    }

    /// Commits everything on the branch that is checked out (an autosave), through the same
    /// machinery as a stage: a private index, one compare-and-swap, the index brought along.
    /// Returns the new commit.
    pub fn commit_work_tree(&self, message: &str) -> Result<Oid, SnapshotError> {
        prepare::commit_work_tree(self, message)
    }
}

/// Splits `git … --raw -z` output: the fields of an entry and its path.
fn raw_entries(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut fields = nul_split(bytes);
    std::iter::from_fn(move || Some((fields.next()?, fields.next()?)))
}

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

use crate::{GitError, Oid, Repo};

/// A path a stage added or changed, as found on disk before anything is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Path from the root, raw bytes.
    pub path: Vec<u8>,
    /// What is there.
    pub kind: ChangedKind,
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

/// How the message's commit is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// As `commit.gpgsign` says.
    Auto,
    /// Never.
    Never,
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
    /// Signing failed or asked for a passphrase.
    #[error("the commit could not be signed: {0}")]
    Signing(String),
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
}

/// What the agent did to git since `expected` was true. Reads only.
pub fn meanwhile(_repo: &Repo, _expected: &Expected<'_>) -> Result<Meanwhile, GitError> {
    todo!()
}

/// What `git add -A` would add, change or delete against the index and HEAD, without storing
/// anything. Ignored files are left out, `.git` entries too.
pub fn survey(_repo: &Repo) -> Result<Vec<Changed>, GitError> {
    todo!()
}

/// Writes tree and commit. `exclude` holds literal paths that stay as they are in the parent.
/// `base` is the value the branch has now (from [`meanwhile`]).
pub fn prepare(
    _repo: &Repo,
    _expected: &Expected<'_>,
    _base: &Oid,
    _message: &str,
    _exclude: &[Vec<u8>],
    _sign: Sign,
) -> Result<Prepared, SnapshotError> {
    todo!()
}

/// What the prepared commit changes against its parent.
pub fn changes(_repo: &Repo, _from: &Oid, _to: &Oid) -> Result<Vec<TreeChange>, GitError> {
    todo!()
}

/// How a prepared commit got onto its branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Landed {
    /// Branch moved, index brought along.
    Done,
    /// Branch moved; the index was left alone because HEAD had left the branch.
    HeadLeft,
    /// Nothing moved: the user's index changed meanwhile. Prepare again (at most three times).
    IndexChanged,
}

/// Moves the branch and brings the user's index along.
pub fn land(_repo: &Repo, _prepared: &Prepared) -> Result<Landed, SnapshotError> {
    todo!()
}

/// Finishes what a crash interrupted after [`prepare`]: commits the recorded commit object,
/// never a new snapshot, so what a person edited since stays uncommitted.
pub fn recover(_repo: &Repo, _prepared: &Prepared) -> Result<Landed, SnapshotError> {
    todo!()
}

/// Removes leftovers of ours in `<git-dir>/dex` that no live record names. Never touches a
/// lock that is not provably ours.
pub fn sweep(_repo: &Repo, _keep: Option<&Prepared>) -> Result<(), GitError> {
    todo!()
}

/// The tree of the work tree as it is now (tracked and untracked, not ignored, `exclude` left
/// out), written as objects; nothing else changes. Used for undo entries and finished phases.
pub fn work_tree_tree(_repo: &Repo, _exclude: &[Vec<u8>]) -> Result<Oid, GitError> {
    todo!()
}

/// Makes tracked and untracked (not ignored) files equal to `tree`, and the index too, without
/// moving any ref. Paths in `keep` are left as they are. Never writes through a symbolic link,
/// never enters a nested repository. The caller has made an undo entry first.
pub fn restore_tree(_repo: &Repo, _tree: &Oid, _keep: &[&Path]) -> Result<(), GitError> {
    todo!()
}

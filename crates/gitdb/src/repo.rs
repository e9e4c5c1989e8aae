//! Opening any repository a user may have, and reading from it.

use std::path::{Path, PathBuf};

use crate::checkpoint::StageMessage;
use crate::{Git, GitError, Oid};

/// A repository, seen from one work tree (or bare).
#[derive(Debug, Clone)]
pub struct Repo {
    /// Absolute git directory of this work tree.
    pub git_dir: PathBuf,
    /// Absolute common git directory; equals `git_dir` outside linked worktrees.
    pub common_dir: PathBuf,
    /// Absolute root of the work tree; none when bare.
    pub work_tree: Option<PathBuf>,
    /// SHA-1 or SHA-256.
    pub object_format: ObjectFormat,
    /// `files` or `reftable`.
    pub ref_format: RefFormat,
    /// History was cut by `--depth`.
    pub shallow: bool,
    /// Objects may be missing until fetched.
    pub partial: bool,
    /// This is a submodule's checkout.
    pub submodule: bool,
    /// How to start git here.
    pub git: Git,
}

/// Hash function of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// 40 hex digits.
    Sha1,
    /// 64 hex digits.
    Sha256,
}

/// How a repository stores refs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefFormat {
    /// Loose files and packed-refs.
    Files,
    /// Reftable.
    Reftable,
}

/// Why a directory could not be opened as a repository.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none here or above.
    #[error("{} is not inside a git repository", .0.display())]
    NotARepository(PathBuf),
    /// Git refuses it because another user owns it (`safe.directory`); git's own words.
    #[error("git refuses this repository: {0}")]
    UnsafeOwner(String),
    /// No git program on PATH.
    #[error("git is not installed, or not on PATH")]
    GitMissing,
    /// Older than the floor, 2.39.
    #[error("git {found} is too old; 2.39 or newer is needed")]
    GitTooOld {
        /// The version found.
        found: String,
    },
    /// A repository format this git does not know.
    #[error("git cannot read this repository: {0}")]
    Unsupported(String),
    /// Git failed otherwise.
    #[error("could not look at the repository")]
    Git(#[from] GitError),
}

/// Where HEAD is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// On a branch (full name); `oid` is none when it is unborn.
    Branch {
        /// Full ref name, `refs/heads/main`.
        name: String,
        /// Its tip, none when unborn.
        oid: Option<Oid>,
    },
    /// Detached.
    Detached(Oid),
}

/// Something the user (or an agent) began with git and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `git merge`
    Merge,
    /// `git rebase` or `git am`
    Rebase,
    /// `git cherry-pick`
    CherryPick,
    /// `git revert`
    Revert,
    /// `git bisect`
    Bisect,
}

/// One commit of a branch, as the history readers need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its id.
    pub oid: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Parents, first parent first.
    pub parents: Vec<Oid>,
    /// Committer time, seconds since 1970. For display only: order comes from parents.
    pub time_unix: i64,
    /// The raw message (`%B`), lossily decoded.
    pub message: String,
    /// The message read as a stage commit, if it is one.
    pub stage: Option<StageMessage>,
}

/// An identity git would commit with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `Name <mail>`.
    pub text: String,
}

impl Repo {
    /// Opens the repository that holds `dir`. Reads only.
    ///
    /// Honours `GIT_DIR`/`GIT_WORK_TREE` only when the caller passes them on purpose; inherited
    /// ones are ignored (case B12).
    pub fn open(_dir: &Path) -> Result<Repo, OpenError> {
        todo!()
    }

    /// The work tree's root, or an error text for bare repositories is the caller's to give.
    pub fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// `main`, or `wt-<name>` in a linked worktree.
    pub fn worktree_id(&self) -> String {
        todo!()
    }

    /// Our directory for this work tree: `<git-dir>/dex`.
    pub fn own_dir(&self) -> PathBuf {
        self.git_dir.join("dex")
    }

    /// Our directory shared by all work trees: `<common-dir>/dex`.
    pub fn common_own_dir(&self) -> PathBuf {
        self.common_dir.join("dex")
    }

    /// Where HEAD is now.
    pub fn head(&self) -> Result<Head, GitError> {
        todo!()
    }

    /// Makes HEAD point at a branch without touching index or files. The caller has checked
    /// that the branch's tree is what is checked out.
    pub fn point_head_at(&self, _branch: &str, _reason: &str) -> Result<(), GitError> {
        todo!()
    }

    /// The operation in progress in this work tree, if any (per-worktree git directory).
    pub fn operation_in_progress(&self) -> Result<Option<Operation>, GitError> {
        todo!()
    }

    /// The commit a revision names, or none when it names nothing.
    pub fn resolve_commit(&self, _rev: &str) -> Result<Option<Oid>, GitError> {
        todo!()
    }

    /// The bytes of a file in a commit or tree; none when it is not there. A read that fails
    /// for any other reason is an error, never "not there" (case A19).
    pub fn read_file(&self, _tree_ish: &Oid, _path: &str) -> Result<Option<Vec<u8>>, GitError> {
        todo!()
    }

    /// Paths of files under `dir` in a commit or tree (not recursive), sorted.
    pub fn list_dir(&self, _tree_ish: &Oid, _dir: &str) -> Result<Vec<String>, GitError> {
        todo!()
    }

    /// First-parent history from `tip` back to, without, `until` (or the root), newest first,
    /// at most `max` commits.
    pub fn first_parents(
        &self,
        _tip: &Oid,
        _until: Option<&Oid>,
        _max: usize,
    ) -> Result<Vec<Commit>, GitError> {
        todo!()
    }

    /// Whether `ancestor` is reachable from `descendant`. None in a shallow or damaged history
    /// where this cannot be known.
    pub fn is_ancestor(&self, _ancestor: &Oid, _descendant: &Oid) -> Result<bool, GitError> {
        todo!()
    }

    /// The identity git would commit with, or none (`user.useConfigOnly` is honoured).
    pub fn identity(&self) -> Result<Option<Identity>, GitError> {
        todo!()
    }

    /// A config value as git sees it from here (any scope), or none.
    pub fn config(&self, _key: &str) -> Result<Option<String>, GitError> {
        todo!()
    }

    /// Paths with uncommitted changes (porcelain v1 codes), untracked ones included, ignored
    /// ones not; submodules count as changed only when their recorded commit differs.
    pub fn status(&self) -> Result<Vec<StatusEntry>, GitError> {
        todo!()
    }
}

/// One line of `git status --porcelain -z`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusEntry {
    /// The two status letters, e.g. `??` or ` M`.
    pub code: [u8; 2],
    /// Path from the work tree's root, raw bytes.
    pub path: Vec<u8>,
}

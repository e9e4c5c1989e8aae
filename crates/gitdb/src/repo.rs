//! Opening any repository a user may have, and reading from it.

use std::path::{Path, PathBuf};

use crate::checkpoint::StageMessage;
use crate::{Git, GitError, Oid};

pub(crate) mod config;
mod init;
mod open;
pub(crate) mod read;
mod tree;
mod worktrees;

pub use read::FileStat;

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
    /// The configuration as it was when the repository was opened.
    pub(crate) settings: config::Settings,
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

/// One line of `git status --porcelain -z`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusEntry {
    /// The two status letters, e.g. `??` or ` M`.
    pub code: [u8; 2],
    /// Path from the work tree's root, raw bytes.
    pub path: Vec<u8>,
}

impl Repo {
    /// The work tree's root, or an error text for bare repositories is the caller's to give.
    pub fn work_tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// `main`, or `wt-<name>` in a linked worktree.
    pub fn worktree_id(&self) -> String {
        if self.git_dir == self.common_dir {
            return "main".to_owned();
        }
        let name = self.git_dir.file_name().unwrap_or_default();
        format!("wt-{}", name.to_string_lossy())
    }

    /// Our directory for this work tree: `<git-dir>/dex`.
    pub fn own_dir(&self) -> PathBuf {
        self.git_dir.join("dex")
    }

    /// Our directory shared by all work trees: `<common-dir>/dex`.
    pub fn common_own_dir(&self) -> PathBuf {
        self.common_dir.join("dex")
    }

    /// The version of the git program that is used.
    pub fn version(&self) -> (u32, u32, u32) {
        // Opening has already asked, and refused to go on without an answer.
        open::version().unwrap_or_default()
    }
}

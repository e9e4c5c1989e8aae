//! Refs by compare-and-swap, one fresh `git update-ref --stdin` process per transaction.
//!
//! A long-lived git process can let an update through that it should refuse (its cached
//! packed-refs can be stale), and gix can lose acknowledged updates beside `git pack-refs`; so
//! each transaction is a new process, every edit names the value it expects, and a lost race is
//! a value, not an error to retry.

use crate::{GitError, Oid, Repo};

/// What a ref must be for an edit to go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// It must not exist.
    Absent,
    /// It must point here.
    At(Oid),
}

/// One change of one ref. Full names (`refs/heads/…`) only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Create or move.
    Set {
        /// Full ref name.
        name: String,
        /// Its value before.
        expect: Expect,
        /// Its value after.
        to: Oid,
    },
    /// Delete.
    Delete {
        /// Full ref name.
        name: String,
        /// Its value before.
        expect: Oid,
    },
    /// Only check, as part of the same transaction.
    Verify {
        /// Full ref name.
        name: String,
        /// What it must be.
        expect: Expect,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// Every edit went through.
    Done,
    /// A fresh read shows that this ref is not what was expected; nothing was changed.
    Moved {
        /// The ref that differs.
        name: String,
        /// Its value now.
        found: Option<Oid>,
    },
}

/// A ref and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref {
    /// Full name.
    pub name: String,
    /// What it points at (peeled is not attempted).
    pub oid: Oid,
}

/// Applies all edits or none, with `message` in the reflog where there is one.
///
/// Waits, bounded (5 s), for locks other git processes hold; then [`GitError::Locked`].
pub fn apply(_repo: &Repo, _edits: &[Edit], _message: &str) -> Result<Applied, GitError> {
    todo!()
}

/// Reads one ref afresh.
pub fn read(_repo: &Repo, _name: &str) -> Result<Option<Oid>, GitError> {
    todo!()
}

/// Every ref under any of the prefixes (`refs/heads/dex/`), sorted by name.
pub fn list(_repo: &Repo, _prefixes: &[&str]) -> Result<Vec<Ref>, GitError> {
    todo!()
}

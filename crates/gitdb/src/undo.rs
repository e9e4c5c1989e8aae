//! Undo entries: what a destructive step replaced, kept as refs under `refs/dex-local/undo/`.
//!
//! One stack per work tree, `refs/dex-local/undo/<worktree-id>/<n>`; n counts up, the newest is
//! undone first; at most 50 entries and 2 GiB, the oldest dropped first. An entry keeps the raw
//! index bytes, the trees of the index's stages, the work tree's and untracked files' tree, HEAD
//! (symbolic or id), ref values and the work tree's path. Files that look like secrets are
//! copied to `.git/dex/undo/<n>/` (mode 0700) instead of becoming objects. Format:
//! `docs/formats/undo.md`.

use crate::{GitError, Oid, Repo};

/// An entry of the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub n: u64,
    /// Its commit.
    pub oid: Oid,
    /// What was about to happen, one plain sentence.
    pub reason: String,
    /// When, seconds since 1970.
    pub time_unix: i64,
}

/// What to keep beside the work tree itself.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// Refs whose values are kept (full names); restored by undo.
    pub refs: Vec<String>,
    /// Commits kept reachable, e.g. an agent's tip that was folded away.
    pub tips: Vec<Oid>,
    /// Paths kept by private copy instead of as objects (likely secrets), raw bytes.
    pub private: Vec<Vec<u8>>,
    /// Paths left out altogether (too large, nested repositories).
    pub leave_out: Vec<Vec<u8>>,
}

/// What an undo restored and what it could not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The entry that was undone.
    pub entry: Entry,
    /// The entry that undoes the undo.
    pub redo: Entry,
}

/// Records the state of work tree, index, HEAD and the named refs as a new entry.
pub fn record(
    _repo: &Repo,
    _reason: &str,
    _keep: &Keep,
    _now_unix: i64,
) -> Result<Entry, GitError> {
    todo!()
}

/// The stack of this work tree, newest first.
pub fn list(_repo: &Repo) -> Result<Vec<Entry>, GitError> {
    todo!()
}

/// Drops an entry that is no longer needed (a finished phase after its stage committed).
pub fn drop_entry(_repo: &Repo, _entry: &Entry) -> Result<(), GitError> {
    todo!()
}

/// Restores the newest entry (or `n`): refs with the values they were replaced by as expected
/// old values, HEAD, index bytes, files. What it replaces becomes a redo entry first.
pub fn undo(_repo: &Repo, _n: Option<u64>, _now_unix: i64) -> Result<Undone, GitError> {
    todo!()
}

/// Takes the last undo back.
pub fn redo(_repo: &Repo, _now_unix: i64) -> Result<Undone, GitError> {
    todo!()
}

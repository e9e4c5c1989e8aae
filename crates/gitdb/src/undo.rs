//! Undo entries: what a destructive step replaced, kept as refs under `refs/dex-local/undo/`.
//!
//! One stack per work tree, `refs/dex-local/undo/<worktree-id>/<n>`; n counts up, the newest is
//! undone first; at most 50 entries and 2 GiB, the oldest dropped first. An entry keeps the raw
//! index bytes, the trees of the index's stages, the work tree's and untracked files' tree, HEAD
//! (symbolic or id), ref values and the work tree's path. Files that look like secrets are
//! copied to `.git/dex/undo/<n>/` (mode 0700) instead of becoming objects. Format:
//! `docs/formats/undo.md`.

use crate::refs::{Applied, Edit, Expect};
use crate::{GitError, Oid, Repo, fault, refs};

mod apply;
mod entry;
mod meta;
mod raw;
mod state;

pub use apply::{newest_to_redo, newest_to_undo, redo, undo};
use entry::Recipe;

/// The oldest entries are dropped beyond this many.
const MAX_ENTRIES: usize = 50;

/// The oldest entries are dropped beyond this size.
const MAX_BYTES: u64 = 2 << 30;

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
    /// Whether it takes back an operation or an undo.
    pub kind: EntryKind,
    /// About how much the entry alone keeps alive.
    pub bytes: u64,
}

/// What an entry takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// An operation.
    Undo,
    /// The undo of entry `of`, which counts as undone while this entry exists.
    Redo {
        /// The entry that was undone.
        of: u64,
    },
    /// A redo: it takes the redone operation back again.
    Redone,
    /// What a crash in the middle of an undo left, kept in case somebody edited it since. Never
    /// taken back by itself, only by its number.
    Interrupted,
}

/// Why nothing was undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The stack holds nothing to undo (or redo).
    #[error("there is nothing to take back")]
    Nothing,
    /// No entry has this number.
    #[error("there is no undo entry {0}")]
    NoSuchEntry(u64),
    /// A ref moved while it was being restored; nothing was changed.
    #[error("{name} moved meanwhile")]
    RefMoved {
        /// The ref.
        name: String,
        /// Its value now.
        found: Option<Oid>,
    },
    /// The entry cannot be read whole; nothing was changed.
    #[error("undo entry {n} cannot be read: {what}")]
    Damaged {
        /// Its number.
        n: u64,
        /// What is wrong with it.
        what: String,
    },
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
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
pub fn record(repo: &Repo, reason: &str, keep: &Keep, now_unix: i64) -> Result<Entry, GitError> {
    record_as(repo, reason, keep, now_unix, EntryKind::Undo)
}

fn record_as(
    repo: &Repo,
    reason: &str,
    keep: &Keep,
    now_unix: i64,
    kind: EntryKind,
) -> Result<Entry, GitError> {
    let before = list(repo)?;
    let mut n = before.first().map_or(1, |newest| newest.n + 1);
    let recipe = Recipe {
        repo,
        reason,
        keep,
        now_unix,
        kind,
    };
    // Another process may take the number first; the bound only stops a repository that
    // somebody floods with entries.
    for _ in 0..16 {
        let entry = recipe.write(n)?;
        let edit = Edit::Set {
            name: ref_name(repo, n),
            expect: Expect::Absent,
            to: entry.oid.clone(),
        };
        fault::point("undo.ref.before");
        let applied = refs::apply(repo, &[edit], "dex: undo entry")?;
        fault::point("undo.ref.after");
        match applied {
            Applied::Done => {
                prune(repo, before, &entry)?;
                return Ok(entry);
            }
            Applied::Moved { .. } => n += 1,
        }
    }
    Err(GitError::answer(
        "update-ref",
        "too many undo entries at once",
    ))
}

/// The stack of this work tree, newest first.
pub fn list(repo: &Repo) -> Result<Vec<Entry>, GitError> {
    let mut entries = entry::read_all(repo, &stack(repo))?;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.n));
    Ok(entries)
}

/// Drops an entry that is no longer needed (a finished phase after its stage committed).
pub fn drop_entry(repo: &Repo, entry: &Entry) -> Result<(), GitError> {
    let edit = Edit::Delete {
        name: ref_name(repo, entry.n),
        expect: entry.oid.clone(),
    };
    fault::point("undo.drop.before");
    // Gone already, or another entry by now: either way this one is not there any more.
    let _ = refs::apply(repo, &[edit], "dex: undo entry dropped")?;
    fault::point("undo.drop.after");
    let dir = private_dir(repo, entry.n);
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(GitError::file(&dir)(e)),
        _ => Ok(()),
    }
}

/// Keeps the stack within its bounds, dropping the oldest; never the newest.
fn prune(repo: &Repo, before: Vec<Entry>, newest: &Entry) -> Result<(), GitError> {
    let mut bytes = newest.bytes;
    for (place, entry) in before.iter().enumerate() {
        bytes = bytes.saturating_add(entry.bytes);
        if place + 1 >= MAX_ENTRIES || bytes > MAX_BYTES {
            drop_entry(repo, entry)?;
        }
    }
    Ok(())
}

fn stack(repo: &Repo) -> String {
    format!("refs/dex-local/undo/{}/", repo.worktree_id())
}

fn ref_name(repo: &Repo, n: u64) -> String {
    format!("{}{n}", stack(repo))
}

/// Where copies of likely secrets lie, outside git's objects.
fn private_dir(repo: &Repo, n: u64) -> std::path::PathBuf {
    repo.own_dir().join("undo").join(n.to_string())
}

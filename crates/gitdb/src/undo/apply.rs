//! Undo and redo: putting an entry's state back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::entry::Content;
use super::meta::{FileTime, HeadWas};
use super::{Entry, EntryKind, Keep, UndoError, Undone, drop_entry, list, raw, record_as, state};
use crate::refs::{Applied, Edit, Expect};
use crate::repo::read::{nul_split, os_path};
use crate::snapshot::{IndexAfter, PrivateIndex, raw_changes, restore, work_tree_tree};
use crate::{GitError, Oid, Repo, fault, files, refs};

/// Restores the newest entry (or `n`): refs, each only from the value it has when the redo entry
/// is written; HEAD, index bytes, files. What it replaces becomes a redo entry first.
///
/// An undo that a crash interrupted is finished instead, and that is the answer.
pub fn undo(repo: &Repo, n: Option<u64>, now_unix: i64) -> Result<Undone, UndoError> {
    let finished = finish_interrupted(repo, now_unix)?;
    if let Some((Direction::Back, undone)) = finished
        && n.is_none_or(|n| n == undone.entry.n)
    {
        return Ok(undone);
    }
    let entries = list(repo)?;
    let entry = match n {
        Some(n) => entries
            .iter()
            .find(|it| it.n == n)
            .ok_or(UndoError::NoSuchEntry(n))?,
        None => newest_to_undo(&entries).ok_or(UndoError::Nothing)?,
    };
    replace(repo, entry, Direction::Back, now_unix)
}

/// Takes the last undo back. A redo that a crash interrupted is finished instead.
pub fn redo(repo: &Repo, now_unix: i64) -> Result<Undone, UndoError> {
    if let Some((Direction::Forward, undone)) = finish_interrupted(repo, now_unix)? {
        return Ok(undone);
    }
    let entries = list(repo)?;
    let entry = newest_to_redo(&entries).ok_or(UndoError::Nothing)?;
    replace(repo, entry, Direction::Forward, now_unix)
}

/// Undo goes back, redo forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Direction {
    Back,
    Forward,
}

/// The newest entry that has not been undone: what [`undo`] takes without a number.
pub fn newest_to_undo(entries: &[Entry]) -> Option<&Entry> {
    let undone = |n: u64| {
        entries
            .iter()
            .any(|it| matches!(it.kind, EntryKind::Redo { of } if of == n))
    };
    entries.iter().find(|it| match it.kind {
        EntryKind::Undo | EntryKind::Redone => !undone(it.n),
        EntryKind::Redo { .. } | EntryKind::Interrupted => false,
    })
}

/// The newest redo entry, unless a new operation came after it: what [`redo`] takes.
pub fn newest_to_redo(entries: &[Entry]) -> Option<&Entry> {
    for entry in entries {
        match entry.kind {
            EntryKind::Redo { .. } => return Some(entry),
            EntryKind::Redone | EntryKind::Interrupted => {}
            EntryKind::Undo => return None,
        }
    }
    None
}

/// What is being done, in `<git-dir>/dex/undo-pending.json` while it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    direction: Direction,
    /// The entry that is put back.
    entry: u64,
    oid: Oid,
    /// Entries with a lower number were there before.
    before: u64,
}

impl Pending {
    fn path(repo: &Repo) -> PathBuf {
        repo.own_dir().join("undo-pending.json")
    }

    fn write(&self, repo: &Repo) -> Result<(), GitError> {
        let note = serde_json::to_vec(self).unwrap_or_default();
        files::write(&Pending::path(repo), &note, 0o600)
    }

    fn clear(repo: &Repo) -> Result<(), GitError> {
        files::remove(&Pending::path(repo))
    }
}

/// Records what is there, then puts the entry's state in its place.
fn replace(
    repo: &Repo,
    entry: &Entry,
    direction: Direction,
    now_unix: i64,
) -> Result<Undone, UndoError> {
    let content = Content::read(repo, entry)?;
    content.reachable(repo)?;
    // The note comes first: without it, an entry that says "undone" could stand alone.
    let pending = Pending {
        direction,
        entry: entry.n,
        oid: entry.oid.clone(),
        before: list(repo)?.first().map_or(0, |newest| newest.n) + 1,
    };
    pending.write(repo)?;
    fault::point("undo.pending");
    let recorded = record_replaced(repo, entry, &content, direction, now_unix);
    let (replaced, before) = match recorded {
        Ok(both) => both,
        Err(e) => {
            Pending::clear(repo)?;
            return Err(e);
        }
    };
    if let Err(e) = put_back(repo, entry, &content, &before) {
        // If nothing moved, nothing is pending and the record of it is not needed. Otherwise
        // the note stays, and the next undo finishes the work.
        let now = work_tree_tree(repo, &content.untouched());
        if now.is_ok_and(|tree| tree == before.tree) {
            drop_entry(repo, &replaced)?;
            Pending::clear(repo)?;
        }
        return Err(e);
    }
    finish(repo, entry, replaced, direction)
}

fn record_replaced(
    repo: &Repo,
    entry: &Entry,
    content: &Content,
    direction: Direction,
    now_unix: i64,
) -> Result<(Entry, Content), UndoError> {
    let operation = entry.reason.trim_start_matches("undo of: ");
    let (reason, kind) = match direction {
        Direction::Back => {
            let kind = EntryKind::Redo { of: entry.n };
            (format!("undo of: {operation}"), kind)
        }
        Direction::Forward => (format!("redo of: {operation}"), EntryKind::Redone),
    };
    let replaced = record_as(repo, &reason, &keep_for(content), now_unix, kind)?;
    let before = Content::read(repo, &replaced)?;
    Ok((replaced, before))
}

/// Everything is back. A redo also drops what it used up: its own entry, and the one that had
/// been undone, for which the new entry stands (it holds the same state, and what came since).
fn finish(
    repo: &Repo,
    entry: &Entry,
    replaced: Entry,
    direction: Direction,
) -> Result<Undone, UndoError> {
    if let (Direction::Forward, EntryKind::Redo { of }) = (direction, entry.kind) {
        let entries = list(repo)?;
        for spent in entries.iter().filter(|it| it.n == of || it.n == entry.n) {
            drop_entry(repo, spent)?;
        }
    }
    Pending::clear(repo)?;
    fault::point("undo.done");
    Ok(Undone {
        entry: entry.clone(),
        redo: replaced,
    })
}

fn keep_for(content: &Content) -> Keep {
    Keep {
        refs: content.meta.refs.keys().cloned().collect(),
        tips: Vec::new(),
        private: content
            .meta
            .private
            .iter()
            .map(|it| it.path.0.clone())
            .collect(),
        leave_out: content
            .meta
            .leave_out
            .iter()
            .map(|it| it.0.clone())
            .collect(),
    }
}

/// Refs first: they can refuse, and then nothing has changed. Files next, the index with them;
/// HEAD and the operation last. Until the note is gone, the next undo does all of it again.
fn put_back(repo: &Repo, entry: &Entry, to: &Content, from: &Content) -> Result<(), UndoError> {
    let edits = ref_edits(to, from);
    fault::point("undo.refs.before");
    if let Applied::Moved { name, found } = refs::apply(repo, &edits, "dex: undo")? {
        return Err(UndoError::RefMoved { name, found });
    }
    fault::point("undo.refs.after");
    let index = IndexAfter::Raw {
        bytes: to.index.as_deref(),
        time: to.meta.index_time.map(FileTime::time),
    };
    if let Err(e) = restore(repo, &to.tree, &to.untouched(), index) {
        let _ = refs::apply(repo, &ref_edits(from, to), "dex: undo refused")?;
        return Err(e.into());
    }
    fault::point("undo.files.after");
    to.restore_private(repo, entry.n)?;
    fill_sparse(repo, to)?;
    let base = to.meta.tip.clone().unwrap_or_else(|| repo.empty_tree());
    let changed = raw_changes(repo, &base, &to.tree)?;
    raw::put_back(repo, &changed, to.raw.as_ref())?;
    point_head(repo, &to.meta.head, &entry.reason)?;
    fault::point("undo.head.after");
    state::put_back(repo, &to.state, &to.meta.root_refs)?;
    fault::point("undo.state.after");
    Ok(())
}

fn ref_edits(to: &Content, from: &Content) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (name, wanted) in &to.meta.refs {
        let now = from.meta.refs.get(name).cloned().flatten();
        if now == *wanted {
            continue;
        }
        edits.push(match (wanted, now) {
            (Some(oid), now) => Edit::Set {
                name: name.clone(),
                expect: now.map_or(Expect::Absent, Expect::At),
                to: oid.clone(),
            },
            (None, Some(now)) => Edit::Delete {
                name: name.clone(),
                expect: now,
            },
            (None, None) => continue,
        });
    }
    edits
}

fn point_head(repo: &Repo, head: &HeadWas, reason: &str) -> Result<(), GitError> {
    match head {
        HeadWas::Branch(name) => {
            if repo.head_branch()?.as_ref() != Some(name) {
                repo.point_head_at(name, &format!("dex: undo: {reason}"))?;
            }
        }
        HeadWas::Detached(oid) => {
            let args = [
                "update-ref",
                "--no-deref",
                "-m",
                "dex: undo",
                "HEAD",
                oid.as_str(),
            ];
            repo.git.write(args).bytes()?;
        }
    }
    Ok(())
}

/// A sparse checkout writes nothing outside its patterns, but files had been there.
fn fill_sparse(repo: &Repo, to: &Content) -> Result<(), GitError> {
    if !repo.settings.flag("core.sparsecheckout").unwrap_or(false) {
        return Ok(());
    }
    let root = repo.work_tree_or_error()?;
    let scratch = PrivateIndex::empty(repo)?;
    let no_sparse = ["-c", "core.sparseCheckout=false"];
    let mut left_out: Vec<Vec<u8>> = Vec::new();
    if let Some(bytes) = &to.index {
        files::write(&scratch.path, bytes, 0o600)?;
        let args = no_sparse.iter().chain(&["ls-files", "-v", "-z"]);
        let raw = repo.git.read(args).index(&scratch.path).bytes()?;
        let skipped = nul_split(&raw).filter_map(|line| match line {
            [b'S' | b's', b' ', path @ ..] => Some(path.to_vec()),
            _ => None,
        });
        left_out = skipped
            .filter(|path| !to.meta.present_outside.iter().any(|it| it.0 == *path))
            .collect();
        left_out.sort();
    }
    let all = PrivateIndex::empty(repo)?;
    let read_tree = ["read-tree", to.tree.as_str()];
    repo.git
        .write(no_sparse.iter().chain(&read_tree))
        .index(&all.path)
        .bytes()?;
    let args = no_sparse.iter().chain(&["ls-files", "-z"]);
    let raw = repo.git.read(args).index(&all.path).bytes()?;
    let mut input = Vec::new();
    for path in nul_split(&raw) {
        let missing = || root.join(os_path(path)).symlink_metadata().is_err();
        if left_out.binary_search(&path.to_vec()).is_err() && missing() {
            input.extend_from_slice(path);
            input.push(0);
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    let args = no_sparse.iter().chain(&["checkout-index", "-z", "--stdin"]);
    repo.git
        .write(args)
        .index(&all.path)
        .stdin(input)
        .bytes()
        .map(drop)
}

/// Finishes what a crash interrupted, if it had begun. What is there now is recorded first: it
/// is neither the state before nor the one after, and a person may have edited since.
fn finish_interrupted(
    repo: &Repo,
    now_unix: i64,
) -> Result<Option<(Direction, Undone)>, UndoError> {
    let Some(bytes) = files::read(&Pending::path(repo))? else {
        return Ok(None);
    };
    let entries = list(repo)?;
    let pending: Option<Pending> = serde_json::from_slice(&bytes).ok();
    let found = pending.and_then(|note| {
        let entry = entries
            .iter()
            .find(|it| it.n == note.entry && it.oid == note.oid)?;
        // Without this record nothing had been moved yet.
        let replaced = entries.iter().find(|it| {
            it.n >= note.before
                && match note.direction {
                    Direction::Back => it.kind == EntryKind::Redo { of: entry.n },
                    Direction::Forward => it.kind == EntryKind::Redone,
                }
        })?;
        Some((note.direction, entry.clone(), replaced.clone()))
    });
    let Some((direction, entry, replaced)) = found else {
        Pending::clear(repo)?;
        return Ok(None);
    };
    let content = Content::read(repo, &entry)?;
    let kind = EntryKind::Interrupted;
    let reason = "what an interrupted undo had left";
    let found = record_as(repo, reason, &keep_for(&content), now_unix, kind)?;
    let now = Content::read(repo, &found)?;
    put_back(repo, &entry, &content, &now)?;
    let undone = finish(repo, &entry, replaced, direction)?;
    Ok(Some((direction, undone)))
}

//! Undo and redo: putting an entry's state back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::entry::Content;
use super::meta::{FileTime, HeadWas};
use super::{Entry, EntryKind, Keep, UndoError, Undone, drop_entry, list, raw, record_as, state};
use crate::refs::{Applied, Edit, Expect};
use crate::repo::read::{nul_split, os_path};
use crate::snapshot::{IndexAfter, PrivateIndex, restore, work_tree_tree};
use crate::{GitError, Oid, Repo, fault, files, refs};

/// Restores the newest entry (or `n`): refs with the values they were replaced by as expected
/// old values, HEAD, index bytes, files. What it replaces becomes a redo entry first.
pub fn undo(repo: &Repo, n: Option<u64>, now_unix: i64) -> Result<Undone, UndoError> {
    finish_interrupted(repo, now_unix)?;
    let entries = list(repo)?;
    let entry = match n {
        Some(n) => entries
            .iter()
            .find(|it| it.n == n)
            .ok_or(UndoError::NoSuchEntry(n))?,
        None => newest_to_undo(&entries).ok_or(UndoError::Nothing)?,
    };
    let reason = format!("undo of: {}", entry.reason);
    let redo = replace(
        repo,
        entry,
        &reason,
        EntryKind::Redo { of: entry.n },
        now_unix,
    )?;
    Ok(Undone {
        entry: entry.clone(),
        redo,
    })
}

/// Takes the last undo back.
pub fn redo(repo: &Repo, now_unix: i64) -> Result<Undone, UndoError> {
    finish_interrupted(repo, now_unix)?;
    let entries = list(repo)?;
    let (entry, of) = newest_to_redo(&entries).ok_or(UndoError::Nothing)?;
    let reason = format!("redo of: {}", entry.reason.trim_start_matches("undo of: "));
    let back = replace(repo, entry, &reason, EntryKind::Redone, now_unix)?;
    // The new entry stands for the undone one: it holds the same state, and what came since.
    let undone = entries.iter().find(|it| it.n == of);
    for spent in undone.into_iter().chain([entry]) {
        drop_entry(repo, spent)?;
    }
    Ok(Undone {
        entry: entry.clone(),
        redo: back,
    })
}

/// The newest entry that has not been undone.
fn newest_to_undo(entries: &[Entry]) -> Option<&Entry> {
    let undone = |n: u64| {
        entries
            .iter()
            .any(|it| matches!(it.kind, EntryKind::Redo { of } if of == n))
    };
    entries.iter().find(|it| match it.kind {
        EntryKind::Undo | EntryKind::Redone => !undone(it.n),
        EntryKind::Redo { .. } => false,
    })
}

/// The newest redo entry, unless a new operation came after it.
fn newest_to_redo(entries: &[Entry]) -> Option<(&Entry, u64)> {
    for entry in entries {
        match entry.kind {
            EntryKind::Redo { of } => return Some((entry, of)),
            EntryKind::Redone => {}
            EntryKind::Undo => return None,
        }
    }
    None
}

/// What an interrupted undo was doing, in `<git-dir>/dex/undo-pending.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    entry: u64,
    oid: Oid,
}

fn pending_path(repo: &Repo) -> PathBuf {
    repo.own_dir().join("undo-pending.json")
}

/// Records what is there, then puts the entry's state in its place.
fn replace(
    repo: &Repo,
    entry: &Entry,
    reason: &str,
    kind: EntryKind,
    now_unix: i64,
) -> Result<Entry, UndoError> {
    let content = Content::read(repo, entry)?;
    content.reachable(repo)?;
    let keep = keep_for(&content);
    let replaced = record_as(repo, reason, &keep, now_unix, kind)?;
    let pending = Pending {
        entry: entry.n,
        oid: entry.oid.clone(),
    };
    let note = serde_json::to_vec(&pending).unwrap_or_default();
    files::write(&pending_path(repo), &note, 0o600)?;
    fault::point("undo.pending");
    let before = Content::read(repo, &replaced)?;
    if let Err(e) = put_back(repo, entry, &content, &before) {
        // If nothing moved, nothing is pending and the record of it is not needed. Otherwise
        // the note stays, and the next undo finishes the work.
        let now = work_tree_tree(repo, &content.untouched());
        if now.is_ok_and(|tree| tree == before.tree) {
            files::remove(&pending_path(repo))?;
            drop_entry(repo, &replaced)?;
        }
        return Err(e);
    }
    files::remove(&pending_path(repo))?;
    fault::point("undo.done");
    Ok(replaced)
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
    if let Some(tree) = &to.raw {
        raw::put_back(repo, tree)?;
    }
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

/// Finishes an undo that a crash interrupted. What is there now is recorded first: a person may
/// have edited since.
fn finish_interrupted(repo: &Repo, now_unix: i64) -> Result<(), UndoError> {
    let path = pending_path(repo);
    let Some(bytes) = files::read(&path)? else {
        return Ok(());
    };
    let pending: Option<Pending> = serde_json::from_slice(&bytes).ok();
    let entries = list(repo)?;
    let entry = pending.and_then(|note| {
        entries
            .iter()
            .find(|it| it.n == note.entry && it.oid == note.oid)
    });
    if let Some(entry) = entry {
        let content = Content::read(repo, entry)?;
        let reason = "an interrupted undo, before it was finished";
        let found = record_as(
            repo,
            reason,
            &keep_for(&content),
            now_unix,
            EntryKind::Redone,
        )?;
        let before = Content::read(repo, &found)?;
        put_back(repo, entry, &content, &before)?;
    }
    files::remove(&path)?;
    Ok(())
}

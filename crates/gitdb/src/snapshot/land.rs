//! Moving the branch to a prepared commit and bringing the user's index along.

use super::capture::{index_info, update_index};
use super::index::{private_path, same_file};
use super::prepare::check_place;
use super::{OwnLock, Prepared, PrivateIndex, SnapshotError, index_checksum, raw_changes};
use crate::refs::{Applied, Edit, Expect};
use crate::repo::read::nul_split;
use crate::{GitError, Oid, Repo, fault, files, refs};

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
pub fn land(repo: &Repo, prepared: &Prepared) -> Result<Landed, SnapshotError> {
    check_place(repo, &prepared.branch)?;
    let private = private_path(repo, &prepared.nonce);
    fault::point("snapshot.lock.before");
    let lock = OwnLock::take(repo, &private)?;
    fault::point("snapshot.lock.after");
    if current_checksum(repo)? != prepared.index_checksum {
        lock.release()?;
        files::remove(&private)?;
        return Ok(Landed::IndexChanged);
    }
    swap(repo, prepared)?;
    let landed = finish_index(repo, prepared, lock)?;
    fault::point("snapshot.unlink.before");
    files::remove(&private)?;
    fault::point("snapshot.unlink.after");
    Ok(landed)
}

fn current_checksum(repo: &Repo) -> Result<String, GitError> {
    let bytes = files::read(&repo.git_dir.join("index"))?;
    Ok(index_checksum(repo, bytes.as_deref()))
}

/// The one compare-and-swap that makes the stage done.
fn swap(repo: &Repo, prepared: &Prepared) -> Result<(), SnapshotError> {
    let unborn = prepared.base.as_str() == repo.object_format.null();
    let edit = Edit::Set {
        name: prepared.branch.clone(),
        expect: if unborn {
            Expect::Absent
        } else {
            Expect::At(prepared.base.clone())
        },
        to: prepared.commit.clone(),
    };
    fault::point("snapshot.ref.before");
    let applied = match refs::apply(repo, &[edit], "dex: stage commit") {
        Ok(applied) => applied,
        // A process that was ended may have moved the ref before.
        Err(e) => match refs::read(repo, &prepared.branch) {
            Ok(Some(now)) if now == prepared.commit => Applied::Done,
            _ => return Err(e.into()),
        },
    };
    fault::point("snapshot.ref.after");
    match applied {
        Applied::Done => Ok(()),
        Applied::Moved { name, found } => Err(SnapshotError::BranchMoved {
            branch: name,
            found,
        }),
    }
}

/// HEAD may have left the branch while the swap ran; then the index is not ours to change.
fn finish_index(repo: &Repo, prepared: &Prepared, lock: OwnLock) -> Result<Landed, GitError> {
    if repo.head_branch()?.as_deref() != Some(&prepared.branch) {
        lock.release()?;
        return Ok(Landed::HeadLeft);
    }
    fault::point("snapshot.rename.before");
    lock.into_index()?;
    fault::point("snapshot.rename.after");
    Ok(Landed::Done)
}

/// Finishes what a crash interrupted after [`super::prepare`]: commits the recorded commit
/// object, never a new snapshot, so what a person edited since stays uncommitted.
///
/// The caller holds the run's lock, so the process that was interrupted is gone.
pub fn recover(repo: &Repo, prepared: &Prepared) -> Result<Landed, SnapshotError> {
    let private = private_path(repo, &prepared.nonce);
    let lock = OwnLock::left_behind(repo, &private);
    let tip = refs::read(repo, &prepared.branch)?;
    let landed = if tip.as_ref() == Some(&prepared.commit) {
        index_after_swap(repo, prepared, lock)?
    } else {
        drop(lock);
        check_place(repo, &prepared.branch)?;
        let as_copied = current_checksum(repo)? == prepared.index_checksum;
        if as_copied && private.exists() {
            land(repo, prepared)?
        } else {
            bring_along(repo, prepared, true)?
        }
    };
    files::remove(&private)?;
    Ok(landed)
}

/// The branch is where it should be; is the index?
fn index_after_swap(
    repo: &Repo,
    prepared: &Prepared,
    lock: Option<OwnLock>,
) -> Result<Landed, SnapshotError> {
    if let Some(lock) = lock {
        return Ok(finish_index(repo, prepared, lock)?);
    }
    let private = private_path(repo, &prepared.nonce);
    let renamed = same_file(&private, &repo.git_dir.join("index"));
    if renamed {
        return Ok(Landed::Done);
    }
    if repo.head_branch()?.as_deref() != Some(&prepared.branch) {
        return Ok(Landed::HeadLeft);
    }
    bring_along(repo, prepared, false)
}

/// Moves the index entries of what the commit changed, and only where they are as the base had
/// them: what a person staged since the crash stays staged.
fn bring_along(repo: &Repo, prepared: &Prepared, swap_too: bool) -> Result<Landed, SnapshotError> {
    let unborn = prepared.base.as_str() == repo.object_format.null();
    let base = if unborn {
        repo.empty_tree()
    } else {
        prepared.base.clone()
    };
    let fresh = PrivateIndex::copy(repo)?;
    let entries = entries(repo, &fresh)?;
    let mut input = Vec::new();
    for change in raw_changes(repo, &base, &prepared.commit)? {
        let entry = entries.iter().find(|it| it.path == change.path);
        let as_before = match entry {
            Some(entry) => entry.mode == change.old_mode && entry.oid == change.old,
            None => change.old_mode == 0,
        };
        if as_before {
            index_info(&mut input, change.new_mode, &change.new, &change.path);
        }
    }
    update_index(repo, &fresh, input)?;
    refresh(repo, &fresh)?;
    let lock = OwnLock::take(repo, &fresh.path)?;
    if current_checksum(repo)? != fresh.checksum {
        return Ok(Landed::IndexChanged);
    }
    if swap_too {
        swap(repo, prepared)?;
    }
    Ok(finish_index(repo, prepared, lock)?)
}

/// Fills in the times of entries that were set by id. Exit 1 only means that files differ.
pub(super) fn refresh(repo: &Repo, private: &PrivateIndex) -> Result<(), GitError> {
    if !private.path.exists() {
        return Ok(());
    }
    let args = [
        "-c",
        "core.splitIndex=false",
        "update-index",
        "-q",
        "--refresh",
    ];
    let out = repo.git.write(args).index(&private.path).output()?;
    match out.status {
        Some(0 | 1) => Ok(()),
        _ => Err(out.failed("update-index")),
    }
}

/// An entry of an index.
pub(crate) struct IndexEntry {
    pub(crate) mode: u32,
    pub(crate) oid: Oid,
    pub(crate) path: Vec<u8>,
}

fn entries(repo: &Repo, private: &PrivateIndex) -> Result<Vec<IndexEntry>, GitError> {
    if !private.path.exists() {
        return Ok(Vec::new());
    }
    let raw = repo
        .git
        .read(["ls-files", "-s", "-z"])
        .index(&private.path)
        .bytes()?;
    nul_split(&raw)
        .map(|line| {
            read_entry(line)
                .ok_or_else(|| GitError::answer("ls-files", String::from_utf8_lossy(line)))
        })
        .collect()
}

fn read_entry(line: &[u8]) -> Option<IndexEntry> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let head = std::str::from_utf8(&line[..tab]).ok()?;
    let mut fields = head.split(' ');
    Some(IndexEntry {
        mode: u32::from_str_radix(fields.next()?, 8).ok()?,
        oid: fields.next()?.parse().ok()?,
        path: line[tab + 1..].to_vec(),
    })
}

/// Removes leftovers of ours in `<git-dir>/dex` that no live record names. Never touches a
/// lock that is not provably ours. The caller holds the run's lock.
pub fn sweep(repo: &Repo, keep: Option<&Prepared>) -> Result<(), GitError> {
    let dir = repo.own_dir();
    let kept = keep.map(|it| format!("index.{}", it.nonce));
    let listing = match std::fs::read_dir(&dir) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(GitError::file(&dir)(e)),
    };
    for entry in listing {
        let path = entry.map_err(GitError::file(&dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = name.starts_with("index.");
        let named = kept
            .as_ref()
            .is_some_and(|it| name.starts_with(it.as_str()));
        if !ours || named {
            continue;
        }
        // The inode proves that the lock was made from this file of ours.
        if let Some(lock) = OwnLock::left_behind(repo, &path) {
            lock.release()?;
        }
        if path.is_dir() && !path.is_symlink() {
            // Ignore rules that a restore was looking at.
            std::fs::remove_dir_all(&path).map_err(GitError::file(&path))?;
        } else {
            files::remove(&path)?;
        }
    }
    Ok(())
}

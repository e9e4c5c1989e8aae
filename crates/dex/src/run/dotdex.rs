//! Keeping `.dex/` out of the agent's hands: what it changed there is put back before anything
//! else reads it, and moved aside, never thrown away.
//!
//! An agent may only add to `learnings.md`. Settings, prompts, state, manifest and records are
//! kept as they were when the attempt began.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gitdb::{GitError, Oid, Repo};

use crate::files::manifest::{self, Manifest};
use crate::files::record::Record;
use crate::files::state::{self, State};
use crate::files::store::{self, FileError};

/// Putting back failed.
#[derive(Debug, thiserror::Error)]
pub enum PutBackError {
    /// A file could not be used.
    #[error("{} could not be put back", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("a file under .dex could not be put back")]
    File(#[from] FileError),
    /// The tracked version could not be read.
    #[error("git failed")]
    Git(#[from] GitError),
}

/// What identifies an untouched file without reading it. The change time cannot be set by hand.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Signature {
    len: u64,
    inode: u64,
    changed: (i64, i64),
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Kept {
    /// Records of runs: restored from the commit when touched.
    runs: BTreeMap<String, Signature>,
    /// Everything else: copied.
    copied: BTreeSet<String>,
    /// Symbolic links: their targets.
    #[serde(default)]
    links: BTreeMap<String, PathBuf>,
    /// The goal file while no commit holds it: an agent that cleans up must not take it along.
    #[serde(default)]
    goal: Option<String>,
}

const LEARNINGS: &str = "learnings.md";
/// Files synced at the same time.
const SYNCED_AT_ONCE: usize = 8;
/// Written by whoever holds the run's lock; never the agent's business, and never worth anything
/// once that process is gone.
const LOCK: &str = "state.lock";
/// The goal's copy.
const GOAL: &str = "goal-kept";

/// Remembers `.dex/` as it is, and the goal when it is committed nowhere yet.
pub(super) fn keep(root: &Path, scratch: &Path, goal: Option<&str>) -> Result<(), PutBackError> {
    let mut kept = Kept::default();
    if let Some(goal) = goal
        && let Some(bytes) = store::read(&root.join(goal))?
    {
        store::write(scratch, &scratch.join(GOAL), &bytes)?;
        kept.goal = Some(goal.to_owned());
    }
    let mut copies = Vec::new();
    for name in walk(&root.join(".dex"))? {
        let path = root.join(".dex").join(&name);
        let meta = std::fs::symlink_metadata(&path).map_err(io_at(&path))?;
        if meta.is_symlink() {
            let target = std::fs::read_link(&path).map_err(io_at(&path))?;
            kept.links.insert(name, target);
        } else if !meta.is_file() {
            // A pipe or socket of the user's: reading it might never end.
        } else if name.starts_with("runs/") {
            kept.runs.insert(name, signature(&path)?);
        } else {
            let bytes = std::fs::read(&path).map_err(io_at(&path))?;
            copies.push((scratch.join("dex-kept").join(&name), bytes));
            kept.copied.insert(name);
        }
    }
    write_together(&copies)?;
    store::write(
        scratch,
        &scratch.join("dex-kept.json"),
        &store::to_json(&kept),
    )?;
    Ok(())
}

/// Writes new files and syncs them side by side, so that the disk is waited for once and not for
/// each: this happens before every attempt. The list that names them is written after them.
fn write_together(files: &[(PathBuf, Vec<u8>)]) -> Result<(), PutBackError> {
    for (path, bytes) in files {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(io_at(dir))?;
        }
        std::fs::write(path, bytes).map_err(io_at(path))?;
    }
    let dirs: BTreeSet<&Path> = files.iter().filter_map(|(path, _)| path.parent()).collect();
    let all = files.iter().map(|(path, _)| path.as_path()).chain(dirs);
    let all: Vec<&Path> = all.collect();
    let sync = |part: &[&Path]| -> Result<(), PutBackError> {
        for path in part {
            let file = std::fs::File::open(path).map_err(io_at(path))?;
            file.sync_all().map_err(io_at(path))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let parts = all.chunks(all.len().div_ceil(SYNCED_AT_ONCE).max(1));
        let workers: Vec<_> = parts.map(|part| scope.spawn(move || sync(part))).collect();
        workers
            .into_iter()
            .try_for_each(|it| it.join().expect("it only reads and syncs files"))
    })
}

/// Puts `.dex/` back to what [`keep`] saw, except for additions to `learnings.md`. Returns what
/// was changed, for people. What the agent had written goes to `aside`.
pub(super) fn put_back(
    repo: &Repo,
    root: &Path,
    scratch: &Path,
    tip: &Oid,
    aside: &Path,
) -> Result<Vec<String>, PutBackError> {
    let list = scratch.join("dex-kept.json");
    let Some(bytes) = store::read(&list)? else {
        return Ok(Vec::new());
    };
    let kept: Kept = store::parse_json(&list, &bytes)?;
    let dir = root.join(".dex");
    let mut noticed = Vec::new();
    if std::fs::symlink_metadata(&dir).is_ok_and(|it| !it.is_dir()) {
        move_aside(&dir, &aside.join("dex"))?;
        noticed.push(".dex was replaced and is put back".to_owned());
    }
    for name in walk(&dir)? {
        if !kept.knows(&name) && name != LEARNINGS {
            move_aside(&dir.join(&name), &aside.join(&name))?;
            noticed.push(format!(
                ".dex/{name} was made by the agent and is moved aside"
            ));
        }
    }
    links_back(&kept, &dir, aside, &mut noticed)?;
    if let Some(goal) = &kept.goal
        && std::fs::symlink_metadata(root.join(goal)).is_err()
    {
        let before = std::fs::read(scratch.join(GOAL)).map_err(io_at(scratch))?;
        store::write(root, &root.join(goal), &before)?;
        noticed.push(format!("{goal} was removed by the agent and is put back"));
    }
    for name in &kept.copied {
        let before = std::fs::read(scratch.join("dex-kept").join(name)).map_err(io_at(scratch))?;
        let path = dir.join(name);
        let now = store::read(&path).ok().flatten();
        if now.as_deref() == Some(&before) {
            continue;
        }
        if name == LEARNINGS {
            if let Some(merged) = now.and_then(|now| only_added(&before, &now)) {
                store::write(root, &path, &merged)?;
                continue;
            }
        } else {
            noticed.push(format!(
                ".dex/{name} was changed by the agent and is put back"
            ));
        }
        restore(root, &path, &before, &aside.join(name))?;
    }
    for (name, before) in &kept.runs {
        let path = dir.join(name);
        if signature(&path).is_ok_and(|it| it == *before) {
            continue;
        }
        if let Some(bytes) = repo.read_file(tip, &format!(".dex/{name}"))?
            && store::read(&path).ok().flatten().as_deref() != Some(&bytes)
        {
            restore(root, &path, &bytes, &aside.join(name))?;
            noticed.push(format!(
                ".dex/{name} was changed by the agent and is put back"
            ));
        }
    }
    Ok(noticed)
}

impl Kept {
    fn knows(&self, name: &str) -> bool {
        self.runs.contains_key(name) || self.copied.contains(name) || self.links.contains_key(name)
    }
}

/// Links of the user's stay links to where they pointed; what they point at is not ours.
fn links_back(
    kept: &Kept,
    dir: &Path,
    aside: &Path,
    noticed: &mut Vec<String>,
) -> Result<(), PutBackError> {
    for (name, target) in &kept.links {
        let path = dir.join(name);
        if std::fs::read_link(&path).is_ok_and(|it| it == *target) {
            continue;
        }
        move_aside(&path, &aside.join(name))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io_at(parent))?;
        }
        std::os::unix::fs::symlink(target, &path).map_err(io_at(&path))?;
        noticed.push(format!(
            ".dex/{name} was changed by the agent and is put back"
        ));
    }
    Ok(())
}

/// Moves files of ours aside that cannot be read as what they should be: they are made again from
/// the commits, and whatever they hold is kept (cases F05, F07). Returns what was moved.
pub(super) fn bad_files_aside(
    root: &Path,
    run_id: &str,
    aside: &Path,
) -> Result<Vec<String>, PutBackError> {
    let record = format!(".dex/runs/{run_id}.json");
    type Reads = fn(&[u8]) -> bool;
    let files: [(&str, Reads); 3] = [
        (state::PATH, |it| State::read(it).is_ok()),
        (manifest::PATH, |it| Manifest::read(it).is_ok()),
        (&record, |it| Record::read(it).is_ok()),
    ];
    let mut moved = Vec::new();
    for (name, reads) in files {
        let path = root.join(name);
        let bad = match store::read(&path) {
            Ok(bytes) => bytes.is_some_and(|it| !reads(&it)),
            Err(_) => true,
        };
        if bad {
            move_aside(&path, &aside.join(name.trim_start_matches(".dex/")))?;
            moved.push(format!(
                "{name} cannot be read; it is kept in {} and made again",
                aside.display()
            ));
        }
    }
    Ok(moved)
}

/// The old text with every line that is new in the other one after it; none when the new text
/// is no text.
fn only_added(before: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    if now.starts_with(before) {
        return Some(now.to_vec());
    }
    let (old, new) = (
        std::str::from_utf8(before).ok()?,
        std::str::from_utf8(now).ok()?,
    );
    let known: BTreeSet<&str> = old.lines().collect();
    let mut merged = old.to_owned();
    for line in new.lines().filter(|it| !known.contains(it)) {
        if !merged.is_empty() && !merged.ends_with('\n') {
            merged.push('\n');
        }
        merged.push_str(line);
        merged.push('\n');
    }
    Some(merged.into_bytes())
}

fn restore(root: &Path, path: &Path, bytes: &[u8], aside: &Path) -> Result<(), PutBackError> {
    move_aside(path, aside)?;
    // A parent the agent turned into a file or link would stop the write.
    if let Some(parent) = path.parent()
        && std::fs::symlink_metadata(parent).is_ok_and(|it| !it.is_dir())
    {
        move_aside(parent, &aside.with_extension("parent"))?;
    }
    Ok(store::write(root, path, bytes)?)
}

fn move_aside(from: &Path, to: &Path) -> Result<(), PutBackError> {
    if std::fs::symlink_metadata(from).is_err() {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(io_at(parent))?;
    }
    // Something of that name may lie there already, when a file gave way to a directory.
    let to = &free(to);
    match std::fs::rename(from, to) {
        Ok(()) => Ok(()),
        // The git directory may be on another file system.
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let meta = std::fs::symlink_metadata(from).map_err(io_at(from))?;
            if meta.is_dir() {
                return copy_dir_and_remove(from, to);
            }
            if meta.is_file() {
                std::fs::copy(from, to).map_err(io_at(from))?;
            }
            std::fs::remove_file(from).map_err(io_at(from))
        }
        Err(source) => Err(PutBackError::Io {
            path: from.to_owned(),
            source,
        }),
    }
}

fn free(path: &Path) -> PathBuf {
    let mut found = path.to_owned();
    let mut n = 1;
    while std::fs::symlink_metadata(&found).is_ok() {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        found = PathBuf::from(name);
        n += 1;
    }
    found
}

fn copy_dir_and_remove(from: &Path, to: &Path) -> Result<(), PutBackError> {
    std::fs::create_dir_all(to).map_err(io_at(to))?;
    for entry in std::fs::read_dir(from).map_err(io_at(from))? {
        let entry = entry.map_err(io_at(from))?;
        move_aside(&entry.path(), &to.join(entry.file_name()))?;
    }
    std::fs::remove_dir(from).map_err(io_at(from))
}

fn signature(path: &Path) -> Result<Signature, PutBackError> {
    let meta = std::fs::symlink_metadata(path).map_err(io_at(path))?;
    Ok(Signature {
        len: meta.len(),
        inode: meta.ino(),
        changed: (meta.ctime(), meta.ctime_nsec()),
    })
}

/// Files under a directory, as paths from it; links are files, and are never followed.
fn walk(dir: &Path) -> Result<Vec<String>, PutBackError> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(rel) = todo.pop() {
        let here = dir.join(&rel);
        let entries = match std::fs::read_dir(&here) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(PutBackError::Io { path: here, source }),
        };
        for entry in entries {
            let entry = entry.map_err(io_at(&here))?;
            let kind = entry.file_type().map_err(io_at(&here))?;
            let rel = rel.join(entry.file_name());
            if kind.is_dir() {
                todo.push(rel);
            } else if let Some(name) = rel.to_str().filter(|it| *it != LOCK) {
                // A name that is no text is none of ours; the snapshot takes it as it is.
                found.push(name.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> PutBackError {
    let path = path.to_owned();
    move |source| PutBackError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learnings_only_ever_grow() {
        let add = |before: &str, now: &str| {
            String::from_utf8(only_added(before.as_bytes(), now.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!(add("a\n", "a\nb\n"), "a\nb\n");
        assert_eq!(add("a\nb\n", "c\n"), "a\nb\nc\n");
        assert_eq!(add("a", "b"), "a\nb\n");
        assert_eq!(only_added(b"a", b"\xff"), None);
    }
}

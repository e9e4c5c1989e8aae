//! What an agent must not change: configuration and hooks.
//!
//! [`capture`] is taken when a stage starts. [`put_back`] compares by plain file reads, puts
//! configuration and hooks back byte for byte before git is run again (a changed config could
//! make that very git run a program), and then lists what else differs: branches, tags,
//! worktrees and stashes that came, moved or went are listed, not undone. Bits of the index that
//! make git look away from a file, and were not there, are cleared: work hidden that way would be
//! missing from the stage's commit.
//!
//! Files that are symbolic links are kept and compared as links and never written through.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::repo::read::os_path;
use crate::snapshot::Hidden;
use crate::{GitError, Oid, Repo, fault, files, refs};

/// Configuration, hooks and refs as they were. Serialised into the live record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protected {
    /// Absolute path of every protected file that was looked at; null where there was none.
    files: BTreeMap<String, Option<Kept>>,
    /// The hooks directory, whose further files are unwanted.
    hooks: String,
    /// The run's own branch, which is expected to move.
    run_branch: String,
    refs: BTreeMap<String, Oid>,
    worktrees: BTreeSet<String>,
    stashes: Vec<Oid>,
    /// SHA-256 of the index file, in hex: the same one hides the same paths.
    #[serde(default)]
    index: String,
    /// Paths git does not look at, in hex: assume-unchanged and skip-worktree.
    #[serde(default)]
    assumed: BTreeSet<String>,
    #[serde(default)]
    skipped: BTreeSet<String>,
}

/// One file, as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kept {
    /// A regular file: content in hex and permission bits.
    File { hex: String, mode: u32 },
    /// A symbolic link and its target in hex.
    Link { hex: String },
}

/// Something that differs from what was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum ProtectChange {
    /// A configuration, attributes or exclude file differed and was put back.
    Config {
        /// Its path.
        path: String,
    },
    /// A hook was added, changed or removed, and that was put back.
    Hook {
        /// Its path.
        path: String,
    },
    /// Git was told to look away from a file, and looks again.
    Hidden {
        /// Its path from the root, lossily decoded.
        path: String,
    },
    /// A ref appeared.
    RefAdded {
        /// Full name.
        name: String,
        /// Its value.
        to: Oid,
    },
    /// A ref has another value.
    RefMoved {
        /// Full name.
        name: String,
        /// Its value before.
        from: Oid,
        /// Its value now.
        to: Oid,
    },
    /// A ref is gone.
    RefRemoved {
        /// Full name.
        name: String,
        /// The value it had.
        from: Oid,
    },
    /// A linked worktree was registered.
    WorktreeAdded {
        /// Its path.
        path: String,
    },
    /// A linked worktree is no longer registered.
    WorktreeRemoved {
        /// Its path.
        path: String,
    },
    /// A stash entry appeared.
    StashAdded {
        /// Its commit.
        oid: Oid,
    },
    /// A stash entry is gone.
    StashRemoved {
        /// Its commit.
        oid: Oid,
    },
}

/// Records configuration, hooks and refs. `run_branch` (full name) is left out of the refs.
pub fn capture(repo: &Repo, run_branch: &str) -> Result<Protected, GitError> {
    let hooks = repo.common_dir.join("hooks");
    let mut kept = BTreeMap::new();
    for path in config_files(repo) {
        kept.insert(key(&path), keep(&path)?);
    }
    for path in files_in(&hooks)? {
        kept.insert(key(&path), keep(&path)?);
    }
    let (refs, stashes) = refs_and_stashes(repo, run_branch)?;
    // Before the paths are read: an index that changes in between is then looked at again.
    let index = index_digest(repo)?;
    let hidden = hidden(repo)?;
    Ok(Protected {
        files: kept,
        hooks: key(&hooks),
        run_branch: run_branch.to_owned(),
        refs,
        worktrees: worktrees(repo)?,
        stashes,
        index,
        assumed: hidden.assumed.iter().map(|path| hex(path)).collect(),
        skipped: hidden.skipped.iter().map(|path| hex(path)).collect(),
    })
}

/// Puts configuration and hooks back, before any git runs, and lists everything that differs.
pub fn put_back(repo: &Repo, before: &Protected) -> Result<Vec<ProtectChange>, GitError> {
    let mut changes = put_files_back(before)?;
    changes.extend(expose(repo, before)?);
    let (refs, stashes) = refs_and_stashes(repo, &before.run_branch)?;
    changes.extend(ref_changes(&before.refs, &refs));
    let now = worktrees(repo)?;
    for path in now.difference(&before.worktrees).cloned() {
        changes.push(ProtectChange::WorktreeAdded { path });
    }
    for path in before.worktrees.difference(&now).cloned() {
        changes.push(ProtectChange::WorktreeRemoved { path });
    }
    let missing_in = |list: &[Oid], oid: &Oid| !list.contains(oid);
    for oid in stashes
        .iter()
        .filter(|oid| missing_in(&before.stashes, oid))
    {
        changes.push(ProtectChange::StashAdded { oid: oid.clone() });
    }
    for oid in before
        .stashes
        .iter()
        .filter(|oid| missing_in(&stashes, oid))
    {
        changes.push(ProtectChange::StashRemoved { oid: oid.clone() });
    }
    Ok(changes)
}

fn hidden(repo: &Repo) -> Result<Hidden, GitError> {
    let index = repo.git_dir.join("index");
    if repo.work_tree.is_none() || !index.exists() {
        return Ok(Hidden::default());
    }
    Hidden::read(repo, &index)
}

/// Of the whole file: its own trailing checksum can be made to say anything.
fn index_digest(repo: &Repo) -> Result<String, GitError> {
    let bytes = files::read(&repo.git_dir.join("index"))?.unwrap_or_default();
    Ok(hex(&Sha256::digest(bytes)))
}

/// Clears the bits that were not there before. In a sparse checkout a file that is not there
/// keeps skip-worktree: it is left out, which is no deletion.
fn expose(repo: &Repo, before: &Protected) -> Result<Vec<ProtectChange>, GitError> {
    if index_digest(repo)? == before.index {
        return Ok(Vec::new());
    }
    let mut new = hidden(repo)?;
    new.assumed
        .retain(|path| !before.assumed.contains(&hex(path)));
    new.skipped
        .retain(|path| !before.skipped.contains(&hex(path)));
    if !new.skipped.is_empty() && repo.settings.flag("core.sparsecheckout") == Some(true) {
        let root = repo.work_tree_or_error()?;
        new.skipped
            .retain(|path| root.join(os_path(path)).symlink_metadata().is_ok());
    }
    new.clear(repo, &repo.git_dir.join("index"))?;
    let paths: BTreeSet<&Vec<u8>> = new.assumed.iter().chain(&new.skipped).collect();
    let shown = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    Ok(paths
        .into_iter()
        .map(|path| ProtectChange::Hidden { path: shown(path) })
        .collect())
}

/// Plain file reads and writes only.
fn put_files_back(before: &Protected) -> Result<Vec<ProtectChange>, GitError> {
    let hooks = path_of(&before.hooks);
    let mut paths: BTreeSet<String> = before.files.keys().cloned().collect();
    paths.extend(files_in(&hooks)?.iter().map(|path| key(path)));
    let mut changes = Vec::new();
    for name in paths {
        let path = path_of(&name);
        let wanted = before.files.get(&name).cloned().flatten();
        if keep(&path)? == wanted {
            continue;
        }
        fault::point("protect.file.before");
        restore_file(&path, wanted.as_ref())?;
        fault::point("protect.file.after");
        let path = path.to_string_lossy().into_owned();
        changes.push(match path_of(&name).starts_with(&hooks) {
            true => ProtectChange::Hook { path },
            false => ProtectChange::Config { path },
        });
    }
    Ok(changes)
}

fn restore_file(path: &Path, wanted: Option<&Kept>) -> Result<(), GitError> {
    // A directory put in a file's place can hold anything; it is moved aside, not emptied.
    if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let aside = path.with_extension(format!("dex-aside-{}", uuid::Uuid::now_v7().simple()));
        std::fs::rename(path, &aside).map_err(GitError::file(path))?;
    }
    match wanted {
        None => files::remove(path),
        Some(Kept::File { hex, mode }) => files::write(path, &unhex(hex), *mode),
        Some(Kept::Link { hex }) => {
            files::remove(path)?;
            std::os::unix::fs::symlink(os_path(&unhex(hex)), path).map_err(GitError::file(path))
        }
    }
}

/// Files whose lines decide what git runs or leaves out.
fn config_files(repo: &Repo) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = [
        "config",
        "config.worktree",
        "info/attributes",
        "info/exclude",
    ]
    .iter()
    .map(|name| repo.common_dir.join(name))
    .collect();
    if repo.git_dir != repo.common_dir {
        paths.push(repo.git_dir.join("config.worktree"));
    }
    paths
}

fn files_in(dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let listing = match std::fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(e) => return Err(GitError::file(dir)(e)),
    };
    let mut paths = Vec::new();
    for entry in listing {
        let entry = entry.map_err(GitError::file(dir))?;
        let kind = entry.file_type().map_err(GitError::file(&entry.path()))?;
        // Git runs no directory, and what lies in one is the user's own arrangement.
        if !kind.is_dir() {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

fn keep(path: &Path) -> Result<Option<Kept>, GitError> {
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(GitError::file(path)(e)),
    };
    if meta.is_symlink() {
        let target = std::fs::read_link(path).map_err(GitError::file(path))?;
        let hex = hex(target.as_os_str().as_bytes());
        return Ok(Some(Kept::Link { hex }));
    }
    if !meta.is_file() {
        // Reading a pipe would never end. Its presence alone is the difference.
        return Ok(Some(Kept::Link { hex: String::new() }));
    }
    let bytes = std::fs::read(path).map_err(GitError::file(path))?;
    Ok(Some(Kept::File {
        hex: hex(&bytes),
        mode: meta.permissions().mode() & 0o7777,
    }))
}

/// Namespaces of ours that move while a run works.
fn is_ours(name: &str, run_branch: &str) -> bool {
    name == run_branch || name.starts_with("refs/dex-local/") || name == "refs/stash"
}

/// Both from one listing: this is asked before and after every attempt.
fn refs_and_stashes(
    repo: &Repo,
    run_branch: &str,
) -> Result<(BTreeMap<String, Oid>, Vec<Oid>), GitError> {
    let all = refs::list(repo, &["refs/"])?;
    let stashes = match all.iter().any(|it| it.name == "refs/stash") {
        true => stashes(repo)?,
        false => Vec::new(),
    };
    let others = all.into_iter().filter(|it| !is_ours(&it.name, run_branch));
    Ok((others.map(|it| (it.name, it.oid)).collect(), stashes))
}

fn ref_changes(before: &BTreeMap<String, Oid>, now: &BTreeMap<String, Oid>) -> Vec<ProtectChange> {
    let mut changes = Vec::new();
    for (name, to) in now {
        let (name, to) = (name.clone(), to.clone());
        match before.get(&name).cloned() {
            None => changes.push(ProtectChange::RefAdded { name, to }),
            Some(from) if from != to => changes.push(ProtectChange::RefMoved { name, from, to }),
            Some(_) => {}
        }
    }
    for (name, from) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
        let (name, from) = (name.clone(), from.clone());
        changes.push(ProtectChange::RefRemoved { name, from });
    }
    changes
}

/// Linked work trees, read as git keeps them: a file `gitdir` each, which names the work tree's
/// own `.git`.
fn worktrees(repo: &Repo) -> Result<BTreeSet<String>, GitError> {
    let dir = repo.common_dir.join("worktrees");
    let listing = match std::fs::read_dir(&dir) {
        Ok(listing) => listing,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(BTreeSet::new());
        }
        Err(e) => return Err(GitError::file(&dir)(e)),
    };
    let mut found = BTreeSet::new();
    for entry in listing {
        let own = entry.map_err(GitError::file(&dir))?.path();
        let Some(bytes) = files::read(&own.join("gitdir"))? else {
            continue;
        };
        // It may be relative, and then it is so to its own directory.
        let dot_git = own.join(os_path(bytes.trim_ascii_end()));
        let root = dot_git.parent().unwrap_or(&dot_git);
        found.insert(root.to_string_lossy().into_owned());
    }
    Ok(found)
}

/// The stash is one for all work trees (case A13): read, never used.
fn stashes(repo: &Repo) -> Result<Vec<Oid>, GitError> {
    let args = ["log", "-g", "--format=%H", "refs/stash", "--"];
    let text = repo.git.read(args).text()?;
    text.lines()
        .map(|line| {
            line.parse()
                .map_err(|_| GitError::answer("log", line.to_owned()))
        })
        .collect()
}

/// A path as a key of the record: any bytes, so in hex where it is not UTF-8.
fn key(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => format!("hex:{}", hex(path.as_os_str().as_bytes())),
    }
}

fn path_of(key: &str) -> PathBuf {
    match key.strip_prefix("hex:") {
        Some(hex) => os_path(&unhex(hex)),
        None => PathBuf::from(key),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).unwrap_or(0) as u8;
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

//! Refs by compare-and-swap, one fresh `git update-ref --stdin` process per transaction.
//!
//! A long-lived git process can let an update through that it should refuse (its cached
//! packed-refs can be stale), and gix can lose acknowledged updates beside `git pack-refs`; so
//! each transaction is a new process, every edit names the value it expects, and a lost race is
//! a value, not an error to retry.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::fault;
use crate::repo::{ObjectFormat, RefFormat};
use crate::{GitError, Oid, Repo, files};

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

/// How long a lock of another git process is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Applies all edits or none, with `message` in the reflog where there is one.
///
/// Waits, bounded (5 s), for locks other git processes hold; then [`GitError::Locked`].
pub fn apply(repo: &Repo, edits: &[Edit], message: &str) -> Result<Applied, GitError> {
    if edits.is_empty() {
        return Ok(Applied::Done);
    }
    let script = script(repo, edits);
    let deadline = Instant::now() + LOCK_WAIT;
    let mut refused_before = false;
    for turn in 0.. {
        fault::point("refs.before");
        let out = repo
            .git
            .write(["update-ref", "-m", &one_line(message), "--stdin", "-z"])
            .stdin(script.clone())
            .output()?;
        if out.status == Some(0) {
            sync_directories(repo, edits)?;
            fault::point("refs.after");
            return Ok(Applied::Done);
        }
        // Git's words for a lost race and for a lock resemble each other; only a fresh read
        // tells them apart.
        if let Some(moved) = first_moved(repo, edits)? {
            return Ok(moved);
        }
        match lock_named_in(&out.stderr) {
            Some(path) if Instant::now() >= deadline => {
                return Err(GitError::Locked {
                    age_s: age_s(&path),
                    path,
                });
            }
            Some(_) => std::thread::sleep(jitter(turn)),
            None if refused_before => return Err(out.failed("update-ref")),
            None => refused_before = true,
        }
    }
    unreachable!("the loop above only ends by returning")
}

/// Reads one ref afresh.
pub fn read(repo: &Repo, name: &str) -> Result<Option<Oid>, GitError> {
    if let Some(oid) = read_loose(repo, name)? {
        return Ok(Some(oid));
    }
    let found = for_each(repo, &[name])?;
    Ok(found
        .into_iter()
        .find(|it| it.name == name)
        .map(|it| it.oid))
}

/// The value in the ref's own file, which outranks `packed-refs` and is only ever replaced whole:
/// a stage reads its branch often, and a process for each costs more than the rest. Whatever is
/// not plainly an id (no file, a symbolic ref, another format) is git's to read.
fn read_loose(repo: &Repo, name: &str) -> Result<Option<Oid>, GitError> {
    // Refs of these kinds belong to all work trees, so their files are in the common directory.
    let shared = ["refs/heads/", "refs/tags/", "refs/dex-local/"];
    let plain = repo.ref_format == RefFormat::Files
        && shared.iter().any(|it| name.starts_with(it))
        && !name.split('/').any(|part| matches!(part, "" | "." | ".."));
    let path = repo.common_dir.join(name);
    if !plain || !path.symlink_metadata().is_ok_and(|it| it.is_file()) {
        return Ok(None);
    }
    let bytes = files::read(&path)?.unwrap_or_default();
    let text = std::str::from_utf8(&bytes).ok();
    let oid = text.and_then(|it| it.strip_suffix('\n')?.parse::<Oid>().ok());
    let null = repo.object_format.null();
    Ok(oid.filter(|it| it.as_str().len() == null.len() && it.as_str() != null))
}

/// Every ref under any of the prefixes (`refs/heads/dex/`), sorted by name.
pub fn list(repo: &Repo, prefixes: &[&str]) -> Result<Vec<Ref>, GitError> {
    if prefixes.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = for_each(repo, prefixes)?;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup();
    Ok(found)
}

fn for_each(repo: &Repo, patterns: &[&str]) -> Result<Vec<Ref>, GitError> {
    let format = "--format=%(refname)%00%(objectname)";
    let out = repo
        .git
        .read(
            ["for-each-ref", format]
                .into_iter()
                .chain(patterns.iter().copied()),
        )
        .output()?;
    // A ref that cannot be read is left out with a warning. "Not there" would be the wrong
    // answer (case A19).
    if out.status != Some(0) || out.stderr.contains("broken ref") {
        return Err(out.failed("for-each-ref"));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    text.lines().map(read_line).collect()
}

fn read_line(line: &str) -> Result<Ref, GitError> {
    let fields = line.split_once('\0');
    let (name, oid) = fields.ok_or_else(|| GitError::answer("for-each-ref", line))?;
    let oid = oid
        .parse()
        .map_err(|_| GitError::answer("for-each-ref", line))?;
    Ok(Ref {
        name: name.to_owned(),
        oid,
    })
}

/// The transaction as `update-ref --stdin -z` reads it. `no-deref`, because a name under our
/// control that somebody made symbolic must not move what it points at.
fn script(repo: &Repo, edits: &[Edit]) -> Vec<u8> {
    let null = repo.object_format.null();
    let expected = |expect: &Expect| match expect {
        Expect::Absent => null.to_owned(),
        Expect::At(oid) => oid.to_string(),
    };
    let mut script = String::new();
    for edit in edits {
        script.push_str("option no-deref\0");
        match edit {
            Edit::Set { name, expect, to } => {
                script.push_str(&format!("update {name}\0{to}\0{}\0", expected(expect)));
            }
            Edit::Delete { name, expect } => {
                script.push_str(&format!("delete {name}\0{expect}\0"));
            }
            Edit::Verify { name, expect } => {
                script.push_str(&format!("verify {name}\0{}\0", expected(expect)));
            }
        }
    }
    script.into_bytes()
}

fn first_moved(repo: &Repo, edits: &[Edit]) -> Result<Option<Applied>, GitError> {
    let names: Vec<&str> = edits.iter().map(Edit::name).collect();
    let now = for_each(repo, &names)?;
    for edit in edits {
        let found = now.iter().find(|it| it.name == edit.name());
        let found = found.map(|it| it.oid.clone());
        if found.as_ref() != edit.expected() {
            return Ok(Some(Applied::Moved {
                name: edit.name().to_owned(),
                found,
            }));
        }
    }
    Ok(None)
}

impl Edit {
    /// The ref it is about.
    pub fn name(&self) -> &str {
        match self {
            Edit::Set { name, .. } | Edit::Delete { name, .. } | Edit::Verify { name, .. } => name,
        }
    }

    /// The value it expects; none when the ref must not exist.
    fn expected(&self) -> Option<&Oid> {
        match self {
            Edit::Set { expect, .. } | Edit::Verify { expect, .. } => match expect {
                Expect::Absent => None,
                Expect::At(oid) => Some(oid),
            },
            Edit::Delete { expect, .. } => Some(expect),
        }
    }
}

impl ObjectFormat {
    /// The id that stands for "none": its width is the format's (case C23).
    pub fn null(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "0000000000000000000000000000000000000000",
            ObjectFormat::Sha256 => {
                "0000000000000000000000000000000000000000000000000000000000000000"
            }
        }
    }
}

/// Git syncs the ref's file but not the directory that names it.
fn sync_directories(repo: &Repo, edits: &[Edit]) -> Result<(), GitError> {
    if repo.ref_format == RefFormat::Reftable {
        return Ok(());
    }
    let mut synced: Vec<PathBuf> = Vec::new();
    for edit in edits {
        let Some(parent) = repo
            .common_dir
            .join(edit.name())
            .parent()
            .map(PathBuf::from)
        else {
            continue;
        };
        // A deletion may have taken the directory with it.
        if synced.contains(&parent) || !parent.is_dir() {
            continue;
        }
        crate::files::sync_dir(&parent)?;
        synced.push(parent);
    }
    Ok(())
}

/// The lock file git could not create, from `Unable to create '<path>': File exists`.
pub(crate) fn lock_named_in(stderr: &str) -> Option<PathBuf> {
    let (_, rest) = stderr.split_once("Unable to create '")?;
    let (path, rest) = rest.split_once("': ")?;
    rest.starts_with("File exists").then(|| PathBuf::from(path))
}

/// A lock's age in seconds; 0 when it has gone meanwhile.
pub(crate) fn age_s(path: &std::path::Path) -> u64 {
    let modified = std::fs::symlink_metadata(path).and_then(|meta| meta.modified());
    modified
        .ok()
        .and_then(|then| SystemTime::now().duration_since(then).ok())
        .map_or(0, |age| age.as_secs())
}

/// 10 to 250 ms, growing, never in step with another waiter.
pub(crate) fn jitter(turn: u32) -> Duration {
    let base = 10_u64 << turn.min(4);
    let noise = uuid::Uuid::now_v7().as_bytes()[15];
    Duration::from_millis(base + u64::from(noise) % base)
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\0'], " ")
}

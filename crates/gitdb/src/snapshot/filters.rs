//! Filter drivers that may not run, and the paths that would need them.

use std::collections::BTreeSet;

use super::capture::covers;
use super::{PrivateIndex, RawChange, SnapshotError};
use crate::repo::read::nul_split;
use crate::{GitError, Oid, Repo};

/// A path whose attribute names a driver that may not run.
pub(super) struct Needed {
    pub(super) driver: String,
    pub(super) path: String,
}

/// Stops before the add when a changed path needs a blanked driver: stored without it, the
/// content would be wrong (and could be what the driver was to encrypt).
pub(super) fn check_adding(repo: &Repo, exclude: &[Vec<u8>]) -> Result<(), SnapshotError> {
    let blanked = repo.settings.blanked_filters();
    if blanked.is_empty() {
        return Ok(());
    }
    let changed = repo.status()?.into_iter().map(|entry| entry.path);
    let changed: Vec<Vec<u8>> = changed
        .filter(|path| !exclude.iter().any(|it| covers(it, path)))
        .collect();
    match first_needing(repo, &blanked, &changed, None)? {
        Some(Needed { driver, path }) => Err(SnapshotError::FilterNotAllowed { driver, path }),
        None => Ok(()),
    }
}

/// The first tracked file that needs a filter driver which may not run (driver, path): what a
/// caller asks before anything is paid for, since no stage that touches it could be committed.
pub fn filter_not_allowed(repo: &Repo) -> Result<Option<(String, String)>, GitError> {
    let blanked = repo.settings.blanked_filters();
    if blanked.is_empty() {
        return Ok(None);
    }
    let raw = repo.git.read(["ls-files", "-z"]).bytes()?;
    let tracked: Vec<Vec<u8>> = nul_split(&raw).map(<[u8]>::to_vec).collect();
    let needed = first_needing(repo, &blanked, &tracked, None)?;
    Ok(needed.map(|it| (it.driver, it.path)))
}

/// As [`check_adding`], for files that `tree` would write to disk.
pub(super) fn check_writing(
    repo: &Repo,
    tree: &Oid,
    changes: &[RawChange],
) -> Result<(), GitError> {
    let blanked = repo.settings.blanked_filters();
    if blanked.is_empty() {
        return Ok(());
    }
    let target = PrivateIndex::empty(repo)?;
    repo.git
        .write(["read-tree", tree.as_str()])
        .index(&target.path)
        .bytes()?;
    let written = changes.iter().filter(|it| it.new_mode != 0);
    let written: Vec<Vec<u8>> = written.map(|it| it.path.clone()).collect();
    match first_needing(repo, &blanked, &written, Some(&target))? {
        Some(Needed { driver, path }) => Err(GitError::FilterNotAllowed { driver, path }),
        None => Ok(()),
    }
}

fn first_needing(
    repo: &Repo,
    blanked: &BTreeSet<String>,
    paths: &[Vec<u8>],
    attributes_of: Option<&PrivateIndex>,
) -> Result<Option<Needed>, GitError> {
    let mut input = Vec::new();
    for path in paths {
        input.extend_from_slice(path);
        input.push(0);
    }
    let mut args = vec!["check-attr", "-z", "--stdin"];
    args.extend(attributes_of.map(|_| "--cached"));
    args.push("filter");
    let mut call = repo.git.read(args).stdin(input);
    if let Some(index) = attributes_of {
        call = call.index(&index.path);
    }
    let raw = call.bytes()?;
    let mut fields = nul_split(&raw);
    while let (Some(path), Some(_), Some(driver)) = (fields.next(), fields.next(), fields.next()) {
        let driver = String::from_utf8_lossy(driver).into_owned();
        if blanked.contains(&driver) {
            let path = String::from_utf8_lossy(path).into_owned();
            return Ok(Some(Needed { driver, path }));
        }
    }
    Ok(None)
}

//! The files in the git directory that say an operation is in progress.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::repo::RefFormat;
use crate::{GitError, Oid, Repo, files};

const FILES: &[&str] = &[
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "AUTO_MERGE",
    "SQUASH_MSG",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "BISECT_EXPECTED_REV",
    "BISECT_ANCESTORS_OK",
    "BISECT_FIRST_PARENT",
    "BISECT_RUN",
];

const DIRECTORIES: &[&str] = &["rebase-merge", "rebase-apply", "sequencer"];

/// Operation refs that reftable keeps itself.
const ROOT_REFS: &[&str] = &[
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
];

/// Names, relative to the git directory, of the files that are there now.
pub(super) fn present(repo: &Repo) -> Result<Vec<PathBuf>, GitError> {
    let mut found = Vec::new();
    for name in FILES {
        if repo.git_dir.join(name).is_file() {
            found.push(PathBuf::from(name));
        }
    }
    for name in DIRECTORIES {
        walk(&repo.git_dir, Path::new(name), &mut found)?;
    }
    Ok(found)
}

fn walk(root: &Path, relative: &Path, found: &mut Vec<PathBuf>) -> Result<(), GitError> {
    let dir = root.join(relative);
    let listing = match std::fs::read_dir(&dir) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(GitError::file(&dir)(e)),
    };
    for entry in listing {
        let entry = entry.map_err(GitError::file(&dir))?;
        let kind = entry.file_type().map_err(GitError::file(&entry.path()))?;
        let below = relative.join(entry.file_name());
        if kind.is_dir() {
            walk(root, &below, found)?;
        } else if kind.is_file() {
            found.push(below);
        }
    }
    Ok(())
}

/// Operation refs of a reftable repository.
pub(super) fn root_refs(repo: &Repo) -> Result<BTreeMap<String, Oid>, GitError> {
    if repo.ref_format == RefFormat::Files {
        return Ok(BTreeMap::new());
    }
    let all = repo.root_refs()?;
    Ok(all
        .into_iter()
        .filter(|(name, _)| ROOT_REFS.contains(&name.as_str()))
        .collect())
}

/// Puts back exactly these files and refs; others of the kind go.
pub(super) fn put_back(
    repo: &Repo,
    wanted: &[(PathBuf, Vec<u8>)],
    refs: &BTreeMap<String, Oid>,
) -> Result<(), GitError> {
    for path in present(repo)? {
        if !wanted.iter().any(|(name, _)| *name == path) {
            files::remove(&repo.git_dir.join(path))?;
        }
    }
    for name in DIRECTORIES {
        if !wanted.iter().any(|(path, _)| path.starts_with(name)) {
            let dir = repo.git_dir.join(name);
            match std::fs::remove_dir_all(&dir) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(GitError::file(&dir)(e));
                }
                _ => {}
            }
        }
    }
    for (path, bytes) in wanted {
        files::write(&repo.git_dir.join(path), bytes, 0o644)?;
    }
    if repo.ref_format == RefFormat::Files {
        return Ok(());
    }
    let now = root_refs(repo)?;
    for name in now.keys().filter(|name| !refs.contains_key(*name)) {
        repo.git.write(["update-ref", "-d", name]).bytes()?;
    }
    for (name, oid) in refs {
        repo.git.write(["update-ref", name, oid.as_str()]).bytes()?;
    }
    Ok(())
}

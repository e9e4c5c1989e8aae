//! Files that an index tells git not to look at.

use std::path::Path;

use super::PrivateIndex;
use crate::repo::read::{nul_split, os_path};
use crate::{GitError, Repo};

/// Clears the bits that make git look away (assume-unchanged, skip-worktree) where a file is
/// there, so that its content is captured too. Returns those a sparse checkout leaves out.
pub(crate) fn expose_hidden(repo: &Repo, private: &PrivateIndex) -> Result<Vec<Vec<u8>>, GitError> {
    if !private.path.exists() {
        return Ok(Vec::new());
    }
    let root = repo.work_tree_or_error()?;
    let mut hidden = Hidden::read(repo, &private.path)?;
    let there = |path: &Vec<u8>| root.join(os_path(path)).symlink_metadata().is_ok();
    hidden.assumed.retain(there);
    hidden.skipped.retain(there);
    hidden.clear(repo, &private.path)?;
    Ok(hidden.skipped)
}

/// Paths an index tells git not to look at, raw bytes.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Assume-unchanged.
    pub(crate) assumed: Vec<Vec<u8>>,
    /// Skip-worktree: by hand, or left out by a sparse checkout.
    pub(crate) skipped: Vec<Vec<u8>>,
}

impl Hidden {
    /// Reads the bits of an index.
    pub(crate) fn read(repo: &Repo, index: &Path) -> Result<Hidden, GitError> {
        let mut hidden = Hidden::default();
        // Without sparse checkout in force, git does not clear skip-worktree by itself on reading.
        let args = ["-c", "core.sparseCheckout=false", "ls-files", "-v", "-z"];
        let raw = repo.git.read(args).index(index).bytes()?;
        for line in nul_split(&raw) {
            let [tag, b' ', path @ ..] = line else {
                continue;
            };
            if tag.is_ascii_lowercase() {
                hidden.assumed.push(path.to_vec());
            }
            if matches!(tag, b'S' | b's') {
                hidden.skipped.push(path.to_vec());
            }
        }
        Ok(hidden)
    }

    /// Clears these bits in an index.
    pub(crate) fn clear(&self, repo: &Repo, index: &Path) -> Result<(), GitError> {
        clear(repo, index, &self.assumed, "--no-assume-unchanged")?;
        clear(repo, index, &self.skipped, "--no-skip-worktree")
    }
}

fn clear(repo: &Repo, index: &Path, paths: &[Vec<u8>], flag: &str) -> Result<(), GitError> {
    if paths.is_empty() {
        return Ok(());
    }
    let mut input = paths.join(&0);
    input.push(0);
    let args = [
        "-c",
        "core.splitIndex=false",
        "-c",
        "core.sparseCheckout=false",
    ];
    let rest = ["update-index", "-z", flag, "--stdin"];
    repo.git
        .write(args.iter().chain(&rest))
        .index(index)
        .stdin(input)
        .bytes()
        .map(drop)
}

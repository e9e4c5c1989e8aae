//! Files that an index tells git not to look at.

use super::PrivateIndex;
use crate::repo::read::{nul_split, os_path};
use crate::{GitError, Repo};

/// Clears the bits that make git look away (assume-unchanged, skip-worktree) where a file is
/// there, so that its content is captured too. Returns those a sparse checkout leaves out.
pub(crate) fn expose_hidden(repo: &Repo, private: &PrivateIndex) -> Result<Vec<Vec<u8>>, GitError> {
    if !private.path.exists() {
        return Ok(Vec::new());
    }
    // Without sparse checkout in force, git does not clear skip-worktree by itself on reading.
    let args = ["-c", "core.sparseCheckout=false", "ls-files", "-v", "-z"];
    let raw = repo.git.read(args).index(&private.path).bytes()?;
    let root = repo.work_tree_or_error()?;
    let (mut assumed, mut skipped) = (Vec::new(), Vec::new());
    for line in nul_split(&raw) {
        let [tag, b' ', path @ ..] = line else {
            continue;
        };
        let skip = matches!(tag, b'S' | b's');
        if (skip || tag.is_ascii_lowercase()) && root.join(os_path(path)).symlink_metadata().is_ok()
        {
            if tag.is_ascii_lowercase() {
                assumed.push(path.to_vec());
            }
            if skip {
                skipped.push(path.to_vec());
            }
        }
    }
    for (paths, flag) in [
        (&assumed, "--no-assume-unchanged"),
        (&skipped, "--no-skip-worktree"),
    ] {
        if !paths.is_empty() {
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
                .index(&private.path)
                .stdin(input)
                .bytes()?;
        }
    }
    Ok(skipped)
}

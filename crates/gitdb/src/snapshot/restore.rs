//! Putting a tree back into the work tree.

use std::collections::HashMap;
use std::path::Path;

use super::capture::{GITLINK, covers, index_info, is_repository, update_index, write_tree};
use super::{Capture, OwnLock, PrivateIndex, RawChange, filters, raw_changes};
use crate::repo::read::os_path;
use crate::{GitError, Oid, Repo, fault, files};

/// What the user's index becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IndexAfter<'a> {
    /// What was restored.
    Tree,
    /// These very bytes; none removes the file.
    Raw(Option<&'a [u8]>),
}

/// Makes the files equal to `tree`, `keep` left as it is.
///
/// Git does the writing: `read-tree -m -u` from the tree the files are now to the one wanted,
/// on a private index. It checks everything before it changes anything, removes what is only
/// in the first tree, and follows no symbolic link (case C11). The user's `index.lock` is held
/// throughout, and the index is replaced last.
pub(crate) fn restore(
    repo: &Repo,
    tree: &Oid,
    keep: &[Vec<u8>],
    index: IndexAfter<'_>,
) -> Result<(), GitError> {
    let private = PrivateIndex::copy(repo)?;
    let marker = Marker::new(repo)?;
    fault::point("restore.lock.before");
    let lock = OwnLock::take(repo, &marker.0)?;
    fault::point("restore.lock.after");
    let parent = repo.resolve_commit("HEAD")?;
    let capture = Capture {
        repo,
        parent: parent.as_ref(),
        exclude: keep,
    };
    capture.add(&private)?;
    let (now, _) = capture.tree(&private)?;
    let changes = raw_changes(repo, &now, tree)?;
    let target = with_kept(repo, tree, &changes, keep)?;
    let changes = match &target == tree {
        true => changes,
        false => raw_changes(repo, &now, &target)?,
    };
    check_readable(repo, &changes)?;
    filters::check_writing(repo, &target, &changes)?;
    fault::point("restore.files.before");
    if !changes.is_empty() {
        let args = ["-c", "core.splitIndex=false", "read-tree", "-m", "-u"];
        repo.git
            .write(args.iter().copied().chain([now.as_str(), target.as_str()]))
            .index(&private.path)
            .bytes()?;
    }
    fault::point("restore.files.after");
    match index {
        IndexAfter::Tree => lock.replace_with(&private.path)?,
        IndexAfter::Raw(Some(bytes)) => {
            files::write(&private.path, bytes, 0o644)?;
            lock.replace_with(&private.path)?;
        }
        IndexAfter::Raw(None) => {
            files::remove(&repo.git_dir.join("index"))?;
            return lock.release();
        }
    }
    fault::point("restore.index.before");
    lock.into_index()?;
    fault::point("restore.index.after");
    Ok(())
}

/// A file of ours whose inode marks the lock.
struct Marker(std::path::PathBuf);

impl Marker {
    fn new(repo: &Repo) -> Result<Marker, GitError> {
        let path = PrivateIndex::empty(repo)?.path.with_extension("lockmark");
        files::write(&path, b"", 0o600)?;
        Ok(Marker(path))
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The tree to restore, with every path that must stay as it is taken from what is there now:
/// what the caller keeps, and whatever lies in a nested repository.
fn with_kept(
    repo: &Repo,
    tree: &Oid,
    changes: &[RawChange],
    keep: &[Vec<u8>],
) -> Result<Oid, GitError> {
    let root = repo.work_tree_or_error()?;
    let mut nested = Nested::new(root);
    let mut input = Vec::new();
    for change in changes {
        let kept = keep.iter().any(|it| covers(it, &change.path));
        let inside =
            change.new_mode != GITLINK && change.old_mode != GITLINK && nested.holds(&change.path);
        if kept || inside {
            index_info(&mut input, change.old_mode, &change.old, &change.path);
        }
    }
    if input.is_empty() {
        return Ok(tree.clone());
    }
    let scratch = PrivateIndex::empty(repo)?;
    repo.git
        .write(["read-tree", tree.as_str()])
        .index(&scratch.path)
        .bytes()?;
    update_index(repo, &scratch, input)?;
    write_tree(repo, &scratch.path)
}

/// Which directories are repositories of their own, asked once each.
struct Nested<'a> {
    root: &'a Path,
    known: HashMap<Vec<u8>, bool>,
}

impl<'a> Nested<'a> {
    fn new(root: &'a Path) -> Self {
        Nested {
            root,
            known: HashMap::new(),
        }
    }

    /// Whether the path, or a directory above it, is a nested repository.
    fn holds(&mut self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        let ends: Vec<usize> = ends.map(|(at, _)| at).chain([path.len()]).collect();
        ends.into_iter().any(|end| {
            let dir = &path[..end];
            if let Some(known) = self.known.get(dir) {
                return *known;
            }
            let full = self.root.join(os_path(dir));
            // A link to a repository elsewhere is a link, not a nested repository.
            let found = !full.is_symlink() && is_repository(&full);
            self.known.insert(dir.to_vec(), found);
            found
        })
    }
}

/// Every blob that will be written must be readable before anything changes (case A19).
fn check_readable(repo: &Repo, changes: &[RawChange]) -> Result<(), GitError> {
    let mut input = String::new();
    for change in changes {
        if change.new_mode != 0 && change.new_mode != GITLINK {
            input.push_str(change.new.as_str());
            input.push('\n');
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    let out = repo
        .git
        .read(["cat-file", "--batch-check=%(objectname) %(objecttype)"])
        .stdin(input)
        .bytes()?;
    let text = String::from_utf8_lossy(&out);
    match text.lines().find(|line| !line.ends_with(" blob")) {
        Some(line) => Err(GitError::answer("cat-file", line)),
        None => Ok(()),
    }
}

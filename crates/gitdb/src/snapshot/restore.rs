//! Putting a tree back into the work tree.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::capture::{GITLINK, covers, index_info, is_repository, update_index, write_tree};
use super::{Capture, OwnLock, PrivateIndex, RawChange, expose_hidden, filters, raw_changes};
use crate::repo::read::{nul_split, os_path};
use crate::{GitError, Oid, Repo, fault, files};

/// What the user's index becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IndexAfter<'a> {
    /// What was restored.
    Tree,
    /// These very bytes, with the time they had; none removes the file.
    Raw {
        bytes: Option<&'a [u8]>,
        time: Option<SystemTime>,
    },
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
    if let IndexAfter::Raw { .. } = index {
        // The flags come back with the bytes; what they hide is in the entry's tree.
        expose_hidden(repo, &private)?;
    }
    capture.add(&private)?;
    let (now, _) = capture.tree(&private)?;
    let changes = raw_changes(repo, &now, tree)?;
    let ignored = ignored_after(repo, tree, &changes)?;
    let target = with_kept(repo, tree, &changes, keep, &ignored)?;
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
        IndexAfter::Tree => {
            untrack(repo, &private, &ignored)?;
            lock.replace_with(&private.path)?;
        }
        IndexAfter::Raw {
            bytes: Some(bytes),
            time,
        } => {
            files::write(&private.path, bytes, mode_of_index(repo))?;
            if let Some(time) = time {
                files::set_modified(&private.path, time)?;
            }
            lock.replace_with(&private.path)?;
        }
        IndexAfter::Raw { bytes: None, .. } => {
            files::remove(&repo.git_dir.join("index"))?;
            return lock.release();
        }
    }
    fault::point("restore.index.before");
    lock.into_index()?;
    fault::point("restore.index.after");
    Ok(())
}

/// The permissions the user's index has (`core.sharedRepository`).
fn mode_of_index(repo: &Repo) -> u32 {
    let meta = repo.git_dir.join("index").metadata();
    meta.map_or(0o644, |it| it.permissions().mode())
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
    ignored: &[Vec<u8>],
) -> Result<Oid, GitError> {
    let root = repo.work_tree_or_error()?;
    let mut nested = Nested::new(root);
    let mut input = Vec::new();
    for change in changes {
        let kept = keep.iter().any(|it| covers(it, &change.path));
        let inside =
            change.new_mode != GITLINK && change.old_mode != GITLINK && nested.holds(&change.path);
        if kept || inside || ignored.contains(&change.path) {
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

/// Files that would be deleted although the ignore rules that come back cover them: an ignored
/// file that looks untracked only because `.gitignore` is a different one now.
fn ignored_after(repo: &Repo, tree: &Oid, changes: &[RawChange]) -> Result<Vec<Vec<u8>>, GitError> {
    let is_rules = |path: &[u8]| path == b".gitignore" || path.ends_with(b"/.gitignore");
    let deleted: Vec<&[u8]> = changes
        .iter()
        .filter(|it| it.new_mode == 0)
        .map(|it| it.path.as_slice())
        .collect();
    if deleted.is_empty() || !changes.iter().any(|it| is_rules(&it.path)) {
        return Ok(Vec::new());
    }
    // Git reads ignore rules from a work tree, so the ones of `tree` get one of their own.
    let scratch = PrivateIndex::empty(repo)?;
    let read_tree = [
        "-c",
        "core.sparseCheckout=false",
        "read-tree",
        tree.as_str(),
    ];
    repo.git.write(read_tree).index(&scratch.path).bytes()?;
    let rules = Rules(scratch.path.with_extension("rules"));
    std::fs::create_dir_all(&rules.0).map_err(GitError::file(&rules.0))?;
    let list = ["ls-files", "-z", "--", ":(top,glob)**/.gitignore"];
    let names = repo.git.read(list).index(&scratch.path).bytes()?;
    let mut prefix = std::ffi::OsString::from("--prefix=");
    prefix.push(rules.0.join(""));
    let args = ["checkout-index", "-q", "-z", "--stdin"];
    let args = args.iter().map(std::ffi::OsString::from).chain([prefix]);
    repo.git
        .write(args)
        .index(&scratch.path)
        .stdin(names)
        .bytes()?;
    let mut there = repo.git.clone();
    there.work_tree = Some(rules.0.clone());
    there.dir = rules.0.clone();
    let mut input = deleted.join(&0);
    input.push(0);
    let out = there
        .read(["check-ignore", "--no-index", "-z", "--stdin"])
        .index(&scratch.path)
        .stdin(input)
        .output()?;
    match out.status {
        // 1: none is ignored.
        Some(0 | 1) => Ok(nul_split(&out.stdout).map(<[u8]>::to_vec).collect()),
        _ => Err(out.failed("check-ignore")),
    }
}

/// A directory of ours that goes again.
struct Rules(std::path::PathBuf);

impl Drop for Rules {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Forgets files that were only added to see what is there.
fn untrack(repo: &Repo, private: &PrivateIndex, paths: &[Vec<u8>]) -> Result<(), GitError> {
    let mut input = Vec::new();
    for path in paths {
        index_info(&mut input, 0, &repo.empty_tree(), path);
    }
    update_index(repo, private, input)
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

//! Files whose bytes git would not give back.
//!
//! Line-end conversion and filters may store something else than what is on disk, and writing
//! that out again need not give the same bytes (a CRLF file under `eol=lf`, and also the other
//! way round). An entry keeps files that are stored converted once more, as they are, in its
//! tree `raw`; and after a restore every file that had changes is compared byte for byte.

use std::path::Path;

use super::entry::mktree_of;
use crate::repo::read::{os_path, parse_oid};
use crate::snapshot::{RawChange, raw_changes};
use crate::{GitError, Oid, Repo, files};

/// The tree of files that are stored otherwise than they are, none when all are as stored. Files
/// that are as `base` has them, while the index says otherwise, are always in it: a restore
/// writes them anew.
pub(super) fn tree(
    repo: &Repo,
    changes: &[RawChange],
    staged: &[RawChange],
    base: &Oid,
) -> Result<Option<Oid>, GitError> {
    let root = repo.work_tree_or_error()?;
    let files: Vec<&RawChange> = changes.iter().filter(|it| is_file(root, it)).collect();
    let as_is = hash(repo, &files, &[])?;
    let mut converted = Vec::new();
    for (change, oid) in files.into_iter().zip(as_is) {
        if oid != change.new {
            converted.push(change);
        }
    }
    let in_base = staged
        .iter()
        .filter(|it| !changes.iter().any(|other| other.path == it.path))
        .map(|it| RawChange {
            new_mode: it.old_mode,
            ..it.clone()
        });
    let in_base: Vec<RawChange> = in_base.filter(|it| is_file(root, it)).collect();
    converted.extend(&in_base);
    let stored = hash(repo, &converted, &["-w"])?;
    let entries: Vec<(u32, Oid, &[u8])> = converted
        .iter()
        .zip(stored)
        .map(|(change, oid)| (change.new_mode, oid, change.path.as_slice()))
        .collect();
    mktree_of(repo, &entries, base)
}

/// A regular file, in the tree and on disk.
fn is_file(root: &Path, change: &RawChange) -> bool {
    let meta = root.join(os_path(&change.path)).symlink_metadata();
    change.new_mode & 0o170000 == 0o100000 && meta.is_ok_and(|meta| meta.is_file())
}

fn hash(repo: &Repo, files: &[&RawChange], extra: &[&str]) -> Result<Vec<Oid>, GitError> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let mut input = Vec::new();
    for change in files {
        quote(&mut input, &change.path);
    }
    let args = ["hash-object", "--no-filters", "--stdin-paths"];
    let text = repo
        .git
        .write(args.iter().chain(extra))
        .stdin(input)
        .text()?;
    let oids: Vec<Oid> = text
        .lines()
        .map(|line| parse_oid("hash-object", line.as_bytes()))
        .collect::<Result<_, _>>()?;
    if oids.len() == files.len() {
        Ok(oids)
    } else {
        Err(GitError::answer("hash-object", "a line is missing"))
    }
}

/// A path as git unquotes it: one line, whatever bytes it has.
fn quote(line: &mut Vec<u8>, path: &[u8]) {
    line.push(b'"');
    for byte in path {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', *byte]),
            b' '..=b'~' => line.push(*byte),
            _ => line.extend(format!("\\{byte:03o}").into_bytes()),
        }
    }
    line.extend(b"\"\n");
}

/// Makes every file that had changes byte for byte what it was. `changes` are those of the
/// entry against its HEAD, `raw` its tree of unconverted files.
pub(super) fn put_back(
    repo: &Repo,
    changes: &[RawChange],
    raw: Option<&Oid>,
) -> Result<(), GitError> {
    let root = repo.work_tree_or_error()?;
    let kept = match raw {
        Some(tree) => raw_changes(repo, &repo.empty_tree(), tree)?,
        None => Vec::new(),
    };
    let changed = |path: &[u8]| changes.iter().any(|it| it.path == path);
    let in_base = kept.iter().filter(|it| !changed(&it.path));
    let files = changes.iter().chain(in_base);
    let files: Vec<&RawChange> = files.filter(|it| is_file(root, it)).collect();
    let on_disk = hash(repo, &files, &[])?;
    for (change, found) in files.into_iter().zip(on_disk) {
        let as_it_was = kept.iter().find(|it| it.path == change.path);
        let wanted = as_it_was.map_or(&change.new, |it| &it.new);
        if found != *wanted {
            let args = ["cat-file", "blob", wanted.as_str()];
            let bytes = repo.git.read(args).bytes()?;
            let path = os_path(&change.path);
            files::write_beneath(root, &path, &bytes, change.new_mode & 0o777)?;
        }
    }
    Ok(())
}

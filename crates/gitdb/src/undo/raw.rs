//! Files whose bytes git would not give back.
//!
//! Line-end conversion and filters may store something else than what is on disk, and writing
//! that out again need not give the same bytes (a CRLF file under `eol=lf`). An entry keeps such
//! files once more, unconverted, in its tree `raw`.

use super::entry::mktree_of;
use crate::repo::read::{nul_split, os_path, parse_oid};
use crate::snapshot::RawChange;
use crate::{GitError, Oid, Repo, files};

/// The tree of files that are stored otherwise than they are, none when all are as stored.
pub(super) fn tree(
    repo: &Repo,
    changes: &[RawChange],
    base: &Oid,
) -> Result<Option<Oid>, GitError> {
    let root = repo.work_tree_or_error()?;
    let is_file = |it: &&RawChange| {
        let meta = root.join(os_path(&it.path)).symlink_metadata();
        it.new_mode & 0o170000 == 0o100000 && meta.is_ok_and(|meta| meta.is_file())
    };
    let files: Vec<&RawChange> = changes.iter().filter(is_file).collect();
    let as_is = hash(repo, &files, &[])?;
    let mut converted = Vec::new();
    for (change, oid) in files.into_iter().zip(as_is) {
        if oid != change.new {
            converted.push(change);
        }
    }
    let stored = hash(repo, &converted, &["-w"])?;
    let entries: Vec<(u32, Oid, &[u8])> = converted
        .iter()
        .zip(stored)
        .map(|(change, oid)| (change.new_mode, oid, change.path.as_slice()))
        .collect();
    mktree_of(repo, &entries, base)
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

/// Writes the unconverted bytes over what git wrote.
pub(super) fn put_back(repo: &Repo, tree: &Oid) -> Result<(), GitError> {
    let root = repo.work_tree_or_error()?;
    let args = ["ls-tree", "-r", "-z", "--full-tree", tree.as_str()];
    let raw = repo.git.read(args).bytes()?;
    for line in nul_split(&raw) {
        let wrong = || GitError::answer("ls-tree", String::from_utf8_lossy(line));
        let tab = line.iter().position(|b| *b == b'\t').ok_or_else(wrong)?;
        let head = String::from_utf8_lossy(&line[..tab]);
        let mut fields = head.split(' ');
        let executable = fields.next() == Some("100755");
        let oid = fields.nth(1).ok_or_else(wrong)?;
        let bytes = repo.git.read(["cat-file", "blob", oid]).bytes()?;
        let mode = if executable { 0o755 } else { 0o644 };
        files::write_beneath(root, &os_path(&line[tab + 1..]), &bytes, mode)?;
    }
    Ok(())
}

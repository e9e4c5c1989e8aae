//! What a run needs around its branch: worktrees, exclusions, a plain save.

use std::path::{Path, PathBuf};

use super::Repo;
use super::read::{nul_split, os_path};
use crate::{GitError, Oid, files, refs};

impl Repo {
    /// Adds lines to `info/exclude` that are not there yet; everything else stays byte for byte.
    pub fn exclude(&self, lines: &[&str]) -> Result<(), GitError> {
        let path = self.common_dir.join("info/exclude");
        let before = files::read(&path)?.unwrap_or_default();
        let known = |line: &str| {
            before
                .split(|b| *b == b'\n')
                .any(|it| it == line.as_bytes())
        };
        let missing: Vec<&str> = lines.iter().copied().filter(|line| !known(line)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut after = before.clone();
        if !after.is_empty() && after.last() != Some(&b'\n') {
            after.push(b'\n');
        }
        for line in missing {
            after.extend_from_slice(line.as_bytes());
            after.push(b'\n');
        }
        write_exclude(&path, &after)
    }

    /// Makes these lines the ones that `info/exclude` holds for this work tree, between two
    /// comments; without lines the comments go too. Everything else stays byte for byte.
    pub fn set_left_out(&self, lines: &[String]) -> Result<(), GitError> {
        let path = self.common_dir.join("info/exclude");
        let before = files::read(&path)?.unwrap_or_default();
        let id = self.worktree_id();
        let begin = format!("# dex: left out of commits in {id} (begin)\n").into_bytes();
        let end = format!("# dex: left out of commits in {id} (end)\n").into_bytes();
        let mut after = Vec::with_capacity(before.len());
        let mut block = Vec::new();
        let mut inside = false;
        for line in before.split_inclusive(|b| *b == b'\n') {
            if line == begin {
                // A block that does not end is no block: its lines stay.
                after.append(&mut block);
                inside = true;
            }
            match inside {
                true => block.extend_from_slice(line),
                false => after.extend_from_slice(line),
            }
            if inside && line == end {
                block.clear();
                inside = false;
            }
        }
        after.append(&mut block);
        if !lines.is_empty() {
            if !after.is_empty() && after.last() != Some(&b'\n') {
                after.push(b'\n');
            }
            after.extend_from_slice(&begin);
            for line in lines {
                after.extend_from_slice(line.as_bytes());
                after.push(b'\n');
            }
            after.extend_from_slice(&end);
        }
        if after == before {
            return Ok(());
        }
        write_exclude(&path, &after)
    }

    /// A path as a line of `info/exclude` that matches exactly this path.
    pub fn escape_exclude(path: &[u8]) -> String {
        let mut line = String::from("/");
        let path = path.strip_prefix(b"/").unwrap_or(path);
        for chunk in path.utf8_chunks() {
            escape_chars(&mut line, chunk.valid());
            // No text: `?` stands for any one byte.
            line.extend(chunk.invalid().iter().map(|_| '?'));
        }
        line
    }

    /// Creates `branch_short` at `start` and checks it out in a new linked worktree.
    pub fn add_worktree(
        &self,
        path: &Path,
        branch_short: &str,
        start: &Oid,
    ) -> Result<(), GitError> {
        let path = path.as_os_str();
        let args = [
            "worktree",
            "add",
            "-q",
            "--no-track",
            "-b",
            branch_short,
            "--",
        ];
        let mut args: Vec<&std::ffi::OsStr> = args.iter().map(|arg| arg.as_ref()).collect();
        args.extend([path, start.as_str().as_ref()]);
        self.git.write(args).bytes().map(drop)
    }

    /// The work tree that has this branch (full or short name) checked out.
    pub fn branch_checked_out_where(&self, branch: &str) -> Result<Option<PathBuf>, GitError> {
        let full = match branch.starts_with("refs/heads/") {
            true => branch.to_owned(),
            false => format!("refs/heads/{branch}"),
        };
        let wanted = format!("branch {full}");
        let raw = self
            .git
            .read(["worktree", "list", "--porcelain", "-z"])
            .bytes()?;
        let mut current = None;
        for field in nul_split(&raw) {
            if let Some(path) = field.strip_prefix(b"worktree ") {
                current = Some(os_path(path));
            } else if field == wanted.as_bytes() {
                return Ok(current);
            }
        }
        Ok(None)
    }

    /// Whether a branch has the very name that is a folder of ours: `refs/heads/<prefix>`
    /// makes every `refs/heads/<prefix>/…` impossible (case D10).
    pub fn branch_exists_prefix_conflict(&self, prefix: &str) -> Result<bool, GitError> {
        Ok(refs::read(self, &format!("refs/heads/{prefix}"))?.is_some())
    }
}

fn write_exclude(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let mode = std::fs::metadata(path).map_or(0o644, |meta| {
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions())
    });
    files::write(path, bytes, mode)
}

fn escape_chars(line: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            // A line cannot hold a line end.
            '\n' => line.push('?'),
            '*' | '?' | '[' | ']' | '\\' | ' ' | '!' | '#' => line.extend(['\\', c]),
            _ => line.push(c),
        }
    }
}

//! Reading: HEAD, history, files of a commit, status.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use super::{Commit, Head, Identity, Operation, RefFormat, Repo, StatusEntry};
use crate::checkpoint::StageMessage;
use crate::git_cli::Output;
use crate::{GitError, Oid, files, refs};

/// Files of a commit that are larger are not read: what we keep there is far smaller, and a
/// reader must not need as much memory as somebody wrote.
pub(crate) const MAX_FILE_BYTES: usize = 64 << 20;

/// How many lines one file's change added and removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// Path from the root, raw bytes.
    pub path: Vec<u8>,
    /// Lines added; 0 for a binary file.
    pub added: u64,
    /// Lines removed; 0 for a binary file.
    pub removed: u64,
    /// Git counts no lines in it.
    pub binary: bool,
}

impl Repo {
    /// Where HEAD is now.
    pub fn head(&self) -> Result<Head, GitError> {
        match self.head_branch()? {
            Some(name) => {
                let oid = refs::read(self, &name)?;
                Ok(Head::Branch { name, oid })
            }
            None => {
                let text = self.git.read(["rev-parse", "--verify", "HEAD"]).text()?;
                let oid = text
                    .parse()
                    .map_err(|_| GitError::answer("rev-parse", text))?;
                Ok(Head::Detached(oid))
            }
        }
    }

    /// The branch HEAD is symbolic to; none when detached.
    pub(crate) fn head_branch(&self) -> Result<Option<String>, GitError> {
        // HEAD is a plain file in the files format, and reading it saves a process in every
        // check of a stage commit. A symbolic link (very old) or reftable is git's to read.
        let path = self.git_dir.join("HEAD");
        if self.ref_format == RefFormat::Files && !path.is_symlink() {
            let bytes = files::read(&path)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            if let Some(name) = text.strip_prefix("ref:") {
                return Ok(Some(name.trim().to_owned()));
            }
        }
        let out = self.git.read(["symbolic-ref", "-q", "HEAD"]).output()?;
        match out.status {
            Some(0) => Ok(Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())),
            Some(1) => Ok(None),
            _ => Err(out.failed("symbolic-ref")),
        }
    }

    /// Makes HEAD point at a branch without touching index or files. The caller has checked
    /// that the branch's tree is what is checked out.
    pub fn point_head_at(&self, branch: &str, reason: &str) -> Result<(), GitError> {
        self.git
            .write(["symbolic-ref", "-m", reason, "HEAD", branch])
            .bytes()
            .map(drop)
    }

    /// The operation in progress in this work tree, if any (per-worktree git directory).
    pub fn operation_in_progress(&self) -> Result<Option<Operation>, GitError> {
        let there = |name: &str| -> Result<bool, GitError> {
            let path = self.git_dir.join(name);
            match std::fs::symlink_metadata(&path) {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(GitError::file(&path)(e)),
            }
        };
        // Rebase first: inside one, a stopped pick leaves CHERRY_PICK_HEAD too.
        let signs = [
            ("rebase-merge", Operation::Rebase),
            ("rebase-apply", Operation::Rebase),
            ("MERGE_HEAD", Operation::Merge),
            ("CHERRY_PICK_HEAD", Operation::CherryPick),
            ("REVERT_HEAD", Operation::Revert),
            ("BISECT_LOG", Operation::Bisect),
        ];
        for (name, operation) in signs {
            if there(name)? {
                return Ok(Some(operation));
            }
        }
        if there("sequencer")? {
            // Between two picks of a range only this directory is left.
            let todo = files::read(&self.git_dir.join("sequencer/todo"))?.unwrap_or_default();
            let reverting = todo.starts_with(b"revert");
            return Ok(Some(if reverting {
                Operation::Revert
            } else {
                Operation::CherryPick
            }));
        }
        if self.ref_format == RefFormat::Reftable {
            // There these two are refs, not files.
            let roots = self.root_refs()?;
            let found = |name: &str| roots.iter().any(|(root, _)| root == name);
            if found("CHERRY_PICK_HEAD") {
                return Ok(Some(Operation::CherryPick));
            }
            if found("REVERT_HEAD") {
                return Ok(Some(Operation::Revert));
            }
        }
        Ok(None)
    }

    /// Refs outside `refs/`, of a reftable repository (so of a git that knows the option).
    pub(crate) fn root_refs(&self) -> Result<Vec<(String, Oid)>, GitError> {
        let format = "--format=%(refname) %(objectname)";
        let text = self
            .git
            .read(["for-each-ref", "--include-root-refs", format])
            .text()?;
        let roots = text.lines().filter(|line| !line.starts_with("refs/"));
        roots
            .map(|line| {
                let (name, oid) = line.split_once(' ').unwrap_or((line, ""));
                Ok((name.to_owned(), parse_oid("for-each-ref", oid.as_bytes())?))
            })
            .collect()
    }

    /// The commit a revision names, or none when it names nothing.
    pub fn resolve_commit(&self, rev: &str) -> Result<Option<Oid>, GitError> {
        let wanted = format!("{rev}^{{commit}}");
        let out = self
            .git
            .read(["rev-parse", "--verify", "-q", "--end-of-options", &wanted])
            .output()?;
        match out.status {
            Some(0) => parse_oid("rev-parse", &out.stdout).map(Some),
            // Quietly: no such thing. Anything said is an error, not an answer.
            Some(1 | 128) if out.stderr.is_empty() => Ok(None),
            Some(1 | 128) if names_no_commit(&out.stderr) => Ok(None),
            _ => Err(out.failed("rev-parse")),
        }
    }

    /// The bytes of a file in a commit or tree; none when it is not there. A read that fails
    /// for any other reason is an error, never "not there" (case A19), and so is a file above 64 MiB.
    pub fn read_file(&self, tree_ish: &Oid, path: &str) -> Result<Option<Vec<u8>>, GitError> {
        let Some(entry) = self.tree_entry(tree_ish, path)? else {
            return Ok(None);
        };
        if entry.kind != "blob" {
            return Ok(None);
        }
        let read = self
            .git
            .read(["cat-file", "blob", entry.oid.as_str()])
            .at_most(MAX_FILE_BYTES)
            .bytes();
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(GitError::TooMuch { limit, .. }) => Err(GitError::TooLarge {
                path: path.to_owned(),
                tree_ish: tree_ish.clone(),
                limit,
            }),
            Err(error) => Err(error),
        }
    }

    /// Paths of files under `dir` in a commit or tree (not recursive), sorted.
    pub fn list_dir(&self, tree_ish: &Oid, dir: &str) -> Result<Vec<String>, GitError> {
        let dir = dir.trim_matches('/');
        let mut tree = tree_ish.clone();
        if !dir.is_empty() {
            match self.tree_entry(tree_ish, dir)? {
                Some(entry) if entry.kind == "tree" => tree = entry.oid,
                _ => return Ok(Vec::new()),
            }
        }
        let entries = self.entries(&[tree.as_str()])?;
        let mut paths: Vec<String> = entries
            .into_iter()
            .filter(|entry| entry.kind == "blob")
            .map(|entry| {
                let name = String::from_utf8_lossy(&entry.path).into_owned();
                if dir.is_empty() {
                    name
                } else {
                    format!("{dir}/{name}")
                }
            })
            .collect();
        paths.sort();
        Ok(paths)
    }

    pub(crate) fn tree_entry(
        &self,
        tree_ish: &Oid,
        path: &str,
    ) -> Result<Option<TreeEntry>, GitError> {
        let mut found = self.entries(&[tree_ish.as_str(), "--", path])?;
        found.retain(|entry| entry.path == path.as_bytes());
        Ok(found.pop())
    }

    fn entries(&self, args: &[&str]) -> Result<Vec<TreeEntry>, GitError> {
        let fixed = ["--literal-pathspecs", "ls-tree", "-z", "--full-tree"];
        let raw = self.git.read(fixed.iter().chain(args)).bytes()?;
        nul_split(&raw).map(TreeEntry::read).collect()
    }

    /// First-parent history from `tip` back to, without, `until` (or the root), newest first,
    /// at most `max` commits.
    pub fn first_parents(
        &self,
        tip: &Oid,
        until: Option<&Oid>,
        max: usize,
    ) -> Result<Vec<Commit>, GitError> {
        let max = format!("--max-count={max}");
        let format = "--format=%H%x00%T%x00%P%x00%ct%x00%B%x00";
        let mut args = vec![
            "rev-list",
            "--first-parent",
            "--no-commit-header",
            "--encoding=UTF-8",
            &max,
            format,
            tip.as_str(),
        ];
        let not = until.map(|oid| format!("^{oid}"));
        args.extend(not.as_deref());
        args.push("--");
        let raw = self.git.read(args).bytes()?;
        let text = String::from_utf8_lossy(&raw);
        let mut commits = Vec::new();
        let mut fields = text.split('\0').map(|field| field.trim_start_matches('\n'));
        while let Some(oid) = fields.next().filter(|oid| !oid.is_empty()) {
            let mut next = || {
                fields
                    .next()
                    .ok_or_else(|| GitError::answer("rev-list", "cut short"))
            };
            commits.push(read_commit([oid, next()?, next()?, next()?, next()?])?);
        }
        Ok(commits)
    }

    /// Whether `ancestor` is reachable from `descendant`. In a shallow or damaged history where
    /// this cannot be known, an error: "unknown" is never "no" (case C17).
    pub fn is_ancestor(&self, ancestor: &Oid, descendant: &Oid) -> Result<bool, GitError> {
        let args = [
            "merge-base",
            "--is-ancestor",
            ancestor.as_str(),
            descendant.as_str(),
        ];
        let out = self.git.read(args).output()?;
        match out.status {
            Some(0) => Ok(true),
            Some(1) if self.shallow => Err(GitError::answer(
                "merge-base",
                "the history is shallow, so it cannot be known",
            )),
            Some(1) => Ok(false),
            _ => Err(out.failed("merge-base")),
        }
    }

    /// The identity git would commit with, or none (`user.useConfigOnly` is honoured).
    pub fn identity(&self) -> Result<Option<Identity>, GitError> {
        let out = self.git.read(["var", "GIT_COMMITTER_IDENT"]).output()?;
        if out.status != Some(0) {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&out.stdout);
        let end = text.rfind('>').map_or(0, |at| at + 1);
        let text = text[..end].to_owned();
        Ok((!text.is_empty()).then_some(Identity { text }))
    }

    /// Paths with uncommitted changes (porcelain v1 codes), untracked ones included, ignored
    /// ones not; submodules count as changed only when their recorded commit differs.
    pub fn status(&self) -> Result<Vec<StatusEntry>, GitError> {
        self.status_in(None)
    }

    /// As [`Repo::status`], with another index than the user's.
    pub(crate) fn status_in(&self, index: Option<&Path>) -> Result<Vec<StatusEntry>, GitError> {
        let args = [
            "status",
            "--porcelain=v1",
            "-z",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
            "--no-renames",
        ];
        let mut call = self.git.read(args);
        if let Some(index) = index {
            call = call.index(index);
        }
        let raw = call.bytes()?;
        nul_split(&raw)
            .map(|line| match line {
                [x, y, b' ', path @ ..] => Ok(StatusEntry {
                    code: [*x, *y],
                    path: path.to_vec(),
                }),
                other => Err(GitError::answer("status", String::from_utf8_lossy(other))),
            })
            .collect()
    }

    /// Lines added and removed per file between two commits or trees. `excluded` holds literal
    /// paths (files or directories) that do not count.
    pub fn diff_stat(
        &self,
        from: &Oid,
        to: &Oid,
        excluded: &[&str],
    ) -> Result<Vec<FileStat>, GitError> {
        let mut args: Vec<String> = [
            "diff-tree",
            "-r",
            "-z",
            "--numstat",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            from.as_str(),
            to.as_str(),
            "--",
            ":(top)",
        ]
        .map(str::to_owned)
        .into();
        args.extend(
            excluded
                .iter()
                .map(|path| format!(":(top,exclude,literal){path}")),
        );
        let raw = self.git.read(args).bytes()?;
        nul_split(&raw).map(read_stat).collect()
    }
}

/// An entry of a tree.
#[derive(Debug, Clone)]
pub(crate) struct TreeEntry {
    kind: String,
    pub(crate) oid: Oid,
    path: Vec<u8>,
}

impl TreeEntry {
    fn read(line: &[u8]) -> Result<TreeEntry, GitError> {
        let wrong = || GitError::answer("ls-tree", String::from_utf8_lossy(line));
        let tab = line.iter().position(|b| *b == b'\t').ok_or_else(wrong)?;
        let head = String::from_utf8_lossy(&line[..tab]).into_owned();
        let fields: Vec<&str> = head.split(' ').collect();
        let [_, kind, oid] = fields[..] else {
            return Err(wrong());
        };
        Ok(TreeEntry {
            kind: kind.to_owned(),
            oid: oid.parse().map_err(|_| wrong())?,
            path: line[tab + 1..].to_vec(),
        })
    }
}

/// The fields of a NUL-terminated list.
pub(crate) fn nul_split(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    raw.split(|b| *b == 0).filter(|field| !field.is_empty())
}

/// A raw path as the file system takes it.
pub(crate) fn os_path(raw: &[u8]) -> std::path::PathBuf {
    OsString::from_vec(raw.to_vec()).into()
}

/// A path's raw bytes.
pub(crate) fn raw_path(path: &Path) -> Vec<u8> {
    path.as_os_str().to_owned().into_vec()
}

/// An id git printed on a line of its own.
pub(crate) fn parse_oid(command: &str, raw: &[u8]) -> Result<Oid, GitError> {
    let text = String::from_utf8_lossy(raw);
    text.trim()
        .parse()
        .map_err(|_| GitError::answer(command, text))
}

/// Nothing has that name, or a tree or a file has.
fn names_no_commit(stderr: &str) -> bool {
    [
        "expected commit type",
        "expected tag type",
        "expected tree type",
        "expected blob type",
        "Needed a single revision",
        "unknown revision",
        "bad revision",
    ]
    .iter()
    .any(|words| stderr.contains(words))
}

fn read_commit(fields: [&str; 5]) -> Result<Commit, GitError> {
    let [oid, tree, parents, time, message] = fields;
    let id = |text: &str| -> Result<Oid, GitError> {
        text.parse().map_err(|_| GitError::answer("rev-list", text))
    };
    Ok(Commit {
        oid: id(oid)?,
        tree: id(tree)?,
        parents: parents
            .split(' ')
            .filter(|it| !it.is_empty())
            .map(id)
            .collect::<Result<_, _>>()?,
        time_unix: time
            .parse()
            .map_err(|_| GitError::answer("rev-list", time))?,
        message: message.to_owned(),
        stage: StageMessage::read(message).ok(),
    })
}

fn read_stat(line: &[u8]) -> Result<FileStat, GitError> {
    let mut parts = line.splitn(3, |b| *b == b'\t');
    let mut next = || {
        parts
            .next()
            .ok_or_else(|| GitError::answer("diff-tree", "cut short"))
    };
    let (added, removed, path) = (next()?, next()?, next()?);
    let count = |field: &[u8]| String::from_utf8_lossy(field).parse::<u64>().ok();
    Ok(FileStat {
        path: path.to_vec(),
        added: count(added).unwrap_or(0),
        removed: count(removed).unwrap_or(0),
        binary: added == b"-",
    })
}

impl Output {
    /// Standard output of a call that must have succeeded.
    pub(crate) fn expect_success(self, command: &str) -> Result<Vec<u8>, GitError> {
        if self.status == Some(0) {
            Ok(self.stdout)
        } else {
            Err(self.failed(command))
        }
    }
}

//! The work tree as a tree object, through a private index.

use std::path::Path;

use super::durable::sync_objects;
use super::land::refresh;
use super::{PrivateIndex, raw_entries, survey_in};
use crate::repo::ObjectFormat;
use crate::repo::read::{os_path, parse_oid};
use crate::{GitError, Oid, Repo, fault};

/// How often an add is tried again: files may vanish while it runs.
const TRIES: u32 = 3;

/// What is captured against what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capture<'a> {
    pub(crate) repo: &'a Repo,
    /// The commit or tree the capture is compared with; none when unborn.
    pub(crate) parent: Option<&'a Oid>,
    /// Literal paths, raw bytes, that stay as they are in the parent.
    pub(crate) exclude: &'a [Vec<u8>],
}

/// One entry of a raw diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawChange {
    pub(crate) old_mode: u32,
    pub(crate) new_mode: u32,
    pub(crate) old: Oid,
    pub(crate) new: Oid,
    pub(crate) status: u8,
    pub(crate) path: Vec<u8>,
}

/// The mode of a submodule or nested repository.
pub(crate) const GITLINK: u32 = 0o160000;

/// The mode of a directory, in a diff that lists them.
const TREE: u32 = 0o040000;

impl RawChange {
    fn read(fields: &[u8], path: &[u8]) -> Option<RawChange> {
        let text = std::str::from_utf8(fields).ok()?.strip_prefix(':')?;
        let mut parts = text.split(' ');
        let mut mode = || u32::from_str_radix(parts.next()?, 8).ok();
        let (old_mode, new_mode) = (mode()?, mode()?);
        Some(RawChange {
            old_mode,
            new_mode,
            old: parts.next()?.parse().ok()?,
            new: parts.next()?.parse().ok()?,
            status: *parts.next()?.as_bytes().first()?,
            path: path.to_vec(),
        })
    }
}

fn read_raw(command: &str, bytes: &[u8]) -> Result<Vec<RawChange>, GitError> {
    raw_entries(bytes)
        .map(|(fields, path)| {
            RawChange::read(fields, path)
                .ok_or_else(|| GitError::answer(command, String::from_utf8_lossy(fields)))
        })
        .collect()
}

/// What differs between two commits or trees, blob by blob.
pub(crate) fn raw_changes(repo: &Repo, from: &Oid, to: &Oid) -> Result<Vec<RawChange>, GitError> {
    raw_diff(repo, &["-r"], from, to)
}

pub(super) fn raw_diff(
    repo: &Repo,
    depth: &[&str],
    from: &Oid,
    to: &Oid,
) -> Result<Vec<RawChange>, GitError> {
    let mut args = vec!["diff-tree", "-z", "--raw", "--no-abbrev", "--no-renames"];
    args.extend(depth);
    args.extend([from.as_str(), to.as_str()]);
    let raw = repo.git.read(args).bytes()?;
    read_raw("diff-tree", &raw)
}

impl Repo {
    /// The id of the tree with no entries, which git knows without storing it.
    pub(crate) fn empty_tree(&self) -> Oid {
        let text = match self.object_format {
            ObjectFormat::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            ObjectFormat::Sha256 => {
                "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
            }
        };
        text.parse().expect("both are full ids")
    }
}

impl Capture<'_> {
    /// The parent as something to diff against.
    fn base(&self) -> Oid {
        self.parent
            .cloned()
            .unwrap_or_else(|| self.repo.empty_tree())
    }

    /// What the index holds that the parent does not: staged changes, and what an agent
    /// committed since.
    pub(crate) fn staged(&self, private: &PrivateIndex) -> Result<Vec<RawChange>, GitError> {
        self.staged_against(private, &self.base())
    }

    pub(crate) fn staged_against(
        &self,
        private: &PrivateIndex,
        base: &Oid,
    ) -> Result<Vec<RawChange>, GitError> {
        let args = [
            "diff-index",
            "--cached",
            "-z",
            "--raw",
            "--no-abbrev",
            "--no-renames",
            base.as_str(),
        ];
        let raw = self.repo.git.read(args).index(&private.path).bytes()?;
        read_raw("diff-index", &raw)
    }

    /// Adds everything that is not ignored or excluded, new, changed and deleted, by the names
    /// that the file system gives.
    ///
    /// Not with `git add`: that runs git inside a submodule to see whether it is dirty, with the
    /// configuration an agent may have put there.
    pub(crate) fn add(&self, private: &PrivateIndex) -> Result<(), GitError> {
        let found = survey_in(self.repo, Some(&private.path))?;
        let changed = found.into_iter().filter(|it| it.unstaged);
        let paths: Vec<Vec<u8>> = changed.map(|it| it.path).collect();
        self.add_paths(private, &paths)?;
        // As `git add` leaves it: a restore trusts the times in it.
        refresh(self.repo, private)
    }

    /// Brings exactly these paths along, as [`Capture::add`] would: a survey found them, so git
    /// need not look at every file a second time. Excluded ones, and nested repositories that are
    /// no submodule, stay as they are.
    pub(crate) fn add_paths(
        &self,
        private: &PrivateIndex,
        paths: &[Vec<u8>],
    ) -> Result<(), GitError> {
        let root = self.repo.work_tree_or_error()?;
        let (mut gone, mut there) = (Vec::new(), Vec::new());
        let null: Oid = (self.repo.object_format.null().parse()).expect("the null id is a full id");
        for path in paths.iter().filter(|it| !self.excludes(it)) {
            let is_there = match lying_at(root, path) {
                Lying::File => true,
                // `update-index` refuses what is beyond a link instead of taking it as deleted.
                Lying::Nothing => false,
                Lying::Repository if self.repo.is_submodule(path)? => true,
                // It took a tracked file's place.
                Lying::Repository if self.repo.is_tracked(path)? => false,
                Lying::Repository => continue,
            };
            if is_there {
                there.extend_from_slice(path);
                there.push(0);
            } else {
                index_info(&mut gone, 0, &null, path);
            }
        }
        fault::point("snapshot.add.before");
        update_index(self.repo, private, gone)?;
        if !there.is_empty() {
            self.take_over(private, &there)?;
        }
        fault::point("snapshot.add.after");
        Ok(())
    }

    fn take_over(&self, private: &PrivateIndex, paths: &[u8]) -> Result<(), GitError> {
        for turn in 1.. {
            let call = self.repo.git.write(ON_PRIVATE.iter().chain(&TAKE_OVER));
            let call = call.index(&private.path).stdin(paths.to_vec());
            let out = call.output()?;
            match out.status {
                Some(0) => return Ok(()),
                // A file that is rewritten while git reads it may also end git by a signal.
                status if turn < TRIES && (status.is_none() || may_pass(&out.stderr)) => {}
                _ => return Err(out.failed("update-index")),
            }
        }
        unreachable!("the loop above only ends by returning")
    }

    /// Puts excluded paths back to what the parent has, where the index had something else.
    pub(crate) fn reset_excluded(
        &self,
        private: &PrivateIndex,
        staged: &[RawChange],
    ) -> Result<(), GitError> {
        let mut input = Vec::new();
        for change in staged.iter().filter(|it| self.excludes(&it.path)) {
            index_info(&mut input, change.old_mode, &change.old, &change.path);
        }
        update_index(self.repo, private, input)
    }

    fn excludes(&self, path: &[u8]) -> bool {
        self.exclude.iter().any(|it| covers(it, path))
    }

    /// Writes the private index as a tree, without gitlinks that the parent does not have
    /// (case B14), and says what it changes.
    pub(crate) fn tree(&self, private: &PrivateIndex) -> Result<(Oid, Vec<RawChange>), GitError> {
        let tree = write_tree(self.repo, &private.path)?;
        let changes = self.synced(&tree)?;
        let mut input = Vec::new();
        let is_new_link = |it: &RawChange| it.new_mode == GITLINK && it.old_mode != GITLINK;
        for change in changes.iter().filter(|it| is_new_link(it)) {
            index_info(&mut input, 0, &change.new, &change.path);
        }
        if input.is_empty() {
            return Ok((tree, changes));
        }
        update_index(self.repo, private, input)?;
        let tree = write_tree(self.repo, &private.path)?;
        let changes = self.synced(&tree)?;
        Ok((tree, changes))
    }

    /// What the tree changes against the parent, every new object made durable.
    fn synced(&self, tree: &Oid) -> Result<Vec<RawChange>, GitError> {
        let mut changes = raw_diff(self.repo, &["-r", "-t"], &self.base(), tree)?;
        let new = changes
            .iter()
            .filter(|it| !matches!(it.new_mode, 0 | GITLINK));
        let mut oids: Vec<Oid> = new.map(|it| it.new.clone()).collect();
        oids.push(tree.clone());
        fault::point("snapshot.sync.before");
        sync_objects(self.repo, &oids)?;
        fault::point("snapshot.sync.after");
        changes.retain(|it| it.new_mode != TREE && it.old_mode != TREE);
        Ok(changes)
    }
}

/// How a private index is worked on. New objects are synced by us, all at once
/// ([`super::durable`]), and the index once, when it is complete.
const ON_PRIVATE: [&str; 4] = ["-c", "core.splitIndex=false", "-c", "core.fsync=none"];

const TAKE_OVER: [&str; 6] = [
    "update-index",
    "--add",
    "--remove",
    "--replace",
    "-z",
    "--stdin",
];

enum Lying {
    /// A file or a link.
    File,
    /// Nothing of this name, a plain directory, or something beyond a link.
    Nothing,
    /// A nested repository.
    Repository,
}

fn lying_at(root: &Path, path: &[u8]) -> Lying {
    let mut at = root.to_owned();
    let mut parts = path.split(|b| *b == b'/').peekable();
    while let Some(part) = parts.next() {
        at.push(os_path(part));
        match at.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) if parts.peek().is_none() => return Lying::File,
            _ => return Lying::Nothing,
        }
    }
    if is_repository(&at) {
        Lying::Repository
    } else {
        Lying::Nothing
    }
}

/// Whether the refusal may be gone a moment later: a file vanished or changed while it was read.
fn may_pass(stderr: &str) -> bool {
    [
        "No such file or directory",
        "unable to stat",
        "unstable object source",
        "short read",
    ]
    .iter()
    .any(|words| stderr.contains(words))
}

/// Whether `dir` holds a `.git` of its own, directory or file.
pub(crate) fn is_repository(dir: &Path) -> bool {
    dir.join(".git").symlink_metadata().is_ok()
}

/// Whether the literal path `prefix` names `path` or a directory above it.
pub(crate) fn covers(prefix: &[u8], path: &[u8]) -> bool {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// One line of `update-index --index-info`; mode 0 removes.
pub(crate) fn index_info(input: &mut Vec<u8>, mode: u32, oid: &Oid, path: &[u8]) {
    input.extend_from_slice(format!("{mode:o} {oid}\t").as_bytes());
    input.extend_from_slice(path);
    input.push(0);
}

/// Edits entries of a private index.
pub(crate) fn update_index(
    repo: &Repo,
    private: &PrivateIndex,
    input: Vec<u8>,
) -> Result<(), GitError> {
    if input.is_empty() {
        return Ok(());
    }
    let args = [
        "-c",
        "core.splitIndex=false",
        "update-index",
        "--replace",
        "-z",
        "--index-info",
    ];
    repo.git
        .write(args)
        .index(&private.path)
        .stdin(input)
        .bytes()
        .map(drop)
}

/// Writes an index as a tree, not yet synced.
pub(crate) fn write_tree(repo: &Repo, index: &Path) -> Result<Oid, GitError> {
    fault::point("snapshot.tree.before");
    let raw = repo
        .git
        .write(ON_PRIVATE.iter().chain(&["write-tree"]))
        .index(index)
        .bytes()?;
    fault::point("snapshot.tree.after");
    parse_oid("write-tree", &raw)
}

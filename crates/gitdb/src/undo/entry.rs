//! Writing and reading entries.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::meta::{FileTime, HeadWas, Meta, PrivateFile, RawPath};
use super::{Entry, EntryKind, Keep, UndoError, private_dir, raw, state};
use crate::repo::read::{nul_split, os_path, parse_oid};
use crate::snapshot::{Capture, PrivateIndex, RawChange, expose_hidden, raw_changes};
use crate::{GitError, Head, Oid, Repo, fault, files, refs};

/// Everything an entry is made from.
pub(super) struct Recipe<'a> {
    pub(super) repo: &'a Repo,
    pub(super) reason: &'a str,
    pub(super) keep: &'a Keep,
    pub(super) now_unix: i64,
    pub(super) kind: EntryKind,
}

/// The trees and blobs an entry consists of.
struct Parts {
    lines: Vec<String>,
    parents: Vec<Oid>,
    bytes: u64,
}

impl Recipe<'_> {
    /// Writes the entry's objects and private copies; the ref is the caller's to set.
    pub(super) fn write(&self, n: u64) -> Result<Entry, GitError> {
        let repo = self.repo;
        let mut parts = Parts {
            lines: Vec::new(),
            parents: Vec::new(),
            bytes: 0,
        };
        let head = repo.head()?;
        let tip = head_tip(&head);
        let original = PrivateIndex::copy(repo)?;
        let outside = self.trees(&original, tip.as_ref(), &mut parts)?;
        let meta = self.meta(n, &head, &original, outside, &mut parts)?;
        let state = state::present(repo)?;
        self.blobs(&original, &meta, &state, &mut parts)?;
        parts.parents.extend(tip);
        parts.parents.extend(self.keep.tips.iter().cloned());
        let values = meta.refs.values().flatten();
        parts.parents.extend(commits_among(repo, values)?);
        self.commit(n, parts)
    }

    fn commit(&self, n: u64, mut parts: Parts) -> Result<Entry, GitError> {
        let repo = self.repo;
        let tree = mktree(repo, &parts.lines)?;
        let mut seen: Vec<Oid> = Vec::new();
        parts.parents.retain(|oid| {
            let new = !seen.contains(oid);
            seen.push(oid.clone());
            new
        });
        let reason = one_line(self.reason);
        let message = message(&reason, self.kind, parts.bytes);
        let mut args = vec![
            "-c",
            "i18n.commitEncoding=UTF-8",
            "commit-tree",
            tree.as_str(),
        ];
        for parent in &parts.parents {
            args.extend(["-p", parent.as_str()]);
        }
        args.extend(["-F", "-"]);
        let date = format!("@{} +0000", self.now_unix);
        // Of our own name: an entry must be possible without any identity.
        let raw = ["AUTHOR", "COMMITTER"]
            .iter()
            .fold(repo.git.write(args).stdin(message), |call, who| {
                call.env(format!("GIT_{who}_NAME"), "dex")
                    .env(format!("GIT_{who}_EMAIL"), "dex@localhost")
                    .env(format!("GIT_{who}_DATE"), &date)
            })
            .bytes()?;
        fault::point("undo.commit.after");
        Ok(Entry {
            n,
            oid: parse_oid("commit-tree", &raw)?,
            reason,
            time_unix: self.now_unix,
            kind: self.kind,
            bytes: parts.bytes,
        })
    }

    /// The work tree and what is staged. Returns paths present outside a sparse checkout.
    fn trees(
        &self,
        original: &PrivateIndex,
        tip: Option<&Oid>,
        parts: &mut Parts,
    ) -> Result<Vec<RawPath>, GitError> {
        let repo = self.repo;
        let mut exclude = self.keep.leave_out.clone();
        exclude.extend(self.keep.private.iter().cloned());
        let capture = Capture {
            repo,
            parent: tip,
            exclude: &exclude,
        };
        let staged = capture.staged(original)?;
        self.staged_trees(original, &staged, tip, parts)?;
        let private = PrivateIndex::copy(repo)?;
        let outside = expose_hidden(repo, &private)?
            .into_iter()
            .map(RawPath)
            .collect();
        fault::point("undo.tree.before");
        capture.add(&private)?;
        let (tree, changes) = capture.tree(&private)?;
        fault::point("undo.tree.after");
        parts.lines.push(format!("040000 tree {tree}\tworktree"));
        let base = tip.cloned().unwrap_or_else(|| repo.empty_tree());
        if let Some(tree) = raw::tree(repo, &changes, &staged, &base)? {
            parts.lines.push(format!("040000 tree {tree}\traw"));
        }
        let root = repo.work_tree_or_error()?;
        for change in changes.iter().filter(|it| it.new_mode != 0) {
            let meta = root.join(os_path(&change.path)).symlink_metadata();
            parts.bytes += meta.map_or(0, |it| it.len());
        }
        Ok(outside)
    }

    /// Keeps what only the index holds alive: one tree, or one per stage of a conflict.
    fn staged_trees(
        &self,
        original: &PrivateIndex,
        staged: &[RawChange],
        tip: Option<&Oid>,
        parts: &mut Parts,
    ) -> Result<(), GitError> {
        let repo = self.repo;
        let base = tip.cloned().unwrap_or_else(|| repo.empty_tree());
        if staged.is_empty() {
            return Ok(());
        }
        if staged.iter().all(|it| it.status != b'U') {
            // On a copy: writing a tree also rewrites the index it is written from.
            let copy = PrivateIndex::copy(repo)?;
            let tree = crate::snapshot::index_tree(repo, &copy, &base)?;
            parts.lines.push(format!("040000 tree {tree}\tstage0"));
            return Ok(());
        }
        let raw = repo
            .git
            .read(["ls-files", "-s", "-z"])
            .index(&original.path)
            .bytes()?;
        for stage in b'0'..=b'3' {
            let mut input = Vec::new();
            for line in nul_split(&raw) {
                let tab = line.iter().position(|b| *b == b'\t').unwrap_or(0);
                if tab > 0 && line[tab - 1] == stage {
                    input.extend_from_slice(&line[..tab - 1]);
                    input.extend_from_slice(b"0");
                    input.extend_from_slice(&line[tab..]);
                    input.push(0);
                }
            }
            if !input.is_empty() {
                let scratch = PrivateIndex::empty(repo)?;
                repo.git
                    .write(["update-index", "--add", "-z", "--index-info"])
                    .index(&scratch.path)
                    .stdin(input)
                    .bytes()?;
                let tree = crate::snapshot::index_tree(repo, &scratch, &base)?;
                let name = char::from(stage);
                parts.lines.push(format!("040000 tree {tree}\tstage{name}"));
            }
        }
        Ok(())
    }

    fn meta(
        &self,
        n: u64,
        head: &Head,
        original: &PrivateIndex,
        outside: Vec<RawPath>,
        parts: &mut Parts,
    ) -> Result<Meta, GitError> {
        let repo = self.repo;
        let names: Vec<&str> = self.keep.refs.iter().map(String::as_str).collect();
        let found = refs::list(repo, &names)?;
        let value = |name: &String| {
            let there = found.iter().find(|it| it.name == *name);
            (name.clone(), there.map(|it| it.oid.clone()))
        };
        Ok(Meta {
            version: 1,
            work_tree: repo.work_tree_or_error()?.to_string_lossy().into_owned(),
            head: match head {
                Head::Branch { name, .. } => HeadWas::Branch(name.clone()),
                Head::Detached(oid) => HeadWas::Detached(oid.clone()),
            },
            tip: head_tip(head),
            refs: self.keep.refs.iter().map(value).collect(),
            index_time: FileTime::of(&original.path),
            leave_out: self.keep.leave_out.iter().cloned().map(RawPath).collect(),
            private: self.private_copies(n, parts)?,
            present_outside: outside,
            root_refs: state::root_refs(repo)?,
        })
    }

    /// Copies likely secrets to a directory only this user can read.
    fn private_copies(&self, n: u64, parts: &mut Parts) -> Result<Vec<PrivateFile>, GitError> {
        let dir = private_dir(self.repo, n);
        let root = self.repo.work_tree_or_error()?;
        let mut kept = Vec::new();
        for (place, path) in self.keep.private.iter().enumerate() {
            let from = root.join(os_path(path));
            let Ok(meta) = from.symlink_metadata() else {
                continue;
            };
            if !meta.is_file() {
                continue;
            }
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(GitError::file(&dir))?;
            let bytes = files::read(&from)?.unwrap_or_default();
            parts.bytes += meta.len();
            let file = place.to_string();
            files::write(&dir.join(&file), &bytes, 0o600)?;
            kept.push(PrivateFile {
                path: RawPath(path.clone()),
                file,
                mode: meta.permissions().mode() & 0o777,
            });
        }
        Ok(kept)
    }

    /// The raw index, `meta.json` and the state files as blobs, in one process.
    fn blobs(
        &self,
        original: &PrivateIndex,
        meta: &Meta,
        state: &[PathBuf],
        parts: &mut Parts,
    ) -> Result<(), GitError> {
        let repo = self.repo;
        let scratch = PrivateIndex::empty(repo)?;
        let mut text = serde_json::to_vec_pretty(meta).unwrap_or_default();
        text.push(b'\n');
        files::write(&scratch.path, &text, 0o600)?;
        let mut paths = vec![scratch.path.clone()];
        let has_index = original.path.exists();
        if has_index {
            paths.push(original.path.clone());
            parts.bytes += original.path.metadata().map_or(0, |it| it.len());
        }
        paths.extend(state.iter().map(|name| repo.git_dir.join(name)));
        let mut oids = hash_files(repo, &paths)?.into_iter();
        let mut next = || {
            oids.next()
                .ok_or_else(|| GitError::answer("hash-object", "too few"))
        };
        parts
            .lines
            .push(format!("100644 blob {}\tmeta.json", next()?));
        if has_index {
            parts.lines.push(format!("100644 blob {}\tindex", next()?));
        }
        let mut lines = Vec::new();
        for name in state {
            // One flat tree: a slash in a name is written `%2F`.
            let name = name
                .to_string_lossy()
                .replace('%', "%25")
                .replace('/', "%2F");
            lines.push(format!("100644 blob {}\t{name}", next()?));
        }
        if !lines.is_empty() {
            let tree = mktree(repo, &lines)?;
            parts.lines.push(format!("040000 tree {tree}\tstate"));
        }
        Ok(())
    }
}

fn head_tip(head: &Head) -> Option<Oid> {
    match head {
        Head::Branch { oid, .. } => oid.clone(),
        Head::Detached(oid) => Some(oid.clone()),
    }
}

/// Stores files as they are, no filters.
fn hash_files(repo: &Repo, paths: &[PathBuf]) -> Result<Vec<Oid>, GitError> {
    let mut args: Vec<OsString> = ["hash-object", "-w", "--no-filters", "--"]
        .map(OsString::from)
        .into();
    args.extend(paths.iter().map(OsString::from));
    let text = repo.git.write(args).text()?;
    text.lines()
        .map(|line| parse_oid("hash-object", line.as_bytes()))
        .collect()
}

fn mktree(repo: &Repo, lines: &[String]) -> Result<Oid, GitError> {
    let mut input = Vec::new();
    for line in lines {
        input.extend_from_slice(line.as_bytes());
        input.push(0);
    }
    let raw = repo.git.write(["mktree", "-z"]).stdin(input).bytes()?;
    parse_oid("mktree", &raw)
}

/// A tree of files anywhere below it; none when there are none.
pub(super) fn mktree_of(
    repo: &Repo,
    entries: &[(u32, Oid, &[u8])],
    base: &Oid,
) -> Result<Option<Oid>, GitError> {
    if entries.is_empty() {
        return Ok(None);
    }
    let mut input = Vec::new();
    for (mode, oid, path) in entries {
        input.extend_from_slice(format!("{mode:o} {oid}\t").as_bytes());
        input.extend_from_slice(path);
        input.push(0);
    }
    let scratch = PrivateIndex::empty(repo)?;
    repo.git
        .write(["update-index", "--add", "-z", "--index-info"])
        .index(&scratch.path)
        .stdin(input)
        .bytes()?;
    crate::snapshot::index_tree(repo, &scratch, base).map(Some)
}

/// Those of the values that are commits: only they can be parents.
fn commits_among<'o>(
    repo: &Repo,
    values: impl Iterator<Item = &'o Oid>,
) -> Result<Vec<Oid>, GitError> {
    let input: String = values.map(|oid| format!("{oid}\n")).collect();
    if input.is_empty() {
        return Ok(Vec::new());
    }
    let args = ["cat-file", "--batch-check=%(objectname) %(objecttype)"];
    let text = repo.git.read(args).stdin(input).text()?;
    Ok(text
        .lines()
        .filter_map(|line| line.strip_suffix(" commit")?.parse().ok())
        .collect())
}

fn message(reason: &str, kind: EntryKind, bytes: u64) -> String {
    let kind = match kind {
        EntryKind::Undo => "undo".to_owned(),
        EntryKind::Redo { of } => format!("redo {of}"),
        EntryKind::Redone => "redone".to_owned(),
        EntryKind::Interrupted => "interrupted".to_owned(),
    };
    format!("{reason}\n\nkind: {kind}\nbytes: {bytes}\n")
}

fn one_line(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = text.trim().to_owned();
    if text.is_empty() {
        "undo".to_owned()
    } else {
        text
    }
}

/// Every entry below a prefix, in no particular order.
pub(super) fn read_all(repo: &Repo, prefix: &str) -> Result<Vec<Entry>, GitError> {
    let format = "--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents:subject)\
                  %00%(contents:body)%00";
    let raw = repo.git.read(["for-each-ref", format, prefix]).bytes()?;
    let text = String::from_utf8_lossy(&raw);
    let mut fields = text.split('\0');
    let mut entries = Vec::new();
    while let Some(name) = fields.next() {
        let name = name.trim_start_matches('\n');
        let (Some(oid), Some(time), Some(reason), Some(body)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            break;
        };
        // A ref somebody else put there is not ours to show or drop.
        if let Some(entry) = read_entry(prefix, name, oid, time, reason, body) {
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn read_entry(
    prefix: &str,
    name: &str,
    oid: &str,
    time: &str,
    reason: &str,
    body: &str,
) -> Option<Entry> {
    let field = |key: &str| body.lines().find_map(|line| line.strip_prefix(key));
    let kind = match field("kind: ")? {
        "undo" => EntryKind::Undo,
        "redone" => EntryKind::Redone,
        "interrupted" => EntryKind::Interrupted,
        other => EntryKind::Redo {
            of: other.strip_prefix("redo ")?.parse().ok()?,
        },
    };
    Some(Entry {
        n: name.strip_prefix(prefix)?.parse().ok()?,
        oid: oid.parse().ok()?,
        reason: reason.to_owned(),
        time_unix: time.parse().ok()?,
        kind,
        bytes: field("bytes: ")?.parse().ok()?,
    })
}

/// An entry's content, read whole before anything is changed.
pub(super) struct Content {
    pub(super) meta: Meta,
    pub(super) tree: Oid,
    pub(super) raw: Option<Oid>,
    pub(super) index: Option<Vec<u8>>,
    pub(super) state: Vec<(PathBuf, Vec<u8>)>,
}

impl Content {
    pub(super) fn read(repo: &Repo, entry: &Entry) -> Result<Content, UndoError> {
        let damaged = |what: String| UndoError::Damaged { n: entry.n, what };
        let bytes = repo.read_file(&entry.oid, "meta.json")?;
        let bytes = bytes.ok_or_else(|| damaged("it has no meta.json".to_owned()))?;
        let meta: Meta = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if meta.version != 1 {
            return Err(damaged(format!(
                "version {} is newer than this program",
                meta.version
            )));
        }
        let tree = repo.tree_entry(&entry.oid, "worktree")?;
        let tree = tree.ok_or_else(|| damaged("it has no work tree".to_owned()))?;
        let mut state = Vec::new();
        for path in repo.list_dir(&entry.oid, "state")? {
            let bytes = repo.read_file(&entry.oid, &path)?.unwrap_or_default();
            let name = path
                .trim_start_matches("state/")
                .replace("%2F", "/")
                .replace("%25", "%");
            state.push((PathBuf::from(name), bytes));
        }
        let content = Content {
            meta,
            tree: tree.oid,
            raw: repo.tree_entry(&entry.oid, "raw")?.map(|it| it.oid),
            index: repo.read_file(&entry.oid, "index")?,
            state,
        };
        content.check_private(repo, entry).map_err(damaged)?;
        Ok(content)
    }

    fn check_private(&self, repo: &Repo, entry: &Entry) -> Result<(), String> {
        let dir = private_dir(repo, entry.n);
        for kept in &self.meta.private {
            if !dir.join(&kept.file).is_file() {
                return Err(format!("the private copy {} is gone", kept.file));
            }
        }
        Ok(())
    }

    /// Paths whose files the entry's tree says nothing about.
    pub(super) fn untouched(&self) -> Vec<Vec<u8>> {
        let private = self.meta.private.iter().map(|it| it.path.0.clone());
        self.meta
            .leave_out
            .iter()
            .map(|it| it.0.clone())
            .chain(private)
            .collect()
    }

    /// Writes the private copies back.
    pub(super) fn restore_private(&self, repo: &Repo, n: u64) -> Result<(), GitError> {
        let root = repo.work_tree_or_error()?;
        for kept in &self.meta.private {
            let from = private_dir(repo, n).join(Path::new(&kept.file));
            let bytes = files::read(&from)?.unwrap_or_default();
            files::write_beneath(root, &os_path(&kept.path.0), &bytes, kept.mode)?;
        }
        Ok(())
    }

    /// Fails when a directory of the work tree's tree cannot be read. Its files are checked by
    /// the restore, against what is on disk.
    pub(super) fn reachable(&self, repo: &Repo) -> Result<(), GitError> {
        raw_changes(repo, &repo.empty_tree(), &self.tree).map(drop)
    }
}

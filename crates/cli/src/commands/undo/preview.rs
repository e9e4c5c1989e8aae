//! What an undo entry differs in from what is there now, in plain words. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use gitdb::checkpoint::{Checkpoint, StageMessage};
use gitdb::undo::Entry;
use gitdb::{Head, Oid, Repo, refs};
use serde::Deserialize;

use crate::error::Failure;
use crate::exit::Exit;
use crate::ui::{self, DIM, WARN, clean, styled};

/// More paths than this are counted.
const SHOWN: usize = 10;

/// More finished stages than this are counted.
const STAGES_SHOWN: usize = 20;

/// Commits looked through for finished stages.
const COMMITS: usize = 10_000;

/// Raw paths, sorted.
type Paths = BTreeSet<Vec<u8>>;

/// What would change.
pub(super) struct Preview {
    /// Paths whose content goes back.
    back: Paths,
    /// Paths that are new since then and go away.
    away: Paths,
    /// Sentences about refs and HEAD.
    refs: Vec<String>,
    /// Finished stages that leave their branch, oldest first.
    stages: Vec<String>,
    /// Paths the entry says nothing about.
    untouched: Vec<String>,
}

/// Of the entry's `meta.json`, what people are told (`docs/formats/undo.md`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    head: HeadWas,
    refs: BTreeMap<String, Option<Oid>>,
    #[serde(default)]
    leave_out: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum HeadWas {
    Branch(String),
    Detached(Oid),
}

impl Meta {
    fn of(repo: &Repo, entry: &Entry) -> Result<Meta, Failure> {
        let damaged = || {
            Failure::new(
                Exit::Failed,
                format!("undo entry {} cannot be read; nothing was changed", entry.n),
            )
        };
        let bytes = repo
            .read_file(&entry.oid, "meta.json")?
            .ok_or_else(damaged)?;
        serde_json::from_slice(&bytes).map_err(|error| damaged().because(&error))
    }
}

/// Finished stages that would leave their branch, oldest first; none where the entry cannot be
/// read.
pub(super) fn stages(repo: &Repo, entry: &Entry) -> Result<Vec<String>, Failure> {
    match Meta::of(repo, entry) {
        Ok(meta) => leaving(repo, &meta),
        Err(_) => Ok(Vec::new()),
    }
}

impl Preview {
    pub(super) fn read(repo: &Repo, entry: &Entry) -> Result<Preview, Failure> {
        let meta = Meta::of(repo, entry)?;
        let tree = format!("{}:worktree", entry.oid);
        let tree = repo
            .git
            .read(["rev-parse", "--verify", "-q", &tree])
            .text()?;
        let (back, away) = paths(repo, &tree)?;
        Ok(Preview {
            back,
            away,
            refs: ref_words(repo, &meta)?,
            stages: leaving(repo, &meta)?,
            untouched: meta.leave_out,
        })
    }

    /// Nothing differs.
    pub(super) fn is_in_place(&self) -> bool {
        self.back.is_empty() && self.away.is_empty() && self.refs.is_empty()
    }

    /// `back`: the command that takes it back.
    pub(super) fn lines(&self, back: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.stages.is_empty() {
            let count = ui::count(self.stages.len(), "finished stage");
            lines.push(styled(
                WARN,
                format!(
                    "  it is from before {count}, which leave the branch (`{back}` brings them back):"
                ),
            ));
            let shown = self.stages.iter().take(STAGES_SHOWN).cloned();
            let more = self.stages.len().saturating_sub(STAGES_SHOWN);
            let more = (more > 0).then(|| format!("and {more} more"));
            let all: Vec<String> = shown.chain(more).collect();
            lines.push(format!("    {}", all.join(", ")));
        }
        if self.is_in_place() {
            lines.push("  files, HEAD and branches are already as they were then".to_owned());
        }
        if !self.back.is_empty() {
            lines.push(format!(
                "  back to what it held then ({}):",
                counted(&self.back)
            ));
            lines.extend(named(&self.back));
        }
        if !self.away.is_empty() {
            lines.push(format!(
                "  taken away, being new since then ({}):",
                counted(&self.away)
            ));
            lines.extend(named(&self.away));
        }
        lines.extend(self.refs.iter().map(|it| format!("  {it}")));
        let cannot = "modification times, modes other than 644 and 755, empty directories and \
                      nested repositories cannot be put back";
        lines.push(styled(DIM, format!("  {cannot}")));
        if !self.untouched.is_empty() {
            let paths: Vec<String> = self
                .untouched
                .iter()
                .take(SHOWN)
                .map(|it| clean(it))
                .collect();
            lines.push(format!(
                "  not kept then, so left as it is now: {}",
                paths.join(", ")
            ));
        }
        lines
    }
}

fn counted(paths: &Paths) -> String {
    ui::count(paths.len(), "file")
}

fn named(paths: &Paths) -> Vec<String> {
    let mut lines: Vec<String> = paths
        .iter()
        .take(SHOWN)
        .map(|it| format!("    {}", clean(&String::from_utf8_lossy(it))))
        .collect();
    if paths.len() > SHOWN {
        lines.push(format!("    and {} more", paths.len() - SHOWN));
    }
    lines
}

/// Paths that differ: to be put back, and to be taken away.
fn paths(repo: &Repo, tree: &str) -> Result<(Paths, Paths), Failure> {
    let (mut back, mut away) = (BTreeSet::new(), BTreeSet::new());
    let args = [
        "diff",
        "--name-status",
        "-z",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=dirty",
        tree,
        "--",
    ];
    let raw = repo.git.read(args).bytes()?;
    let mut fields = raw.split(|b| *b == 0).filter(|it| !it.is_empty());
    while let (Some(status), Some(path)) = (fields.next(), fields.next()) {
        match status {
            b"A" => away.insert(path.to_vec()),
            _ => back.insert(path.to_vec()),
        };
    }
    // Files git does not track are in no diff with the work tree.
    let status = repo.status()?;
    let untracked: Vec<Vec<u8>> = status
        .into_iter()
        .filter(|it| it.code == *b"??")
        .map(|it| it.path)
        .collect();
    if untracked.is_empty() {
        return Ok((back, away));
    }
    let raw = repo
        .git
        .read(["ls-tree", "-r", "-z", "--full-tree", tree])
        .bytes()?;
    let kept: BTreeMap<&[u8], &[u8]> = raw.split(|b| *b == 0).filter_map(entry).collect();
    for path in untracked {
        match kept.get(path.as_slice()) {
            None => {
                away.insert(path);
            }
            Some(oid) if same(repo, &path, oid)? => {
                back.remove(&path);
            }
            Some(_) => {
                back.insert(path);
            }
        }
    }
    Ok((back, away))
}

/// `mode type oid TAB path`
fn entry(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    Some((&line[tab + 1..], line[..tab].rsplit(|b| *b == b' ').next()?))
}

/// Whether a file on disk is this blob.
fn same(repo: &Repo, path: &[u8], oid: &[u8]) -> Result<bool, Failure> {
    let Ok(path) = std::str::from_utf8(path) else {
        return Ok(false);
    };
    let on_disk = repo.work_tree().map(|root| root.join(path));
    if on_disk.is_none_or(|it| it.symlink_metadata().map_or(true, |it| !it.is_file())) {
        return Ok(false);
    }
    let out = repo.git.read(["hash-object", "--", path]).output()?;
    Ok(out.status == Some(0) && out.stdout.trim_ascii_end() == oid)
}

/// Stages finished on a branch since the entry was made, oldest first.
fn leaving(repo: &Repo, meta: &Meta) -> Result<Vec<String>, Failure> {
    let mut stages = Vec::new();
    for (name, was) in &meta.refs {
        let (Some(was), Some(now)) = (was, refs::read(repo, name)?) else {
            continue;
        };
        let since = repo.first_parents(&now, Some(was), COMMITS)?;
        let read = |it: &gitdb::repo::Commit| StageMessage::read(&it.message).ok();
        let of_branch = since.iter().rev().filter_map(read);
        stages.extend(of_branch.map(|it| {
            let Checkpoint { stage, cycle } = it.checkpoint;
            format!("{}:{cycle}", stage.as_str())
        }));
    }
    Ok(stages)
}

fn ref_words(repo: &Repo, meta: &Meta) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    for (name, was) in &meta.refs {
        let now = refs::read(repo, name)?;
        let shown = clean(name.strip_prefix("refs/heads/").unwrap_or(name));
        match (was, now) {
            (Some(was), Some(now)) if *was != now => {
                words.push(format!(
                    "{shown} goes from {} back to {}",
                    now.short(),
                    was.short()
                ));
            }
            (Some(was), None) => words.push(format!("{shown} is made again, at {}", was.short())),
            (None, Some(now)) => words.push(format!("{shown} (at {}) goes away", now.short())),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    let to = match (&meta.head, repo.head()?) {
        (HeadWas::Branch(was), Head::Branch { name, .. }) if *was == name => return Ok(words),
        (HeadWas::Detached(was), Head::Detached(now)) if *was == now => return Ok(words),
        (HeadWas::Branch(was), _) => clean(was.strip_prefix("refs/heads/").unwrap_or(was)),
        (HeadWas::Detached(was), _) => format!("commit {} (no branch)", was.short()),
    };
    words.push(format!("{to} is checked out again"));
    Ok(words)
}

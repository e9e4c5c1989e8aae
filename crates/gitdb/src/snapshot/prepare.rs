//! Writing tree and commit of a stage.

use std::time::{SystemTime, UNIX_EPOCH};

use super::capture::{raw_diff, write_tree};
use super::durable::sync_objects;
use super::{
    Capture, Expected, Hooks, Landed, Prepared, PrivateIndex, RawChange, Selection, Sign,
    SnapshotError, TreeChange, filters, hooks, land, signing,
};
use crate::undo::{self, Keep};
use crate::{GitError, Head, Oid, Repo, fault};

/// How often a stage is prepared anew because the user's index changed.
const TRIES: u32 = 3;

/// Writes tree and commit.
/// `base` is the value the branch has now (from [`super::meanwhile`]).
pub fn prepare(
    repo: &Repo,
    expected: &Expected<'_>,
    base: &Oid,
    message: &str,
    selection: Selection<'_>,
    sign: Sign,
    hooks: Hooks,
) -> Result<Prepared, SnapshotError> {
    let on = On {
        branch: expected.branch,
        parent: Some(expected.start_tip),
        base: Some(base),
    };
    prepare_on(repo, on, message, selection, sign, hooks)
}

/// Where a commit goes.
#[derive(Debug, Clone, Copy)]
struct On<'a> {
    branch: &'a str,
    /// The new commit's parent; none on an unborn branch.
    parent: Option<&'a Oid>,
    /// What the branch is now; none when unborn.
    base: Option<&'a Oid>,
}

fn prepare_on(
    repo: &Repo,
    on: On<'_>,
    message: &str,
    selection: Selection<'_>,
    sign: Sign,
    hooks: Hooks,
) -> Result<Prepared, SnapshotError> {
    check_place(repo, on.branch)?;
    let capture = Capture {
        repo,
        parent: on.parent,
        exclude: selection.exclude,
    };
    let private = PrivateIndex::copy(repo)?;
    let staged = capture.staged(&private)?;
    refuse_unmerged(&staged)?;
    filters::check_adding(repo, selection.exclude)?;
    add(&capture, &private, selection.only, &staged)?;
    let message = match hooks {
        Hooks::Skip => message.to_owned(),
        Hooks::Run => {
            if hooks::pre_commit(repo, &private.path)? == hooks::Ran::Yes {
                add(&capture, &private, None, &staged)?;
            }
            hooks::commit_msg(repo, &private, message)?
        }
    };
    let (tree, changes) = capture.tree(&private)?;
    keep_index_only(&capture, on, &private, &staged, &tree)?;
    let commit = signing::commit(repo, &tree, on.parent, &message, sign)?;
    let null = repo.object_format.null();
    let prepared = Prepared {
        branch: on.branch.to_owned(),
        base: match on.base {
            Some(oid) => oid.clone(),
            None => null.parse().expect("the null id is a full id"),
        },
        commit,
        tree,
        index_checksum: private.checksum.clone(),
        nonce: private.nonce.clone(),
        changes: changes.into_iter().map(TreeChange::from).collect(),
    };
    private.keep()?;
    fault::point("snapshot.prepared");
    Ok(prepared)
}

/// HEAD on the branch, and nothing begun and not ended (case B07).
pub(super) fn check_place(repo: &Repo, branch: &str) -> Result<(), SnapshotError> {
    if let Some(operation) = repo.operation_in_progress()? {
        return Err(SnapshotError::Operation(operation));
    }
    if repo.head_branch()?.as_deref() != Some(branch) {
        return Err(SnapshotError::HeadMoved {
            branch: branch.to_owned(),
        });
    }
    Ok(())
}

fn refuse_unmerged(staged: &[RawChange]) -> Result<(), SnapshotError> {
    let unmerged = staged.iter().filter(|it| it.status == b'U').take(20);
    let paths: Vec<String> = unmerged
        .map(|it| String::from_utf8_lossy(&it.path).into_owned())
        .collect();
    if paths.is_empty() {
        Ok(())
    } else {
        Err(SnapshotError::Unmerged { paths })
    }
}

fn add(
    capture: &Capture<'_>,
    private: &PrivateIndex,
    only: Option<&[Vec<u8>]>,
    staged: &[RawChange],
) -> Result<(), SnapshotError> {
    let added = match only {
        None => capture.add(private),
        Some(paths) => capture.add_paths(private, paths),
    };
    added.map_err(|e| match e {
        GitError::Failed {
            command, stderr, ..
        } if command == "update-index" => SnapshotError::Add(stderr),
        other => SnapshotError::Git(other),
    })?;
    capture.reset_excluded(private, staged)?;
    Ok(())
}

/// Content that is only in the index (a partly staged hunk, a staged file deleted from disk)
/// is in no variant of the commit, so it becomes an undo entry before anything moves.
fn keep_index_only(
    capture: &Capture<'_>,
    on: On<'_>,
    private: &PrivateIndex,
    staged: &[RawChange],
    tree: &Oid,
) -> Result<(), GitError> {
    if staged.iter().all(|it| it.new_mode == 0) {
        return Ok(());
    }
    let repo = capture.repo;
    // The copy has been added to; the user's own index still says what was staged.
    let original = PrivateIndex::copy(repo)?;
    let mut lost = capture.staged_against(&original, tree)?;
    lost.retain(|it| it.new_mode != 0);
    if let Some(base) = on.base
        && !lost.is_empty()
    {
        // What an agent committed is kept by its tip, not here.
        let unsaved = capture.staged_against(&original, base)?;
        lost.retain(|it| unsaved.iter().any(|other| other.path == it.path));
    }
    if lost.is_empty() || original.checksum != private.checksum {
        // A changed index makes `land` refuse, and everything is done again.
        return Ok(());
    }
    let keep = Keep {
        leave_out: capture.exclude.to_vec(),
        ..Keep::default()
    };
    undo::record(
        repo,
        "content that was only in the index",
        &keep,
        now_unix(),
    )
    .map(drop)
}

/// Seconds since 1970, for the entry a stage makes by itself.
fn now_unix() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX))
}

pub(super) fn commit_work_tree(repo: &Repo, message: &str) -> Result<Oid, SnapshotError> {
    for _ in 0..TRIES {
        let (branch, tip) = match repo.head()? {
            Head::Branch { name, oid } => (name, oid),
            Head::Detached(_) => {
                return Err(SnapshotError::HeadMoved {
                    branch: "a branch".to_owned(),
                });
            }
        };
        let on = On {
            branch: &branch,
            parent: tip.as_ref(),
            base: tip.as_ref(),
        };
        let prepared = prepare_on(
            repo,
            on,
            message,
            Selection::default(),
            Sign::Auto,
            Hooks::Skip,
        )?;
        match land(repo, &prepared)? {
            Landed::Done | Landed::HeadLeft => return Ok(prepared.commit),
            Landed::IndexChanged => {}
        }
    }
    Err(SnapshotError::IndexBusy)
}

/// The tree an index would be committed as, what it adds to `base` made durable. Unmerged
/// entries are the caller's to exclude.
pub(crate) fn index_tree(repo: &Repo, private: &PrivateIndex, base: &Oid) -> Result<Oid, GitError> {
    let tree = write_tree(repo, &private.path)?;
    let objects = raw_diff(repo, &["-r", "-t"], base, &tree)?;
    let mut oids: Vec<Oid> = objects.into_iter().map(|it| it.new).collect();
    oids.push(tree.clone());
    sync_objects(repo, &oids)?;
    Ok(tree)
}

//! Making what a start needs: branch, HEAD, work tree, goal file. Each only if it is not there yet.

use std::path::Path;

use gitdb::refs::{self, Applied, Edit, Expect};
use gitdb::{Head, Repo};

use super::setup::{StartError, excluded};
use crate::files::store;
use crate::live::Live;

/// Makes branch, HEAD, work tree and goal file of a start, each only if it is not there yet, so
/// that a start that was killed goes on.
pub fn put_in_place(repo: &Repo, live: &mut Live) -> Result<Repo, StartError> {
    let in_place = repo.work_tree() == Some(live.worktree.as_path());
    gitdb::fault::point("setup.branch.before");
    let run_repo = if in_place {
        branch_here(repo, live)?
    } else {
        work_tree(repo, live)?
    };
    gitdb::fault::point("setup.branch.after");
    let lines = excluded();
    run_repo.exclude(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    live.git_dir = run_repo.git_dir.clone();
    let goal = live.worktree.join(&live.start.goal);
    if let Some(text) = &live.start.goal_text
        && !goal.exists()
    {
        let mut text = text.trim_end().to_owned();
        text.push('\n');
        store::write(&live.worktree, &goal, text.as_bytes())?;
    }
    if !in_place {
        bring_along(repo, live, &goal)?;
    }
    live.set_up = true;
    live.write(&run_repo)?;
    Ok(run_repo)
}

/// What of the user's uncommitted start files a work tree of its own needs: the goal, when it is
/// not committed yet, and the machine's script for the scripted agent.
fn bring_along(repo: &Repo, live: &Live, goal: &Path) -> Result<(), StartError> {
    let Some(root) = repo.work_tree() else {
        return Ok(());
    };
    let script = ".dex/mock-config.json";
    for (from, to) in [
        (root.join(&live.start.goal), goal.to_owned()),
        (root.join(script), live.worktree.join(script)),
    ] {
        if !to.exists()
            && let Some(bytes) = store::read(&from)?
        {
            store::write(&live.worktree, &to, &bytes)?;
        }
    }
    Ok(())
}

fn branch_here(repo: &Repo, live: &Live) -> Result<Repo, StartError> {
    match refs::read(repo, &live.branch)? {
        Some(_) => {}
        None => {
            let edit = Edit::Set {
                name: live.branch.clone(),
                expect: Expect::Absent,
                to: live.tip.clone(),
            };
            match refs::apply(repo, &[edit], "dex: run started")? {
                Applied::Done => {}
                Applied::Moved { name, .. } => return Err(StartError::BranchExists(name)),
            }
        }
    }
    gitdb::fault::point("setup.head.before");
    let on_branch = matches!(repo.head()?, Head::Branch { name, .. } if name == live.branch);
    if !on_branch {
        let here = match repo.head()? {
            Head::Branch { oid, .. } => oid,
            Head::Detached(oid) => Some(oid),
        };
        if here.as_ref() == Some(&live.tip) {
            // Same commit: nothing in index or files changes.
            repo.point_head_at(&live.branch, "dex: run started")?;
        } else {
            repo.switch(&live.branch)?;
        }
    }
    Ok(repo.clone())
}

fn work_tree(repo: &Repo, live: &Live) -> Result<Repo, StartError> {
    if !live.worktree.join(".git").exists() {
        let short = live.branch.trim_start_matches("refs/heads/");
        if let Some(parent) = live.worktree.parent() {
            std::fs::create_dir_all(parent).map_err(|source| StartError::NotWritable {
                path: parent.to_owned(),
                source,
            })?;
        }
        repo.add_worktree(&live.worktree, short, &live.tip)?;
    }
    Repo::open(&live.worktree).map_err(|error| match error {
        gitdb::OpenError::Git(error) => StartError::Git(error),
        _ => StartError::NotWritable {
            path: live.worktree.clone(),
            source: std::io::Error::other("the new work tree cannot be opened"),
        },
    })
}

//! Reading what is known about runs, from refs, commits and the live records. Never writes.

use std::path::Path;

use gitdb::repo::Commit;
use gitdb::{GitError, Head, Oid, Repo, refs};

use crate::files::lock;
use crate::files::manifest::{self, Manifest};
use crate::files::record::Record;
use crate::files::state::{self, State};
use crate::files::store::{self, FileError};
use crate::live::Live;
use crate::names::{RUN_BRANCHES, RunBranch};
use crate::reconcile::{Facts, Read, Reconciled, reconcile};
use crate::stage::Stage;

/// More commits than this are not read for one run.
pub const MAX_COMMITS: usize = 20_000;

/// Forks of forks beyond this many are not followed back.
const MAX_FORKS: usize = 32;

/// A run could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
    /// A file of ours cannot be used.
    #[error("a file of the run cannot be used")]
    File(#[from] FileError),
    /// Nothing has this name.
    #[error("there is no run {0}")]
    NotFound(String),
    /// Nothing has this name, or what has it is no commit.
    #[error("there is no finished stage or commit {0}")]
    NoCheckpoint(String),
    /// Several unfinished runs, and none was named.
    #[error("several runs are not finished: {}", .0.join(", "))]
    Several(Vec<String>),
    /// There is no run at all.
    #[error("there is no run in this repository yet")]
    NoRuns,
}

/// A run that exists, before it is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The branch, short (`dex/…`).
    pub branch: String,
    /// Its tip; none when only a live record is left.
    pub tip: Option<Oid>,
    /// Only a remote-tracking branch has it.
    pub remote_only: bool,
    /// The run id, when a live record is here.
    pub run_id: Option<String>,
}

/// Every run there is, oldest first.
pub fn known(repo: &Repo) -> Result<Vec<Known>, FactsError> {
    let mut runs: Vec<Known> = Vec::new();
    for found in refs::list(repo, &[RUN_BRANCHES, "refs/remotes/"])? {
        let (short, remote_only) = match found.name.strip_prefix("refs/heads/") {
            Some(short) => (short.to_owned(), false),
            None => match found.name.find("/dex/") {
                Some(at) => (found.name[at + 1..].to_owned(), true),
                None => continue,
            },
        };
        if RunBranch::read(&short).is_err() {
            continue;
        }
        match runs.iter_mut().find(|it| it.branch == short) {
            Some(run) if run.remote_only && !remote_only => {
                *run = Known {
                    branch: short,
                    tip: Some(found.oid),
                    remote_only,
                    run_id: None,
                };
            }
            Some(_) => {}
            None => runs.push(Known {
                branch: short,
                tip: Some(found.oid),
                remote_only,
                run_id: None,
            }),
        }
    }
    for live in Live::all(repo) {
        let Ok(live) = live else { continue };
        let short = live.branch.trim_start_matches("refs/heads/").to_owned();
        match runs.iter_mut().find(|it| it.branch == short) {
            Some(run) => run.run_id = Some(live.run_id),
            None => runs.push(Known {
                branch: short,
                tip: None,
                remote_only: false,
                run_id: Some(live.run_id),
            }),
        }
    }
    runs.sort_by(|a, b| a.branch.cmp(&b.branch));
    Ok(runs)
}

/// Finds the run a user means: by branch, run id or its six digits; without a name this work
/// tree's run, else the only unfinished one.
pub fn find(repo: &Repo, name: Option<&str>) -> Result<Known, FactsError> {
    let runs = known(repo)?;
    if let Some(name) = name {
        return by_name(repo, &runs, name)?.ok_or_else(|| FactsError::NotFound(name.to_owned()));
    }
    if let Head::Branch { name, .. } = repo.head()?
        && let Ok(branch) = RunBranch::read(&name)
        && let Some(run) = runs.iter().find(|it| it.branch == branch.short())
    {
        return Ok(run.clone());
    }
    let mut unfinished = Vec::new();
    for run in &runs {
        let reconciled = read_run(repo, run)?;
        if !reconciled.progress.has(Stage::Completion) {
            unfinished.push(run.clone());
        }
    }
    match (unfinished.len(), runs.last()) {
        (1, _) => Ok(unfinished.remove(0)),
        (0, Some(last)) => Ok(last.clone()),
        (0, None) => Err(FactsError::NoRuns),
        (_, _) => Err(FactsError::Several(
            unfinished.into_iter().map(|it| it.branch).collect(),
        )),
    }
}

fn by_name(repo: &Repo, runs: &[Known], name: &str) -> Result<Option<Known>, FactsError> {
    let short = name.strip_prefix("refs/heads/").unwrap_or(name);
    if let Some(run) = runs.iter().find(|it| it.branch == short) {
        return Ok(Some(run.clone()));
    }
    let six = |it: &&Known| RunBranch::read(&it.branch).is_ok_and(|b| b.id() == short);
    if let Some(run) = runs.iter().find(six) {
        return Ok(Some(run.clone()));
    }
    if short.len() != 36 {
        return Ok(None);
    }
    for run in runs
        .iter()
        .filter(|it| RunBranch::read(&it.branch).is_ok_and(|b| short.ends_with(b.id())))
    {
        if run.run_id.as_deref() == Some(short) || read_run(repo, run)?.run_id == short {
            return Ok(Some(run.clone()));
        }
    }
    Ok(None)
}

/// Reads and settles a run.
pub fn read_run(repo: &Repo, known: &Known) -> Result<Reconciled, FactsError> {
    Ok(reconcile(&read(repo, known)?))
}

/// Reads everything about a run.
pub fn read(repo: &Repo, known: &Known) -> Result<Facts, FactsError> {
    let live = live_of(repo, known)?;
    let mut facts = Facts {
        branch: Some(known.branch.clone()),
        tip: known.tip.clone(),
        remote_only: known.remote_only,
        ..Facts::default()
    };
    if let Some(live) = &live {
        facts.running = lock::holder(&live.worktree, &live.git_dir)
            .filter(|it| it.run_id.as_deref().is_none_or(|id| id == live.run_id))
            .map(|it| it.pid);
        facts.checked_out = checked_out(repo, live);
        if facts.checked_out == Some(true) {
            facts.state_on_disk = on_disk(&live.worktree.join(".dex/state.json"));
        }
    }
    if let Some(tip) = &known.tip {
        at_tip(repo, tip, live.as_ref(), &mut facts)?;
    }
    facts.live = live;
    Ok(facts)
}

fn live_of(repo: &Repo, known: &Known) -> Result<Option<Live>, FactsError> {
    if let Some(id) = &known.run_id {
        return Ok(Live::read(repo, id)?);
    }
    let full = format!("refs/heads/{}", known.branch);
    for live in Live::all(repo) {
        match live {
            Ok(live) if live.branch == full => return Ok(Some(live)),
            Ok(_) => {}
            // The directory's name ends like the branch: this run's own record is bad.
            Err(FileError::Malformed { path, problem })
                if path
                    .parent()
                    .is_some_and(|dir| ends_like(dir, &known.branch)) =>
            {
                return Err(FileError::Malformed { path, problem }.into());
            }
            Err(_) => {}
        }
    }
    Ok(None)
}

fn ends_like(dir: &Path, branch: &str) -> bool {
    let id = branch.rsplit('-').next().unwrap_or(branch);
    dir.file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with(id))
}

/// What a run's commits say, without looking at the work tree or for other processes.
pub fn committed(repo: &Repo, tip: &Oid, live: &Live) -> Result<Facts, FactsError> {
    let branch = live.branch.trim_start_matches("refs/heads/").to_owned();
    let mut facts = Facts {
        branch: Some(branch),
        tip: Some(tip.clone()),
        ..Facts::default()
    };
    at_tip(repo, tip, Some(live), &mut facts)?;
    Ok(facts)
}

/// Commits, record, manifest and state at the run's tip.
fn at_tip(
    repo: &Repo,
    tip: &Oid,
    live: Option<&Live>,
    facts: &mut Facts,
) -> Result<(), FactsError> {
    let record = |id: &str| format!(".dex/runs/{id}.json");
    let mut paths = vec![manifest::PATH.to_owned(), state::PATH.to_owned()];
    paths.extend(live.map(|it| record(&it.run_id)));
    let mut files = repo.read_files(tip, &paths)?;
    facts.manifest = parsed(files.first().cloned().flatten(), Manifest::read);
    facts.state = parsed(files.get(1).cloned().flatten(), State::read);
    if let (None, Some(state)) = (live, facts.state.got()) {
        files.push(repo.read_file(tip, &record(&state.run_id))?);
    }
    facts.record = parsed(files.get(2).cloned().flatten(), Record::read);
    let parent = live.and_then(|it| it.start.parent_run_id.clone());
    let mut parent = parent.or(facts.record.got().and_then(|it| it.parent_run_id.clone()));
    for _ in 0..MAX_FORKS {
        let Some(id) = parent.take() else { break };
        let read = parsed(repo.read_file(tip, &record(&id))?, Record::read);
        parent = read.got().and_then(|it| it.parent_run_id.clone());
        facts.parents.push(read);
    }
    let base = base(repo, tip, live, facts)?;
    facts.commits = repo.first_parents(tip, base.as_ref(), MAX_COMMITS)?;
    Ok(())
}

/// The commit before the run's history.
fn base(
    repo: &Repo,
    tip: &Oid,
    live: Option<&Live>,
    facts: &Facts,
) -> Result<Option<Oid>, FactsError> {
    if let Some(live) = live {
        return Ok(Some(live.start.base_sha.clone()));
    }
    let recorded = facts.record.got().and_then(|it| it.base_sha.as_ref());
    if let Some(oid) = recorded.and_then(|it| it.parse::<Oid>().ok()) {
        return Ok(Some(oid));
    }
    // The existing Dex kept no base commit: everything before its first stage is not the run's.
    let all: Vec<Commit> = repo.first_parents(tip, None, MAX_COMMITS)?;
    let first = all.iter().rposition(|it| it.stage.is_some());
    Ok(first.and_then(|at| all[at].parents.first().cloned()))
}

fn parsed<T>(bytes: Option<Vec<u8>>, read: impl Fn(&[u8]) -> Result<T, FileError>) -> Read<T> {
    match bytes {
        None => Read::Absent,
        Some(bytes) => match read(&bytes) {
            Ok(value) => Read::Got(value),
            Err(error) => Read::Bad(error.to_string()),
        },
    }
}

fn on_disk(path: &Path) -> Read<State> {
    match store::read(path) {
        Ok(None) => Read::Absent,
        Ok(Some(bytes)) => match State::read(&bytes) {
            Ok(state) => Read::Got(state),
            Err(error) => Read::Bad(error.to_string()),
        },
        Err(error) => Read::Bad(error.to_string()),
    }
}

/// Whether the run's work tree is on its branch; none when that work tree is not there.
fn checked_out(repo: &Repo, live: &Live) -> Option<bool> {
    let there = live.git_dir.join("HEAD").symlink_metadata().is_ok();
    let branch = there
        .then(|| repo.branch_at(&live.git_dir).ok())
        .flatten()?;
    Some(branch.as_ref() == Some(&live.branch))
}

/// What a name like `plan:2`, `verify:2#1`, `RUN@plan:2` or a revision stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The commit.
    pub commit: Oid,
    /// The run it belongs to, when it is a finished stage of one.
    pub run: Option<Reconciled>,
    /// Which of the run's finished stages it is.
    pub at: Option<usize>,
}

/// Finds what a person means by a checkpoint. `plan:2` is one of this work tree's run.
pub fn checkpoint(repo: &Repo, name: &str) -> Result<Found, FactsError> {
    let missing = || FactsError::NoCheckpoint(name.to_owned());
    let (run, rest) = match name.rsplit_once('@') {
        Some((run, rest)) if rest.contains(':') => (Some(run), rest),
        _ => (None, name),
    };
    if let Some((stage, cycle, nth)) = stage_name(rest) {
        let reconciled = read_run(repo, &find(repo, run)?)?;
        let at = reconciled
            .progress
            .find(stage, cycle, nth)
            .ok_or_else(missing)?
            .commit
            .clone();
        return Ok(within(reconciled, at));
    }
    let commit = repo.resolve_commit(name)?.ok_or_else(missing)?;
    for known in known(repo)?.iter().rev().filter(|it| it.tip.is_some()) {
        let reconciled = read_run(repo, known)?;
        if reconciled
            .progress
            .done
            .iter()
            .any(|it| it.commit == commit)
        {
            return Ok(within(reconciled, commit));
        }
    }
    Ok(Found {
        commit,
        run: None,
        at: None,
    })
}

fn within(run: Reconciled, commit: Oid) -> Found {
    let at = run.progress.done.iter().position(|it| it.commit == commit);
    Found {
        commit,
        run: Some(run),
        at,
    }
}

/// Reads `stage:cycle[#n]`.
fn stage_name(text: &str) -> Option<(Stage, u32, Option<u32>)> {
    let (stage, rest) = text.split_once(':')?;
    let (cycle, nth) = match rest.split_once('#') {
        Some((cycle, nth)) => (cycle, Some(nth.parse().ok()?)),
        None => (rest, None),
    };
    Some((stage.parse().ok()?, cycle.parse().ok()?, nth))
}

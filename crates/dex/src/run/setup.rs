//! Starting a run, so that being killed at any step leaves something the next try goes on from.
//!
//! The checks come first and change nothing. Then the live record says what is about to be made;
//! branch, HEAD and files follow, each step repeatable ([`put_in_place`]).

use std::path::{Path, PathBuf};

use gitdb::refs::{self, Applied, Edit};
use gitdb::repo::Operation;
use gitdb::{GitError, Head, Oid, Repo};

pub use super::placing::put_in_place;
use super::{RunError, now};
use crate::files::lock::{LockError, RunLock};
use crate::files::store::{self, FileError};
use crate::live::{Live, Settings, Start, Work};
use crate::names::{self, RunBranch, RunId};
use crate::outcome::MACHINE_FILES;
use crate::reconcile::{Facts, Reconciled};

/// Bytes of a goal file.
const MOST_GOAL_BYTES: u64 = 1024 * 1024;

/// What a run is started with.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The goal.
    pub goal: Goal,
    /// Settings, resolved.
    pub settings: Settings,
    /// Cycle 0 without an agent.
    pub small: bool,
    /// Stop at questions.
    pub ask: bool,
    /// Pause after every stage.
    pub step: bool,
    /// In a work tree of its own, under this directory.
    pub worktree_under: Option<PathBuf>,
    /// Advice for the prompts.
    pub note: Option<String>,
    /// Commit to start from, with the run it belongs to, for `resume --from`.
    pub from: Option<Fork>,
}

/// Where a forked run starts.
#[derive(Debug, Clone)]
pub struct Fork {
    /// The run it forks.
    pub parent_run_id: String,
    /// The commit.
    pub commit: Oid,
    /// Base commit of that run: history before it is not the run's.
    pub base_sha: Oid,
    /// Base branch of that run.
    pub base_branch: Option<String>,
}

/// Where the goal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// In this file, from the root.
    File(String),
    /// It is this text, to be written to `GOAL.md` or, where a different one exists,
    /// `GOAL-<6 hex>.md`.
    Text(String),
}

/// A run cannot start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No work tree.
    #[error("this is a bare repository: a run needs a work tree")]
    Bare,
    /// No commit yet.
    #[error("the repository has no commit yet")]
    Unborn,
    /// Something is in progress.
    #[error("a {0:?} is in progress")]
    Operation(Operation),
    /// Git has no name and mail to commit with.
    #[error("git has no identity to commit with")]
    NoIdentity,
    /// A branch called `dex` is in the way of `dex/…`.
    #[error("a branch named dex is in the way of dex/…")]
    BlockingBranch,
    /// Uncommitted work that is not the run's.
    #[error("the work tree has uncommitted changes")]
    Dirty(Vec<String>),
    /// A sandbox is required, and cannot be whole here.
    #[error("the sandbox cannot be made")]
    NoSandbox(#[source] agents::sandbox::Refusal),
    /// Nothing would keep the agent to looking in stages that only look.
    #[error("some stages only look, and nothing here holds the agent to that")]
    NotHeld(#[source] super::NotHeld),
    /// Commits could not be signed without a prompt.
    #[error("commits cannot be signed without a prompt: {0}")]
    Signing(String),
    /// A tracked file needs a filter that only this repository's own configuration names.
    #[error("filter_not_allowed: {driver} is needed for {path}")]
    FilterNotAllowed {
        /// The driver.
        driver: String,
        /// A path that needs it.
        path: String,
    },
    /// Another run works here.
    #[error("another run works in this work tree")]
    Locked(#[source] LockError),
    /// The goal file is not there.
    #[error("the goal file {0} is not there")]
    NoGoal(String),
    /// The goal file is too large to be committed, or to be told to an agent.
    #[error("the goal file {path} has {bytes} bytes; {most} are the most")]
    GoalTooLarge {
        /// The goal file.
        path: String,
        /// Its length.
        bytes: u64,
        /// The most it may have.
        most: u64,
    },
    /// The branch was made by somebody else in the same moment.
    #[error("the branch {0} exists already")]
    BranchExists(String),
    /// The git directory cannot be written to.
    #[error("{} cannot be written to", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The project is the home directory.
    #[error("{} is the home directory", .0.display())]
    HomeDirectory(PathBuf),
    /// Git failed.
    #[error("git failed")]
    Git(#[from] GitError),
    /// A file of ours could not be used.
    #[error("a file could not be used")]
    File(#[from] FileError),
    /// The run could not be put in place.
    #[error("the run could not be put in place")]
    Run(#[from] RunError),
}

/// Everything that can be known before anything is changed or paid for.
pub fn check(repo: &Repo, wanted: &Wanted) -> Result<Oid, StartError> {
    let base = look(repo, wanted)?;
    if wanted.settings.sign == "auto" {
        gitdb::snapshot::test_signing(repo).map_err(StartError::Signing)?;
    }
    Ok(base)
}

/// As [`check`], without the one test that may be slow.
fn look(repo: &Repo, wanted: &Wanted) -> Result<Oid, StartError> {
    let root = repo.work_tree().ok_or(StartError::Bare)?;
    let base = match repo.head()? {
        Head::Branch { oid: Some(oid), .. } | Head::Detached(oid) => oid,
        Head::Branch { oid: None, .. } => return Err(StartError::Unborn),
    };
    let real = |path: &Path| path.canonicalize().ok();
    if std::env::home_dir().is_some_and(|home| home == root || real(&home) == real(root)) {
        return Err(StartError::HomeDirectory(root.to_owned()));
    }
    if let Some(operation) = repo.operation_in_progress()? {
        return Err(StartError::Operation(operation));
    }
    if repo.identity()?.is_none() {
        return Err(StartError::NoIdentity);
    }
    if refs::read(repo, names::BLOCKING_BRANCH)?.is_some() {
        return Err(StartError::BlockingBranch);
    }
    // Said, not passed over: whoever requires walls must not get a run without them.
    let linked = wanted.worktree_under.is_some();
    super::walls::check(repo, root, linked, &wanted.settings).map_err(StartError::NoSandbox)?;
    writable(&repo.common_dir)?;
    writable(&repo.git_dir)?;
    if let Some((driver, path)) = gitdb::snapshot::filter_not_allowed(repo)? {
        return Err(StartError::FilterNotAllowed { driver, path });
    }
    if let Goal::File(path) = &wanted.goal {
        let bytes = match &wanted.from {
            Some(fork) => repo
                .read_file(&fork.commit, path)?
                .map(|it| it.len() as u64),
            None => std::fs::metadata(root.join(path))
                .ok()
                .filter(std::fs::Metadata::is_file)
                .map(|it| it.len()),
        };
        let most = MOST_GOAL_BYTES.min(wanted.settings.max_file_bytes);
        match bytes {
            None => return Err(StartError::NoGoal(path.clone())),
            Some(bytes) if bytes > most => {
                let path = path.clone();
                return Err(StartError::GoalTooLarge { path, bytes, most });
            }
            Some(_) => {}
        }
    }
    if wanted.worktree_under.is_none() {
        let dirty = dirty(repo, &wanted.goal)?;
        if !dirty.is_empty() {
            return Err(StartError::Dirty(dirty));
        }
    }
    Ok(base)
}

/// Resolves where writing will be needed (case C24), instead of finding out after a paid stage.
fn writable(dir: &Path) -> Result<(), StartError> {
    let probe = dir
        .join("dex")
        .join(format!("probe-{}", std::process::id()));
    let io = |source| StartError::NotWritable {
        path: dir.to_owned(),
        source,
    };
    std::fs::create_dir_all(dir.join("dex")).map_err(io)?;
    std::fs::write(&probe, b"").map_err(io)?;
    std::fs::remove_file(&probe).map_err(io)
}

/// Uncommitted paths that are not the run's own: neither the goal nor `.dex/`.
pub fn dirty(repo: &Repo, goal: &Goal) -> Result<Vec<String>, GitError> {
    let text_is_there = |text: &str| {
        let path = repo.work_tree().map(|root| root.join("GOAL.md"));
        let bytes = path.and_then(|it| store::read(&it).ok().flatten());
        bytes.is_some_and(|it| String::from_utf8_lossy(&it).trim() == text.trim())
    };
    let ours = |path: &[u8]| {
        path.starts_with(b".dex/")
            || match goal {
                Goal::File(goal) => goal.as_bytes() == path,
                // A start that was killed has written it already.
                Goal::Text(text) => path == b"GOAL.md" && text_is_there(text),
            }
    };
    let entries = repo.status()?;
    let mut paths: Vec<String> = entries
        .iter()
        .filter(|it| !ours(&it.path))
        .map(|it| String::from_utf8_lossy(&it.path).into_owned())
        .collect();
    paths.sort();
    Ok(paths)
}

/// Starts a run: lock, live record, branch, HEAD, files. Returns the repository as seen from the
/// run's work tree.
pub fn start(repo: &Repo, wanted: &Wanted) -> Result<(Repo, Live, RunLock), StartError> {
    let root = repo.work_tree().ok_or(StartError::Bare)?.to_owned();
    let holder = RunLock::holder(&root, &repo.git_dir);
    if let Some(holder) = holder.filter(|_| wanted.worktree_under.is_none()) {
        // Before anything else: what is uncommitted here is that run's half-done stage.
        return Err(StartError::Locked(LockError::Held {
            pid: holder.pid,
            since: holder.since,
            host: holder.host,
            run_id: holder.run_id,
        }));
    }
    let mut base = check(repo, wanted)?;
    let here = match &wanted.worktree_under {
        None => Some(RunLock::acquire(&root, &repo.git_dir).map_err(StartError::Locked)?),
        Some(_) => None,
    };
    if here.is_some() {
        drop_half_made(repo, &root)?;
        // Another run may have come and gone between the first look and the lock.
        base = look(repo, wanted)?;
    }
    let base_branch = match repo.head()? {
        Head::Branch { name, .. } => Some(name.trim_start_matches("refs/heads/").to_owned()),
        Head::Detached(_) => None,
    };
    // Known work trees of runs that ended hard: nothing of theirs may still write here.
    // In a tree of its own the run has no say here: another one may be at work.
    if here.is_some() {
        super::end_leftovers(repo, &root);
        super::clear_leftovers(repo)?;
    }
    let (run_id, branch) = free_name(repo)?;
    let start_commit = wanted.from.as_ref().map_or(&base, |it| &it.commit).clone();
    let worktree = match &wanted.worktree_under {
        None => root.clone(),
        Some(under) => under.join(format!("{}-{}", folder_name(&root), branch.id())),
    };
    let (goal, goal_text) = match &wanted.goal {
        Goal::File(path) => (path.clone(), None),
        Goal::Text(text) => (
            goal_name(repo, &start_commit, &root, text, &run_id)?,
            Some(text.clone()),
        ),
    };
    let fork = wanted.from.as_ref();
    let mut live = Live {
        version: 1,
        run_id: run_id.to_string(),
        branch: branch.full(),
        worktree: worktree.clone(),
        git_dir: repo.git_dir.clone(),
        start: Start {
            started_at: now(),
            base_branch: fork.map_or(base_branch, |it| it.base_branch.clone()),
            base_sha: fork.map_or(base, |it| it.base_sha.clone()),
            parent_run_id: fork.map(|it| it.parent_run_id.clone()),
            forked_from: fork.map(|it| it.commit.clone()),
            goal,
            goal_text,
            small: wanted.small,
            ask: wanted.ask,
            step: wanted.step,
            settings: wanted.settings.clone(),
        },
        set_up: false,
        tip: start_commit,
        work: Work::Idle,
        attempts: Vec::new(),
        finished_parts: Vec::new(),
        pause: None,
        question: None,
        quota_until: None,
        forgiven_cycles: 0,
        notes: wanted.note.iter().cloned().collect(),
        allow: Vec::new(),
        more: serde_json::Map::new(),
    };
    live.write(repo)?;
    let run_repo = put_in_place(repo, &mut live)?;
    let lock = match here {
        Some(lock) => lock,
        None => RunLock::acquire(&worktree, &run_repo.git_dir).map_err(StartError::Locked)?,
    };
    Ok((run_repo, live, lock))
}

/// Takes away what starts that were killed before their first stage left in this work tree
/// (case G09): a branch without a commit of its own, HEAD on it, a live record. Anything that
/// does not look exactly like that stays.
fn drop_half_made(repo: &Repo, root: &Path) -> Result<(), StartError> {
    let untouched =
        |it: &Live| it.work == Work::Idle && it.attempts.is_empty() && it.pause.is_none();
    let half_made = |it: &Live| {
        let here = it.worktree == root && it.start.parent_run_id.is_none();
        here && (!it.set_up || (untouched(it) && it.tip == it.start.base_sha))
    };
    for live in Live::all(repo).into_iter().flatten().filter(half_made) {
        let at = refs::read(repo, &live.branch)?;
        if at.as_ref().is_some_and(|it| *it != live.tip) {
            continue;
        }
        if matches!(repo.head()?, Head::Branch { name, .. } if name == live.branch) {
            let back = live
                .start
                .base_branch
                .as_ref()
                .map(|it| format!("refs/heads/{it}"));
            let Some(back) = back else { continue };
            if refs::read(repo, &back)?.as_ref() != Some(&live.tip) {
                continue;
            }
            repo.point_head_at(&back, "dex: a start that was killed")?;
        }
        if let Some(expect) = at {
            let name = live.branch.clone();
            let delete = Edit::Delete { name, expect };
            match refs::apply(repo, &[delete], "dex: a start that was killed")? {
                Applied::Done => {}
                Applied::Moved { .. } => continue,
            }
        }
        // What cannot be removed is one more run that never began; it does no harm.
        let _ = std::fs::remove_dir_all(Live::dir(repo, &live.run_id));
    }
    Ok(())
}

/// The lines `$GIT_COMMON_DIR/info/exclude` gets: on a commit older than the run
/// `.dex/.gitignore` is not there.
pub fn excluded() -> Vec<String> {
    let machine = MACHINE_FILES.iter().map(|it| format!("/{it}"));
    machine
        .chain([
            "/.dex/*.dex-tmp".to_owned(),
            "/.dex/runs/*.dex-tmp".to_owned(),
        ])
        .collect()
}

/// Hex SHA-256, for what a person allowed.
pub fn digest(bytes: &[u8]) -> String {
    super::inputs::sha256(bytes)
}

/// A run id whose branch is free.
fn free_name(repo: &Repo) -> Result<(RunId, RunBranch), StartError> {
    let today = jiff::Timestamp::now()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let mut last = None;
    for _ in 0..16 {
        let id = RunId::new();
        let branch = RunBranch::new(today, &id);
        let taken = refs::list(repo, &[names::RUN_BRANCHES])?
            .iter()
            .any(|it| it.name.ends_with(&format!("-{}", branch.id())));
        if !taken {
            return Ok((id, branch));
        }
        last = Some(branch);
    }
    Err(StartError::BranchExists(
        last.map(|it| it.short()).unwrap_or_default(),
    ))
}

/// `GOAL.md`, or `GOAL-<6 hex>.md` when a different one exists.
fn goal_name(
    repo: &Repo,
    commit: &Oid,
    root: &Path,
    text: &str,
    id: &RunId,
) -> Result<String, StartError> {
    let same = |bytes: Option<Vec<u8>>| {
        bytes.is_none_or(|it| String::from_utf8_lossy(&it).trim() == text.trim())
    };
    let free =
        same(store::read(&root.join("GOAL.md"))?) && same(repo.read_file(commit, "GOAL.md")?);
    Ok(if free {
        "GOAL.md".to_owned()
    } else {
        format!("GOAL-{}.md", id.short())
    })
}

fn folder_name(root: &Path) -> String {
    let name = root
        .file_name()
        .map(|it| it.to_string_lossy().into_owned())
        .unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    if plain.is_empty() {
        "project".to_owned()
    } else {
        plain
    }
}

/// A live record for a run of which only commits are left here (another clone, a lost `.git/dex`):
/// what it had been started with comes from its record, the settings from this machine.
pub fn revive(
    repo: &Repo,
    facts: &Facts,
    run: &Reconciled,
    settings: Settings,
) -> Result<Live, StartError> {
    let root = repo.work_tree().ok_or(StartError::Bare)?;
    let branch = facts.branch.clone().unwrap_or_default();
    let tip = facts.tip.clone().ok_or_else(|| RunError::BranchGone {
        branch: branch.clone(),
        tip: None,
    })?;
    let base = run.base_sha.as_deref().and_then(|it| it.parse().ok());
    let before_first = run.progress.done.first().and_then(|it| it.parent.clone());
    Ok(Live {
        version: 1,
        run_id: run.run_id.clone(),
        branch: format!("refs/heads/{branch}"),
        worktree: root.to_owned(),
        git_dir: repo.git_dir.clone(),
        start: Start {
            started_at: run.started_at.clone().unwrap_or_else(now),
            base_branch: run.base_branch.clone(),
            base_sha: base.or(before_first).unwrap_or_else(|| tip.clone()),
            parent_run_id: run.parent_run_id.clone(),
            forked_from: None,
            goal: run.goal.clone().unwrap_or_else(|| "GOAL.md".to_owned()),
            goal_text: None,
            small: false,
            ask: false,
            step: false,
            settings,
        },
        set_up: true,
        tip,
        work: Work::Idle,
        attempts: Vec::new(),
        finished_parts: Vec::new(),
        pause: None,
        question: None,
        quota_until: None,
        forgiven_cycles: run.progress.cycles_completed,
        notes: Vec::new(),
        allow: Vec::new(),
        more: serde_json::Map::new(),
    })
}

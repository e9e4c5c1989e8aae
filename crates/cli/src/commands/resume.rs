//! `dex resume`

use std::path::Path;

use dex::facts;
use dex::files::lock::RunLock;
use dex::files::record::PhaseStatus;
use dex::live::{Live, PauseReason, Work};
use dex::reconcile::{Reconciled, Unfinished};
use dex::run::Choice;
use dex::run::setup::{self, Fork, Goal, Wanted};
use gitdb::Repo;

use crate::args;
use crate::commands::run;
use crate::error::Failure;
use crate::exit::Exit;
use crate::ready;
use crate::session;
use crate::ui;

/// Goes on with a run.
pub fn resume(dir: &Path, args: &args::Resume) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let root = session::root(&repo)?;
    let mut inherited = None;
    if args.detached {
        // A session of its own: closing the terminal does not reach it. Already having one is fine.
        let _ = rustix::process::setsid();
        inherited = RunLock::take_over(standard_input()?, root, &repo.git_dir)?;
    }
    if let Some(from) = &args.from {
        return fork(&repo, from, args);
    }
    let known = facts::find(&repo, args.run.as_deref())?;
    let mut facts = facts::read(&repo, &known)?;
    if inherited.is_some() {
        // That is us.
        facts.running = None;
    }
    let reconciled = dex::reconcile::reconcile(&facts);
    if let Some(pid) = facts.running {
        return Err(Failure::new(
            Exit::Locked,
            format!("process {pid} works on this run already"),
        )
        .hint("Watch it with `dex status --watch`."));
    }
    // Killed between the branch and the index of its last commit, it has that left to do.
    let settled = reconciled.unfinished == Unfinished::None;
    if reconciled.progress.has(dex::stage::Stage::Completion) && settled {
        ui::talk(format!(
            "{} is complete; there is nothing to go on with",
            known.branch
        ));
        ui::talk(
            "See it with `dex report`, or start from a stage with `dex resume --from plan:1`.",
        );
        return Ok(Exit::Done);
    }
    if known.remote_only {
        return Err(
            Failure::new(Exit::Moved, format!("{} is only on a remote", known.branch)).hint(
                format!("Check it out first: `git switch {}`.", known.branch),
            ),
        );
    }
    // Where the agent deleted it, `--keep` and `--discard` put it back.
    if let (None, Some(live)) = (&known.tip, &facts.live)
        && live.set_up
        && !head_moved(live)
    {
        return Err(
            Failure::new(Exit::Moved, format!("the branch {} is gone", known.branch)).hint(
                format!(
                    "Bring it back with `git branch {0} {1}` and `git switch {0}`, then `dex resume`.",
                    known.branch, live.tip
                ),
            ),
        );
    }
    let mut live = match facts.live.clone() {
        Some(live) => live,
        None => setup::revive(&repo, &facts, &reconciled, settings(&repo)?)?,
    };
    let mut repo = in_its_work_tree(repo, &live)?;
    if !live.set_up && repo.work_tree() != Some(live.worktree.as_path()) {
        // Its own work tree was never made; only in there is a lock of its own.
        repo = setup::put_in_place(&repo, &mut live)?;
    }
    let root = session::root(&repo)?.to_owned();
    dex::run::forget_stop(&repo, &live.run_id);
    let lock = match inherited {
        Some(lock) => lock,
        None => RunLock::acquire(&root, &repo.git_dir)?,
    };
    // Read again under the lock: the process that held it may have moved on.
    if let Some(newer) = Live::read(&repo, &live.run_id)? {
        live = newer;
    }
    for pid in dex::run::end_leftovers(&repo, &root) {
        ui::talk(format!(
            "ended process {pid}, left over from a run that was killed"
        ));
    }
    if live.set_up && live.work == Work::Idle && !head_moved(&live) {
        dex::run::check_place(&repo, &live)?;
    }
    let choice = choice(args, &live, &uncommitted(&repo, &live)?)?;
    if !live.set_up {
        repo = setup::put_in_place(&repo, &mut live)?;
    }
    let agent = session::agent(&repo, &live.start.settings, session::script_speed())?;
    ready::check(&repo, &live.start.settings, ready::To::GoOn)?;
    if args.detach {
        // Said here, where somebody reads it; a moved HEAD is what the choice puts back.
        if choice.is_none() || !head_moved(&live) {
            dex::run::check_place(&repo, &live)?;
        }
        return run::detach(&repo, &live, &again(args, choice), lock);
    }
    let limits = settings(&repo)?;
    take_over(&mut live, args, &reconciled, &limits);
    let sitting = run::Sitting {
        detached: args.detached,
        person: ui::person_is_there(),
        choice,
    };
    run::carry_out(repo, live, lock, agent, sitting)
}

/// Standard input as a file of our own, which nothing that is started from here inherits.
fn standard_input() -> std::io::Result<std::fs::File> {
    use std::os::fd::AsFd as _;
    let file = std::io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(file.into())
}

fn settings(repo: &Repo) -> Result<dex::live::Settings, Failure> {
    Ok(session::settings(&session::load_config(repo, &Vec::new())?))
}

/// The repository as seen from the run's own work tree.
fn in_its_work_tree(repo: Repo, live: &Live) -> Result<Repo, Failure> {
    if repo.work_tree() == Some(live.worktree.as_path()) {
        return Ok(repo);
    }
    if !live.set_up && !live.worktree.join(".git").exists() {
        return Ok(repo);
    }
    if !live.worktree.is_dir() {
        // Never a silent fall-back to this one (case C26).
        return Err(Failure::new(
            Exit::Moved,
            format!("the run's work tree {} is gone", live.worktree.display()),
        )
        .hint(format!(
            "Bring it back with `git worktree prune` and `git worktree add {} {}`, then `dex resume`.",
            live.worktree.display(),
            live.branch.trim_start_matches("refs/heads/")
        )));
    }
    let there = session::open(&live.worktree)?;
    if there.common_dir != repo.common_dir {
        // A copied repository still names the work trees of the one it came from.
        let worktree = live.worktree.display();
        return Err(Failure::new(
            Exit::Moved,
            format!("the run's work tree {worktree} belongs to another repository"),
        )
        .hint("Go on with it there, or start from a stage with `dex resume --from plan:1`."));
    }
    Ok(there)
}

/// Whether the run paused because HEAD or the branch was moved during a stage.
fn head_moved(live: &Live) -> bool {
    let pause = live.pause.as_ref();
    pause.is_some_and(|it| it.reason == PauseReason::HeadMoved)
}

/// What lies in the work tree between two stages and is nobody's but a person's. Files of a
/// finished part of `implement` are the run's.
fn uncommitted(repo: &Repo, live: &Live) -> Result<Vec<String>, Failure> {
    let between_stages = live.work == Work::Idle && live.finished_parts.is_empty();
    if !live.set_up || !between_stages {
        return Ok(Vec::new());
    }
    Ok(setup::dirty(repo, &Goal::File(live.start.goal.clone()))?)
}

/// What to do with a half-done stage: as said, as asked at the terminal, or not at all.
fn choice(
    args: &args::Resume,
    live: &Live,
    uncommitted: &[String],
) -> Result<Option<Choice>, Failure> {
    let moved = head_moved(live);
    if !uncommitted.is_empty() && !args.keep && !args.discard {
        return Err(Failure::new(
            Exit::Moved,
            "the work tree has changes that the run did not make; nothing was started",
        )
        .hint(format!(
            "{}. Commit or stash them, or take them into the next stage with `dex resume --keep`, or put them aside with `dex resume --discard` (kept as an undo entry).",
            ui::some_of(uncommitted, 5)
        )));
    }
    let half_done = match &live.work {
        Work::Idle if !uncommitted.is_empty() => Some(String::new()),
        Work::Started(attempt) => Some(attempt.place().label()),
        Work::AgentFinished(done) if moved => Some(done.attempt.place().label()),
        Work::Idle | Work::SettingAside { .. } | Work::AgentFinished(_) | Work::Committing(_) => {
            None
        }
    };
    let Some(label) = half_done else {
        return Ok(None);
    };
    if args.keep {
        return Ok(Some(Choice::Keep));
    }
    if args.discard {
        return Ok(Some(Choice::Discard));
    }
    if !ui::person_is_there() {
        return Err(dex::run::RunError::HalfDone(label).into());
    }
    ui::talk(format!(
        "{label} was interrupted half-way. Its files are kept as an undo entry either way."
    ));
    ui::talk(
        "  1 keep: the files stay as they are, and the stage is worked on again on top of them",
    );
    ui::talk("  2 discard: the files go back to before the stage, and it is worked on again");
    match ui::ask_line("1 or 2 (empty: stop here):").as_deref() {
        Some("1") => Ok(Some(Choice::Keep)),
        Some("2") => Ok(Some(Choice::Discard)),
        _ => Err(dex::run::RunError::HalfDone(label).into()),
    }
}

/// The words for the process in the background. Values are joined to their names: they may begin
/// with a dash.
fn again(args: &args::Resume, choice: Option<Choice>) -> Vec<String> {
    let mut words = Vec::new();
    match choice {
        Some(Choice::Keep) => words.push("--keep".to_owned()),
        Some(Choice::Discard) => words.push("--discard".to_owned()),
        None => {}
    }
    if let Some(note) = &args.note {
        words.push(format!("--message={note}"));
    }
    for (name, value) in [
        ("budget", args.budget),
        ("stage-budget", args.stage_budget),
        ("stage-timeout", args.stage_timeout),
    ] {
        words.extend(value.map(|it| format!("--{name}={it}")));
    }
    if let Some(cycles) = args.cycles {
        words.push(format!("--cycles={cycles}"));
    }
    if args.step {
        words.push("--step".to_owned());
    }
    for path in &args.allow {
        words.push(format!("--allow={path}"));
    }
    words
}

/// A person goes on: what failed before no longer counts, and what they say now does.
///
/// What bounds a single stage is read anew, so that a person can raise what stopped it; what
/// bounds the whole run, and how it works, stays as it was started (case H07).
fn take_over(live: &mut Live, args: &args::Resume, run: &Reconciled, limits: &dex::live::Settings) {
    let own = &mut live.start.settings;
    own.stage_budget_micro_usd = limits.stage_budget_micro_usd;
    own.stage_timeout_ms = limits.stage_timeout_ms;
    own.idle_ms = limits.idle_ms;
    own.max_turns = limits.max_turns;
    own.max_verify_retries = limits.max_verify_retries;
    own.wait_for_quota_ms = limits.wait_for_quota_ms;
    of_a_stage(own, args);
    if stopped_by_failures(live) {
        live.forgiven_cycles = run.progress.cycles_completed;
        let failed = live.attempts.iter_mut();
        failed
            .filter(|it| it.status != PhaseStatus::Completed)
            .for_each(|it| it.retried = true);
    }
    if let Some(budget) = args.budget {
        live.start.settings.max_budget_micro_usd = dex::files::micro(budget);
    }
    if let Some(cycles) = args.cycles {
        live.start.settings.max_cycles = cycles;
    }
    live.start.step = args.step;
    live.notes.extend(args.note.iter().cloned());
    live.allow.extend(args.allow.iter().cloned());
}

/// Whether the run stopped because of its failures, so that a person who goes on wants the stage
/// tried again. After a crash, or a stop of their own, what failed has failed.
fn stopped_by_failures(live: &Live) -> bool {
    live.pause.as_ref().is_some_and(|it| match it.reason {
        PauseReason::BudgetExceeded
        | PauseReason::ConsecutiveFailures
        | PauseReason::NeedsInput
        | PauseReason::HeadMoved
        | PauseReason::AgentLeftOperation
        | PauseReason::AgentUnavailable
        | PauseReason::QuotaExhausted
        | PauseReason::CouldNotCommit => true,
        PauseReason::UserAbort | PauseReason::StepMode | PauseReason::MaxCyclesReached => false,
    })
}

/// What the command line says of a single stage's limits.
fn of_a_stage(settings: &mut dex::live::Settings, args: &args::Resume) {
    if let Some(budget) = args.stage_budget {
        settings.stage_budget_micro_usd = dex::files::micro(budget);
    }
    if let Some(minutes) = args.stage_timeout {
        settings.stage_timeout_ms = (minutes * 60_000.0).round() as u64;
    }
}

/// `--from`: a new run that starts where a finished stage of another one ended.
fn fork(repo: &Repo, from: &str, args: &args::Resume) -> Result<Exit, Failure> {
    let found = dex::facts::checkpoint(repo, from)?;
    let Some(parent) = found.run else {
        return Err(
            Failure::new(Exit::NotFound, format!("{from} belongs to no run"))
                .hint("Name a finished stage: `dex timeline` lists them."),
        );
    };
    let mut settings = settings(repo)?;
    if let Some(budget) = args.budget {
        settings.max_budget_micro_usd = dex::files::micro(budget);
    }
    if let Some(cycles) = args.cycles {
        settings.max_cycles = cycles;
    }
    of_a_stage(&mut settings, args);
    settings.allow.extend(args.allow.iter().cloned());
    let agent = session::agent(repo, &settings, session::script_speed())?;
    ready::check(repo, &settings, ready::To::GoOn)?;
    dex::run::walls::check_looking(repo, false, (&settings, agent.as_ref()))?;
    let base = parent.base_sha.as_deref().and_then(|it| it.parse().ok());
    let wanted = Wanted {
        goal: Goal::File(parent.goal.clone().unwrap_or_else(|| "GOAL.md".to_owned())),
        settings,
        small: false,
        ask: false,
        step: args.step,
        worktree_under: None,
        note: args.note.clone(),
        from: Some(Fork {
            parent_run_id: parent.run_id.clone(),
            base_sha: base.unwrap_or_else(|| found.commit.clone()),
            commit: found.commit,
            base_branch: parent.base_branch.clone(),
        }),
    };
    let (repo, live, lock) = setup::start(repo, &wanted)?;
    ui::talk(format!(
        "a new run on {} from {from}; {} stays as it is",
        live.branch.trim_start_matches("refs/heads/"),
        parent.branch.as_deref().unwrap_or("the other one")
    ));
    if args.detach {
        return run::detach(&repo, &live, &run::steps(args.step), lock);
    }
    run::carry_out(
        repo,
        live,
        lock,
        agent,
        run::Sitting {
            person: ui::person_is_there(),
            ..run::Sitting::default()
        },
    )
}

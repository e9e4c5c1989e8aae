//! `dex run`, and carrying any run out.

use std::io::Read as _;
use std::path::Path;

use dex::config::Flags;
use dex::files::lock::RunLock;
use dex::live::{Live, Pause, PauseReason};
use dex::outcome::Verdict;
use dex::run::setup::{self, Goal, Wanted};
use dex::run::{Choice, Control, Ended, Runner, Watch, walls};
use gitdb::Repo;
use serde_json::json;

use crate::args;
use crate::commands::report;
use crate::error::Failure;
use crate::exit::Exit;
use crate::progress::{self, Person};
use crate::ready;
use crate::session;
use crate::ui::{self, BOLD, NAME, styled};

/// How long a run in the background may take to take over.
const BACKGROUND_START: std::time::Duration = std::time::Duration::from_secs(10);

/// How long one that took over is watched before it is said to go on.
const BACKGROUND_SETTLES: std::time::Duration = std::time::Duration::from_millis(300);

/// Longest goal taken from standard input or the command line, bytes.
const MAX_GOAL: u64 = 1 << 20;

/// How fast the scripted agent plays, and whether a person may be asked.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Scales its delays.
    pub speed: f64,
    /// Whether to ask at the terminal.
    pub person: bool,
}

/// Starts a run and carries it out.
pub fn run(dir: &Path, args: &args::Run) -> Result<Exit, Failure> {
    let pace = Pace {
        speed: session::script_speed(),
        person: ui::person_is_there(),
    };
    start_and_carry_out(dir, args, pace)
}

/// As [`run`], at a pace of the caller's.
pub fn start_and_carry_out(dir: &Path, args: &args::Run, pace: Pace) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    session::root(&repo)?;
    let config = session::load_config(&repo, &flags(args)?)?;
    let mut settings = session::settings(&config);
    settings.allow.extend(args.allow.iter().cloned());
    let agent = session::agent(&repo, &settings, pace.speed)?;
    ready::check(&repo, &settings, ready::To::Start)?;
    walls::check_looking(&repo, args.worktree, (&settings, agent.as_ref()))?;
    let worktree_under = args.worktree.then(|| worktrees(&config)).transpose()?;
    let wanted = Wanted {
        goal: goal(&repo, dir, args)?,
        settings,
        small: args.small,
        ask: args.ask,
        step: args.step,
        worktree_under,
        note: None,
        from: None,
    };
    if args.save {
        save(&repo, &wanted)?;
    }
    let (repo, live, lock) = setup::start(&repo, &wanted)?;
    let branch = live.branch.trim_start_matches("refs/heads/").to_owned();
    ui::talk(format!(
        "run {} on branch {}",
        styled(BOLD, short(&live)),
        styled(NAME, &branch)
    ));
    if repo.work_tree() != session::open(dir)?.work_tree() {
        ui::talk(format!("in the work tree {}", live.worktree.display()));
    }
    if wanted.settings.verify_command.is_none() {
        ui::talk(
            "no verify command is configured: results rest on the agent's word (`dex init` finds one)",
        );
    }
    if args.detach {
        return detach(&repo, &live, &steps(args.step), lock);
    }
    if pace.person {
        ui::talk("Clarification questions come first; after them you can leave.");
    }
    carry_out(
        repo,
        live,
        lock,
        agent,
        Sitting {
            person: pace.person,
            ..Sitting::default()
        },
    )
}

/// Where `--worktree` puts work trees: never in a temporary directory.
fn worktrees(config: &dex::config::Config) -> Result<std::path::PathBuf, Failure> {
    let configured = config.worktree_dir.clone();
    let under = configured.or_else(|| Some(session::user_data_dir()?.join("dex/worktrees")));
    under.ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "there is no place for a work tree: no home directory is known",
        )
        .hint("Set one: `dex config worktreeDir /some/where`.")
    })
}

fn flags(args: &args::Run) -> Result<Flags, Failure> {
    let mut flags = Flags::new();
    if let Some(agent) = &args.agent {
        flags.push(("agent", "--agent", json!(agent)));
    }
    if let Some(budget) = args.budget {
        flags.push(("limits.maxBudgetUsd", "--budget", json!(budget)));
    }
    if let Some(cycles) = args.cycles {
        flags.push(("limits.maxCycles", "--cycles", json!(cycles)));
    }
    Ok(flags)
}

fn goal(repo: &Repo, dir: &Path, args: &args::Run) -> Result<Goal, Failure> {
    let text = match (&args.message, args.goal.as_deref()) {
        (Some(text), _) => Some(text.clone()),
        (None, Some("-")) => {
            let mut text = String::new();
            std::io::stdin().take(MAX_GOAL).read_to_string(&mut text)?;
            Some(text)
        }
        (None, _) => None,
    };
    if let Some(text) = text {
        if text.trim().is_empty() {
            return Err(
                Failure::new(Exit::Usage, "the goal is empty; nothing was started")
                    .hint("Type `dex run -m \"what you want\"`."),
            );
        }
        return Ok(Goal::Text(text));
    }
    let root = session::root(repo)?;
    let path = match args.goal.as_deref() {
        Some(given) => dir.join(given),
        None => root.join("GOAL.md"),
    };
    if args.goal.is_none() && path.symlink_metadata().is_err() {
        // Told by the checks of the start, among the others.
        return Ok(Goal::File("GOAL.md".to_owned()));
    }
    let outside = |path: &Path| {
        Failure::new(Exit::Usage, format!("the goal {} is not inside {}", path.display(), root.display()))
            .hint("The goal is committed with the run: put it into the project, or pass it with `dex run - < FILE`.")
    };
    let missing = |_| {
        Failure::new(
            Exit::NotFound,
            format!(
                "the goal file {} is not there; nothing was started",
                path.display()
            ),
        )
        .hint("Write what you want into it, or type `dex run -m \"what you want\"`.")
    };
    let full = path.canonicalize().map_err(missing)?;
    // A large one, or one that is no file, is told by the checks of the start.
    let small = full
        .metadata()
        .is_ok_and(|it| it.is_file() && it.len() <= MAX_GOAL);
    if small && let Some(problem) = no_goal_in(&std::fs::read(&full)?) {
        let headline = format!("the goal {} {problem}; nothing was started", path.display());
        return Err(Failure::new(Exit::Usage, headline).hint(
            "Write what you want into it, as UTF-8, or type `dex run -m \"what you want\"`.",
        ));
    }
    let root = root.canonicalize()?;
    let inside = full.strip_prefix(&root).map_err(|_| outside(&path))?;
    let gits = |it: std::path::Component<'_>| it.as_os_str().eq_ignore_ascii_case(".git");
    if inside.components().any(gits) {
        let headline = format!("the goal {} is inside .git", path.display());
        return Err(Failure::new(Exit::Usage, headline).hint(
            "Git commits nothing from there: put it beside your files, or pass it with `dex run - < FILE`.",
        ));
    }
    if args.goal.is_none() {
        return Ok(Goal::File("GOAL.md".to_owned()));
    }
    Ok(Goal::File(inside.to_string_lossy().into_owned()))
}

/// `--save`: what is uncommitted becomes a commit on the current branch first.
fn save(repo: &Repo, wanted: &Wanted) -> Result<(), Failure> {
    let probe = Wanted {
        worktree_under: Some("unused".into()),
        ..wanted.clone()
    };
    setup::check(repo, &probe)?;
    let root = session::root(repo)?;
    // Never while a run is at work here: its half-done stage is not the user's to save.
    let _lock = RunLock::acquire(root, &repo.git_dir)
        .map_err(|it| Failure::from(setup::StartError::Locked(it)))?;
    if setup::dirty(repo, &wanted.goal)?.is_empty() {
        return Ok(());
    }
    // What describes this machine stays out of it, before it is there for the first time too.
    let machine = setup::excluded();
    repo.exclude(&machine.iter().map(String::as_str).collect::<Vec<_>>())
        .map_err(setup::StartError::from)?;
    let commit = repo
        .commit_work_tree("dex: pre-run autosave\n")
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                "the uncommitted changes could not be saved; nothing was started",
            )
            .because(&error)
        })?;
    ui::talk(format!(
        "saved the uncommitted changes as {}",
        commit.short()
    ));
    Ok(())
}

fn short(live: &Live) -> String {
    live.run_id[live.run_id.len().saturating_sub(6)..].to_owned()
}

/// How a run is carried out this time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sitting {
    /// In the background.
    pub detached: bool,
    /// Whether to ask at the terminal.
    pub person: bool,
    /// What to do with a half-done stage first.
    pub choice: Option<Choice>,
}

/// Carries a run out until it is over or stops, and says how it went.
pub fn carry_out(
    repo: Repo,
    live: Live,
    lock: RunLock,
    agent: Box<dyn agents::Agent>,
    sitting: Sitting,
) -> Result<Exit, Failure> {
    let control = Control::default();
    let signals = register_signals(&control)?;
    let watch = Watch::start(&repo, &live.run_id, control.clone());
    let run_id = live.run_id.clone();
    let settings = live.start.settings.clone();
    let person = sitting.person && !sitting.detached;
    let mut observer = progress::Live::new(if person { Person::Here } else { Person::Nobody });
    let mut lock = lock;
    lock.set_run(&run_id)?;
    let mut runner = Runner {
        repo: repo.clone(),
        live,
        agent,
        observer: &mut observer,
        control: control.clone(),
        person,
        lock,
        spent_committed: 0,
        committed: None,
    };
    let awake = sitting.detached.then(crate::session::stay_awake);
    let settled = sitting.choice.map_or(Ok(()), |it| runner.settle(it));
    let ended = settled.and_then(|()| runner.go());
    let question = runner.live.question.is_some();
    let half_done = matches!(runner.live.work, dex::live::Work::Started(_));
    drop(runner);
    drop(awake);
    drop(watch);
    signals.into_iter().for_each(|it| {
        signal_hook::low_level::unregister(it);
    });
    observer.end();
    let signal = control.signal.load(std::sync::atomic::Ordering::SeqCst);
    session::notify(&settings, &run_id, &ended);
    let ended = ended?;
    report::after_run(&repo, &run_id)?;
    Ok(match &ended {
        Ended::Completed(verdict) => of_verdict(*verdict),
        Ended::Paused(pause, verdict) => {
            explain(pause, question, half_done);
            of_pause(pause, *verdict, signal)
        }
    })
}

fn register_signals(control: &Control) -> Result<Vec<signal_hook::SigId>, Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut ids = Vec::new();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).expect("signals are small numbers");
        // The second one ends us at once; the guard ends the agent.
        let already = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        ids.push(signal_hook::flag::register_conditional_shutdown(
            signal,
            128 + signal,
            std::sync::Arc::clone(&already),
        )?);
        ids.push(signal_hook::flag::register(signal, already)?);
        let flag = std::sync::Arc::clone(&control.signal);
        ids.push(signal_hook::flag::register_usize(signal, flag, number)?);
    }
    Ok(ids)
}

fn of_verdict(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Good => Exit::Done,
        Verdict::Unverified => Exit::Verify,
        Verdict::Skipped | Verdict::Open => Exit::Failed,
    }
}

fn of_pause(pause: &Pause, verdict: Verdict, signal: usize) -> Exit {
    match pause.reason {
        PauseReason::UserAbort => match u8::try_from(signal) {
            Ok(0) | Err(_) => Exit::Done,
            Ok(number) => Exit::Signal(number),
        },
        PauseReason::StepMode => Exit::Done,
        PauseReason::BudgetExceeded
        | PauseReason::MaxCyclesReached
        | PauseReason::QuotaExhausted => Exit::Cap,
        PauseReason::ConsecutiveFailures => match verdict {
            Verdict::Unverified => Exit::Verify,
            Verdict::Good | Verdict::Skipped | Verdict::Open => Exit::Failed,
        },
        PauseReason::NeedsInput => Exit::Waiting,
        PauseReason::HeadMoved | PauseReason::AgentLeftOperation => Exit::Moved,
        PauseReason::AgentUnavailable => Exit::Agent,
        PauseReason::CouldNotCommit => Exit::Failed,
    }
}

/// `question`: whether it is a question that waits, and not a file. `half_done`: whether a stage
/// was interrupted, so that what to do with its files has to be said.
fn explain(pause: &Pause, question: bool, half_done: bool) {
    ui::talk(format!(
        "{} ({}): {}",
        styled(BOLD, "paused"),
        pause.reason.name(),
        ui::clean_lines(&pause.why)
    ));
    let next = match pause.reason {
        _ if half_done => "dex resume --keep or dex resume --discard",
        PauseReason::UserAbort | PauseReason::StepMode => "dex resume",
        PauseReason::BudgetExceeded if pause.of_stage => "dex resume --stage-budget USD",
        PauseReason::BudgetExceeded => "dex resume --budget USD",
        PauseReason::MaxCyclesReached => "dex resume --cycles N",
        PauseReason::ConsecutiveFailures => {
            "dex log, then dex resume -m \"what to do differently\""
        }
        PauseReason::NeedsInput if question => "dex answer, then dex resume",
        PauseReason::NeedsInput => "mend the files or name them with dex resume --allow PATH",

        PauseReason::HeadMoved => "dex resume --keep or dex resume --discard",
        PauseReason::AgentLeftOperation => "git status, then dex resume",
        PauseReason::QuotaExhausted => "dex resume, once the quota is back",
        PauseReason::AgentUnavailable => "dex doctor, then dex resume",
        PauseReason::CouldNotCommit => "mend what is named above, then dex resume",
    };
    ui::talk(format!("{} {next}", styled(NAME.bold(), "next:")));
}

/// The words for the process in the background: whether it pauses after every stage.
pub fn steps(step: bool) -> Vec<String> {
    if step {
        vec!["--step".to_owned()]
    } else {
        Vec::new()
    }
}

/// Goes on in the background, in a session of its own, with a log. The lock goes with it, as its
/// standard input: there is no moment in which another run could begin here.
pub fn detach(repo: &Repo, live: &Live, words: &[String], lock: RunLock) -> Result<Exit, Failure> {
    let log = Live::dir(repo, &live.run_id).join("log");
    std::fs::create_dir_all(&log)?;
    let log = log.join("runner.log");
    let out = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)?;
    let err = out.try_clone()?;
    let started_at = dex::run::now();
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .arg("-C")
        .arg(&live.worktree)
        .args(["--color", "never", "resume", &live.run_id, "--detached"])
        .args(words)
        .current_dir(&live.worktree)
        .stdin(lock.hand_over()?)
        .stdout(out)
        .stderr(err)
        .spawn()?;
    let began = std::time::Instant::now();
    let mut at_work = None;
    // Told only once it is true, so that the next command finds it running (case K04), and a
    // moment later, so that one which fails at once is no success.
    while began.elapsed() < BACKGROUND_START {
        if let Some(status) = child.try_wait()? {
            return ended_at_once(repo, live, status, &log, &started_at);
        }
        let holder = RunLock::holder(&live.worktree, &live.git_dir);
        if holder.is_some_and(|it| it.pid == child.id() && it.run_id.is_some()) {
            let since = at_work.get_or_insert_with(std::time::Instant::now);
            if since.elapsed() >= BACKGROUND_SETTLES {
                break;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ui::talk(format!(
        "it goes on in the background (process {}); its log is {}",
        child.id(),
        log.display()
    ));
    ui::talk(format!(
        "watch it with `dex status --watch`, stop it with `dex stop {}`",
        short(live)
    ));
    Ok(Exit::Done)
}

/// The process in the background is gone already: it was quick, or could not start.
fn ended_at_once(
    repo: &Repo,
    live: &Live,
    status: std::process::ExitStatus,
    log: &Path,
    started_at: &str,
) -> Result<Exit, Failure> {
    let known = dex::facts::find(repo, Some(&live.run_id))?;
    let run = dex::facts::read_run(repo, &known)?;
    let over = run.status == dex::reconcile::RunStatus::Completed;
    // A pause of before says nothing about this process. Times have one form, so they compare.
    let paused = run.pause.is_some_and(|it| it.at.as_str() >= started_at);
    if status.success() || over || paused {
        ui::talk(format!(
            "it has ended already; see it with `dex report`, its log is {}",
            log.display()
        ));
        return Ok(Exit::Done);
    }
    Err(
        Failure::new(Exit::Failed, "the process in the background ended at once")
            .hint(format!("Its log says why: {}.", log.display())),
    )
}

/// Why bytes are no goal.
fn no_goal_in(bytes: &[u8]) -> Option<&'static str> {
    match std::str::from_utf8(bytes) {
        Err(_) => Some("is not UTF-8 text"),
        Ok(text) if text.trim().is_empty() => Some("is empty"),
        Ok(_) => None,
    }
}

//! What every command needs first: the repository, the settings, the agent.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agents::Agent;
use agents::acp::{Acp, Known};
use agents::scripted::{Script, Scripted};
use dex::config::{self, AgentKind, Config, Flags, Hooks, Sign};
use dex::files::store;
use dex::live::Settings;
use gitdb::Repo;

use crate::error::Failure;
use crate::exit::Exit;

/// Opens the repository a command is about.
pub fn open(dir: &Path) -> Result<Repo, Failure> {
    let mut repo = Repo::open(dir)?;
    repo.allow_filters(filters_allowed(&repo)?);
    Ok(repo)
}

/// Where the digest of the allowed filter configuration is kept.
pub fn allowed_file(repo: &Repo) -> std::path::PathBuf {
    repo.common_own_dir().join("allowed-filters")
}

/// Whether the filters that only this repository's own configuration names were allowed, exactly
/// as they are now.
pub fn filters_allowed(repo: &Repo) -> Result<bool, Failure> {
    let Some(bytes) = store::read(&allowed_file(repo))? else {
        return Ok(false);
    };
    let filters = repo.own_filters()?;
    let digest = dex::run::setup::digest(filters.join("\n").as_bytes());
    Ok(String::from_utf8_lossy(&bytes).trim() == digest)
}

/// The work tree's root, or the reason why there is none.
pub fn root(repo: &Repo) -> Result<&Path, Failure> {
    repo.work_tree().ok_or_else(|| {
        let beside = repo.common_dir.parent().map(Path::to_owned);
        if repo.common_dir.file_name().is_some_and(|it| it == ".git")
            && let Some(beside) = beside
        {
            let inside = "this is inside a repository's own .git: there is no work tree here";
            return Failure::new(Exit::Usage, inside)
                .hint(format!("Go to its work tree: `cd {}`.", beside.display()));
        }
        Failure::new(
            Exit::Usage,
            "this is a bare repository: there is no work tree to work in",
        )
        .hint("Make one with `git worktree add PATH`, and work there.")
    })
}

/// The main work tree's root, when this one is linked and that one exists.
pub fn main_work_tree(repo: &Repo) -> Option<PathBuf> {
    if repo.git_dir == repo.common_dir {
        return None;
    }
    let root = repo.common_dir.parent()?.to_owned();
    (repo.common_dir.file_name()? == ".git").then_some(root)
}

/// The user's configuration directory.
pub fn user_config_dir() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    xdg.filter(|it| it.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".config")))
}

/// The user's data directory.
pub fn user_data_dir() -> Option<PathBuf> {
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    xdg.filter(|it| it.is_absolute())
        .or_else(|| Some(std::env::home_dir()?.join(".local/share")))
}

/// Reads every layer of settings.
pub fn load_config(repo: &Repo, flags: &Flags) -> Result<Config, Failure> {
    let root = root(repo)?;
    let main = main_work_tree(repo);
    let user = user_config_dir();
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut sources = config::Sources {
        work_tree: root,
        main_work_tree: main.as_deref(),
        user_config_dir: user.as_deref(),
        env: &env,
        flags,
        project_file_tracked: false,
    };
    let file = sources.project_file();
    let inside = file.starts_with(root);
    sources.project_file_tracked = inside && repo.is_tracked(file.as_os_str().as_bytes())?;
    Ok(config::load(&sources)?)
}

/// Settings in the plain units a run keeps.
pub fn settings(config: &Config) -> Settings {
    let limits = &config.limits;
    let minutes = |it: f64| (it * 60_000.0).round() as u64;
    Settings {
        agent: agent_name(config.agent).to_owned(),
        agent_command: config.agent_command.clone(),
        model: config.model.clone(),
        verify_command: config.verify_command.clone(),
        notify: config.notify.clone(),
        max_cycles: limits.max_cycles,
        max_budget_micro_usd: limits.max_budget_micro_usd,
        stage_budget_micro_usd: limits.stage_budget_micro_usd,
        stage_timeout_ms: minutes(limits.stage_timeout_minutes),
        idle_ms: minutes(limits.idle_minutes),
        max_turns: limits.max_turns,
        max_verify_retries: limits.max_verify_retries,
        wait_for_quota_ms: minutes(limits.wait_for_quota_hours * 60.0),
        hooks: match config.hooks {
            Hooks::Skip => "skip",
            Hooks::Run => "run",
        }
        .to_owned(),
        sign: match config.sign {
            Sign::Auto => "auto",
            Sign::Never => "never",
        }
        .to_owned(),
        sandbox: config.sandbox.clone(),
        walls: config.walls.clone(),
        max_file_bytes: config.commit.max_file_bytes,
        allow: config.commit.allow.clone(),
    }
}

/// A back end's name.
pub fn agent_name(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::Scripted => "scripted",
        AgentKind::Command => "command",
        AgentKind::Claude => "claude",
        AgentKind::Codex => "codex",
        AgentKind::Acp => "acp",
    }
}

/// Makes the back end a run was started with. `speed` scales the scripted agent's delays.
pub fn agent(repo: &Repo, settings: &Settings, speed: f64) -> Result<Box<dyn Agent>, Failure> {
    match settings.agent.as_str() {
        "scripted" => scripted(repo, speed),
        "command" => {
            let argv = settings.agent_command.clone().filter(|it| !it.is_empty());
            let argv = argv.ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    "the agent is `command`, but no command is configured",
                )
                .hint("Type `dex config agentCommand '[\"program\", \"argument\"]'`.")
            })?;
            Ok(Box::new(agents::command::Command {
                argv: argv.into_iter().map(Into::into).collect(),
            }))
        }
        "acp" => {
            let argv = settings.agent_command.clone().filter(|it| !it.is_empty());
            let argv = argv.ok_or_else(|| {
                let known = Known::ALL.map(Known::name).join(", ");
                Failure::new(
                    Exit::Usage,
                    "the agent is `acp`, but which one is not configured",
                )
                .hint(format!(
                    "Type `dex config agentCommand '[\"NAME\"]'` with one of {known}, or a command line."
                ))
            })?;
            let argv: Vec<_> = argv.into_iter().map(Into::into).collect();
            Ok(Box::new(Acp::new(&argv)))
        }
        "claude" => Ok(Box::new(agents::claude::Claude::default())),
        "codex" => Ok(Box::new(agents::codex::Codex::default())),
        other => Err(Failure::new(
            Exit::Usage,
            format!("the agent `{other}` is not there in this version"),
        )
        .hint("Use scripted, command, claude, codex or acp: `dex config agent claude`.")),
    }
}

fn scripted(repo: &Repo, speed: f64) -> Result<Box<dyn Agent>, Failure> {
    let root = root(repo)?;
    let main = main_work_tree(repo);
    let candidates = [Some(root.to_owned()), main];
    for path in candidates
        .into_iter()
        .flatten()
        .map(|it| it.join(".dex/mock-config.json"))
    {
        let Some(bytes) = store::read(&path)? else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        let script = Script::parse(&text).map_err(|error| {
            Failure::new(Exit::Usage, format!("{} cannot be used", path.display())).because(&error)
        })?;
        return Ok(Box::new(Scripted::new(script, speed)));
    }
    Err(Failure::new(Exit::Usage, "the scripted agent has no script")
        .hint("Write .dex/mock-config.json (docs/formats/mock-config.md), or use another agent: `dex config agent claude`."))
}

/// How fast the scripted agent plays; `DEX_SCRIPT_SPEED=0` for tests.
pub fn script_speed() -> f64 {
    let speed = std::env::var("DEX_SCRIPT_SPEED")
        .ok()
        .and_then(|it| it.parse::<f64>().ok());
    speed
        .filter(|it| it.is_finite() && *it >= 0.0)
        .unwrap_or(1.0)
}

/// Keeps the machine from sleeping as long as it lives, where the system has a way to ask.
#[derive(Debug)]
pub struct Awake(Option<std::process::Child>);

/// Asks the system to stay awake. Nothing happens where it cannot be asked.
pub fn stay_awake() -> Awake {
    // It holds the inhibitor until its input ends, which it does when we do, however we end.
    let child = std::process::Command::new("systemd-inhibit")
        .args([
            "--what=sleep:idle",
            "--who=dex",
            "--why=a run is at work",
            "--mode=block",
            "cat",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    Awake(child.ok())
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// How long the user's `notify` program may take.
const NOTIFY: std::time::Duration = std::time::Duration::from_secs(10);

/// Tells the user's own program that a run ended, stopped or asks. It is theirs, so it gets their
/// whole environment; what comes of it changes nothing about the run.
pub fn notify(
    settings: &Settings,
    run_id: &str,
    ended: &Result<dex::run::Ended, dex::run::RunError>,
) {
    let Some((program, arguments)) = settings.notify.as_deref().and_then(<[String]>::split_first)
    else {
        return;
    };
    let (status, reason, text) = match ended {
        Ok(dex::run::Ended::Completed(_)) => ("completed", "", "every feature is settled".into()),
        Ok(dex::run::Ended::Paused(pause, _)) => ("paused", pause.reason.name(), pause.why.clone()),
        Err(error) => ("failed", "", error.to_string()),
    };
    let started = std::process::Command::new(program)
        .args(arguments)
        .env("DEX_RUN_ID", run_id)
        .env("DEX_STATUS", status)
        .env("DEX_REASON", reason)
        .env("DEX_TEXT", text)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let Ok(mut child) = started else {
        crate::ui::talk(format!("the notify program {program} could not be started"));
        return;
    };
    let began = std::time::Instant::now();
    while began.elapsed() < NOTIFY {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(std::time::Duration::from_millis(20)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    // Ours, and too slow: nothing waits for it.
    let _ = child.kill();
    let _ = child.wait();
}

/// A commit's time for people and JSON, UTC.
pub fn rfc3339(unix: i64) -> String {
    let at = jiff::Timestamp::from_second(unix);
    at.map_or_else(|_| unix.to_string(), dex::run::stamp)
}

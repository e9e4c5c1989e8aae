//! Checks of our own settings, agents and data.

use agents::{Agent, Availability};
use dex::config::Config;
use dex::facts;
use dex::outcome::MACHINE_FILES;
use dex::reconcile::{RunStatus, Unfinished};
use dex::run::setup::StartError;
use dex::run::walls::check_looking;
use gitdb::{Repo, undo};

use super::{Check, Health};
use crate::commands::{prompts, runs};
use crate::error::{Failure, NOT_HELD};
use crate::ready::{self, Asked, PATIENCE};
use crate::session;
use crate::ui;

/// More files than this are not measured.
const MAX_FILES: usize = 50_000;

pub(super) fn checks(repo: &Repo) -> Vec<Check> {
    let mut checks = Vec::new();
    if repo.work_tree().is_some() {
        match session::load_config(repo, &Vec::new()) {
            Ok(config) => checks.extend(of_config(repo, &config)),
            Err(failure) => checks.push(Check::failed("config", &failure)),
        }
        checks.push(or_failed("machine_files", machine_files(repo)));
        checks.push(or_failed("prompts", own_prompts(repo)));
    }
    checks.push(or_failed("undo", undo_entries(repo)));
    checks.push(disk(repo));
    checks.push(or_failed("runs", unfinished(repo)));
    checks
}

fn or_failed(code: &'static str, check: Result<Check, Failure>) -> Check {
    check.unwrap_or_else(|failure| Check::failed(code, &failure))
}

fn of_config(repo: &Repo, config: &Config) -> Vec<Check> {
    let unknown: Vec<String> = config
        .unknown_keys()
        .iter()
        .map(|it| {
            let meant = it
                .suggestion
                .map(|it| format!(" (did you mean {it}?)"))
                .unwrap_or_default();
            format!("{}, line {}: {}{meant}", it.file.display(), it.line, it.key)
        })
        .collect();
    let valid = match unknown.is_empty() {
        true => Check::ok("config", "settings are valid"),
        false => Check::warn(
            "config",
            format!("keys that are no settings: {}", unknown.join("; ")),
            "Correct or remove them; `dex config` lists every setting.",
        ),
    };
    let verify = match &config.verify_command {
        Some(command) => Check::ok("verify_command", command.clone()),
        None => Check::warn(
            "verify_command",
            "none: results rest on the agent's word",
            "`dex init` finds one; or type `dex config verifyCommand \"CMD\"`.",
        ),
    };
    // Asked while the configured one is.
    let native = ready::ask_native(None);
    let agent = agent(repo, config);
    let native = native_agents(native);
    let walls = super::walls::check(&config.sandbox);
    vec![valid, verify, agent, native, acp_agents(), walls]
}

/// The agents with a back end of their own, whichever is configured.
fn native_agents(asked: Vec<(&str, Asked)>) -> Check {
    let said = asked
        .into_iter()
        .map(|(name, asked)| match asked.within(PATIENCE) {
            Some(Availability::Ready { version }) => {
                let version = version.map(|it| format!(" {it}")).unwrap_or_default();
                format!("{name}{version} is ready")
            }
            Some(Availability::NotInstalled { .. }) => format!("{name} is not installed"),
            Some(Availability::NotLoggedIn { hint }) => {
                format!("{name} is not logged in ({hint})")
            }
            None => format!("{name} does not answer"),
        });
    let said: Vec<String> = said.collect();
    Check::ok("agents", said.join("; "))
}

/// The Agent Client Protocol agents on PATH. None of them is started.
fn acp_agents() -> Check {
    let found = agents::acp::installed();
    let found = found.into_iter().map(|(known, version)| match version {
        Some(version) => format!("{} {version}", known.name()),
        None => known.name().to_owned(),
    });
    let found: Vec<String> = found.collect();
    let text = match found.is_empty() {
        true => "none that we know is on PATH".to_owned(),
        false => format!("on PATH: {}", found.join(", ")),
    };
    Check::ok("acp_agents", text)
}

/// The agents of this version but for one.
fn others(name: &str) -> String {
    let all = ["claude", "codex", "acp", "command", "scripted"];
    let others: Vec<&str> = all.into_iter().filter(|it| *it != name).collect();
    others.join(" or ")
}

/// The configured agent: whether it can work, and can be held to looking where it only looks.
fn agent(repo: &Repo, config: &Config) -> Check {
    let settings = session::settings(config);
    let made = || session::agent(repo, &settings, 0.0);
    let (asked, looks) = match made().and_then(|it| Ok((it, made()?))) {
        Ok(agents) => agents,
        Err(failure) => return Check::failed("agent", &failure),
    };
    let said = readiness(session::agent_name(config.agent), asked);
    match check_looking(repo, false, (&settings, looks.as_ref())) {
        Err(StartError::NotHeld(why)) if said.status == Health::Ok => {
            let text = format!("{}, and a run would be refused: {why}", said.text);
            Check::bad("agent", text, NOT_HELD)
        }
        // A sandbox that cannot be made is told by the check of the sandbox.
        Ok(()) | Err(_) => said,
    }
}

/// An agent's own word on whether it can work; bounded, whatever it does.
fn readiness(name: &str, agent: Box<dyn Agent>) -> Check {
    match ready::ask(agent).within(PATIENCE) {
        Some(Availability::Ready {
            version: Some(version),
        }) => Check::ok("agent", format!("{name} {version} is ready")),
        Some(Availability::Ready { version: None }) => {
            Check::ok("agent", format!("{name} is ready"))
        }
        Some(Availability::NotInstalled { program }) => Check::bad(
            "agent",
            format!("{name} is configured, but {program} is not installed or not on PATH"),
            format!(
                "Install it, or choose another: `dex config agent NAME` with {}.",
                others(name)
            ),
        ),
        Some(Availability::NotLoggedIn { hint }) => {
            Check::bad("agent", format!("{name} is not logged in"), hint)
        }
        None => Check::bad(
            "agent",
            format!(
                "{name} did not say within {} s whether it is ready",
                PATIENCE.as_secs()
            ),
            "Start it once by hand and see what it waits for.",
        ),
    }
}

fn machine_files(repo: &Repo) -> Result<Check, Failure> {
    let mut tracked = Vec::new();
    for file in MACHINE_FILES {
        if repo.is_tracked(file.as_bytes())? {
            tracked.push(file);
        }
    }
    if tracked.is_empty() {
        return Ok(Check::ok(
            "machine_files",
            "no file that describes only this machine is tracked",
        ));
    }
    let list = tracked.join(" ");
    Ok(Check::warn(
        "machine_files",
        format!("tracked, so written by whoever can push: {list}"),
        format!("Stop tracking them: `git rm --cached {list}`, then commit."),
    ))
}

fn own_prompts(repo: &Repo) -> Result<Check, Failure> {
    let all = prompts::read(repo)?;
    if let Some(broken) = all.iter().find(|it| it.problem.is_some()) {
        let problem = broken.problem.as_deref().unwrap_or_default();
        return Ok(Check::bad(
            "prompts",
            format!("{} cannot be used: {problem}", broken.path),
            format!("Correct it; `dex prompts {}` shows it.", broken.stage),
        ));
    }
    let own: Vec<&str> = all
        .iter()
        .filter(|it| it.overridden)
        .map(|it| it.stage)
        .collect();
    Ok(Check::ok(
        "prompts",
        match own.is_empty() {
            true => "all built in".to_owned(),
            false => format!("the project's own for {}", own.join(", ")),
        },
    ))
}

fn undo_entries(repo: &Repo) -> Result<Check, Failure> {
    let entries = undo::list(repo)?;
    let bytes: u64 = entries.iter().map(|it| it.bytes).sum();
    let entries = match entries.len() {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    };
    Ok(Check::ok(
        "undo",
        format!(
            "{entries}, about {} (at most 50 and 2 GiB)",
            ui::size(bytes)
        ),
    ))
}

fn disk(repo: &Repo) -> Check {
    let mut dirs = vec![repo.common_own_dir()];
    if repo.git_dir != repo.common_dir {
        dirs.push(repo.own_dir());
    }
    let (mut bytes, mut files) = (0u64, 0usize);
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else {
                continue;
            };
            if meta.is_dir() {
                dirs.push(entry.path());
            } else {
                bytes += meta.len();
                files += 1;
            }
        }
        if files > MAX_FILES {
            let text = format!(
                "more than {} in .git/dex ({MAX_FILES} files looked at)",
                ui::size(bytes)
            );
            return Check::ok("disk", text);
        }
    }
    Check::ok(
        "disk",
        format!(
            "{} in .git/dex ({})",
            ui::size(bytes),
            ui::count(files, "file")
        ),
    )
}

fn unfinished(repo: &Repo) -> Result<Check, Failure> {
    let (mut paused, mut half_done, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for known in facts::known(repo)? {
        match facts::read_run(repo, &known) {
            Err(error) => {
                unreadable.push(format!(
                    "{}: {}",
                    known.branch,
                    runs::said(&Failure::from(error))
                ));
            }
            Ok(run) => match (&run.status, &run.unfinished) {
                (RunStatus::Completed | RunStatus::Running { .. }, _) => {}
                (_, Unfinished::HalfDone(place)) => {
                    half_done.push(format!("{} ({})", known.branch, place.label()));
                }
                (_, Unfinished::ReadyToCommit(_) | Unfinished::None) => paused.push(known.branch),
            },
        }
    }
    if !unreadable.is_empty() {
        return Ok(Check::bad(
            "runs",
            format!("cannot be read: {}", unreadable.join("; ")),
            "Its commits are there all the same (`git log BRANCH`). Move the named file away, and the run is read from its commits.",
        ));
    }
    if !half_done.is_empty() {
        return Ok(Check::warn(
            "runs",
            format!("interrupted half-way: {}", half_done.join(", ")),
            "Go on with `dex resume RUN --keep` or `dex resume RUN --discard`.",
        ));
    }
    Ok(Check::ok(
        "runs",
        match paused.len() {
            0 => "none is unfinished".to_owned(),
            _ => format!("not finished: {} (`dex resume RUN`)", paused.join(", ")),
        },
    ))
}

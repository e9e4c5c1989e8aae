//! What an agent and a verify command may do in a run: the sandbox's policy.
//!
//! Git's directories are read, not written: an agent looks at history, and `dex`, outside,
//! commits. So are our files under `.dex/` and the `.git` of the work tree itself, which in a
//! linked one is a file that could be made to point elsewhere. In a stage that only looks, for an
//! agent that cannot be told so ([`super::held`]), so is the whole work tree.

use std::path::{Path, PathBuf};

use agents::sandbox::{self, Mode, Network, Policy, Refusal, Sandbox, State};
use agents::{Agent, ToolSurface};
use gitdb::Repo;

use super::Runner;
use super::held::{self, Keeper, Walls as Made};
use super::setup::StartError;
use crate::config::Walls;
use crate::live::{Live, Settings};

/// In `.dex/`: the one file an agent may add to.
const LEARNINGS: &str = "learnings.md";

/// What is confined.
#[derive(Debug, Clone)]
pub enum Confined {
    /// An agent, with what it keeps outside the work tree.
    Agent(State),
    /// The same, and it may not change the work tree either.
    Looking(State),
    /// The verify command.
    Verify,
}

/// Makes the sandbox for one program. `scratch` and `layers` are directories of ours; the second
/// takes what is written to build caches.
pub fn prepare(
    repo: &Repo,
    worktree: &Path,
    settings: &Settings,
    (scratch, layers): (&Path, Option<PathBuf>),
    confined: &Confined,
) -> Result<Sandbox, Refusal> {
    // Checked when the settings were read.
    let mode = settings.sandbox.parse().unwrap_or(Mode::Required);
    if mode == Mode::Off {
        return Ok(Sandbox::none());
    }
    let mut policy = policy(repo, worktree, &settings.walls, scratch, confined);
    policy.layers = layers;
    sandbox::prepare(mode, &policy, sandbox::machine())
}

fn policy(
    repo: &Repo,
    worktree: &Path,
    walls: &Walls,
    scratch: &Path,
    confined: &Confined,
) -> Policy {
    let home = std::env::home_dir();
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let named = |paths: &[String]| -> Vec<PathBuf> {
        paths
            .iter()
            .map(|it| expanded(it, home.as_deref()))
            .collect()
    };
    let mut state = match confined {
        Confined::Agent(state) | Confined::Looking(state) => state.clone(),
        Confined::Verify => State::default(),
    };
    state.needs.extend(named(&walls.readable));
    let mut writable = named(&walls.writable);
    let mut read_only = vec![
        worktree.join(".git"),
        repo.git_dir.clone(),
        repo.common_dir.clone(),
    ];
    match confined {
        Confined::Agent(_) | Confined::Verify => writable.push(worktree.to_owned()),
        Confined::Looking(_) => {
            // What a person opened is for work.
            writable.retain(|it| !overlap(it, worktree));
            read_only.push(worktree.to_owned());
        }
    }
    read_only.extend(own_files(worktree));
    Policy {
        writable,
        state,
        read_only,
        hidden: sandbox::credentials(home.as_deref(), variable),
        services: sandbox::services(rustix::process::getuid().as_raw(), variable),
        layered: sandbox::caches(home.as_deref(), variable),
        layers: None,
        scratch: scratch.to_owned(),
        network: match confined {
            Confined::Agent(_) | Confined::Looking(_) => Network::On,
            Confined::Verify if walls.verify_network => Network::On,
            Confined::Verify => Network::Off,
        },
    }
}

/// Whether one of two places lies in the other.
fn overlap(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (one, other) = (real(one), real(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// `~/x` is in the home directory.
fn expanded(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// What is in `.dex/`. What an agent newly makes there is put aside after the attempt.
fn own_files(worktree: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(worktree.join(".dex"));
    let names = entries.into_iter().flatten().flatten();
    names
        .filter(|it| it.file_name() != LEARNINGS)
        .map(|it| it.path())
        .collect()
}

/// Walls around an agent for what it may do, and who keeps it to that. None around a back end
/// that starts no program.
fn around(
    agent: &dyn Agent,
    tools: &ToolSurface,
    (worktree, mode): (&Path, &str),
    make: impl Fn(&Confined) -> Result<Sandbox, Refusal>,
) -> Result<(Sandbox, Keeper), Refusal> {
    let state = agent.state();
    let usual = match &state {
        Some(state) => make(&Confined::Agent(state.clone()))?,
        None => Sandbox::none(),
    };
    let itself = agent.enforces(tools, usual.mechanism());
    let walls = match state {
        Some(state) if held::needs_walls(&itself) => make(&Confined::Looking(state))?,
        Some(_) | None => usual,
    };
    let made = if mode == "off" {
        Made::Off
    } else if tools.is_held_by(&walls, worktree) {
        Made::Hold
    } else {
        Made::Leak(walls.to_string())
    };
    Ok((walls, held::keeper(itself, made)))
}

/// Whether a run in this work tree would get the sandbox it requires, before anything is changed.
/// `linked`: it gets a work tree of its own, outside the repository.
pub fn check(repo: &Repo, root: &Path, linked: bool, settings: &Settings) -> Result<(), Refusal> {
    if settings.sandbox != "required" {
        return Ok(());
    }
    let mut all = vec![Confined::Agent(State::default())];
    all.extend(settings.verify_command.as_ref().map(|_| Confined::Verify));
    on_trial(repo, root, linked, settings, |_, make| {
        all.iter().try_for_each(|it| make(it).map(drop))
    })
}

/// Whether something would keep this agent to looking in stages that only look, before anything
/// is changed.
pub fn check_looking(
    repo: &Repo,
    linked: bool,
    (settings, agent): (&Settings, &dyn Agent),
) -> Result<(), StartError> {
    let root = repo.work_tree().ok_or(StartError::Bare)?;
    let keeper = on_trial(repo, root, linked, settings, |worktree, make| {
        // What it keeps elsewhere is no part of the question, and would be made.
        let bare = |it: &Confined| match it {
            Confined::Agent(_) => make(&Confined::Agent(State::default())),
            Confined::Looking(_) => make(&Confined::Looking(State::default())),
            Confined::Verify => make(&Confined::Verify),
        };
        let place = (worktree, settings.sandbox.as_str());
        around(agent, &ToolSurface::ReadOnly, place, bare).map(|it| it.1)
    });
    match keeper.map_err(StartError::NoSandbox)? {
        Keeper::BackEnd | Keeper::Walls | Keeper::Trust(_) => Ok(()),
        Keeper::Nobody(why) => Err(StartError::NotHeld(why)),
    }
}

/// Tries what a run would have, with a scratch directory that is gone afterwards.
fn on_trial<T>(
    repo: &Repo,
    root: &Path,
    linked: bool,
    settings: &Settings,
    tries: impl FnOnce(&Path, &dyn Fn(&Confined) -> Result<Sandbox, Refusal>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let scratch = std::env::temp_dir().join(format!("dex-sandbox-{}", uuid::Uuid::now_v7()));
    let tree = scratch.join("tree");
    std::fs::create_dir_all(&tree).map_err(|source| Refusal::Io {
        path: tree.clone(),
        source,
    })?;
    // In a work tree of its own nothing of git's lies inside it.
    let worktree = if linked { tree } else { root.to_owned() };
    let tried = tries(&worktree, &|it| {
        prepare(repo, &worktree, settings, (&scratch, None), it)
    });
    // Nothing of value is in it.
    let _ = std::fs::remove_dir_all(&scratch);
    tried
}

impl Runner<'_> {
    /// The sandbox of an attempt, and who keeps the agent to what it may do.
    pub(super) fn agent_walls(
        &self,
        scratch: &Path,
        tools: &ToolSurface,
    ) -> Result<(Sandbox, Keeper), Refusal> {
        let live = &self.live;
        let place = (
            live.worktree.as_path(),
            live.start.settings.sandbox.as_str(),
        );
        around(self.agent.as_ref(), tools, place, |it| {
            self.walls(scratch, it)
        })
    }

    /// The sandbox of the verify command.
    pub(super) fn verify_walls(&self, scratch: &Path) -> Result<Sandbox, Refusal> {
        self.walls(scratch, &Confined::Verify)
    }

    fn walls(&self, scratch: &Path, confined: &Confined) -> Result<Sandbox, Refusal> {
        let Live {
            worktree, start, ..
        } = &self.live;
        let layers = self.layers();
        std::fs::create_dir_all(&layers).map_err(|source| Refusal::Io {
            path: layers.clone(),
            source,
        })?;
        let dirs = (scratch, Some(layers));
        prepare(&self.repo, worktree, &start.settings, dirs, confined)
    }

    /// What this run wrote to build caches.
    fn layers(&self) -> PathBuf {
        Live::dir(&self.repo, &self.live.run_id).join("caches")
    }

    /// Takes that away when the run is over.
    pub(super) fn drop_layers(&self) {
        // It is only a cache; what stays is in the way of nothing.
        let _ = sandbox::drop_layers(&self.layers());
    }

    /// Says once per sitting what is not enforced. Somebody who switched it off knows; not,
    /// perhaps, that the agent cannot be held to anything else.
    pub(super) fn tell_of_gaps(&mut self) {
        let scratch = self.scratch("sandbox");
        let settings = &self.live.start.settings;
        let tools = match settings.sandbox.as_str() {
            "off" => ToolSurface::ReadOnly,
            _ => ToolSurface::Workspace,
        };
        let tried = match self.agent.state() {
            Some(_) => self.agent_walls(&scratch, &tools),
            None if settings.verify_command.is_some() => self
                .verify_walls(&scratch)
                .map(|walls| (walls, Keeper::BackEnd)),
            None => return,
        };
        let _ = std::fs::remove_dir_all(&scratch);
        // A refusal is met, and told, where it is in the way.
        match tried {
            Ok((_, Keeper::Trust(_))) => self.notice(&format!(
                "sandbox: off, so {} is trusted to change nothing in stages that only look",
                self.agent.name()
            )),
            Ok((walls, _)) if !walls.gaps().is_empty() => {
                self.notice(&format!("sandbox: {walls}"));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

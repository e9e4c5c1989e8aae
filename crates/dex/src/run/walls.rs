//! What an agent and a verify command may do in a run: the sandbox's policy.
//!
//! Git's directories are read, not written: an agent looks at history, and `dex`, outside,
//! commits. So are our files under `.dex/` and the `.git` of the work tree itself, which in a
//! linked one is a file that could be made to point elsewhere.

use std::path::{Path, PathBuf};

use agents::sandbox::{self, Mode, Network, Policy, Refusal, Sandbox, State};
use gitdb::Repo;

use super::Runner;
use crate::config::Walls;
use crate::live::{Live, Settings};

/// In `.dex/`: the one file an agent may add to.
const LEARNINGS: &str = "learnings.md";

/// What is confined.
#[derive(Debug, Clone)]
pub enum Confined {
    /// An agent, with what it keeps outside the work tree.
    Agent(State),
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
        Confined::Agent(state) => state.clone(),
        Confined::Verify => State::default(),
    };
    state.needs.extend(named(&walls.readable));
    let mut writable = vec![worktree.to_owned()];
    writable.extend(named(&walls.writable));
    let mut read_only = vec![
        worktree.join(".git"),
        repo.git_dir.clone(),
        repo.common_dir.clone(),
    ];
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
            Confined::Agent(_) => Network::On,
            Confined::Verify if walls.verify_network => Network::On,
            Confined::Verify => Network::Off,
        },
    }
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

/// Whether a run in this work tree would get the sandbox it requires, before anything is changed.
/// `linked`: it gets a work tree of its own, outside the repository.
pub fn check(repo: &Repo, root: &Path, linked: bool, settings: &Settings) -> Result<(), Refusal> {
    if settings.sandbox != "required" {
        return Ok(());
    }
    let scratch = std::env::temp_dir().join(format!("dex-sandbox-{}", uuid::Uuid::now_v7()));
    let io = |source| Refusal::Io {
        path: scratch.clone(),
        source,
    };
    std::fs::create_dir(&scratch).map_err(io)?;
    // In a work tree of its own nothing of git's lies inside it.
    let worktree = match linked {
        true => scratch.join("shared"),
        false => root.to_owned(),
    };
    let mut all = vec![Confined::Agent(State::default())];
    all.extend(settings.verify_command.as_ref().map(|_| Confined::Verify));
    let tried = all
        .iter()
        .try_for_each(|it| prepare(repo, &worktree, settings, (&scratch, None), it).map(drop));
    // Nothing of value is in it.
    let _ = std::fs::remove_dir_all(&scratch);
    tried
}

impl Runner<'_> {
    /// The sandbox of an attempt; none around a back end that starts no program.
    pub(super) fn agent_walls(&self, scratch: &Path) -> Result<Sandbox, Refusal> {
        match self.agent.state() {
            None => Ok(Sandbox::none()),
            Some(state) => self.walls(scratch, &Confined::Agent(state)),
        }
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

    /// Says once per sitting what is not enforced; somebody who switched it off knows.
    pub(super) fn tell_of_gaps(&mut self) {
        let scratch = self.scratch("sandbox");
        let tried = match self.agent.state() {
            Some(_) => self.agent_walls(&scratch),
            None if self.live.start.settings.verify_command.is_some() => {
                self.verify_walls(&scratch)
            }
            None => return,
        };
        let _ = std::fs::remove_dir_all(&scratch);
        // A refusal is met, and told, where it is in the way.
        if let Ok(walls) = tried
            && !walls.gaps().is_empty()
        {
            self.notice(&format!("sandbox: {walls}"));
        }
    }
}

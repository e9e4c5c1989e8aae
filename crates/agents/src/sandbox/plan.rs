//! Which mechanism holds a policy here, and how. Pure.

use std::path::{Path, PathBuf};

use super::{Abilities, Bwrap, Gap, Mode, Network, Refusal};

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A file, a socket.
    File,
}

/// A path that exists, without symbolic links in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Canonical.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
}

/// A policy whose paths were looked at: all exist and are canonical.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// May be changed.
    pub writable: Vec<Place>,
    /// May not, and are seen.
    pub read_only: Vec<Place>,
    /// Read as empty.
    pub hidden: Vec<Place>,
    /// Sockets of services; hidden where that is possible.
    pub services: Vec<Place>,
    /// Build caches, each with the directory that takes what is written to it.
    pub layered: Vec<(PathBuf, PathBuf)>,
    /// The directory that holds those.
    pub layers: Option<PathBuf>,
    /// The program's temporary directory.
    pub tmp: PathBuf,
    /// The machine's, which it stands in for.
    pub machine_tmp: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// An empty directory of ours.
    pub empty_dir: PathBuf,
    /// An empty file of ours.
    pub empty_file: PathBuf,
    /// Network.
    pub network: Network,
    /// Whether we are root: then some rights of root's are left to the program, as it would
    /// otherwise not be able to write to other people's files.
    pub root: bool,
}

/// One step of building the program's view of the file system, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// As it is, not to be changed.
    ReadOnly(PathBuf),
    /// As it is, to be changed.
    Writable(PathBuf),
    /// `from` is seen at `at` and can be changed.
    Instead {
        /// Where it is.
        from: PathBuf,
        /// Where it is seen.
        at: PathBuf,
    },
    /// `with`, which is empty, is seen in its place.
    Hidden {
        /// What is hidden.
        at: PathBuf,
        /// What is seen.
        with: PathBuf,
    },
    /// An empty directory with something below it that is seen.
    HiddenAround(PathBuf),
}

impl Mount {
    /// Where it is seen.
    pub fn at(&self) -> &Path {
        match self {
            Mount::ReadOnly(at) | Mount::Writable(at) | Mount::HiddenAround(at) => at,
            Mount::Instead { at, .. } | Mount::Hidden { at, .. } => at,
        }
    }
}

/// How a policy is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// By a view of its own, made by `bwrap`.
    Bwrap {
        /// The program.
        program: PathBuf,
        /// On top of everything read-only, a fresh `/dev` and a fresh `/proc`.
        mounts: Vec<Mount>,
        /// Directory that is read, and directory that takes what is written to it.
        layers: Vec<(PathBuf, PathBuf)>,
        /// Network.
        network: Network,
        /// See [`Places::root`].
        root: bool,
    },
    /// By the kernel, for hierarchies.
    Landlock {
        /// May be changed.
        writable: Vec<PathBuf>,
        /// Cannot be read.
        hidden: Vec<PathBuf>,
        /// Network.
        network: Network,
        /// What is not held.
        gaps: Vec<Gap>,
    },
    /// Not at all.
    Nothing {
        /// One gap: everything.
        gaps: Vec<Gap>,
    },
}

impl Plan {
    /// What is not held.
    pub fn gaps(&self) -> &[Gap] {
        match self {
            Plan::Bwrap { .. } => &[],
            Plan::Landlock { gaps, .. } | Plan::Nothing { gaps } => gaps,
        }
    }

    /// See [`super::Sandbox::keeps`].
    pub(super) fn keeps(&self, place: &Path) -> bool {
        match self {
            Plan::Bwrap { mounts, .. } => {
                let around = mounts.iter().rev().find(|it| place.starts_with(it.at()));
                match around {
                    Some(Mount::Writable(_) | Mount::Instead { .. } | Mount::HiddenAround(_)) => {
                        false
                    }
                    Some(Mount::ReadOnly(_) | Mount::Hidden { .. }) | None => true,
                }
            }
            Plan::Landlock { writable, .. } => !writable.iter().any(|it| place.starts_with(it)),
            Plan::Nothing { .. } => false,
        }
    }
}

/// Decides.
pub fn plan(mode: Mode, places: &Places, abilities: &Abilities) -> Result<Plan, Refusal> {
    sensible(places)?;
    let plan = match (mode, &abilities.bwrap, abilities.landlock) {
        (Mode::Off, _, _) => {
            let why = "it is switched off".to_owned();
            let gaps = vec![Gap::Everything(why)];
            return Ok(Plan::Nothing { gaps });
        }
        (_, Bwrap::Works { program, layers }, _) => Plan::Bwrap {
            program: program.clone(),
            mounts: mounts(places, *layers),
            layers: match layers {
                true => places.layered.clone(),
                false => Vec::new(),
            },
            network: places.network,
            root: places.root,
        },
        (_, _, Some(version)) => landlock(mode, places, version),
        (_, Bwrap::Absent, None) => {
            let why = "bwrap is not installed and the kernel has no Landlock";
            Plan::Nothing {
                gaps: vec![Gap::Everything(why.to_owned())],
            }
        }
        (_, Bwrap::Fails { why, .. }, None) => {
            let why = format!("bwrap does not work here ({why}) and the kernel has no Landlock");
            Plan::Nothing {
                gaps: vec![Gap::Everything(why)],
            }
        }
    };
    match (mode, plan.gaps()) {
        (Mode::Required, gaps @ [_, ..]) => Err(Refusal::NotWhole(gaps.to_vec())),
        (Mode::Required | Mode::Auto | Mode::Off, _) => Ok(plan),
    }
}

/// A place that would undo the rest is no place to work in.
fn sensible(places: &Places) -> Result<(), Refusal> {
    for Place { path, .. } in &places.writable {
        let everything = path.parent().is_none();
        if everything || places.home.as_ref() == Some(path) {
            return Err(Refusal::TooWide(path.clone()));
        }
        if places.hidden.iter().any(|it| it.path == *path) {
            return Err(Refusal::Hidden(path.clone()));
        }
    }
    Ok(())
}

/// The outer place first, so that of two rules for a path the one that names more of it holds.
fn mounts(places: &Places, layers: bool) -> Vec<Mount> {
    let seen: Vec<&Path> = (places.writable.iter())
        .chain(&places.read_only)
        .map(|it| it.path.as_path())
        .collect();
    let hide = |it: &Place| {
        let below = |path: &&Path| path.starts_with(&it.path) && **path != it.path;
        match it.kind {
            Kind::Dir if seen.iter().any(below) => Mount::HiddenAround(it.path.clone()),
            Kind::Dir => Mount::Hidden {
                at: it.path.clone(),
                with: places.empty_dir.clone(),
            },
            Kind::File => Mount::Hidden {
                at: it.path.clone(),
                with: places.empty_file.clone(),
            },
        }
    };
    let instead = |at: &PathBuf| Mount::Instead {
        from: places.tmp.clone(),
        at: at.clone(),
    };
    // Of two rules for the same path the later one holds.
    let mut all: Vec<Mount> = (places.machine_tmp.iter().map(instead))
        .chain((places.writable.iter()).map(|it| Mount::Writable(it.path.clone())))
        .chain(
            places
                .layers
                .iter()
                .filter(|_| layers)
                .cloned()
                .map(Mount::Writable),
        )
        .chain((places.read_only.iter()).map(|it| Mount::ReadOnly(it.path.clone())))
        .chain(places.hidden.iter().chain(&places.services).map(hide))
        .collect();
    all.sort_by_key(|it| it.at().components().count());
    let mut kept: Vec<Mount> = Vec::new();
    for mount in all {
        kept.retain(|it| it.at() != mount.at());
        kept.push(mount);
    }
    kept
}

fn landlock(mode: Mode, places: &Places, version: u32) -> Plan {
    let paths = |of: &[Place]| -> Vec<PathBuf> { of.iter().map(|it| it.path.clone()).collect() };
    let mut writable = paths(&places.writable);
    writable.push(places.tmp.clone());
    let inside = |path: &Path| writable.iter().any(|it| path.starts_with(it));
    let mut gaps = Vec::new();
    let mut exposed: Vec<PathBuf> = (places.read_only.iter())
        .filter(|it| inside(&it.path))
        .map(|it| it.path.clone())
        .collect();
    // Where walls must be whole a build makes do with what is there; otherwise it may fetch.
    if mode != Mode::Required {
        let caches = places.layered.iter().map(|(of, _)| of.clone());
        exposed.extend(caches.clone());
        writable.extend(caches);
    }
    if !exposed.is_empty() {
        gaps.push(Gap::Writable(exposed));
    }
    match (places.network, version) {
        (Network::On, _) => {}
        (Network::Off, 4..) => gaps.push(Gap::NetworkButTcp),
        (Network::Off, _) => gaps.push(Gap::Network),
    }
    if !places.services.is_empty() {
        gaps.push(Gap::Services(paths(&places.services)));
    }
    if version < 3 {
        gaps.push(Gap::Truncate);
    }
    if version < 6 {
        gaps.push(Gap::Signals);
    }
    Plan::Landlock {
        writable,
        hidden: paths(&places.hidden),
        network: places.network,
        gaps,
    }
}

#[cfg(test)]
mod tests;

//! Walls around a program: what it may write, what it cannot see, whether it has a network.
//!
//! A [`Policy`] says what is wanted. [`prepare`] looks at the paths it names, decides with a pure
//! function ([`plan::plan`]) which mechanism of this machine holds it, tries that very mechanism
//! once, and returns a [`Sandbox`] that [`crate::process`] puts around a program.
//!
//! Two mechanisms. `bwrap` gives the program a view of the file system of its own: everything is
//! read-only but for a few places, some places are empty, and `.git` is read-only again inside a
//! writable work tree. Landlock, where `bwrap` is absent or may not work, only knows hierarchies:
//! it cannot take `.git` out of a writable work tree. What a mechanism cannot hold is a [`Gap`];
//! with [`Mode::Required`] a gap is a refusal, otherwise it is reported.
//!
//! Left out on purpose: confining `dex` itself, which commits; confining what a program asks
//! another service to do over the network; hiding that there is a sandbox.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::guard::Main;

mod bwrap;
pub(crate) mod confine;
mod places;
mod plan;
mod probe;
mod readable;
pub mod state;

pub use places::{caches, credentials, services};
pub use plan::{Kind, Mount, Place, Places, Plan, plan};
pub use probe::{abilities, machine};

/// What a run asks for (`sandbox` of the settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Whole, or the program is not started.
    Required,
    /// As much as this machine can.
    Auto,
    /// None.
    Off,
}

impl std::str::FromStr for Mode {
    type Err = NotAMode;

    fn from_str(word: &str) -> Result<Mode, NotAMode> {
        match word {
            "required" => Ok(Mode::Required),
            "auto" => Ok(Mode::Auto),
            "off" => Ok(Mode::Off),
            _ => Err(NotAMode),
        }
    }
}

/// Neither `required` nor `auto` nor `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not one of required, auto, off")]
pub struct NotAMode;

/// Whether a program reaches other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// As we do.
    On,
    /// Only itself, over the loop-back.
    Off,
}

/// What a program may do. Paths that are not there are passed over.
#[derive(Debug, Clone)]
pub struct Policy {
    /// May be changed: the work tree.
    pub writable: Vec<PathBuf>,
    /// The agent's own: may be changed but for its settings.
    pub state: State,
    /// Cannot be changed, though they lie inside a writable place: `.git`, our own files. Always
    /// seen, also where everything around them is hidden.
    pub read_only: Vec<PathBuf>,
    /// Read as empty: credentials.
    pub hidden: Vec<PathBuf>,
    /// Sockets, or directories of sockets, of services that act for whoever asks them.
    pub services: Vec<PathBuf>,
    /// Build caches: seen as they are, and what is written to them stays in [`Policy::layers`].
    pub layered: Vec<PathBuf>,
    /// Where that is kept. Exists.
    pub layers: Option<PathBuf>,
    /// A directory of ours. Below it are made: `tmp`, the program's temporary directory;
    /// `shared`, which it may write as well; and empty places to hide others with.
    pub scratch: PathBuf,
    /// Network.
    pub network: Network,
}

/// The part of a scratch directory that the program itself may read and write.
pub fn shared(scratch: &Path) -> PathBuf {
    scratch.join("shared")
}

/// What an agent keeps outside the work tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Its own directories: log-in, sessions. Made when absent, because it would make them.
    pub dirs: Vec<PathBuf>,
    /// Files and directories in there that start programs or redirect requests, and so must not
    /// be changed by what it works on. Made, empty, when absent.
    pub settings: Vec<Setting>,
    /// Otherwise hidden places that its log-in needs.
    pub needs: Vec<PathBuf>,
}

/// Something in an agent's state that it may read but not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A file, with what it holds when it is made.
    File(PathBuf, &'static str),
    /// A directory.
    Dir(PathBuf),
}

impl Setting {
    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Setting::File(path, _) | Setting::Dir(path) => path,
        }
    }
}

/// Something a mechanism cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// No mechanism works here at all; why.
    Everything(String),
    /// These can be changed although they should not.
    Writable(Vec<PathBuf>),
    /// Only new TCP connections are refused; other packets leave.
    NetworkButTcp,
    /// The network cannot be taken away.
    Network,
    /// Services behind these sockets can be asked to act.
    Services(Vec<PathBuf>),
    /// Files elsewhere can be emptied, though not written.
    Truncate,
    /// Other processes of this user can be sent signals.
    Signals,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |paths: &[PathBuf]| {
            let shown: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
            shown.join(", ")
        };
        match self {
            Gap::Everything(why) => write!(f, "nothing is enforced: {why}"),
            Gap::Writable(paths) => write!(f, "can be changed: {}", list(paths)),
            Gap::NetworkButTcp => f.write_str("of the network only TCP is blocked"),
            Gap::Network => f.write_str("the network is not blocked"),
            Gap::Services(paths) => write!(f, "can be asked to act: {}", list(paths)),
            Gap::Truncate => f.write_str("files elsewhere can be emptied"),
            Gap::Signals => f.write_str("other processes can be sent signals"),
        }
    }
}

/// What this machine can do, found by trying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// `bwrap`.
    pub bwrap: Bwrap,
    /// Version of the kernel's Landlock interface; none when it has none.
    pub landlock: Option<u32>,
}

/// Whether `bwrap` can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bwrap {
    /// It is not installed.
    Absent,
    /// It is, and may not do its work here; in its own words.
    Fails {
        /// The program.
        program: PathBuf,
        /// Its complaint.
        why: String,
    },
    /// It works.
    Works {
        /// The program.
        program: PathBuf,
        /// Whether caches can be layered ([`Policy::layered`]); otherwise they are read-only.
        layers: bool,
    },
}

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// A sandbox is required and cannot be whole here.
    #[error("a sandbox is required, and this machine cannot hold it: {}", in_words(.0))]
    NotWhole(Vec<Gap>),
    /// A writable place would be everything, or all that belongs to the user.
    #[error("{} cannot be made writable: everything would be", .0.display())]
    TooWide(PathBuf),
    /// A writable place is one that must be hidden.
    #[error("{} holds credentials and cannot be worked in", .0.display())]
    Hidden(PathBuf),
    /// A path could not be looked at or made.
    #[error("{} cannot be made ready for the sandbox", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn in_words(gaps: &[Gap]) -> String {
    let words: Vec<String> = gaps.iter().map(Gap::to_string).collect();
    words.join("; ")
}

/// Walls, ready to be put around a program. The default is none.
#[derive(Debug, Clone, Default)]
pub struct Sandbox(Option<Arc<Ready>>);

#[derive(Debug)]
struct Ready {
    plan: Plan,
    tmp: PathBuf,
}

impl Sandbox {
    /// No walls.
    pub fn none() -> Sandbox {
        Sandbox(None)
    }

    /// What is not enforced.
    pub fn gaps(&self) -> &[Gap] {
        match self.0.as_deref() {
            Some(ready) => ready.plan.gaps(),
            None => &[],
        }
    }

    /// What holds them.
    pub fn mechanism(&self) -> Mechanism {
        match self.0.as_deref().map(|it| &it.plan) {
            Some(Plan::Bwrap { .. }) => Mechanism::Bwrap,
            Some(Plan::Landlock { .. }) => Mechanism::Landlock,
            Some(Plan::Nothing { .. }) | None => Mechanism::None,
        }
    }

    /// Whether a program inside cannot change anything at or below this place, but for places
    /// below it that the policy names as writable.
    pub fn keeps(&self, place: &Path) -> bool {
        let plan = self.0.as_deref().map(|it| &it.plan);
        plan.is_some_and(|it| it.keeps(place))
    }
}

/// What holds walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// A view of the file system of its own.
    Bwrap,
    /// The kernel, for hierarchies.
    Landlock,
    /// Nothing: there are no walls.
    None,
}

impl Mechanism {
    /// The name used in records.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Bwrap => "bwrap",
            Mechanism::Landlock => "landlock",
            Mechanism::None => "none",
        }
    }
}

/// What the guard is to start instead of a program.
#[derive(Debug)]
pub(crate) struct Wrapped {
    pub(crate) main: Main,
    pub(crate) program: PathBuf,
    pub(crate) argv: Vec<OsString>,
}

impl Sandbox {
    /// Puts the walls around a program that is to run in `dir`.
    pub(crate) fn wrap(&self, program: PathBuf, argv: &[OsString], dir: &Path) -> Wrapped {
        match self.0.as_deref().map(|it| &it.plan) {
            None | Some(Plan::Nothing { .. }) => Wrapped {
                main: Main::Program,
                program,
                argv: argv.to_vec(),
            },
            Some(Plan::Landlock {
                writable,
                hidden,
                network,
                ..
            }) => {
                let order = confine::Order {
                    layers: Vec::new(),
                    landlock: Some(confine::Rules {
                        writable: writable.clone(),
                        hidden: hidden.clone(),
                        network: *network,
                    }),
                };
                let mut words = vec![OsString::from("dex")];
                words.extend(order.arguments(&program, argv));
                Wrapped {
                    main: Main::Program,
                    // The guard's own executable: the same file, whatever is on disk by now.
                    program: PathBuf::from("/proc/self/exe"),
                    argv: words,
                }
            }
            Some(Plan::Bwrap {
                program: bwrap,
                mounts,
                layers,
                network,
                root,
            }) => {
                // To lay caches this executable is started once more, inside.
                let layering = match layers.is_empty() {
                    true => None,
                    false => executable_on_disk(),
                };
                let named = match &layering {
                    Some(ours) => vec![program.as_path(), ours.as_path()],
                    None => vec![program.as_path()],
                };
                let mut all = mounts.clone();
                all.extend(bwrap::named_files(mounts, &named, argv));
                let rights = match &layering {
                    Some(_) => bwrap::Rights::ToMount,
                    None => bwrap::Rights::None,
                };
                let mut words = vec![OsString::from("bwrap")];
                words.extend(bwrap::arguments(&all, *network, *root, rights, dir));
                match layering {
                    Some(ours) => {
                        let order = confine::Order {
                            layers: layers.clone(),
                            landlock: None,
                        };
                        words.push(ours.into());
                        words.extend(order.arguments(&program, argv));
                    }
                    None => {
                        words.push(program.into());
                        words.extend(argv.iter().skip(1).cloned());
                    }
                }
                Wrapped {
                    main: Main::Wrapper,
                    program: bwrap.clone(),
                    argv: words,
                }
            }
        }
    }

    /// Fits the program's environment to what it sees.
    pub(crate) fn change(&self, environment: &mut BTreeMap<OsString, OsString>) {
        let Some(ready) = self.0.as_deref() else {
            return;
        };
        let tmp = match &ready.plan {
            Plan::Nothing { .. } => return,
            Plan::Bwrap { .. } => PathBuf::from("/tmp"),
            Plan::Landlock { .. } => ready.tmp.clone(),
        };
        environment.insert("TMPDIR".into(), tmp.into());
        // It names services that act for whoever asks.
        environment.remove(OsStr::new("XDG_RUNTIME_DIR"));
    }
}

/// Our executable by its path. None when it was removed or replaced since we started: caches are
/// then as they are, read-only.
fn executable_on_disk() -> Option<PathBuf> {
    let path = crate::guard::executable().ok()?.canonicalize().ok()?;
    path.is_file().then_some(path)
}

/// Takes away what was written to layered caches ([`Policy::layers`]).
pub fn drop_layers(layers: &Path) -> std::io::Result<()> {
    // The kernel leaves a directory in each that nobody may enter.
    for layer in std::fs::read_dir(layers).into_iter().flatten().flatten() {
        let outer = layer.path().join("work");
        let inner = outer.join("work");
        // The program could put links there, and what they lead to is nobody's to change.
        let real = |it: &Path| it.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if real(&layer.path()) && real(&outer) && real(&inner) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            let _ = std::fs::set_permissions(inner, mode);
        }
    }
    match std::fs::remove_dir_all(layers) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// As records keep it: the mechanism, and what it does not hold.
impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mechanism().name())?;
        match self.gaps() {
            [] => Ok(()),
            [Gap::Everything(why)] => write!(f, " ({why})"),
            gaps => write!(f, " (not enforced: {})", in_words(gaps)),
        }
    }
}

/// Makes a sandbox ready: looks at the paths, decides, and tries it.
///
/// A mechanism that works in general and fails for these very paths is treated as absent, so that
/// its complaint is never taken for the program's own failure.
pub fn prepare(mode: Mode, policy: &Policy, abilities: &Abilities) -> Result<Sandbox, Refusal> {
    if mode == Mode::Off {
        return Ok(Sandbox::none());
    }
    let places = places::look(policy)?;
    let mut abilities = abilities.clone();
    loop {
        let plan = plan(mode, &places, &abilities)?;
        let ready = Ready {
            plan,
            tmp: places.tmp.clone(),
        };
        let Plan::Bwrap { program, .. } = &ready.plan else {
            return Ok(Sandbox(Some(Arc::new(ready))));
        };
        let program = program.clone();
        let sandbox = Sandbox(Some(Arc::new(ready)));
        let Err(why) = probe::try_out(&sandbox, &policy.scratch) else {
            return Ok(sandbox);
        };
        // Not a loop without end: first without layers, then without `bwrap`.
        abilities.bwrap = match abilities.bwrap {
            Bwrap::Works { layers: true, .. } => Bwrap::Works {
                program,
                layers: false,
            },
            Bwrap::Works { .. } | Bwrap::Absent | Bwrap::Fails { .. } => {
                Bwrap::Fails { program, why }
            }
        };
    }
}

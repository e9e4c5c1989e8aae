//! The last step before a program: this executable, started again, confines itself and becomes
//! the program. Nothing is started in between, so the program keeps its place under the guard.
//!
//! In a process of its own because what confines also allocates, which is not safe between a
//! fork and an exec.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetStatus, Scope,
};

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::Network;
use super::readable::everything_but;

/// The hidden first argument.
pub(crate) const ARGUMENT: &str = "__confine";
/// Both sides must mean the same, even when the program on disk was replaced meanwhile.
const PROTOCOL: &str = "1";

/// What to do before becoming the program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// What is read, and the directory that takes what is written to it.
    pub(super) layers: Vec<(PathBuf, PathBuf)>,
    pub(super) landlock: Option<Rules>,
}

/// For Landlock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) writable: Vec<PathBuf>,
    pub(super) hidden: Vec<PathBuf>,
    pub(super) network: Network,
}

impl Order {
    /// The arguments that [`main`] reads, up to and including the program itself.
    pub(super) fn arguments(&self, program: &Path, argv: &[OsString]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![ARGUMENT.into(), PROTOCOL.into()];
        for (of, layer) in &self.layers {
            arguments.extend(["--layer".into(), of.clone().into(), layer.clone().into()]);
        }
        if let Some(rules) = &self.landlock {
            arguments.push("--landlock".into());
            for path in &rules.writable {
                arguments.extend(["--writable".into(), path.clone().into()]);
            }
            for path in &rules.hidden {
                arguments.extend(["--hidden".into(), path.clone().into()]);
            }
            if rules.network == Network::Off {
                arguments.push("--no-network".into());
            }
        }
        arguments.push("--".into());
        arguments.push(program.into());
        arguments.extend(argv.iter().cloned());
        arguments
    }

    fn carry_out(&self) -> Result<(), String> {
        if !self.layers.is_empty() {
            own_mounts().map_err(|error| error.to_string())?;
        }
        for (of, layer) in &self.layers {
            lay(of, layer).map_err(|error| format!("{}: {error}", of.display()))?;
        }
        if let Some(rules) = &self.landlock {
            restrict(rules)?;
        }
        give_up_capabilities()
    }

    fn from_arguments(
        arguments: &mut impl Iterator<Item = OsString>,
    ) -> Option<(Order, PathBuf, Vec<OsString>)> {
        if arguments.next()? != PROTOCOL {
            return None;
        }
        let mut order = Order::default();
        loop {
            let word = arguments.next()?;
            match word.to_str()? {
                "--" => break,
                "--layer" => {
                    let of = arguments.next()?.into();
                    order.layers.push((of, arguments.next()?.into()));
                }
                "--landlock" => {
                    order.landlock = Some(Rules {
                        writable: Vec::new(),
                        hidden: Vec::new(),
                        network: Network::On,
                    });
                }
                "--writable" => order
                    .landlock
                    .as_mut()?
                    .writable
                    .push(arguments.next()?.into()),
                "--hidden" => order
                    .landlock
                    .as_mut()?
                    .hidden
                    .push(arguments.next()?.into()),
                "--no-network" => order.landlock.as_mut()?.network = Network::Off,
                _ => return None,
            }
        }
        let program = PathBuf::from(arguments.next()?);
        Some((order, program, arguments.collect()))
    }
}

/// Confines this process and becomes the program. Returns, with what to say, only when that does
/// not work.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> (i32, String) {
    let Some((order, program, argv)) = Order::from_arguments(&mut arguments) else {
        return (
            125,
            "dex: the sandbox got an order it does not know".to_owned(),
        );
    };
    if let Err(why) = order.carry_out() {
        return (125, format!("dex: the sandbox could not be made: {why}"));
    }
    let mut command = Command::new(&program);
    if let Some((name, rest)) = argv.split_first() {
        command.arg0(name).args(rest);
    }
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    (
        status,
        format!("dex: {} could not be started: {error}", program.display()),
    )
}

/// What we ask for where the kernel has it; older kernels get what they know.
const WANTED: ABI = ABI::V6;

/// Version of the kernel's Landlock interface, found by confining a thread that then ends.
pub(super) fn landlock_version() -> Option<u32> {
    let probe = std::thread::spawn(|| {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(WANTED))
            .ok()?;
        let status = ruleset.create().ok()?.restrict_self().ok()?;
        match (status.ruleset, status.landlock) {
            (RulesetStatus::NotEnforced, _) => None,
            (_, LandlockStatus::Available { effective_abi, .. }) => Some(effective_abi as u32),
            (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => None,
        }
    });
    probe.join().ok().flatten()
}

/// Whether a path can be said in the options of a layer, where these characters part things.
pub(super) fn can_be_layered(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .any(|byte| b",:\\\"".contains(byte))
}

/// A mount namespace of our own. `bwrap` made one, but for a user without rights it goes on to a
/// second user namespace, from which the first one's mounts can no longer be changed.
fn own_mounts() -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "only its flag for open files, which we do not use, is unsafe"
    )]
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)?;
    Ok(())
}

/// Lays `layer` over `of`: what is written there is kept in the layer.
fn lay(of: &Path, layer: &Path) -> io::Result<()> {
    let mut options = b"userxattr".to_vec();
    for (name, path) in [
        ("lowerdir", of.to_owned()),
        ("upperdir", layer.join("written")),
        ("workdir", layer.join("work")),
    ] {
        options.extend_from_slice(format!(",{name}=").as_bytes());
        options.extend_from_slice(path.as_os_str().as_encoded_bytes());
    }
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    rustix::mount::mount("overlay", of, "overlay", flags, Some(options.as_c_str()))?;
    Ok(())
}

/// All but those that `bwrap` leaves to root as well. With them root could read other processes'
/// memory past Landlock. They do not come back at an exec, because no privilege does any more.
fn give_up_capabilities() -> Result<(), String> {
    let kept = match rustix::process::geteuid().is_root() {
        true => CapabilitySet::DAC_OVERRIDE | CapabilitySet::FOWNER | CapabilitySet::CHOWN,
        false => CapabilitySet::empty(),
    };
    let now = rustix::thread::capabilities(None).map_err(|error| error.to_string())?;
    let sets = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(|error| error.to_string())
}

fn restrict(rules: &Rules) -> Result<(), String> {
    let said = |error: landlock::RulesetError| error.to_string();
    let abi = WANTED;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .map_err(said)?
        .scope(Scope::from_all(abi))
        .map_err(said)?;
    if rules.network == Network::Off {
        ruleset = ruleset
            .handle_access(AccessNet::from_all(abi))
            .map_err(said)?;
    }
    let mut created = ruleset.create().map_err(said)?;
    let reading = AccessFs::from_read(abi);
    for path in everything_but(&rules.hidden) {
        created = allow(created, &path, reading, abi)?;
    }
    for path in rules.writable.iter().chain(&devices(rules)) {
        created = allow(created, path, AccessFs::from_all(abi), abi)?;
    }
    let status = created.restrict_self().map_err(said)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel enforces nothing of it".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// A path that is gone, or that we may not open, needs no rule.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
    abi: ABI,
) -> Result<RulesetCreated, String> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    let access = match path.is_dir() {
        true => access,
        false => access & AccessFs::from_file(abi),
    };
    ruleset
        .add_rule(PathBeneath::new(opened, access))
        .map_err(|error| error.to_string())
}

/// Devices that programs write to. Shared memory only where nothing of ours lies in it.
fn devices(rules: &Rules) -> Vec<PathBuf> {
    let names = [
        "null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts",
    ];
    let mut devices: Vec<PathBuf> = names.iter().map(|it| Path::new("/dev").join(it)).collect();
    let memory = Path::new("/dev/shm");
    if !rules
        .writable
        .iter()
        .chain(&rules.hidden)
        .any(|it| it.starts_with(memory))
    {
        devices.push(memory.to_owned());
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_back_as_it_was_written() {
        let order = Order {
            layers: vec![("/a".into(), "/b".into())],
            landlock: Some(Rules {
                writable: vec!["/w".into(), "/--".into()],
                hidden: vec!["/h".into()],
                network: Network::Off,
            }),
        };
        let argv: Vec<OsString> = vec!["sh".into(), "--".into(), "-c".into()];
        let mut words = order
            .arguments(Path::new("/bin/sh"), &argv)
            .into_iter()
            .skip(1);
        let read = Order::from_arguments(&mut words).expect("reads");
        assert_eq!(read, (order, PathBuf::from("/bin/sh"), argv));
    }

    #[test]
    fn an_order_of_another_version_is_refused() {
        let mut words = ["2", "--", "/bin/sh", "sh"].map(OsString::from).into_iter();
        assert_eq!(Order::from_arguments(&mut words), None);
    }
}

//! `bwrap`'s command line.
//!
//! What it always gets, and why:
//! - a process namespace of its own: other processes' environments hold secrets, and one that
//!   could be debugged would be a way out. The guard, outside, sees and ends every process in it;
//! - `--die-with-parent`: when the guard is killed, the kernel ends the whole namespace;
//! - `--new-session`: nothing can be typed into our terminal;
//! - no capability, and (always, by `bwrap` itself) no new privileges.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Network;
use super::plan::Mount;

/// Root is left what it needs to work on other people's files, as in a container whose work tree
/// belongs to somebody else. None of these gets it out: all mounts stay as they are.
const OF_ROOT: [&str; 3] = ["CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN"];

/// What the first program inside may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    /// Nothing special.
    None,
    /// Lay caches ([`super::confine`]); it gives that up before it becomes the program.
    ToMount,
}

/// Arguments of `bwrap` up to and including `--`.
pub(super) fn arguments(
    mounts: &[Mount],
    network: Network,
    root: bool,
    rights: Rights,
    dir: &Path,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&std::ffi::OsStr]| {
        arguments.extend(words.iter().map(|word| word.to_os_string()));
    };
    for word in [
        "--unshare-pid",
        "--unshare-ipc",
        "--die-with-parent",
        "--new-session",
    ] {
        add(&[word.as_ref()]);
    }
    if network == Network::Off {
        add(&["--unshare-net".as_ref()]);
    }
    add(&["--cap-drop".as_ref(), "ALL".as_ref()]);
    for capability in OF_ROOT.iter().filter(|_| root) {
        add(&["--cap-add".as_ref(), capability.as_ref()]);
    }
    if rights == Rights::ToMount {
        // The kernel leaves a directory in a layer that only the second may enter again.
        for capability in ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"] {
            add(&["--cap-add".as_ref(), capability.as_ref()]);
        }
    }
    add(&["--ro-bind".as_ref(), "/".as_ref(), "/".as_ref()]);
    add(&["--dev".as_ref(), "/dev".as_ref()]);
    add(&["--proc".as_ref(), "/proc".as_ref()]);
    // These go by user, not by capability: without this root changes the machine's own settings.
    for name in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"] {
        add(&["--ro-bind-try".as_ref(), name.as_ref(), name.as_ref()]);
    }
    for mount in mounts {
        let at = mount.at().as_os_str();
        match mount {
            Mount::ReadOnly(_) => add(&["--ro-bind".as_ref(), at, at]),
            Mount::Writable(_) => add(&["--bind".as_ref(), at, at]),
            Mount::Instead { from, .. } => add(&["--bind".as_ref(), from.as_os_str(), at]),
            Mount::Hidden { with, .. } => add(&["--ro-bind".as_ref(), with.as_os_str(), at]),
            Mount::HiddenAround(_) => add(&["--tmpfs".as_ref(), at]),
        }
    }
    add(&["--chdir".as_ref(), dir.as_os_str()]);
    add(&["--".as_ref()]);
    arguments
}

/// Files that the command line names and that the view would not show because they lie in a
/// temporary directory: the user's own scripts. Never one that is hidden on purpose.
pub(super) fn named_files(mounts: &[Mount], programs: &[&Path], argv: &[OsString]) -> Vec<Mount> {
    let covered = |path: &Path| {
        let last = (mounts.iter().rev()).find(|it| path.starts_with(it.at()));
        match last {
            Some(Mount::Instead { .. }) => true,
            Some(_) => false,
            None => path.starts_with("/dev"),
        }
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for word in (programs.iter().copied()).chain(argv.iter().map(Path::new)) {
        if word.is_absolute()
            && covered(word)
            && word.is_file()
            && !files.iter().any(|it| it == word)
        {
            files.push(word.to_owned());
        }
    }
    files.into_iter().map(Mount::ReadOnly).collect()
}

//! What this machine can do, found by trying: presence says little, since a distribution may
//! forbid `bwrap` to make the namespaces it needs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::bwrap::Rights;
use super::plan::Mount;
use super::{Abilities, Bwrap, Network, Sandbox, bwrap, confine};
use crate::process::find_program;

/// A trial takes some ten milliseconds; after this it is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
const COMPLAINT_BYTES: usize = 300;

/// Tries everything once.
pub fn abilities() -> Abilities {
    Abilities {
        bwrap: try_bwrap(),
        landlock: confine::landlock_version(),
    }
}

/// [`abilities`], tried once in the life of this process.
pub fn machine() -> &'static Abilities {
    static MACHINE: OnceLock<Abilities> = OnceLock::new();
    MACHINE.get_or_init(abilities)
}

fn try_bwrap() -> Bwrap {
    let Some(program) = find_program(OsStr::new("bwrap"), Path::new("/")) else {
        return Bwrap::Absent;
    };
    // With a mount of each kind that needs no directory of ours.
    let mounts = [Mount::HiddenAround(PathBuf::from("/tmp"))];
    let root = rustix::process::geteuid().is_root();
    let arguments = bwrap::arguments(&mounts, Network::Off, root, Rights::None, Path::new("/"));
    let mut command = Command::new(&program);
    command.args(arguments).arg(true_program());
    match runs(command) {
        Ok(()) => Bwrap::Works {
            program,
            layers: true,
        },
        Err(why) => Bwrap::Fails { program, why },
    }
}

/// Runs nothing in exactly this sandbox.
pub(super) fn try_out(sandbox: &Sandbox, dir: &Path) -> Result<(), String> {
    let nothing = true_program();
    let argv = [nothing.clone().into_os_string()];
    let wrapped = sandbox.wrap(nothing, &argv, dir);
    let mut command = Command::new(&wrapped.program);
    command.args(&wrapped.argv[1..]);
    runs(command)
}

fn true_program() -> PathBuf {
    find_program(OsStr::new("true"), Path::new("/")).unwrap_or_else(|| PathBuf::from("/bin/true"))
}

/// Whether a command ends well, soon; else its complaint.
fn runs(mut command: Command) -> Result<(), String> {
    let started = Instant::now();
    let child = command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(complaint(child.stderr.take(), &status.to_string())),
            Ok(None) if started.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end after {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn complaint(pipe: Option<std::process::ChildStderr>, status: &str) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // It has ended, so this is what the pipe holds.
        let _ = std::io::Read::read_to_end(
            &mut std::io::Read::take(pipe, COMPLAINT_BYTES as u64),
            &mut bytes,
        );
    }
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("bwrap: ").unwrap_or(line).trim();
    match line.is_empty() {
        true => status.to_owned(),
        false => line.to_owned(),
    }
}

//! One child process, bounded: input fed and output read by threads, its group ended in time.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{GitError, Output};

/// How long a group may take to react to TERM before KILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long we still read after git has ended, for a grandchild that kept the pipe open.
const DRAIN: Duration = Duration::from_secs(1);

type Shared = Arc<Mutex<Vec<u8>>>;

/// Starts `command` in its own process group and waits, at most `limit`.
pub(super) fn to_the_end(
    mut command: Command,
    stdin: Option<Vec<u8>>,
    limit: Duration,
    at_most: usize,
    name: &str,
) -> Result<Output, GitError> {
    command
        .process_group(0)
        .stdin(if stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(GitError::Start)?;
    // From a thread, because git may fill its output before it has read all of its input.
    if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
        std::thread::spawn(move || {
            // A child that ends early closes the pipe; its exit status tells the story.
            let _ = pipe.write_all(&bytes);
        });
    }
    let (done, ended) = channel();
    let stdout = collect(child.stdout.take(), at_most, done.clone());
    let stderr = collect(child.stderr.take(), usize::MAX, done);
    let status = wait(&mut child, &ended, limit, name)?;
    if stdout.lock().is_ok_and(|it| it.len() > at_most) {
        return Err(GitError::TooMuch {
            command: name.to_owned(),
            limit: at_most,
        });
    }
    Ok(Output {
        status: status.code(),
        stdout: take(&stdout),
        stderr: String::from_utf8_lossy(&take(&stderr)).into_owned(),
    })
}

fn take(shared: &Shared) -> Vec<u8> {
    shared
        .lock()
        .map(|mut held| std::mem::take(&mut *held))
        .unwrap_or_default()
}

/// Reads a pipe to its end on a thread, and reports that end. Past `at_most` bytes it closes the
/// pipe, and git ends by itself at its next write.
fn collect<R: Read + Send + 'static>(
    pipe: Option<R>,
    at_most: usize,
    done: std::sync::mpsc::Sender<()>,
) -> Shared {
    let shared = Shared::default();
    if let Some(mut pipe) = pipe {
        let into = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut chunk = vec![0; 64 * 1024];
            loop {
                match pipe.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(n) => {
                        let Ok(mut held) = into.lock() else { break };
                        held.extend_from_slice(&chunk[..n]);
                        if held.len() > at_most {
                            break;
                        }
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            drop(pipe);
            let _ = done.send(());
        });
    }
    shared
}

fn wait(
    child: &mut Child,
    ended: &Receiver<()>,
    limit: Duration,
    name: &str,
) -> Result<std::process::ExitStatus, GitError> {
    let deadline = Instant::now() + limit;
    let mut open_pipes = 2;
    let mut pause = Duration::from_millis(20);
    loop {
        if open_pipes == 0 {
            // Both pipes are closed, so the exit is a moment away.
            std::thread::sleep(Duration::from_micros(200));
        } else {
            match ended.recv_timeout(pause.min(deadline.saturating_duration_since(Instant::now())))
            {
                Ok(()) => open_pipes -= 1,
                Err(RecvTimeoutError::Timeout) => {
                    pause = (pause * 2).min(Duration::from_millis(500))
                }
                Err(RecvTimeoutError::Disconnected) => open_pipes = 0,
            }
            if open_pipes == 1 {
                continue_reading(ended, &mut open_pipes);
            }
        }
        if let Some(status) = child.try_wait().map_err(GitError::Start)? {
            drain(ended, open_pipes);
            return Ok(status);
        }
        if Instant::now() >= deadline {
            end_group(child);
            return Err(GitError::TimedOut {
                command: name.to_owned(),
                seconds: limit.as_secs(),
            });
        }
    }
}

/// One pipe closed: the other one nearly always closes at once.
fn continue_reading(ended: &Receiver<()>, open_pipes: &mut u8) {
    if ended.recv_timeout(Duration::from_millis(2)).is_ok() {
        *open_pipes = 0;
    }
}

/// Git has ended; what it wrote is in the pipes. A grandchild may hold them open for ever.
fn drain(ended: &Receiver<()>, mut open_pipes: u8) {
    let until = Instant::now() + DRAIN;
    while open_pipes > 0 {
        match ended.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(()) => open_pipes -= 1,
            Err(_) => return,
        }
    }
}

/// TERM, a moment, KILL, to everything git started in its group. The leader is not reaped
/// before the KILL, so the group's number cannot have been given to someone else.
fn end_group(child: &mut Child) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return;
    };
    let _ = kill_process_group(pid, Signal::TERM);
    let until = Instant::now() + GRACE;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while Instant::now() < until {
        if !matches!(waitid(WaitId::Pid(pid), look), Ok(None)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process_group(pid, Signal::KILL);
    let _ = child.wait();
}

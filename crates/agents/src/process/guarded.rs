//! A program under the guard, seen from our side of the pipe.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use super::environment::find_program_on;
use super::input::Input;
use super::lines::{self, Message, Meter};
use super::{Line, Spec, StartError, inherited_environment};
use crate::guard::list::{Ending, List};
use crate::guard::{self, Order};

/// Lines waiting for the handler; a child that writes faster waits.
const WAITING_LINES: usize = 32;
/// The guard ends a tree in two seconds, and in seven at its own bounds. After this it is taken
/// for stuck, and what it should have ended is ended by us.
const GUARD_BOUND: Duration = Duration::from_secs(10);

/// A program running under the guard.
#[derive(Debug)]
pub(super) struct Guarded {
    child: Child,
    /// The pipe to the guard; its end is the guard's sign that we are gone.
    pub(super) input: Input,
    pub(super) lines: Receiver<Message>,
    meter: Arc<Meter>,
    list: PathBuf,
    program: String,
    asked: Option<Instant>,
}

/// How it ended, as the guard wrote it.
#[derive(Debug)]
pub(super) struct GuardedResult {
    pub(super) ending: Ending,
    pub(super) survivors: Vec<u32>,
}

impl Guarded {
    pub(super) fn start(spec: &Spec) -> Result<Guarded, StartError> {
        let name = spec.argv.first().cloned().unwrap_or_default();
        let program = name.to_string_lossy().into_owned();
        let io = |source| StartError::Io {
            program: program.clone(),
            source,
        };
        if !spec.dir.is_dir() {
            let missing = format!("{} is not a directory", spec.dir.display());
            return Err(io(io::Error::new(io::ErrorKind::NotFound, missing)));
        }
        let mut environment = inherited_environment();
        environment.extend(spec.env.clone());
        let mark = uuid::Uuid::now_v7().simple().to_string();
        environment.insert(guard::MARK.into(), mark.clone().into());
        let path = environment.get(OsStr::new("PATH"));
        let found =
            find_program_on(&name, &spec.dir, path.map(|it| it.as_os_str())).ok_or_else(|| {
                StartError::NotFound {
                    program: program.clone(),
                }
            })?;
        let list = std::path::absolute(&spec.process_list).map_err(io)?;
        // Written by us first: should both of us die at once, the mark is known.
        List::new(mark).write(&list).map_err(io)?;
        let wrapped = spec.sandbox.wrap(found, &spec.argv, &spec.dir);
        spec.sandbox.change(&mut environment);
        let order = Order {
            list: list.clone(),
            main: wrapped.main,
            program: wrapped.program,
            argv: wrapped.argv,
        };
        let mut child = Command::new(guard::executable().map_err(io)?)
            .args(order.arguments())
            .current_dir(&spec.dir)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let meter = Meter::new();
        Ok(Guarded {
            input: Input::new(child.stdin.take(), spec.stdin.clone()),
            lines: read_output(&mut child, spec, &meter),
            meter,
            child,
            list,
            program,
            asked: None,
        })
    }

    /// Time without a byte of output.
    pub(super) fn silence(&self) -> Duration {
        self.meter.silence()
    }

    /// Asks the guard to end the tree.
    pub(super) fn end_tree(&mut self) {
        self.asked.get_or_insert_with(Instant::now);
        self.input.end_tree();
    }

    /// Whether the guard is gone, and with it, unless it was killed, the whole tree.
    pub(super) fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// A guard that does not do its work in time is killed; [`Guarded::result`] does it then.
    pub(super) fn give_up_on_a_stuck_guard(&mut self) {
        if self.asked.is_some_and(|at| at.elapsed() > GUARD_BOUND) {
            let _ = self.child.kill();
        }
    }

    /// How it ended. If the guard was killed, what it left is ended here.
    pub(super) fn result(mut self) -> Result<GuardedResult, StartError> {
        let list = List::read(&self.list).unwrap_or_default();
        let io = |source| StartError::Io {
            program: self.program.clone(),
            source,
        };
        match list.ending {
            Some(Ending::Failed(errno)) => {
                let _ = std::fs::remove_file(&self.list);
                return Err(io(io::Error::from_raw_os_error(errno)));
            }
            Some(ending) => {
                let survivors: Vec<u32> = list.survivors.iter().map(|it| it.pid).collect();
                // Kept while it names somebody: the next start tries again.
                if survivors.is_empty() {
                    let _ = std::fs::remove_file(&self.list);
                }
                return Ok(GuardedResult { ending, survivors });
            }
            None => {}
        }
        let status = self.child.wait().ok().and_then(|status| status.code());
        if list.guard.is_none() && self.list.exists() {
            let _ = std::fs::remove_file(&self.list);
            let never = "the guard did not start: this program does not call `main_if_guard`";
            return Err(io(io::Error::other(never)));
        }
        // Killed, or the list was deleted under it. In the second case its status still tells.
        let left = List::read(&self.list).is_ok();
        guard::end_leftovers(&self.list).map_err(io)?;
        let survivors = List::read(&self.list)
            .map(|list| list.processes.iter().map(|it| it.pid).collect())
            .unwrap_or_default();
        let ending = match status {
            Some(status @ 0..=128) if !left => Ending::Exit(status),
            _ => Ending::Unknown,
        };
        Ok(GuardedResult { ending, survivors })
    }
}

fn read_output(child: &mut Child, spec: &Spec, meter: &Arc<Meter>) -> Receiver<Message> {
    let (sender, receiver) = sync_channel(WAITING_LINES);
    let (line_bytes, output_bytes) = (spec.line_bytes, spec.output_bytes);
    if let Some(out) = child.stdout.take() {
        let (sender, meter) = (sender.clone(), Arc::clone(meter));
        std::thread::spawn(move || {
            lines::read(out, Line::Out, line_bytes, output_bytes, &meter, &sender);
        });
    }
    if let Some(err) = child.stderr.take() {
        let meter = Arc::clone(meter);
        std::thread::spawn(move || {
            lines::read(err, Line::Err, line_bytes, output_bytes, &meter, &sender);
        });
    }
    receiver
}

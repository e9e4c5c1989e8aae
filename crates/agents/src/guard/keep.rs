//! What the guard process does from its start to its end.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::list::{Ending, List};
use super::tree::{self, Process};
use super::{MARK, Main, ORDER_CLOSE, ORDER_END, ORDER_INPUT, Order};

/// Between TERM and KILL when `dex` asks. Agents use it to write their last event.
const GRACE_ASKED: Duration = Duration::from_secs(2);
/// Between TERM and KILL when `dex` is gone: everything is over in under two seconds.
const GRACE_GONE: Duration = Duration::from_millis(1000);
/// What the main process left behind may finish writing before it is ended.
const GRACE_FLUSH: Duration = Duration::from_millis(200);
/// Between TERM and KILL for what the main process left behind.
const GRACE_REST: Duration = Duration::from_millis(500);
/// How long KILL is repeated. Only a process stuck in the kernel outlives it.
const KILL_BOUND: Duration = Duration::from_secs(5);
/// The list is looked at often at first, when agents start their helpers, then less.
const LIST_FIRST: Duration = Duration::from_millis(40);
const LIST_SLOWEST: Duration = Duration::from_secs(1);
/// Longer input than this is refused rather than held in memory.
const INPUT_BYTES: u64 = 1 << 30;
/// Input an agent may leave unread before more of it comes. Past that its input is closed.
const UNREAD_BYTES: u64 = 64 << 20;

/// What the guard waits for.
enum Happened {
    /// The agent's main process ended.
    Ended(WaitStatus),
    /// `dex` asks to end the tree.
    Asked,
    /// The pipe closed: `dex` is gone.
    Gone,
}

/// The guard's work. Returns its exit status.
pub(super) fn keep(order: &Order) -> i32 {
    // Fails only when we lead a session already, which serves as well.
    let _ = rustix::process::setsid();
    // Without it grandchildren go to init when their parent ends, out of our sight.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let mut list = List::new(std::env::var(MARK).unwrap_or_default());
    list.guard = this_process();
    if list.write(&order.list).is_err() {
        // Nobody could end what escapes us, so nothing is started.
        return 126;
    }
    let (sender, happened) = channel();
    let main = match start(order, &sender) {
        Ok(main) => main,
        Err(error) => {
            list.ending = Some(Ending::Failed(error.raw_os_error().unwrap_or(0)));
            let _ = list.write(&order.list);
            return 127;
        }
    };
    std::thread::spawn(move || reap(main, &sender));
    let first = watch(&happened, &mut list, order);
    let spared = match order.main {
        Main::Program => None,
        Main::Wrapper => u32::try_from(main.as_raw_nonzero().get()).ok(),
    };
    let (status, survivors) = end_tree(first, &happened, spared);
    list.processes.clear();
    list.survivors = survivors;
    list.ending = Some(status.map_or(Ending::Unknown, ending));
    let _ = list.write(&order.list);
    match list.ending {
        Some(Ending::Exit(code)) => code,
        Some(Ending::Signal(signal)) => 128 + signal,
        Some(Ending::Failed(_) | Ending::Unknown) | None => 255,
    }
}

fn this_process() -> Option<Process> {
    let pid = std::process::id();
    Some(Process {
        pid,
        start: tree::start_time(pid)?,
    })
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => Ending::Unknown,
    }
}

/// Starts the agent, and the thread that reads our pipe and feeds the agent's input.
fn start(order: &Order, sender: &Sender<Happened>) -> std::io::Result<Pid> {
    let mut command = Command::new(&order.program);
    if let Some((name, arguments)) = order.argv.split_first() {
        command.arg0(name).args(arguments);
    }
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let input = child.stdin.take();
    let control = sender.clone();
    std::thread::spawn(move || {
        let happened = read_control(input);
        let _ = control.send(happened);
    });
    // `Child` would wait for this one process; `reap` waits for all, orphans included.
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| std::io::Error::other("the child has no pid"))
}

/// Reads our pipe: what is for the agent is handed on, until a request or the end of the pipe.
fn read_control(agent: Option<ChildStdin>) -> Happened {
    let mut control = std::io::stdin().lock();
    let mut input = agent.map(AgentInput::new);
    loop {
        let mut tag = [0];
        if control.read_exact(&mut tag).is_err() {
            return Happened::Gone;
        }
        match tag[0] {
            ORDER_INPUT => match read_input(&mut control) {
                Some(bytes) => {
                    let kept = input.as_ref().is_some_and(|it| it.hand_on(bytes));
                    if !kept {
                        input = None;
                    }
                }
                None => return Happened::Gone,
            },
            ORDER_CLOSE => input = None,
            ORDER_END => return Happened::Asked,
            // Not our `dex`: without a common language nothing can be asked of us.
            _ => return Happened::Gone,
        }
    }
}

fn read_input(control: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 8];
    control.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    if length > INPUT_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    let got = control.take(length).read_to_end(&mut bytes);
    got.is_ok_and(|it| it as u64 == length).then_some(bytes)
}

/// The agent's input, written by a thread of its own: an agent that never reads must not keep us
/// from our pipe. Dropping it closes the input once everything is written.
struct AgentInput {
    pieces: Sender<Vec<u8>>,
    unread: Arc<AtomicU64>,
}

impl AgentInput {
    fn new(mut agent: ChildStdin) -> AgentInput {
        let (pieces, waiting) = channel::<Vec<u8>>();
        let unread = Arc::new(AtomicU64::new(0));
        let left = Arc::clone(&unread);
        std::thread::spawn(move || {
            for piece in waiting {
                if agent.write_all(&piece).is_err() {
                    return;
                }
                left.fetch_sub(piece.len() as u64, Ordering::SeqCst);
            }
        });
        AgentInput { pieces, unread }
    }

    /// False when no more can be given: it closed its input, or does not read it.
    fn hand_on(&self, piece: Vec<u8>) -> bool {
        let length = piece.len() as u64;
        let before = self.unread.fetch_add(length, Ordering::SeqCst);
        // The first piece may be any prompt; it has a bound of its own.
        let fits = before == 0 || before + length <= UNREAD_BYTES;
        fits && self.pieces.send(piece).is_ok()
    }
}

/// Waits for every child, adopted ones included, until there is none.
fn reap(main: Pid, sender: &Sender<Happened>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => {
                let _ = sender.send(Happened::Ended(status));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Keeps the list true until something happens.
fn watch(happened: &Receiver<Happened>, list: &mut List, order: &Order) -> Happened {
    let mut pause = Duration::from_millis(1);
    loop {
        match happened.recv_timeout(pause) {
            Ok(first) => return first,
            Err(RecvTimeoutError::Timeout) => {
                let mut now = tree::descendants(&[std::process::id()]);
                now.sort_unstable();
                if now != list.processes {
                    list.processes = now;
                    // The scratch directory may have been deleted under us; the mark remains.
                    let _ = list.write(&order.list);
                }
                pause = (pause * 2).clamp(LIST_FIRST, LIST_SLOWEST);
            }
            // The reaper and the control thread both ended: nothing is left to wait for.
            Err(RecvTimeoutError::Disconnected) => return Happened::Gone,
        }
    }
}

/// Ends everything below us. Returns the main process's status, when known, and what still
/// lives.
fn end_tree(
    first: Happened,
    happened: &Receiver<Happened>,
    spared: Option<u32>,
) -> (Option<WaitStatus>, Vec<Process>) {
    let mut below = || tree::descendants(&[std::process::id()]);
    let (mut status, grace) = match first {
        Happened::Ended(status) => {
            let started = Instant::now();
            while started.elapsed() < GRACE_FLUSH && !below().is_empty() {
                std::thread::sleep(Duration::from_millis(10));
            }
            (Some(status), GRACE_REST)
        }
        Happened::Asked => (None, GRACE_ASKED),
        Happened::Gone => (None, GRACE_GONE),
    };
    let survivors = tree::end(&mut below, spared, grace, KILL_BOUND);
    let patience = Instant::now() + Duration::from_millis(200);
    while status.is_none() {
        match happened.recv_timeout(patience.saturating_duration_since(Instant::now())) {
            Ok(Happened::Ended(ended)) => status = Some(ended),
            Ok(Happened::Asked | Happened::Gone) => {}
            Err(_) => break,
        }
    }
    (status, survivors)
}

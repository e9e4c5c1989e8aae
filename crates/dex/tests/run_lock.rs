//! Two processes and one run lock (cases D01, D02).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use dex::files::lock::{LockError, RunLock};

const PLACE: &str = "DEX_TEST_LOCK_PLACE";

/// Not a test of its own: the program that the tests below start. Reads `go` and `end`.
#[test]
fn process_that_wants_the_lock() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let place = Path::new(&place);
    let mut held = None;
    for line in std::io::stdin().lines() {
        let said = match line.expect("the test writes lines").as_str() {
            "go" => match RunLock::acquire(&place.join("tree"), &place.join("git")) {
                Ok(lock) => {
                    held = Some(lock);
                    "won".to_owned()
                }
                Err(LockError::Held { pid, .. }) => format!("held {pid}"),
                Err(LockError::Io { source, .. }) => format!("error {source}"),
            },
            _ => {
                held = None;
                "free".to_owned()
            }
        };
        // The harness captures `println!` of a passing test; this goes past it.
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n> {said}").expect("the test reads");
        out.flush().expect("the test reads");
    }
    drop(held);
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(place: &Path) -> Process {
        let me = std::env::current_exe().expect("a test has a program");
        let mut child = Command::new(me)
            .args(["--exact", "process_that_wants_the_lock", "--nocapture"])
            .env(PLACE, place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Process {
            child,
            input,
            output,
        }
    }

    fn say(&mut self, word: &str) {
        writeln!(self.input, "{word}").expect("the program reads");
    }

    fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self
                .output
                .read_line(&mut line)
                .expect("the program writes");
            assert!(read > 0, "the program ended");
            if let Some(said) = line.strip_prefix("> ") {
                return said.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("there is a temporary directory");
    for name in ["tree", "git"] {
        std::fs::create_dir(dir.path().join(name)).expect("it is empty");
    }
    dir
}

#[test]
fn of_two_processes_exactly_one_wins_while_others_ask_who_d01_d02() {
    let place = place();
    let mut two = [Process::start(place.path()), Process::start(place.path())];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A status that polls must never take the lock from a run.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                RunLock::holder(&place.path().join("tree"), &place.path().join("git"));
            }
        });
        for round in 0..50 {
            for process in &mut two {
                process.say("go");
            }
            let said: Vec<String> = two.iter_mut().map(Process::hear).collect();
            let winner = said.iter().position(|it| it == "won");
            let winner = winner.unwrap_or_else(|| panic!("nobody won round {round}: {said:?}"));
            let held = format!("held {}", two[winner].child.id());
            assert_eq!(said[1 - winner], held, "round {round}");
            for process in &mut two {
                process.say("end");
                assert_eq!(process.hear(), "free");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_lock_of_a_killed_process_is_free_at_once() {
    let place = place();
    let (tree, git) = (place.path().join("tree"), place.path().join("git"));
    for _ in 0..5 {
        let mut process = Process::start(place.path());
        process.say("go");
        assert_eq!(process.hear(), "won");
        let holder = RunLock::holder(&tree, &git).expect("it runs");
        assert_eq!(holder.pid, process.child.id());
        process.child.kill().expect("it runs");
        process.child.wait().expect("it ends");
        assert!(tree.join(".dex/state.lock").exists(), "nobody tidied up");
        assert_eq!(RunLock::holder(&tree, &git), None);
        drop(RunLock::acquire(&tree, &git).expect("nobody holds it"));
    }
}

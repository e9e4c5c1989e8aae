//! A person at a real terminal: what they are asked and what they type.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::json;

use super::support::{Project, wrote};

/// `dex` at a terminal of its own, and what that terminal shows.
struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<String>>,
    read_to: usize,
}

impl Terminal {
    fn start(project: &Project, args: &[&str]) -> Terminal {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let screen = File::options().read(true).write(true).open(path).unwrap();
        let mut command = project.command(args);
        command
            .env("TERM", "dumb")
            .stdin(screen.try_clone().unwrap())
            .stdout(screen.try_clone().unwrap())
            .stderr(screen);
        let child = command.spawn().unwrap();
        drop(command);
        let keys = File::from(keys);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut from, into) = (keys.try_clone().unwrap(), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The end of the last process at a terminal is an error there, not an end.
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                into.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&chunk[..n]));
            }
        });
        Terminal {
            child,
            keys,
            shown,
            read_to: 0,
        }
    }

    /// Waits until something new is shown.
    #[track_caller]
    fn until(&mut self, what: &str) {
        let began = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap().clone();
            if let Some(at) = shown[self.read_to..].find(what) {
                self.read_to += at + what.len();
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{what}: {shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn types(&mut self, line: &str) {
        self.keys.write_all(line.as_bytes()).unwrap();
        self.keys.write_all(b"\n").unwrap();
    }

    fn ends(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        (status.code(), self.shown.lock().unwrap().clone())
    }
}

fn asks(questions: &[(&str, &[&str])]) -> Project {
    let questions: Vec<_> = questions
        .iter()
        .map(|(question, labels)| {
            let options: Vec<_> = labels
                .iter()
                .enumerate()
                .map(|(at, it)| json!({ "label": it, "recommended": at == 1 }))
                .collect();
            json!({ "question": question, "options": options })
        })
        .collect();
    Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{goalProductDomain}", "# Product\n");
        stage["questions"] = json!(questions);
        (name == "clarification_product").then_some(stage)
    })
}

fn answers(project: &Project) -> Vec<(String, String)> {
    let phases = project.phases_of("clarification_product", 0);
    let all = phases[0]["assumptions"].as_array().unwrap().clone();
    let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
    all.iter()
        .map(|it| (text(&it["answer"]), text(&it["by"])))
        .collect()
}

fn said(answer: &str, by: &str) -> (String, String) {
    (answer.to_owned(), by.to_owned())
}

#[test]
fn a_person_at_the_terminal_answers_by_number_in_words_or_leaves_and_the_run_goes_on() {
    let project = asks(&[
        ("Which greeting?", &["Hello", "Hi"]),
        ("To whom?", &["the world", "me"]),
        ("How loud?", &["loud", "soft"]),
        ("Which colour?", &["red", "blue"]),
        ("Which size?", &["small", "large"]),
    ]);
    let mut terminal = Terminal::start(&project, &["run"]);
    terminal.until("after them you can leave");
    terminal.until("Which greeting?");
    terminal.until("2 Hi");
    terminal.until("(recommended)");
    terminal.until("Number or answer");
    terminal.types("7");
    terminal.until("There is no such choice.");
    terminal.types("1");
    terminal.until("To whom?");
    terminal.until("Number or answer");
    terminal.types("everybody in the house");
    terminal.until("How loud?");
    terminal.until("Number or answer");
    terminal.types("");
    terminal.until("Which colour?");
    terminal.until("Number or answer");
    terminal.types("leave");
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Which size?\r\n  1"), "{shown}");
    assert_eq!(
        answers(&project),
        [
            said("Hello", "person"),
            said("everybody in the house", "person"),
            said("soft", "assumed"),
            said("blue", "assumed"),
            said("large", "assumed"),
        ]
    );
    assert_eq!(project.checkpoints().len(), 13);
}

#[test]
fn a_half_done_stage_is_asked_about_at_the_terminal_and_an_empty_line_changes_nothing() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("{specDir}/plan.md", "# Half a plan\n");
        stage["hang"] = json!(600);
        (name == "plan").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("plan", |it| it.is_at("plan"));
    project.exits(0, &["stop", "--now"]);
    child.wait().unwrap();
    let before = project.fingerprint();
    let mut terminal = Terminal::start(&project, &["resume"]);
    terminal.until("was interrupted half-way");
    terminal.until("1 or 2");
    terminal.types("");
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(9), "{shown}");
    assert_eq!(project.fingerprint(), before);
    let mut terminal = Terminal::start(&project, &["resume"]);
    terminal.until("1 or 2");
    terminal.types("2");
    let (code, shown) = terminal.ends();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(project.checkpoints().len(), 13);
}

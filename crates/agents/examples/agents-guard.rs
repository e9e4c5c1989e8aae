//! Roles for tests that need an executable of ours.
//!
//! As `__guard …` it is the guard. As `play-dex <dir> <process list> <program> [argument…]` it
//! is a `dex` that runs one program, to be killed by a test. As `write-transcript <path>` it
//! writes a transcript and says what went wrong.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use agents::Event;
use agents::process::{Go, Spec};
use agents::transcript::Transcript;

fn main() {
    if let Some(status) = agents::guard::main_if_guard() {
        std::process::exit(status);
    }
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next().unwrap_or_default();
    match role.to_str() {
        Some("play-dex") => play_dex(arguments),
        Some("write-transcript") => write_transcript(arguments),
        _ => std::process::exit(64),
    }
}

fn play_dex(mut arguments: impl Iterator<Item = OsString>) {
    let dir = PathBuf::from(arguments.next().expect("a directory"));
    let process_list = PathBuf::from(arguments.next().expect("a process list"));
    let spec = Spec {
        argv: arguments.collect(),
        dir,
        env: Default::default(),
        stdin: Vec::new(),
        wall: Duration::from_secs(60),
        idle: None,
        output_bytes: 1 << 20,
        line_bytes: 1 << 16,
        sandbox: agents::sandbox::Sandbox::none(),
        process_list,
    };
    agents::process::run(&spec, &agents::Stop::new(), &mut |_| Go::On).expect("it starts");
}

fn write_transcript(mut arguments: impl Iterator<Item = OsString>) {
    let path = PathBuf::from(arguments.next().expect("a path"));
    let mut transcript = Transcript::open(&path, 1 << 20).expect("it opens");
    for number in 0..100 {
        let said = format!("step {number}");
        transcript.event(&Event::SubAgent { what: said }, number);
    }
    let kind = transcript.error().map(std::io::Error::kind);
    std::io::stdout()
        .write_all(format!("{kind:?}\n").as_bytes())
        .expect("it prints");
}

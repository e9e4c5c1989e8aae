//! Two roles for the tests of `process` and `guard`, which need an executable of ours.
//!
//! As `__guard …` it is the guard. As `play-dex <dir> <process list> <program> [argument…]` it
//! is a `dex` that runs one program, to be killed by a test.

use std::path::PathBuf;
use std::time::Duration;

use agents::process::{Go, Spec};

fn main() {
    if let Some(status) = agents::guard::main_if_guard() {
        std::process::exit(status);
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|role| role != "play-dex") {
        std::process::exit(64);
    }
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
        process_list,
    };
    agents::process::run(&spec, &agents::Stop::new(), &mut |_| Go::On).expect("it starts");
}

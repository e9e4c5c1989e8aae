//! Cold starts of reading commands.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::Repo;

use crate::{Row, Samples};

/// `dex status` in a repository with a finished run, beside `git status` in the same.
pub(crate) fn measure(repo: &Repo, files: usize, starts: usize) -> Vec<Row> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for turn in 0..=starts {
        let git = timed(repo, "git", &["status"]);
        let dex = timed(repo, env!("CARGO_BIN_EXE_dex"), &["status"]);
        // The first start reads the programs from disk.
        if turn > 0 {
            theirs.0.push(git);
            ours.0.push(dex);
        }
    }
    vec![Row {
        operation: "`dex status`, cold start",
        size: format!("{files} files"),
        peer: "`git status`",
        target: "within 30 ms",
        ours,
        theirs,
    }]
}

fn timed(repo: &Repo, program: &str, args: &[&str]) -> Duration {
    let mut command = Command::new(program);
    command
        .current_dir(repo.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status().expect("it starts");
    let took = began.elapsed();
    assert!(status.success(), "{command:?}");
    took
}

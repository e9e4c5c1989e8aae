//! A program of the test's in place of a CLI: a shell script that speaks its stream.
//!
//! Scripts are written with the functions a row defines: `begin`, `says TEXT`, `calls N`
//! (a tool call and its result), `refused` (told that the key is not accepted, about to try
//! again), `fails` (the last line of a failed attempt) and `ends` (of a finished one).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rows::Row;

/// Makes it, and says where it is.
pub(crate) fn install(dir: &Path, row: &dyn Row, script: &str) -> PathBuf {
    let text = format!("{}\ncat >/dev/null\n{script}", row.functions());
    write(&dir.join(row.name()), &text)
}

/// A program that becomes another one with these arguments.
pub(crate) fn becomes(dir: &Path, row: &dyn Row, argv: &[PathBuf]) -> PathBuf {
    let words: Vec<String> = argv
        .iter()
        .map(|it| format!("'{}'", it.display()))
        .collect();
    let text = format!("exec {}", words.join(" "));
    write(&dir.join(row.name()), &text)
}

fn write(path: &Path, script: &str) -> PathBuf {
    let text = format!("#!/bin/sh\n{script}\n");
    // Written by another process: were the file open for writing in ours, a child that a test
    // beside this one is just starting could still hold it open, and starting it would fail.
    let mut child = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(child.wait().expect("our child").success());
    path.to_owned()
}

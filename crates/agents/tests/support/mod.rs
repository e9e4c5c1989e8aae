//! Shared by the integration tests.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::process::Spec;
use agents::{Limits, Request, ToolSurface};

/// A directory to work in and, outside it, one for scratch files.
pub struct Place {
    root: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place::under(&std::env::temp_dir())
    }

    /// One in a directory of its own in `dir`.
    pub fn under(dir: &Path) -> Place {
        let root = tempfile::tempdir_in(dir).expect("a directory");
        std::fs::create_dir(root.path().join("work")).expect("work");
        std::fs::create_dir(root.path().join("scratch")).expect("scratch");
        Place { root }
    }

    pub fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub fn scratch(&self) -> PathBuf {
        self.root.path().join("scratch")
    }

    pub fn list(&self) -> PathBuf {
        self.scratch().join("processes")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_else(|error| format!("{name}: {error}"))
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.file(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, content).expect("writes");
    }

    /// `sh -c script` under generous limits.
    pub fn shell(&self, script: &str) -> Spec {
        self.program(&["sh", "-c", script])
    }

    pub fn program(&self, argv: &[&str]) -> Spec {
        Spec {
            argv: argv.iter().map(OsString::from).collect(),
            dir: self.work(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            wall: Duration::from_secs(20),
            idle: None,
            output_bytes: 1 << 20,
            line_bytes: 1 << 16,
            sandbox: agents::sandbox::Sandbox::none(),
            process_list: self.list(),
        }
    }

    /// A request for a stage under generous limits.
    pub fn request(&self, stage: &str, cycle: u32) -> Request {
        Request {
            stage: stage.into(),
            cycle,
            feature: Some("manifest-slug".into()),
            prompt: "do it".into(),
            dir: self.work(),
            spec_dir: Some("specs/001-thing".into()),
            run_id: "0198a0b1-c2d3-7abc-8def-0123456789ab".into(),
            tools: ToolSurface::Workspace,
            schema: None,
            model: None,
            session: None,
            limits: Limits {
                wall: Duration::from_secs(20),
                idle: Duration::from_secs(20),
                turns: 50,
                cost_micro_usd: 5_000_000,
                output_bytes: 1 << 20,
            },
            scratch: self.scratch(),
            sandbox: agents::sandbox::Sandbox::none(),
            values: BTreeMap::new(),
        }
    }
}

/// Waits until something is true; says so when it does not come true in time.
pub fn eventually(what: &str, within: Duration, mut is: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < within, "not in {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process lives (a zombie does not).
pub fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(')')
            .next()
            .is_some_and(|it| !it.starts_with(" Z"))
    })
}

/// A pid that a script wrote to a file, once it is there.
pub fn pid_in(file: &Path) -> u32 {
    let mut pid = None;
    eventually(
        &format!("{} has a pid", file.display()),
        Duration::from_secs(5),
        || {
            pid = std::fs::read_to_string(file)
                .ok()
                .and_then(|it| it.trim().parse().ok());
            pid.is_some()
        },
    );
    pid.expect("found")
}

/// The executable that can be the guard, and can play `dex`.
pub fn guard_executable() -> PathBuf {
    let this = std::env::current_exe().expect("ourselves");
    let target = this
        .parent()
        .and_then(Path::parent)
        .expect("a target directory");
    target.join("examples/agents-guard")
}

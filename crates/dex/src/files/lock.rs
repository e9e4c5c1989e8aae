//! One run at a time in a work tree (cases D01, D02).
//!
//! The lock is the operating system's, on two files: `<git dir>/dex/run.lock`, which decides,
//! and `.dex/state.lock`, which people and the existing Dex look at. Both hold
//! `{"pid", "timestamp", "startTime", "host", "runId"}` in one line for those who ask; that text
//! locks nothing. The system releases the lock however the process ends, so a file that a dead
//! process left behind is no lock, however young it is, and nobody has to judge its age.
//!
//! On release `state.lock` is removed (by its owner, while locked) and `run.lock` is emptied
//! and stays: a lock file that everybody removes can be locked by two processes at once, one of
//! them on the removed file. For the same reason whoever got a lock looks whether the file is
//! still the one of that name.
//!
//! A lock belongs to an open file, not to a process, so a process that inherits the file has the
//! lock without a moment in which nobody has it: [`RunLock::hand_over`], [`RunLock::take_over`].
//! That is `run.lock`; `state.lock` is let go of and taken again under its cover.
//!
//! Asking who holds it writes nothing, and takes no lock while the holder is visibly alive.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::store;

/// The lock that decides, from the git directory of the work tree.
pub const RUN_LOCK: &str = "dex/run.lock";

/// The lock that people see, from the root of the work tree.
pub const STATE_LOCK: &str = ".dex/state.lock";

/// Nobody who only asks holds a lock for longer than a moment.
const MOMENT: Duration = Duration::from_millis(200);
/// A process that was killed while it started another leaves the lock to the child until that
/// has become the other program, which takes its time on a busy machine.
const ORPHAN: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// More is no text of ours.
const MAX_TEXT: u64 = 4096;

/// The right to run in a work tree; given back when dropped.
#[derive(Debug)]
pub struct RunLock {
    run: File,
    state: File,
    state_path: PathBuf,
    told: Told,
    handed_over: bool,
}

/// Who runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process; 0 when it has not said yet.
    pub pid: u32,
    /// Since when, RFC 3339, UTC; empty when not said.
    pub since: String,
    /// On which machine; empty when not said.
    pub host: String,
    /// What it runs, once it knows: see [`RunLock::set_run`].
    pub run_id: Option<String>,
}

/// There is no lock for us.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process runs here. Wait for it, or stop it.
    #[error("process {pid} has been running here since {since}")]
    Held {
        /// Its process; 0 when it has not said yet.
        pid: u32,
        /// Since when, RFC 3339, UTC.
        since: String,
        /// On which machine.
        host: String,
        /// What it runs, once it knows.
        run_id: Option<String>,
    },
    /// The lock file cannot be used.
    #[error("{} could not be locked", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The text of a lock file. The existing Dex writes the first two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    pid: u32,
    timestamp: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl RunLock {
    /// Takes the lock, or says at once who has it.
    ///
    /// `git_dir` is the work tree's own git directory, so that linked work trees run side by
    /// side.
    pub fn acquire(work_tree: &Path, git_dir: &Path) -> Result<RunLock, LockError> {
        let run = lock(git_dir, &git_dir.join(RUN_LOCK))?;
        RunLock::with(run, work_tree, git_dir)
    }

    /// Lets go of everything but the lock itself, which is in the returned file: whoever
    /// inherits it goes on with [`RunLock::take_over`]. Until then others are told of us.
    pub fn hand_over(mut self) -> io::Result<File> {
        let file = self.run.try_clone()?;
        self.handed_over = true;
        Ok(file)
    }

    /// Takes over from the process that handed this file down; none when it is not the lock.
    pub fn take_over(
        file: File,
        work_tree: &Path,
        git_dir: &Path,
    ) -> Result<Option<RunLock>, LockError> {
        // What is inherited locked is locked again at no cost; anything else has to win it.
        if !is_still(&file, &git_dir.join(RUN_LOCK)) || file.try_lock().is_err() {
            return Ok(None);
        }
        RunLock::with(file, work_tree, git_dir).map(Some)
    }

    fn with(run: File, work_tree: &Path, git_dir: &Path) -> Result<RunLock, LockError> {
        let state_path = work_tree.join(STATE_LOCK);
        let state = lock(work_tree, &state_path)?;
        let held = RunLock {
            run,
            state,
            state_path,
            told: Told::now(),
            handed_over: false,
        };
        held.tell().map_err(|source| LockError::Io {
            path: git_dir.join(RUN_LOCK),
            source,
        })?;
        Ok(held)
    }

    /// Lets others see which run it is.
    pub fn set_run(&mut self, run_id: &str) -> io::Result<()> {
        self.told.run_id = Some(run_id.to_owned());
        self.tell()
    }

    /// Who runs in a work tree; none when nobody does. Never waits, never writes.
    pub fn holder(work_tree: &Path, git_dir: &Path) -> Option<Holder> {
        holder(work_tree, git_dir)
    }

    fn tell(&self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.told)?;
        for mut file in [&self.run, &self.state] {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&text)?;
        }
        Ok(())
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Failing here changes nothing: closing the files is what releases the lock, and a text
        // without a lock is no lock.
        if is_still(&self.state, &self.state_path) {
            let _ = std::fs::remove_file(&self.state_path);
        }
        if !self.handed_over {
            let _ = self.run.set_len(0);
        }
    }
}

/// Who runs in a work tree; none when nobody does. Never waits, never writes.
pub fn holder(work_tree: &Path, git_dir: &Path) -> Option<Holder> {
    let files = [git_dir.join(RUN_LOCK), work_tree.join(STATE_LOCK)];
    files.iter().find_map(|path| {
        let mut file = open_existing(path)?;
        let told = Told::read(&mut file);
        match &told {
            // Emptied on release, or about to be written: nobody, or nobody yet.
            None if file.metadata().is_ok_and(|it| it.len() == 0) => None,
            Some(told) if told.is_visibly_alive() => Some(told.holder()),
            // Another machine, another kind of system, a process that is gone: only the lock
            // itself knows. Shared and for a moment; [`lock`] tries again for such moments.
            Some(_) | None => match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => {
                    Some(told.map_or_else(Holder::unknown, |told| told.holder()))
                }
                Ok(()) | Err(TryLockError::Error(_)) => None,
            },
        }
    })
}

fn lock(root: &Path, path: &Path) -> Result<File, LockError> {
    let io = |source| LockError::Io {
        path: path.to_path_buf(),
        source,
    };
    let mut told: Option<Told> = None;
    let began = Instant::now();
    let patience = |told: &Option<Told>| match told {
        Some(told) if told.is_gone() => ORPHAN,
        Some(_) | None => MOMENT,
    };
    while began.elapsed() < patience(&told) {
        let mut file = open_or_create(root, path).map_err(io)?;
        match file.try_lock() {
            Ok(()) if is_still(&file, path) => return Ok(file),
            Ok(()) => continue,
            Err(TryLockError::Error(source)) => return Err(io(source)),
            Err(TryLockError::WouldBlock) => {}
        }
        told = Told::read(&mut file);
        if told.as_ref().is_some_and(Told::is_visibly_alive) {
            break;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    let holder = told.map_or_else(Holder::unknown, |told| told.holder());
    Err(LockError::Held {
        pid: holder.pid,
        since: holder.since,
        host: holder.host,
        run_id: holder.run_id,
    })
}

fn open_or_create(root: &Path, path: &Path) -> io::Result<File> {
    let (parents, name) = store::below(root, path).map_err(io::Error::other)?;
    let dir = store::open_dir(root, &parents)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK;
    let file = rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o666))?;
    Ok(File::from(file))
}

fn open_existing(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// Whether the open file is the one that has this name now.
fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

impl Holder {
    fn unknown() -> Holder {
        Holder {
            pid: 0,
            since: String::new(),
            host: String::new(),
            run_id: None,
        }
    }
}

impl Told {
    fn now() -> Told {
        let pid = std::process::id();
        Told {
            pid,
            timestamp: jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
                .to_string(),
            start_time: start_time(pid),
            host: host(),
            run_id: None,
            more: Map::new(),
        }
    }

    fn read(file: &mut File) -> Option<Told> {
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn holder(&self) -> Holder {
        Holder {
            pid: self.pid,
            since: self.timestamp.clone(),
            host: self.host.clone().unwrap_or_default(),
            run_id: self.run_id.clone(),
        }
    }

    /// Whether the process that wrote this ran on this machine and is no more.
    fn is_gone(&self) -> bool {
        self.start_time.is_some() && self.host == host() && !self.is_visibly_alive()
    }

    /// Whether the very process that wrote this runs on this machine. False says nothing.
    fn is_visibly_alive(&self) -> bool {
        self.start_time.is_some() && self.host == host() && start_time(self.pid) == self.start_time
    }
}

/// When a process started, as an opaque word: process ids are used again, this is not.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // A zombie: it ended, and whoever started it has not asked how.
    fields.next().filter(|it| !matches!(*it, "Z" | "X"))?;
    let ticks = fields.nth(18)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{ticks}@{}", boot.trim()))
}

fn host() -> Option<String> {
    let names = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let name = names
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())?;
    Some(name.trim().to_owned())
}

/// Whether a process of this id exists here. One that we may not signal exists too.
pub(crate) fn alive(pid: i32) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else {
        return false;
    };
    match rustix::process::test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("tree")).unwrap();
            std::fs::create_dir_all(dir.path().join("git")).unwrap();
            Place(dir)
        }

        fn tree(&self) -> PathBuf {
            self.0.path().join("tree")
        }

        fn git(&self) -> PathBuf {
            self.0.path().join("git")
        }

        fn acquire(&self) -> Result<RunLock, LockError> {
            RunLock::acquire(&self.tree(), &self.git())
        }

        fn holder(&self) -> Option<Holder> {
            RunLock::holder(&self.tree(), &self.git())
        }
    }

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let place = Place::new();
        assert_eq!(place.holder(), None);
        assert!(!place.git().join("dex").exists(), "asking writes nothing");
        let mut first = place.acquire().unwrap();
        first.set_run("01932f5e").unwrap();
        let LockError::Held {
            pid, since, run_id, ..
        } = place.acquire().unwrap_err()
        else {
            panic!("it is held");
        };
        assert_eq!(pid, std::process::id());
        assert!(since.ends_with('Z') && since.len() == 24, "{since}");
        assert_eq!(run_id.as_deref(), Some("01932f5e"));
        assert_eq!(place.holder().unwrap().pid, std::process::id());
        drop(first);
        assert_eq!(place.holder(), None);
        assert!(!place.tree().join(STATE_LOCK).exists());
        place.acquire().unwrap();
    }

    #[test]
    fn a_lock_that_is_handed_over_is_held_all_the_time() {
        let place = Place::new();
        let first = place.acquire().unwrap();
        let file = first.hand_over().unwrap();
        assert!(matches!(place.acquire(), Err(LockError::Held { .. })));
        assert_eq!(place.holder().unwrap().pid, std::process::id());
        let taken = RunLock::take_over(file, &place.tree(), &place.git());
        let second = taken.unwrap().unwrap();
        assert!(matches!(place.acquire(), Err(LockError::Held { .. })));
        assert!(place.tree().join(STATE_LOCK).exists());
        drop(second);
        assert_eq!(place.holder(), None);
        let other = File::open("/dev/null").unwrap();
        let none = RunLock::take_over(other, &place.tree(), &place.git()).unwrap();
        assert!(none.is_none());
    }

    #[test]
    fn a_file_that_nobody_locks_is_no_lock() {
        let place = Place::new();
        let mut alive = Told::now();
        alive.start_time = None;
        let texts = [
            include_str!("../../tests/data/state.lock").to_owned(),
            serde_json::to_string(&alive).unwrap(),
            "not json".to_owned(),
            String::new(),
        ];
        for text in texts {
            for file in [place.tree().join(STATE_LOCK), place.git().join(RUN_LOCK)] {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, &text).unwrap();
            }
            assert_eq!(place.holder(), None, "{text}");
            drop(place.acquire().unwrap());
        }
    }

    #[test]
    fn a_lock_of_the_existing_dex_is_read_where_it_is_held() {
        let place = Place::new();
        let path = place.tree().join(STATE_LOCK);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, include_str!("../../tests/data/state.lock")).unwrap();
        let file = File::open(&path).unwrap();
        file.lock().unwrap();
        assert_eq!(place.holder().unwrap().pid, 3_124_947);
        let error = place.acquire().unwrap_err().to_string();
        insta::assert_snapshot!(error, @"process 3124947 has been running here since 2026-05-06T18:36:14.415Z");
    }

    #[test]
    fn what_a_killed_process_left_to_a_child_of_a_moment_is_waited_for_d01() {
        let place = Place::new();
        let path = place.git().join(RUN_LOCK);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let started = start_time(ended.id());
        ended.wait().unwrap();
        let gone = Told {
            pid: ended.id(),
            start_time: started.or(Some("0@then".to_owned())),
            ..Told::now()
        };
        std::fs::write(&path, serde_json::to_vec(&gone).unwrap()).unwrap();
        let inherited = File::open(&path).unwrap();
        inherited.lock().unwrap();
        let child = std::thread::spawn(move || {
            std::thread::sleep(2 * MOMENT);
            drop(inherited);
        });
        place.acquire().unwrap();
        child.join().unwrap();
    }

    #[test]
    fn removing_the_visible_file_lets_nobody_in() {
        let place = Place::new();
        let first = place.acquire().unwrap();
        // `git clean -fdx`, or the existing Dex that took it for stale.
        std::fs::remove_file(place.tree().join(STATE_LOCK)).unwrap();
        assert!(matches!(place.acquire(), Err(LockError::Held { .. })));
        drop(first);
        place.acquire().unwrap();
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let place = Place::new();
        let outside = place.0.path().join("outside");
        std::fs::create_dir_all(place.tree().join(".dex")).unwrap();
        std::os::unix::fs::symlink(&outside, place.tree().join(STATE_LOCK)).unwrap();
        assert!(matches!(place.acquire(), Err(LockError::Io { .. })));
        assert!(!outside.exists());
        assert_eq!(place.holder(), None, "the other half was given back");
    }
}

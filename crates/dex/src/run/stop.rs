//! Stop requests: a small file in the run's directory, looked at a few times a second.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gitdb::Repo;

use crate::files::store::{self, FileError};
use crate::live::Live;
use crate::run::Control;

/// When a run shall stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// After the stage at work.
    AfterStage,
    /// Now; the stage stays half-done.
    Now,
}

fn path(repo: &Repo, run_id: &str) -> PathBuf {
    Live::dir(repo, run_id).join("stop")
}

/// Asks a run, in whichever process, to stop.
pub fn request(repo: &Repo, run_id: &str, when: Request) -> Result<(), FileError> {
    let text: &[u8] = match when {
        Request::AfterStage => b"after_stage\n",
        Request::Now => b"now\n",
    };
    store::write(&repo.common_dir, &path(repo, run_id), text)
}

/// Drops a request that the run it was meant for never saw. Call it before taking the run's
/// lock: whoever asks while the lock is held asks this process.
pub fn forget(repo: &Repo, run_id: &str) {
    // Best effort: an old request that cannot be removed stops the run once more, no worse.
    let _ = std::fs::remove_file(path(repo, run_id));
}

/// Watches for stop requests and signals until it is dropped.
#[derive(Debug)]
pub struct Watch {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    /// Starts watching.
    pub fn start(repo: &Repo, run_id: &str, control: Control) -> Watch {
        let file = path(repo, run_id);
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if control.signal.load(Ordering::SeqCst) != 0 {
                    control.now.set();
                }
                if let Ok(text) = std::fs::read_to_string(&file) {
                    match text.trim() {
                        "now" => control.now.set(),
                        _ => control.after_stage.store(true, Ordering::SeqCst),
                    }
                    let _ = std::fs::remove_file(&file);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Watch {
            end,
            thread: Some(thread),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! The private copy of the index, and git's lock on the user's index.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::repo::ObjectFormat;
use crate::{GitError, Repo, fault, files, refs};

/// How long `index.lock` of another process is waited for (case D03).
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// A copy of the user's index that only we write to. Removed when dropped, unless kept.
#[derive(Debug)]
pub(crate) struct PrivateIndex {
    pub(crate) path: PathBuf,
    pub(crate) nonce: String,
    /// Identifies the user's index as it was copied.
    pub(crate) checksum: String,
    keep: bool,
}

impl PrivateIndex {
    /// Copies the user's index, with its times.
    pub(crate) fn copy(repo: &Repo) -> Result<PrivateIndex, GitError> {
        let mut private = PrivateIndex::empty(repo)?;
        fault::point("snapshot.copy.before");
        let bytes = files::copy_with_times(&repo.git_dir.join("index"), &private.path)?;
        fault::point("snapshot.copy.after");
        private.checksum = index_checksum(repo, bytes.as_deref());
        Ok(private)
    }

    /// A name for an index that does not exist yet.
    pub(crate) fn empty(repo: &Repo) -> Result<PrivateIndex, GitError> {
        let nonce = uuid::Uuid::now_v7().simple().to_string();
        let dir = repo.own_dir();
        std::fs::create_dir_all(&dir).map_err(GitError::file(&dir))?;
        Ok(PrivateIndex {
            path: private_path(repo, &nonce),
            nonce,
            checksum: String::new(),
            keep: false,
        })
    }

    /// Makes the file durable and leaves it for [`super::land`].
    pub(crate) fn keep(mut self) -> Result<(), GitError> {
        self.keep = true;
        std::fs::File::open(&self.path)
            .and_then(|file| file.sync_all())
            .map_err(GitError::file(&self.path))
    }
}

impl Drop for PrivateIndex {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Where the private index of this nonce lies.
pub(crate) fn private_path(repo: &Repo, nonce: &str) -> PathBuf {
    repo.own_dir().join(format!("index.{nonce}"))
}

/// Identifies the content of an index file: its length and trailing checksum. With
/// `index.skipHash` the trailer is zero, and the whole content is hashed instead.
pub(crate) fn index_checksum(repo: &Repo, bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "absent".to_owned();
    };
    let width = match repo.object_format {
        ObjectFormat::Sha1 => 20,
        ObjectFormat::Sha256 => 32,
    };
    let trailer = &bytes[bytes.len().saturating_sub(width)..];
    if trailer.iter().any(|b| *b != 0) {
        return format!("{}-{}", bytes.len(), hex(trailer));
    }
    format!("{}-sha256-{}", bytes.len(), hex(&Sha256::digest(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The user's `index.lock`, held by us. The lock is a hard link of a file of ours in
/// `<git-dir>/dex`, so that after a crash the shared inode proves whose it is.
#[derive(Debug)]
pub(crate) struct OwnLock {
    lock: PathBuf,
    index: PathBuf,
    held: bool,
}

impl OwnLock {
    /// Links `private` to `index.lock`; waits, bounded, while another process holds it.
    pub(crate) fn take(repo: &Repo, private: &Path) -> Result<OwnLock, GitError> {
        let lock = repo.git_dir.join("index.lock");
        let deadline = Instant::now() + LOCK_WAIT;
        for turn in 0.. {
            match std::fs::hard_link(private, &lock) {
                Ok(()) => break,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                    if Instant::now() >= deadline {
                        let age_s = refs::age_s(&lock);
                        return Err(GitError::Locked { path: lock, age_s });
                    }
                    std::thread::sleep(refs::jitter(turn));
                }
                Err(e) => return Err(GitError::file(&lock)(e)),
            }
        }
        Ok(OwnLock {
            index: repo.git_dir.join("index"),
            lock,
            held: true,
        })
    }

    /// The lock a crash left, if it shares the inode of `private`.
    pub(crate) fn left_behind(repo: &Repo, private: &Path) -> Option<OwnLock> {
        let lock = repo.git_dir.join("index.lock");
        same_file(private, &lock).then(|| OwnLock {
            index: repo.git_dir.join("index"),
            lock,
            held: true,
        })
    }

    /// Puts another file of ours in the lock's place, without ever letting go of it.
    pub(crate) fn replace_with(&self, private: &Path) -> Result<(), GitError> {
        let step = private.with_extension("step");
        std::fs::hard_link(private, &step).map_err(GitError::file(&step))?;
        std::fs::rename(&step, &self.lock).map_err(GitError::file(&self.lock))
    }

    /// The lock becomes the user's index.
    pub(crate) fn into_index(mut self) -> Result<(), GitError> {
        std::fs::rename(&self.lock, &self.index).map_err(GitError::file(&self.index))?;
        self.held = false;
        let dir = self.index.parent().unwrap_or(Path::new("/"));
        files::sync_dir(dir)
    }

    /// Lets go; the user's index stays as it is.
    pub(crate) fn release(mut self) -> Result<(), GitError> {
        self.held = false;
        files::remove(&self.lock)
    }
}

impl Drop for OwnLock {
    fn drop(&mut self) {
        if self.held {
            let _ = std::fs::remove_file(&self.lock);
        }
    }
}

/// Whether two names are one file.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (a.symlink_metadata(), b.symlink_metadata()) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => false,
    }
}

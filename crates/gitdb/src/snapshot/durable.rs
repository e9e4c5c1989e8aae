//! Syncing new objects, many at once.
//!
//! Git syncs the objects it writes one after the other, and on a busy disk each costs several
//! milliseconds. Here a capture lets git write them unsynced and then syncs the files side by
//! side, so that the file system commits them together. It happens before any ref names them,
//! which is all that durability asks for.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{GitError, Oid, Repo};

/// How many files are synced at a time.
const WORKERS: usize = 16;

/// Makes loose objects durable. One that is not loose lies in a pack, synced when that was made.
pub(crate) fn sync_objects(repo: &Repo, oids: &[Oid]) -> Result<(), GitError> {
    let objects = repo.common_dir.join("objects");
    let place = |oid: &Oid| objects.join(&oid.as_str()[..2]).join(&oid.as_str()[2..]);
    let paths: Vec<PathBuf> = oids.iter().map(place).collect();
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), GitError> {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync(path)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS.min(paths.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let mut result = Ok(());
        for worker in workers {
            let ended = worker
                .join()
                .unwrap_or_else(|_| Err(GitError::answer("fsync", "a worker thread ended early")));
            result = result.and(ended);
        }
        result
    })
}

fn sync(path: &PathBuf) -> Result<(), GitError> {
    match File::open(path).and_then(|file| file.sync_all()) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(GitError::file(path)(e)),
        _ => Ok(()),
    }
}

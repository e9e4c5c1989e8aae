//! Plain files in the git directory: whole or not at all, and synced.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, renameat};

use crate::GitError;

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), GitError> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(GitError::file(dir))
}

/// The bytes of a file, none when it is not there.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(GitError::file(path)(e)),
    }
}

/// Replaces a file's content by rename, keeping it whole for every reader. `mode` is applied
/// exactly, whatever the umask.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), GitError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir).map_err(GitError::file(dir))?;
    let temporary = dir.join(format!(".dex-{}", uuid::Uuid::now_v7().simple()));
    let fill = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode & 0o7777))?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    fill().map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        GitError::file(path)(e)
    })?;
    sync_dir(dir)
}

/// Removes a file if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), GitError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(GitError::file(path)(e)),
    }
}

/// Sets when a file was last modified.
pub(crate) fn set_modified(path: &Path, time: std::time::SystemTime) -> Result<(), GitError> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(time))
        .map_err(GitError::file(path))
}

/// Copies a file with its times, so that git's check for racily clean entries still holds
/// (a copied index with a new time gives wrong trees). Returns the bytes, none when there is
/// no such file.
pub(crate) fn copy_with_times(from: &Path, to: &Path) -> Result<Option<Vec<u8>>, GitError> {
    let mut source = match File::open(from) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(GitError::file(from)(e)),
    };
    let mut bytes = Vec::new();
    source
        .read_to_end(&mut bytes)
        .map_err(GitError::file(from))?;
    let meta = source.metadata().map_err(GitError::file(from))?;
    let copy = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(to)?;
        file.write_all(&bytes)?;
        file.set_permissions(meta.permissions())?;
        let times = std::fs::FileTimes::new()
            .set_accessed(meta.accessed()?)
            .set_modified(meta.modified()?);
        file.set_times(times)
    };
    copy().map_err(GitError::file(to))?;
    Ok(Some(bytes))
}

/// Writes a file at `relative` below `root`, entering no symbolic link on the way and
/// replacing, not following, one at the end (case C11).
pub(crate) fn write_beneath(
    root: &Path,
    relative: &Path,
    bytes: &[u8],
    mode: u32,
) -> Result<(), GitError> {
    write_inside(root, relative, bytes, mode)
        .map_err(|e| GitError::file(&root.join(relative))(e.into()))
}

fn write_inside(
    root: &Path,
    relative: &Path,
    bytes: &[u8],
    mode: u32,
) -> Result<(), rustix::io::Errno> {
    let enter = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The root itself may lie behind a link: that is the user's own layout.
    let mut dir: OwnedFd = openat(
        CWD,
        root,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut parts: Vec<&std::ffi::OsStr> = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(name) if name != ".git" => parts.push(name),
            _ => return Err(rustix::io::Errno::INVAL),
        }
    }
    let name = parts.pop().ok_or(rustix::io::Errno::INVAL)?;
    for part in parts {
        match mkdirat(&dir, part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        dir = openat(&dir, part, enter, Mode::empty())?;
    }
    let temporary = format!(".dex-{}", uuid::Uuid::now_v7().simple());
    let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let handle = openat(&dir, temporary.as_str(), create, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(handle);
    file.write_all(bytes)
        .and_then(|()| file.set_permissions(std::fs::Permissions::from_mode(mode & 0o777)))
        .and_then(|()| file.sync_all())
        .map_err(|e| rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO))?;
    renameat(&dir, temporary.as_str(), &dir, name)
}

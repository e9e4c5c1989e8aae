//! Reading and writing such files: synced, atomic, never following a link, and with errors
//! that tell "not there" from "could not be read" (cases F05, F07, A19).
//!
//! A file is replaced by renaming a synced temporary over it, so a reader sees the old bytes or
//! the new ones. A write that fails leaves the old file and removes its temporary; one that is
//! killed leaves `.<name>.<pid>.<n>.dex-tmp` behind, which the next write of the same file
//! removes. Directories below the root are opened one by one without following links, so a
//! link that an agent put in the way is refused and not raced.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags, RawMode};

/// The most we read of one file. What is larger was not written by us (case G10).
pub const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// How the names of unfinished writes end; a snapshot must never take them in.
pub const TMP_SUFFIX: &str = ".dex-tmp";

/// A file of ours cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read or written.
    #[error("{} could not be {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, field and what is accepted.
        problem: String,
    },
    /// A flag or an environment variable is not what it should be.
    #[error("{origin}: {problem}")]
    Setting {
        /// `--budget`, `DEX_MAX_CYCLES`.
        origin: String,
        /// Field and what is accepted.
        problem: String,
    },
}

impl FileError {
    /// The same error about the file's real place. Readers of bytes know only the usual one.
    #[must_use]
    pub fn at(self, place: &Path) -> FileError {
        let path = place.to_path_buf();
        match self {
            FileError::Io { what, source, .. } => FileError::Io { path, what, source },
            FileError::Malformed { problem, .. } => FileError::Malformed { path, problem },
            FileError::Setting { .. } => self,
        }
    }

    /// A file whose content is not what it should be.
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> FileError {
        FileError::Malformed {
            path: path.to_path_buf(),
            problem: problem.into(),
        }
    }
}

/// The bytes, or none when there is no such file.
///
/// A link, a directory or a device in its place is an error and not "no file": a caller that
/// took it for absent would write over it.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    // Not blocking: opening a pipe somebody put there must not hang an unattended run.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let io = |source| FileError::Io {
        path: path.to_path_buf(),
        what: "read",
        source,
    };
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(io(is_a_link())),
        Err(errno) => return Err(io(errno.into())),
    };
    if !file.metadata().map_err(io)?.is_file() {
        return Err(FileError::malformed(path, "it is not a regular file"));
    }
    read_bounded(file, path).map(Some)
}

/// All of an open file, refusing what is too large to be ours.
pub(crate) fn read_bounded(file: File, path: &Path) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Io {
            path: path.to_path_buf(),
            what: "read",
            source,
        })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES >> 20;
        let problem = format!("it is larger than {limit} MiB, which no file of ours is");
        return Err(FileError::malformed(path, problem));
    }
    Ok(bytes)
}

/// Parses JSON of a known shape; the error names line and field.
pub fn parse_json<T: serde::de::DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
) -> Result<T, FileError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        FileError::malformed(path, problem(&field, error.inner(), bytes))
    })?;
    json.end()
        .map_err(|error| FileError::malformed(path, problem(".", &error, bytes)))?;
    Ok(value)
}

fn problem(field: &str, error: &serde_json::Error, bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "the file is empty".to_owned();
    }
    // What a cut of power leaves of an unsynced file, by its name (case F05).
    if bytes.iter().all(|byte| *byte == 0) {
        return "the file holds only NUL bytes".to_owned();
    }
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text
        .strip_suffix(&format!(" at line {line} column {column}"))
        .unwrap_or(&text);
    let place = match line {
        0 => String::new(),
        _ => format!("line {line}, column {column}: "),
    };
    // Where it is not JSON at all, the field that was being read says nothing.
    match error.is_data() && field != "." {
        true => format!("{place}field `{field}`: {text}"),
        false => format!("{place}{text}"),
    }
}

/// Writes bytes: temporary file in the same directory, synced, renamed, directory synced.
/// Makes missing parent directories. Refuses a path whose parent is a symbolic link below
/// `root`.
///
/// A link at `path` itself is replaced, never followed. The permissions of a file that is
/// replaced are kept.
pub fn write(root: &Path, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let (parents, name) = below(root, path)?;
    put(root, &parents, name, bytes).map_err(|source| FileError::Io {
        path: path.to_path_buf(),
        what: "written",
        source,
    })
}

/// Pretty JSON, two spaces, final newline.
///
/// # Panics
/// Never for types of this crate: their maps have text keys, which is all that can fail.
pub fn to_json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("our types have only text keys");
    bytes.push(b'\n');
    bytes
}

/// Splits a path below `root` into the directories to open and the file's name.
pub(crate) fn below<'a>(
    root: &Path,
    path: &'a Path,
) -> Result<(Vec<&'a std::ffi::OsStr>, &'a std::ffi::OsStr), FileError> {
    let outside = || FileError::malformed(path, "it lies outside of the project");
    let rest = path.strip_prefix(root).map_err(|_| outside())?;
    let mut names = Vec::new();
    for part in rest.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => {
                return Err(outside());
            }
        }
    }
    let name = names.pop().ok_or_else(outside)?;
    Ok((names, name))
}

fn put(
    root: &Path,
    parents: &[&std::ffi::OsStr],
    name: &std::ffi::OsStr,
    bytes: &[u8],
) -> io::Result<()> {
    let dir = open_dir(root, parents)?;
    sweep(&dir, name);
    let tmp = tmp_name(name);
    let done = write_tmp(&dir, name, &tmp, bytes).and_then(|()| {
        gitdb::fault::point("store.write");
        rustix::fs::renameat(&dir, &tmp, &dir, name)?;
        gitdb::fault::point("store.write");
        Ok(())
    });
    if done.is_err() {
        let _ = rustix::fs::unlinkat(&dir, &tmp, AtFlags::empty());
    }
    done?;
    // Without this the new name may be gone after a cut of power, though its content is safe.
    rustix::fs::fsync(&dir)?;
    Ok(())
}

/// Opens the directory below `root`, making what is missing, following no link below it.
pub(crate) fn open_dir(root: &Path, parents: &[&std::ffi::OsStr]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(root, flags, Mode::empty())?;
    for name in parents {
        let open = || rustix::fs::openat(&dir, *name, flags | OFlags::NOFOLLOW, Mode::empty());
        let next = match open() {
            Err(rustix::io::Errno::NOENT) => {
                match rustix::fs::mkdirat(&dir, *name, Mode::from_raw_mode(0o777)) {
                    // Somebody else may have made it in between; what they made is opened.
                    Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                rustix::fs::fsync(&dir)?;
                open()
            }
            opened => opened,
        };
        dir = next.map_err(|errno| match errno {
            // Linux says NOTDIR for a link when both flags are given.
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => io::Error::new(
                io::ErrorKind::NotADirectory,
                format!(
                    "{} is a link or a file where a directory should be",
                    Path::new(name).display()
                ),
            ),
            errno => errno.into(),
        })?;
    }
    Ok(dir)
}

fn write_tmp(
    dir: &OwnedFd,
    name: &std::ffi::OsStr,
    tmp: &str,
    bytes: &[u8],
) -> Result<(), rustix::io::Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, tmp, flags, Mode::from_raw_mode(0o666))?;
    if let Ok(old) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        && rustix::fs::FileType::from_raw_mode(old.st_mode) == rustix::fs::FileType::RegularFile
    {
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(old.st_mode as RawMode & 0o777))?;
    }
    let mut file = File::from(fd);
    let errno = |error: io::Error| {
        rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
    };
    file.write_all(bytes).map_err(errno)?;
    file.sync_all().map_err(errno)
}

fn tmp_name(name: &std::ffi::OsStr) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    format!(".{}.{pid}.{n}{TMP_SUFFIX}", name.to_string_lossy())
}

/// Removes what killed writes of this file left behind. Best effort: a failure here must not
/// stop the write, and what stays is recognised by its name.
fn sweep(dir: &OwnedFd, name: &std::ffi::OsStr) {
    let Ok(entries) = rustix::fs::Dir::read_from(dir) else {
        return;
    };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let Ok(tmp) = entry.file_name().to_str() else {
            continue;
        };
        let writer = tmp
            .strip_prefix(&prefix)
            .and_then(|rest| rest.strip_suffix(TMP_SUFFIX))
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(pid, _)| pid.parse::<i32>().ok());
        if let Some(pid) = writer
            && is_leftover(dir, tmp, pid)
        {
            let _ = rustix::fs::unlinkat(dir, tmp, AtFlags::empty());
        }
    }
}

/// Whether its writer is gone. A process id may be taken again after a restart, and may mean
/// another process in a container, so age decides too: no write of ours lasts minutes.
fn is_leftover(dir: &OwnedFd, tmp: &str, pid: i32) -> bool {
    const LONGEST_WRITE: Duration = Duration::from_secs(10 * 60);
    if pid == std::process::id() as i32 {
        return false;
    }
    if !crate::files::lock::alive(pid) {
        return true;
    }
    let Ok(stat) = rustix::fs::statat(dir, tmp, AtFlags::SYMLINK_NOFOLLOW) else {
        return false;
    };
    let written = SystemTime::UNIX_EPOCH + Duration::from_secs(stat.st_mtime.max(0) as u64);
    SystemTime::now()
        .duration_since(written)
        .is_ok_and(|age| age > LONGEST_WRITE)
}

fn is_a_link() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is a symbolic link, which is not followed here",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_is_read_and_directories_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(".dex/runs/a.json");
        assert!(read(&file).unwrap().is_none());
        write(dir.path(), &file, b"one").unwrap();
        write(dir.path(), &file, b"two").unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), b"two");
        assert_eq!(names(&dir.path().join(".dex/runs")), ["a.json"]);
    }

    #[test]
    fn a_link_a_directory_and_a_pipe_are_not_an_absent_file_a19() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink("nowhere", at("link")).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        let fifo = rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        );
        fifo.unwrap();
        std::fs::write(at("file"), b"x").unwrap();
        for name in ["link", "dir", "pipe", "file/below"] {
            assert!(read(&at(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn a_linked_parent_is_refused_and_nothing_is_written_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), dir.path().join(".dex")).unwrap();
        let error = write(dir.path(), &dir.path().join(".dex/state.json"), b"x").unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("is a link"), "{cause}");
        assert!(names(outside.path()).is_empty());
        for path in ["../x", "/etc/x", ""] {
            assert!(
                write(dir.path(), &dir.path().join(path), b"x").is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn a_link_in_the_files_place_is_replaced_and_its_target_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        let file = dir.path().join("file");
        std::fs::write(&target, b"theirs").unwrap();
        symlink(&target, &file).unwrap();
        write(dir.path(), &file, b"ours").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"theirs");
        assert_eq!(read(&file).unwrap().unwrap(), b"ours");
    }

    #[test]
    fn permissions_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        write(dir.path(), &file, b"1").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        write(dir.path(), &file, b"2").unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_temporary_f07() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::create_dir(&file).unwrap();
        std::fs::write(file.join("inside"), b"old").unwrap();
        assert!(write(dir.path(), &file, b"new").is_err());
        assert_eq!(names(dir.path()), ["file"]);
        assert_eq!(std::fs::read(file.join("inside")).unwrap(), b"old");
    }

    #[test]
    fn what_a_killed_write_left_is_removed_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let left = |pid: u32| format!(".a.json.{pid}.0{TMP_SUFFIX}");
        // No process has this id: Linux allows at most 2^22.
        std::fs::write(dir.path().join(left(0x7fff_fff0)), b"{").unwrap();
        std::fs::write(dir.path().join(left(std::process::id())), b"{").unwrap();
        std::fs::write(dir.path().join(".b.json.5.0.dex-tmp"), b"{").unwrap();
        write(dir.path(), &dir.path().join("a.json"), b"{}").unwrap();
        let ours = left(std::process::id());
        assert_eq!(
            names(dir.path()),
            [ours.as_str(), ".b.json.5.0.dex-tmp", "a.json"]
        );
    }

    #[test]
    fn errors_name_line_column_and_field() {
        #[derive(Debug, serde::Deserialize)]
        struct Shape {
            #[expect(dead_code, reason = "only its errors are looked at")]
            list: Vec<u32>,
        }
        let error = |text: &str| {
            let path = Path::new("x.json");
            parse_json::<Shape>(path, text.as_bytes())
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(error("{\n\"list\": [1, true]}"), @"x.json: line 2, column 16: field `list[1]`: invalid type: boolean `true`, expected u32");
        insta::assert_snapshot!(error("{\"list\": []} x"), @"x.json: line 1, column 14: trailing characters");
    }
}

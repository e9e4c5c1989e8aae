//! Files an agent asks us to read or write: below its work directory and nowhere else.
//!
//! Paths are resolved by the kernel (`openat2` with `RESOLVE_BENEATH`), so neither `..` nor a
//! link leads out, whatever is changed meanwhile. A link that stays inside is followed. Nothing
//! is written below a directory named `.git`. A file is replaced in one step and keeps its mode.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::permission::Place;

/// Longest file read or written.
pub(super) const FILE_BYTES: u64 = 8 << 20;

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// Refused, whatever is there.
    #[error("{0}")]
    Refused(&'static str),
    /// Not there.
    #[error("Resource not found")]
    NotFound,
    /// There, and it did not work.
    #[error("{0}")]
    Failed(String),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> FileError {
        match error {
            Errno::NOENT => FileError::NotFound,
            // A link or `..` that leads out, or a loop of links.
            Errno::XDEV | Errno::LOOP => FileError::Refused(OUTSIDE),
            other => FileError::Failed(io::Error::from(other).to_string()),
        }
    }
}

const OUTSIDE: &str = "outside the working directory";
const GIT: &str = "git's own files are not written";

/// The directory an agent works in.
#[derive(Debug)]
pub(super) struct WorkDir {
    root: OwnedFd,
    given: PathBuf,
    real: PathBuf,
}

impl WorkDir {
    pub(super) fn open(dir: &Path) -> io::Result<WorkDir> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(WorkDir {
            root: rustix::fs::open(dir, flags, Mode::empty())?,
            given: dir.to_owned(),
            real: dir.canonicalize()?,
        })
    }

    /// Where an absolute path leads. Of one that does not exist, the part that does decides.
    pub(super) fn place(&self, path: &Path) -> Place {
        let Some(path) = self.relative(path) else {
            return Place::Outside;
        };
        let parts: Vec<Component<'_>> = path.components().collect();
        for there in (0..=parts.len()).rev() {
            let (known, rest) = parts.split_at(there);
            let known: PathBuf = known.iter().collect();
            let found = match self.look(&known) {
                Ok(found) => found,
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(_) => return Place::Outside,
            };
            let Some(mut real) = self.real_path(&found) else {
                return Place::Outside;
            };
            if let Some(next) = rest.first()
                && is_there(&found, next.as_os_str())
            {
                // A link to nothing: whoever writes through it makes a file where it points.
                return Place::Outside;
            }
            for part in rest {
                match part {
                    Component::Normal(name) => real.push(name),
                    _ => return Place::Outside,
                }
            }
            return if is_gits(&real) {
                Place::Git
            } else {
                Place::Inside(real)
            };
        }
        Place::Outside
    }

    /// The text of a file, or `limit` of its lines from the `line`th (counted from 1).
    pub(super) fn read(
        &self,
        path: &Path,
        line: Option<u64>,
        limit: Option<u64>,
    ) -> Result<String, FileError> {
        let path = self.relative(path).ok_or(FileError::Refused(OUTSIDE))?;
        // Not blocking: it may be a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened =
            rustix::fs::openat2(&self.root, not_empty(&path), flags, Mode::empty(), resolve)?;
        let file = File::from(opened);
        let failed = |error: io::Error| FileError::Failed(error.to_string());
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(FileError::Failed("not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(too_long());
        }
        let text =
            String::from_utf8(bytes).map_err(|_| FileError::Failed("not UTF-8 text".to_owned()))?;
        Ok(lines_of(text, line, limit))
    }

    /// Replaces a file's text, making it and its directories where they are missing.
    pub(super) fn write(&self, path: &Path, text: &str) -> Result<(), FileError> {
        if text.len() as u64 > FILE_BYTES {
            return Err(too_long());
        }
        let real = match self.place(path) {
            Place::Inside(real) => real,
            Place::Git => return Err(FileError::Refused(GIT)),
            Place::Outside => return Err(FileError::Refused(OUTSIDE)),
        };
        let Some(name) = real.file_name() else {
            return Err(FileError::Failed("not a file".to_owned()));
        };
        let parent = self.directory(real.parent().unwrap_or(Path::new("")))?;
        let mode = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) if rustix::fs::FileType::from_raw_mode(old.st_mode).is_file() => {
                Some(Mode::from_raw_mode(old.st_mode & 0o777))
            }
            Ok(_) => return Err(FileError::Failed("not a regular file".to_owned())),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        let new = format!(".dex-{}.new", uuid::Uuid::now_v7().simple());
        let written = write_new(&parent, &new, text, mode)
            .and_then(|()| Ok(rustix::fs::renameat(&parent, new.as_str(), &parent, name)?));
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&parent, new.as_str(), AtFlags::empty());
        }
        written
    }

    /// The path below the work directory, when it is named as being there.
    fn relative(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.given);
        let below = below.or_else(|_| path.strip_prefix(&self.real)).ok()?;
        Some(below.to_owned())
    }

    fn look(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, not_empty(path), flags, Mode::empty(), resolve)
    }

    /// An open file's path below the work directory, all links followed.
    fn real_path(&self, file: &OwnedFd) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        path.strip_prefix(&self.real).ok().map(Path::to_owned)
    }

    /// Opens a directory given by its real path, making what is missing.
    fn directory(&self, real: &Path) -> Result<OwnedFd, FileError> {
        let mut at = self
            .root
            .try_clone()
            .map_err(|it| FileError::Failed(it.to_string()))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for part in real {
            let made = rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777));
            if let Err(error) = made
                && error != Errno::EXIST
            {
                return Err(error.into());
            }
            at = rustix::fs::openat(&at, part, flags, Mode::empty())?;
        }
        Ok(at)
    }
}

fn write_new(
    parent: &OwnedFd,
    name: &str,
    text: &str,
    mode: Option<Mode>,
) -> Result<(), FileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o666))?;
    if let Some(mode) = mode {
        rustix::fs::fchmod(&made, mode)?;
    }
    let mut file = File::from(made);
    file.write_all(text.as_bytes())
        .map_err(|error| FileError::Failed(error.to_string()))
}

fn not_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn is_there(dir: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether a path is, or is below, a directory that git takes for its own, on any file system.
fn is_gits(path: &Path) -> bool {
    path.iter()
        .any(|part| part.as_bytes().eq_ignore_ascii_case(b".git"))
}

fn too_long() -> FileError {
    FileError::Failed(format!("longer than {} MiB", FILE_BYTES >> 20))
}

fn lines_of(text: String, line: Option<u64>, limit: Option<u64>) -> String {
    if line.is_none() && limit.is_none() {
        return text;
    }
    let number = |it: u64| usize::try_from(it).unwrap_or(usize::MAX);
    let skipped = number(line.unwrap_or(1).max(1)) - 1;
    let taken = limit.map_or(usize::MAX, number);
    text.split_inclusive('\n')
        .skip(skipped)
        .take(taken)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Tree {
        root: tempfile::TempDir,
        dir: WorkDir,
    }

    /// `work/` with links of every kind beside `secret`.
    fn tree() -> Tree {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("work/sub")).expect("directories");
        std::fs::create_dir_all(at("work/.git/hooks")).expect("directories");
        std::fs::create_dir_all(at("work-beside")).expect("directories");
        std::fs::write(at("secret"), "secret").expect("writes");
        std::fs::write(at("work/a.txt"), "one\ntwo\nthree").expect("writes");
        for (target, link) in [
            ("../secret", "out"),
            ("..", "up"),
            ("nowhere", "dangling"),
            ("../made-outside", "dangling-out"),
            ("a.txt", "in"),
            ("sub", "to-sub"),
            (".git", "to-git"),
            ("loop", "loop"),
        ] {
            symlink(target, at("work").join(link)).expect("a link");
        }
        symlink(at("secret"), at("work/absolute")).expect("a link");
        let dir = WorkDir::open(&at("work")).expect("opens");
        Tree { root, dir }
    }

    impl Tree {
        fn path(&self, name: &str) -> PathBuf {
            self.root.path().join("work").join(name)
        }
    }

    #[test]
    fn c11_no_path_leads_out_by_dots_links_or_names_that_begin_alike() {
        let tree = tree();
        let beside = format!("{}/work-beside/x", tree.root.path().display());
        for name in [
            "../secret",
            "sub/../../secret",
            "out",
            "up/secret",
            "absolute",
            "dangling",
            "dangling-out",
            "loop",
            "new/../../secret",
            "/etc/passwd",
            "/proc/self/root/etc/passwd",
            "/",
            &beside,
        ] {
            let path = tree.path(name);
            assert_eq!(tree.dir.place(&path), Place::Outside, "{name}");
            assert!(tree.dir.read(&path, None, None).is_err(), "{name}");
            let written = tree.dir.write(&path, "x");
            assert!(
                matches!(written, Err(FileError::Refused(_))),
                "{name}: {written:?}"
            );
        }
        assert_eq!(tree.dir.place(Path::new("a.txt")), Place::Outside);
        let secret = std::fs::read_to_string(tree.root.path().join("secret"));
        assert_eq!(secret.expect("reads"), "secret");
        assert!(!tree.root.path().join("made-outside").exists());
    }

    #[test]
    fn gits_own_files_are_not_written_by_any_name() {
        let tree = tree();
        for name in [
            ".git",
            ".git/config",
            ".git/hooks/post-commit",
            "to-git/config",
            "sub/.git/config",
            ".GIT/config",
            "sub/../.git/x",
        ] {
            let path = tree.path(name);
            assert_eq!(tree.dir.place(&path), Place::Git, "{name}");
            assert!(
                matches!(tree.dir.write(&path, "x"), Err(FileError::Refused(GIT))),
                "{name}"
            );
        }
        assert!(!tree.path(".git/config").exists());
    }

    #[test]
    fn links_that_stay_inside_are_followed_and_stay_links() {
        let tree = tree();
        let inside = |name: &str| Place::Inside(name.into());
        assert_eq!(tree.dir.place(&tree.path("in")), inside("a.txt"));
        assert_eq!(
            tree.dir.place(&tree.path("to-sub/new/x")),
            inside("sub/new/x")
        );
        assert_eq!(tree.dir.place(&tree.path("sub/../a.txt")), inside("a.txt"));
        tree.dir.write(&tree.path("in"), "new").expect("writes");
        assert!(tree.path("in").is_symlink());
        assert_eq!(
            tree.dir
                .read(&tree.path("a.txt"), None, None)
                .expect("reads"),
            "new"
        );
        tree.dir
            .write(&tree.path("to-sub/new/x"), "deep")
            .expect("writes");
        assert_eq!(
            std::fs::read_to_string(tree.path("sub/new/x")).expect("reads"),
            "deep"
        );
    }

    #[test]
    fn b13_a_file_keeps_its_mode_and_nothing_else_is_left_behind() {
        let tree = tree();
        let path = tree.path("a.txt");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        tree.dir.write(&path, "new").expect("writes");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(
            tree.dir.write(&tree.path("sub"), "x").is_err(),
            "a directory"
        );
        let names = std::fs::read_dir(tree.path("")).expect("lists");
        let left = names.filter(|it| {
            let name = it.as_ref().expect("an entry").file_name();
            name.to_string_lossy().starts_with(".dex-")
        });
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn lines_are_counted_from_one_and_what_is_not_there_is_said_to_be() {
        let tree = tree();
        let read = |line, limit| {
            tree.dir
                .read(&tree.path("a.txt"), line, limit)
                .expect("reads")
        };
        assert_eq!(read(None, None), "one\ntwo\nthree");
        assert_eq!(read(Some(2), Some(1)), "two\n");
        assert_eq!(read(Some(3), None), "three");
        assert_eq!(read(None, Some(0)), "");
        assert_eq!(read(Some(9), Some(9)), "");
        assert_eq!(read(Some(0), Some(u64::MAX)), "one\ntwo\nthree");
        let missing = tree.dir.read(&tree.path("sub/none"), None, None);
        assert!(matches!(missing, Err(FileError::NotFound)), "{missing:?}");
    }

    #[test]
    fn what_is_no_text_or_too_much_of_it_is_refused() {
        let tree = tree();
        std::fs::write(tree.path("binary"), [0xff, 0xfe]).expect("writes");
        assert!(tree.dir.read(&tree.path("binary"), None, None).is_err());
        let pipe = rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.path("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        );
        pipe.expect("a pipe");
        assert!(tree.dir.read(&tree.path("pipe"), None, None).is_err());
        assert!(tree.dir.write(&tree.path("pipe"), "x").is_err());
        let long = "x".repeat(usize::try_from(FILE_BYTES).expect("small") + 1);
        assert!(tree.dir.write(&tree.path("long"), &long).is_err());
        std::fs::write(tree.path("long"), &long).expect("writes");
        assert!(tree.dir.read(&tree.path("long"), None, None).is_err());
    }
}

//! One stage on a private copy: the agent gets the named files in a directory of ours, and what
//! it did to them comes back, nothing else.
//!
//! For agents that cannot be told which files they may edit. The agent never sees the tree it
//! works for, so a back end that keeps it inside its directory keeps it off everything but these
//! files. What comes back is looked at as hostile: a file that is now a link, a directory or a
//! pipe, one that is gone, too large, or was changed in the tree meanwhile is left as it was and
//! named in [`Back::refused`], and so is everything the agent made beside the named files.
//!
//! Each file comes back by a rename, with the permissions it had; a crash leaves each old or new.
//! The copy stays in the request's scratch directory.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::{Agent, Outcome, Request, Sink, Stop, ToolSurface};

/// Longest file that is copied or taken back.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Files that can be named.
const MAX_FILES: usize = 1_000;
/// Entries of the copy that are looked at, and how deep.
const MAX_ENTRIES: usize = 10_000;
const MAX_DEPTH: usize = 64;

/// What came back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Back {
    /// Named files that were changed, and are now in the tree.
    pub taken: Vec<PathBuf>,
    /// What was not taken, and why.
    pub refused: Vec<(PathBuf, Refused)>,
}

/// Why something was not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is not one of the named files.
    NotNamed,
    /// It is gone from the copy.
    Removed,
    /// It is no regular file any more.
    NotAFile,
    /// It is too large.
    TooLarge,
    /// The file in the tree was changed meanwhile.
    ChangedMeanwhile,
}

impl Refused {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Refused::NotNamed => "not one of the files it may edit",
            Refused::Removed => "removed",
            Refused::NotAFile => "no regular file any more",
            Refused::TooLarge => "too large",
            Refused::ChangedMeanwhile => "changed meanwhile by somebody else",
        }
    }
}

/// The copy could not be made, or the result not brought back.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A name leads out of the directory, or there are too many.
    #[error("{0} cannot be edited alone: {1}")]
    Name(PathBuf, &'static str),
    /// Reading or writing failed. Files already brought back stay.
    #[error("{path}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The files of one stage, copied.
#[derive(Debug)]
pub struct PrivateCopy {
    tree: PathBuf,
    dir: PathBuf,
    /// Each name with what was in the tree.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// Runs `agent` on a copy of the files and brings back what it may edit.
///
/// Nothing is brought back from an attempt that did not finish.
pub fn run(
    agent: &dyn Agent,
    request: &Request,
    only: &[PathBuf],
    (sink, stop): (&mut Sink<'_>, &Stop),
) -> Result<(Outcome, Back), CopyError> {
    let copy = PrivateCopy::make(&request.dir, only, &request.scratch.join("copy"))?;
    let mut inside = request.clone();
    inside.dir = copy.dir.clone();
    inside.tools = ToolSurface::Workspace;
    let outcome = agent.run(&inside, sink, stop);
    let back = match &outcome.ended {
        crate::Ended::Finished => copy.take_back()?,
        crate::Ended::Failed { .. } | crate::Ended::Quota { .. } | crate::Ended::Stopped => {
            Back::default()
        }
    };
    Ok((outcome, back))
}

impl PrivateCopy {
    /// Copies the named files of `tree` to `dir`, which must not exist.
    pub fn make(tree: &Path, only: &[PathBuf], dir: &Path) -> Result<PrivateCopy, CopyError> {
        if only.len() > MAX_FILES {
            return Err(CopyError::Name(tree.to_owned(), "too many files"));
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CopyError::Io { path, source }
        };
        fs::create_dir(dir).map_err(failed(dir))?;
        let mut files = Vec::new();
        for name in only {
            if !is_plain(name) {
                return Err(CopyError::Name(name.clone(), "its name leads elsewhere"));
            }
            let content = match read(tree, name).map_err(failed(name))? {
                Found::File(content, _) => content,
                Found::TooLarge => return Err(CopyError::Name(name.clone(), "it is too large")),
                Found::Nothing | Found::NoFile => {
                    return Err(CopyError::Name(name.clone(), "it is no regular file"));
                }
            };
            let to = dir.join(name);
            let parent = to.parent().unwrap_or(dir);
            fs::create_dir_all(parent).map_err(failed(parent))?;
            fs::write(&to, &content).map_err(failed(&to))?;
            files.push((name.clone(), content));
        }
        Ok(PrivateCopy {
            tree: tree.to_owned(),
            dir: dir.to_owned(),
            files,
        })
    }

    /// Where the agent works.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Brings back the named files that changed.
    pub fn take_back(&self) -> Result<Back, CopyError> {
        let mut back = Back::default();
        for (name, before) in &self.files {
            let failed = |source| CopyError::Io {
                path: name.clone(),
                source,
            };
            match read(&self.dir, name).map_err(failed)? {
                Found::Nothing => back.refused.push((name.clone(), Refused::Removed)),
                Found::NoFile => back.refused.push((name.clone(), Refused::NotAFile)),
                Found::TooLarge => back.refused.push((name.clone(), Refused::TooLarge)),
                Found::File(after, _) if after == *before => {}
                Found::File(after, _) => match read(&self.tree, name).map_err(failed)? {
                    Found::File(now, mode) if now == *before => {
                        replace(&self.tree, name, &after, mode).map_err(failed)?;
                        back.taken.push(name.clone());
                    }
                    Found::File(..) | Found::TooLarge | Found::Nothing | Found::NoFile => {
                        let why = Refused::ChangedMeanwhile;
                        back.refused.push((name.clone(), why));
                    }
                },
            }
        }
        for extra in self.extras() {
            back.refused.push((extra, Refused::NotNamed));
        }
        Ok(back)
    }

    /// What is in the copy and was not put there by us, at most [`MAX_ENTRIES`].
    fn extras(&self) -> Vec<PathBuf> {
        let mut extras = Vec::new();
        let mut dirs = vec![(PathBuf::new(), 0)];
        let mut looked = 0;
        while let Some((below, depth)) = dirs.pop() {
            let Ok(entries) = fs::read_dir(self.dir.join(&below)) else {
                continue;
            };
            for entry in entries.flatten() {
                looked += 1;
                if looked > MAX_ENTRIES {
                    return extras;
                }
                let name = below.join(entry.file_name());
                let ours = self.files.iter().any(|(file, _)| file.starts_with(&name));
                let is_dir = entry.file_type().is_ok_and(|it| it.is_dir());
                if !ours {
                    extras.push(name);
                } else if is_dir && depth < MAX_DEPTH {
                    dirs.push((name, depth + 1));
                }
            }
        }
        extras.sort();
        extras
    }
}

/// Only names downwards: no root, no `..`, not empty.
fn is_plain(name: &Path) -> bool {
    let mut parts = name.components().peekable();
    parts.peek().is_some() && parts.all(|it| matches!(it, Component::Normal(_)))
}

enum Found {
    File(Vec<u8>, u32),
    Nothing,
    NoFile,
    TooLarge,
}

/// Opens the directory a file is in, following no link below `root`.
fn parent_of(root: &Path, name: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = File::open(root)?;
    for part in name.parent().unwrap_or(Path::new("")).components() {
        dir = rustix::fs::openat(&dir, part.as_os_str(), flags, Mode::empty())?.into();
    }
    Ok(dir)
}

fn read(root: &Path, name: &Path) -> io::Result<Found> {
    use rustix::io::Errno;
    let dir = match parent_of(root, name) {
        Ok(dir) => dir,
        Err(error) => return classify(error),
    };
    // Not waiting: a pipe that nobody writes to must not hang us.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let last = name.file_name().unwrap_or_default();
    let file: File = match rustix::fs::openat(&dir, last, flags, Mode::empty()) {
        Ok(file) => file.into(),
        Err(Errno::NXIO) => return Ok(Found::NoFile),
        Err(error) => return classify(error.into()),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(Found::NoFile);
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES {
        return Ok(Found::TooLarge);
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
    Ok(Found::File(content, mode & 0o7777))
}

fn classify(error: io::Error) -> io::Result<Found> {
    use rustix::io::Errno;
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => Ok(Found::Nothing),
        // A link where a file or directory was, or a file where a directory was.
        Some(Errno::LOOP | Errno::NOTDIR) => Ok(Found::NoFile),
        _ => Err(error),
    }
}

/// A new file, renamed over the old one, both in a directory reached without following links.
fn replace(root: &Path, name: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let dir = parent_of(root, name)?;
    let new = format!(".{}.dex-new", uuid::Uuid::now_v7());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file: File = rustix::fs::openat(&dir, &new, flags, Mode::from_raw_mode(0o600))?.into();
    let written = io::Write::write_all(&mut file, content)
        .and_then(|()| rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(Into::into))
        .and_then(|()| file.sync_all())
        .and_then(|()| {
            let last = name.file_name().unwrap_or_default();
            rustix::fs::renameat(&dir, &new, &dir, last).map_err(Into::into)
        });
    if written.is_err() {
        // Best effort: it is ours, and its name says so.
        let _ = rustix::fs::unlinkat(&dir, &new, rustix::fs::AtFlags::empty());
    }
    written
}

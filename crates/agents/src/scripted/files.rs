//! Changes a script makes, confined to the request's directory.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Changes files below one directory.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) dir: &'a Path,
}

impl Files<'_> {
    pub(super) fn write(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.for_writing(path)?;
        std::fs::write(path, content)
    }

    /// Appends a line, on a line of its own.
    pub(super) fn append(&self, path: &str, line: &str) -> io::Result<()> {
        let path = self.for_writing(path)?;
        let mut content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        if content.last().is_some_and(|byte| *byte != b'\n') {
            content.push(b'\n');
        }
        content.extend_from_slice(line.as_bytes());
        if !line.ends_with('\n') {
            content.push(b'\n');
        }
        std::fs::write(path, content)
    }

    /// Replaces the first occurrence. Done before is done: an attempt may be repeated.
    pub(super) fn edit(&self, path: &str, find: &str, replace: &str) -> io::Result<()> {
        let full = self.for_writing(path)?;
        let content = std::fs::read_to_string(&full)?;
        if content.contains(find) {
            return std::fs::write(full, content.replacen(find, replace, 1));
        }
        if content.contains(replace) && !replace.is_empty() {
            return Ok(());
        }
        let problem = format!("{path} does not contain {find:?}");
        Err(io::Error::new(io::ErrorKind::NotFound, problem))
    }

    /// Deletes a file, a link itself, or a directory with everything in it.
    pub(super) fn delete(&self, path: &str) -> io::Result<()> {
        let path = self.inside(path)?;
        let deleted = match std::fs::symlink_metadata(&path) {
            Ok(it) if it.is_dir() => std::fs::remove_dir_all(&path),
            Ok(_) => std::fs::remove_file(&path),
            Err(error) => Err(error),
        };
        match deleted {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(super) fn read(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(self.inside(path)?)
    }

    fn for_writing(&self, path: &str) -> io::Result<PathBuf> {
        let path = self.inside(path)?;
        if std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_symlink()) {
            return Err(refused(&path, "is a link"));
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        Ok(path)
    }

    /// The full path, if neither its text nor a link on the way leads out of the directory.
    fn inside(&self, path: &str) -> io::Result<PathBuf> {
        let given = Path::new(path);
        // Values such as `{goalFile}` may come as full paths into the directory.
        let relative = given.strip_prefix(self.dir).unwrap_or(given);
        let mut full = self.dir.to_path_buf();
        let mut parts = relative.components().peekable();
        if parts.peek().is_none() {
            return Err(refused(given, "names no file"));
        }
        while let Some(part) = parts.next() {
            match part {
                Component::CurDir => continue,
                Component::Normal(name) => full.push(name),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(refused(given, "leads out of the directory"));
                }
            }
            let is_last = parts.peek().is_none();
            if !is_last && std::fs::symlink_metadata(&full).is_ok_and(|it| it.is_symlink()) {
                return Err(refused(given, "leads through a linked directory"));
            }
        }
        Ok(full)
    }
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} {why}", path.display()),
    )
}

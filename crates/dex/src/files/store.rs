//! Reading and writing such files: synced, atomic, never following a link, and with errors
//! that tell "not there" from "could not be read" (cases F05, F07, A19).

use std::path::{Path, PathBuf};

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
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, field and what is accepted.
        problem: String,
    },
}

/// The bytes, or none when there is no such file.
pub fn read(_path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    todo!()
}

/// Parses JSON of a known shape; the error names line and field.
pub fn parse_json<T: serde::de::DeserializeOwned>(
    _path: &Path,
    _bytes: &[u8],
) -> Result<T, FileError> {
    todo!()
}

/// Writes bytes: temporary file in the same directory, synced, renamed, directory synced.
/// Makes missing parent directories. Refuses a path whose parent is a symbolic link below
/// `root`.
pub fn write(_root: &Path, _path: &Path, _bytes: &[u8]) -> Result<(), FileError> {
    todo!()
}

/// Pretty JSON, two spaces, final newline.
pub fn to_json<T: serde::Serialize>(_value: &T) -> Vec<u8> {
    todo!()
}

//! `meta.json` of an undo entry.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Oid;

/// What the trees of an entry cannot say.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    /// Of this format.
    pub(super) version: u32,
    /// The work tree's path, for people.
    pub(super) work_tree: String,
    pub(super) head: HeadWas,
    /// The commit HEAD was at; null before the first commit.
    pub(super) tip: Option<Oid>,
    /// Full name to value; null where the ref did not exist.
    pub(super) refs: BTreeMap<String, Option<Oid>>,
    /// When the index was last written; null where there was none. Git compares it with the
    /// times of files to find those that changed within one tick of the clock, so the same bytes
    /// with a newer time would hide changes.
    pub(super) index_time: Option<FileTime>,
    /// Paths the entry says nothing about.
    pub(super) leave_out: Vec<RawPath>,
    /// Files kept by copy beside the repository.
    pub(super) private: Vec<PrivateFile>,
    /// Files that were there although the sparse checkout leaves them out.
    pub(super) present_outside: Vec<RawPath>,
    /// Operation refs that are not files (reftable).
    pub(super) root_refs: BTreeMap<String, Oid>,
}

/// HEAD as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HeadWas {
    /// Symbolic to this branch, born or not.
    Branch(String),
    /// Detached at this commit.
    Detached(Oid),
}

/// A modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileTime {
    /// Whole seconds since 1970.
    pub(super) seconds: u64,
    /// And nanoseconds.
    pub(super) nanos: u32,
}

impl FileTime {
    /// Of a file; none when it is not there.
    pub(super) fn of(path: &std::path::Path) -> Option<FileTime> {
        let time = path.metadata().ok()?.modified().ok()?;
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        Some(FileTime {
            seconds: since.as_secs(),
            nanos: since.subsec_nanos(),
        })
    }

    pub(super) fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::new(self.seconds, self.nanos.min(999_999_999))
    }
}

/// A file that is no object of git's.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PrivateFile {
    pub(super) path: RawPath,
    /// Its name under `<git-dir>/dex/undo/<n>/`.
    pub(super) file: String,
    /// Permission bits.
    pub(super) mode: u32,
}

/// A path as git has it: any bytes but NUL. In JSON, bytes that are no printable ASCII, and
/// `%` itself, are written `%XX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawPath(pub(super) Vec<u8>);

impl Serialize for RawPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.len());
        for byte in &self.0 {
            match byte {
                b' '..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        decode(text.as_bytes())
            .map(RawPath)
            .ok_or_else(|| serde::de::Error::custom("a path with a bad escape"))
    }
}

fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let pair = [*rest.next()?, *rest.next()?];
        let hex = std::str::from_utf8(&pair).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
    }
    Some(bytes)
}

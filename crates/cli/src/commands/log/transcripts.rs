//! The transcripts of a run on this machine, and one of them being read while it grows.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use dex::facts::Known;
use gitdb::Repo;

use super::lines::{Line, next_line};
use crate::error::Failure;
use crate::exit::Exit;

/// A longer line is left out and counted.
pub(in crate::commands) const MAX_LINE: usize = 1 << 20;

/// The run's id as the folder of its working data has it. Asks no record: an unreadable one
/// must not hide the transcripts (case G10).
pub(in crate::commands) fn run_id(repo: &Repo, known: &Known) -> Option<String> {
    if known.run_id.is_some() {
        return known.run_id.clone();
    }
    let id = known.branch.rsplit('-').next()?;
    let entries = std::fs::read_dir(repo.common_own_dir().join("runs")).ok()?;
    let names = entries
        .flatten()
        .map(|it| it.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(id)).max()
}

/// The transcripts, oldest first: their names begin with a time-ordered id. `runner.log`, what a
/// run in the background printed, is none.
pub(in crate::commands) fn transcripts(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(
                Failure::new(Exit::Failed, format!("{} cannot be read", folder.display()))
                    .because(&error),
            );
        }
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|it| it.path()).collect();
    files.retain(|it| it.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    Ok(files)
}

/// A transcript being read.
pub(in crate::commands) struct Open {
    reader: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    pending: Vec<u8>,
    pub(in crate::commands) phase_id: String,
    pub(in crate::commands) checkpoint: String,
}

impl Open {
    /// Opens a transcript at its beginning.
    pub(in crate::commands) fn new(path: PathBuf) -> Result<Open, Failure> {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // A phase id has 36 characters.
        let (phase_id, checkpoint) = match name.split_at_checked(36) {
            Some((id, rest)) => (id.to_owned(), rest.trim_start_matches('-').to_owned()),
            None => (name.clone(), name),
        };
        let file = File::open(&path).map_err(|error| {
            Failure::new(Exit::Failed, format!("{} cannot be read", path.display())).because(&error)
        })?;
        Ok(Open {
            reader: BufReader::new(file),
            pending: Vec::new(),
            phase_id,
            checkpoint,
        })
    }

    /// What comes next.
    pub(in crate::commands) fn next(&mut self) -> Result<Line, Failure> {
        Ok(next_line(&mut self.reader, &mut self.pending, MAX_LINE)?)
    }

    /// Whether the end of a line is missing.
    pub(in crate::commands) fn is_torn(&self) -> bool {
        !self.pending.is_empty()
    }
}

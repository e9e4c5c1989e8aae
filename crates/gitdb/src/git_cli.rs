//! Starting the git program. The only place that does.
//!
//! Every child gets a cleared set of `GIT_*` variables (case B12), `LC_ALL=C`, no terminal
//! prompt, no hooks, no fsmonitor, no pager, no external diff; readers also
//! `--no-optional-locks`, writers `core.fsync=all`. Each has a timeout, after which its process
//! group is ended.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Git could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be started.
    #[error("git could not be started")]
    Start(#[source] std::io::Error),
    /// It ended with an error; `stderr` is its own text, lossily decoded and bounded.
    #[error("git {command} failed: {stderr}")]
    Failed {
        /// The subcommand, for people.
        command: String,
        /// The exit status, or none when a signal ended it.
        status: Option<i32>,
        /// What git said.
        stderr: String,
    },
    /// It did not end within its time.
    #[error("git {command} did not end within {seconds} s")]
    TimedOut {
        /// The subcommand, for people.
        command: String,
        /// The limit it had.
        seconds: u64,
    },
    /// It answered something this version of ours does not understand.
    #[error("git {command} gave an answer that could not be read: {what}")]
    Answer {
        /// The subcommand, for people.
        command: String,
        /// What was wrong with it.
        what: String,
    },
    /// A file of ours in the git directory could not be read or written.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A lock of git's is held by another process and did not go away in time.
    #[error("{} is held by another process (since {age_s} s)", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Its age in seconds.
        age_s: u64,
    },
}

/// How to start git for one repository.
#[derive(Debug, Clone)]
pub struct Git {
    pub(crate) git_dir: Option<PathBuf>,
    pub(crate) work_tree: Option<PathBuf>,
    pub(crate) dir: PathBuf,
    /// `-c key=value` pairs that every call gets, e.g. blanked filter drivers.
    pub(crate) config: Vec<OsString>,
    pub(crate) timeout: Duration,
}

/// Whether a command only reads. Readers take no optional locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Takes no lock, writes nothing.
    Read,
    /// Writes objects, refs or an index; everything is synced to disk.
    Write,
}

/// One call of git being prepared.
#[derive(Debug)]
pub struct Call<'g> {
    git: &'g Git,
    access: Access,
    args: Vec<OsString>,
    stdin: Option<Vec<u8>>,
    envs: Vec<(OsString, OsString)>,
}

/// What a finished call gave.
#[derive(Debug)]
pub struct Output {
    /// Exit status; none when a signal ended it.
    pub status: Option<i32>,
    /// Standard output, complete.
    pub stdout: Vec<u8>,
    /// Standard error, lossily decoded.
    pub stderr: String,
}

impl Git {
    /// Git started in `dir`, finding the repository itself (used only by `Repo::open`).
    pub(crate) fn discover(dir: &Path) -> Git {
        Git {
            git_dir: None,
            work_tree: None,
            dir: dir.to_owned(),
            config: Vec::new(),
            timeout: Duration::from_secs(600),
        }
    }

    /// Prepares a reading call.
    pub fn read<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Call<'_> {
        self.call(Access::Read, args)
    }

    /// Prepares a writing call.
    pub fn write<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Call<'_> {
        self.call(Access::Write, args)
    }

    fn call<S: AsRef<OsStr>>(&self, access: Access, args: impl IntoIterator<Item = S>) -> Call<'_> {
        let args = args
            .into_iter()
            .map(|arg| arg.as_ref().to_owned())
            .collect();
        Call {
            git: self,
            access,
            args,
            stdin: None,
            envs: Vec::new(),
        }
    }
}

impl Call<'_> {
    /// Feeds standard input (it is empty otherwise).
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets an environment variable for this call, after the scrubbing.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs
            .push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs to the end and returns whatever happened; only starting and time-outs are errors.
    pub fn output(self) -> Result<Output, GitError> {
        let _ = (self.git, self.access, self.args, self.stdin, self.envs);
        todo!()
    }

    /// Runs to the end; a non-zero exit is an error. Returns standard output.
    pub fn bytes(self) -> Result<Vec<u8>, GitError> {
        todo!()
    }

    /// As [`Call::bytes`], decoded lossily, with trailing line ends removed.
    pub fn text(self) -> Result<String, GitError> {
        todo!()
    }
}

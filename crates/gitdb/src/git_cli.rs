//! Starting the git program. The only place that does.
//!
//! Every child gets a cleared set of `GIT_*` variables (case B12), `LC_ALL=C`, no prompt of any
//! kind, no hooks, no fsmonitor, no pager, no automatic gc; readers also
//! `--no-optional-locks`, writers `core.fsync=all`. Each has a timeout, after which its process
//! group is ended. Once a repository is open, its git directory and work tree are passed
//! explicitly and nothing is discovered again.
//!
//! Left out on purpose: `-c diff.external=`. Git would run the empty command; calls that make
//! patches pass `--no-ext-diff --no-textconv` instead.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

mod run;

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
    /// An object that a partial clone left with its remote, and the remote did not give it. It
    /// exists; it is not here (case C19).
    #[error(
        "an object of this partial clone is not available locally, and its remote did not give it: {stderr}"
    )]
    NotLocal {
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
    /// Its output is larger than the caller takes; it was ended.
    #[error("git {command} gave more than {limit} bytes")]
    TooMuch {
        /// The subcommand, for people.
        command: String,
        /// How many bytes are taken.
        limit: usize,
    },
    /// A file in a commit is larger than we read.
    #[error("{path} in {} is larger than {} MiB and was not read", tree_ish.short(), limit >> 20)]
    TooLarge {
        /// The file, from the root.
        path: String,
        /// In what.
        tree_ish: crate::Oid,
        /// How many bytes are read.
        limit: usize,
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
    /// A filter driver named only in the repository's own config is needed to write a file and
    /// not allowed.
    #[error("filter_not_allowed: {driver} is needed for {path}")]
    FilterNotAllowed {
        /// The driver.
        driver: String,
        /// A path that needs it.
        path: String,
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
    /// What `GIT_SSH_COMMAND` is set to, so that ssh never asks and the repository's own
    /// `core.sshCommand` never runs.
    pub(crate) ssh: String,
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

/// Whose programs a call may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Programs {
    /// None of the repository's.
    Ours,
    /// The hooks too: `git hook run`, found as the user's own git would find them.
    Hooks,
}

/// One call of git being prepared.
#[derive(Debug)]
pub struct Call<'g> {
    git: &'g Git,
    access: Access,
    programs: Programs,
    args: Vec<OsString>,
    stdin: Option<Vec<u8>>,
    envs: Vec<(OsString, OsString)>,
    timeout: Duration,
    at_most: usize,
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

/// The configuration every call gets. `hooksPath` must be a path that is no directory: an empty
/// one makes git look in the file system's root.
const PINNED: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "color.ui=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "log.showSignature=false",
    "advice.addEmbeddedRepo=false",
    "advice.sparseIndexExpanded=false",
];

/// Variables that say where the user's own configuration lies. They belong to no repository,
/// and dropping them would read configuration the user has masked.
const KEPT: &[&str] = &[
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    // Who commits is the user's word, wherever they say it; none of these redirects anything.
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
];

/// Removes every inherited `GIT_*` variable that could redirect a child to another repository
/// (case B12), and everything through which it could ask a person something.
pub fn scrub(command: &mut Command) {
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("GIT_") && !KEPT.contains(&name.as_ref()) {
            command.env_remove(&key);
        }
    }
    for key in ["SSH_ASKPASS", "GPG_TTY", "LANGUAGE"] {
        command.env_remove(key);
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        // Empty, not unset: an unset one lets git fall back to core.askPass.
        .env("GIT_ASKPASS", "")
        .env("SSH_ASKPASS_REQUIRE", "never")
        .env("GIT_EDITOR", ":");
}

impl Git {
    /// Git started in `dir`, finding the repository itself (used only by `Repo::open`).
    pub(crate) fn discover(dir: &Path) -> Git {
        Git {
            git_dir: None,
            work_tree: None,
            dir: dir.to_owned(),
            config: Vec::new(),
            ssh: "ssh -o BatchMode=yes".to_owned(),
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
            programs: Programs::Ours,
            args,
            stdin: None,
            envs: Vec::new(),
            timeout: self.timeout,
            at_most: usize::MAX,
        }
    }
}

impl Call<'_> {
    /// Takes at most so many bytes of standard output; more is an error, and ends the call.
    pub(crate) fn at_most(mut self, bytes: usize) -> Self {
        self.at_most = bytes;
        self
    }

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

    /// Ends the call's process group after this time instead of the default ten minutes.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Works on another index than the user's.
    pub(crate) fn index(self, path: &Path) -> Self {
        self.env("GIT_INDEX_FILE", path)
    }

    /// Lets the user's hooks run, discovered as the user's own git would.
    pub(crate) fn with_hooks(mut self) -> Self {
        self.programs = Programs::Hooks;
        self
    }

    /// Runs to the end and returns whatever happened; only starting and time-outs are errors.
    pub fn output(self) -> Result<Output, GitError> {
        let command = self.command();
        let name = self.name();
        run::to_the_end(command, self.stdin, self.timeout, self.at_most, &name)
    }

    /// Runs to the end; a non-zero exit is an error. Returns standard output.
    pub fn bytes(self) -> Result<Vec<u8>, GitError> {
        let name = self.name();
        let out = self.output()?;
        if out.status == Some(0) {
            Ok(out.stdout)
        } else {
            Err(out.failed(&name))
        }
    }

    /// As [`Call::bytes`], decoded lossily, with trailing line ends removed.
    pub fn text(self) -> Result<String, GitError> {
        let bytes = self.bytes()?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        scrub(&mut command);
        command
            .current_dir(&self.git.dir)
            .env("GIT_SSH_COMMAND", &self.git.ssh);
        if self.access == Access::Read {
            command.arg("--no-optional-locks");
        }
        if self.programs == Programs::Ours {
            for pair in PINNED {
                command.args(["-c", pair]);
            }
            if self.access == Access::Write {
                command.args(["-c", "core.fsync=all"]);
            }
            for pair in &self.git.config {
                command.arg("-c").arg(pair);
            }
            self.locate(&mut command);
        }
        command.args(&self.args);
        for (key, value) in &self.envs {
            command.env(key, value);
        }
        command
    }

    /// Names the repository outright, so that nothing is discovered twice.
    fn locate(&self, command: &mut Command) {
        if let Some(dir) = &self.git.git_dir {
            let mut arg = OsString::from("--git-dir=");
            arg.push(dir);
            command.arg(arg);
        }
        if let Some(dir) = &self.git.work_tree {
            let mut arg = OsString::from("--work-tree=");
            arg.push(dir);
            command.arg(arg);
        }
    }

    /// The subcommand, for people: the first argument that is no option.
    fn name(&self) -> String {
        let words = self.args.iter().map(|arg| arg.to_string_lossy());
        let mut skip = false;
        for word in words {
            if skip {
                skip = false;
            } else if word == "-c" {
                skip = true;
            } else if !word.starts_with('-') {
                return word.into_owned();
            }
        }
        "git".to_owned()
    }
}

impl Output {
    /// The error a non-zero exit becomes.
    pub(crate) fn failed(self, command: &str) -> GitError {
        if self.stderr.contains("from promisor remote") {
            return GitError::NotLocal {
                stderr: bounded(&self.stderr),
            };
        }
        GitError::Failed {
            command: command.to_owned(),
            status: self.status,
            stderr: bounded(&self.stderr),
        }
    }
}

/// Git's own words, at most 8 KiB of them.
pub(crate) fn bounded(text: &str) -> String {
    let text = text.trim_end();
    let end = text.floor_char_boundary(8192);
    text[..end].to_owned()
}

impl GitError {
    /// An answer that does not parse.
    pub(crate) fn answer(command: &str, what: impl Into<String>) -> GitError {
        GitError::Answer {
            command: command.to_owned(),
            what: what.into(),
        }
    }

    /// A file of ours that could not be read or written.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> GitError + use<> {
        let path = path.to_owned();
        move |source| GitError::File { path, source }
    }
}

//! Hermetic repositories: no user or system configuration, fixed dates, read with stock git.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A throw-away repository with one commit on `main` and an identity.
#[derive(Debug)]
pub struct Repo {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Default for Repo {
    fn default() -> Self {
        Repo::new()
    }
}

impl Repo {
    /// One commit on main (`README.md`), identity configured.
    pub fn new() -> Repo {
        Repo::new_in(&std::env::temp_dir())
    }

    /// The same below a directory of the caller's.
    pub fn new_in(parent: &Path) -> Repo {
        let repo = Repo::unborn_in(parent, &[]);
        repo.write("README.md", "# project\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "initial"]);
        repo
    }

    /// `git init` with extra arguments and an identity, no commit.
    pub fn unborn(init_args: &[&str]) -> Repo {
        Repo::unborn_in(&std::env::temp_dir(), init_args)
    }

    fn unborn_in(parent: &Path, init_args: &[&str]) -> Repo {
        let dir = tempfile::Builder::new()
            .prefix("dex-test-")
            .tempdir_in(parent)
            .expect("a temp dir");
        let root = dir.path().canonicalize().expect("it exists").join("work");
        let repo = Repo { dir, root };
        std::fs::create_dir_all(repo.home()).expect("a home");
        std::fs::create_dir_all(&repo.root).expect("a work tree");
        let mut args = vec!["init", "-q", "-b", "main"];
        args.extend(init_args);
        repo.git(&args);
        repo.git(&["config", "user.name", "Ada Example"]);
        repo.git(&["config", "user.email", "ada@example.com"]);
        repo
    }

    /// The same, seen from another work tree, clone or submodule of it: everything after this
    /// works there.
    pub fn seen_from(mut self, root: &Path) -> Repo {
        self.root = root.to_owned();
        self
    }

    /// The work tree's root.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// A private home directory, also for XDG paths.
    pub fn home(&self) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it exists")
            .join("home")
    }

    /// A directory beside the work tree, for clones and linked worktrees.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir
            .path()
            .canonicalize()
            .expect("it exists")
            .join(name)
    }

    /// Writes a file, making its directories.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().expect("inside the repository")).expect("dirs");
        std::fs::write(path, content).expect("a written file");
    }

    /// Reads a file as text.
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.root.join(path)).expect("a readable file")
    }

    /// Applies the hermetic environment to any command.
    pub fn hermetic<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        for (key, _) in std::env::vars_os() {
            let name = key.to_string_lossy();
            if [
                "GIT_",
                "DEX_",
                "XDG_",
                "ANTHROPIC",
                "CLAUDE",
                "CODEX",
                "OPENAI",
            ]
            .iter()
            .any(|p| name.starts_with(p))
            {
                command.env_remove(&key);
            }
        }
        command
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", self.home().join(".config"))
            .env("XDG_DATA_HOME", self.home().join(".local/share"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
    }

    /// Stock git in this repository; panics with its output when it fails.
    pub fn git<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.git_in(&self.root, args)
    }

    /// Stock git in another directory.
    pub fn git_in<S: AsRef<OsStr>>(&self, dir: &Path, args: &[S]) -> String {
        let out = self.try_git_in(dir, args);
        let shown: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
        assert!(
            out.status.success(),
            "git {shown:?} failed: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout)
            .trim_end_matches('\n')
            .to_owned()
    }

    /// Stock git, whatever it answers.
    pub fn try_git<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.try_git_in(&self.root, args)
    }

    /// Stock git in another directory, whatever it answers.
    pub fn try_git_in<S: AsRef<OsStr>>(&self, dir: &Path, args: &[S]) -> Output {
        self.hermetic(Command::new("git").current_dir(dir))
            .args(args)
            .output()
            .expect("git runs")
    }
}

//! What the tests of this crate share.

use gitdb::snapshot::{self, Expected, Hooks, Landed, Prepared, Selection, Sign, SnapshotError};
use gitdb::{Oid, Repo};

pub(crate) const MESSAGE: &str = "dex: plan completed [cycle:1] [feature:x]\n[checkpoint:plan:1]\n";

/// Opens the repository as dex would.
pub(crate) fn open(repo: &testkit::Repo) -> Repo {
    Repo::open(repo.path()).expect("a repository")
}

/// An id git prints.
pub(crate) fn oid(text: &str) -> Oid {
    text.trim().parse().expect("an id")
}

/// A repository in the middle of a run's stage: HEAD on `dex/run`.
pub(crate) struct Stage {
    pub(crate) repo: testkit::Repo,
    pub(crate) start: Oid,
    pub(crate) branch: &'static str,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage::on(testkit::Repo::new())
    }

    /// Starts a run in a repository that has a commit.
    pub(crate) fn on(repo: testkit::Repo) -> Stage {
        repo.git(&["switch", "-qc", "dex/run"]);
        let start = oid(&repo.git(&["rev-parse", "HEAD"]));
        Stage {
            repo,
            start,
            branch: "refs/heads/dex/run",
        }
    }

    pub(crate) fn expected(&self) -> Expected<'_> {
        Expected {
            branch: self.branch,
            start_tip: &self.start,
        }
    }

    pub(crate) fn prepare(&self, exclude: &[&str]) -> Result<Prepared, SnapshotError> {
        let exclude: Vec<Vec<u8>> = exclude.iter().map(|it| it.as_bytes().to_vec()).collect();
        let base = oid(&self.repo.git(&["rev-parse", self.branch]));
        let db = open(&self.repo);
        let surveyed = snapshot::survey(&db).expect("surveyed");
        let only: Vec<Vec<u8>> = surveyed
            .into_iter()
            .filter(|it| it.unstaged)
            .map(|it| it.path)
            .collect();
        snapshot::prepare(
            &db,
            &self.expected(),
            &base,
            MESSAGE,
            Selection {
                only: Some(&only),
                exclude: &exclude,
            },
            Sign::Never,
            Hooks::Skip,
        )
    }

    /// The whole stage commit; panics unless it lands.
    pub(crate) fn commit(&self, exclude: &[&str]) -> Prepared {
        let prepared = self.prepare(exclude).expect("prepared");
        let landed = snapshot::land(&open(&self.repo), &prepared).expect("landed");
        assert_eq!(landed, Landed::Done);
        assert_eq!(
            self.repo.git(&["rev-parse", self.branch]),
            prepared.commit.as_str()
        );
        prepared
    }

    /// Files of ours that should not be left in the git directory.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let git = self.repo.path().join(".git");
        let mut found: Vec<String> = std::fs::read_dir(git.join("dex"))
            .into_iter()
            .flatten()
            .map(|it| {
                it.expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .filter(|name| name != "undo")
            .collect();
        if git.join("index.lock").exists() {
            found.push("index.lock".to_owned());
        }
        found
    }
}

/// Whether the git under test knows reftable.
pub(crate) fn has_reftable() -> bool {
    let out = std::process::Command::new("git").arg("version").output();
    let text = String::from_utf8_lossy(&out.expect("git runs").stdout).into_owned();
    let minor = text.split('.').nth(1).and_then(|it| it.parse::<u32>().ok());
    minor.is_some_and(|it| it >= 45)
}

/// A repository made with extra `git init` arguments, with one commit.
pub(crate) fn committed(init_args: &[&str]) -> testkit::Repo {
    let repo = testkit::Repo::unborn(init_args);
    repo.write("README.md", "# project\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "initial"]);
    repo
}

/// Runs one test of this binary in a process of its own, with extra variables, so that an
/// environment or a crash stays there.
pub(crate) fn in_child(test: &str, envs: &[(&str, &str)]) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture", "--include-ignored"]);
    command.envs(envs.iter().copied());
    command.output().expect("it runs")
}

/// Every file below a directory with its content and mode, links as links.
pub(crate) fn listing(root: &std::path::Path) -> std::collections::BTreeMap<String, String> {
    fn walk(
        root: &std::path::Path,
        dir: &std::path::Path,
        all: &mut std::collections::BTreeMap<String, String>,
    ) {
        use std::os::unix::fs::PermissionsExt as _;
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path
                .strip_prefix(root)
                .expect("below")
                .to_string_lossy()
                .into_owned();
            let meta = path.symlink_metadata().expect("it is there");
            if meta.is_symlink() {
                all.insert(
                    name,
                    format!("-> {}", path.read_link().expect("a link").display()),
                );
            } else if meta.is_dir() {
                if path.file_name().is_none_or(|it| it != ".git") {
                    walk(root, &path, all);
                }
            } else {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                all.insert(
                    name,
                    format!("{:o} {text}", meta.permissions().mode() & 0o777),
                );
            }
        }
    }
    let mut all = std::collections::BTreeMap::new();
    walk(root, root, &mut all);
    all
}

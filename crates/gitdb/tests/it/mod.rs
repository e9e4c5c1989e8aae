//! What the tests of this crate share.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses a part of it"
)]

use gitdb::snapshot::{self, Expected, Hooks, Landed, Prepared, Sign, SnapshotError};
use gitdb::{Oid, Repo};

pub const MESSAGE: &str = "dex: plan completed [cycle:1] [feature:x]\n[checkpoint:plan:1]\n";

/// Opens the repository as dex would.
pub fn open(repo: &testkit::Repo) -> Repo {
    Repo::open(repo.path()).expect("a repository")
}

/// An id git prints.
pub fn oid(text: &str) -> Oid {
    text.trim().parse().expect("an id")
}

/// A repository in the middle of a run's stage: HEAD on `dex/run`.
pub struct Stage {
    pub repo: testkit::Repo,
    pub start: Oid,
    pub branch: &'static str,
}

impl Stage {
    pub fn new() -> Stage {
        Stage::on(testkit::Repo::new())
    }

    /// Starts a run in a repository that has a commit.
    pub fn on(repo: testkit::Repo) -> Stage {
        repo.git(&["switch", "-qc", "dex/run"]);
        let start = oid(&repo.git(&["rev-parse", "HEAD"]));
        Stage {
            repo,
            start,
            branch: "refs/heads/dex/run",
        }
    }

    pub fn expected(&self) -> Expected<'_> {
        Expected {
            branch: self.branch,
            start_tip: &self.start,
        }
    }

    pub fn prepare(&self, exclude: &[&str]) -> Result<Prepared, SnapshotError> {
        let exclude: Vec<Vec<u8>> = exclude.iter().map(|it| it.as_bytes().to_vec()).collect();
        let base = oid(&self.repo.git(&["rev-parse", self.branch]));
        let db = open(&self.repo);
        snapshot::prepare(
            &db,
            &self.expected(),
            &base,
            MESSAGE,
            &exclude,
            Sign::Never,
            Hooks::Skip,
        )
    }

    /// The whole stage commit; panics unless it lands.
    pub fn commit(&self, exclude: &[&str]) -> Prepared {
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
    pub fn leftovers(&self) -> Vec<String> {
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

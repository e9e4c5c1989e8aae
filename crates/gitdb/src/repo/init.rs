//! Making a repository of our own (the demo's).

use std::path::Path;

use crate::{Git, GitError, OpenError, Repo};

impl Repo {
    /// Makes an empty repository with an identity of its own, in a directory that exists.
    pub fn init(dir: &Path, branch: &str, name: &str, email: &str) -> Result<Repo, OpenError> {
        let git = Git::discover(dir);
        git.write(["init", "-q", "-b", branch]).bytes()?;
        let repo = Repo::open(dir)?;
        for (key, value) in [("user.name", name), ("user.email", email), ("commit.gpgsign", "false")]
        {
            repo.set_local_config(key, value)?;
        }
        Repo::open(dir)
    }

    /// Sets one value in the repository's own configuration.
    pub fn set_local_config(&self, key: &str, value: &str) -> Result<(), GitError> {
        self.git.write(["config", "--local", key, value]).bytes().map(drop)
    }
}

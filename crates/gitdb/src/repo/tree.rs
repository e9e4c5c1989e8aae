//! Trees by name, and switching branches.

use std::ffi::OsStr;
use std::path::Path;

use crate::{GitError, Oid, Repo};

impl Repo {
    /// Paths of the directories and files directly under `dir` in a commit or tree, sorted.
    pub fn list_tree(&self, tree_ish: &Oid, dir: &str) -> Result<Vec<String>, GitError> {
        let dir = format!("{}/", dir.trim_end_matches('/'));
        let bytes = self
            .git
            .read(["ls-tree", "-z", "--name-only", tree_ish.as_str(), "--", &dir])
            .bytes()?;
        let names = bytes.split(|b| *b == 0).filter(|it| !it.is_empty());
        Ok(names.map(|it| String::from_utf8_lossy(it).into_owned()).collect())
    }

    /// The tree of a commit (or the tree itself).
    pub fn tree_of(&self, tree_ish: &Oid) -> Result<Oid, GitError> {
        let name = format!("{tree_ish}^{{tree}}");
        let text = self.git.read(["rev-parse", "--verify", &name]).text()?;
        text.parse().map_err(|_| GitError::Answer { command: "rev-parse".into(), what: text })
    }

    /// Checks a branch out, with all of git's own safety checks.
    pub fn switch(&self, branch: &str) -> Result<(), GitError> {
        let short = branch.strip_prefix("refs/heads/").unwrap_or(branch);
        self.git.write(["switch", "-q", "--no-guess", short]).bytes().map(drop)
    }

    /// Whether the index holds a file (absolute, or from the work tree's root).
    pub fn is_tracked(&self, path: &Path) -> Result<bool, GitError> {
        let words = ["--literal-pathspecs", "ls-files", "-z", "--"].map(OsStr::new);
        let args = words.into_iter().chain([path.as_os_str()]);
        Ok(!self.git.read(args).bytes()?.is_empty())
    }
}

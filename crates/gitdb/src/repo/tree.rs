//! Trees by name, and switching branches.

use std::ffi::OsStr;
use std::path::Path;

use super::read::{MAX_FILE_BYTES, os_path};
use crate::{GitError, Oid, Repo};

impl Repo {
    /// Paths of the directories and files directly under `dir` in a commit or tree, sorted.
    pub fn list_tree(&self, tree_ish: &Oid, dir: &str) -> Result<Vec<String>, GitError> {
        let dir = format!("{}/", dir.trim_end_matches('/'));
        let bytes = self
            .git
            .read([
                "ls-tree",
                "-z",
                "--name-only",
                tree_ish.as_str(),
                "--",
                &dir,
            ])
            .bytes()?;
        let names = bytes.split(|b| *b == 0).filter(|it| !it.is_empty());
        Ok(names
            .map(|it| String::from_utf8_lossy(it).into_owned())
            .collect())
    }

    /// The bytes of several files of a commit or tree, in one process; none for each that is not
    /// there. As with [`Repo::read_file`], a read that fails is never "not there".
    pub fn read_files(
        &self,
        tree_ish: &Oid,
        paths: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, GitError> {
        let mut asked = String::new();
        for path in paths {
            asked.push_str(&format!("{tree_ish}:{path}\n"));
        }
        let answer = self
            .git
            .read(["cat-file", "--batch"])
            .stdin(asked)
            .at_most(MAX_FILE_BYTES)
            .bytes();
        let answer = match answer {
            Ok(answer) => answer,
            // Together they are too much; one by one each is read, or named.
            Err(GitError::TooMuch { .. }) => {
                let one_by_one = paths.iter().map(|path| self.read_file(tree_ish, path));
                return one_by_one.collect();
            }
            Err(error) => return Err(error),
        };
        let mut rest = answer.as_slice();
        let mut files = Vec::new();
        for path in paths {
            match next_blob(&mut rest) {
                Some(bytes) => files.push(Some(bytes)),
                // "missing" is said of an absent path and of an unreadable object alike.
                None => files.push(self.read_file(tree_ish, path)?),
            }
        }
        Ok(files)
    }

    /// The tree of a commit (or the tree itself).
    pub fn tree_of(&self, tree_ish: &Oid) -> Result<Oid, GitError> {
        let name = format!("{tree_ish}^{{tree}}");
        let text = self.git.read(["rev-parse", "--verify", &name]).text()?;
        text.parse().map_err(|_| GitError::Answer {
            command: "rev-parse".into(),
            what: text,
        })
    }

    /// Checks a branch out, with all of git's own safety checks.
    pub fn switch(&self, branch: &str) -> Result<(), GitError> {
        let short = branch.strip_prefix("refs/heads/").unwrap_or(branch);
        self.git
            .write(["switch", "-q", "--no-guess", short])
            .bytes()
            .map(drop)
    }

    /// The branch that another work tree of this repository is on; none when its HEAD is detached.
    pub fn branch_at(&self, git_dir: &Path) -> Result<Option<String>, GitError> {
        let mut there = self.clone();
        there.git_dir = git_dir.to_owned();
        there.git.git_dir = Some(git_dir.to_owned());
        there.head_branch()
    }

    /// Whether the index holds a file (raw bytes, from the work tree's root or absolute).
    pub fn is_tracked(&self, path: &[u8]) -> Result<bool, GitError> {
        Ok(!self.in_index(path)?.is_empty())
    }

    /// Whether the index holds a submodule at this path, as for [`Repo::is_tracked`].
    pub fn is_submodule(&self, path: &[u8]) -> Result<bool, GitError> {
        Ok(self.in_index(path)?.starts_with(b"160000 "))
    }

    fn in_index(&self, path: &[u8]) -> Result<Vec<u8>, GitError> {
        let words = ["--literal-pathspecs", "ls-files", "-s", "-z", "--"].map(OsStr::new);
        let path = os_path(path);
        self.git
            .read(words.into_iter().chain([path.as_os_str()]))
            .bytes()
    }
}

/// Takes one answer of `cat-file --batch`; none when it is not a blob.
fn next_blob(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let header = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    let mut fields = header.rsplitn(3, ' ');
    let length: usize = fields.next()?.parse().ok()?;
    let kind = fields.next()?;
    let bytes = rest.get(..length)?.to_vec();
    *rest = rest.get(length + 1..).unwrap_or_default();
    (kind == "blob").then_some(bytes)
}

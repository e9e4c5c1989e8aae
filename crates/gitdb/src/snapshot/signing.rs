//! Writing the commit object, signed or not, never waiting for a person (case B03).

use std::time::Duration;

use super::{Sign, SnapshotError};
use crate::repo::read::parse_oid;
use crate::{GitError, Oid, Repo, fault};

/// How long a signing program may take. It cannot ask anything, so a key in an agent answers
/// in well under a second.
const SIGNING: Duration = Duration::from_secs(20);

/// Whether stage commits will be signed, found out by signing a throw-away object. The error
/// text says why signing would fail; nothing can prompt, and it ends within 20 s.
pub fn test_signing(repo: &Repo) -> Result<bool, String> {
    if !wanted(repo) {
        return Ok(false);
    }
    // `commit-tree` wants the empty tree to exist as an object.
    let tree = repo
        .git
        .write(["hash-object", "-t", "tree", "-w", "--stdin"])
        .bytes()
        .and_then(|raw| parse_oid("hash-object", &raw))
        .map_err(|e| e.to_string())?;
    match commit(repo, &tree, None, "signing test\n", Sign::Auto) {
        Ok(_) => Ok(true),
        Err(SnapshotError::Signing(text)) => Err(text),
        Err(other) => Err(other.to_string()),
    }
}

fn wanted(repo: &Repo) -> bool {
    repo.settings.flag("commit.gpgsign").unwrap_or(false)
}

/// Writes a commit object.
pub(super) fn commit(
    repo: &Repo,
    tree: &Oid,
    parent: Option<&Oid>,
    message: &str,
    sign: Sign,
) -> Result<Oid, SnapshotError> {
    let signed = sign == Sign::Auto && wanted(repo);
    // The message is UTF-8, whatever the user's commits are written in.
    let mut args = vec![
        "-c",
        "i18n.commitEncoding=UTF-8",
        "commit-tree",
        tree.as_str(),
    ];
    if let Some(parent) = parent {
        args.extend(["-p", parent.as_str()]);
    }
    if signed {
        args.push("-S");
    }
    args.extend(["-F", "-"]);
    let mut call = repo.git.write(args).stdin(message);
    if signed {
        call = call.timeout(SIGNING);
    }
    fault::point("snapshot.commit.before");
    let out = match call.output() {
        Err(GitError::TimedOut { seconds, .. }) if signed => {
            return Err(SnapshotError::Signing(format!(
                "the signing program did not end within {seconds} s"
            )));
        }
        other => other?,
    };
    fault::point("snapshot.commit.after");
    if signed && out.status != Some(0) {
        return Err(SnapshotError::Signing(out.stderr.trim_end().to_owned()));
    }
    let raw = out.expect_success("commit-tree")?;
    Ok(parse_oid("commit-tree", &raw)?)
}

//! The user's own hooks, when they asked for them (cases B01, B02).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{PrivateIndex, SnapshotError};
use crate::checkpoint::StageMessage;
use crate::git_cli::bounded;
use crate::repo::read::os_path;
use crate::{GitError, Repo, files};

/// Hooks run builds and linters; a stage itself lasts minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// Whether a hook was there to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    Yes,
    NoHook,
}

/// Runs `pre-commit` on exactly the index that is to be committed.
pub(super) fn pre_commit(repo: &Repo, index: &Path) -> Result<Ran, SnapshotError> {
    run(repo, index, "pre-commit", None)
}

/// Runs `commit-msg`. A stage commit's message has a fixed form, so a hook can refuse it but
/// not change it; other messages may be edited.
pub(super) fn commit_msg(
    repo: &Repo,
    private: &PrivateIndex,
    message: &str,
) -> Result<String, SnapshotError> {
    let path = private.path.with_extension("message");
    files::write(&path, message.as_bytes(), 0o600)?;
    let ran = run(repo, &private.path, "commit-msg", Some(&path));
    let edited = files::read(&path);
    files::remove(&path)?;
    if ran? == Ran::NoHook || StageMessage::read(message).is_ok() {
        return Ok(message.to_owned());
    }
    let edited = edited?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&edited).into_owned())
}

fn run(
    repo: &Repo,
    index: &Path,
    hook: &str,
    argument: Option<&Path>,
) -> Result<Ran, SnapshotError> {
    if !is_executable(&directory(repo)?.join(hook)) {
        return Ok(Ran::NoHook);
    }
    let mut args: Vec<OsString> = ["hook", "run", "--ignore-missing", hook]
        .map(OsString::from)
        .into();
    if let Some(path) = argument {
        args.extend(["--".into(), path.into()]);
    }
    let call = repo
        .git
        .write(args)
        .with_hooks()
        .index(index)
        .timeout(LIMIT);
    let rejected = |output: String| SnapshotError::HookRejected {
        hook: hook.to_owned(),
        output,
    };
    match call.output() {
        Ok(out) if out.status == Some(0) => Ok(Ran::Yes),
        Ok(out) => {
            let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), out.stderr);
            Err(rejected(bounded(&said)))
        }
        Err(e @ GitError::TimedOut { .. }) => Err(rejected(e.to_string())),
        Err(other) => Err(other.into()),
    }
}

/// Where the user's git looks for hooks, `core.hooksPath` included.
fn directory(repo: &Repo) -> Result<PathBuf, GitError> {
    let args = ["rev-parse", "--path-format=absolute", "--git-path", "hooks"];
    let mut raw = repo.git.read(args).with_hooks().bytes()?;
    if raw.last() == Some(&b'\n') {
        raw.pop();
    }
    Ok(os_path(&raw))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

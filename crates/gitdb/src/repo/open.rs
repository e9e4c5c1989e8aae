//! Opening: what kind of repository this is, in as few processes as possible.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::config::Settings;
use super::{ObjectFormat, OpenError, RefFormat, Repo};
use crate::git_cli::bounded;
use crate::{Git, GitError};

/// The oldest git that is supported.
const FLOOR: (u32, u32, u32) = (2, 39, 0);

static VERSION: OnceLock<(u32, u32, u32)> = OnceLock::new();

/// The git program's version, asked once per process.
pub(super) fn version() -> Option<(u32, u32, u32)> {
    VERSION.get().copied()
}

impl Repo {
    /// Opens the repository that holds `dir`. Reads only.
    ///
    /// Honours `GIT_DIR`/`GIT_WORK_TREE` only when the caller passes them on purpose; inherited
    /// ones are ignored (case B12).
    pub fn open(dir: &Path) -> Result<Repo, OpenError> {
        let dir = dir
            .canonicalize()
            .map_err(|_| OpenError::NotARepository(dir.to_owned()))?;
        if !dir.is_dir() {
            return Err(OpenError::NotARepository(dir));
        }
        let mut git = Git::discover(&dir);
        check_version(&git)?;
        let found = Found::ask(&git)?;
        git.git_dir = Some(found.git_dir.clone());
        git.work_tree = found.work_tree.clone();
        git.dir = found.work_tree.clone().unwrap_or(found.git_dir.clone());
        let settings = Settings::read(&git)?;
        settings.restrain(&mut git);
        Ok(Repo {
            partial: settings.partial(),
            git_dir: found.git_dir,
            common_dir: found.common_dir,
            work_tree: found.work_tree,
            object_format: found.object_format,
            ref_format: found.ref_format,
            shallow: found.shallow,
            submodule: found.submodule,
            git,
            settings,
        })
    }
}

fn check_version(git: &Git) -> Result<(), OpenError> {
    if VERSION.get().is_some() {
        return Ok(());
    }
    let text = git.read(["version"]).text().map_err(|e| match e {
        GitError::Start(source) if source.kind() == ErrorKind::NotFound => OpenError::GitMissing,
        other => OpenError::Git(other),
    })?;
    let found = text.trim_start_matches("git version ").to_owned();
    let mut numbers = found
        .split(['.', ' ', '-'])
        .map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let version = (next(), next(), next());
    if version < FLOOR {
        return Err(OpenError::GitTooOld { found });
    }
    let _ = VERSION.set(version);
    Ok(())
}

/// What one `git rev-parse` tells.
struct Found {
    git_dir: PathBuf,
    common_dir: PathBuf,
    work_tree: Option<PathBuf>,
    object_format: ObjectFormat,
    ref_format: RefFormat,
    shallow: bool,
    submodule: bool,
}

impl Found {
    fn ask(git: &Git) -> Result<Found, OpenError> {
        // `--show-ref-format` is newer than the floor, which prints it back unchanged.
        // `--show-toplevel` is last: outside a work tree it fails, after the other answers.
        let args = [
            "rev-parse",
            "--show-object-format",
            "--show-ref-format",
            "--is-shallow-repository",
            "--is-inside-work-tree",
            "--path-format=absolute",
            "--git-dir",
            "--git-common-dir",
            "--show-superproject-working-tree",
            "--show-toplevel",
        ];
        let out = git.read(args).output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let inside = lines.get(3) == Some(&"true");
        if lines.len() < 6 || (out.status != Some(0) && inside) {
            return Err(refusal(git, out.status, &out.stderr));
        }
        // With `core.worktree` there is a work tree though the caller stands outside of it.
        let has_tree = out.status == Some(0);
        let expected = if has_tree { 7..=8 } else { 6..=6 };
        let [git_dir, common_dir] = ["--git-dir", "--git-common-dir"];
        let plain = expected.contains(&lines.len()) && std::str::from_utf8(&out.stdout).is_ok();
        let path = |flag: &str, index: usize| -> Result<PathBuf, GitError> {
            if plain {
                return Ok(PathBuf::from(lines[index]));
            }
            one_path(git, flag)
        };
        let work_tree = match has_tree {
            true => Some(path("--show-toplevel", lines.len() - 1)?),
            false => None,
        };
        Ok(Found {
            git_dir: path(git_dir, 4)?,
            common_dir: path(common_dir, 5)?,
            work_tree,
            object_format: match lines[0] {
                "sha1" => ObjectFormat::Sha1,
                "sha256" => ObjectFormat::Sha256,
                other => return Err(OpenError::Unsupported(format!("object format {other}"))),
            },
            ref_format: match lines[1] {
                "reftable" => RefFormat::Reftable,
                _ => RefFormat::Files,
            },
            shallow: lines[2] == "true",
            submodule: has_tree && lines.len() > 7,
        })
    }
}

/// A path that holds a line end or is not UTF-8 is asked for alone.
fn one_path(git: &Git, flag: &str) -> Result<PathBuf, GitError> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = git
        .read(["rev-parse", "--path-format=absolute", flag])
        .bytes()?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(std::ffi::OsString::from_vec(bytes).into())
}

/// Git's refusal, as what the caller can do about it.
fn refusal(git: &Git, status: Option<i32>, stderr: &str) -> OpenError {
    let text = bounded(stderr);
    let any = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    if any(&["dubious ownership"]) {
        OpenError::UnsafeOwner(text)
    } else if any(&["not a git repository"]) {
        OpenError::NotARepository(git.dir.clone())
    } else if any(&[
        "unknown repository extension",
        "Expected git repo version",
        "unknown ref storage",
        "unsupported",
        "safe.bareRepository",
        "invalid value for 'extensions.",
    ]) {
        OpenError::Unsupported(text)
    } else {
        OpenError::Git(GitError::Failed {
            command: "rev-parse".to_owned(),
            status,
            stderr: text,
        })
    }
}

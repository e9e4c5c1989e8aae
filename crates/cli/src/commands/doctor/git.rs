//! Checks of git and the repository.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gitdb::repo::{ObjectFormat, RefFormat};
use gitdb::{Repo, refs, snapshot};

use super::Check;
use crate::error::Failure;

/// A lock this old is nobody's any more, most likely.
const STALE: Duration = Duration::from_secs(60);

/// One look at a repository.
type Look = fn(&Repo) -> Result<Check, Failure>;

pub(super) fn checks(repo: &Repo) -> Vec<Check> {
    let (major, minor, patch) = repo.version();
    // Opening has refused anything older than the floor.
    let version = format!("git {major}.{minor}.{patch} (2.39 or newer is needed)");
    let made: [(&'static str, Look); 7] = [
        ("identity", identity),
        ("blocking_branch", blocking_branch),
        ("operation", operation),
        ("signing", signing),
        ("filters", filters),
        ("mirror", mirror),
        ("git_locks", locks),
    ];
    let mut checks = vec![Check::ok("git_version", version), shape(repo)];
    checks.extend(
        made.iter()
            .map(|(code, make)| make(repo).unwrap_or_else(|it| Check::failed(code, &it))),
    );
    checks
}

/// Every shape is worked with; it is said because it explains what else one sees.
fn shape(repo: &Repo) -> Check {
    let Some(root) = repo.work_tree() else {
        return Check::warn(
            "repository",
            "bare: runs can be read here, not started",
            "Make a work tree: `git worktree add PATH`.",
        );
    };
    let sparse = repo.config("core.sparseCheckout").ok().flatten();
    let traits = [
        (repo.git_dir != repo.common_dir, "a linked work tree"),
        (repo.submodule, "a submodule's checkout"),
        (repo.shallow, "shallow"),
        (repo.partial, "partial"),
        (sparse.as_deref() == Some("true"), "sparse"),
        (repo.ref_format == RefFormat::Reftable, "reftable"),
        (repo.object_format == ObjectFormat::Sha256, "sha256"),
    ];
    let traits: Vec<&str> = traits.iter().filter(|it| it.0).map(|it| it.1).collect();
    let traits = if traits.is_empty() {
        String::new()
    } else {
        format!(" ({})", traits.join(", "))
    };
    Check::ok("repository", format!("{}{traits}", root.display()))
}

fn identity(repo: &Repo) -> Result<Check, Failure> {
    Ok(match repo.identity()? {
        Some(identity) => Check::ok("identity", identity.text),
        None => Check::bad(
            "identity",
            "git has no name and mail to commit with",
            "Type `git config user.name \"Your Name\"` and `git config user.email you@example.com`.",
        ),
    })
}

fn blocking_branch(repo: &Repo) -> Result<Check, Failure> {
    Ok(match refs::read(repo, dex::names::BLOCKING_BRANCH)? {
        None => Check::ok(
            "blocking_branch",
            "no branch named dex is in the way of dex/…",
        ),
        Some(_) => Check::bad(
            "blocking_branch",
            "a branch named dex is in the way: git cannot hold dex and dex/… at once",
            "Rename it: `git branch -m dex my-dex`.",
        ),
    })
}

fn operation(repo: &Repo) -> Result<Check, Failure> {
    Ok(match repo.operation_in_progress()? {
        None => Check::ok(
            "operation",
            "no merge, rebase or other operation is in progress",
        ),
        Some(operation) => Check::warn(
            "operation",
            format!("a {operation:?} is in progress; no run starts before it is over"),
            "End or abort it: `git status` says how.",
        ),
    })
}

fn signing(repo: &Repo) -> Result<Check, Failure> {
    Ok(match snapshot::test_signing(repo) {
        Ok(true) => Check::ok(
            "signing",
            "stage commits are signed, and signing works without asking",
        ),
        Ok(false) => Check::ok("signing", "commits are not signed (commit.gpgsign)"),
        Err(why) => Check::bad(
            "signing",
            format!("commit.gpgsign is on, but signing does not work without asking: {why}"),
            "Unlock the key (its agent must answer by itself), or type `dex config sign never`.",
        ),
    })
}

fn filters(repo: &Repo) -> Result<Check, Failure> {
    let own = repo.own_filters()?;
    if own.is_empty() {
        return Ok(Check::ok(
            "filters",
            "no filter is named only in the repository's own configuration",
        ));
    }
    let list = own.join(", ");
    if crate::session::filters_allowed(repo)? {
        return Ok(Check::ok("filters", format!("allowed: {list}")));
    }
    Ok(Check::warn(
        "filters",
        format!(
            "only this repository's own configuration names {list}; a file that needs it stops a run"
        ),
        "If you know these programs: `dex init --allow-filters`, or name them in your own configuration.",
    ))
}

/// Undo entries are never pushed by us, but a mirror sends every ref there is.
fn mirror(repo: &Repo) -> Result<Check, Failure> {
    let pattern = r"^remote\..*\.(mirror|push)$";
    let out = repo
        .git
        .read(["config", "-z", "--get-regexp", pattern])
        .output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let sends = |entry: &&str| {
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        match key.ends_with(".mirror") {
            true => matches!(value, "true" | "yes" | "on" | "1" | "push"),
            false => sends_ours(value),
        }
    };
    let found: Vec<String> = text
        .split('\0')
        .filter(sends)
        .map(|it| it.replacen('\n', "=", 1))
        .collect();
    if found.is_empty() {
        return Ok(Check::ok(
            "mirror",
            "no remote is set up to receive refs/dex-local/",
        ));
    }
    Ok(Check::warn(
        "mirror",
        format!(
            "{}: a push would send undo entries (refs/dex-local/) too",
            found.join(", ")
        ),
        "Name what is to be pushed, e.g. `refs/heads/*:refs/heads/*` and `refs/tags/*:refs/tags/*`.",
    ))
}

/// Whether a push refspec covers `refs/dex-local/`.
fn sends_ours(refspec: &str) -> bool {
    let source = refspec
        .trim_start_matches('+')
        .split(':')
        .next()
        .unwrap_or_default();
    match source.split_once('*') {
        Some((before, _)) => {
            "refs/dex-local/".starts_with(before) || before.starts_with("refs/dex-local/")
        }
        None => source.starts_with("refs/dex-local/"),
    }
}

fn locks(repo: &Repo) -> Result<Check, Failure> {
    let own = ["index.lock", "HEAD.lock"].map(|it| repo.git_dir.join(it));
    let common =
        ["packed-refs.lock", "config.lock", "shallow.lock"].map(|it| repo.common_dir.join(it));
    let found: Vec<(PathBuf, Duration)> = own
        .into_iter()
        .chain(common)
        .filter_map(|it| age(&it).map(|age| (it, age)))
        .collect();
    if found.is_empty() {
        return Ok(Check::ok("git_locks", "no lock of git's is left behind"));
    }
    let list: Vec<String> = found
        .iter()
        .map(|(path, age)| format!("{} ({} s old)", path.display(), age.as_secs()))
        .collect();
    if found.iter().all(|(_, age)| *age < STALE) {
        return Ok(Check::ok(
            "git_locks",
            format!("held right now: {}", list.join(", ")),
        ));
    }
    let paths: Vec<String> = found.iter().map(|it| it.0.display().to_string()).collect();
    Ok(Check::warn(
        "git_locks",
        format!(
            "left behind by a git that died, or held for long: {}",
            list.join(", ")
        ),
        format!(
            "If no git works here any more (`pgrep git`), remove it: `rm {}`.",
            paths.join(" ")
        ),
    ))
}

fn age(path: &Path) -> Option<Duration> {
    let meta = path.symlink_metadata().ok()?;
    let modified = meta.modified().ok()?;
    Some(
        SystemTime::now()
            .duration_since(modified)
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::sends_ours;

    #[test]
    fn only_refspecs_that_cover_ours_are_named() {
        for spec in [
            "+refs/*:refs/*",
            "refs/dex-local/*:refs/x/*",
            "refs/d*:refs/d*",
            "*:*",
        ] {
            assert!(sends_ours(spec), "{spec}");
        }
        for spec in [
            "refs/heads/*:refs/heads/*",
            "main",
            "+main:next",
            ":",
            "refs/tags/*",
        ] {
            assert!(!sends_ours(spec), "{spec}");
        }
    }
}

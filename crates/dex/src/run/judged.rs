//! Looking at what a stage changed before anything of it is stored: what is left out, and what is
//! likely a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;

use gitdb::Oid;
use gitdb::snapshot::{self, Changed, ChangedKind};

use super::{RunError, Runner};
use crate::files::record::LeftOut;
use crate::outcome::MACHINE_FILES;

/// Bytes of one file looked through for secrets.
const SCAN_BYTES: u64 = 4 * 1024 * 1024;

/// A likely secret in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Secret {
    path: String,
    line: usize,
    kind: &'static str,
}

/// What a look at the changed files gave.
pub(super) struct Judged {
    /// Literal paths to leave as they are in the parent.
    pub(super) exclude: Vec<Vec<u8>>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) secrets: Vec<Secret>,
    /// Changed paths outside `.dex/`.
    pub(super) changed: u64,
    pub(super) seen: BTreeSet<Vec<u8>>,
}

impl Runner<'_> {
    /// Looks at what would be committed before anything is stored.
    pub(super) fn judge_files(&mut self, base: &Oid) -> Result<Judged, RunError> {
        let settings = self.live.start.settings.clone();
        let allow: Vec<String> = settings
            .allow
            .iter()
            .chain(&self.live.allow)
            .cloned()
            .collect();
        let surveyed = self.survey(base)?;
        let mut judged = Judged {
            exclude: Vec::new(),
            left_out: Vec::new(),
            secrets: Vec::new(),
            changed: 0,
            seen: BTreeSet::new(),
        };
        for changed in &surveyed {
            let shown = String::from_utf8_lossy(&changed.path).into_owned();
            judged.seen.insert(changed.path.clone());
            let ours = changed.path.starts_with(b".dex/");
            let allowed = allow.iter().any(|pattern| matches(pattern, &shown));
            match changed.kind {
                ChangedKind::NestedRepo => {
                    leave_out(&mut judged, changed, "nested_repository", None)
                }
                ChangedKind::File { bytes } if bytes > settings.max_file_bytes && !allowed => {
                    leave_out(&mut judged, changed, "too_large", Some(bytes));
                }
                ChangedKind::File { bytes } => {
                    judged.changed += u64::from(!ours);
                    if !allowed && bytes <= SCAN_BYTES {
                        let found = self.secrets_in(changed, &shown);
                        judged.secrets.extend(found);
                    }
                }
                ChangedKind::Link | ChangedKind::Deleted => judged.changed += u64::from(!ours),
                ChangedKind::Other => {}
            }
        }
        self.settle_exclusions(&mut judged)?;
        Ok(judged)
    }

    /// What the stage changed: in the work tree, and in commits of the agent's that are folded.
    fn survey(&self, base: &Oid) -> Result<Vec<Changed>, RunError> {
        let mut found = snapshot::survey(&self.repo)?;
        if *base == self.live.tip {
            return Ok(found);
        }
        let seen: BTreeSet<Vec<u8>> = found.iter().map(|it| it.path.clone()).collect();
        let folded = snapshot::changes(&self.repo, &self.live.tip, base)?;
        for change in folded.into_iter().filter(|it| !seen.contains(&it.path)) {
            let kind = snapshot::kind_at(&self.repo, &change.path)?;
            found.push(Changed {
                path: change.path,
                kind,
            });
        }
        Ok(found)
    }

    /// Left-out files that git does not track become ignored, so that the tree is clean after the
    /// commit; only tracked ones have to be excluded by name (`git add` refuses to exclude by name
    /// what is ignored).
    fn settle_exclusions(&self, judged: &mut Judged) -> Result<(), RunError> {
        let mut by_name = Vec::new();
        let mut lines = Vec::new();
        for path in judged.exclude.drain(..) {
            let shown = String::from_utf8_lossy(&path).into_owned();
            let tracked = self
                .repo
                .is_tracked(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)))?;
            if tracked {
                by_name.push(path);
            }
            // What only a folded commit tracks is untracked once that is folded.
            if !tracked || !self.is_in_tip(&shown)? {
                lines.push(gitdb::Repo::escape_exclude(shown.trim_end_matches('/')));
            }
        }
        if !lines.is_empty() {
            self.repo
                .exclude(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        judged.exclude = by_name;
        let machine = MACHINE_FILES.map(|it| it.as_bytes().to_vec());
        let seen: Vec<Vec<u8>> = machine
            .into_iter()
            .filter(|it| judged.seen.contains(it))
            .collect();
        judged.exclude.extend(seen);
        Ok(())
    }

    fn is_in_tip(&self, path: &str) -> Result<bool, RunError> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let there = self.repo.list_dir(&self.live.tip, dir)?;
        Ok(there.iter().any(|it| it == path))
    }

    fn secrets_in(&self, changed: &Changed, shown: &str) -> Vec<Secret> {
        let path = self
            .live
            .worktree
            .join(std::ffi::OsStr::from_bytes(&changed.path));
        // Gone meanwhile, or unreadable: git add will say so by name.
        let Ok(bytes) = std::fs::read(&path) else {
            return Vec::new();
        };
        let found = agents::redact::find_in_file(shown, &bytes);
        found
            .into_iter()
            .map(|it| Secret {
                path: shown.to_owned(),
                line: it.line,
                kind: it.kind,
            })
            .collect()
    }
}

fn leave_out(judged: &mut Judged, changed: &Changed, reason: &str, bytes: Option<u64>) {
    judged.exclude.push(changed.path.clone());
    judged.left_out.push(LeftOut {
        path: String::from_utf8_lossy(&changed.path).into_owned(),
        reason: reason.to_owned(),
        bytes,
        more: serde_json::Map::new(),
    });
}

/// Whether an allowed path, which may hold `*`, names a path.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => {
            pattern == path
                || path
                    .strip_prefix(pattern)
                    .is_some_and(|it| it.starts_with('/'))
        }
        Some((head, tail)) => {
            let Some(rest) = path.strip_prefix(head) else {
                return false;
            };
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches_rest(tail, &rest[at..]))
        }
    }
}

fn matches_rest(pattern: &str, path: &str) -> bool {
    if pattern.contains('*') {
        matches(pattern, path)
    } else {
        pattern == path
    }
}

/// For the agent: where, never what.
pub(super) fn tell_secrets(found: &[Secret]) -> String {
    let lines: Vec<String> = found
        .iter()
        .take(20)
        .map(|it| {
            format!(
                "- {}, line {}: looks like a secret ({})",
                it.path, it.line, it.kind
            )
        })
        .collect();
    format!(
        "These files hold what looks like a secret and cannot be committed:\n{}\nRemove it, or read it from the environment, or use an obviously false value.",
        lines.join("\n")
    )
}

/// For the person.
pub(super) fn explain_secrets(found: &[Secret]) -> String {
    let places: BTreeMap<&str, &Secret> = found.iter().map(|it| (it.path.as_str(), it)).collect();
    let shown: Vec<String> = places
        .values()
        .take(5)
        .map(|it| format!("{} line {} ({})", it.path, it.line, it.kind))
        .collect();
    format!(
        "likely secrets in {}; nothing was committed. Edit the files, or let them through with --allow PATH, then resume",
        shown.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn allowed_paths_are_paths_directories_or_patterns() {
        assert!(matches("a/b.txt", "a/b.txt"));
        assert!(matches("a", "a/b.txt"));
        assert!(matches("*.pem", "keys/x.pem"));
        assert!(matches("keys/*", "keys/x.pem"));
        assert!(matches("a*b*c", "a1b2c"));
        assert!(!matches("a", "ab"));
        assert!(!matches("*.pem", "x.pem.txt"));
    }
}

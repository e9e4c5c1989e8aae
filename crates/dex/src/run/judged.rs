//! Looking at what a stage changed before anything of it is stored: what is left out, and what is
//! likely a secret.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;

use gitdb::Oid;
use gitdb::snapshot::{self, Changed, ChangedKind};

use super::{RunError, Runner};
use crate::files::record::LeftOut;
use crate::outcome::MACHINE_FILES;
use crate::reconcile::Reconciled;

/// A likely secret in what would be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Secret {
    /// The path, redacted: it may be the secret.
    path: String,
    place: Spot,
    kind: &'static str,
}

/// Where at a path a secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Line(usize),
    LinkTarget,
    Name,
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spot::Line(line) => write!(f, "line {line}"),
            Spot::LinkTarget => f.write_str("where the link points"),
            Spot::Name => f.write_str("its name"),
        }
    }
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
    /// The paths to bring along, but for those excluded.
    pub(super) to_add: Vec<Vec<u8>>,
    /// Those left out that git does not track, and ignores from now on.
    ignored: BTreeSet<String>,
}

impl Judged {
    /// What was left out, for the record: what git ignores is named once, by the stage at which
    /// it was left out first.
    pub(super) fn newly_left_out(&self, run: &Reconciled) -> Vec<LeftOut> {
        let earlier = |it: &LeftOut| {
            let mut named = run.phases.iter().flat_map(|phase| &phase.left_out);
            named.any(|named| (&named.path, &named.reason) == (&it.path, &it.reason))
        };
        let is_new = |it: &&LeftOut| !self.ignored.contains(&it.path) || !earlier(it);
        self.left_out.iter().filter(is_new).cloned().collect()
    }
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
        // Looked at anew each time: a large file may have become a small one.
        self.repo.set_left_out(&[])?;
        let surveyed = self.survey(base)?;
        let mut judged = Judged {
            exclude: Vec::new(),
            left_out: Vec::new(),
            secrets: Vec::new(),
            changed: 0,
            seen: BTreeSet::new(),
            to_add: Vec::new(),
            ignored: BTreeSet::new(),
        };
        for changed in &surveyed {
            let shown = String::from_utf8_lossy(&changed.path).into_owned();
            judged.seen.insert(changed.path.clone());
            let ours = changed.path.starts_with(b".dex/");
            let allowed = allow.iter().any(|pattern| matches(pattern, &shown));
            match changed.kind {
                ChangedKind::NestedRepo if self.repo.is_submodule(&changed.path)? => {
                    judged.to_add.extend(to_add(changed));
                    judged.changed += 1;
                }
                ChangedKind::NestedRepo => {
                    leave_out(&mut judged, changed, "nested_repository", None)
                }
                ChangedKind::File { bytes } if bytes > settings.max_file_bytes && !allowed => {
                    leave_out(&mut judged, changed, "too_large", Some(bytes));
                }
                ChangedKind::File { .. } | ChangedKind::Link => {
                    judged.to_add.extend(to_add(changed));
                    judged.changed += u64::from(!ours);
                    if !allowed {
                        judged.secrets.extend(self.secrets_at(changed));
                    }
                }
                ChangedKind::Deleted => {
                    judged.to_add.extend(to_add(changed));
                    judged.changed += u64::from(!ours);
                }
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
                unstaged: false,
            });
        }
        Ok(found)
    }

    /// Left-out files that git does not track become ignored until the next commit, so that the
    /// tree is clean after this one; only tracked ones have to be excluded by name.
    fn settle_exclusions(&self, judged: &mut Judged) -> Result<(), RunError> {
        let mut by_name = Vec::new();
        let mut lines = Vec::new();
        for path in judged.exclude.drain(..) {
            let shown = String::from_utf8_lossy(&path).into_owned();
            // A tracked file whose place a repository took is deleted, and that is untracked.
            let tracked = !judged.to_add.contains(&path) && self.repo.is_tracked(&path)?;
            // What only a folded commit tracks is untracked once that is folded.
            if !tracked || !self.is_in_tip(&shown)? {
                lines.push(gitdb::Repo::escape_exclude(&path));
                judged.ignored.insert(agents::redact::redact(&shown));
            }
            if tracked {
                by_name.push(path);
            }
        }
        self.repo.set_left_out(&lines)?;
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

    /// Likely secrets in a file, in where a link points, and in its path. The whole file, however
    /// large: all of it would be committed.
    pub(super) fn secrets_at(&self, changed: &Changed) -> Vec<Secret> {
        let shown = String::from_utf8_lossy(&changed.path).into_owned();
        let path = std::ffi::OsStr::from_bytes(&changed.path);
        let path = self.live.worktree.join(path);
        let in_name = agents::redact::find(&shown).into_iter();
        let mut found: Vec<(Spot, &'static str)> =
            in_name.map(|it| (Spot::Name, it.kind)).collect();
        // Gone meanwhile, or unreadable: git add will say so by name.
        if changed.kind == ChangedKind::Link {
            let target = std::fs::read_link(&path).unwrap_or_default();
            let hits = agents::redact::find(&target.to_string_lossy()).into_iter();
            found.extend(hits.map(|it| (Spot::LinkTarget, it.kind)));
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            let hits = agents::redact::find_in_file(&shown, &bytes).into_iter();
            found.extend(hits.map(|it| (Spot::Line(it.line), it.kind)));
        }
        let path = agents::redact::redact(&shown);
        found
            .into_iter()
            .map(|(place, kind)| Secret {
                path: path.clone(),
                place,
                kind,
            })
            .collect()
    }
}

/// What the index has to take over from the work tree.
fn to_add(changed: &Changed) -> Option<Vec<u8>> {
    changed.unstaged.then(|| changed.path.clone())
}

fn leave_out(judged: &mut Judged, changed: &Changed, reason: &str, bytes: Option<u64>) {
    judged.exclude.push(changed.path.clone());
    judged.left_out.push(LeftOut {
        path: agents::redact::redact(&String::from_utf8_lossy(&changed.path)),
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
    let most = 20;
    let mut lines: Vec<String> = found
        .iter()
        .take(most)
        .map(|it| {
            format!(
                "- {}, {}: looks like a secret ({})",
                it.path, it.place, it.kind
            )
        })
        .collect();
    if found.len() > most {
        lines.push(format!("- and {} more", found.len() - most));
    }
    format!(
        "These files hold what looks like a secret and cannot be committed:\n{}\nRemove it, or read it from the environment, or use an obviously false value.",
        lines.join("\n")
    )
}

/// For the person.
pub(super) fn explain_secrets(found: &[Secret]) -> String {
    let most = 5;
    let mut places: BTreeMap<&str, &Secret> = BTreeMap::new();
    for it in found {
        places.entry(it.path.as_str()).or_insert(it);
    }
    let mut shown: Vec<String> = places
        .values()
        .take(most)
        .map(|it| format!("{} {} ({})", it.path, it.place, it.kind))
        .collect();
    if places.len() > most {
        shown.push(format!("and {} more files", places.len() - most));
    }
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

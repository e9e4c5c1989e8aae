//! From a finished attempt to its commit, so that any step of it can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use gitdb::snapshot::{self, Changed, ChangedKind, Expected, Hooks, Landed, Meanwhile, Sign};
use gitdb::{Oid, undo};

use super::inputs::{self, Paths};
use super::{Event, RunError, Runner, Went};
use crate::element;
use crate::files::record::{CycleOutcome, LeftOut};
use crate::files::store;
use crate::live::{Committing, Finished, PauseReason, Work};
use crate::outcome::{self, Before, MACHINE_FILES};
use crate::reconcile::{Facts, Reconciled};

/// How often a commit is prepared anew because the index or the files changed meanwhile.
const ROUNDS: u32 = 3;

/// How committing went.
#[derive(Debug)]
pub(super) enum Committed {
    /// The stage is on the branch.
    Done,
    /// Likely secrets are in the way.
    Secrets(Vec<Secret>),
    /// The run has to pause; nothing was moved.
    Pause(PauseReason, String),
}

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
struct Judged {
    /// Literal paths to leave as they are in the parent.
    exclude: Vec<Vec<u8>>,
    left_out: Vec<LeftOut>,
    secrets: Vec<Secret>,
    /// Changed paths outside `.dex/`.
    changed: u64,
    seen: BTreeSet<Vec<u8>>,
    /// Those left out that git does not track, and ignores from now on.
    ignored: BTreeSet<String>,
}

impl Judged {
    /// What was left out, for the record: what git ignores is named once, by the stage at which
    /// it was left out first.
    fn newly_left_out(&self, run: &Reconciled) -> Vec<LeftOut> {
        let earlier = |it: &LeftOut| {
            let mut named = run.phases.iter().flat_map(|phase| &phase.left_out);
            named.any(|named| (&named.path, &named.reason) == (&it.path, &it.reason))
        };
        let is_new = |it: &&LeftOut| !self.ignored.contains(&it.path) || !earlier(it);
        self.left_out.iter().filter(is_new).cloned().collect()
    }
}

impl Runner<'_> {
    /// Commits what an earlier step, or an earlier process, left finished.
    pub(super) fn finish_what_is_left(&mut self) -> Result<Went, RunError> {
        match self.live.work.clone() {
            Work::Idle => Ok(Went::On),
            Work::Started(attempt) if self.control.wants_end() => {
                let why = format!("{} was stopped half-way", attempt.place().label());
                Ok(Went::Pause(PauseReason::UserAbort, why))
            }
            Work::Started(attempt) => Err(RunError::HalfDone(attempt.place().label())),
            Work::AgentFinished(done) => {
                if let Some(went) = self.take_answers()? {
                    return Ok(went);
                }
                // Killed before its questions were settled.
                if let Some(went) = self.settle_questions()? {
                    return Ok(went);
                }
                if self.is_only_a_part(&done) {
                    // Killed between two parts of `implement`: the next step goes on with the rest.
                    self.keep_part()?;
                    return Ok(Went::On);
                }
                if !self.verify_again()? {
                    return Ok(Went::On);
                }
                Ok(match self.commit_finished()? {
                    Committed::Done => Went::On,
                    Committed::Pause(reason, why) => Went::Pause(reason, why),
                    Committed::Secrets(found) => {
                        Went::Pause(PauseReason::NeedsInput, explain_secrets(&found))
                    }
                })
            }
            Work::Committing(committing) => self.recover(&committing),
        }
    }

    /// Whether parts of `implement` follow the one that finished.
    fn is_only_a_part(&self, done: &Finished) -> bool {
        let Some(number) = done.attempt.part else {
            return false;
        };
        let spec_dir = done.attempt.spec_dir.as_deref();
        let open = inputs::parts(&self.live.worktree, spec_dir, &self.live);
        open.iter().flatten().any(|it| it.phase.number != number)
    }

    /// Takes the answers a person gave with `dex answer` into the finished attempt.
    fn take_answers(&mut self) -> Result<Option<Went>, RunError> {
        let Some(question) = self.live.question.clone() else {
            return Ok(None);
        };
        if !question.asks.is_empty() {
            let why = format!("{} questions wait for an answer", question.asks.len());
            return Ok(Some(Went::Pause(PauseReason::NeedsInput, why)));
        }
        if let Work::AgentFinished(done) = &mut self.live.work {
            done.assumptions.extend(question.given);
        }
        self.live.question = None;
        self.live.write(&self.repo)?;
        Ok(None)
    }

    /// Commits the finished attempt of the live record. Every step can be repeated.
    pub(super) fn commit_finished(&mut self) -> Result<Committed, RunError> {
        let Work::AgentFinished(done) = self.live.work.clone() else {
            return Ok(Committed::Done);
        };
        let mut done = *done;
        let base = match self.what_the_agent_did(&mut done)? {
            Ok(base) => base,
            Err((reason, why)) => return Ok(Committed::Pause(reason, why)),
        };
        let (run, facts) = self.read()?;
        if done.cycle_outcome == Some(CycleOutcome::Skipped) {
            self.take_code_back(&run, &done)?;
        }
        for _ in 0..ROUNDS {
            let judged = self.judge_files(&base)?;
            if !judged.secrets.is_empty() {
                return Ok(Committed::Secrets(judged.secrets));
            }
            done.left_out = judged.newly_left_out(&run);
            self.write_dot_dex(&run, &facts, &done, judged.changed)?;
            let prepared = match self.prepare(&done, &base, &judged) {
                Ok(prepared) => prepared,
                Err(error) => return could_not_commit(error),
            };
            if !self.only_what_was_seen(&prepared, &judged)? {
                continue;
            }
            let place = done.attempt.place();
            self.live.work = Work::Committing(Box::new(Committing {
                prepared: prepared.clone(),
                checkpoint: place.checkpoint(),
            }));
            self.live.write(&self.repo)?;
            match snapshot::land(&self.repo, &prepared) {
                Ok(Landed::Done) => return self.landed(&prepared.commit, Some(&done)),
                Ok(Landed::HeadLeft) => {
                    self.notice("HEAD had left the run's branch; the index was left alone");
                    return self.landed(&prepared.commit, Some(&done));
                }
                Ok(Landed::IndexChanged) => {
                    self.live.work = Work::AgentFinished(Box::new(done.clone()));
                    self.live.write(&self.repo)?;
                }
                Err(error) => {
                    self.live.work = Work::AgentFinished(Box::new(done));
                    self.live.write(&self.repo)?;
                    return could_not_commit(error);
                }
            }
        }
        Ok(Committed::Pause(
            PauseReason::CouldNotCommit,
            format!("files or index kept changing; tried {ROUNDS} times"),
        ))
    }

    /// Looks at what the agent did to git; its commits are folded into the stage's. Gives the
    /// value the branch has now.
    fn what_the_agent_did(
        &mut self,
        done: &mut Finished,
    ) -> Result<Result<Oid, (PauseReason, String)>, RunError> {
        let branch = self.live.branch.clone();
        let start_tip = self.live.tip.clone();
        let expected = Expected {
            branch: &branch,
            start_tip: &start_tip,
        };
        let label = done.attempt.place().label();
        Ok(match snapshot::meanwhile(&self.repo, &expected)? {
            Meanwhile::Nothing => Ok(start_tip),
            Meanwhile::Committed { tip, .. }
                if done.tip_after.as_ref().unwrap_or(&start_tip) == &start_tip =>
            {
                // Commits a person made since the agent ended are built upon, never folded.
                self.live.tip = tip.clone();
                self.notice(&format!(
                    "commits made by hand since {label} are kept and built upon"
                ));
                Ok(tip)
            }
            Meanwhile::Committed { tip, commits } => {
                let ids: Vec<String> = commits.iter().map(Oid::to_string).collect();
                if done.agent_commits != ids {
                    self.undo_entry(
                        &format!("commits made during {label} were folded into it"),
                        vec![tip.clone()],
                    )?;
                    done.agent_commits = ids;
                    self.live.work = Work::AgentFinished(Box::new(done.clone()));
                    self.live.write(&self.repo)?;
                    self.notice(&format!(
                        "{} commits made during {label} are folded into it",
                        commits.len()
                    ));
                }
                Ok(tip)
            }
            Meanwhile::HeadMoved { tips } => {
                self.undo_entry(&format!("HEAD was moved during {label}"), tips)?;
                let why = format!(
                    "HEAD or the branch was moved during {label}; nothing was changed. Keep the files as they are with --keep, or go back to before the stage with --discard"
                );
                Err((PauseReason::HeadMoved, why))
            }
            Meanwhile::LeftOperation(operation) => Err((
                PauseReason::AgentLeftOperation,
                format!(
                    "a {operation:?} was left open during {label}; end or abort it, then resume"
                ),
            )),
        })
    }

    /// The code of a feature that is given up goes back to before its first `implement`; its
    /// specs and the history stay.
    fn take_code_back(&mut self, run: &Reconciled, done: &Finished) -> Result<(), RunError> {
        let Some(feature) = done.attempt.feature.as_deref() else {
            return Ok(());
        };
        let Some(before) = run.progress.before_code_of(feature).cloned() else {
            return Ok(());
        };
        self.undo_entry(&format!("the code of {feature} was taken back"), Vec::new())?;
        let mut keep = vec![PathBuf::from(".dex"), PathBuf::from("specs")];
        keep.extend(done.attempt.spec_dir.iter().map(PathBuf::from));
        self.restore(&before, &keep)
    }

    /// Looks at what would be committed before anything is stored.
    fn judge_files(&mut self, base: &Oid) -> Result<Judged, RunError> {
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
            ignored: BTreeSet::new(),
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
                ChangedKind::File { .. } | ChangedKind::Link => {
                    judged.changed += u64::from(!ours);
                    if !allowed {
                        judged.secrets.extend(self.secrets_at(changed));
                    }
                }
                ChangedKind::Deleted => judged.changed += u64::from(!ours),
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

    /// Left-out files that git does not track become ignored until the next commit, so that the
    /// tree is clean after this one; only tracked ones have to be excluded by name (`git add` refuses to exclude by name
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
                judged.ignored.insert(agents::redact::redact(&shown));
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

    /// Writes what the commit holds under `.dex/`.
    fn write_dot_dex(
        &mut self,
        run: &Reconciled,
        facts: &Facts,
        done: &Finished,
        changed: u64,
    ) -> Result<(), RunError> {
        let root = self.live.worktree.clone();
        let paths = Paths::of(&self.live.start.goal);
        let learnings = store::read(&root.join(".dex/learnings.md"))?
            .map(|it| String::from_utf8_lossy(&it).into_owned())
            .unwrap_or_default();
        let artifacts = inputs::artifacts(&root, &paths, done.attempt.stage, &done.ended_at);
        let clarified = store::read(&root.join(&paths.clarified))?.unwrap_or_default();
        let source_hash = inputs::sha256(&clarified);
        let record = facts
            .record
            .got()
            .filter(|it| it.run_id == self.live.run_id);
        let before = Before {
            run,
            live: &self.live,
            record,
            manifest: facts.manifest.got(),
            state: facts.state.got(),
            learnings: &learnings,
            parent: &self.live.tip,
            artifacts: &artifacts,
            source: (&source_hash, &paths.clarified),
        };
        let mut after = outcome::after(&before, done);
        if let Some(last) = after.record.phases.last_mut() {
            last.files_changed = Some(changed);
        }
        gitdb::fault::point("dotdex.before");
        for (path, bytes) in after.files() {
            let path = root.join(path);
            if store::read(&path).ok().flatten().as_deref() != Some(&bytes) {
                store::write(&root, &path, &bytes)?;
            }
        }
        gitdb::fault::point("dotdex.after");
        Ok(())
    }

    fn prepare(
        &self,
        done: &Finished,
        base: &Oid,
        judged: &Judged,
    ) -> Result<snapshot::Prepared, snapshot::SnapshotError> {
        let settings = &self.live.start.settings;
        let expected = Expected {
            branch: &self.live.branch,
            start_tip: &self.live.tip,
        };
        let sign = if settings.sign == "never" {
            Sign::Never
        } else {
            Sign::Auto
        };
        let hooks = if settings.hooks == "run" {
            Hooks::Run
        } else {
            Hooks::Skip
        };
        let message = done.attempt.place().message();
        snapshot::prepare(
            &self.repo,
            &expected,
            base,
            &message,
            &judged.exclude,
            sign,
            hooks,
        )
    }

    /// Nothing got into the commit that was not looked at.
    fn only_what_was_seen(
        &self,
        prepared: &snapshot::Prepared,
        judged: &Judged,
    ) -> Result<bool, RunError> {
        let changes = snapshot::changes(&self.repo, &self.live.tip, &prepared.commit)?;
        Ok(changes.iter().all(|it| {
            it.oid.is_none() || it.path.starts_with(b".dex/") || judged.seen.contains(&it.path)
        }))
    }

    /// The branch has the commit: nothing is unfinished any more.
    fn landed(&mut self, commit: &Oid, done: Option<&Finished>) -> Result<Committed, RunError> {
        let parts = std::mem::take(&mut self.live.finished_parts);
        self.live.tip = commit.clone();
        self.live.work = Work::Idle;
        self.live.attempts.clear();
        self.live.question = None;
        self.live.quota_until = None;
        self.live.write(&self.repo)?;
        self.drop_parts(&parts);
        let attempts = crate::live::Live::dir(&self.repo, &self.live.run_id).join("attempts");
        // Only ours, only scratch: what stays is removed at the next commit.
        let _ = std::fs::remove_dir_all(attempts);
        if let Some(done) = done {
            let mut phase = element::of_finished(done);
            phase.parent_sha = None;
            let place = done.attempt.place();
            self.observer.event(&Event::Committed {
                place: &place,
                commit,
                phase: &phase,
            });
        }
        Ok(Committed::Done)
    }

    fn drop_parts(&self, parts: &[crate::live::FinishedPart]) {
        if parts.is_empty() {
            return;
        }
        let Ok(entries) = undo::list(&self.repo) else {
            return;
        };
        for entry in entries
            .iter()
            .filter(|it| parts.iter().any(|part| part.entry == it.n))
        {
            // A leftover entry is one more thing that can be undone; it does no harm.
            let _ = undo::drop_entry(&self.repo, entry);
        }
    }

    /// Finishes a commit that a crash interrupted: the recorded object, never a new snapshot.
    fn recover(&mut self, committing: &Committing) -> Result<Went, RunError> {
        match snapshot::recover(&self.repo, &committing.prepared) {
            Ok(Landed::Done | Landed::HeadLeft) => {
                self.landed(&committing.prepared.commit, None)?;
                self.notice(&format!(
                    "{} was finished from before",
                    committing.checkpoint
                ));
                Ok(Went::On)
            }
            Ok(Landed::IndexChanged) => Ok(Went::Pause(
                PauseReason::CouldNotCommit,
                format!(
                    "the index changed while {} was being committed",
                    committing.checkpoint
                ),
            )),
            Err(error) => match could_not_commit(error)? {
                Committed::Pause(reason, why) => Ok(Went::Pause(reason, why)),
                Committed::Done | Committed::Secrets(_) => Ok(Went::On),
            },
        }
    }
}

fn could_not_commit(error: snapshot::SnapshotError) -> Result<Committed, RunError> {
    use gitdb::snapshot::SnapshotError as E;
    match &error {
        E::HeadMoved { .. } => Ok(Committed::Pause(PauseReason::HeadMoved, error.to_string())),
        E::FilterNotAllowed { .. } => Ok(Committed::Pause(
            PauseReason::CouldNotCommit,
            format!(
                "{error}, and only this repository's own configuration names it; `dex init --allow-filters` lets it run"
            ),
        )),
        E::BranchMoved { .. }
        | E::IndexBusy
        | E::Unmerged { .. }
        | E::Operation(_)
        | E::Add(_)
        | E::HookRejected { .. }
        | E::Signing(_) => Ok(Committed::Pause(
            PauseReason::CouldNotCommit,
            error.to_string(),
        )),
        E::Git(_) => Err(error.into()),
    }
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

//! Stage commits that lost their message.

use gitdb::Oid;

use super::Facts;
use crate::files::record::{Phase, PhaseStatus};
use crate::progress;
use crate::stage::Place;

/// A stage commit whose message was amended away. Without its two lines it is no stage commit,
/// for stock git either, so the stage does not count; and doing it again would pay twice for
/// what is there. A person says which: the message comes back, or the commit is reverted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmarked {
    /// The commit as it is now.
    pub commit: Oid,
    /// The stage whose work it holds.
    pub place: Place,
    /// Its first parent.
    pub parent: Oid,
    /// Whether it is the newest of the branch.
    pub is_tip: bool,
}

impl Unmarked {
    /// What a person types to make it count again.
    pub fn way_back(&self) -> String {
        let message = self.place.message();
        let (subject, marker) = message.trim_end().split_once('\n').expect("two lines");
        if self.is_tip {
            return format!("`git commit --amend -m '{subject}' -m '{marker}'`");
        }
        format!(
            "`git rebase -i {}`: mark {} with `reword`, and write these two lines: `{subject}` and `{marker}`",
            self.parent.short(),
            self.commit.short()
        )
    }

    /// What a person types to have the stage done again.
    pub fn way_on(&self) -> String {
        format!("`git revert {}`", self.commit.short())
    }
}

/// Finds commits that the record knows as a stage's, by the parent it started from and had, and
/// that do not say so.
pub(super) fn unmarked(facts: &Facts) -> Vec<Unmarked> {
    let recorded = progress::phases(facts.record.got());
    let reverted = progress::reverted_ids(&facts.commits);
    let mut found = Vec::new();
    for (at, commit) in facts.commits.iter().enumerate() {
        let Some(parent) = commit.parents.first() else {
            continue;
        };
        if commit.stage.is_some() || reverted.contains(commit.oid.as_str()) {
            continue;
        }
        let of_commit = |it: &&Phase| {
            it.status == PhaseStatus::Completed
                && it.checkpoint.is_some()
                && it.parent_sha.as_deref() == Some(parent.as_str())
        };
        let Some(place) = recorded.iter().rfind(of_commit).and_then(place_of) else {
            continue;
        };
        // Done again since, or a commit of a person's just before the stage's own.
        let mut newer = facts.commits[..at].iter();
        let settled = newer.any(|it| {
            let stage = it.stage.as_ref().and_then(progress::place_of);
            stage.is_some_and(|it| it.stage == place.stage && it.cycle == place.cycle)
        });
        if !settled {
            found.push(Unmarked {
                commit: commit.oid.clone(),
                place,
                parent: parent.clone(),
                is_tip: at == 0,
            });
        }
    }
    found.reverse();
    found
}

fn place_of(phase: &Phase) -> Option<Place> {
    Some(Place {
        stage: phase.stage.as_ref()?.parse().ok()?,
        cycle: phase.cycle.unwrap_or(0),
        feature: phase.feature.clone(),
    })
}

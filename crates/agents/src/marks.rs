//! What an attempt added to a session whose CLI reports running totals.
//!
//! Two CLIs do, each in its way: what Claude Code reports for a resumed session is the session's
//! total in some versions and the attempt's own in others; Codex reports the thread's total.
//! [`Marks`] remembers what a session had reached, in a small file beside the attempts of a run
//! ([`Marks::path`]), and [`Marks::added`] subtracts it when, and only when, the new total leaves
//! room for the tokens that were seen on the stream.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ending::failed;
use crate::{Ended, Failure, Usage};

/// Marks kept for one session; the oldest goes first.
const MAX_MARKS: usize = 8;

/// Tokens and micro-dollars: of an attempt, or a session's running total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spent {
    pub(crate) cost_micro_usd: u64,
    /// Fresh input and input written to a cache.
    pub(crate) input_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) output_tokens: u64,
}

impl Spent {
    /// What is here beyond `mark`; none when anything is less.
    pub(crate) fn beyond(self, mark: Spent) -> Option<Spent> {
        Some(Spent {
            cost_micro_usd: self.cost_micro_usd.checked_sub(mark.cost_micro_usd)?,
            input_tokens: self.input_tokens.checked_sub(mark.input_tokens)?,
            cached_tokens: self.cached_tokens.checked_sub(mark.cached_tokens)?,
            output_tokens: self.output_tokens.checked_sub(mark.output_tokens)?,
        })
    }

    pub(crate) fn plus(self, more: Spent) -> Spent {
        Spent {
            cost_micro_usd: self.cost_micro_usd.saturating_add(more.cost_micro_usd),
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            cached_tokens: self.cached_tokens.saturating_add(more.cached_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
        }
    }

    fn holds(self, seen: Spent) -> bool {
        self.input_tokens >= seen.input_tokens && self.cached_tokens >= seen.cached_tokens
    }

    pub(crate) fn usage(self) -> Usage {
        Usage {
            cost_micro_usd: Some(self.cost_micro_usd),
            input_tokens: Some(self.input_tokens),
            output_tokens: Some(self.output_tokens),
            cached_tokens: Some(self.cached_tokens),
        }
    }
}

/// What a session's running total had reached, as far as we know.
///
/// Usually one mark. An ended attempt without a total adds another: the CLI may or may not have
/// saved what that attempt used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marks {
    #[serde(default)]
    marks: Vec<Spent>,
}

impl Marks {
    /// Where a session's marks are: beside the attempts' scratch directories.
    pub(crate) fn path(scratch: &Path, agent: &str, session: &str) -> PathBuf {
        let dir = scratch.parent().unwrap_or(scratch);
        // The id may be the agent's text.
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let session: String = session.chars().filter(plain).take(100).collect();
        dir.join(format!("{agent}-session-{session}.json"))
    }

    /// Reads them. A missing or damaged file means no mark, so at worst a cost is counted twice:
    /// the side on which a spending limit still holds.
    pub(crate) fn load(path: &Path) -> Marks {
        let text = std::fs::read(path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes them. Not being able to is not silent: the next attempt of the session would count
    /// this one again.
    pub(crate) fn keep(&self, path: &Path, ended: &mut Ended) {
        if let Err(error) = self.save(path)
            && *ended == Ended::Finished
        {
            let detail = format!("could not write {}: {error}", path.display());
            *ended = failed(Failure::AgentError, detail);
        }
    }

    /// Writes them: a new file, renamed over the old one.
    fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let new = path.with_extension("json.new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, path)
    }

    /// What an attempt added, given the total the CLI reported and what was seen on the stream:
    /// the total beyond the highest mark that leaves room for what was seen. Without such a mark
    /// the total is the attempt's own.
    pub(crate) fn added(&self, total: Spent, seen: Spent) -> Spent {
        let beyond = self.marks.iter().filter_map(|mark| total.beyond(*mark));
        let fitting = beyond.filter(|it| it.holds(seen));
        let least = fitting.min_by_key(|it| (it.cost_micro_usd, it.input_tokens));
        least.unwrap_or(total)
    }

    /// What the session has cost at most.
    pub(crate) fn cost_micro_usd(&self) -> u64 {
        self.highest().cost_micro_usd
    }

    fn highest(&self) -> Spent {
        let all = self.marks.iter();
        let highest = all.max_by_key(|it| (it.cost_micro_usd, it.input_tokens));
        highest.copied().unwrap_or_default()
    }

    /// After an attempt that reported a total.
    pub(crate) fn reached(total: Spent) -> Marks {
        Marks { marks: vec![total] }
    }

    /// After an attempt that reported none.
    pub(crate) fn perhaps(&self, estimate: Spent) -> Marks {
        let mut marks = self.marks.clone();
        marks.push(self.highest().plus(estimate));
        let surplus = marks.len().saturating_sub(MAX_MARKS);
        marks.drain(..surplus);
        Marks { marks }
    }
}

#[cfg(test)]
mod tests {
    use super::{Marks, Spent};

    fn spent(cost: u64, input: u64) -> Spent {
        Spent {
            cost_micro_usd: cost,
            input_tokens: input,
            ..Spent::default()
        }
    }

    #[test]
    fn a_running_total_is_counted_once_and_an_own_total_whole() {
        let marks = Marks::reached(spent(7_500, 2_000));
        // A CLI that reports the session's running total.
        assert_eq!(
            marks.added(spent(11_250, 3_000), spent(0, 1_000)),
            spent(3_750, 1_000)
        );
        // A CLI that reports this invocation only, less and more than the mark.
        assert_eq!(
            marks.added(spent(3_750, 1_000), spent(0, 1_000)),
            spent(3_750, 1_000)
        );
        assert_eq!(
            marks.added(spent(9_000, 2_400), spent(0, 2_400)),
            spent(9_000, 2_400)
        );
    }

    #[test]
    fn after_a_killed_attempt_the_total_counts_with_or_without_it() {
        let marks = Marks::reached(spent(7_500, 2_000)).perhaps(spent(3_750, 1_000));
        // The CLI had saved the killed attempt: 2000 + 1000, then 500 more.
        assert_eq!(
            marks.added(spent(13_000, 3_500), spent(0, 500)),
            spent(1_750, 500)
        );
        // It had not.
        assert_eq!(
            marks.added(spent(9_250, 2_500), spent(0, 500)),
            spent(1_750, 500)
        );
    }

    #[test]
    fn marks_survive_a_file_and_a_damaged_file_is_no_mark() {
        let dir = tempfile::tempdir().unwrap();
        let path = Marks::path(&dir.path().join("attempt-1"), "claude", "s");
        assert_eq!(Marks::load(&path), Marks::default());
        let marks = Marks::reached(spent(1, 2)).perhaps(spent(3, 4));
        marks.save(&path).unwrap();
        assert_eq!(Marks::load(&path), marks);
        std::fs::write(&path, "{\"marks\": [").unwrap();
        assert_eq!(Marks::load(&path), Marks::default());
    }
}

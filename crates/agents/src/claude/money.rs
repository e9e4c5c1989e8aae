//! What an attempt cost, when the CLI reports a session's total.
//!
//! `total_cost_usd` and `modelUsage` of the last line mean different things in different versions
//! of the CLI: measured, a resumed session reports only the new invocation in 2.1.197 and the
//! whole session's running total in 2.1.332. [`Marks`] remembers what a session had reached, in a
//! small file beside the attempts of a run ([`Marks::path`]), and [`Marks::added`] subtracts it
//! when, and only when, the new total leaves room for the tokens that were seen on the stream.
//!
//! An attempt that was ended before its last line has no total at all. Its cost is then estimated
//! from the tokens seen and list prices ([`estimate_micro_usd`]), because a cost of nothing would
//! let a run that is stopped again and again spend without limit.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Usage;

/// Marks kept for one session; the oldest goes first.
const MAX_MARKS: usize = 8;

/// Tokens and micro-dollars: of an attempt, or a session's running total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spent {
    pub(super) cost_micro_usd: u64,
    /// Fresh input and input written to a cache.
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) output_tokens: u64,
}

impl Spent {
    /// What is here beyond `mark`; none when anything is less.
    pub(super) fn beyond(self, mark: Spent) -> Option<Spent> {
        Some(Spent {
            cost_micro_usd: self.cost_micro_usd.checked_sub(mark.cost_micro_usd)?,
            input_tokens: self.input_tokens.checked_sub(mark.input_tokens)?,
            cached_tokens: self.cached_tokens.checked_sub(mark.cached_tokens)?,
            output_tokens: self.output_tokens.checked_sub(mark.output_tokens)?,
        })
    }

    pub(super) fn plus(self, more: Spent) -> Spent {
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

    pub(super) fn usage(self) -> Usage {
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
pub(super) struct Marks {
    #[serde(default)]
    marks: Vec<Spent>,
}

impl Marks {
    /// Where a session's marks are: beside the attempts' scratch directories.
    pub(super) fn path(scratch: &Path, session: &str) -> PathBuf {
        let dir = scratch.parent().unwrap_or(scratch);
        dir.join(format!("claude-session-{session}.json"))
    }

    /// Reads them. A missing or damaged file means no mark, so at worst a cost is counted twice:
    /// the side on which a spending limit still holds.
    pub(super) fn load(path: &Path) -> Marks {
        let text = std::fs::read(path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes them: a new file, renamed over the old one.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let new = path.with_extension("json.new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, path)
    }

    /// What an attempt added, given the total the CLI reported and what was seen on the stream:
    /// the total beyond the highest mark that leaves room for what was seen. Without such a mark
    /// the total is the attempt's own.
    pub(super) fn added(&self, total: Spent, seen: Spent) -> Spent {
        let beyond = self.marks.iter().filter_map(|mark| total.beyond(*mark));
        let fitting = beyond.filter(|it| it.holds(seen));
        fitting.min_by_key(|it| it.cost_micro_usd).unwrap_or(total)
    }

    /// After an attempt that reported a total.
    pub(super) fn reached(total: Spent) -> Marks {
        Marks { marks: vec![total] }
    }

    /// After an attempt that reported none.
    pub(super) fn perhaps(&self, estimate: Spent) -> Marks {
        let highest = self.marks.iter().max_by_key(|it| it.cost_micro_usd);
        let mut marks = self.marks.clone();
        marks.push(highest.copied().unwrap_or_default().plus(estimate));
        let surplus = marks.len().saturating_sub(MAX_MARKS);
        marks.drain(..surplus);
        Marks { marks }
    }
}

/// Dollars, as a JSON number, in micro-dollars; a negative or absurd number is none.
pub(crate) fn micro_usd(dollars: f64) -> Option<u64> {
    let micro = (dollars * 1e6).round();
    // Beyond a billion dollars it is a mistake, and below that the conversion is exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked"
    )]
    (0.0..1e15).contains(&micro).then_some(micro as u64)
}

/// List price of the tokens seen, for an attempt that reported no cost.
///
/// Deliberately coarse: model families, not models. Unknown ones cost as much as the dearest
/// current family. Used when there is nothing better, and as the line past which we end an agent
/// that ignores its own budget.
pub(super) fn estimate_micro_usd(model: &str, seen: Spent) -> u64 {
    // Dollars per million tokens, which is micro-dollars per token: input, output.
    let (input, output) = if model.contains("haiku") {
        (1, 5)
    } else if model.contains("sonnet") {
        (3, 15)
    } else if ["opus-4-0", "opus-4-1", "opus-4-2", "3-opus"]
        .iter()
        .any(|old| model.contains(old))
    {
        (15, 75)
    } else {
        (5, 25)
    };
    let fresh = seen.input_tokens.saturating_mul(input);
    let cached = seen.cached_tokens.saturating_mul(input) / 10;
    let output = seen.output_tokens.saturating_mul(output);
    fresh.saturating_add(cached).saturating_add(output)
}

#[cfg(test)]
mod tests {
    use super::{Marks, Spent, estimate_micro_usd, micro_usd};

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
        let path = Marks::path(&dir.path().join("attempt-1"), "s");
        assert_eq!(Marks::load(&path), Marks::default());
        let marks = Marks::reached(spent(1, 2)).perhaps(spent(3, 4));
        marks.save(&path).unwrap();
        assert_eq!(Marks::load(&path), marks);
        std::fs::write(&path, "{\"marks\": [").unwrap();
        assert_eq!(Marks::load(&path), Marks::default());
    }

    #[test]
    fn money_is_whole_micro_dollars_and_never_absurd() {
        assert_eq!(micro_usd(0.013_769_999_999_999_998), Some(13_770));
        assert_eq!(micro_usd(-1.0), None);
        assert_eq!(micro_usd(f64::NAN), None);
        assert_eq!(micro_usd(1e300), None);
        assert_eq!(
            estimate_micro_usd("claude-sonnet-4-5", spent(0, 1_000)),
            3_000
        );
        assert_eq!(
            estimate_micro_usd("who-knows", spent(0, u64::MAX)),
            u64::MAX
        );
    }
}

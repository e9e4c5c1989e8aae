//! What an attempt cost: the CLI's dollars, or the list price of the tokens seen.
//!
//! `total_cost_usd` and `modelUsage` of the last line mean different things in different versions
//! of the CLI: measured, a resumed session reports only the new invocation in 2.1.197 and the
//! whole session's running total in 2.1.332. [`crate::marks`] tells them apart.
//!
//! An attempt that was ended before its last line has no total at all. Its cost is then estimated
//! from the tokens seen and list prices ([`estimate_micro_usd`]), because a cost of nothing would
//! let a run that is stopped again and again spend without limit.

use crate::marks::Spent;

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
    use super::{Spent, estimate_micro_usd, micro_usd};

    fn spent(cost: u64, input: u64) -> Spent {
        Spent {
            cost_micro_usd: cost,
            input_tokens: input,
            ..Spent::default()
        }
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

//! The files under `.dex/` and beside it. One type each, which both reads and writes it;
//! unknown fields survive a rewrite.

pub mod learnings;
pub mod lock;
pub mod manifest;
pub mod record;
pub mod state;
pub mod store;
pub mod tasks;

/// Money in dollars as Dex's own files keep it, exact to the micro-dollar.
pub fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// Dollars from a file as micro-dollars; negative or non-finite values count as none.
pub fn micro(dollars: f64) -> u64 {
    if dollars.is_finite() && dollars > 0.0 {
        (dollars * 1e6).round() as u64
    } else {
        0
    }
}

/// Dollars in a file: whole amounts without a fraction, as the existing Dex writes them, so a
/// rewrite does not change a file that says `0`.
mod usd {
    use serde::Serializer;

    #[expect(
        clippy::ref_option,
        reason = "the signature that serde's `serialize_with` calls"
    )]
    pub(super) fn write<S: Serializer>(value: &Option<f64>, out: S) -> Result<S::Ok, S::Error> {
        /// Beyond it a float does not hold every integer.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match value {
            None => out.serialize_none(),
            // A negative zero keeps its sign, or it would not read back as it was.
            Some(it)
                if it.fract() == 0.0
                    && it.abs() < EXACT
                    && !(*it == 0.0 && it.is_sign_negative()) =>
            {
                out.serialize_i64(*it as i64)
            }
            Some(it) => out.serialize_f64(*it),
        }
    }
}

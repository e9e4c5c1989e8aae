//! The files under `.dex/` and beside it. One type each, which both reads and writes it;
//! unknown fields survive a rewrite.

pub mod learnings;
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

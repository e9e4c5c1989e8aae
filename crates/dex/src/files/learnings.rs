//! `.dex/learnings.md`: what was learned, grown across cycles. Our rewrite keeps every line it
//! does not understand.

/// One learning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insight {
    /// `build`, `testing`, `api`, `architecture`, `tooling`, `workaround`, or another word.
    pub category: String,
    /// What was learned.
    pub insight: String,
    /// Where.
    pub context: String,
}

/// The file with new insights added: grouped by category in first-seen order, duplicates
/// (by lower-case, collapsed white space) left out, at most `max_per_category` (the newest) of
/// each, unknown lines kept where they stand. Unchanged bytes when nothing is new.
pub fn add(_file: &str, _new: &[Insight], _max_per_category: usize) -> String {
    todo!()
}

/// The last lines worth telling an agent, at most `max_bytes`.
pub fn tail(_file: &str, _max_bytes: usize) -> String {
    todo!()
}

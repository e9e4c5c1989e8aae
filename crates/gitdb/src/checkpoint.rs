//! The message of a stage commit: one line for people, one for machines.
//!
//! ```text
//! dex: plan completed [cycle:2] [feature:product-catalogue]
//! [checkpoint:plan:2]
//! ```
//!
//! Exactly two lines, LF between and after, nothing else. Readers also accept what older
//! versions wrote: a blank line between the two (two `-m`), no feature, ` [cost:$d.dd]` after
//! the feature, a missing second line, CRLF. A marker in the middle of prose is never accepted:
//! the first line must match as a whole and the second must agree with it.
//!
//! Git folds the two adjacent lines into one subject, so callers parse the raw body (`%B`).

use std::{fmt, str::FromStr};

/// The text is not what a stage commit's message looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint")]
pub struct NotACheckpoint;

/// A stage's name: `[a-z][a-z0-9_]*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageName(String);

/// The feature of a stage commit: a slug of `[A-Za-z0-9._/-]`, or none (`-`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FeatureSlug(String);

/// The machine half, `[checkpoint:plan:2]`. `Display` and `FromStr` are strict inverses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// The stage that finished.
    pub stage: StageName,
    /// The cycle it belongs to; 0 for stages that run once per run.
    pub cycle: u32,
}

/// The whole message of a stage commit. `Display` writes our two lines (with the final LF).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageMessage {
    /// Stage and cycle.
    pub checkpoint: Checkpoint,
    /// The feature, none for `-` or where an older version wrote none.
    pub feature: Option<FeatureSlug>,
}

impl StageName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FeatureSlug {
    /// The slug as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StageName {
    type Err = NotACheckpoint;
    fn from_str(_text: &str) -> Result<Self, NotACheckpoint> {
        todo!()
    }
}

impl FromStr for FeatureSlug {
    type Err = NotACheckpoint;
    fn from_str(_text: &str) -> Result<Self, NotACheckpoint> {
        todo!()
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl FromStr for Checkpoint {
    type Err = NotACheckpoint;
    fn from_str(_line: &str) -> Result<Self, NotACheckpoint> {
        todo!()
    }
}

impl fmt::Display for StageMessage {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl StageMessage {
    /// Reads the raw message of any commit, also as older versions wrote it.
    pub fn read(_raw: &str) -> Result<StageMessage, NotACheckpoint> {
        todo!()
    }
}

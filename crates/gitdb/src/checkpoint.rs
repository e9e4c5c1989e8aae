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

    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if first && rest {
            Ok(StageName(text.to_owned()))
        } else {
            Err(NotACheckpoint)
        }
    }
}

impl FromStr for FeatureSlug {
    type Err = NotACheckpoint;

    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let known = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-'));
        // A lone dash is how "no feature" is written.
        if known && !text.is_empty() && text != "-" {
            Ok(FeatureSlug(text.to_owned()))
        } else {
            Err(NotACheckpoint)
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for FeatureSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[checkpoint:{}:{}]", self.stage, self.cycle)
    }
}

impl FromStr for Checkpoint {
    type Err = NotACheckpoint;

    fn from_str(line: &str) -> Result<Self, NotACheckpoint> {
        let fields = line
            .strip_prefix("[checkpoint:")
            .and_then(|rest| rest.strip_suffix(']'));
        let (stage, cycle) = fields
            .and_then(|it| it.split_once(':'))
            .ok_or(NotACheckpoint)?;
        Ok(Checkpoint {
            stage: stage.parse()?,
            cycle: read_cycle(cycle)?,
        })
    }
}

impl fmt::Display for StageMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checkpoint { stage, cycle } = &self.checkpoint;
        let feature = self.feature.as_ref().map_or("-", FeatureSlug::as_str);
        writeln!(
            f,
            "dex: {stage} completed [cycle:{cycle}] [feature:{feature}]"
        )?;
        writeln!(f, "{}", self.checkpoint)
    }
}

/// Exactly what we write, both lines and the final LF. For older spellings there is
/// [`StageMessage::read`].
impl FromStr for StageMessage {
    type Err = NotACheckpoint;

    fn from_str(text: &str) -> Result<Self, NotACheckpoint> {
        let message = StageMessage::read(text)?;
        // One spelling per message: what reads leniently is not all that we would write.
        if message.to_string() == text {
            Ok(message)
        } else {
            Err(NotACheckpoint)
        }
    }
}

impl StageMessage {
    /// Reads the raw message of any commit, also as older versions wrote it.
    pub fn read(raw: &str) -> Result<StageMessage, NotACheckpoint> {
        let mut lines = raw
            .split('\n')
            .map(|line| line.strip_suffix('\r').unwrap_or(line));
        let message = read_first_line(lines.next().ok_or(NotACheckpoint)?)?;
        // At most one blank line, and only between the two.
        let mut second = lines.next().unwrap_or("");
        if second.is_empty() {
            second = lines.next().unwrap_or("");
        }
        if !second.is_empty() && second.parse::<Checkpoint>()? != message.checkpoint {
            return Err(NotACheckpoint);
        }
        if lines.all(str::is_empty) {
            Ok(message)
        } else {
            Err(NotACheckpoint)
        }
    }
}

/// `dex: plan completed [cycle:2] [feature:x] [cost:$0.12]`, the last two optional.
fn read_first_line(line: &str) -> Result<StageMessage, NotACheckpoint> {
    let rest = line.strip_prefix("dex: ").ok_or(NotACheckpoint)?;
    let (stage, rest) = rest
        .split_once(" completed [cycle:")
        .ok_or(NotACheckpoint)?;
    let (cycle, mut rest) = rest.split_once(']').ok_or(NotACheckpoint)?;
    let mut feature = None;
    if let Some(tail) = rest.strip_prefix(" [feature:") {
        let (slug, tail) = tail.split_once(']').ok_or(NotACheckpoint)?;
        if slug != "-" {
            feature = Some(slug.parse()?);
        }
        rest = tail;
    }
    if let Some(tail) = rest.strip_prefix(" [cost:$") {
        rest = after_cost(tail).ok_or(NotACheckpoint)?;
    }
    if !rest.is_empty() {
        return Err(NotACheckpoint);
    }
    Ok(StageMessage {
        checkpoint: Checkpoint {
            stage: stage.parse()?,
            cycle: read_cycle(cycle)?,
        },
        feature,
    })
}

/// What follows `d.dd]`.
fn after_cost(tail: &str) -> Option<&str> {
    let (cost, rest) = tail.split_once(']')?;
    let (whole, cents) = cost.split_once('.')?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let fits = !whole.is_empty() && cents.len() == 2 && digits(whole) && digits(cents);
    fits.then_some(rest)
}

/// One spelling per number: `+2` and `02` are numbers, but not ours.
fn read_cycle(text: &str) -> Result<u32, NotACheckpoint> {
    let cycle: u32 = text.parse().map_err(|_| NotACheckpoint)?;
    if cycle.to_string() == text {
        Ok(cycle)
    } else {
        Err(NotACheckpoint)
    }
}

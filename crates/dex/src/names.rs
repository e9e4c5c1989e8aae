//! Every ref we write, and the names of runs. There is no other place.

use std::fmt;

use uuid::Uuid;

/// Prefix of run branches, as full ref names.
pub const RUN_BRANCHES: &str = "refs/heads/dex/";

/// Prefix of undo entries. No branch, no tag, never pushed by us.
pub const UNDO_ENTRIES: &str = "refs/dex-local/undo/";

/// A branch of this name would make every `dex/…` branch impossible (case D10).
pub const BLOCKING_BRANCH: &str = "refs/heads/dex";

/// A run's id: a UUIDv7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// A new one for this moment.
    pub fn new() -> RunId {
        RunId(Uuid::now_v7())
    }

    /// The last six hex digits, which end the branch's name.
    pub fn short(&self) -> String {
        let hex = self.0.simple().to_string();
        hex[hex.len() - 6..].to_owned()
    }
}

impl Default for RunId {
    fn default() -> Self {
        RunId::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for RunId {
    type Err = NotARun;

    fn from_str(text: &str) -> Result<Self, NotARun> {
        let id = Uuid::parse_str(text).map_err(|_| NotARun)?;
        let parsed = RunId(id);
        if parsed.to_string() == text {
            Ok(parsed)
        } else {
            Err(NotARun)
        }
    }
}

/// The text names no run of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a run")]
pub struct NotARun;

/// A run's branch: `dex/<YYYY-MM-DD>-<6 hex>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunBranch {
    date: String,
    id: String,
}

impl RunBranch {
    /// The branch of a run that starts on this UTC date.
    pub fn new(date: jiff::civil::Date, id: &RunId) -> RunBranch {
        RunBranch {
            date: date.to_string(),
            id: id.short(),
        }
    }

    /// Without `refs/heads/`.
    pub fn short(&self) -> String {
        format!("dex/{}-{}", self.date, self.id)
    }

    /// The full ref name.
    pub fn full(&self) -> String {
        format!("refs/heads/{}", self.short())
    }

    /// The six hex digits it shares with its run id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Reads a short or full branch name.
    pub fn read(name: &str) -> Result<RunBranch, NotARun> {
        let short = name.strip_prefix("refs/heads/").unwrap_or(name);
        let rest = short.strip_prefix("dex/").ok_or(NotARun)?;
        let (date, id) = rest.split_at_checked(10).ok_or(NotARun)?;
        let id = id.strip_prefix('-').ok_or(NotARun)?;
        let hex = id.len() == 6 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let real_date = date
            .parse::<jiff::civil::Date>()
            .is_ok_and(|it| it.to_string() == date);
        if hex && real_date {
            Ok(RunBranch {
                date: date.to_owned(),
                id: id.to_owned(),
            })
        } else {
            Err(NotARun)
        }
    }
}

impl fmt::Display for RunBranch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_branch_is_found_from_its_id_and_back() {
        let id: RunId = "01932f5e-3c8a-7b21-9f00-aabbccddeeff".parse().unwrap();
        let branch = RunBranch::new("2026-11-30".parse().unwrap(), &id);
        assert_eq!(branch.full(), "refs/heads/dex/2026-11-30-ddeeff");
        assert_eq!(RunBranch::read(&branch.short()), Ok(branch.clone()));
        assert_eq!(RunBranch::read(&branch.full()), Ok(branch));
    }

    #[test]
    fn look_alikes_are_not_runs() {
        for name in [
            "main",
            "dex/x",
            "dex/2026-11-30-DDEEFF",
            "dex/2026-13-30-ddeeff",
            "dex/2026-11-30-ddeef",
            "dex/2026-11-30-ddeeff0",
            "dex/2026-11-30ddeeff1",
            "dex/ä26-11-30-ddeeff",
        ] {
            assert_eq!(RunBranch::read(name), Err(NotARun), "{name}");
        }
    }
}

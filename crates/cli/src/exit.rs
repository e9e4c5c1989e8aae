//! Exit codes, documented in `dex help` and the manual pages.

/// What the process ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed.
    Failed,
    /// Usage or configuration.
    Usage,
    /// Not found.
    NotFound,
    /// Agent missing or not logged in.
    Agent,
    /// Something moved, or conflicts.
    Moved,
    /// Verify failed.
    Verify,
    /// A cap was hit.
    Cap,
    /// Locked by another process.
    Locked,
    /// Waiting for an answer or a decision.
    Waiting,
    /// Ended by a signal.
    Signal(u8),
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Agent => 4,
            Exit::Moved => 5,
            Exit::Verify => 6,
            Exit::Cap => 7,
            Exit::Locked => 8,
            Exit::Waiting => 9,
            Exit::Signal(number) => 128 + number,
        }
    }
}

/// The table, for help and manual pages.
pub const TABLE: &str = "\
Exit codes:
  0  done                      5  something moved, or conflicts
  1  failed                    6  verify failed
  2  usage or configuration    7  a cap was hit
  3  not found                 8  locked by another process
  4  agent missing or not      9  waiting for an answer
     logged in                 129, 130, 143  terminal closed, interrupted,
                                              terminated";

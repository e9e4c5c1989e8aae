//! `dex completions` and `dex man`

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn completions(_args: &args::Completions) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

/// Not there yet.
pub fn man(_args: &args::Man) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

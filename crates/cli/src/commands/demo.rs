//! `dex demo`

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn demo(_args: &args::Demo) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

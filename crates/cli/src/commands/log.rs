//! `dex log`

use std::path::Path;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn log(_dir: &Path, _args: &args::Log) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

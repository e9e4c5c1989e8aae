//! `dex config`

use std::path::Path;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn config(_dir: &Path, _args: &args::Config) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

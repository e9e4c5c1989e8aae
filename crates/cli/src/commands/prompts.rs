//! `dex prompts`

use std::path::Path;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn prompts(_dir: &Path, _args: &args::Prompts) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

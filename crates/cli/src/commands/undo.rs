//! `dex undo` and `dex redo`

use std::path::Path;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn undo(_dir: &Path, _args: &args::Undo) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

/// Not there yet.
pub fn redo(_dir: &Path, _args: &args::Redo) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

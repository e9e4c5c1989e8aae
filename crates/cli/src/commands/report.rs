//! `dex report`

use std::path::Path;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;

/// Not there yet.
pub fn report(_dir: &Path, _args: &args::Report) -> Result<Exit, Failure> {
    Err(Failure::new(Exit::Failed, "not there yet"))
}

/// Shown when a run ends or stops.
pub fn after_run(_repo: &gitdb::Repo, _run_id: &str) -> Result<(), Failure> {
    Ok(())
}

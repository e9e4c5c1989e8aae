//! `dex stop`

use std::path::Path;
use std::time::{Duration, Instant};

use dex::facts;
use dex::run::{StopRequest, request_stop};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui;

/// How long `--now` waits for the run to let go.
const WAIT: Duration = Duration::from_secs(20);

/// Asks a run to stop, and says what came of it.
pub fn stop(dir: &Path, args: &args::Stop) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = facts::find(&repo, args.run.as_deref())?;
    let facts = facts::read(&repo, &known)?;
    let (Some(_), Some(live)) = (facts.running, &facts.live) else {
        ui::talk(format!("{} is not running; nothing was stopped", known.branch));
        return Ok(Exit::Done);
    };
    let when = if args.now { StopRequest::Now } else { StopRequest::AfterStage };
    request_stop(&repo, &live.run_id, when)?;
    if !args.now {
        ui::talk(format!("{} stops after the stage in progress", known.branch));
        return Ok(Exit::Done);
    }
    let began = Instant::now();
    while began.elapsed() < WAIT {
        std::thread::sleep(Duration::from_millis(100));
        // The report is read again from disk, never assumed (case K04).
        if facts::read(&repo, &known)?.running.is_none() {
            ui::talk(format!("{} has stopped; go on with `dex resume`", known.branch));
            return Ok(Exit::Done);
        }
    }
    Err(Failure::new(Exit::Failed, format!("{} was asked to stop and still runs", known.branch))
        .hint("Look again with `dex status`."))
}

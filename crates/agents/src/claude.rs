//! Claude Code, headless (`claude -p … --output-format stream-json`).

use std::path::PathBuf;

use crate::{Agent, Availability, Outcome, Request, Sink, Stop};

/// The Claude Code CLI.
#[derive(Debug)]
pub struct Claude {
    /// The program; `claude` on PATH by default.
    pub program: PathBuf,
}

impl Agent for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn availability(&self) -> Availability {
        todo!()
    }

    fn run(&self, _request: &Request, _sink: &mut Sink<'_>, _stop: &Stop) -> Outcome {
        todo!()
    }
}

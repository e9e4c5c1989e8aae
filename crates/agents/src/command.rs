//! Any program as an agent: prompt on standard input, answer and cost through files.

use std::ffi::OsString;

use crate::{Agent, Availability, Outcome, Request, Sink, Stop};

/// A configured program.
#[derive(Debug)]
pub struct Command {
    /// Program and arguments.
    pub argv: Vec<OsString>,
}

impl Agent for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn availability(&self) -> Availability {
        todo!()
    }

    fn run(&self, _request: &Request, _sink: &mut Sink<'_>, _stop: &Stop) -> Outcome {
        todo!()
    }
}

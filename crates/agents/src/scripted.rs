//! The scripted agent (alias `mock`): deterministic, built in, the default for demos and tests.
//!
//! Reads the `mock-config.json` format of the existing Dex and our additions (`fail`, `cost`,
//! `tokens`, `exit`, `hang`, `delete`, `edit`, `questions`). Format: `docs/formats/mock-config.md`.

use crate::{Agent, Availability, Outcome, Request, Sink, Stop};

/// A script, read and checked.
#[derive(Debug, Clone)]
pub struct Script {
    _private: (),
}

/// The script cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ScriptError {
    /// `line 12, dex_loop.cycles[0].stages.plan.delay`.
    pub place: String,
    /// What is wrong and what is accepted.
    pub problem: String,
}

impl Script {
    /// Reads a script.
    pub fn parse(_json: &str) -> Result<Script, ScriptError> {
        todo!()
    }

    /// The titles of the script's features, in cycle order.
    pub fn features(&self) -> Vec<String> {
        todo!()
    }
}

/// Plays a script.
#[derive(Debug)]
pub struct Scripted {
    _script: Script,
    _speed: f64,
}

impl Scripted {
    /// `speed` scales every delay; 0 means none.
    pub fn new(script: Script, speed: f64) -> Scripted {
        Scripted {
            _script: script,
            _speed: speed,
        }
    }
}

impl Agent for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn availability(&self) -> Availability {
        Availability::Ready { version: None }
    }

    fn run(&self, _request: &Request, _sink: &mut Sink<'_>, _stop: &Stop) -> Outcome {
        todo!()
    }
}

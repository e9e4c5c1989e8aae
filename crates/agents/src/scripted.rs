//! The scripted agent (alias `mock`): deterministic, built in, the default for demos and tests.
//!
//! Reads the `mock-config.json` format of the existing Dex and our additions (`fail`, `cost`,
//! `tokens`, `exit`, `hang`, `quota`, `delete`, `edit`, `run`, `questions`, `text`, `phases`).
//! Format: `docs/formats/mock-config.md`.
//!
//! An attempt is: delay, quota, changes, text, hang, failure or end. A killed attempt has told
//! its cost before it changes anything, as a real agent's stream does.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::{
    Agent, Availability, Held, Mechanism, Outcome, Refusal, Request, Sink, Stop, ToolSurface,
};

mod attempt;
mod files;
mod parse;
mod script;
mod tasks;
mod values;

use attempt::Attempt;
use script::{Cycle, Descriptor, Root};

/// A script, read and checked.
#[derive(Debug, Clone)]
pub struct Script {
    root: Root,
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
    pub fn parse(json: &str) -> Result<Script, ScriptError> {
        parse::parse(json).map(|root| Script { root })
    }

    /// The titles of the script's features, in cycle order.
    pub fn features(&self) -> Vec<String> {
        let cycles = self.root.dex_loop.cycles.iter();
        cycles.map(|cycle| cycle.feature.title.clone()).collect()
    }

    /// The cycle's script; past the last one, the last one's again.
    fn cycle(&self, number: u32) -> Option<&Cycle> {
        let cycles = &self.root.dex_loop.cycles;
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        cycles.get(index).or_else(|| cycles.last())
    }

    fn wraps(&self, number: u32) -> bool {
        usize::try_from(number).is_ok_and(|it| it > self.root.dex_loop.cycles.len())
    }

    /// What the script says about a stage.
    fn descriptor(&self, request: &Request) -> Option<&Descriptor> {
        let root = &self.root;
        let once = [&root.prerequisites, &root.clarification, &root.completion];
        once.into_iter()
            .chain(self.cycle(request.cycle).map(|cycle| &cycle.stages))
            .find_map(|stages| stages.get(&request.stage))
    }

    /// The script's feature id, where the script's and not the manifest's feature counts.
    fn feature_id(&self, request: &Request) -> Option<&str> {
        let cycle = self.cycle(request.cycle)?;
        let wrapped = self.wraps(request.cycle) && request.feature.is_some();
        (!wrapped).then_some(cycle.feature.id.as_str())
    }
}

/// Stage, cycle and task phase: what attempts are counted by.
type Counted = (String, u32, String);

/// Plays a script.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    speed: f64,
    attempts: Mutex<HashMap<Counted, u32>>,
}

impl Scripted {
    /// `speed` scales every delay; 0 means none.
    pub fn new(script: Script, speed: f64) -> Scripted {
        Scripted {
            script,
            speed,
            attempts: Mutex::default(),
        }
    }

    /// The number of this attempt, from 1. A caller that restarts tells it
    /// (`values["attempt"]`); we only know those of our own life.
    fn count(&self, request: &Request) -> u32 {
        if let Some(told) = request.values.get("attempt").and_then(|it| it.parse().ok()) {
            return told;
        }
        let phase = request.values.get("phase").cloned().unwrap_or_default();
        let key = (request.stage.clone(), request.cycle, phase);
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = attempts.entry(key).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }
}

impl Agent for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn availability(&self) -> Availability {
        Availability::Ready { version: None }
    }

    /// It does what its script says and nothing else.
    fn enforces(&self, surface: &ToolSurface, _: Mechanism) -> Result<Held, Refusal> {
        match surface {
            ToolSurface::ReadOnly | ToolSurface::Workspace => Ok(Held::InPlace),
            ToolSurface::ReadEdit { .. } => Ok(Held::OnACopy),
        }
    }

    fn state(&self) -> Option<crate::sandbox::State> {
        // It works in our own process.
        None
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        let number = self.count(request);
        Attempt::new(&self.script, request, self.speed, number, stop).run(sink)
    }
}

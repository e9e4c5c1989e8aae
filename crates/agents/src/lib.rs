//! Run a coding agent, or any command, in a directory under limits. Knows no git.
//!
//! An [`Agent`] gets a [`Request`] and a [`Sink`] for its [`Event`]s and returns an [`Outcome`].
//! The outcome is judged by the agent's own terminal event, never by an exit code alone; the
//! caller judges the resulting tree. Every child is started through [`process`], under a guard
//! that ends its whole tree when we die. All text an agent produced is untrusted: it is redacted
//! ([`redact`]) before it is written anywhere and shown escaped by whoever shows it.
//!
//! Linux only: the guard needs sub-reapers, pidfds and `/proc`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

pub mod acp;
pub mod claude;
pub mod codex;
pub mod command;
mod ending;
pub mod guard;
mod marks;
pub mod private_copy;
pub mod process;
mod quota;
pub mod redact;
pub mod sandbox;
pub mod scripted;
mod surface;
mod text;
pub mod transcript;

pub use sandbox::Mechanism;
pub use surface::{Held, Refusal, ToolSurface};

/// Bounds of one attempt. Every one is always set: a real agent never runs without a bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Wall clock.
    pub wall: Duration,
    /// Time without any event.
    pub idle: Duration,
    /// Agent turns.
    pub turns: u32,
    /// Dollars of this attempt, in micro-dollars (1 = $0.000001).
    pub cost_micro_usd: u64,
    /// Bytes of output kept and read.
    pub output_bytes: u64,
}

/// One attempt at one stage.
#[derive(Debug, Clone)]
pub struct Request {
    /// The stage's name, e.g. `plan`.
    pub stage: String,
    /// The cycle; 0 for once-per-run stages.
    pub cycle: u32,
    /// The feature's slug, when there is one.
    pub feature: Option<String>,
    /// The whole prompt.
    pub prompt: String,
    /// Where it works. Absolute.
    pub dir: PathBuf,
    /// Directory of the feature's spec, relative to `dir`.
    pub spec_dir: Option<String>,
    /// The run.
    pub run_id: String,
    /// What it may do.
    pub tools: ToolSurface,
    /// JSON Schema of the structured answer, when one is wanted.
    pub schema: Option<serde_json::Value>,
    /// Model, when configured.
    pub model: Option<String>,
    /// Session to go on with, when the back end can.
    pub session: Option<String>,
    /// Bounds.
    pub limits: Limits,
    /// A directory of ours, outside the work tree, for prompts and the guard's list of processes.
    /// Exists; private to this attempt. The program itself reaches only [`sandbox::shared`] of
    /// it when it is confined.
    pub scratch: PathBuf,
    /// Walls around the program; see [`sandbox`]. A back end without a program ignores them.
    pub sandbox: sandbox::Sandbox,
    /// More values for `{placeholders}` of the scripted agent, e.g. `goalFile`.
    pub values: BTreeMap<String, String>,
}

/// Tokens and money. Always what *this* attempt added, never a session's running total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Micro-dollars; none when the back end reports no dollars.
    pub cost_micro_usd: Option<u64>,
    /// Input tokens, cache reads not included.
    pub input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Input tokens that came from a cache.
    pub cached_tokens: Option<u64>,
}

/// Something that happened while an agent worked.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It started; what it says of itself.
    Started {
        /// Model, when told.
        model: Option<String>,
        /// Session id, when told.
        session: Option<String>,
        /// The agent's own version, when told.
        version: Option<String>,
    },
    /// Text for people.
    Text(String),
    /// A tool is called.
    ToolCall {
        /// Tool name.
        name: String,
        /// One line: path, command, pattern.
        summary: String,
    },
    /// A tool answered.
    ToolResult {
        /// Whether it worked.
        ok: bool,
        /// Bounded text.
        summary: String,
    },
    /// Usage so far of this attempt (totals of the attempt, not deltas between events).
    Usage(Usage),
    /// A sub-agent started or ended.
    SubAgent {
        /// Its description.
        what: String,
    },
    /// A tool was refused.
    Denied {
        /// Which.
        tool: String,
    },
    /// The back end is retrying by itself.
    Retry {
        /// Which attempt.
        attempt: u32,
        /// Why.
        why: String,
    },
}

/// Why an attempt did not finish its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The agent itself reported an error or gave up.
    AgentError,
    /// Wall clock over.
    TimeOut,
    /// No event for too long.
    Idle,
    /// Turns used up.
    MaxTurns,
    /// Dollars used up.
    CostCap,
    /// Too much output.
    OutputCap,
    /// It ended without a terminal event, or its stream could not be read.
    Protocol,
    /// Not installed, not logged in, or not able to hold what was asked of it.
    Unavailable,
    /// It asked for a permission nobody is there to give.
    NeedsPermission,
}

impl Failure {
    /// The name used in records and reports.
    pub fn name(self) -> &'static str {
        match self {
            Failure::AgentError => "agent_error",
            Failure::TimeOut => "time_out",
            Failure::Idle => "idle",
            Failure::MaxTurns => "max_turns",
            Failure::CostCap => "cost_cap",
            Failure::OutputCap => "output_cap",
            Failure::Protocol => "protocol_error",
            Failure::Unavailable => "agent_unavailable",
            Failure::NeedsPermission => "needs_permission",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The terminal event says it finished.
    Finished,
    /// It failed.
    Failed {
        /// The named reason.
        failure: Failure,
        /// One line for people.
        detail: String,
    },
    /// Its account's quota is used up; not a failure. Wait, then the same stage again.
    Quota {
        /// When it is said to be available again, seconds since 1970; none when not said.
        until_unix: Option<i64>,
    },
    /// We stopped it, because [`Stop`] was set.
    Stopped,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// The structured answer, when one was given (not yet checked against the schema).
    pub answer: Option<serde_json::Value>,
    /// The last text, bounded.
    pub text: String,
    /// What it used.
    pub usage: Usage,
    /// Model, when told.
    pub model: Option<String>,
    /// Session id, when told.
    pub session: Option<String>,
    /// Processes that could not be ended.
    pub survivors: Vec<u32>,
}

/// Receives events, in order, on the thread that runs the agent.
pub type Sink<'a> = dyn FnMut(Event) + 'a;

/// Asks an attempt to end; shared between threads and signal handlers.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    /// A new, unset one.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Ends the attempt at the next look (at most a tenth of a second later).
    pub fn set(&self) {
        self.0.store(1, Ordering::SeqCst);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

/// Whether an agent can be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// Installed and, as far as can be told without spending, logged in.
    Ready {
        /// Its version, when it has one.
        version: Option<String>,
    },
    /// Not on PATH.
    NotInstalled {
        /// What was looked for.
        program: String,
    },
    /// Installed but not logged in; what to type.
    NotLoggedIn {
        /// The command to type.
        hint: String,
    },
}

/// A back end.
pub trait Agent: Send + Sync {
    /// `scripted`, `command`, `claude`, `codex`.
    fn name(&self) -> &'static str;

    /// Checks, within seconds and without spending, whether it can run.
    fn availability(&self) -> Availability;

    /// Whether, and how, it holds an agent to a surface by itself, when `walls` are around it.
    /// What it refuses must not be asked of [`Agent::run`] unless the walls hold it
    /// ([`ToolSurface::is_held_by`]); what it holds only on a copy goes through [`private_copy::run`].
    fn enforces(&self, surface: &ToolSurface, walls: Mechanism) -> Result<Held, Refusal>;

    /// What its program keeps outside the work tree; none when it starts no program that could
    /// be confined.
    fn state(&self) -> Option<sandbox::State>;

    /// Runs one attempt to its end. Returns only when its whole tree of processes is gone
    /// (or names the survivors). Never panics on anything the agent does.
    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome;
}

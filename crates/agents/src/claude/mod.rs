//! Claude Code, headless: `claude -p` with JSON lines in and out.
//!
//! Started so that the repository it works on cannot configure it, with an explicit list of tools
//! and permission mode, and with its own turn and dollar caps; our clocks and caps hold whatever
//! the CLI does. What is enforced and what is not: `docs/guide/agents.md`. Why these flags, and how
//! a resumed session's cost is told apart: `docs/decisions/0009-claude-settings-prompt-and-cost.md`.
//!
//! Not here: confinement of the commands it runs, which is [`crate::sandbox`]'s work. They see the
//! credentials of the CLI that runs them.

mod command_line;
pub(crate) mod money;
mod probe;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ending::{
    NoSession, could_not_start, in_a_session_that_exists, never_started, now_unix, unavailable,
};
use crate::marks::Marks;
use crate::process::{self, End, Finished, Go, Line, StartError};
use crate::text::one_line;
use crate::{
    Agent, Availability, Ended, Held, Mechanism, Outcome, Refusal, Request, Sink, Stop,
    ToolSurface, sandbox,
};
use command_line::Features;
pub(crate) use command_line::instructions;
use stream::{Caps, Parser};

/// Longest line read. A last line holds the final text and the denied tools' inputs.
const LINE_BYTES: usize = 16 * 1024 * 1024;
/// How long the process may stay after its last line.
const GRACE: Duration = Duration::from_secs(10);

/// The Claude Code CLI.
#[derive(Debug, Clone)]
pub struct Claude {
    /// The program; `claude` on PATH by default.
    pub program: PathBuf,
    /// Added to what every child inherits: account, endpoint, home of its settings.
    pub environment: BTreeMap<OsString, OsString>,
}

impl Claude {
    /// With the account of our own environment: `ANTHROPIC_*`, `CLAUDE_CODE_OAUTH_TOKEN`,
    /// `CLAUDE_CONFIG_DIR`, and those of Bedrock or Vertex when these are switched on.
    pub fn new(program: impl Into<PathBuf>) -> Claude {
        Claude {
            program: program.into(),
            environment: command_line::account(std::env::vars_os()),
        }
    }

    /// The program; one named by a path is taken from where *we* are, never from the repository.
    fn program(&self) -> PathBuf {
        if self.program.components().count() > 1 {
            std::path::absolute(&self.program).unwrap_or_else(|_| self.program.clone())
        } else {
            self.program.clone()
        }
    }

    fn full_environment(&self) -> BTreeMap<OsString, OsString> {
        let mut environment = self.environment.clone();
        let fixed = command_line::fixed();
        environment.extend(fixed.map(|(name, value)| (name.into(), value.into())));
        environment
    }

    fn attempt(
        &self,
        request: &Request,
        features: &Features,
        (sink, stop): (&mut Sink<'_>, &Stop),
    ) -> Result<Outcome, NoSession> {
        let session = request.session.clone();
        let session = session.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let mut parser = Parser::new(Caps {
            turns: request.limits.turns.max(1),
            cost_micro_usd: request.limits.cost_micro_usd,
        });
        let run = self.start(request, &session, features, &mut parser, (sink, stop));
        match run {
            (Ok(_), _) if parser.found_no_session() && !stop.is_set() => Err(NoSession(session)),
            (Ok(finished), stderr) => Ok(conclude(request, &session, &parser, &finished, &stderr)),
            (Err(error), _) => Ok(never(could_not_start(&error))),
        }
    }

    fn start(
        &self,
        request: &Request,
        session: &str,
        features: &Features,
        parser: &mut Parser,
        (sink, stop): (&mut Sink<'_>, &Stop),
    ) -> (Result<Finished, StartError>, String) {
        let instructions = command_line::instructions(&request.dir);
        let spec = process::Spec {
            argv: command_line::argv(&self.program(), request, session, features),
            dir: request.dir.clone(),
            env: self.full_environment(),
            stdin: command_line::standard_input(&request.prompt, &instructions),
            wall: request.limits.wall,
            idle: Some(request.limits.idle),
            output_bytes: request.limits.output_bytes,
            line_bytes: LINE_BYTES,
            sandbox: request.sandbox.clone(),
            process_list: request.scratch.join("processes"),
        };
        let mut stderr = String::new();
        let mut ended_at: Option<Instant> = None;
        let finished = process::run(&spec, stop, &mut |line| {
            match line {
                Some(Line::Out(line)) => {
                    parser.line(&line).into_iter().for_each(&mut *sink);
                    // A further line means it was not the last one after all.
                    ended_at = parser.terminal.is_some().then(Instant::now);
                }
                Some(Line::Err(line)) if !line.trim().is_empty() => {
                    stderr = one_line(&line, 300);
                }
                Some(Line::Err(_)) | None => {}
            }
            let lingers = ended_at.is_some_and(|at| at.elapsed() > GRACE);
            if lingers || parser.over().is_some() {
                Go::End
            } else {
                Go::On
            }
        });
        (finished, stderr)
    }
}

impl Default for Claude {
    fn default() -> Claude {
        Claude::new("claude")
    }
}

impl Agent for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn availability(&self) -> Availability {
        probe::availability(&self.program(), &self.full_environment())
    }

    fn enforces(&self, surface: &ToolSurface, _: Mechanism) -> Result<Held, Refusal> {
        match surface {
            ToolSurface::ReadOnly | ToolSurface::Workspace => Ok(Held::InPlace),
            ToolSurface::ReadEdit { only } => match command_line::not_a_rule(only) {
                None => Ok(Held::InPlace),
                // Its file tools stay in the directory, but its commands do not.
                Some(name) => Err(Refusal {
                    agent: self.name(),
                    surface: surface.clone(),
                    why: format!("{} cannot be written as a rule", name.display()),
                }),
            },
        }
    }

    fn state(&self) -> Option<sandbox::State> {
        let variable = |name: &str| self.environment.get(OsStr::new(name)).map(PathBuf::from);
        let home = sandbox::state::Home::of(&variable)?;
        Some(sandbox::state::claude(&home))
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        if let Err(refusal) = self.enforces(&request.tools, request.sandbox.mechanism()) {
            return never(unavailable(refusal.to_string()));
        }
        let environment = self.full_environment();
        let features = probe::features(&self.program(), &environment, &request.scratch, stop);
        let features = match features {
            Ok(features) => features,
            Err(ended) => return never(ended),
        };
        in_a_session_that_exists(
            request,
            sink,
            "is not there any more",
            &mut |request, sink| self.attempt(request, &features, (sink, stop)),
        )
        .unwrap_or_else(never)
    }
}

/// The part of our own environment that Claude Code needs to reach its account, however started.
pub(crate) fn account(
    ours: impl IntoIterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    command_line::account(ours)
}

/// What we set for it, however started.
pub(crate) fn fixed_environment() -> [(&'static str, &'static str); 5] {
    command_line::fixed()
}

/// The outcome of an attempt whose process ran, and the session's marks for the next one.
fn conclude(
    request: &Request,
    session: &str,
    parser: &Parser,
    finished: &Finished,
    stderr: &str,
) -> Outcome {
    let path = Marks::path(&request.scratch, "claude", session);
    let marks = Marks::load(&path);
    let seen = parser.seen();
    let total = parser.terminal.as_ref().and_then(|it| it.total);
    let (spent, marks) = match total {
        Some(total) => (marks.added(total, seen), Marks::reached(total)),
        None => (seen, marks.perhaps(seen)),
    };
    let mut ended = verdict::ended(parser, finished.end, stderr, &request.limits, now_unix());
    marks.keep(&path, &mut ended);
    let last = parser.terminal.as_ref();
    Outcome {
        ended,
        answer: last
            .filter(|_| request.schema.is_some())
            .and_then(verdict::answer),
        text: parser.text.clone(),
        usage: spent.usage(),
        model: parser.model.clone(),
        session: parser.session.clone().or(Some(session.to_owned())),
        survivors: finished.survivors.clone(),
    }
}

fn never(ended: Ended) -> Outcome {
    never_started(ended, Some(0))
}

/// Whether the process ended in a way that leaves its output whole.
fn ended_by_itself(end: End) -> bool {
    matches!(end, End::Exited(_))
}

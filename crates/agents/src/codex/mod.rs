//! Codex, headless: `codex exec --json`, JSON lines out.
//!
//! Started so that the repository it works on cannot configure it, without the user's own MCP
//! servers, hooks and plug-ins, with its sandbox said every time. Codex has no flag for turns and
//! knows no dollars: turns are counted and held by us, and dollars are not reported. What is
//! enforced and what is not: `docs/guide/agents.md`. Why these settings, which sandbox inside
//! which, and what a turn is: `docs/decisions/0010-codex-settings-sandbox-and-turns.md`.
//!
//! Not here: reading its configuration as TOML. The little that is asked of it is found line by
//! line ([`settings`]).

mod command_line;
mod probe;
mod schema;
mod settings;
mod stream;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ending::{
    NoSession, could_not_start, in_a_session_that_exists, never_started, now_unix, unavailable,
};
use crate::marks::{Marks, Spent};
use crate::process::{self, Finished, Go, Line, StartError};
use crate::text::one_line;
use crate::{
    Agent, Availability, Ended, Event, Held, Mechanism, Outcome, Refusal, Request, Sink, Stop,
    ToolSurface, Usage, sandbox,
};
use probe::Known;
use settings::Settings;
use stream::Parser;

/// Longest line read: an item holds a command's whole output.
const LINE_BYTES: usize = 16 * 1024 * 1024;
/// How long the process may stay after its last line.
const GRACE: Duration = Duration::from_secs(10);

/// Which sandbox the commands of the agent run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// Codex's own. Inside a sandbox of ours too, when that is made of mounts and we are not root:
    /// the two nest.
    Own,
    /// None: a sandbox of ours is in force in which Codex cannot make another.
    Off,
}

/// The Codex CLI.
#[derive(Debug, Clone)]
pub struct Codex {
    /// The program; `codex` on PATH by default.
    pub program: PathBuf,
    /// Added to what every child inherits: account and home of its settings.
    pub environment: BTreeMap<OsString, OsString>,
    /// The sandbox of its commands.
    pub inner: Inner,
}

impl Codex {
    /// With the account of our own environment: `CODEX_API_KEY`, `OPENAI_API_KEY`, `CODEX_HOME`,
    /// and the variables that the user's settings name as a provider's key.
    pub fn new(program: impl Into<PathBuf>) -> Codex {
        let settings = settings::of_user(&std::env::vars_os().collect());
        Codex {
            program: program.into(),
            environment: command_line::account(std::env::vars_os(), &settings),
            inner: Inner::Own,
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

    /// The sandbox of its commands inside these walls. Under Landlock nothing can be mounted, nor
    /// in a namespace of root's without root's rights: its own would refuse every command.
    fn inner_in(&self, walls: Mechanism) -> Inner {
        match walls {
            Mechanism::Landlock => Inner::Off,
            Mechanism::Bwrap if rustix::process::geteuid().is_root() => Inner::Off,
            Mechanism::Bwrap | Mechanism::None => self.inner,
        }
    }

    /// The user's settings, as the CLI will find them.
    fn settings(&self) -> Settings {
        let mut environment = process::inherited_environment();
        environment.extend(self.environment.clone());
        settings::of_user(&environment)
    }

    /// One start, with a temporary directory of its own that is gone afterwards.
    fn attempt(
        &self,
        request: &Request,
        known: &Known,
        (sink, stop): (&mut Sink<'_>, &Stop),
    ) -> Result<Outcome, NoSession> {
        let temporary = std::env::temp_dir().join(format!("dex-codex-{}", uuid::Uuid::now_v7()));
        if let Err(error) = std::fs::create_dir(&temporary) {
            let why = format!("could not make {}: {error}", temporary.display());
            return Ok(never(unavailable(why)));
        }
        let outcome = self.attempt_in(request, known, &temporary, (sink, stop));
        // Only what commands left for nobody is in it.
        let _ = std::fs::remove_dir_all(&temporary);
        outcome
    }

    fn attempt_in(
        &self,
        request: &Request,
        known: &Known,
        temporary: &Path,
        (sink, stop): (&mut Sink<'_>, &Stop),
    ) -> Result<Outcome, NoSession> {
        let mut parser = Parser::new(request, known.version.clone());
        let run = self.start(request, known, temporary, &mut parser, (sink, stop));
        parser.refused().into_iter().for_each(&mut *sink);
        match run {
            (Ok(finished), stderr) => match &request.session {
                // Nothing was done and nothing spent.
                Some(session) if !parser.started && verdict::left_by_itself(&finished) => {
                    Err(NoSession(session.clone()))
                }
                _ => {
                    let outcome = conclude(request, &parser, &finished, &stderr);
                    if outcome.usage != Usage::default() {
                        sink(Event::Usage(outcome.usage));
                    }
                    Ok(outcome)
                }
            },
            (Err(error), _) => Ok(never(could_not_start(&error))),
        }
    }

    fn start(
        &self,
        request: &Request,
        known: &Known,
        temporary: &Path,
        parser: &mut Parser,
        (sink, stop): (&mut Sink<'_>, &Stop),
    ) -> (Result<Finished, StartError>, String) {
        let schema = request.schema.as_ref().filter(|_| known.output_schema);
        let file = schema.map(|_| request.scratch.join("codex-schema.json"));
        if let (Some(schema), Some(file)) = (schema, &file)
            && let Err(source) = std::fs::write(file, schema::strict(schema).to_string())
        {
            let program = self.program.display().to_string();
            return (Err(StartError::Io { program, source }), String::new());
        }
        // The one place beside the work tree that its commands may write to.
        let mut env = self.environment.clone();
        env.insert("TMPDIR".into(), temporary.into());
        env.insert(
            "RUST_LOG".into(),
            format!("error,{}=info", stream::LOG).into(),
        );
        let instructions = crate::claude::instructions(&request.dir);
        let spec = process::Spec {
            argv: command_line::argv(&self.program(), request, known, file.as_deref(), self.inner),
            dir: request.dir.clone(),
            env,
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
                    ended_at = parser.terminal.is_some().then(Instant::now);
                }
                Some(Line::Err(line)) => match parser.log(&line) {
                    Some(events) => events.into_iter().for_each(&mut *sink),
                    None if is_noise(&line) => {}
                    None => stderr = one_line(&line, 300),
                },
                None => {}
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

/// What it writes to standard error in every run, and says nothing about how one ended.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("warning:") || line.starts_with("Reading prompt from")
}

impl Default for Codex {
    fn default() -> Codex {
        Codex::new("codex")
    }
}

impl Agent for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn availability(&self) -> Availability {
        probe::availability(&self.program(), &self.environment, &self.settings())
    }

    /// Its tools are a shell and a patch tool; what they may write is up to its sandbox, and that
    /// knows directories, not files.
    fn enforces(&self, surface: &ToolSurface, walls: Mechanism) -> Result<Held, Refusal> {
        match (surface, self.inner_in(walls)) {
            (ToolSurface::Workspace, _) | (ToolSurface::ReadOnly, Inner::Own) => Ok(Held::InPlace),
            (ToolSurface::ReadEdit { .. }, Inner::Own) => Ok(Held::OnACopy),
            (ToolSurface::ReadOnly | ToolSurface::ReadEdit { .. }, Inner::Off) => Err(Refusal {
                agent: self.name(),
                surface: surface.clone(),
                why: "its own sandbox cannot be used inside the one that is in force".to_owned(),
            }),
        }
    }

    fn state(&self) -> Option<sandbox::State> {
        let variable = |name: &str| self.environment.get(OsStr::new(name)).map(PathBuf::from);
        let home = sandbox::state::Home::of(&variable)?;
        Some(sandbox::state::codex(&home))
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        let walls = request.sandbox.mechanism();
        let inner = self.inner_in(walls);
        if inner != self.inner {
            let bare = Codex {
                inner,
                ..self.clone()
            };
            return bare.run(request, sink, stop);
        }
        match self.enforces(&request.tools, walls) {
            Ok(Held::InPlace) => {}
            Err(_) if request.tools.is_held_by(&request.sandbox, &request.dir) => {}
            Ok(Held::OnACopy) => {
                let why = "codex can edit some files only on a private copy".to_owned();
                return never(unavailable(why));
            }
            Err(refusal) => return never(unavailable(refusal.to_string())),
        }
        let known = probe::known(
            &self.program(),
            &self.environment,
            &self.settings(),
            (&request.scratch, stop),
        );
        let known = match known {
            Ok(known) => known,
            Err(ended) => return never(ended),
        };
        in_a_session_that_exists(
            request,
            sink,
            "cannot be gone on with",
            &mut |request, sink| self.attempt(request, &known, (sink, stop)),
        )
        .unwrap_or_else(never)
    }
}

/// The outcome of an attempt whose process ran, and the session's marks for the next one.
fn conclude(request: &Request, parser: &Parser, finished: &Finished, stderr: &str) -> Outcome {
    let mut ended = verdict::ended(parser, finished.end, stderr, &request.limits, now_unix());
    let session = parser.session.clone().or_else(|| request.session.clone());
    let mut usage = Usage::default();
    if let Some(session) = &session
        && (parser.total.is_some() || parser.seen != Spent::default())
    {
        let path = Marks::path(&request.scratch, "codex", session);
        let marks = Marks::load(&path);
        let (spent, marks) = match parser.total {
            Some(total) => (marks.added(total, parser.seen), Marks::reached(total)),
            None => (parser.seen, marks.perhaps(parser.seen)),
        };
        usage = stream::without_dollars(spent);
        marks.keep(&path, &mut ended);
    }
    Outcome {
        ended,
        answer: request
            .schema
            .as_ref()
            .and_then(|_| crate::text::answer_in(&parser.text)),
        text: parser.text.clone(),
        usage,
        model: request.model.clone(),
        session,
        survivors: finished.survivors.clone(),
    }
}

/// It tells no dollars, also where it spent none.
fn never(ended: Ended) -> Outcome {
    never_started(ended, None)
}

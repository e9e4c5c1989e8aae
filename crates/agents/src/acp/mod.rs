//! Any agent that speaks the Agent Client Protocol, as its client.
//!
//! The agent is a program that talks JSON-RPC lines on its standard input and output ([`wire`]).
//! We open a session, send the prompt, answer what it asks ([`permission`]), read and write files
//! for it ([`files`]), and turn what it tells into events ([`updates`]); [`client`] is that
//! conversation. Here is what surrounds it: the process, the clocks, the caps.
//!
//! What holds for every agent: files that pass through us and acts it asks permission for stay
//! inside the work directory, and outside `.git`; turns, tokens, dollars (where it tells them) and
//! time are counted by us; at a cap it is asked to cancel, then ended with its whole tree. What an
//! agent does by itself, without asking, is not seen here: a sandbox's work. What is done about
//! each known agent's own settings: [`known`].
//!
//! Why our own client and not a library's: `docs/decisions/0011-acp-client.md`.

mod answer;
mod client;
mod files;
mod known;
mod permission;
mod updates;
mod verdict;
mod wire;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use known::{Known, installed, resolve};

use crate::ending::{could_not_start, failed, never_started, now_unix};
use crate::marks::{Marks, Spent};
use crate::process::{self, End, Finished, Go, Input, Line};
use crate::text::{OUTCOME_BYTES, Tail};
use crate::{
    Agent, Availability, Ended, Event, Failure, Held, Limits, Mechanism, Outcome, Refusal, Request,
    Sink, Stop, ToolSurface, redact, sandbox,
};
use client::Client;
use files::WorkDir;

/// Longest line read: a file to write is one line.
const LINE_BYTES: usize = 16 << 20;
/// How long starting, logging in and opening a session may take, each.
const SET_UP: Duration = Duration::from_secs(120);
/// How long it may take to cancel, and to leave once it has nothing left to do.
const GRACE: Duration = Duration::from_secs(2);
/// The same when somebody waits for us to stop.
const SHORT_GRACE: Duration = Duration::from_secs(1);

/// Some agents try a refused request again for ever and say so only on standard error. After this
/// long without anything else it is taken for what it is: a quota to wait for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Complaints less apart than this are one.
const APART: Duration = Duration::from_secs(1);

/// An agent that speaks the Agent Client Protocol.
#[derive(Debug, Clone)]
pub struct Acp {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Added to what every child inherits: account, endpoint, home of its settings.
    pub environment: BTreeMap<OsString, OsString>,
}

impl Acp {
    /// The agent of this command line, or known by this name ([`Known`]), with the account of our
    /// own environment.
    pub fn new(argv: &[OsString]) -> Acp {
        let argv = resolve(argv);
        let environment = known::account(known::of(&argv), std::env::vars_os());
        Acp { argv, environment }
    }

    fn known(&self) -> Option<Known> {
        known::of(&self.argv)
    }

    /// The way to log in that asks nobody, when what it needs is there.
    fn may_log_in(&self) -> Option<&'static str> {
        let (method, variable) = self.known()?.silent_login()?;
        let value = self.environment.get(OsStr::new(variable));
        value.filter(|it| !it.is_empty()).map(|_| method)
    }

    fn spec(&self, request: &Request) -> process::Spec {
        let mut env = self.environment.clone();
        env.extend(known::fixed(
            self.known(),
            &request.tools,
            &self.environment,
        ));
        process::Spec {
            argv: self.argv.clone(),
            dir: request.dir.clone(),
            env,
            stdin: Vec::new(),
            // Ours comes first, with a word to the agent.
            wall: request.limits.wall + 2 * GRACE,
            idle: Some(request.limits.idle),
            output_bytes: request.limits.output_bytes,
            line_bytes: LINE_BYTES,
            sandbox: request.sandbox.clone(),
            process_list: request.scratch.join("processes"),
        }
    }

    /// What stands against starting it here.
    fn refused(&self, request: &Request) -> Option<Ended> {
        let path = known::would_run(self.known(), &request.dir)?;
        let detail = format!(
            "it would run the code in {} whatever it is told; remove it, or use another agent",
            path.display()
        );
        Some(failed(Failure::Unavailable, detail))
    }
}

impl Agent for Acp {
    fn name(&self) -> &'static str {
        "acp"
    }

    fn availability(&self) -> Availability {
        let program = self.argv.first().cloned().unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        match process::find_program(&program, &here) {
            Some(path) => Availability::Ready {
                version: self.known().and_then(|_| known::version(&path)),
            },
            None => Availability::NotInstalled {
                program: program.to_string_lossy().into_owned(),
            },
        }
    }

    /// It is held to what it asks permission for. Those we know ask before they edit or run
    /// anything; Codex's adapter does not for what its sandbox allows.
    fn enforces(&self, surface: &ToolSurface, _: Mechanism) -> Result<Held, Refusal> {
        let why = match (surface, self.known()) {
            (ToolSurface::Workspace, _) => return Ok(Held::InPlace),
            (_, None) => "an agent we do not know may act without asking",
            (ToolSurface::ReadOnly, Some(_)) => return Ok(Held::InPlace),
            (ToolSurface::ReadEdit { .. }, Some(Known::Codex)) => {
                "it does not ask before it edits a file"
            }
            (ToolSurface::ReadEdit { .. }, Some(_)) => return Ok(Held::InPlace),
        };
        Err(Refusal {
            agent: self.name(),
            surface: surface.clone(),
            why: why.to_owned(),
        })
    }

    fn state(&self) -> Option<sandbox::State> {
        let variable = |name: &str| {
            let given = self.environment.get(OsStr::new(name)).cloned();
            given.or_else(|| std::env::var_os(name)).map(PathBuf::from)
        };
        let home = sandbox::state::Home::of(&variable)?;
        Some(sandbox::state::of_command(&self.argv, &home))
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        if let Some(ended) = self.refused(request) {
            return never(ended);
        }
        let dir = match WorkDir::open(&request.dir) {
            Ok(dir) => dir,
            Err(error) => {
                let detail = format!("{} cannot be opened: {error}", request.dir.display());
                return never(failed(Failure::AgentError, detail));
            }
        };
        let mut client = Client::new(request, self.known(), self.may_log_in(), dir);
        let old = request.session.as_deref();
        // The protocol says that cost is a session's; Claude's adapter tells an attempt's own.
        let old = old.filter(|_| self.known() != Some(Known::Claude));
        client.updates.cost_before = old.map_or(0, |it| {
            Marks::load(&Marks::path(&request.scratch, "acp", it)).cost_micro_usd()
        });
        let mut talk = Talk {
            client,
            limits: &request.limits,
            stop,
            started: Instant::now(),
            phase: (None, Instant::now()),
            over_at: None,
            cancelled_at: None,
            stderr: Tail::default(),
            complaints: Complaints::default(),
        };
        // Ours alone: a stop first asks the agent to cancel.
        let unstopped = Stop::new();
        let finished = process::converse(&self.spec(request), &unstopped, &mut |input, line| {
            talk.go_on(input, line, sink)
        });
        match finished {
            Ok(finished) => talk.conclude(request, &finished, sink),
            Err(error) => never(could_not_start(&error)),
        }
    }
}

/// The conversation with a running process.
struct Talk<'a> {
    client: Client<'a>,
    limits: &'a Limits,
    stop: &'a Stop,
    started: Instant,
    /// What is awaited before it works, and since when.
    phase: (Option<&'static str>, Instant),
    over_at: Option<Instant>,
    cancelled_at: Option<(Instant, Duration)>,
    stderr: Tail,
    complaints: Complaints,
}

/// Refused requests that the agent told of on standard error since it last said anything to us.
#[derive(Debug, Default)]
struct Complaints {
    first: Option<Instant>,
    last: Option<Instant>,
    count: u32,
    line: String,
}

impl Complaints {
    /// True for one that is not a further line of the one before.
    fn take(&mut self, line: &str) -> bool {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < APART) {
            return false;
        }
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.count += 1;
        self.line = updates::one_line(line);
        true
    }

    fn exhaust(&self, patience: Duration) -> bool {
        self.count >= 2 && self.first.is_some_and(|it| it.elapsed() > patience)
    }
}

impl Talk<'_> {
    fn go_on(&mut self, input: &Input, line: Option<Line>, sink: &mut Sink<'_>) -> Go {
        match line {
            Some(Line::Out(line)) => {
                self.complaints = Complaints::default();
                self.client.line(&line);
            }
            Some(Line::Err(line)) => {
                self.stderr.push(&line);
                if verdict::is_complaint(&line) && self.complaints.take(&line) {
                    sink(Event::Retry {
                        attempt: self.complaints.count,
                        why: self.complaints.line.clone(),
                    });
                }
            }
            None => {}
        }
        self.look_at_the_bounds();
        let mut messages = std::mem::take(&mut self.client.out).into_iter();
        if messages.any(|it| input.send(format!("{it}\n").into_bytes()).is_err()) {
            let detail = "it does not read what it is told";
            self.client.end(failed(Failure::Protocol, detail));
        }
        self.client.events.drain(..).for_each(&mut *sink);
        if self.client.ended().is_some() && self.over_at.is_none() {
            self.over_at = Some(Instant::now());
            input.close();
        }
        let grace = if self.stop.is_set() {
            SHORT_GRACE
        } else {
            GRACE
        };
        let lingers = self.over_at.is_some_and(|at| at.elapsed() > grace);
        let ignores = self
            .cancelled_at
            .is_some_and(|(at, grace)| at.elapsed() > grace);
        if lingers || ignores { Go::End } else { Go::On }
    }

    fn look_at_the_bounds(&mut self) {
        if self.client.ended().is_some() || self.client.cancelled_for().is_some() {
            return;
        }
        let phase = self.client.setting_up();
        if phase != self.phase.0 {
            self.phase = (phase, Instant::now());
        }
        let why = if self.stop.is_set() {
            Some(Ended::Stopped)
        } else if self.started.elapsed() >= self.limits.wall {
            End::TimeOut.ended_by(self.limits)
        } else if let Some(ended) = self.client.over() {
            Some(ended)
        } else if self.complaints.exhaust(PATIENCE) {
            Some(verdict::of_complaint(&self.complaints.line, now_unix()))
        } else {
            phase
                .filter(|_| self.phase.1.elapsed() > SET_UP)
                .map(|awaited| {
                    let seconds = SET_UP.as_secs();
                    let detail = format!("no answer to {awaited} within {seconds} s");
                    failed(Failure::Unavailable, detail)
                })
        };
        if let Some(why) = why {
            let grace = if why == Ended::Stopped {
                SHORT_GRACE
            } else {
                GRACE
            };
            self.client.cancel(why);
            self.cancelled_at = Some((Instant::now(), grace));
        }
    }

    fn conclude(mut self, request: &Request, finished: &Finished, sink: &mut Sink<'_>) -> Outcome {
        let setting_up = self.client.setting_up().is_some();
        if self.client.ended().is_none() {
            let ended = self.cut_short(finished.end, setting_up);
            self.client.end(ended);
        }
        self.client.events.drain(..).for_each(sink);
        let mut ended = self.client.ended().cloned().unwrap_or(Ended::Stopped);
        if let (Some(session), Some(cost)) =
            (&self.client.session, self.client.updates.session_cost)
        {
            let reached = Spent {
                cost_micro_usd: cost,
                ..Spent::default()
            };
            let path = Marks::path(&request.scratch, "acp", session);
            Marks::reached(reached).keep(&path, &mut ended);
        }
        let usage = self.client.updates.usage();
        let text = self.client.updates.text.trim();
        let start = text.len().saturating_sub(OUTCOME_BYTES);
        let text = &text[text.ceil_char_boundary(start)..];
        Outcome {
            answer: self
                .client
                .answer
                .take()
                .filter(|_| ended == Ended::Finished),
            ended: redacted(ended),
            text: redact::redact(text),
            usage,
            model: self.client.model.clone(),
            session: self.client.session.clone(),
            survivors: finished.survivors.clone(),
        }
    }

    /// The process is gone and the conversation was not over.
    fn cut_short(&self, end: End, setting_up: bool) -> Ended {
        if let Some(ended) = end.ended_by(self.limits) {
            return ended;
        }
        let said = self.stderr.last().unwrap_or_default();
        let said = updates::one_line(said);
        if setting_up && !said.is_empty() {
            // Some leave with a line for people when nobody is logged in.
            let error = wire::RpcError {
                message: said.clone(),
                ..wire::RpcError::default()
            };
            let told = verdict::of_error(&error, self.client.login(), now_unix());
            if !matches!(
                &told,
                Ended::Failed {
                    failure: Failure::AgentError,
                    ..
                }
            ) {
                return told;
            }
        }
        let said = if said.is_empty() {
            said
        } else {
            format!(": {said}")
        };
        let detail = format!("it ended before its turn did ({end}){said}");
        failed(Failure::Protocol, detail)
    }
}

fn redacted(ended: Ended) -> Ended {
    match ended {
        Ended::Failed { failure, detail } => Ended::Failed {
            failure,
            detail: redact::redact(&detail),
        },
        Ended::Finished | Ended::Quota { .. } | Ended::Stopped => ended,
    }
}

fn never(ended: Ended) -> Outcome {
    never_started(ended, Some(0))
}

//! Any program as an agent: prompt on standard input, answer and cost through files.
//!
//! The program learns what it is asked for from its environment:
//!
//! | variable | |
//! |---|---|
//! | `DEX_STAGE`, `DEX_CYCLE`, `DEX_RUN_ID` | which stage of which run |
//! | `DEX_FEATURE`, `DEX_SPEC_DIR`, `DEX_MODEL` | when there is one |
//! | `DEX_TOOLS` | `read_only` or `workspace`: what it may do |
//! | `DEX_SCHEMA` | file with the JSON Schema of the answer, when one is wanted |
//! | `DEX_ANSWER` | file to write the structured answer to, at most 1 MiB of JSON |
//! | `DEX_COST` | file to write the dollars spent so far to, as decimal text |
//!
//! This back end has no event stream, so its exit is its terminal event: 0 is success, 75
//! (`EX_TEMPFAIL`) is a used-up quota, anything else a failure. What it says of its cost counts
//! also when it fails or is ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ending::failed;
use crate::process::{self, End, Go, Line, Spec, StartError};
use crate::text::{self, Tail};
use crate::{
    Agent, Availability, Ended, Event, Failure, Held, Limits, Mechanism, Outcome, Refusal, Request,
    Sink, Stop, ToolSurface, Usage, redact, sandbox,
};

/// `EX_TEMPFAIL` of `sysexits.h`.
const QUOTA_STATUS: i32 = 75;
const ANSWER_BYTES: u64 = 1 << 20;
const COST_BYTES: u64 = 64;
/// How often the cost file is looked at while the program works.
const COST_LOOK: Duration = Duration::from_millis(250);

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
        let program = self.argv.first().cloned().unwrap_or_default();
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        match process::find_program(&program, &here) {
            Some(_) => Availability::Ready { version: None },
            None => Availability::NotInstalled {
                program: program.to_string_lossy().into_owned(),
            },
        }
    }

    fn enforces(&self, surface: &ToolSurface, _: Mechanism) -> Result<Held, Refusal> {
        match surface {
            ToolSurface::Workspace => Ok(Held::InPlace),
            ToolSurface::ReadOnly | ToolSurface::ReadEdit { .. } => Err(Refusal {
                agent: self.name(),
                surface: surface.clone(),
                why: "a program is told what it may do, and nothing here keeps it to that".into(),
            }),
        }
    }

    fn state(&self) -> Option<sandbox::State> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let home = sandbox::state::Home::of(&variable)?;
        Some(sandbox::state::of_command(&self.argv, &home))
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        let files = Files::in_dir(&sandbox::shared(&request.scratch));
        let mut outcome = Outcome {
            ended: Ended::Finished,
            answer: None,
            text: String::new(),
            usage: Usage::default(),
            model: request.model.clone(),
            session: None,
            survivors: Vec::new(),
        };
        if let Err(error) = files.prepare(request) {
            let detail = format!("its files could not be made: {error}");
            outcome.ended = failed(Failure::AgentError, detail);
            return outcome;
        }
        sink(Event::Started {
            model: request.model.clone(),
            session: None,
            version: None,
        });
        let mut attempt = Running {
            cost: None,
            cost_looked: Instant::now(),
            too_dear: false,
            out: Tail::default(),
            err: Tail::default(),
            files: &files,
            limits: &request.limits,
        };
        let ran = process::run(&self.spec(request, &files), stop, &mut |line| {
            attempt.line(line, sink)
        });
        attempt.look_at_the_cost(sink);
        outcome.usage.cost_micro_usd = attempt.cost;
        outcome.text = redact::redact(&attempt.out.text());
        match ran {
            Err(error) => outcome.ended = could_not_start(&error),
            Ok(finished) => {
                outcome.survivors = finished.survivors;
                match attempt.judge(finished.end) {
                    Ok(answer) => outcome.answer = answer,
                    Err(ended) => outcome.ended = ended,
                }
            }
        }
        outcome
    }
}

impl Command {
    fn spec(&self, request: &Request, files: &Files) -> Spec {
        let mut env = process::provider_environment();
        env.extend(variables(request, files));
        Spec {
            argv: self.argv.clone(),
            dir: request.dir.clone(),
            env,
            stdin: request.prompt.clone().into_bytes(),
            wall: request.limits.wall,
            idle: Some(request.limits.idle),
            output_bytes: request.limits.output_bytes,
            line_bytes: text::LINE_BYTES,
            sandbox: request.sandbox.clone(),
            process_list: request.scratch.join("processes"),
        }
    }
}

fn variables(request: &Request, files: &Files) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    let mut set = |name: &str, value: OsString| env.insert(name.into(), value);
    set("DEX_STAGE", request.stage.clone().into());
    set("DEX_CYCLE", request.cycle.to_string().into());
    set("DEX_RUN_ID", request.run_id.clone().into());
    set("DEX_TOOLS", request.tools.name().into());
    set("DEX_ANSWER", files.answer.clone().into());
    set("DEX_COST", files.cost.clone().into());
    for (name, value) in [
        ("DEX_FEATURE", &request.feature),
        ("DEX_SPEC_DIR", &request.spec_dir),
        ("DEX_MODEL", &request.model),
    ] {
        if let Some(value) = value {
            set(name, value.clone().into());
        }
    }
    if request.schema.is_some() {
        set("DEX_SCHEMA", files.schema.clone().into());
    }
    env
}

/// The files between us and the program.
#[derive(Debug)]
struct Files {
    answer: PathBuf,
    cost: PathBuf,
    schema: PathBuf,
}

impl Files {
    fn in_dir(dir: &Path) -> Files {
        Files {
            answer: dir.join("answer.json"),
            cost: dir.join("cost"),
            schema: dir.join("schema.json"),
        }
    }

    /// Removes what an earlier attempt left, so that its answer is not taken for this one's.
    fn prepare(&self, request: &Request) -> std::io::Result<()> {
        std::fs::create_dir_all(sandbox::shared(&request.scratch))?;
        for file in [&self.answer, &self.cost, &self.schema] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match &request.schema {
            Some(schema) => std::fs::write(&self.schema, schema.to_string()),
            None => Ok(()),
        }
    }
}

/// A file's bytes if it is a regular file within the bound. The program may have made it a link,
/// a pipe that blocks, or endless.
fn read_bounded(path: &Path, bound: u64) -> Result<Option<Vec<u8>>, String> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|it| it.is_file()) {
        return Err("not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(bound + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bound {
        return Err(format!("more than {bound} bytes"));
    }
    Ok(Some(bytes))
}

/// A program at work.
struct Running<'a> {
    cost: Option<u64>,
    cost_looked: Instant,
    too_dear: bool,
    out: Tail,
    err: Tail,
    files: &'a Files,
    limits: &'a Limits,
}

impl Running<'_> {
    fn line(&mut self, line: Option<Line>, sink: &mut Sink<'_>) -> Go {
        match line {
            Some(Line::Out(said)) => {
                self.out.push(&said);
                sink(Event::Text(said));
            }
            Some(Line::Err(said)) => self.err.push(&said),
            None => {}
        }
        if self.cost_looked.elapsed() >= COST_LOOK {
            self.look_at_the_cost(sink);
        }
        if self.too_dear { Go::End } else { Go::On }
    }

    fn look_at_the_cost(&mut self, sink: &mut Sink<'_>) {
        self.cost_looked = Instant::now();
        // Half-written or nonsense: what was read before still holds.
        let Ok(Some(bytes)) = read_bounded(&self.files.cost, COST_BYTES) else {
            return;
        };
        let told = std::str::from_utf8(&bytes).ok().and_then(micro_dollars);
        // Money spent does not come back, whatever the file says later.
        if told > self.cost {
            self.cost = told;
            self.too_dear = told > Some(self.limits.cost_micro_usd);
            sink(Event::Usage(Usage {
                cost_micro_usd: told,
                ..Usage::default()
            }));
        }
    }

    /// The answer, or why there is none.
    fn judge(&self, end: End) -> Result<Option<Value>, Ended> {
        if let Some(ended) = end.ended_by(self.limits) {
            return Err(ended);
        }
        if self.too_dear {
            return Err(over_the_cost_cap(self.limits));
        }
        match end {
            End::Exited(Some(0)) => {
                self.readable_cost()?;
                Ok(self.answer())
            }
            End::Exited(Some(QUOTA_STATUS)) => Err(Ended::Quota { until_unix: None }),
            other => {
                let said = self.err.last().or(self.out.last());
                let said = said.map_or_else(String::new, |it| format!(": {}", text::head(it, 500)));
                let detail = redact::redact(&format!("{other}{said}"));
                Err(failed(Failure::AgentError, detail))
            }
        }
    }

    /// A run must know what it pays: a cost that cannot be read is not one that was not told.
    fn readable_cost(&self) -> Result<(), Ended> {
        let problem = match read_bounded(&self.files.cost, COST_BYTES) {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) if bytes.iter().all(u8::is_ascii_whitespace) => return Ok(()),
            Ok(Some(bytes)) => match std::str::from_utf8(&bytes).ok().and_then(micro_dollars) {
                Some(_) => return Ok(()),
                None => "it is not an amount of dollars such as 0.42".to_owned(),
            },
            Err(problem) => problem,
        };
        let detail = format!("the cost in $DEX_COST cannot be read: {problem}");
        Err(failed(Failure::Protocol, detail))
    }

    /// The answer. One that cannot be read is handed on as text that says so, which is no stage's
    /// answer: whoever checks it asks once more, as for any answer of the wrong shape.
    fn answer(&self) -> Option<Value> {
        let unreadable = |problem: String| {
            let told = format!("the answer in $DEX_ANSWER cannot be read: {problem}");
            Some(Value::String(told))
        };
        let bytes = match read_bounded(&self.files.answer, ANSWER_BYTES) {
            Ok(bytes) => bytes?,
            Err(problem) => return unreadable(problem),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        serde_json::from_slice(&bytes).map_or_else(|error| unreadable(error.to_string()), Some)
    }
}

fn could_not_start(error: &StartError) -> Ended {
    let failure = match error {
        StartError::NotFound { .. } => Failure::Unavailable,
        StartError::Io { .. } => Failure::AgentError,
    };
    failed(failure, text::with_causes(error))
}

/// How an attempt ended that spent more than it may.
pub(crate) fn over_the_cost_cap(limits: &Limits) -> Ended {
    let micro = limits.cost_micro_usd;
    let detail = format!(
        "more than ${}.{:02} spent",
        micro / 1_000_000,
        micro % 1_000_000 / 10_000
    );
    failed(Failure::CostCap, detail)
}

/// Dollars as decimal text, exactly; part of a micro-dollar counts as a whole one.
fn micro_dollars(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix('$').unwrap_or(text);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let (micro, rest) = part.split_at(part.len().min(6));
    let micro: u64 = format!("{micro:0<6}").parse().ok()?;
    let more = u64::from(rest.bytes().any(|byte| byte != b'0'));
    whole.checked_mul(1_000_000)?.checked_add(micro + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_become_micro_dollars_exactly() {
        for (text, micro) in [
            ("0", Some(0)),
            ("0.42\n", Some(420_000)),
            ("$1.5", Some(1_500_000)),
            (".000001", Some(1)),
            ("0.0000001", Some(1)),
            ("12.3456780", Some(12_345_678)),
            ("", None),
            (".", None),
            ("-1", None),
            ("1e3", None),
            ("+1", None),
            ("99999999999999999", None),
        ] {
            assert_eq!(micro_dollars(text), micro, "{text:?}");
        }
    }
}

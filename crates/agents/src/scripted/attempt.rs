//! One attempt, from its delay to its end.

use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::files::Files;
use super::script::{Descriptor, Fail, Hang, OneShot, Quota, When};
use super::values::{Values, empty_success};
use super::{Script, tasks};
use crate::ending::failed;
use crate::process::{End, Go, Line, Spec};
use crate::{Ended, Event, Failure, Outcome, Request, Sink, Stop, Usage, process, text};

/// How often [`Stop`] and the limits are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What the existing Dex answers to a prompt its script does not know.
const NO_MATCH: &str = "(mock default — no oneShotResponses entry matched)";

/// What an attempt needs to know, and what it has come to so far.
pub(super) struct Attempt<'a> {
    script: &'a Script,
    request: &'a Request,
    values: Values<'a>,
    files: Files<'a>,
    speed: f64,
    /// From 1.
    number: u32,
    stop: &'a Stop,
    started: Instant,
    usage: Usage,
    text: String,
    survivors: Vec<u32>,
}

/// Done, with an answer; or ended before.
type Played = Result<Option<Value>, Ended>;

impl<'a> Attempt<'a> {
    pub(super) fn new(
        script: &'a Script,
        request: &'a Request,
        speed: f64,
        number: u32,
        stop: &'a Stop,
    ) -> Attempt<'a> {
        Attempt {
            script,
            request,
            values: Values::new(request, script.feature_id(request)),
            files: Files { dir: &request.dir },
            speed,
            number,
            stop,
            started: Instant::now(),
            usage: Usage::default(),
            text: String::new(),
            survivors: Vec::new(),
        }
    }

    pub(super) fn run(mut self, sink: &mut Sink<'_>) -> Outcome {
        sink(Event::Started {
            model: self.request.model.clone(),
            session: None,
            version: None,
        });
        let is_stage = super::script::is_stage(&self.request.stage);
        let (script, prompt) = (self.script, &self.request.prompt);
        let played = match script.descriptor(self.request) {
            Some(descriptor) => self.stage(descriptor, sink),
            None if is_stage => self.stage(&Descriptor::default(), sink),
            None => match script.root.one_shot.iter().find(|it| it.matches(prompt)) {
                Some(one_shot) => self.one_shot(one_shot, sink),
                None => {
                    self.say(NO_MATCH, sink);
                    self.spend(0, 0, 0, 0, sink);
                    Ok(None)
                }
            },
        };
        let (ended, answer) = match played {
            Ok(answer) => (Ended::Finished, answer),
            Err(ended) => (ended, None),
        };
        Outcome {
            ended,
            answer,
            text: self.text,
            usage: self.usage,
            model: self.request.model.clone(),
            session: None,
            survivors: self.survivors,
        }
    }

    fn stage(&mut self, descriptor: &Descriptor, sink: &mut Sink<'_>) -> Played {
        let nothing = Descriptor::default();
        let descriptor = self.of_this_phase(descriptor).unwrap_or(&nothing);
        let tokens = descriptor.tokens;
        self.spend(
            descriptor.cost,
            tokens.input,
            tokens.output,
            tokens.cached,
            sink,
        );
        self.pause(descriptor.delay * self.speed)?;
        self.quota(descriptor.quota.as_ref())?;
        self.fail(descriptor.fail.as_ref(), When::Before)?;
        self.change(descriptor, sink)?;
        if let Some(text) = &descriptor.text {
            let text = self.values.fill(text);
            self.say(&text, sink);
        }
        sink(Event::Usage(self.usage));
        self.hang(descriptor.hang)?;
        self.over_a_cap()?;
        self.fail(descriptor.fail.as_ref(), When::After)?;
        if let Some(status) = descriptor.exit {
            let detail = format!("exited with status {status} and no final event");
            return Err(failed(Failure::Protocol, detail));
        }
        if self.request.stage == "implement" {
            self.tick_tasks()?;
        }
        Ok(self.answer(descriptor))
    }

    /// `implement` is called once for each task phase: the stage's own effects belong to the
    /// first, and a phase may have a descriptor of its own.
    fn of_this_phase<'d>(&self, descriptor: &'d Descriptor) -> Option<&'d Descriptor> {
        let Some(phase) = self.request.values.get("phase") else {
            return Some(descriptor);
        };
        if let Some(own) = descriptor.phases.get(phase) {
            return Some(own);
        }
        let tasks = self.tasks_file().map(|it| it.1).unwrap_or_default();
        let first = tasks::first_phase(&tasks).unwrap_or("1");
        (phase == first).then_some(descriptor)
    }

    fn spend(&mut self, cost: u64, input: u64, output: u64, cached: u64, sink: &mut Sink<'_>) {
        self.usage = Usage {
            cost_micro_usd: Some(cost),
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_tokens: Some(cached),
        };
        sink(Event::Usage(self.usage));
    }

    fn say(&mut self, said: &str, sink: &mut Sink<'_>) {
        self.text = text::head(said, text::OUTCOME_BYTES);
        sink(Event::Text(said.to_owned()));
    }

    fn answer(&self, descriptor: &Descriptor) -> Option<Value> {
        let mut answer = match &descriptor.structured_output {
            Some(given) => Some(given.clone()),
            None => empty_success(self.request, &self.script.features()),
        };
        if !descriptor.questions.is_empty() {
            let questions = Value::Array(descriptor.questions.clone());
            answer
                .get_or_insert_default()
                .insert("questions".into(), questions);
        }
        answer.map(Value::Object)
    }

    // What ends an attempt early.

    fn quota(&self, quota: Option<&Quota>) -> Result<(), Ended> {
        match quota.filter(|it| self.number <= it.times) {
            None => Ok(()),
            Some(quota) => Err(Ended::Quota {
                until_unix: quota.after_ms.and_then(seconds_after_now),
            }),
        }
    }

    fn fail(&self, fail: Option<&Fail>, when: When) -> Result<(), Ended> {
        let applies = |it: &&Fail| it.when == when && it.times.is_none_or(|n| self.number <= n);
        match fail.filter(applies) {
            None => Ok(()),
            Some(fail) => Err(failed(fail.failure, self.values.fill(&fail.detail))),
        }
    }

    fn over_a_cap(&self) -> Result<(), Ended> {
        let limits = &self.request.limits;
        if self.usage.cost_micro_usd > Some(limits.cost_micro_usd) {
            return Err(crate::command::over_the_cost_cap(limits));
        }
        if self.text.len() as u64 > limits.output_bytes {
            return Err(End::OutputCap.ended_by(limits).unwrap_or(Ended::Stopped));
        }
        Ok(())
    }

    /// Sleeps for scripted milliseconds, under the wall clock and [`Stop`].
    fn pause(&self, ms: f64) -> Result<(), Ended> {
        let until = Instant::now() + duration(ms);
        loop {
            self.limits(None)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn hang(&self, hang: Option<Hang>) -> Result<(), Ended> {
        let Some(hang) = hang else { return Ok(()) };
        let since = Instant::now();
        let until = match hang {
            Hang::Forever => None,
            Hang::For(ms) => Some(since + duration(ms)),
        };
        while until.is_none_or(|until| Instant::now() < until) {
            self.limits(Some(since))?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn limits(&self, silent_since: Option<Instant>) -> Result<(), Ended> {
        let limits = &self.request.limits;
        let end = if self.stop.is_set() {
            End::Stopped
        } else if self.started.elapsed() >= limits.wall {
            End::TimeOut
        } else if silent_since.is_some_and(|since| since.elapsed() >= limits.idle) {
            End::Idle
        } else {
            return Ok(());
        };
        Err(end.ended_by(limits).unwrap_or(Ended::Stopped))
    }

    // What it changes.

    fn change(&mut self, descriptor: &Descriptor, sink: &mut Sink<'_>) -> Result<(), Ended> {
        for it in &descriptor.writes {
            let content = self.values.fill(&it.content);
            self.tool("Write", &it.path.0, sink, |files, path| {
                files.write(path, &content)
            })?;
        }
        for it in &descriptor.appends {
            let line = self.values.fill(&it.line);
            self.tool("Append", &it.path.0, sink, |files, path| {
                files.append(path, &line)
            })?;
        }
        for it in &descriptor.edit {
            let (find, replace) = (self.values.fill(&it.find), self.values.fill(&it.replace));
            self.tool("Edit", &it.path.0, sink, |files, path| {
                files.edit(path, &find, &replace)
            })?;
        }
        for it in &descriptor.delete {
            self.tool("Delete", &it.0, sink, |files, path| files.delete(path))?;
        }
        for argv in &descriptor.run.0 {
            self.command(argv, sink)?;
        }
        Ok(())
    }

    fn tool(
        &self,
        name: &str,
        path: &str,
        sink: &mut Sink<'_>,
        change: impl FnOnce(&Files<'_>, &str) -> std::io::Result<()>,
    ) -> Result<(), Ended> {
        let path = self
            .values
            .fill_path(path)
            .map_err(|problem| self.script_error(name, &problem))?;
        sink(Event::ToolCall {
            name: name.to_owned(),
            summary: path.clone(),
        });
        let changed = change(&self.files, &path);
        sink(Event::ToolResult {
            ok: changed.is_ok(),
            summary: changed
                .as_ref()
                .map_or_else(ToString::to_string, |()| String::new()),
        });
        changed.map_err(|error| self.script_error(name, &format!("{path}: {error}")))
    }

    fn script_error(&self, tool: &str, problem: &str) -> Ended {
        let Request { stage, cycle, .. } = self.request;
        let detail = format!("the script's {tool} in {stage}, cycle {cycle}: {problem}");
        failed(Failure::AgentError, detail)
    }

    fn command(&mut self, argv: &[String], sink: &mut Sink<'_>) -> Result<(), Ended> {
        let argv: Vec<String> = argv.iter().map(|it| self.values.fill(it)).collect();
        let shown = argv.join(" ");
        sink(Event::ToolCall {
            name: "Run".to_owned(),
            summary: shown.clone(),
        });
        let limits = &self.request.limits;
        let spec = Spec {
            argv: argv.into_iter().map(OsString::from).collect(),
            dir: self.request.dir.clone(),
            env: Default::default(),
            stdin: Vec::new(),
            wall: limits.wall.saturating_sub(self.started.elapsed()),
            idle: Some(limits.idle),
            output_bytes: limits.output_bytes,
            line_bytes: text::LINE_BYTES,
            sandbox: crate::sandbox::Sandbox::none(),
            process_list: self.request.scratch.join("processes"),
        };
        let finished = process::run(&spec, self.stop, &mut |line| {
            if let Some(Line::Out(said) | Line::Err(said)) = line {
                sink(Event::Text(said));
            }
            Go::On
        })
        .map_err(|error| self.script_error("Run", &text::with_causes(&error)))?;
        sink(Event::ToolResult {
            ok: finished.end == End::Exited(Some(0)),
            summary: String::new(),
        });
        self.survivors.extend(finished.survivors);
        match finished.end.ended_by(limits) {
            Some(ended) => Err(ended),
            None if finished.end == End::Exited(Some(0)) => Ok(()),
            None => Err(self.script_error("Run", &format!("{shown}: {}", finished.end))),
        }
    }

    fn tasks_file(&self) -> Option<(String, String)> {
        let path = format!("{}/tasks.md", self.request.spec_dir.as_deref()?);
        let content = self.files.read(&path).ok()?;
        Some((path, content))
    }

    fn tick_tasks(&self) -> Result<(), Ended> {
        let Some((path, content)) = self.tasks_file() else {
            return Ok(());
        };
        let phase = self.request.values.get("phase").map(String::as_str);
        let ticked = tasks::tick(&content, phase);
        if ticked == content {
            return Ok(());
        }
        self.files
            .write(&path, &ticked)
            .map_err(|error| self.script_error("Edit", &format!("{path}: {error}")))
    }

    fn one_shot(&mut self, one_shot: &OneShot, sink: &mut Sink<'_>) -> Played {
        let (input, output) = (one_shot.input_tokens, one_shot.output_tokens);
        self.spend(one_shot.cost, input, output, 0, sink);
        self.pause(one_shot.delay_ms * self.speed)?;
        if let Some(write) = &one_shot.edit_file {
            let content = self.values.fill(&write.content);
            self.tool("Write", &write.path.0, sink, |files, path| {
                files.write(path, &content)
            })?;
        }
        self.say(&one_shot.final_text, sink);
        sink(Event::Usage(self.usage));
        self.over_a_cap()?;
        if one_shot.finished_normally {
            return Ok(None);
        }
        let detail = "the script says it did not finish".to_owned();
        Err(failed(Failure::AgentError, detail))
    }
}

fn duration(ms: f64) -> Duration {
    // Bounded when it was read; a `speed` beyond reason must not panic either.
    Duration::try_from_secs_f64((ms / 1000.0).min(1e6)).unwrap_or_default()
}

fn seconds_after_now(ms: f64) -> Option<i64> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).ok()? + duration(ms);
    // Rounded up: before that second is over it is not available.
    i64::try_from(at.as_millis().div_ceil(1000)).ok()
}

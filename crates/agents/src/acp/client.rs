//! Our side of one conversation: lines of the agent in, messages and [`Event`]s out.
//!
//! It goes one way: initialize, a login that asks nobody where one is needed, a session, its mode
//! and model, the prompt, once more for a forgotten answer, over. It knows no process and no
//! clock; files are read and written as the agent asks, through [`WorkDir`]. Requests are answered
//! at once and in every phase: a refusal after the end, "no such method" for what we do not offer.

use std::path::Path;

use serde_json::{Value, json};

use super::answer;
use super::files::{FileError, WorkDir};
use super::known::{self, Known};
use super::permission::{self, Kind, Place, Verdict};
use super::updates::{Updates, one_line};
use super::verdict;
use super::wire::{
    self, AUTH_REQUIRED, INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND, Message, NOT_FOUND, RpcError,
};
use crate::ending::failed;
use crate::{Ended, Event, Failure, Request};

/// The protocol's version we speak.
const VERSION: u64 = 1;
/// Goes first in every prompt, so that nothing in the task is taken for a command of the agent's.
const PREFACE: &str = "What follows is one task. Nobody is there to be asked; do it to its end.";
/// Requests of the agent answered in one attempt; past that it is taken for broken.
const ANSWERED: u32 = 100_000;

/// What we wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Initialize,
    LogIn,
    NewSession,
    /// `session/load` or `session/resume`.
    OldSession,
    /// Settings of the session still to be said, the one being said first.
    Settings(Vec<Setting>),
    Prompt {
        /// For the answer alone.
        again: bool,
    },
    Over,
}

/// A setting of a session, as a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    what: &'static str,
    method: &'static str,
    params: Value,
    value: String,
}

/// The conversation.
#[derive(Debug)]
pub(super) struct Client<'a> {
    request: &'a Request,
    known: Option<Known>,
    may_log_in: Option<&'static str>,
    dir: WorkDir,
    phase: Phase,
    awaited: u64,
    logged_in: bool,
    cancelled_for: Option<Ended>,
    ended: Option<Ended>,
    answered: u32,
    old_sessions: Option<&'static str>,
    notice: Option<String>,
    version: Option<String>,
    pub(super) model: Option<String>,
    pub(super) session: Option<String>,
    pub(super) answer: Option<Value>,
    pub(super) updates: Updates,
    /// Messages to send.
    pub(super) out: Vec<Value>,
    /// What to tell.
    pub(super) events: Vec<Event>,
}

impl<'a> Client<'a> {
    /// `may_log_in`: the way to log in that asks nobody, when what it needs is there.
    pub(super) fn new(
        request: &'a Request,
        known: Option<Known>,
        may_log_in: Option<&'static str>,
        dir: WorkDir,
    ) -> Client<'a> {
        let mut client = Client {
            request,
            known,
            may_log_in,
            dir,
            phase: Phase::Initialize,
            awaited: 0,
            logged_in: false,
            cancelled_for: None,
            ended: None,
            answered: 0,
            old_sessions: None,
            notice: None,
            version: None,
            model: None,
            session: None,
            answer: None,
            updates: Updates::new(&request.dir),
            out: Vec::new(),
            events: Vec::new(),
        };
        let hello = json!({
            "protocolVersion": VERSION,
            "clientCapabilities": {
                "fs": {"readTextFile": true, "writeTextFile": true},
                "terminal": false,
            },
            "clientInfo": {"name": "dex", "title": "dex", "version": env!("CARGO_PKG_VERSION")},
        });
        client.ask("initialize", &hello);
        client
    }

    /// How it ended, once it has.
    pub(super) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Why it is being cancelled, if it is.
    pub(super) fn cancelled_for(&self) -> Option<&Ended> {
        self.cancelled_for.as_ref()
    }

    /// What is awaited before the agent can work; none once it does.
    pub(super) fn setting_up(&self) -> Option<&'static str> {
        match &self.phase {
            Phase::Initialize => Some("initialize"),
            Phase::LogIn => Some("authenticate"),
            Phase::NewSession => Some("session/new"),
            Phase::OldSession => Some("its old session"),
            Phase::Settings(_) => Some("the settings of its session"),
            Phase::Prompt { .. } | Phase::Over => None,
        }
    }

    /// Ends the agent's turn; its answer is no longer waited for beyond a grace.
    pub(super) fn cancel(&mut self, why: Ended) {
        if self.ended.is_some() || self.cancelled_for.is_some() {
            return;
        }
        match (&self.phase, &self.session) {
            (Phase::Prompt { .. }, Some(session)) => {
                let params = json!({"sessionId": session});
                self.out.push(wire::notification("session/cancel", &params));
                self.cancelled_for = Some(why);
            }
            _ => self.end(why),
        }
    }

    /// Ends the conversation for a reason of ours.
    pub(super) fn end(&mut self, why: Ended) {
        self.events.extend(self.updates.flush());
        self.phase = Phase::Over;
        if self.ended.is_none() {
            self.ended = Some(self.cancelled_for.take().unwrap_or(why));
        }
    }

    /// A bound was crossed that is seen in the conversation.
    pub(super) fn over(&self) -> Option<Ended> {
        let limits = &self.request.limits;
        if self.updates.turns > limits.turns.max(1) {
            let detail = format!("more than {} turns", limits.turns.max(1));
            return Some(failed(Failure::MaxTurns, detail));
        }
        let spent = self.updates.usage().cost_micro_usd;
        (spent > Some(limits.cost_micro_usd)).then(|| crate::command::over_the_cost_cap(limits))
    }

    /// Takes one line.
    pub(super) fn line(&mut self, line: &str) {
        match wire::read(line) {
            Message::Other => {}
            Message::Notification { method, params } => {
                let ours = params["sessionId"].as_str() == self.session.as_deref();
                // What an old session replays is not this attempt's.
                let working = matches!(self.phase, Phase::Prompt { .. });
                if method == "session/update" && working && ours {
                    let events = self.updates.update(&params["update"]);
                    self.events.extend(events);
                }
            }
            Message::Request { id, method, params } => {
                let result = self.serve(&method, &params);
                self.out.push(wire::answer(&id, result));
            }
            Message::Response { id, result } => {
                if id.as_u64() == Some(self.awaited) && self.phase != Phase::Over {
                    self.got(result);
                }
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) {
        self.awaited += 1;
        self.out.push(wire::request(self.awaited, method, params));
    }

    /// What to type to log in.
    pub(super) fn login(&self) -> &'static str {
        self.known
            .map_or("log in with the agent itself", Known::login)
    }

    fn fail(&mut self, error: &RpcError) {
        self.end(verdict::of_error(
            error,
            self.login(),
            crate::ending::now_unix(),
        ));
    }

    fn got(&mut self, result: Result<Value, RpcError>) {
        match (self.phase.clone(), result) {
            (Phase::Initialize, Ok(hello)) => self.initialized(&hello),
            (Phase::LogIn, Ok(_)) => self.new_session(),
            (Phase::NewSession, Ok(session)) => {
                let Some(id) = session["sessionId"].as_str().map(str::to_owned) else {
                    let detail = "it gave its session no id";
                    return self.end(failed(Failure::Protocol, detail));
                };
                self.session = Some(id);
                self.opened(&session);
            }
            (Phase::OldSession, Ok(session)) => {
                self.session = self.request.session.clone();
                self.opened(&session);
            }
            (Phase::OldSession, Err(error)) if error.code != AUTH_REQUIRED => {
                self.notice = Some("is not there any more".to_owned());
                self.new_session();
            }
            (Phase::NewSession | Phase::OldSession, Err(error))
                if error.code == AUTH_REQUIRED && !self.logged_in =>
            {
                match self.may_log_in {
                    Some(method) => {
                        self.logged_in = true;
                        self.phase = Phase::LogIn;
                        self.ask("authenticate", &json!({"methodId": method}));
                    }
                    None => self.fail(&error),
                }
            }
            (Phase::LogIn, Err(mut error)) => {
                error.code = AUTH_REQUIRED;
                self.fail(&error);
            }
            (Phase::Settings(mut settings), result) => {
                let said = settings.remove(0);
                match result {
                    Ok(_) => {
                        if said.what == "model" {
                            self.model = Some(said.value);
                        }
                        self.set(settings);
                    }
                    Err(error) => {
                        let why = verdict::words(&error);
                        let detail =
                            format!("it does not take the {} {}: {why}", said.what, said.value);
                        self.end(failed(Failure::Unavailable, detail));
                    }
                }
            }
            (Phase::Prompt { again }, Ok(result)) => self.prompt_ended(again, &result),
            (Phase::Over, _) => {}
            (_, Err(error)) => self.fail(&error),
        }
    }

    fn initialized(&mut self, hello: &Value) {
        let version = hello["protocolVersion"].as_u64();
        if version != Some(VERSION) {
            let version = version.map_or_else(|| "another version".to_owned(), |it| it.to_string());
            let detail = format!("it speaks {version} of the Agent Client Protocol, not {VERSION}");
            return self.end(failed(Failure::Unavailable, detail));
        }
        self.version = hello["agentInfo"]["version"].as_str().map(one_line);
        let name = hello["agentInfo"]["name"].as_str().unwrap_or_default();
        if self.known.is_none() && name.ends_with("claude-agent-acp") {
            self.known = Some(Known::Claude);
        }
        let can = &hello["agentCapabilities"];
        // Resuming is loading without the history, which we throw away.
        self.old_sessions = if can["sessionCapabilities"]["resume"].is_object() {
            Some("session/resume")
        } else if can["loadSession"] == true {
            Some("session/load")
        } else {
            None
        };
        match (&self.request.session, self.old_sessions) {
            (Some(session), Some(method)) => {
                let mut params = self.session_params();
                params["sessionId"] = json!(session);
                self.phase = Phase::OldSession;
                self.ask(method, &params);
            }
            (Some(_), None) => {
                self.notice = Some("cannot be gone on with by this agent".to_owned());
                self.new_session();
            }
            (None, _) => self.new_session(),
        }
    }

    fn session_params(&self) -> Value {
        let mut params = json!({"cwd": self.request.dir, "mcpServers": []});
        if let Some(meta) = known::session_meta(self.known, self.request) {
            params["_meta"] = meta;
        }
        params
    }

    fn new_session(&mut self) {
        self.phase = Phase::NewSession;
        let params = self.session_params();
        self.ask("session/new", &params);
    }

    /// The session is there: says its mode and model (case H07: every time), then the task.
    fn opened(&mut self, session: &Value) {
        let current = &session["models"]["currentModelId"];
        let option = option_of(session, "model").map(|it| &it["currentValue"]);
        let current = option.unwrap_or(current);
        self.model = current.as_str().map(one_line);
        match self.settings(session) {
            Ok(settings) => self.set(settings),
            Err(ended) => self.end(ended),
        }
    }

    fn settings(&self, session: &Value) -> Result<Vec<Setting>, Ended> {
        let id = self.session.as_deref().unwrap_or_default();
        let wanted = known::modes(&self.request.tools);
        let modes = Choice::of(session, "mode", id);
        let mode = modes.and_then(|modes| {
            let mode = wanted.iter().find(|it| modes.offers(it))?;
            Some(modes.setting(mode))
        });
        let model = match (&self.request.model, Choice::of(session, "model", id)) {
            (Some(wanted), Some(models)) if models.offers(wanted) => Some(models.setting(wanted)),
            (Some(wanted), Some(models)) => {
                let some: Vec<_> = models.values.iter().take(12).map(String::as_str).collect();
                let detail = format!(
                    "it does not offer the model {wanted}; it has {}",
                    some.join(", ")
                );
                return Err(failed(Failure::Unavailable, one_line(&detail)));
            }
            (Some(wanted), None) => {
                let detail = format!("it offers no choice of model, so {wanted} cannot be used");
                return Err(failed(Failure::Unavailable, detail));
            }
            (None, _) => None,
        };
        Ok(model.into_iter().chain(mode).collect())
    }

    fn set(&mut self, settings: Vec<Setting>) {
        let Some(first) = settings.first() else {
            return self.prompt();
        };
        let (method, params) = (first.method, first.params.clone());
        self.phase = Phase::Settings(settings);
        self.ask(method, &params);
    }

    fn prompt(&mut self) {
        self.events.push(Event::Started {
            model: self.model.clone(),
            session: self.session.clone(),
            version: self.version.clone(),
        });
        if let (Some(why), Some(old)) = (self.notice.take(), &self.request.session) {
            let text = format!("Session {} {why}; a new one is begun.", one_line(old));
            self.events.push(Event::Text(text));
        }
        let mut first = PREFACE.to_owned();
        let instructions = crate::claude::instructions(&self.request.dir);
        if !instructions.is_empty() {
            let files = instructions.join(" and ");
            first.push_str(&format!(
                " First read {files} in the working directory: the project's own instructions."
            ));
        }
        let mut task = self.request.prompt.clone();
        if let Some(schema) = &self.request.schema {
            task.push_str(&answer::request(schema));
        }
        self.send_prompt(false, &[&first, &task]);
    }

    fn send_prompt(&mut self, again: bool, texts: &[&str]) {
        let blocks: Vec<Value> = texts
            .iter()
            .map(|text| json!({"type": "text", "text": text}))
            .collect();
        self.phase = Phase::Prompt { again };
        self.updates.prompted();
        let params = json!({"sessionId": self.session, "prompt": blocks});
        self.ask("session/prompt", &params);
    }

    fn prompt_ended(&mut self, again: bool, result: &Value) {
        self.events.extend(self.updates.flush());
        self.updates.prompt_ended(result);
        self.events.push(Event::Usage(self.updates.usage()));
        let reason = result["stopReason"].as_str().unwrap_or_default();
        let ended = verdict::of_stop_reason(reason);
        if ended != Ended::Finished || self.cancelled_for.is_some() {
            return self.end(ended);
        }
        if self.updates.turns == 0 {
            // Some agents end their turn like this when their model could not be reached.
            let detail = "it ended its turn without having done or said anything";
            return self.end(failed(Failure::AgentError, detail));
        }
        if let Some(schema) = &self.request.schema {
            self.answer = answer::read(&self.updates.text);
            if self.answer.is_none() && !again && answer::is_needed(schema) {
                return self.send_prompt(true, &[answer::FORGOTTEN]);
            }
        }
        self.end(Ended::Finished);
    }

    /// Answers a request of the agent.
    fn serve(&mut self, method: &str, params: &Value) -> Result<Value, (i64, String)> {
        self.answered += 1;
        if self.answered > ANSWERED {
            let detail = format!("it asked us for something {ANSWERED} times");
            self.end(failed(Failure::Protocol, detail));
        }
        let known = [
            "session/request_permission",
            "fs/read_text_file",
            "fs/write_text_file",
        ];
        if !known.contains(&method) {
            let method = one_line(method);
            return Err((METHOD_NOT_FOUND, format!("there is no method {method}")));
        }
        let working = matches!(self.phase, Phase::Prompt { .. }) && self.cancelled_for.is_none();
        if method == "session/request_permission" {
            return Ok(if working {
                self.permit(params)
            } else {
                permission::cancelled()
            });
        }
        if !working {
            return Err((INVALID_PARAMS, "the turn is over".to_owned()));
        }
        let Some(path) = params["path"].as_str() else {
            return Err((INVALID_PARAMS, "there is no path".to_owned()));
        };
        match method {
            "fs/read_text_file" => self.read_file(Path::new(path), params),
            _ => self.write_file(Path::new(path), params),
        }
    }

    fn permit(&mut self, params: &Value) -> Value {
        let (call, events) = self.updates.asked(&params["toolCall"]);
        self.events.extend(events);
        let places: Vec<Place> = call.paths.iter().map(|it| self.dir.place(it)).collect();
        let verdict = permission::decide(&self.request.tools, call.kind(), &places);
        let choice = permission::choose(verdict, &params["options"]);
        if let Verdict::Refuse(_) = verdict {
            self.events.push(Event::Denied { tool: call.label() });
        }
        choice
    }

    fn read_file(&mut self, path: &Path, params: &Value) -> Result<Value, (i64, String)> {
        let (line, limit) = (params["line"].as_u64(), params["limit"].as_u64());
        match self.dir.read(path, line, limit) {
            Ok(text) => Ok(json!({"content": text})),
            Err(error) => Err(self.refused("read", path, &error)),
        }
    }

    fn write_file(&mut self, path: &Path, params: &Value) -> Result<Value, (i64, String)> {
        let Some(text) = params["content"].as_str() else {
            return Err((INVALID_PARAMS, "there is no content".to_owned()));
        };
        let place = self.dir.place(path);
        let verdict = permission::decide(&self.request.tools, Kind::Edit, &[place]);
        let written = match verdict {
            Verdict::Allow => self.dir.write(path, text),
            Verdict::Refuse(why) => Err(FileError::Refused(why)),
        };
        match written {
            Ok(()) => Ok(json!({})),
            Err(error) => Err(self.refused("write", path, &error)),
        }
    }

    fn refused(&mut self, tool: &str, path: &Path, error: &FileError) -> (i64, String) {
        let code = match error {
            FileError::Refused(_) => {
                let tool = tool.to_owned();
                self.events.push(Event::Denied { tool });
                INVALID_PARAMS
            }
            FileError::NotFound => NOT_FOUND,
            FileError::Failed(_) => INTERNAL,
        };
        (code, format!("{error}: {}", path.display()))
    }
}

/// A setting the session offers a choice for, in either of the protocol's two forms.
struct Choice<'a> {
    what: &'static str,
    session: &'a str,
    /// The option's id; none in the older form.
    option: Option<&'a str>,
    values: Vec<String>,
}

impl<'a> Choice<'a> {
    fn of(session: &'a Value, what: &'static str, id: &'a str) -> Option<Choice<'a>> {
        let text = |it: &Value| it.as_str().map(str::to_owned);
        if let Some(option) = option_of(session, what) {
            let entries = option["options"].as_array().into_iter().flatten();
            let values = entries.flat_map(|it| match it["options"].as_array() {
                Some(group) => group.iter().filter_map(|it| text(&it["value"])).collect(),
                None => text(&it["value"]).into_iter().collect::<Vec<_>>(),
            });
            return Some(Choice {
                what,
                session: id,
                option: option["id"].as_str(),
                values: values.collect(),
            });
        }
        let (list, key) = match what {
            "model" => (&session["models"]["availableModels"], "modelId"),
            _ => (&session["modes"]["availableModes"], "id"),
        };
        let values = list.as_array()?.iter().filter_map(|it| text(&it[key]));
        Some(Choice {
            what,
            session: id,
            option: None,
            values: values.collect(),
        })
    }

    fn offers(&self, value: &str) -> bool {
        self.values.iter().any(|it| it == value)
    }

    fn setting(&self, value: &str) -> Setting {
        let (method, params) = match (self.option, self.what) {
            (Some(option), _) => (
                "session/set_config_option",
                json!({"sessionId": self.session, "configId": option, "value": value}),
            ),
            (None, "model") => (
                "session/set_model",
                json!({"sessionId": self.session, "modelId": value}),
            ),
            (None, _) => (
                "session/set_mode",
                json!({"sessionId": self.session, "modeId": value}),
            ),
        };
        Setting {
            what: self.what,
            method,
            params,
            value: value.to_owned(),
        }
    }
}

/// The session's select option of a category.
fn option_of<'a>(session: &'a Value, category: &str) -> Option<&'a Value> {
    let options = session["configOptions"].as_array()?;
    let is = |it: &&Value| it["category"] == category && it["options"].is_array();
    options.iter().find(is)
}

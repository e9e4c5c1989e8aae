//! A fake model on loopback, so that the real agent CLIs run in tests. It speaks what they do: the
//! Anthropic Messages API (Claude Code), the OpenAI Responses API (Codex), chat completions
//! (opencode) and the Gemini API.
//!
//! [`FakeModel::start`] takes [`Lane`]s, each a list of [`Turn`]s: text, tool calls, an error, a
//! hang, or half a stream. Every request is kept ([`FakeModel::requests`]), so a test can assert
//! what *we* asked for: tools offered, system prompt, session header, key. The server listens on
//! `127.0.0.1`, on a port the system picks, and ends when it is dropped.
//!
//! A turn is chosen by counting the model's replies already in the request ([`Pick::ByHistory`],
//! the default), so a retried or repeated request gets the same answer, and a resumed session goes
//! on where it was. [`Pick::InOrder`] gives each request the next turn ("overloaded once, then
//! fine"). Requests that offer no tool at all, or not the lane's [`Lane::main_tool`], are side
//! calls (titles, summaries): they get a short text and use up no turn.
//!
//! It checks nothing the real service checks, keeps no state but the requests, and is not fit for
//! anything but tests.

mod chat;
mod gemini;
mod http;
mod responses;
mod turn;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use turn::{Lane, Pick, Tokens, Turn};
use turn::{Reply, stream_events};

/// A request the server received.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// `POST`, `HEAD` …
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body, null when there was none or it was not JSON.
    pub body: Value,
    /// Whether it was answered as a side call.
    pub side: bool,
}

impl Recorded {
    /// Names of the tools offered to the model, sorted.
    pub fn tools(&self) -> Vec<String> {
        match self.wire() {
            Wire::Messages => {}
            Wire::Responses => return responses::tools(&self.body),
            Wire::Chat => return chat::tools(&self.body),
            Wire::Gemini => return gemini::tools(&self.body),
        }
        let tools = self.body["tools"].as_array();
        let names = tools.into_iter().flatten().map(|tool| &tool["name"]);
        let mut names: Vec<_> = names.filter_map(Value::as_str).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// The system prompt, blocks joined by newlines.
    pub fn system(&self) -> String {
        match self.wire() {
            Wire::Messages => text_of(&self.body["system"]),
            Wire::Responses => responses::system(&self.body),
            Wire::Chat => chat::texts(&self.body, "system").join("\n"),
            Wire::Gemini => gemini::system(&self.body),
        }
    }

    /// All text of the last user message.
    pub fn last_user_text(&self) -> String {
        self.user_texts().pop().unwrap_or_default()
    }

    /// All text of the user messages before the model's first reply: the prompt, with what the
    /// CLI put around it.
    pub fn first_user_text(&self) -> String {
        match self.wire() {
            Wire::Messages => self.user_messages().next().map(text_of).unwrap_or_default(),
            Wire::Responses => responses::first_user_text(&self.body),
            Wire::Chat | Wire::Gemini => self.user_texts().into_iter().next().unwrap_or_default(),
        }
    }

    /// Every tool result in the request: whether it was an error (Codex and opencode do not say),
    /// and its text.
    pub fn tool_results(&self) -> Vec<(bool, String)> {
        match self.wire() {
            Wire::Messages => {}
            Wire::Responses => return responses::results(&self.body),
            Wire::Chat => {
                let results = chat::texts(&self.body, "tool").into_iter();
                return results.map(|it| (false, it)).collect();
            }
            Wire::Gemini => return gemini::results(&self.body),
        }
        self.user_messages()
            .filter_map(Value::as_array)
            .flatten()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| (block["is_error"] == true, text_of(&block["content"])))
            .collect()
    }

    /// The session the CLI says it is in.
    pub fn session(&self) -> Option<&str> {
        let names = ["x-claude-code-session-id", "thread-id"];
        let id = names.iter().find_map(|it| self.headers.get(*it));
        id.map(String::as_str)
    }

    /// Whether any part of the body contains this text.
    pub fn mentions(&self, text: &str) -> bool {
        self.body.to_string().contains(text)
    }

    fn wire(&self) -> Wire {
        // What is no message is no conversation either; then it does not matter.
        Wire::of(&self.path).unwrap_or(Wire::Messages)
    }

    /// How many replies of the model are already there.
    fn replies(&self) -> usize {
        match self.wire() {
            Wire::Messages | Wire::Chat => self.messages("assistant").count(),
            Wire::Responses => responses::replies(&self.body),
            Wire::Gemini => gemini::replies(&self.body),
        }
    }

    fn user_texts(&self) -> Vec<String> {
        match self.wire() {
            Wire::Messages => self.user_messages().map(text_of).collect(),
            Wire::Responses => responses::user_texts(&self.body).collect(),
            Wire::Chat => chat::texts(&self.body, "user"),
            Wire::Gemini => gemini::user_texts(&self.body),
        }
    }

    /// Whether it asks for a stream.
    fn streams(&self) -> bool {
        match self.wire() {
            Wire::Messages | Wire::Responses | Wire::Chat => self.body["stream"] == true,
            Wire::Gemini => path_of(&self.path).ends_with(":streamGenerateContent"),
        }
    }

    fn user_messages(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.messages("user").map(|message| &message["content"])
    }

    fn messages(&self, role: &'static str) -> impl DoubleEndedIterator<Item = &Value> {
        let messages = self.body["messages"].as_array();
        let messages = messages.map(Vec::as_slice).unwrap_or_default();
        messages.iter().filter(move |it| it["role"] == role)
    }
}

/// Text of a string, or of an array of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// The running server.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    lanes: Vec<(Lane, AtomicUsize)>,
    requests: Mutex<Vec<Recorded>>,
    arrived: Condvar,
    problems: Mutex<Vec<String>>,
    open: Mutex<Vec<TcpStream>>,
    replies: AtomicUsize,
    ending: AtomicBool,
}

impl FakeModel {
    /// Serves one list of turns for every main request.
    pub fn start(turns: Vec<Turn>) -> FakeModel {
        FakeModel::with_lanes(vec![Lane::new(turns)])
    }

    /// Serves several lanes; the first that matches a request answers it.
    pub fn with_lanes(lanes: Vec<Lane>) -> FakeModel {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            lanes: lanes
                .into_iter()
                .map(|lane| (lane, AtomicUsize::new(0)))
                .collect(),
            requests: Mutex::default(),
            arrived: Condvar::new(),
            problems: Mutex::default(),
            open: Mutex::default(),
            replies: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
        });
        let acceptor = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || accept(&listener, &shared))
        };
        FakeModel {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    /// `http://127.0.0.1:<port>`, for `ANTHROPIC_BASE_URL`; with `/v1` a `base_url` of Codex.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).clone()
    }

    /// The requests for a message of the main conversation: no side calls, no probes.
    pub fn main_requests(&self) -> Vec<Recorded> {
        let mut requests = self.requests();
        requests.retain(|it| !it.side && is_message(&it.method, &it.path));
        requests
    }

    /// Waits until that many main requests have arrived; false when `timeout` passed first.
    pub fn wait_for_main_requests(&self, count: usize, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut requests = lock(&self.shared.requests);
        loop {
            let main = requests
                .iter()
                .filter(|it| !it.side && is_message(&it.method, &it.path));
            if main.count() >= count {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            let waited = self.shared.arrived.wait_timeout(requests, left);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What the turns' expectations found wrong.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.shared.problems).clone()
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        for stream in lock(&self.shared.open).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // A connection of our own wakes the acceptor, which then sees `ending`.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for stream in listener.incoming() {
        if shared.ending.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        if let Ok(copy) = stream.try_clone() {
            lock(&shared.open).push(copy);
        }
        let shared = Arc::clone(shared);
        threads.retain(|thread| !thread.is_finished());
        threads.push(std::thread::spawn(move || {
            // The peer may vanish at any time (it is killed in some tests): not our problem.
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        }));
    }
    for stream in lock(&shared.open).drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// A wire format, told by the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Messages,
    Responses,
    Chat,
    Gemini,
}

impl Wire {
    fn of(path: &str) -> Option<Wire> {
        match path_of(path) {
            "/v1/messages" => Some(Wire::Messages),
            "/v1/responses" => Some(Wire::Responses),
            "/v1/chat/completions" => Some(Wire::Chat),
            path if path.ends_with(":generateContent") => Some(Wire::Gemini),
            path if path.ends_with(":streamGenerateContent") => Some(Wire::Gemini),
            _ => None,
        }
    }
}

fn is_message(method: &str, path: &str) -> bool {
    method == "POST" && Wire::of(path).is_some()
}

fn path_of(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(request) = http::read(stream)? else {
        return Ok(());
    };
    let mut recorded = Recorded {
        body: serde_json::from_slice(&request.body).unwrap_or_default(),
        method: request.method,
        path: request.path,
        headers: request.headers,
        side: false,
    };
    let message = is_message(&recorded.method, &recorded.path);
    let lane = shared.lanes.iter().find(|(lane, _)| lane.takes(&recorded));
    recorded.side = message && lane.is_none();
    let keep = recorded.clone();
    lock(&shared.requests).push(keep);
    shared.arrived.notify_all();

    match lane {
        Some((lane, used)) if message => answer(stream, shared, &recorded, lane, used),
        _ if message => reply_with(stream, shared, &recorded, &Turn::text("side call")),
        _ => answer_probe(stream, &recorded),
    }
}

/// Whatever is not a message: start-up probes and token counting.
fn answer_probe(stream: &TcpStream, request: &Recorded) -> io::Result<()> {
    let path = request.path.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("HEAD", _) => http::respond(stream, 200, &[], b""),
        ("GET", "/" | "/api/hello") => respond_json(stream, 200, &[], &json!({"message": "hello"})),
        ("POST", "/v1/messages/count_tokens") => {
            respond_json(stream, 200, &[], &json!({"input_tokens": 42}))
        }
        _ => {
            let error = (404, "not_found_error", "no such path here");
            respond_error(stream, request, error, &[])
        }
    }
}

fn answer(
    stream: &TcpStream,
    shared: &Shared,
    request: &Recorded,
    lane: &Lane,
    used: &AtomicUsize,
) -> io::Result<()> {
    let number = match lane.pick {
        Pick::ByHistory => request.replies(),
        Pick::InOrder => used.fetch_add(1, Ordering::SeqCst),
    };
    // Past the script's end the last turn repeats: a loop stays a loop, an error an error.
    let Some(turn) = lane.turns.get(number).or(lane.turns.last()) else {
        return reply_with(stream, shared, request, &Turn::text("done"));
    };
    if let Some(expect) = &turn.expect
        && let Err(problem) = expect.check(request)
    {
        lock(&shared.problems).push(format!("turn {number}: {problem}"));
        let error = (400, "invalid_request_error", problem.as_str());
        return respond_error(stream, request, error, &[]);
    }
    reply_with(stream, shared, request, turn)
}

fn reply_with(
    mut stream: &TcpStream,
    shared: &Shared,
    request: &Recorded,
    turn: &Turn,
) -> io::Result<()> {
    std::thread::sleep(turn.delay);
    let id = shared.replies.fetch_add(1, Ordering::SeqCst) + 1;
    let model = &request.body["model"];
    match &turn.reply {
        Reply::Hang => {
            // Until the peer goes away or the server is dropped, whichever is first.
            let mut byte = [0];
            let _ = io::Read::read(&mut stream, &mut byte);
            Ok(())
        }
        Reply::Error {
            status,
            kind,
            message,
            headers,
        } => respond_error(stream, request, (*status, kind, message), headers),
        Reply::Blocks | Reply::Half if request.streams() => {
            let unnamed = |it: Vec<Value>| it.into_iter().map(|it| ("", it)).collect();
            let mut events: Vec<(&str, Value)> = match request.wire() {
                Wire::Messages => stream_events(turn, id, model),
                Wire::Responses => responses::stream_events(turn, id, request),
                Wire::Chat => unnamed(chat::stream_chunks(turn, id, model)),
                Wire::Gemini => unnamed(vec![gemini::answer(turn, id)]),
            };
            let ends = request.wire() == Wire::Chat && matches!(turn.reply, Reply::Blocks);
            if matches!(turn.reply, Reply::Half) {
                events.truncate(events.len() / 2);
            }
            let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
            let id = ("request-id".to_owned(), format!("req_fake_{id}"));
            let mut headers = turn.headers.clone();
            headers.extend([kind, id]);
            http::write_head(stream, 200, &headers)?;
            for (name, data) in events {
                if !name.is_empty() {
                    writeln!(stream, "event: {name}")?;
                }
                write!(stream, "data: {data}\n\n")?;
                stream.flush()?;
            }
            if ends {
                write!(stream, "data: [DONE]\n\n")?;
            }
            Ok(())
        }
        Reply::Blocks => {
            let whole = match request.wire() {
                Wire::Messages | Wire::Responses => turn.message(id, request),
                Wire::Chat => chat::message(turn, id, model),
                Wire::Gemini => gemini::answer(turn, id),
            };
            respond_json(stream, 200, &turn.headers, &whole)
        }
        Reply::Half => http::write_head(stream, 200, &[("content-length".into(), "999".into())]),
    }
}

fn respond_error(
    stream: &TcpStream,
    request: &Recorded,
    (status, kind, message): (u16, &str, &str),
    headers: &[(String, String)],
) -> io::Result<()> {
    let body = match request.wire() {
        Wire::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Wire::Responses => {
            let resets_at = headers.iter().find(|it| it.0 == turn::RESETS_AT);
            responses::error(status, kind, message, resets_at.map(|it| it.1.as_str()))
        }
        Wire::Chat => chat::error(kind, message),
        Wire::Gemini => gemini::error(status, message),
    };
    respond_json(stream, status, headers, &body)
}

fn respond_json(
    stream: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &Value,
) -> io::Result<()> {
    let mut headers = headers.to_vec();
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    http::respond(stream, status, &headers, body.to_string().as_bytes())
}

//! Whether agents can be used here: asked side by side, each answer waited for a bounded time.
//!
//! Asking starts their programs, so the others are asked only when the configured one cannot be
//! used or is slow to say.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use agents::{Agent, Availability};
use dex::live::Settings;
use gitdb::Repo;

use crate::error::Failure;
use crate::exit::Exit;
use crate::session;

/// How long an agent may take to say whether it is there.
pub const PATIENCE: Duration = Duration::from_secs(12);
/// The others are asked once the configured one has taken this long.
const SOON: Duration = Duration::from_secs(2);
/// How long they may take once it is known that the configured one cannot be used.
const OTHERS: Duration = Duration::from_secs(5);

/// A question to an agent, which is being answered.
#[derive(Debug)]
pub struct Asked(Instant, Receiver<Availability>);

/// Asks an agent.
pub fn ask(agent: Box<dyn Agent>) -> Asked {
    let (tell, told) = std::sync::mpsc::channel();
    // Left behind when it takes too long; it ends with this process.
    std::thread::spawn(move || tell.send(agent.availability()));
    Asked(Instant::now(), told)
}

/// Asks `claude` and `codex`, which need nothing but to be installed; but for one of them.
pub fn ask_native(but: Option<&str>) -> Vec<(&'static str, Asked)> {
    let all: [Box<dyn Agent>; 2] = [
        Box::new(agents::claude::Claude::default()),
        Box::new(agents::codex::Codex::default()),
    ];
    let wanted = all.into_iter().filter(|it| but != Some(it.name()));
    wanted.map(|it| (it.name(), ask(it))).collect()
}

impl Asked {
    /// Its answer, waited for until this long after it was asked; none when that is over.
    pub fn within(&self, patience: Duration) -> Option<Availability> {
        let left = patience.saturating_sub(self.0.elapsed());
        self.1.recv_timeout(left).ok()
    }
}

/// What a person who may use another agent is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Start a run.
    Start,
    /// Go on with one, which keeps its agent.
    GoOn,
}

impl To {
    /// What to type to do it with another agent.
    fn with(self, agent: &str) -> String {
        match self {
            To::Start => format!("`dex run --agent {agent}`"),
            To::GoOn => format!("`dex config agent {agent}`, then `dex resume --from STAGE`"),
        }
    }
}

/// Refuses an agent that cannot be used, before anything is changed, and names those that can.
pub fn check(repo: &Repo, settings: &Settings, to: To) -> Result<(), Failure> {
    let asked = ask(session::agent(repo, settings, 0.0)?);
    let soon = asked.within(SOON);
    if matches!(soon, Some(Availability::Ready { .. })) {
        return Ok(());
    }
    let others = ask_native(Some(&settings.agent));
    let answer = soon.or_else(|| asked.within(PATIENCE));
    let (headline, hint) = match answer {
        Some(Availability::Ready { .. }) => return Ok(()),
        Some(Availability::NotInstalled { program }) => (
            format!("{program} is not installed, or not on PATH; nothing was started"),
            "Install it, or choose another agent: `dex config agent NAME`.".to_owned(),
        ),
        Some(Availability::NotLoggedIn { hint }) => (
            format!("{} is not logged in; nothing was started", settings.agent),
            format!("Log in ({hint})."),
        ),
        None => (
            format!(
                "{} did not say within {} s whether it is ready; nothing was started",
                settings.agent,
                PATIENCE.as_secs()
            ),
            "Start it once by hand and see what it waits for.".to_owned(),
        ),
    };
    let since = Instant::now();
    let mut hints = vec![hint];
    for (name, asked) in others {
        let patience = asked.0.elapsed() + OTHERS.saturating_sub(since.elapsed());
        if let Some(Availability::Ready { version }) = asked.within(patience) {
            let version = version.map(|it| format!(" {it}")).unwrap_or_default();
            hints.push(format!("{name}{version} is ready: {}.", to.with(name)));
        }
    }
    let configured = settings.agent_command.iter().flatten().next();
    for (known, version) in agents::acp::installed() {
        let name = known.name();
        if settings.agent != "acp" || configured.is_none_or(|it| it != name) {
            let version = version.map(|it| format!(" {it}")).unwrap_or_default();
            let with = to.with("acp");
            hints.push(format!(
                "{name}{version} is installed: `dex config agentCommand '[\"{name}\"]'`, then {with}."
            ));
        }
    }
    Err(Failure::new(Exit::Agent, headline).hint(hints.join(" ")))
}

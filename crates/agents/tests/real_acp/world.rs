//! A work tree and a home of its own for one agent, and the model it talks to.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use agents::acp::{Acp, Known};
use agents::{Request, Stop};
use serde_json::json;
use testkit::fake_model::{FakeModel, Lane, Turn};
use testkit::real_agent;

use crate::ground::{Ground, Ran};

/// One of the agents, installed.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) known: Known,
    program: &'static Path,
}

impl Who {
    /// Each of them, or those that `DEX_TEST_ACP` names.
    pub(crate) fn all() -> Vec<Option<Who>> {
        let wanted = std::env::var("DEX_TEST_ACP").unwrap_or_default();
        let all = [Known::Claude, Known::Opencode, Known::Gemini];
        let wanted = all
            .into_iter()
            .filter(|it| wanted.is_empty() || wanted.contains(it.name()));
        wanted.map(Who::new).collect()
    }

    fn new(known: Known) -> Option<Who> {
        let program = match known {
            Known::Gemini => real_agent::gemini(),
            Known::Opencode => real_agent::opencode(),
            Known::Claude => real_agent::claude_acp(),
            Known::Codex => None,
        };
        Some(Who {
            known,
            program: program?,
        })
    }

    /// A tool that only the main conversation is offered.
    fn main_tool(&self) -> &'static str {
        match self.known {
            Known::Gemini => "read_file",
            Known::Opencode => "read",
            Known::Claude | Known::Codex => "Read",
        }
    }

    fn argv(&self) -> Vec<OsString> {
        let mut argv = agents::acp::resolve(&[self.known.name().into()]);
        argv[0] = self.program.as_os_str().to_owned();
        argv
    }

    fn environment(&self, url: &str) -> Vec<(&'static str, OsString)> {
        match self.known {
            Known::Gemini => vec![
                ("GOOGLE_GEMINI_BASE_URL", url.into()),
                ("GEMINI_API_KEY", "dummy-key".into()),
            ],
            Known::Opencode => {
                let fake = json!({"npm": "@ai-sdk/openai-compatible", "name": "fake",
                    "options": {"baseURL": format!("{url}/v1"), "apiKey": "dummy-key"},
                    "models": {"m": {"name": "m"}}});
                let config = json!({"provider": {"fake": fake}, "model": "fake/m",
                    "enabled_providers": ["fake"]});
                vec![("OPENCODE_CONFIG_CONTENT", config.to_string().into())]
            }
            Known::Claude | Known::Codex => vec![
                ("ANTHROPIC_BASE_URL", url.into()),
                ("ANTHROPIC_API_KEY", "dummy-key".into()),
            ],
        }
    }
}

/// Where one agent works.
pub(crate) struct World {
    ground: Ground,
    pub(crate) model: FakeModel,
    agent: Acp,
    known: Known,
}

impl std::ops::Deref for World {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl World {
    /// The turns are made when the path of `a.txt` is known.
    pub(crate) fn new(who: &Who, turns: impl FnOnce(&str) -> Vec<Turn>) -> World {
        let ground = Ground::new();
        let file = ground.beside("work/a.txt").display().to_string();
        let lane = Lane::new(turns(&file)).main_tool(who.main_tool());
        let model = FakeModel::with_lanes(vec![lane]);
        let agent = Acp {
            argv: who.argv(),
            environment: ground.environment(who.environment(&model.url())),
        };
        World {
            ground,
            model,
            agent,
            known: who.known,
        }
    }

    pub(crate) fn request(&self) -> Request {
        // Gemini's default asks another model first which model to ask.
        let model = (self.known == Known::Gemini).then_some("gemini-2.5-pro");
        self.request_of(model, Duration::from_secs(240))
    }

    pub(crate) fn run(&self, request: &Request) -> Ran {
        self.attempt(&self.agent, &self.model, request, &Stop::new())
    }
}

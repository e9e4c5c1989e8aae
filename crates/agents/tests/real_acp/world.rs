//! A work tree and a home of its own for one agent, and the model it talks to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::acp::{Acp, Known};
use agents::{Agent, Ended, Event, Limits, Outcome, Request, Stop, ToolSurface};
use serde_json::json;
use testkit::crash::survivors;
use testkit::fake_model::{FakeModel, Lane, Turn};
use testkit::real_agent;

const MARK: &str = "DEX_TEST_MARK";

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
    root: tempfile::TempDir,
    pub(crate) model: FakeModel,
    agent: Acp,
    known: Known,
    mark: String,
}

/// How an attempt went.
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<Event>,
    pub(crate) took: Duration,
}

impl World {
    /// The turns are made when the path of `a.txt` is known.
    pub(crate) fn new(who: &Who, turns: impl FnOnce(&str) -> Vec<Turn>) -> World {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["work", "home", "tmp", "attempts/1"] {
            std::fs::create_dir_all(root.path().join(name)).expect("directories");
        }
        let path = |name: &str| root.path().join(name).into_os_string();
        let file = root.path().join("work/a.txt").display().to_string();
        let lane = Lane::new(turns(&file)).main_tool(who.main_tool());
        let model = FakeModel::with_lanes(vec![lane]);
        let mark = uuid::Uuid::now_v7().to_string();
        let mut environment = vec![
            ("HOME", path("home")),
            ("XDG_CONFIG_HOME", path("home/.config")),
            ("XDG_DATA_HOME", path("home/.local/share")),
            ("XDG_CACHE_HOME", path("home/.cache")),
            ("XDG_STATE_HOME", path("home/.local/state")),
            ("TMPDIR", path("tmp")),
            (MARK, mark.clone().into()),
        ];
        environment.extend(who.environment(&model.url()));
        let environment = environment
            .into_iter()
            .map(|(name, value)| (OsString::from(name), value));
        let world = World {
            root,
            model,
            agent: Acp {
                argv: who.argv(),
                environment: BTreeMap::from_iter(environment),
            },
            known: who.known,
            mark,
        };
        world.write("a.txt", "hello\n");
        world
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, content).expect("writes");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    pub(crate) fn request(&self) -> Request {
        // Gemini's default asks another model first which model to ask.
        let model = (self.known == Known::Gemini).then(|| "gemini-2.5-pro".to_owned());
        Request {
            stage: "implement".into(),
            cycle: 1,
            feature: None,
            prompt: "Change the greeting.".into(),
            dir: self.work(),
            spec_dir: None,
            run_id: "run".into(),
            tools: ToolSurface::Workspace,
            schema: None,
            model,
            session: None,
            limits: Limits {
                wall: Duration::from_secs(150),
                idle: Duration::from_secs(120),
                turns: 12,
                cost_micro_usd: 1_000_000,
                output_bytes: 1 << 24,
            },
            scratch: self.beside("attempts/1"),
            values: BTreeMap::new(),
        }
    }

    pub(crate) fn run(&self, request: &Request) -> Ran {
        let started = Instant::now();
        let mut events = Vec::new();
        let mut sink = |event| events.push(event);
        let outcome = self.agent.run(request, &mut sink, &Stop::new());
        let took = started.elapsed();
        let left = survivors(MARK, &self.mark, Duration::ZERO);
        assert_eq!(left, [], "nothing is left running when run() returns");
        assert_eq!(outcome.survivors, [0; 0]);
        assert_eq!(self.model.problems(), [""; 0]);
        Ran {
            outcome,
            events,
            took,
        }
    }
}

impl Ran {
    pub(crate) fn finished(&self, who: &Who) {
        let ended = &self.outcome.ended;
        assert_eq!(ended, &Ended::Finished, "{who:?}\n{:#?}", self.events);
    }
}

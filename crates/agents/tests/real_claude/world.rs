//! A work tree, a home and a scratch directory, the pinned CLI, and the model it talks to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::claude::Claude;
use agents::{Agent, Ended, Event, Failure, Limits, Outcome, Request, Stop, ToolSurface};
use testkit::crash::survivors;
use testkit::fake_model::{FakeModel, Turn};
use testkit::real_agent;

const MARK: &str = "DEX_TEST_MARK";

/// A work tree, a home and a scratch directory, and the model to talk to.
pub(crate) struct World {
    root: tempfile::TempDir,
    pub(crate) model: FakeModel,
    pub(crate) claude: Claude,
    mark: String,
}

pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<Event>,
    pub(crate) took: Duration,
}

impl World {
    pub(crate) fn new(turns: Vec<Turn>) -> Option<World> {
        World::start(|_| FakeModel::start(turns))
    }

    /// For turns that name paths: they are made when the world's root is known.
    pub(crate) fn at_root(turns: impl FnOnce(&Path) -> Vec<Turn>) -> Option<World> {
        World::start(|root| FakeModel::start(turns(root)))
    }

    pub(crate) fn start(model: impl FnOnce(&Path) -> FakeModel) -> Option<World> {
        let program = real_agent::claude()?;
        let root = tempfile::tempdir().expect("a directory");
        for name in ["work", "home", "tmp", "attempts/1"] {
            std::fs::create_dir_all(root.path().join(name)).expect("directories");
        }
        let mark = uuid::Uuid::now_v7().to_string();
        let model = model(root.path());
        let path = |name: &str| root.path().join(name).into_os_string();
        let environment = [
            ("HOME", path("home")),
            ("XDG_CONFIG_HOME", path("home/.config")),
            ("XDG_DATA_HOME", path("home/.local/share")),
            ("XDG_CACHE_HOME", path("home/.cache")),
            ("XDG_STATE_HOME", path("home/.local/state")),
            ("TMPDIR", path("tmp")),
            ("ANTHROPIC_BASE_URL", model.url().into()),
            ("ANTHROPIC_API_KEY", "dummy-key".into()),
            (MARK, mark.clone().into()),
        ];
        let environment = environment.map(|(name, value)| (OsString::from(name), value));
        let claude = Claude {
            program: program.to_owned(),
            environment: BTreeMap::from(environment),
        };
        let world = World {
            root,
            model,
            claude,
            mark,
        };
        world.write("a.txt", "hello\n");
        Some(world)
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
            model: Some("claude-sonnet-4-5".into()),
            session: None,
            limits: Limits {
                wall: Duration::from_secs(60),
                idle: Duration::from_secs(30),
                turns: 12,
                cost_micro_usd: 1_000_000,
                output_bytes: 1 << 24,
            },
            scratch: self.beside("attempts/1"),
            sandbox: agents::sandbox::Sandbox::none(),
            values: BTreeMap::new(),
        }
    }

    pub(crate) fn run(&self, request: &Request) -> Ran {
        self.run_until(request, &Stop::new())
    }

    pub(crate) fn run_until(&self, request: &Request, stop: &Stop) -> Ran {
        let started = Instant::now();
        let mut events = Vec::new();
        let outcome = self
            .claude
            .run(request, &mut |event| events.push(event), stop);
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
    pub(crate) fn failure(&self) -> (Failure, &str) {
        match &self.outcome.ended {
            Ended::Failed { failure, detail } => (*failure, detail),
            other => panic!("not a failure: {other:?}\n{:#?}", self.events),
        }
    }

    pub(crate) fn finished(&self) {
        let ended = &self.outcome.ended;
        assert_eq!(ended, &Ended::Finished, "{:#?}", self.events);
    }

    pub(crate) fn denied(&self) -> Vec<&str> {
        let denied = self.events.iter().filter_map(|event| match event {
            Event::Denied { tool } => Some(tool.as_str()),
            _ => None,
        });
        denied.collect()
    }

    pub(crate) fn results(&self) -> Vec<(bool, &str)> {
        let results = self.events.iter().filter_map(|event| match event {
            Event::ToolResult { ok, summary } => Some((*ok, summary.as_str())),
            _ => None,
        });
        results.collect()
    }
}

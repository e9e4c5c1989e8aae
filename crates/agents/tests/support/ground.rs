//! Where a real program works in a test: a work tree, a home, a temporary directory, scratch
//! directories, and the mark by which everything that is started there is found.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses some of it"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::{Agent, Ended, Event, Failure, Limits, Outcome, Request, Stop, ToolSurface};
use testkit::crash::survivors;
use testkit::fake_model::FakeModel;

const MARK: &str = "DEX_TEST_MARK";

pub struct Ground {
    root: tempfile::TempDir,
    mark: String,
}

/// How an attempt went.
pub struct Ran {
    pub outcome: Outcome,
    pub events: Vec<Event>,
    pub took: Duration,
}

impl Ground {
    pub fn new() -> Ground {
        Ground::under(&std::env::temp_dir())
    }

    /// In a directory of its own in `dir`, with a greeting in `a.txt`.
    pub fn under(dir: &Path) -> Ground {
        let root = tempfile::tempdir_in(dir).expect("a directory");
        for name in ["work", "home", "tmp", "attempts/1", "attempts/2"] {
            std::fs::create_dir_all(root.path().join(name)).expect("directories");
        }
        let mark = uuid::Uuid::now_v7().to_string();
        let ground = Ground { root, mark };
        ground.write("a.txt", "hello\n");
        ground
    }

    /// A home of its own and the mark, and what is added.
    pub fn environment(
        &self,
        more: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let path = |name: &str| self.beside(name).into_os_string();
        let own = [
            ("HOME", path("home")),
            ("XDG_CONFIG_HOME", path("home/.config")),
            ("XDG_DATA_HOME", path("home/.local/share")),
            ("XDG_CACHE_HOME", path("home/.cache")),
            ("XDG_STATE_HOME", path("home/.local/state")),
            ("TMPDIR", path("tmp")),
            (MARK, self.mark.clone().into()),
        ];
        let all = own.into_iter().chain(more);
        all.map(|(name, value)| (name.into(), value)).collect()
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn work(&self) -> PathBuf {
        self.beside("work")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, content).expect("writes");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    /// A stage that works; silence is borne half as long as work.
    pub fn request_of(&self, model: Option<&str>, wall: Duration) -> Request {
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
            model: model.map(str::to_owned),
            session: None,
            limits: Limits {
                wall,
                idle: wall / 2,
                turns: 12,
                cost_micro_usd: 1_000_000,
                output_bytes: 1 << 24,
            },
            sandbox: agents::sandbox::Sandbox::none(),
            scratch: self.beside("attempts/1"),
            values: BTreeMap::new(),
        }
    }

    /// Makes an attempt; nothing may be left running, and the model must have been asked well.
    pub fn attempt(
        &self,
        agent: &dyn Agent,
        model: &FakeModel,
        request: &Request,
        stop: &Stop,
    ) -> Ran {
        let started = Instant::now();
        let mut events = Vec::new();
        let outcome = agent.run(request, &mut |event| events.push(event), stop);
        let took = started.elapsed();
        let left = survivors(MARK, &self.mark, Duration::ZERO);
        assert_eq!(left, [], "nothing is left running when run() returns");
        assert_eq!(outcome.survivors, [0; 0]);
        assert_eq!(model.problems(), [""; 0]);
        Ran {
            outcome,
            events,
            took,
        }
    }
}

impl Ran {
    #[track_caller]
    pub fn finished(&self) {
        let ended = &self.outcome.ended;
        assert_eq!(ended, &Ended::Finished, "{:#?}", self.events);
    }

    #[track_caller]
    pub fn failure(&self) -> (Failure, &str) {
        match &self.outcome.ended {
            Ended::Failed { failure, detail } => (*failure, detail),
            other => panic!("not a failure: {other:?}\n{:#?}", self.events),
        }
    }

    pub fn text(&self) -> &str {
        &self.outcome.text
    }

    pub fn denied(&self) -> Vec<&str> {
        let denied = self.events.iter().filter_map(|event| match event {
            Event::Denied { tool } => Some(tool.as_str()),
            _ => None,
        });
        denied.collect()
    }

    pub fn results(&self) -> Vec<(bool, &str)> {
        let results = self.events.iter().filter_map(|event| match event {
            Event::ToolResult { ok, summary } => Some((*ok, summary.as_str())),
            _ => None,
        });
        results.collect()
    }
}

//! Where a scenario happens: a work tree, a home, scratch directories, a model, and a thief.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agents::{Agent, Ended, Event, Failure, Limits, Outcome, Request, Stop, ToolSurface};
use testkit::crash::survivors;
use testkit::fake_model::{FakeModel, Lane, Turn};

use crate::fake_cli;
use crate::rows::{How, ROWS, Row};
use crate::scenario::Scenario;

const MARK: &str = "DEX_TEST_MARK";
/// Written by a program without a model once it is to be cancelled.
pub(crate) const UNDER_WAY: &str = "under-way.txt";

/// Runs a scenario for every back end that has it.
#[expect(clippy::print_stdout, reason = "a failure must say whose it is")]
pub(crate) fn every_row(scenario: Scenario) {
    for row in ROWS {
        println!("{}: {}", row.name(), scenario.name());
        match row.how(scenario) {
            How::Not(_) => {}
            How::Real(turns) => {
                // None only when tests that need the network are left out, which it says.
                if let Some(program) = row.program() {
                    let mut world = World::new();
                    world.start_model(turns(&world.at()));
                    play(*row, scenario, &world, program);
                }
            }
            How::Fake(script) => {
                let world = World::new();
                let program = fake_cli::install(&world.beside("bin"), *row, script);
                play(*row, scenario, &world, &program);
            }
            How::Acted(script) => {
                let world = World::new();
                let (file, record) = (world.beside("script.json"), world.beside("record"));
                std::fs::write(&file, script(&world.at()).to_string()).expect("writes");
                let argv = [row.actor(), file, record];
                let program = fake_cli::becomes(&world.beside("bin"), *row, &argv);
                play(*row, scenario, &world, &program);
            }
        }
    }
}

fn play(row: &dyn Row, scenario: Scenario, world: &World, program: &Path) {
    scenario.prepare(world);
    let mut environment = world.environment();
    if scenario != Scenario::NoCredentials {
        environment.extend(row.account(world, scenario));
    }
    let agent = row.agent(program.to_owned(), environment);
    let mut request = world.request(row.model());
    scenario.change(&mut request);
    let mut ran = vec![world.attempt(&*agent, &request, scenario)];
    if scenario == Scenario::Resume {
        request.session = ran[0].outcome.session.clone();
        request.scratch = world.beside("attempts/2");
        ran.push(world.attempt(&*agent, &request, scenario));
    }
    scenario.check(row, world, &ran);
}

pub(crate) struct World {
    root: tempfile::TempDir,
    model: FakeModel,
    /// Whether the program at work asks it.
    is_asked: bool,
    thief: FakeModel,
    mark: String,
    pub(crate) quota_until: i64,
}

/// What turns are written with: paths and times that are known when the world is.
pub(crate) struct At {
    pub(crate) root: PathBuf,
    pub(crate) quota_until: i64,
}

impl At {
    pub(crate) fn file(&self, name: &str) -> String {
        self.root.join("work").join(name).display().to_string()
    }
}

pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<Event>,
    pub(crate) took: Duration,
}

impl World {
    fn new() -> World {
        // Not the temporary directory: that may be in memory, below `/dev`, and Codex's sandbox
        // puts a `/dev` of its own over it.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        for name in [
            "work",
            "bin",
            "home/.codex",
            "tmp",
            "attempts/1",
            "attempts/2",
        ] {
            std::fs::create_dir_all(root.path().join(name)).expect("directories");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_secs()).expect("not yet");
        let world = World {
            root,
            model: FakeModel::start(Vec::new()),
            is_asked: false,
            thief: FakeModel::start(vec![Turn::text("stolen")]),
            mark: uuid::Uuid::now_v7().to_string(),
            quota_until: now + 7_200,
        };
        world.write("a.txt", "hello\n");
        world
    }

    fn start_model(&mut self, turns: Vec<Turn>) {
        self.model = FakeModel::with_lanes(vec![Lane::new(turns)]);
        self.is_asked = true;
    }

    fn at(&self) -> At {
        At {
            root: self.root.path().to_owned(),
            quota_until: self.quota_until,
        }
    }

    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let path = |name: &str| self.beside(name).into_os_string();
        let environment = [
            ("HOME", path("home")),
            ("XDG_CONFIG_HOME", path("home/.config")),
            ("XDG_DATA_HOME", path("home/.local/share")),
            ("XDG_CACHE_HOME", path("home/.cache")),
            ("XDG_STATE_HOME", path("home/.local/state")),
            ("TMPDIR", path("tmp")),
            (MARK, self.mark.clone().into()),
        ];
        environment.map(|(name, value)| (name.into(), value)).into()
    }

    pub(crate) fn url(&self) -> String {
        self.model.url()
    }

    pub(crate) fn thief_url(&self) -> String {
        self.thief.url()
    }

    pub(crate) fn thief_was_asked(&self) -> usize {
        self.thief.requests().len()
    }

    /// How often the model was asked; none where the program at work has no model.
    pub(crate) fn asked(&self) -> Option<usize> {
        self.is_asked.then(|| self.model.main_requests().len())
    }

    /// Waits until it has done its first step.
    fn is_under_way(&self) {
        let waits = Duration::from_secs(60);
        if self.is_asked {
            assert!(self.model.wait_for_main_requests(2, waits), "never asked");
            return;
        }
        let since = Instant::now();
        while self.read(UNDER_WAY).is_empty() {
            assert!(since.elapsed() < waits, "never under way");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.beside("work")
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

    fn request(&self, model: &str) -> Request {
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
            model: Some(model.into()),
            session: None,
            limits: Limits {
                wall: Duration::from_secs(90),
                idle: Duration::from_secs(45),
                turns: 12,
                cost_micro_usd: 1_000_000,
                output_bytes: 1 << 24,
            },
            sandbox: agents::sandbox::Sandbox::none(),
            scratch: self.beside("attempts/1"),
            values: BTreeMap::new(),
        }
    }

    fn attempt(&self, agent: &dyn Agent, request: &Request, scenario: Scenario) -> Ran {
        let stop = Stop::new();
        let mut events = Vec::new();
        let started = Instant::now();
        let outcome = std::thread::scope(|scope| {
            if scenario == Scenario::Cancel {
                scope.spawn(|| {
                    self.is_under_way();
                    stop.set();
                });
            }
            agent.run(request, &mut |event| events.push(event), &stop)
        });
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
    pub(crate) fn finished(&self) {
        let ended = &self.outcome.ended;
        assert_eq!(ended, &Ended::Finished, "{:#?}", self.events);
    }

    pub(crate) fn failure(&self) -> (Failure, &str) {
        match &self.outcome.ended {
            Ended::Failed { failure, detail } => (*failure, detail),
            other => panic!("not a failure: {other:?}\n{:#?}", self.events),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.outcome.text
    }

    pub(crate) fn results(&self) -> Vec<(bool, &str)> {
        let results = self.events.iter().filter_map(|event| match event {
            Event::ToolResult { ok, summary } => Some((*ok, summary.as_str())),
            _ => None,
        });
        results.collect()
    }
}

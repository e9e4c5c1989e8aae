//! Where a scenario happens: a work tree, a home, scratch directories, a model, and a thief.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agents::{Agent, Request, Stop};
use testkit::fake_model::{FakeModel, Lane, Turn};

use crate::fake_cli;
use crate::ground::Ground;
pub(crate) use crate::ground::Ran;
use crate::rows::{How, ROWS, Row};
use crate::scenario::Scenario;

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
    let mut environment = world.environment([]);
    if scenario != Scenario::NoCredentials {
        environment.extend(row.account(world, scenario));
    }
    let agent = row.agent(program.to_owned(), environment);
    let mut request = world.request_of(Some(row.model()), Duration::from_secs(90));
    scenario.change(&mut request);
    let mut ran = vec![world.of(&*agent, &request, scenario)];
    if scenario == Scenario::Resume {
        request.session = ran[0].outcome.session.clone();
        request.scratch = world.beside("attempts/2");
        ran.push(world.of(&*agent, &request, scenario));
    }
    scenario.check(row, world, &ran);
}

pub(crate) struct World {
    ground: Ground,
    model: FakeModel,
    /// Whether the program at work asks it.
    is_asked: bool,
    thief: FakeModel,
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

impl std::ops::Deref for World {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

impl World {
    fn new() -> World {
        // Not the temporary directory: that may be in memory, below `/dev`, and Codex's sandbox
        // puts a `/dev` of its own over it.
        let ground = Ground::under(Path::new(env!("CARGO_TARGET_TMPDIR")));
        for name in ["bin", "home/.codex"] {
            std::fs::create_dir_all(ground.beside(name)).expect("directories");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = i64::try_from(now.expect("after 1970").as_secs()).expect("not yet");
        World {
            ground,
            model: FakeModel::start(Vec::new()),
            is_asked: false,
            thief: FakeModel::start(vec![Turn::text("stolen")]),
            quota_until: now + 7_200,
        }
    }

    fn start_model(&mut self, turns: Vec<Turn>) {
        self.model = FakeModel::with_lanes(vec![Lane::new(turns)]);
        self.is_asked = true;
    }

    fn at(&self) -> At {
        At {
            root: self.root().to_owned(),
            quota_until: self.quota_until,
        }
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

    fn of(&self, agent: &dyn Agent, request: &Request, scenario: Scenario) -> Ran {
        let stop = Stop::new();
        std::thread::scope(|scope| {
            if scenario == Scenario::Cancel {
                scope.spawn(|| {
                    self.is_under_way();
                    stop.set();
                });
            }
            self.attempt(agent, &self.model, request, &stop)
        })
    }
}

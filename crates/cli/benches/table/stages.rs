//! Stages of a run with the scripted agent, each followed by the peer's commit of the same change.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agents::scripted::{Script, Scripted};
use agents::{
    Agent, Availability, Held, Mechanism, Outcome, Refusal, Request, Sink, Stop, ToolSurface,
};
use dex::run::setup::{self, Goal, Wanted};
use dex::run::{Control, Ended, Event, Observer, Reply, Runner};
use serde_json::{Value, json};
use testkit::Repo;

use crate::repo::{CHANGED, change, changed, content, path};
use crate::{Row, Samples};

/// Runs a whole run in `ours` and, after every stage that changed the files, the peer in `theirs`.
pub(crate) fn measure(ours: &Repo, theirs: &Repo, files: usize, cycles: usize) -> Vec<Row> {
    ours.write("GOAL.md", "# Measured\n\nChange files.\n");
    let clock = Arc::new(Mutex::new(Clock::default()));
    let script = Script::parse(&script(files, cycles).to_string()).expect("our own script");
    let agent = Timed {
        inner: Scripted::new(script, 0.0),
        clock: Arc::clone(&clock),
    };
    let mut between = Between {
        clock,
        theirs,
        files,
        last: Instant::now(),
        rounds: 0,
        stage: Samples::default(),
        commit: Samples::default(),
        peer: Samples::default(),
    };
    run(ours, Box::new(agent), &mut between);
    let size = format!("{files} files, {CHANGED} changed");
    let twice = between.peer.0.iter().map(|it| *it * 2).collect();
    vec![
        Row {
            operation: "stage commit (state, record, snapshot, ref)",
            size: size.clone(),
            peer: "`git add -A && git commit`",
            target: "≥ 1.25",
            ours: between.commit,
            theirs: between.peer,
        },
        Row {
            operation: "a whole stage but for the agent",
            size,
            peer: "2 × `git add -A && git commit`",
            target: "> 1 (gate)",
            ours: between.stage,
            theirs: Samples(twice),
        },
    ]
}

fn run(repo: &Repo, agent: Box<dyn Agent>, observer: &mut Between<'_>) {
    let opened = gitdb::Repo::open(repo.path()).expect("it opens");
    let config = cli::session::load_config(&opened, &Vec::new()).expect("settings");
    let wanted = Wanted {
        goal: Goal::File("GOAL.md".to_owned()),
        settings: cli::session::settings(&config),
        small: false,
        ask: false,
        step: false,
        worktree_under: None,
        note: None,
        from: None,
    };
    let (opened, live, lock) = setup::start(&opened, &wanted).expect("it starts");
    observer.last = Instant::now();
    let mut runner = Runner {
        repo: opened,
        live,
        agent,
        observer,
        control: Control::default(),
        person: false,
        lock,
        spent_committed: 0,
        committed: None,
    };
    let ended = runner.go().expect("it runs");
    assert!(matches!(ended, Ended::Completed(_)), "{ended:?}");
}

/// How long the agent worked, which is not ours, and when it ended.
#[derive(Default)]
struct Clock {
    worked: Duration,
    ended: Option<Instant>,
}

struct Timed {
    inner: Scripted,
    clock: Arc<Mutex<Clock>>,
}

impl Agent for Timed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn availability(&self) -> Availability {
        self.inner.availability()
    }

    fn enforces(&self, surface: &ToolSurface, walls: Mechanism) -> Result<Held, Refusal> {
        self.inner.enforces(surface, walls)
    }

    fn state(&self) -> Option<agents::sandbox::State> {
        None
    }

    fn run(&self, request: &Request, sink: &mut Sink<'_>, stop: &Stop) -> Outcome {
        let began = Instant::now();
        let outcome = self.inner.run(request, sink, stop);
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.worked += began.elapsed();
        clock.ended = Some(Instant::now());
        outcome
    }
}

struct Between<'a> {
    clock: Arc<Mutex<Clock>>,
    theirs: &'a Repo,
    files: usize,
    /// When the stage before was over, the peer's turn included.
    last: Instant,
    rounds: usize,
    stage: Samples,
    commit: Samples,
    peer: Samples,
}

impl Observer for Between<'_> {
    fn event(&mut self, event: &Event<'_>) {
        let Event::Committed { phase, .. } = event else {
            return;
        };
        let now = Instant::now();
        let clock = {
            let mut held = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *held)
        };
        let of_files = phase.files_changed.is_none_or(|it| it >= CHANGED as u64);
        if let Some(ended) = clock.ended
            && writes(phase.stage.as_deref().unwrap_or_default())
            && of_files
        {
            self.stage.0.push(now - self.last - clock.worked);
            self.commit.0.push(now - ended);
            let peer = self.peers_turn();
            self.peer.0.push(peer);
        }
        self.last = Instant::now();
    }

    fn ask(&mut self, _: &dex::answer::Question) -> Reply {
        Reply::Nobody
    }
}

impl Between<'_> {
    fn peers_turn(&mut self) -> Duration {
        self.rounds += 1;
        change(self.theirs.path(), self.files, &self.rounds.to_string());
        let began = Instant::now();
        for args in [&["add", "-A"][..], &["commit", "-q", "-m", "a stage"]] {
            let mut git = Command::new("git");
            let status = git.current_dir(self.theirs.path()).args(args).status();
            assert!(status.is_ok_and(|it| it.success()), "git {args:?}");
        }
        began.elapsed()
    }
}

/// Stages in which the script changes the files.
const WRITING: [&str; 5] = ["specify", "plan", "tasks", "implement", "verify"];

fn writes(stage: &str) -> bool {
    WRITING.contains(&stage)
}

fn script(files: usize, cycles: usize) -> Value {
    let stage = |cycle: usize, name: &str| {
        let round = format!("{name} {cycle}");
        let mut writes: Vec<Value> = changed(files)
            .map(|n| json!({"path": path(n), "content": content(&round, n)}))
            .collect();
        let own = match name {
            "specify" => Some(("{specDir}/spec.md", "# Spec\n")),
            "plan" => Some(("{specDir}/plan.md", "# Plan\n")),
            "tasks" => Some(("{specDir}/tasks.md", "## Phase 1: All\n\n- [ ] T001 One\n")),
            _ => None,
        };
        writes.extend(own.map(|(path, text)| json!({"path": path, "content": text})));
        json!({"delay": 0, "cost": 0.01, "writes": writes})
    };
    let cycle = |cycle: usize| {
        let mut stages: serde_json::Map<String, Value> = WRITING
            .iter()
            .map(|name| ((*name).to_owned(), stage(cycle, name)))
            .collect();
        for name in ["gap_analysis", "learnings"] {
            stages.insert(name.to_owned(), json!({"delay": 0}));
        }
        let feature = json!({"id": format!("f{cycle}"), "title": format!("Feature {cycle}")});
        json!({"feature": feature, "stages": stages})
    };
    let once = |path: &str| json!({"delay": 0, "writes": [{"path": path, "content": "# Text\n"}]});
    json!({
        "prerequisites": {},
        "clarification": {
            "clarification_product": once("{goalProductDomain}"),
            "clarification_technical": once("{goalTechnicalDomain}"),
            "clarification_synthesis": once("{goalClarified}"),
            "constitution": once("specs/constitution.md"),
            "manifest_extraction": {"delay": 0},
        },
        "dex_loop": {"cycles": (1..=cycles).map(cycle).collect::<Vec<_>>()},
        "completion": {},
    })
}

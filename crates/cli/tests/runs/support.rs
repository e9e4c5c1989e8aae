//! A project with a script for the scripted agent, and the built `dex` in it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::Repo;

/// A repository with settings for the scripted agent.
pub(crate) struct Project {
    pub(crate) repo: Repo,
}

/// What a program answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        Answer {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Project {
    /// One with a goal, the script, and settings that use it.
    pub(crate) fn new(script: &Value) -> Project {
        Project::in_repo(Repo::new(), script)
    }

    /// The same in a repository of the caller's shape.
    pub(crate) fn in_repo(repo: Repo, script: &Value) -> Project {
        let project = Project { repo };
        project.prepare(script);
        project
    }

    pub(crate) fn prepare(&self, script: &Value) {
        self.repo.write("GOAL.md", "# A greeting\n\nSay hello.\n");
        self.repo.write(".dex/mock-config.json", script.to_string());
        self.repo.write(
            ".dex/dex-config.json",
            json!({ "agent": "scripted" }).to_string(),
        );
    }

    pub(crate) fn settings(&self, settings: &Value) {
        self.repo
            .write(".dex/dex-config.json", settings.to_string());
    }

    /// `dex` with arguments, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dex"));
        command.current_dir(self.repo.path()).args(args);
        self.repo.hermetic(&mut command);
        command
            .env("DEX_SCRIPT_SPEED", "0")
            .env("DEX_TEST_MARK", self.mark());
        command
    }

    /// `dex` with arguments, to its end.
    pub(crate) fn dex(&self, args: &[&str]) -> Answer {
        self.command(args).output().expect("dex starts").into()
    }

    /// `dex`, which must succeed.
    pub(crate) fn dex_ok(&self, args: &[&str]) -> String {
        let answer = self.dex(args);
        assert_eq!(
            answer.code,
            Some(0),
            "dex {args:?}: {}{}",
            answer.out,
            answer.err
        );
        answer.out
    }

    /// `dex … --json`, read.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let answer = self.dex(args);
        serde_json::from_str(&answer.out)
            .unwrap_or_else(|_| panic!("dex {args:?}: {}{}", answer.out, answer.err))
    }

    /// Names this project in the environment of everything it starts.
    pub(crate) fn mark(&self) -> String {
        self.repo.path().to_string_lossy().into_owned()
    }

    /// The run's branch, short.
    pub(crate) fn branch(&self) -> String {
        self.repo.git(&[
            "for-each-ref",
            "--format=%(refname:short)",
            "refs/heads/dex/",
        ])
    }

    /// Subjects of the run's stage commits, oldest first.
    pub(crate) fn stages(&self) -> Vec<String> {
        let branch = self.branch();
        let log = self.repo.git(&[
            "log",
            "--reverse",
            "--format=%B%x00",
            &branch,
            "--not",
            "main",
        ]);
        log.split('\0')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// A whole run of one small feature goes through, and everything it leaves is as the format
    /// says. `what` names the kind of repository.
    pub(crate) fn whole_run(&self, what: &str) {
        let answer = self.dex(&["run", "--small"]);
        assert_eq!(answer.code, Some(0), "{what}: {}{}", answer.out, answer.err);
        self.is_over(what);
    }

    /// The run is over, and everything it left is as the format says.
    pub(crate) fn is_over(&self, what: &str) {
        let base = self.record()["baseSha"]
            .as_str()
            .expect("a base")
            .to_owned();
        let log = self.repo.git(&[
            "log",
            "--reverse",
            "--format=%B%x00",
            &format!("{base}..{}", self.branch()),
        ]);
        let found: Vec<&str> = log
            .split('\0')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .collect();
        assert_eq!(found, one_feature(), "{what}");
        let left = self
            .repo
            .git(&["status", "--porcelain", "--ignore-submodules=dirty"]);
        assert_eq!(left, "", "{what}: the tree is clean");
        let staged = self.repo.git(&["diff", "--cached", "--name-only", "HEAD"]);
        assert_eq!(staged, "", "{what}: the index agrees");
        self.repo.git(&["fsck", "--no-dangling", "--no-progress"]);
        let status = self.json(&["status", "--json"]);
        assert_eq!(status["status"], "completed", "{what}");
        assert_eq!(status["stageCommits"], 13, "{what}");
        assert_eq!(status["differences"], json!([]), "{what}");
    }

    /// The run's record at the tip of its branch.
    pub(crate) fn record(&self) -> Value {
        self.record_at(&self.branch())
    }

    pub(crate) fn record_at(&self, rev: &str) -> Value {
        let files = self
            .repo
            .git(&["ls-tree", "--name-only", rev, ".dex/runs/"]);
        let text = self.repo.git(&["show", &format!("{rev}:{}", files.trim())]);
        serde_json::from_str(&text).expect("the record is JSON")
    }

    /// Work tree and index agree with HEAD.
    pub(crate) fn is_clean(&self) -> bool {
        self.repo.git(&["status", "--porcelain"]).is_empty()
    }

    pub(crate) fn live(&self) -> Value {
        let runs = self.repo.path().join(".git/dex/runs");
        let mut files: Vec<PathBuf> = std::fs::read_dir(runs)
            .expect("a run")
            .map(|it| it.expect("an entry").path().join("live.json"))
            .collect();
        files.sort();
        let text = std::fs::read_to_string(files.last().expect("a run")).expect("a live record");
        serde_json::from_str(&text).expect("the live record is JSON")
    }
}

/// Messages of a clean run of the one feature "The greeting" whose goal is `GOAL.md`.
fn one_feature() -> Vec<String> {
    let once = [
        "clarification_product",
        "clarification_technical",
        "clarification_synthesis",
        "constitution",
        "manifest_extraction",
    ];
    let cycle = [
        "gap_analysis",
        "specify",
        "plan",
        "tasks",
        "implement",
        "verify",
        "learnings",
    ];
    let message = |stage: &str, cycle: u32, feature: &str| {
        format!(
            "dex: {stage} completed [cycle:{cycle}] [feature:{feature}]\n[checkpoint:{stage}:{cycle}]"
        )
    };
    let mut all: Vec<String> = once.iter().map(|it| message(it, 0, "-")).collect();
    all.extend(cycle.iter().map(|it| message(it, 1, "a-greeting")));
    all.push(message("completion", 0, "-"));
    all
}

/// A script of the one feature in which `implement` does this, beside nothing else.
pub(crate) fn implementing(implement: Value) -> Value {
    script(&["A greeting"], |_, name| match name {
        "implement" => Some(implement.clone()),
        "tasks" => Some(json!({ "writes": [{ "path": "{specDir}/tasks.md",
            "content": "# Tasks\n\n## Phase 1: All\n\n- [ ] T001 One\n" }] })),
        _ => None,
    })
}

/// A descriptor that only runs these commands.
pub(crate) fn runs(commands: &[&[&str]]) -> Value {
    json!({ "cost": 0.05, "run": commands })
}

/// A stage that writes a file for a price.
fn writes(path: &str, content: &str, cost: f64) -> Value {
    json!({ "delay": 0, "cost": cost, "tokens": { "input": 10, "output": 5 },
            "writes": [{ "path": path, "content": content }] })
}

/// A script of features that all go well; `stage(cycle, stage)` may replace a stage.
pub(crate) fn script(features: &[&str], stage: impl Fn(usize, &str) -> Option<Value>) -> Value {
    let usual = |cycle: usize, name: &str, title: &str| -> Value {
        if let Some(own) = stage(cycle, name) {
            return own;
        }
        match name {
            "specify" => writes("{specDir}/spec.md", &format!("# {title}\n"), 0.02),
            "plan" => writes("{specDir}/plan.md", "# Plan\n", 0.03),
            "tasks" => writes(
                "{specDir}/tasks.md",
                "# Tasks\n\n## Phase 1: First\n\n- [ ] T001 One\n\n## Phase 2: Second\n\n- [ ] T002 Two\n",
                0.01,
            ),
            "implement" => {
                let mut first = writes("src/{feature}-1.txt", "one\n", 0.05);
                first["phases"] = json!({ "2": writes("src/{feature}-2.txt", "two\n", 0.06) });
                first
            }
            "implement_fix" => writes("src/{feature}-fix.txt", "fixed\n", 0.04),
            "learnings" => json!({ "delay": 0, "cost": 0.01, "structured_output": { "insights": [
                { "category": "testing", "insight": format!("learned in {cycle}"), "context": title }
            ] } }),
            _ => json!({ "delay": 0, "cost": 0.01 }),
        }
    };
    let names = [
        "gap_analysis",
        "specify",
        "plan",
        "tasks",
        "implement",
        "implement_fix",
        "verify",
        "learnings",
    ];
    let cycles: Vec<Value> = features
        .iter()
        .enumerate()
        .map(|(at, title)| {
            let stages: serde_json::Map<String, Value> = names
                .iter()
                .map(|it| ((*it).to_owned(), usual(at + 1, it, title)))
                .collect();
            json!({ "feature": { "id": format!("f{}", at + 1), "title": title }, "stages": stages })
        })
        .collect();
    let once = |name: &str, path: &str| {
        stage(0, name).unwrap_or_else(|| writes(path, &format!("# {name}\n"), 0.02))
    };
    json!({
        "prerequisites": {},
        "clarification": {
            "clarification_product": once("clarification_product", "{goalProductDomain}"),
            "clarification_technical": once("clarification_technical", "{goalTechnicalDomain}"),
            "clarification_synthesis": once("clarification_synthesis", "{goalClarified}"),
            "constitution": once("constitution", "specs/constitution.md"),
            "manifest_extraction": stage(0, "manifest_extraction")
                .unwrap_or_else(|| json!({ "delay": 0, "cost": 0.02 })),
        },
        "dex_loop": { "cycles": cycles },
        "completion": {},
    })
}

/// A script in which everything goes well.
pub(crate) fn good(features: &[&str]) -> Value {
    script(features, |_, _| None)
}

impl Project {
    /// With settings, and a script in which everything goes well but for `stage`.
    pub(crate) fn with(
        settings: Value,
        features: &[&str],
        stage: impl Fn(usize, &str) -> Option<Value>,
    ) -> Project {
        let project = Project::new(&script(features, stage));
        let mut all = json!({ "agent": "scripted" });
        let fields = all.as_object_mut().expect("an object");
        fields.extend(settings.as_object().expect("settings").clone());
        project.settings(&all);
        project
    }

    /// `dex`, which must end with this code.
    #[track_caller]
    pub(crate) fn exits(&self, code: i32, args: &[&str]) -> Answer {
        let answer = self.dex(args);
        let shown = format!("dex {args:?}: {}{}", answer.out, answer.err);
        assert_eq!(answer.code, Some(code), "{shown}");
        answer
    }

    /// `stage:cycle` of the run's stage commits, oldest first.
    pub(crate) fn checkpoints(&self) -> Vec<String> {
        let markers = self.stages();
        let markers = markers.iter().filter_map(|it| it.lines().nth(1));
        markers
            .map(|it| {
                it.trim_start_matches("[checkpoint:")
                    .trim_end_matches(']')
                    .to_owned()
            })
            .collect()
    }

    /// The checkpoints of one cycle, without its number.
    pub(crate) fn cycle(&self, cycle: u32) -> Vec<String> {
        let end = format!(":{cycle}");
        let all = self.checkpoints();
        all.iter()
            .filter_map(|it| it.strip_suffix(&end))
            .map(str::to_owned)
            .collect()
    }

    /// The record's attempts at the tip of the run's branch.
    pub(crate) fn phases(&self) -> Vec<Value> {
        self.record()["phases"].as_array().expect("phases").clone()
    }

    /// Attempts at a stage of a cycle.
    pub(crate) fn phases_of(&self, stage: &str, cycle: u32) -> Vec<Value> {
        let of = |it: &Value| it["stage"] == stage && it["cycle"] == cycle;
        self.phases().into_iter().filter(of).collect()
    }

    /// `state.json` at the tip of the run's branch.
    pub(crate) fn state(&self) -> Value {
        self.json_at(&self.branch(), ".dex/state.json")
    }

    /// A JSON file in a commit.
    pub(crate) fn json_at(&self, rev: &str, path: &str) -> Value {
        let text = self.repo.git(&["show", &format!("{rev}:{path}")]);
        serde_json::from_str(&text).expect("JSON")
    }

    /// The manifest's status of each feature.
    pub(crate) fn features(&self) -> Vec<String> {
        let manifest = self.json_at(&self.branch(), ".dex/feature-manifest.json");
        let features = manifest["features"].as_array().expect("features").clone();
        features
            .iter()
            .map(|it| it["status"].as_str().expect("a status").to_owned())
            .collect()
    }

    /// Whether a path is anywhere in a commit of the run's branch.
    pub(crate) fn was_committed(&self, path: &str) -> bool {
        let log = self
            .repo
            .git(&["log", "--format=%h", &self.branch(), "--", path]);
        !log.is_empty()
    }

    /// Whether a path is in an undo entry.
    pub(crate) fn is_kept(&self, path: &str) -> bool {
        let refs = self.repo.git(&[
            "for-each-ref",
            "--format=%(refname)",
            "refs/dex-local/undo/",
        ]);
        refs.lines().any(|name| {
            let objects = self.repo.git(&["rev-list", "--objects", name]);
            objects.lines().any(|it| it.ends_with(path))
        })
    }

    /// Everything a refusal must leave alone: refs, HEAD, the index's bytes, files, status.
    pub(crate) fn fingerprint(&self) -> (String, String, Vec<u8>, String) {
        (
            self.repo
                .git(&["for-each-ref", "--format=%(refname) %(objectname)"]),
            std::fs::read_to_string(self.repo.path().join(".git/HEAD")).expect("a HEAD"),
            std::fs::read(self.repo.path().join(".git/index")).unwrap_or_default(),
            self.repo
                .git(&["--no-optional-locks", "status", "--porcelain", "-uall"]),
        )
    }

    /// Starts `dex` and leaves it running.
    pub(crate) fn start(&self, args: &[&str]) -> std::process::Child {
        use std::process::Stdio;
        let mut command = self.command(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().expect("dex starts")
    }

    /// Whether a process ends by itself in time; else it is ended.
    pub(crate) fn ends_within(
        &self,
        mut child: std::process::Child,
        limit: std::time::Duration,
    ) -> bool {
        let began = std::time::Instant::now();
        while began.elapsed() < limit {
            if child.try_wait().expect("our child").is_some() {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    /// Looks until something holds; panics after half a minute.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Project) -> bool) {
        let began = std::time::Instant::now();
        while !holds(self) {
            let status = self.dex(&["status", "--json"]);
            assert!(
                began.elapsed().as_secs() < 30,
                "never: {what}: {}",
                status.out
            );
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
    }

    /// Whether the agent is at work on a stage.
    pub(crate) fn is_at(&self, stage: &str) -> bool {
        let status = self.dex(&["status", "--json"]).out;
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        status["status"] == "running" && status["unfinishedStage"]["stage"] == stage
    }
}

/// A stage that writes a file for a price, for tests of their own.
pub(crate) fn wrote(path: &str, content: &str) -> Value {
    writes(path, content, 0.01)
}

//! A run made with stock git alone: two-line messages and `.dex/` files.

use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::Repo;

pub(crate) const ID: &str = "01932f5e-3c8a-7b21-9f00-aabbccaabbcc";
pub(crate) const BRANCH: &str = "dex/2026-01-02-aabbcc";

/// What `dex` answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Answer {
        Answer {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Answer {
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}", self.all()))
    }
}

/// `dex` in a directory of the repository, without a terminal.
pub(crate) fn dex_in(repo: &Repo, dir: &std::path::Path, args: &[&str]) -> Answer {
    command(repo, dir, args).output().unwrap().into()
}

/// The same, not started yet.
pub(crate) fn command(repo: &Repo, dir: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dex"));
    command
        .current_dir(dir)
        .args(args)
        .stdin(std::process::Stdio::null());
    repo.hermetic(&mut command);
    command.env("DEX_SCRIPT_SPEED", "0");
    command
}

/// `dex` in the repository.
pub(crate) fn dex(repo: &Repo, args: &[&str]) -> Answer {
    dex_in(repo, repo.path(), args)
}

/// A run being made.
pub(crate) struct Hand {
    pub(crate) repo: Repo,
    base: String,
    phases: Vec<Value>,
    features: Vec<Value>,
    pub(crate) verify_command: Option<&'static str>,
    minutes: u32,
}

impl Hand {
    /// The run's branch, checked out, with features still to do.
    pub(crate) fn new(titles: &[&str]) -> Hand {
        let repo = Repo::new();
        let base = repo.git(&["rev-parse", "HEAD"]);
        repo.git(&["switch", "-qc", BRANCH]);
        repo.write("GOAL.md", "# Goal\n");
        repo.write(
            ".dex/.gitignore",
            "/state.lock\n/ui.json\n/dex-config.json\n/mock-config.json\n",
        );
        let features = titles.iter().zip(1..).map(|(title, id)| {
            json!({ "id": id, "title": title, "description": "", "status": "pending",
                    "specDir": null, "slug": format!("f{id}") })
        });
        Hand {
            base,
            phases: Vec::new(),
            features: features.collect(),
            verify_command: None,
            minutes: 0,
            repo,
        }
    }

    fn at(&self) -> String {
        format!("2026-01-02T03:{:02}:00.000Z", self.minutes)
    }

    /// An attempt's element: three seconds, a quarter dollar.
    fn phase(&mut self, stage: &str, cycle: u32, more: &Value) -> Value {
        self.minutes += 1;
        let n = self.minutes;
        let feature = (cycle > 0).then(|| format!("f{cycle}"));
        let mut phase = json!({
            "phaseId": format!("01932f5e-0000-7000-8000-{n:012}"),
            "stage": stage, "cycle": cycle, "feature": feature, "agent": "scripted",
            "model": null, "sessionId": null, "sandbox": null, "startedAt": self.at(),
            "endedAt": self.at(), "durationMs": 3000, "costUsd": 0.25, "inputTokens": 100,
            "outputTokens": 20, "cachedTokens": 0, "status": "completed",
            "parentSha": self.repo.git(&["rev-parse", "HEAD"]),
            "checkpoint": format!("{stage}:{cycle}"),
        });
        for (key, value) in more.as_object().unwrap() {
            phase[key] = value.clone();
        }
        phase
    }

    /// An attempt that led to no commit.
    pub(crate) fn failed(&mut self, stage: &str, cycle: u32, more: &Value) {
        let mut phase = self.phase(stage, cycle, more);
        phase["status"] = json!("failed");
        phase["parentSha"] = Value::Null;
        phase["checkpoint"] = Value::Null;
        self.phases.push(phase);
    }

    /// A finished stage and its commit.
    pub(crate) fn stage(&mut self, stage: &str, cycle: u32, more: &Value) {
        let phase = self.phase(stage, cycle, more);
        self.phases.push(phase);
        if stage == "learnings" {
            let outcome = more["cycleOutcome"].as_str().unwrap_or("completed");
            let status = if outcome == "failed" {
                "active"
            } else {
                outcome
            };
            self.features[cycle as usize - 1]["status"] = json!(status);
        }
        self.write_files(stage, cycle);
        self.commit(stage, cycle);
    }

    /// `.dex/` as the commit of this stage holds it.
    pub(crate) fn write_files(&self, stage: &str, cycle: u32) {
        let over = stage == "completion";
        let status = if over { "completed" } else { "running" };
        let costs: Vec<f64> = self
            .phases
            .iter()
            .filter_map(|it| it["costUsd"].as_f64())
            .collect();
        let cycles = self
            .phases
            .iter()
            .filter(|it| it["stage"] == "learnings")
            .count();
        let total = (!costs.is_empty()).then(|| costs.iter().sum::<f64>());
        let record = json!({
            "runId": ID, "mode": "loop", "agent": "scripted", "model": null,
            "startedAt": "2026-01-02T03:00:00.000Z", "endedAt": over.then(|| self.at()),
            "status": status, "totalCostUsd": total, "cyclesCompleted": cycles,
            "descriptionFile": "GOAL.md", "baseBranch": "main", "baseSha": self.base,
            "verifyCommand": self.verify_command, "phases": self.phases,
        });
        let state = json!({
            "version": 2, "runId": ID, "status": status, "baseBranch": "main", "mode": "loop",
            "currentCycleNumber": cycle, "lastCompletedStep": stage, "currentSpecDir": null,
            "cumulativeCostUsd": total, "cyclesCompleted": cycles, "featuresCompleted": [],
            "featuresSkipped": [], "failureCounts": {}, "config": {}, "artifacts": {},
            "lastCommit": null, "startedAt": "2026-01-02T03:00:00.000Z",
        });
        let manifest = json!({
            "version": 2, "sourceHash": "", "sourcePath": "GOAL.md", "features": self.features,
        });
        self.repo
            .write(format!(".dex/runs/{ID}.json"), pretty(&record));
        self.repo.write(".dex/state.json", pretty(&state));
        self.repo
            .write(".dex/feature-manifest.json", pretty(&manifest));
    }

    pub(crate) fn commit(&self, stage: &str, cycle: u32) {
        let feature = if cycle == 0 {
            "-".to_owned()
        } else {
            format!("f{cycle}")
        };
        let message = format!(
            "dex: {stage} completed [cycle:{cycle}] [feature:{feature}]\n[checkpoint:{stage}:{cycle}]\n"
        );
        self.repo.git(&["add", "-A"]);
        self.repo.git(&[
            "commit",
            "-q",
            "--allow-empty",
            "--cleanup=verbatim",
            "-m",
            &message,
        ]);
    }

    /// A cycle that goes well, and writes a file of two lines.
    pub(crate) fn cycle(&mut self, cycle: u32, verify: &Value) {
        self.stage(
            "gap_analysis",
            cycle,
            &json!({ "agent": null, "costUsd": null, "decision": "NEXT_FEATURE" }),
        );
        self.stage("specify", cycle, &json!({}));
        self.repo.write(format!("src/f{cycle}.txt"), "one\ntwo\n");
        self.stage("implement", cycle, &json!({}));
        self.stage("verify", cycle, &json!({ "verify": verify }));
        let passed = verify["passed"].as_bool().unwrap_or(false);
        let outcome = if passed { "completed" } else { "failed" };
        self.stage("learnings", cycle, &json!({ "cycleOutcome": outcome }));
    }

    /// A complete run of two features, one verified by command, one by word.
    pub(crate) fn complete() -> Hand {
        let mut run = Hand::new(&["Greeting", "Farewell"]);
        run.verify_command = Some("make test");
        run.stage("manifest_extraction", 0, &json!({}));
        run.cycle(1, &by_command(true));
        run.cycle(2, &by_word(true));
        run.stage("completion", 0, &json!({ "agent": null, "costUsd": null }));
        run
    }

    pub(crate) fn dex(&self, args: &[&str]) -> Answer {
        dex(&self.repo, args)
    }

    /// `dex`, which must succeed; its results.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let answer = self.dex(args);
        assert_eq!(answer.code, 0, "dex {args:?}: {}", answer.all());
        answer.out
    }

    /// Every ref and what it points at.
    pub(crate) fn refs(&self) -> String {
        self.repo
            .git(&["for-each-ref", "--format=%(refname) %(objectname)"])
    }

    /// A transcript on this machine.
    pub(crate) fn transcript(&self, n: u32, checkpoint: &str, content: &[u8]) {
        let name = format!("01932f5e-0000-7000-8000-{n:012}-{checkpoint}.jsonl");
        self.repo
            .write(format!(".git/dex/runs/{ID}/log/{name}"), content);
    }
}

pub(crate) fn by_command(passed: bool) -> Value {
    json!({ "command": "make test", "exit": i32::from(!passed), "by": "command", "passed": passed })
}

pub(crate) fn by_word(passed: bool) -> Value {
    json!({ "command": null, "exit": null, "by": "word", "passed": passed })
}

fn pretty(value: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap())
}

/// Ids of commits, which change with every detail of a fixture, as one word.
pub(crate) fn masked(text: &str) -> String {
    let mut shown = String::new();
    for piece in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let hex = word.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if hex && matches!(word.len(), 7 | 12 | 40) {
            shown.push_str(&piece.replace(word, "<id>"));
        } else {
            shown.push_str(piece);
        }
    }
    shown
}

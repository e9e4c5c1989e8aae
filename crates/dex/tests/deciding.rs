//! What a run does next, and what is true of it: pure decisions over values made by hand.

use dex::files::manifest::Manifest;
use dex::files::record::{Decision, Record};
use dex::live::{PauseReason, Settings};
use dex::next::{How, Next, next};
use dex::reconcile::{Facts, Read, Reconciled, reconcile};
use dex::stage::Stage;
use gitdb::Oid;
use gitdb::checkpoint::StageMessage;
use gitdb::repo::Commit;
use serde_json::{Value, json};

/// A run under construction.
#[derive(Default)]
struct Run {
    commits: Vec<Commit>,
    phases: Vec<Value>,
    features: Vec<Value>,
}

fn oid(n: usize) -> Oid {
    format!("{n:040x}").parse().expect("hex")
}

impl Run {
    fn with_features(titles: &[&str]) -> Run {
        let mut run = Run::default();
        for (at, title) in titles.iter().enumerate() {
            run.features
                .push(json!({ "id": at + 1, "title": title, "description": "",
                "status": "pending", "specDir": null }));
        }
        for stage in [
            "clarification_product",
            "clarification_technical",
            "clarification_synthesis",
            "constitution",
            "manifest_extraction",
        ] {
            run = run.done(stage, 0, "-", json!({}));
        }
        run
    }

    fn message(mut self, message: &str) -> Run {
        let n = self.commits.len() + 1;
        self.commits.insert(
            0,
            Commit {
                oid: oid(n),
                tree: oid(1000 + n),
                parents: vec![oid(n - 1)],
                time_unix: 0,
                message: message.to_owned(),
                stage: StageMessage::read(message).ok(),
            },
        );
        self
    }

    /// A stage's commit without anything in the record.
    fn commit(self, stage: &str, cycle: u32, feature: &str) -> Run {
        self.message(&format!(
            "dex: {stage} completed [cycle:{cycle}] [feature:{feature}]\n[checkpoint:{stage}:{cycle}]\n"
        ))
    }

    /// An attempt in the record without a commit.
    fn attempt(mut self, stage: &str, cycle: u32, feature: &str, status: &str, more: Value) -> Run {
        let mut phase = json!({ "phaseId": format!("p{}", self.phases.len()), "stage": stage,
            "cycle": cycle, "feature": if feature == "-" { Value::Null } else { json!(feature) },
            "startedAt": "2026-01-01T00:00:00.000Z", "status": status, "costUsd": 0.25,
            "durationMs": 1000 });
        for (key, value) in more.as_object().expect("an object") {
            phase[key] = value.clone();
        }
        self.phases.push(phase);
        self
    }

    fn done(self, stage: &str, cycle: u32, feature: &str, mut more: Value) -> Run {
        more["checkpoint"] = json!(format!("{stage}:{cycle}"));
        self.attempt(stage, cycle, feature, "completed", more)
            .commit(stage, cycle, feature)
    }

    /// A cycle up to `implement`.
    fn built(self, cycle: u32, feature: &str) -> Run {
        self.done(
            "gap_analysis",
            cycle,
            feature,
            json!({ "decision": "NEXT_FEATURE" }),
        )
        .done("specify", cycle, feature, json!({}))
        .done("plan", cycle, feature, json!({}))
        .done("tasks", cycle, feature, json!({}))
        .done("implement", cycle, feature, json!({}))
    }

    fn verified(self, cycle: u32, feature: &str, passed: bool) -> Run {
        let verify = json!({ "command": "make", "exit": i32::from(!passed), "by": "command", "passed": passed });
        self.done("verify", cycle, feature, json!({ "verify": verify }))
    }

    fn closed(self, cycle: u32, feature: &str, outcome: &str) -> Run {
        self.done(
            "learnings",
            cycle,
            feature,
            json!({ "cycleOutcome": outcome }),
        )
    }

    fn facts(&self) -> Facts {
        let record = json!({ "runId": "01932f5e-3c8a-7b21-9f00-aabbccddeeff",
            "startedAt": "2026-01-01T00:00:00.000Z", "status": "running", "phases": self.phases });
        let manifest =
            json!({ "version": 2, "sourceHash": "", "sourcePath": "", "features": self.features });
        Facts {
            branch: Some("dex/2026-01-01-ddeeff".to_owned()),
            tip: self.commits.first().map(|it| it.oid.clone()),
            commits: self.commits.clone(),
            record: Read::Got(Record::read(record.to_string().as_bytes()).expect("a record")),
            manifest: Read::Got(
                Manifest::read(manifest.to_string().as_bytes()).expect("a manifest"),
            ),
            ..Facts::default()
        }
    }

    fn settled(&self) -> Reconciled {
        reconcile(&self.facts())
    }

    fn next(&self) -> Next {
        next(&self.settled(), &settings())
    }

    /// The stage and cycle that come next.
    fn then(&self) -> (Stage, u32) {
        match self.next() {
            Next::Stage(step) => (step.place.stage, step.place.cycle),
            other => panic!("no stage comes next: {other:?}"),
        }
    }
}

fn settings() -> Settings {
    serde_json::from_value(json!({ "agent": "scripted", "agentCommand": null, "model": null,
        "verifyCommand": "make", "notify": null, "maxCycles": 20, "maxBudgetMicroUsd": 25_000_000u64,
        "stageBudgetMicroUsd": 5_000_000, "stageTimeoutMs": 1000, "idleMs": 1000, "maxTurns": 10,
        "maxVerifyRetries": 2, "waitForQuotaMs": 0, "hooks": "skip", "sign": "never",
        "sandbox": "off", "maxFileBytes": 1000, "allow": [] }))
    .expect("settings")
}

#[test]
fn the_stages_of_a_cycle_follow_each_other() {
    let run = Run::with_features(&["Add notes"]);
    assert_eq!(run.then(), (Stage::GapAnalysis, 1));
    let run = run.built(1, "add-notes");
    assert_eq!(run.then(), (Stage::Verify, 1));
    let run = run.verified(1, "add-notes", true);
    assert_eq!(run.then(), (Stage::Learnings, 1));
    let run = run.closed(1, "add-notes", "completed");
    assert_eq!(run.next(), Next::Complete);
    assert_eq!(run.commit("completion", 0, "-").next(), Next::Over);
}

#[test]
fn a_failed_verify_is_mended_as_often_as_allowed_and_then_the_cycle_ends() {
    let run = Run::with_features(&["Add notes"])
        .built(1, "add-notes")
        .verified(1, "add-notes", false);
    assert_eq!(run.then(), (Stage::ImplementFix, 1));
    let fix = |run: Run| {
        run.done("implement_fix", 1, "add-notes", json!({}))
            .verified(1, "add-notes", false)
    };
    let run = fix(run);
    assert_eq!(run.then(), (Stage::ImplementFix, 1));
    let run = fix(run);
    let Next::Stage(step) = run.next() else {
        panic!("the cycle ends with learnings")
    };
    assert!(matches!(
        step.how,
        How::Close {
            outcome: dex::files::record::CycleOutcome::Failed,
            ..
        }
    ));
}

#[test]
fn an_unverified_feature_stays_active_and_is_asked_about_in_the_next_cycle() {
    let mut run = Run::with_features(&["Add notes", "List notes"])
        .built(1, "add-notes")
        .verified(1, "add-notes", false)
        .closed(1, "add-notes", "failed");
    run.features[0]["specDir"] = json!("specs/001-add-notes");
    let Next::Stage(step) = run.next() else {
        panic!("another cycle follows")
    };
    assert_eq!(
        (step.place.stage, step.place.cycle),
        (Stage::GapAnalysis, 2)
    );
    assert_eq!(step.how, How::Agent);
    assert_eq!(step.place.feature.as_deref(), Some("add-notes"));
    let resumed = run.done(
        "gap_analysis",
        2,
        "add-notes",
        json!({ "decision": "RESUME_FEATURE" }),
    );
    assert_eq!(resumed.then(), (Stage::Implement, 2));
    assert_eq!(resumed.settled().decision(2), Some(Decision::ResumeFeature));
}

#[test]
fn three_failed_cycles_in_a_row_stop_the_run_and_say_why() {
    let mut run = Run::with_features(&["Add notes"]);
    for cycle in 1..=3 {
        run = run
            .built(cycle, "add-notes")
            .verified(cycle, "add-notes", false)
            .closed(cycle, "add-notes", "failed");
    }
    let Next::Stop { reason, why } = run.next() else {
        panic!("it stops")
    };
    assert_eq!(reason, PauseReason::ConsecutiveFailures);
    assert_eq!(why, "3 cycles failed in a row");
}

#[test]
fn the_budget_stops_a_run_before_the_next_paid_stage() {
    let run = Run::with_features(&["Add notes"]);
    let mut settings = settings();
    settings.max_budget_micro_usd = 1_000_000;
    let run = run.built(1, "add-notes");
    let Next::Stop { reason, why } = next(&run.settled(), &settings) else {
        panic!("it stops")
    };
    assert_eq!(reason, PauseReason::BudgetExceeded);
    assert_eq!(why, "$2.50 of $1.00 is spent");
}

#[test]
fn a_verify_commit_without_a_record_is_verified_again() {
    let run = Run::with_features(&["Add notes"])
        .built(1, "add-notes")
        .commit("verify", 1, "add-notes");
    assert_eq!(run.then(), (Stage::Verify, 1));
    let codes: Vec<_> = run.settled().differences.iter().map(|it| it.code).collect();
    assert!(codes.contains(&"commit_without_record"), "{codes:?}");
}

#[test]
fn a_reverted_stage_is_done_again() {
    let run = Run::with_features(&["Add notes"])
        .done(
            "gap_analysis",
            1,
            "add-notes",
            json!({ "decision": "NEXT_FEATURE" }),
        )
        .done("specify", 1, "add-notes", json!({}))
        .done("plan", 1, "add-notes", json!({}));
    let plan = run.commits[0].oid.clone();
    let reverted = run.message(&format!(
        "Revert \"dex: plan\"\n\nThis reverts commit {plan}.\n"
    ));
    assert_eq!(reverted.then(), (Stage::Plan, 1));
    let again = reverted.commits[0].oid.clone();
    let back = reverted.message(&format!("Reapply\n\nThis reverts commit {again}.\n"));
    assert_eq!(
        back.then(),
        (Stage::Tasks, 1),
        "a reverted revert counts again"
    );
}

#[test]
fn b10_a_cherry_picked_stage_is_a_copy_and_moves_nothing() {
    let run = Run::with_features(&["Add notes", "List notes"])
        .built(1, "add-notes")
        .verified(1, "add-notes", true)
        .closed(1, "add-notes", "completed");
    assert_eq!(run.then(), (Stage::GapAnalysis, 2));
    let copied = run
        .commit("plan", 1, "add-notes")
        .commit("verify", 1, "add-notes");
    assert_eq!(copied.then(), (Stage::GapAnalysis, 2));
    let settled = copied.settled();
    assert_eq!(settled.progress.copies.len(), 2);
    assert_eq!(settled.progress.cycles_completed, 1);
    assert!(
        settled
            .differences
            .iter()
            .any(|it| it.code == "stage_copied")
    );
}

#[test]
fn b11_a_commit_that_only_mentions_a_marker_is_an_ordinary_commit() {
    let run = Run::with_features(&["Add notes"]);
    let before = run.settled().progress.done.len();
    let run = run.message("docs: explain [checkpoint:plan:2]\n\n[checkpoint:ship:99]\n");
    let settled = run.settled();
    assert_eq!(settled.progress.done.len(), before);
    assert_eq!(settled.progress.by_hand.len(), 1);
}

#[test]
fn a_record_without_its_commit_counts_for_cost_and_not_for_progress() {
    let run = Run::with_features(&["Add notes"]).attempt(
        "gap_analysis",
        1,
        "add-notes",
        "completed",
        json!({ "checkpoint": "gap_analysis:1" }),
    );
    let settled = run.settled();
    assert_eq!(settled.cost_micro, Some(6 * 250_000));
    assert_eq!(run.then(), (Stage::GapAnalysis, 1));
    assert!(
        settled
            .differences
            .iter()
            .any(|it| it.code == "record_without_commit")
    );
}

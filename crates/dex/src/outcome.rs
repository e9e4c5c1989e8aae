//! What `.dex/` must hold in the commit that finishes a stage. Pure: the same inputs give the
//! same bytes, so a restart that writes them again changes nothing.

use std::collections::BTreeMap;

use gitdb::Oid;
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer};
use crate::element;
use crate::files::manifest::{Feature, Manifest, Status as FeatureStatus};
use crate::files::record::{CycleOutcome, Record};
use crate::files::state::{LastCommit, State};
use crate::files::{dollars, learnings, store};
use crate::live::{Finished, Live};
use crate::progress;
use crate::reconcile::Reconciled;
use crate::stage::Stage;

/// Learnings kept per category.
const MAX_LEARNINGS: usize = 20;

/// What there is before the stage's commit.
#[derive(Debug, Clone)]
pub struct Before<'a> {
    /// The run, reconciled.
    pub run: &'a Reconciled,
    /// Its live record.
    pub live: &'a Live,
    /// The record at the tip, when it is this run's.
    pub record: Option<&'a Record>,
    /// The manifest at the tip.
    pub manifest: Option<&'a Manifest>,
    /// The state at the tip (of whichever run).
    pub state: Option<&'a State>,
    /// `learnings.md` as it is in the work tree.
    pub learnings: &'a str,
    /// The parent of the commit.
    pub parent: &'a Oid,
    /// Artifacts this stage produced: name to path, digest and digest of its inputs.
    pub artifacts: &'a BTreeMap<String, Value>,
    /// Digest and path of the clarified goal, for the manifest.
    pub source: (&'a str, &'a str),
}

/// The files to write before the snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct After {
    /// The record.
    pub record: Record,
    /// The state.
    pub state: State,
    /// The manifest, when there is one.
    pub manifest: Option<Manifest>,
    /// `learnings.md`, when it exists or has something new.
    pub learnings: Option<String>,
}

impl After {
    /// Path under the work tree and bytes of each file.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![
            (
                format!(".dex/runs/{}.json", self.record.run_id),
                store::to_json(&self.record),
            ),
            (".dex/state.json".to_owned(), store::to_json(&self.state)),
        ];
        if let Some(manifest) = &self.manifest {
            files.push((
                ".dex/feature-manifest.json".to_owned(),
                store::to_json(manifest),
            ));
        }
        if let Some(learnings) = &self.learnings {
            files.push((
                ".dex/learnings.md".to_owned(),
                learnings.clone().into_bytes(),
            ));
        }
        files.push((".dex/.gitignore".to_owned(), GITIGNORE.as_bytes().to_vec()));
        files.push((
            ".dex/.gitattributes".to_owned(),
            GITATTRIBUTES.as_bytes().to_vec(),
        ));
        files
    }
}

/// The machine files, as paths from the root; they are never committed.
pub const MACHINE_FILES: [&str; 4] = [
    ".dex/state.lock",
    ".dex/ui.json",
    ".dex/dex-config.json",
    ".dex/mock-config.json",
];

const GITIGNORE: &str = "# What describes this machine, not the work.\n\
    /state.lock\n/ui.json\n/dex-config.json\n/mock-config.json\n*.dex-tmp\n";
const GITATTRIBUTES: &str = "runs/** -diff linguist-generated\nlearnings.md merge=union\n";

/// What the stage's commit holds under `.dex/`.
pub fn after(before: &Before<'_>, done: &Finished) -> After {
    let answer = done
        .answer
        .as_ref()
        .and_then(|value| answer::check(done.attempt.stage.name(), value).ok());
    let record = record(before, done);
    let manifest = manifest(before, done, answer.as_ref());
    let state = state(before, done, &record, manifest.as_ref());
    let learnings = new_learnings(before, answer.as_ref());
    After {
        record,
        state,
        manifest,
        learnings,
    }
}

fn record(before: &Before<'_>, done: &Finished) -> Record {
    let live = before.live;
    let mut record = before.record.cloned().unwrap_or_else(|| Record {
        run_id: live.run_id.clone(),
        mode: "loop".to_owned(),
        model: live.start.settings.model.clone(),
        agent: Some(live.start.settings.agent.clone()),
        started_at: live.start.started_at.clone(),
        ended_at: None,
        status: "running".to_owned(),
        total_cost_usd: None,
        total_duration_ms: None,
        cycles_completed: 0,
        description_file: Some(live.start.goal.clone()),
        base_branch: live.start.base_branch.clone(),
        base_sha: Some(live.start.base_sha.to_string()),
        parent_run_id: live.start.parent_run_id.clone(),
        forked_from: live.start.forked_from.as_ref().map(Oid::to_string),
        verify_command: live.start.settings.verify_command.clone(),
        phases: Vec::new(),
        more: Map::new(),
    });
    let mut last = element::of_finished(done);
    last.parent_sha = Some(before.parent.to_string());
    // An attempt is one element, however often a restart tells of it.
    for phase in live.attempts.iter().chain([&last]) {
        if !record.phases.iter().any(|it| it.phase_id == phase.phase_id) {
            record.phases.push(phase.clone());
        }
    }
    if !live.notes.is_empty() {
        record.more.insert("notes".to_owned(), json!(live.notes));
    }
    let total = progress::cost_micro(&record.phases);
    record.total_cost_usd = total.map(dollars);
    record.total_duration_ms = Some(progress::duration_ms(&record.phases));
    record.cycles_completed =
        before.run.progress.cycles_completed + u32::from(done.attempt.stage == Stage::Learnings);
    if done.attempt.stage == Stage::Completion {
        record.status = "completed".to_owned();
        record.ended_at = Some(done.ended_at.clone());
    }
    record
}

fn manifest(before: &Before<'_>, done: &Finished, answer: Option<&Answer>) -> Option<Manifest> {
    if let (Stage::ManifestExtraction, Some(Answer::Manifest(extracted))) =
        (done.attempt.stage, answer)
    {
        return Some(extract(before, extracted));
    }
    let mut manifest = before.manifest.cloned()?;
    // Older manifests have no slugs; from here on they are fixed.
    let slugs = manifest.slugs();
    for (feature, slug) in manifest.features.iter_mut().zip(&slugs) {
        feature.slug = Some(slug.clone());
        let reconciled = before
            .run
            .features
            .iter()
            .find(|it| it.slug.as_deref() == Some(slug));
        if let Some(reconciled) = reconciled {
            feature.status = reconciled.status;
        }
    }
    let at_work = manifest
        .features
        .iter_mut()
        .find(|it| it.slug == done.attempt.feature);
    let Some(feature) = at_work else {
        return Some(manifest);
    };
    match done.attempt.stage {
        Stage::Learnings => {
            let outcome = done.cycle_outcome.unwrap_or(CycleOutcome::Failed);
            feature.status = FeatureStatus::after(outcome);
        }
        Stage::Completion => {}
        _ => {
            feature.status = FeatureStatus::Active;
            if done.attempt.spec_dir.is_some() {
                feature.spec_dir = done.attempt.spec_dir.clone();
            }
        }
    }
    Some(manifest)
}

fn extract(before: &Before<'_>, extracted: &answer::Manifest) -> Manifest {
    let features = extracted.features.iter().map(|it| Feature {
        id: it.id,
        title: it.title.clone(),
        description: it.description.clone(),
        status: FeatureStatus::Pending,
        spec_dir: None,
        slug: None,
        more: Map::new(),
    });
    let mut manifest = Manifest {
        version: 2,
        source_hash: before.source.0.to_owned(),
        source_path: before.source.1.to_owned(),
        features: features.collect(),
        more: Map::new(),
    };
    let slugs = manifest.slugs();
    for (feature, slug) in manifest.features.iter_mut().zip(slugs) {
        feature.slug = Some(slug);
    }
    manifest
}

fn state(
    before: &Before<'_>,
    done: &Finished,
    record: &Record,
    manifest: Option<&Manifest>,
) -> State {
    let live = before.live;
    let place = done.attempt.place();
    let of_status = |status: FeatureStatus| -> Vec<String> {
        let features = manifest.map_or(&[][..], |it| &it.features);
        let matching = features.iter().filter(|it| it.status == status);
        matching.filter_map(|it| it.slug.clone()).collect()
    };
    let mut artifacts = before
        .state
        .map(|it| it.artifacts.clone())
        .unwrap_or_default();
    for (name, entry) in before.artifacts {
        artifacts.insert(name.clone(), entry.clone());
    }
    let spec_dir = match place.stage {
        Stage::Completion => None,
        _ => done.attempt.spec_dir.clone(),
    };
    let completed = place.stage == Stage::Completion;
    State {
        version: 2,
        run_id: live.run_id.clone(),
        status: if completed { "completed" } else { "running" }.to_owned(),
        base_branch: live
            .start
            .base_branch
            .clone()
            .unwrap_or_else(|| "HEAD".to_owned()),
        mode: "loop".to_owned(),
        current_cycle_number: place.cycle,
        last_completed_step: Some(place.stage.name().to_owned()),
        current_spec_dir: spec_dir,
        cumulative_cost_usd: record.total_cost_usd,
        cycles_completed: record.cycles_completed,
        features_completed: of_status(FeatureStatus::Completed),
        features_skipped: of_status(FeatureStatus::Skipped),
        failure_counts: progress::outcomes(&record.phases, 0).failures,
        config: config(live),
        artifacts,
        last_commit: Some(LastCommit {
            checkpoint: Some(place.checkpoint()),
            parent_sha: before.parent.to_string(),
            timestamp: done.ended_at.clone(),
            more: Map::new(),
        }),
        started_at: live.start.started_at.clone(),
        more: before
            .state
            .filter(|it| it.run_id == live.run_id)
            .map(|it| it.more.clone())
            .unwrap_or_default(),
    }
}

/// What of the settings describes the work, not the machine.
fn config(live: &Live) -> Map<String, Value> {
    let settings = &live.start.settings;
    let mut config = Map::new();
    config.insert("agent".to_owned(), json!(settings.agent));
    config.insert("model".to_owned(), json!(settings.model));
    config.insert("maxCycles".to_owned(), json!(settings.max_cycles));
    config.insert(
        "maxBudgetUsd".to_owned(),
        json!(dollars(settings.max_budget_micro_usd)),
    );
    config.insert("verifyCommand".to_owned(), json!(settings.verify_command));
    config.insert("descriptionFile".to_owned(), json!(live.start.goal));
    config
}

fn new_learnings(before: &Before<'_>, answer: Option<&Answer>) -> Option<String> {
    let insights: Vec<learnings::Insight> = match answer {
        Some(Answer::Learnings(it)) => it
            .insights
            .iter()
            .map(|it| learnings::Insight {
                category: it.category.clone(),
                insight: it.insight.clone(),
                context: it.context.clone(),
            })
            .collect(),
        _ => Vec::new(),
    };
    if insights.is_empty() {
        return None;
    }
    Some(learnings::add(before.learnings, &insights, MAX_LEARNINGS))
}

/// How a run that is over came out: what its exit code says.
pub fn verdict(run: &Reconciled) -> Verdict {
    let skipped = run
        .features
        .iter()
        .any(|it| it.status == FeatureStatus::Skipped);
    let open = run
        .features
        .iter()
        .any(|it| matches!(it.status, FeatureStatus::Active | FeatureStatus::Pending));
    let unverified = run.outcomes.last_failed_in_verify
        && run
            .features
            .iter()
            .any(|it| it.status == FeatureStatus::Active);
    if unverified {
        Verdict::Unverified
    } else if skipped {
        Verdict::Skipped
    } else if open {
        Verdict::Open
    } else {
        Verdict::Good
    }
}

/// How a run's features came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every feature is verified.
    Good,
    /// A feature was given up.
    Skipped,
    /// A feature is not verified.
    Unverified,
    /// Not everything was begun.
    Open,
}

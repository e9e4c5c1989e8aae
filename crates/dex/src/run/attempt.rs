//! One attempt of an agent at a stage (or at a part of `implement`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agents::sandbox::Sandbox;
use agents::transcript::Transcript;
use agents::{Ended as AgentEnded, Failure, Limits, Outcome, Request, ToolSurface};
use gitdb::protect::ProtectChange;
use gitdb::{Head, Oid};
use serde_json::Value;

use super::held::Keeper;
use super::verify::FileStates;
use super::{Event, NotHeld, RunError, Runner, dotdex, new_id, now};
use crate::answer::{self, Answer};
use crate::element::{self, Ending};
use crate::files::record::{CycleOutcome, Decision, PhaseStatus, VerifiedBy, Verify};
use crate::files::store;
use crate::live::{Attempt, Finished, Live, Used, Work};
use crate::names;
use crate::stage::Place;

/// Steps of an attempt kept in the record.
const RECORDED_STEPS: usize = 40;
/// Bytes of a transcript.
const TRANSCRIPT_BYTES: u64 = 20 * 1024 * 1024;
/// Files changed in a stage that only looks that are named.
const CHANGED_SHOWN: usize = 5;
/// How often usage without money is written to the live record.
const USAGE_EVERY: Duration = Duration::from_secs(2);

/// What an agent is asked to do.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) spec_dir: Option<String>,
    pub(super) part: Option<u32>,
    pub(super) prompt: String,
    pub(super) tools: ToolSurface,
    pub(super) verify: Option<Verify>,
    /// Names the files the verify command ran on.
    pub(super) verified_files: Option<String>,
    /// What was noticed before the agent began.
    pub(super) noticed: Vec<String>,
    pub(super) session: Option<String>,
    /// For `learnings`: what the cycle came to.
    pub(super) cycle_outcome: Option<CycleOutcome>,
    pub(super) number: u32,
    /// Whether an unusable answer is asked for once more.
    pub(super) once_more: bool,
}

/// What we saw of an attempt ourselves.
struct Seen {
    duration_ms: u64,
    noticed: Vec<String>,
    steps: Vec<agents::transcript::Step>,
    tip_after: Option<Oid>,
    head_after: Option<String>,
}

/// How an attempt went.
#[derive(Debug)]
pub(super) enum Tried {
    /// The agent finished; its answer is checked.
    Finished(Box<Finished>),
    /// It finished with an answer or a tree that is not what the stage asks for.
    Unusable {
        reason: &'static str,
        problem: String,
    },
    /// It failed.
    Failed {
        reason: &'static str,
        detail: String,
    },
    /// Its dollars are used up.
    Capped { detail: String },
    /// No such agent here, or not logged in.
    Unavailable { detail: String },
    /// The quota is used up.
    Quota { until_unix: Option<i64> },
    /// We were asked to stop.
    Stopped,
}

impl Runner<'_> {
    /// Makes the attempt. On return the live record holds what a restart needs: the attempt as
    /// finished, as an ended element, or (stopped) as half-done.
    pub(super) fn attempt(&mut self, job: &Job) -> Result<Tried, RunError> {
        let mut attempt = self.begin(job);
        let scratch = self.scratch(&attempt.phase_id);
        let (walls, keeper) = self.agent_walls(&scratch, &job.tools)?;
        attempt.sandbox = Some(match keeper {
            Keeper::BackEnd | Keeper::Walls => walls.to_string(),
            Keeper::Trust(_) => format!("{walls} (trusted to change nothing)"),
            Keeper::Nobody(why) => {
                // Nothing was begun: there is nothing to record or to set aside.
                let _ = std::fs::remove_dir_all(&scratch);
                return Ok(Tried::Unavailable {
                    detail: not_held(&job.place, &why),
                });
            }
        });
        let looks = (job.tools == ToolSurface::ReadOnly).then(|| self.file_states());
        let before = looks.transpose()?;
        self.protect(&scratch)?;
        self.live.pause = None;
        self.live.quota_until = None;
        self.live.work = Work::Started(Box::new(attempt.clone()));
        self.live.write(&self.repo)?;
        gitdb::fault::point("agent.before");
        let began = Instant::now();
        let (outcome, transcript) = self.run_agent(job, &mut attempt, &scratch, walls);
        gitdb::fault::point("agent.after");
        let duration_ms = began.elapsed().as_millis() as u64;
        attempt.used = outcome.usage.into();
        attempt.model = outcome.model.clone().or(attempt.model);
        attempt.session = outcome.session.clone().or(attempt.session);
        let mut noticed = self.put_back(&attempt.phase_id)?;
        if let Some(before) = before {
            noticed.extend(changed_while_looking(
                &job.place,
                &before,
                &self.file_states()?,
            ));
        }
        for text in &noticed {
            self.notice(text);
        }
        let seen = Seen {
            duration_ms,
            noticed,
            steps: transcript
                .map(|it| it.steps(RECORDED_STEPS))
                .unwrap_or_default(),
            tip_after: gitdb::refs::read(&self.repo, &self.live.branch)?,
            head_after: match self.repo.head()? {
                Head::Branch { name, .. } => Some(name),
                Head::Detached(_) => None,
            },
        };
        let tried = self.judge(job, attempt.clone(), outcome, seen);
        match &tried {
            Tried::Finished(done) => {
                self.record_unneeded(done);
                self.live.work = Work::AgentFinished(done.clone());
                self.live.write(&self.repo)?;
            }
            Tried::Stopped => {
                attempt.stopped_at = Some(now());
                self.live.work = Work::Started(Box::new(attempt));
                self.live.write(&self.repo)?;
            }
            other => self.end_attempt(&attempt, other, duration_ms, job.once_more)?,
        }
        Ok(tried)
    }

    fn begin(&self, job: &Job) -> Attempt {
        Attempt {
            phase_id: new_id(),
            stage: job.place.stage,
            cycle: job.place.cycle,
            feature: job.place.feature.clone(),
            spec_dir: job.spec_dir.clone(),
            part: job.part,
            number: job.number,
            started_at: now(),
            stopped_at: None,
            agent: Some(self.agent.name().to_owned()),
            model: self.live.start.settings.model.clone(),
            session: job.session.clone(),
            sandbox: Some("none".to_owned()),
            used: Used::default(),
            verify: job.verify.clone(),
            verified_files: job.verified_files.clone(),
            decision: None,
        }
    }

    pub(super) fn scratch(&self, phase_id: &str) -> PathBuf {
        Live::dir(&self.repo, &self.live.run_id)
            .join("attempts")
            .join(phase_id)
    }

    /// Remembers what the agent must not change: git's config and hooks, and `.dex/`.
    pub(super) fn protect(&self, scratch: &std::path::Path) -> Result<(), RunError> {
        let protected = gitdb::protect::capture(&self.repo, &self.live.branch)?;
        let path = scratch.join("protected.json");
        store::write(&self.repo.common_dir, &path, &store::to_json(&protected))?;
        let goal = self.live.start.goal.as_str();
        let uncommitted = self.repo.read_file(&self.live.tip, goal)?.is_none();
        dotdex::keep(&self.live.worktree, scratch, uncommitted.then_some(goal))?;
        Ok(())
    }

    /// Puts back what the agent changed outside its work, before git runs again. Also the first
    /// thing after a crash.
    pub(super) fn put_back(&mut self, phase_id: &str) -> Result<Vec<String>, RunError> {
        let scratch = self.scratch(phase_id);
        let path = scratch.join("protected.json");
        let mut noticed = Vec::new();
        let mut lost = Vec::new();
        if let Some(bytes) = store::read(&path)? {
            let protected: gitdb::protect::Protected = store::parse_json(&path, &bytes)?;
            let changes = gitdb::protect::put_back(&self.repo, &protected)?;
            noticed.extend(changes.iter().filter_map(describe));
            for change in &changes {
                let Some(oid) = old_value(change) else {
                    continue;
                };
                // What only grew still holds its old value.
                if let ProtectChange::RefMoved { to, .. } = change
                    && self.repo.is_ancestor(oid, to).unwrap_or(false)
                {
                    continue;
                }
                // A tag's object may be no commit; one that is gone already cannot be kept.
                lost.extend(self.repo.resolve_commit(oid.as_str())?);
            }
        }
        let aside = Live::dir(&self.repo, &self.live.run_id)
            .join("put-back")
            .join(phase_id);
        noticed.extend(dotdex::put_back(
            &self.repo,
            &self.live.worktree,
            &scratch,
            &self.live.tip,
            &aside,
        )?);
        lost.sort();
        lost.dedup();
        if !lost.is_empty() {
            self.undo_entry("branches, tags or stashes were removed or moved", lost)?;
        }
        Ok(noticed)
    }

    fn run_agent(
        &mut self,
        job: &Job,
        attempt: &mut Attempt,
        scratch: &std::path::Path,
        walls: Sandbox,
    ) -> (Outcome, Option<Transcript>) {
        let mut request = self.request(job, attempt, scratch);
        request.sandbox = walls;
        let log = Live::dir(&self.repo, &self.live.run_id).join("log");
        // A transcript that cannot be written must not cost the stage.
        let _ = std::fs::create_dir_all(&log);
        let file = log.join(format!(
            "{}-{}.jsonl",
            attempt.phase_id,
            job.place.checkpoint()
        ));
        let mut transcript = Transcript::open(&file, TRANSCRIPT_BYTES).ok();
        let began = Instant::now();
        let mut written = Instant::now();
        let Runner {
            repo,
            live,
            agent,
            observer,
            control,
            ..
        } = self;
        let outcome = agent.run(
            &request,
            &mut |event| {
                if let Some(transcript) = &mut transcript {
                    transcript.event(&event, began.elapsed().as_millis() as u64);
                }
                match &event {
                    agents::Event::Usage(usage) => {
                        let paid = usage.cost_micro_usd != attempt.used.cost_micro_usd;
                        attempt.used = (*usage).into();
                        if paid || written.elapsed() >= USAGE_EVERY {
                            written = Instant::now();
                            live.work = Work::Started(Box::new(attempt.clone()));
                            // The next write, or the end of the attempt, tells it again.
                            let _ = live.write(repo);
                        }
                    }
                    agents::Event::Started { model, session, .. } => {
                        attempt.model = model.clone().or(attempt.model.take());
                        attempt.session = session.clone().or(attempt.session.take());
                    }
                    _ => {}
                }
                observer.event(&Event::Agent(&event));
            },
            &control.now,
        );
        // Its temporary files; builds leave many.
        let _ = std::fs::remove_dir_all(scratch.join("tmp"));
        (outcome, transcript)
    }

    fn request(&self, job: &Job, attempt: &Attempt, scratch: &std::path::Path) -> Request {
        let settings = &self.live.start.settings;
        let paths = super::inputs::Paths::of(&self.live.start.goal);
        let mut values = std::collections::BTreeMap::from([
            ("goalFile".to_owned(), paths.goal),
            ("goalProductDomain".to_owned(), paths.product),
            ("goalTechnicalDomain".to_owned(), paths.technical),
            ("goalClarified".to_owned(), paths.clarified),
            ("attempt".to_owned(), job.number.to_string()),
        ]);
        if let Some(part) = job.part {
            values.insert("phase".to_owned(), part.to_string());
        }
        Request {
            stage: job.place.stage.name().to_owned(),
            cycle: job.place.cycle,
            feature: job.place.feature.clone(),
            prompt: job.prompt.clone(),
            dir: self.live.worktree.clone(),
            spec_dir: attempt.spec_dir.clone(),
            run_id: self.live.run_id.clone(),
            tools: job.tools.clone(),
            schema: Some(answer::schema(job.place.stage.name())),
            model: settings.model.clone(),
            session: job.session.clone(),
            limits: Limits {
                wall: Duration::from_millis(settings.stage_timeout_ms),
                idle: Duration::from_millis(settings.idle_ms),
                turns: settings.max_turns,
                cost_micro_usd: self.dollars_left(&job.place),
                output_bytes: 1 << 30,
            },
            scratch: scratch.to_owned(),
            sandbox: Sandbox::none(),
            values,
        }
    }

    /// Micro-dollars an attempt at this stage may still cost: the lesser of what is left of the
    /// stage's and of the run's.
    fn dollars_left(&self, place: &Place) -> u64 {
        let settings = &self.live.start.settings;
        let of_stage: u64 = self
            .live
            .attempts
            .iter()
            .filter(|it| it.stage.as_deref() == Some(place.stage.name()) && !it.is_forgiven())
            .filter_map(|it| it.cost_usd)
            .map(crate::files::micro)
            .sum();
        let before: u64 = self.spent_committed;
        let since: u64 = self
            .live
            .attempts
            .iter()
            .filter_map(|it| it.cost_usd)
            .map(crate::files::micro)
            .sum();
        let stage_left = settings.stage_budget_micro_usd.saturating_sub(of_stage);
        let run_left = settings.max_budget_micro_usd.saturating_sub(before + since);
        stage_left.min(run_left)
    }

    /// Turns what the agent reports, and the tree it left, into how the attempt went.
    fn judge(&mut self, job: &Job, mut attempt: Attempt, outcome: Outcome, seen: Seen) -> Tried {
        match outcome.ended {
            AgentEnded::Stopped => return Tried::Stopped,
            AgentEnded::Quota { until_unix } => return Tried::Quota { until_unix },
            AgentEnded::Failed { failure, detail } => return failed(failure, detail),
            AgentEnded::Finished => {}
        }
        // What an agent says ends up in files that are committed: manifest, learnings, record.
        let given = redacted(outcome.answer.unwrap_or(Value::Null));
        let checked = match answer::check(job.place.stage.name(), &given) {
            Ok(checked) => checked,
            Err(error) => {
                return Tried::Unusable {
                    reason: "malformed_answer",
                    problem: error.to_string(),
                };
            }
        };
        match self.output_of(job, &attempt) {
            Ok(spec_dir) => attempt.spec_dir = spec_dir,
            Err(problem) => {
                return Tried::Unusable {
                    reason: "missing_output",
                    problem,
                };
            }
        }
        if let Answer::Verify(word) = &checked {
            attempt.verify = Some(settle_verify(attempt.verify.take(), word));
        }
        if let Answer::GapAnalysis(gap) = &checked {
            attempt.decision = Some(match gap.decision {
                answer::Decision::ResumeFeature => Decision::ResumeFeature,
                answer::Decision::ReplanFeature => Decision::ReplanFeature,
            });
        }
        Tried::Finished(Box::new(Finished {
            attempt,
            tip_after: seen.tip_after,
            head_after: seen.head_after,
            ended_at: now(),
            duration_ms: seen.duration_ms,
            answer: Some(given),
            assumptions: Vec::new(),
            steps: seen.steps,
            cycle_outcome: job.cycle_outcome,
            noticed: [job.noticed.clone(), seen.noticed].concat(),
            agent_commits: Vec::new(),
            left_out: Vec::new(),
        }))
    }

    /// Writes an attempt that did not finish into the live record.
    fn end_attempt(
        &mut self,
        attempt: &Attempt,
        tried: &Tried,
        duration_ms: u64,
        once_more: bool,
    ) -> Result<(), RunError> {
        let (status, reason, detail, retried) = match tried {
            Tried::Unusable { reason, problem } => {
                (PhaseStatus::Failed, *reason, problem.as_str(), once_more)
            }
            Tried::Failed { reason, detail } => {
                (PhaseStatus::Failed, *reason, detail.as_str(), false)
            }
            Tried::Capped { detail } => (PhaseStatus::Stopped, "cost_cap", detail.as_str(), false),
            Tried::Unavailable { detail } => (
                PhaseStatus::Stopped,
                "agent_unavailable",
                detail.as_str(),
                false,
            ),
            Tried::Quota { .. } => (PhaseStatus::Stopped, "quota", "the quota is used up", true),
            Tried::Finished(_) | Tried::Stopped => return Ok(()),
        };
        let ending = Ending {
            at: now(),
            duration_ms,
            reason: reason.to_owned(),
            retried,
        };
        self.live
            .attempts
            .push(element::of_attempt(attempt, status, Some(&ending)));
        // What is tried again goes on with the files as they are; anything else is put back, and a
        // restart must know that it is not yet.
        self.live.work = if retried {
            Work::Idle
        } else {
            let label = attempt.place().label();
            let reason = match tried {
                Tried::Capped { .. } => format!("{label} reached its cost cap"),
                Tried::Unavailable { .. } => format!("{label} had no agent"),
                _ => format!("{label} failed"),
            };
            Work::SettingAside { reason }
        };
        self.live.write(&self.repo)?;
        let detail = agents::redact::redact(detail);
        let place = attempt.place();
        self.observer.event(&Event::Failed {
            place: &place,
            reason,
            detail: &detail,
            again: retried,
        });
        Ok(())
    }
}

/// Why a stage that only looks is not begun, and the ways to have it begun.
fn not_held(place: &Place, why: &NotHeld) -> String {
    let label = place.label();
    format!(
        "{label} only looks, and {why}. Install bubblewrap, then resume; or choose another agent, or `sandbox: off`, and go on from the last stage with `dex resume --from`"
    )
}

/// Files that are not as they were before a stage that only looks. They stay and are committed:
/// a person may have changed them meanwhile.
fn changed_while_looking(place: &Place, before: &FileStates, after: &FileStates) -> Option<String> {
    let differs = |(path, state): &(&String, &String)| {
        before.get(path.as_str()) != Some(state) || after.get(path.as_str()) != Some(state)
    };
    let paths: BTreeSet<&String> = (before.iter().chain(after))
        .filter(differs)
        .map(|(path, _)| path)
        .collect();
    if paths.is_empty() {
        return None;
    }
    let shown: Vec<&str> = paths
        .iter()
        .take(CHANGED_SHOWN)
        .map(|it| it.as_str())
        .collect();
    let more = match paths.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = agents::redact::redact(&shown.join(", "));
    let label = place.label();
    Some(format!(
        "{label} only looks, and files were changed during it: {shown}{more}; they are kept"
    ))
}

/// Refs of runs: other ones may be at work, and none of theirs is news.
fn ours(name: &str) -> bool {
    name.starts_with(names::RUN_BRANCHES) || name.starts_with("refs/dex-local/")
}

/// What a ref or stash that an agent removed or moved had named, which `git gc` could take.
fn old_value(change: &ProtectChange) -> Option<&Oid> {
    match change {
        ProtectChange::RefMoved { name, from, .. } | ProtectChange::RefRemoved { name, from } => {
            (!ours(name)).then_some(from)
        }
        ProtectChange::StashRemoved { oid } => Some(oid),
        ProtectChange::Config { .. }
        | ProtectChange::Hook { .. }
        | ProtectChange::Hidden { .. }
        | ProtectChange::RefAdded { .. }
        | ProtectChange::WorktreeAdded { .. }
        | ProtectChange::WorktreeRemoved { .. }
        | ProtectChange::StashAdded { .. } => None,
    }
}

/// The command that makes a ref name this again.
fn back(name: &str, oid: &Oid) -> String {
    if let Some(branch) = name.strip_prefix("refs/heads/") {
        return format!("git branch -f {branch} {oid}");
    }
    match name.strip_prefix("refs/tags/") {
        Some(tag) => format!("git tag -f {tag} {oid}"),
        None => format!("git update-ref {name} {oid}"),
    }
}

/// What an agent changed in git, for people.
fn describe(change: &ProtectChange) -> Option<String> {
    Some(match change {
        ProtectChange::Config { path } => format!("{path} was changed and is put back"),
        ProtectChange::Hook { path } => format!("the hook {path} was changed and is put back"),
        ProtectChange::RefAdded { name, .. }
        | ProtectChange::RefMoved { name, .. }
        | ProtectChange::RefRemoved { name, .. }
            if ours(name) =>
        {
            return None;
        }
        ProtectChange::Hidden { path } => format!("{path} was hidden from git and is not any more"),
        ProtectChange::RefAdded { name, to } => format!("{name} was made at {}", to.short()),
        ProtectChange::RefMoved { name, from, to } => {
            let (was, now) = (from.short(), to.short());
            let back = back(name, from);
            format!("{name} was moved from {was} to {now}; `{back}` takes it back")
        }
        ProtectChange::RefRemoved { name, from } => {
            format!("{name} was removed; `{}` brings it back", back(name, from))
        }
        ProtectChange::WorktreeAdded { path } => format!("the work tree {path} was added"),
        ProtectChange::WorktreeRemoved { path } => format!("the work tree {path} was removed"),
        ProtectChange::StashAdded { oid } => format!("the stash {} was added", oid.short()),
        ProtectChange::StashRemoved { oid } => {
            format!(
                "the stash {} was removed; `git stash store {oid}` brings it back",
                oid.short()
            )
        }
    })
}

/// An answer with its texts redacted.
fn redacted(answer: Value) -> Value {
    match answer {
        Value::String(text) => Value::String(agents::redact::redact(&text)),
        Value::Array(items) => items.into_iter().map(redacted).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| (agents::redact::redact(&key), redacted(value)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => answer,
    }
}

fn failed(failure: Failure, detail: String) -> Tried {
    match failure {
        Failure::CostCap => Tried::Capped { detail },
        Failure::Unavailable => Tried::Unavailable { detail },
        Failure::AgentError
        | Failure::TimeOut
        | Failure::Idle
        | Failure::MaxTurns
        | Failure::OutputCap
        | Failure::Protocol
        | Failure::NeedsPermission => Tried::Failed {
            reason: failure.name(),
            detail,
        },
    }
}

/// The result of `verify`: passed only if the command passed and the agent found nothing that
/// blocks. Without a command it is the agent's word.
pub(super) fn settle_verify(command: Option<Verify>, word: &answer::Verify) -> Verify {
    let mut failures: Vec<String> = word
        .blocking()
        .map(|it| format!("{}: {}", it.criterion, it.description))
        .collect();
    if !word.says_done() && failures.is_empty() {
        failures.push(format!("the agent says it is not done: {}", word.summary));
    }
    let mut verify = command.unwrap_or(Verify {
        command: None,
        exit: None,
        by: VerifiedBy::Word,
        passed: true,
        failures: Vec::new(),
        more: serde_json::Map::new(),
    });
    verify.passed &= word.says_done();
    verify
        .failures
        .extend(failures.iter().map(|it| agents::redact::redact(it)));
    verify
}

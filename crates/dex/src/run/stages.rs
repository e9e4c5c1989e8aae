//! Working on one stage: with an agent, or without one where none is needed.

use std::time::Duration;

use agents::ToolSurface;
use serde_json::{Value, json};

use super::attempt::{Job, Tried};
use super::commit::Committed;
use super::inputs::{self, Part, Paths, Values};
use super::{Event, RunError, Runner, Went, new_id, now, verify};
use crate::files::record::{CycleOutcome, Decision};
use crate::files::store;
use crate::live::{Attempt, Finished, FinishedPart, PauseReason, Used, Work};
use crate::next::{How, Step};
use crate::prompt;
use crate::reconcile::{Facts, Reconciled};
use crate::stage::{Place, Stage};

/// Attempts at a stage whose answer or tree is unusable: the second is the bounded retry.
pub(super) const TRIES: u32 = 2;

impl Runner<'_> {
    /// Works on a stage to its commit, or to a named stop.
    pub(super) fn stage(
        &mut self,
        run: &Reconciled,
        facts: &Facts,
        step: &Step,
    ) -> Result<Went, RunError> {
        self.check_place()?;
        let with_agent = self.needs_agent(step, facts);
        self.observer.event(&Event::StageStarted {
            place: &step.place,
            agent: with_agent.then(|| self.agent.name()),
            feature: step.feature.as_ref().map(|it| it.title.as_str()),
            why: &step.why,
            spent_micro: self.spent(),
            budget_micro: self.live.start.settings.max_budget_micro_usd,
        });
        match &step.how {
            How::Decided(decision) => self.decided(step, *decision),
            How::Close {
                outcome,
                with_agent: false,
            } => self.close(step, *outcome, None),
            How::Close {
                outcome,
                with_agent: true,
            } => self.with_agent(run, step, Some(*outcome)),
            How::Agent if !with_agent => self.without_agent(step),
            How::Agent => self.with_agent(run, step, None),
        }
    }

    fn needs_agent(&self, step: &Step, facts: &Facts) -> bool {
        match step.how {
            How::Decided(_)
            | How::Close {
                with_agent: false, ..
            } => false,
            How::Close {
                with_agent: true, ..
            } => true,
            How::Agent if step.place.stage.in_cycle() => true,
            How::Agent => {
                let paths = Paths::of(&self.live.start.goal);
                let root = &self.live.worktree;
                let current = inputs::is_current(root, &paths, step.place.stage, facts.state.got());
                !self.live.start.small && !current
            }
        }
    }

    /// The last commit of the run.
    pub(super) fn complete(&mut self) -> Result<Went, RunError> {
        self.check_place()?;
        let place = Place::once(Stage::Completion);
        self.observer.event(&Event::StageStarted {
            place: &place,
            agent: None,
            feature: None,
            why: "every feature is settled",
            spent_micro: self.spent(),
            budget_micro: self.live.start.settings.max_budget_micro_usd,
        });
        let done = self.finished_without_agent(&place, None);
        self.commit(done)
    }

    fn decided(&mut self, step: &Step, decision: Decision) -> Result<Went, RunError> {
        let spec_dir = step.feature.as_ref().and_then(|it| it.spec_dir.clone());
        let mut done = self.finished_without_agent(&step.place, spec_dir);
        done.attempt.decision = Some(decision);
        self.record_unneeded(&done);
        self.commit(done)
    }

    /// Puts the stages that gap analysis made unnecessary into the record, as skipped.
    pub(super) fn record_unneeded(&mut self, done: &Finished) {
        let stages: &[Stage] = match done.attempt.decision {
            Some(Decision::ResumeFeature) => &[Stage::Specify, Stage::Plan, Stage::Tasks],
            Some(Decision::ReplanFeature) => &[Stage::Specify],
            Some(Decision::NextFeature) | None => &[],
        };
        for stage in stages {
            let place = Place {
                stage: *stage,
                ..done.attempt.place()
            };
            let why = match done.attempt.decision {
                Some(Decision::ReplanFeature) => "replan",
                _ => "resume",
            };
            let skipped = crate::element::skipped(&place, new_id(), &done.ended_at, why);
            self.live.attempts.push(skipped);
        }
    }

    fn close(
        &mut self,
        step: &Step,
        outcome: CycleOutcome,
        spec_dir: Option<String>,
    ) -> Result<Went, RunError> {
        let spec_dir = spec_dir.or(step.feature.as_ref().and_then(|it| it.spec_dir.clone()));
        let mut done = self.finished_without_agent(&step.place, spec_dir);
        done.cycle_outcome = Some(outcome);
        self.commit(done)
    }

    /// A stage that runs once and whose output is there, or is written by us (`--small`).
    fn without_agent(&mut self, step: &Step) -> Result<Went, RunError> {
        let mut done = self.finished_without_agent(&step.place, None);
        if self.live.start.small {
            done.answer = self.write_small(step.place.stage)?;
        }
        self.commit(done)
    }

    /// Cycle 0 of a goal of one sentence.
    fn write_small(&mut self, stage: Stage) -> Result<Option<Value>, RunError> {
        let paths = Paths::of(&self.live.start.goal);
        let root = self.live.worktree.clone();
        let goal = inputs::text_of(&root.join(&paths.goal));
        let goal = goal.trim();
        let title = goal
            .lines()
            .find(|it| !it.trim().is_empty())
            .unwrap_or("the goal");
        let title: String = title
            .trim_start_matches('#')
            .trim()
            .chars()
            .take(80)
            .collect();
        let (path, text) = match stage {
            Stage::ClarificationProduct => (
                paths.product,
                format!("# Product\n\nNothing was asked: the goal is small.\n\n{goal}\n"),
            ),
            Stage::ClarificationTechnical => (
                paths.technical,
                "# Technology\n\nNothing was asked: keep to what the project uses.\n".to_owned(),
            ),
            Stage::ClarificationSynthesis => {
                (paths.clarified, format!("# Clarified goal\n\n{goal}\n"))
            }
            Stage::Constitution => (
                inputs::CONSTITUTION.to_owned(),
                "# Constitution\n\n1. Keep the project's style and its tests green.\n\
                 2. Change no more than the goal asks for.\n"
                    .to_owned(),
            ),
            _ => {
                let feature = json!({"id": 1, "title": title, "description": goal});
                return Ok(Some(json!({ "features": [feature] })));
            }
        };
        store::write(&root, &root.join(path), text.as_bytes())?;
        Ok(None)
    }

    fn finished_without_agent(&self, place: &Place, spec_dir: Option<String>) -> Finished {
        let at = now();
        Finished {
            attempt: Attempt {
                phase_id: new_id(),
                stage: place.stage,
                cycle: place.cycle,
                feature: place.feature.clone(),
                spec_dir,
                part: None,
                number: 1,
                started_at: at.clone(),
                stopped_at: None,
                agent: None,
                model: None,
                session: None,
                sandbox: None,
                used: Used::default(),
                verify: None,
                verified_files: None,
                decision: None,
            },
            tip_after: None,
            head_after: None,
            ended_at: at,
            duration_ms: 0,
            answer: None,
            assumptions: Vec::new(),
            steps: Vec::new(),
            cycle_outcome: None,
            noticed: Vec::new(),
            agent_commits: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Records a finished attempt and commits it.
    fn commit(&mut self, done: Finished) -> Result<Went, RunError> {
        self.live.pause = None;
        self.live.work = Work::AgentFinished(Box::new(done));
        self.live.write(&self.repo)?;
        self.finish_what_is_left()
    }

    fn with_agent(
        &mut self,
        run: &Reconciled,
        step: &Step,
        outcome: Option<CycleOutcome>,
    ) -> Result<Went, RunError> {
        let spec_dir = self.spec_dir(step)?;
        let mut verified = None;
        if step.place.stage == Stage::Verify
            && let Some(command) = self.live.start.settings.verify_command.clone()
        {
            let ran = self.run_verify(&command)?;
            if ran.stopped {
                return Ok(Went::On);
            }
            verified = Some(ran);
        }
        let parts = match step.place.stage {
            Stage::Implement => inputs::parts(&self.live.worktree, spec_dir.as_deref(), &self.live),
            _ => vec![None],
        };
        if parts.is_empty() {
            // Every part was finished before the crash, or every box was ticked already.
            let done = self.finished_without_agent(&step.place, spec_dir);
            return self.commit(done);
        }
        let last = parts.len() - 1;
        for (at, part) in parts.iter().enumerate() {
            let ask = Asked {
                run,
                step,
                part: part.as_ref(),
                spec_dir: spec_dir.as_deref(),
                verified: verified.as_ref(),
            };
            match self.part(&ask, outcome)? {
                Parted::Done if at < last => {
                    if let Some(went) = self.settle_questions()? {
                        return Ok(went);
                    }
                    self.keep_part()?;
                }
                Parted::Done => {}
                Parted::Went(went) => return Ok(went),
            }
        }
        self.finish_and_retry(run, step, verified.as_ref())
    }

    /// The feature's spec directory; for `specify` the one proposed.
    fn spec_dir(&self, step: &Step) -> Result<Option<String>, RunError> {
        let Some(feature) = &step.feature else {
            return Ok(None);
        };
        if step.place.stage != Stage::Specify || feature.spec_dir.is_some() {
            return Ok(feature.spec_dir.clone());
        }
        let there = self.repo.list_tree(&self.live.tip, "specs")?;
        let number = |path: &String| path.strip_prefix("specs/")?.get(..3)?.parse::<u32>().ok();
        let next = there.iter().filter_map(number).max().unwrap_or(0) + 1;
        Ok(feature
            .slug
            .as_ref()
            .map(|slug| format!("specs/{next:03}-{slug}")))
    }

    /// Makes the attempts at one part (or at the whole stage) and settles how they went.
    fn part(&mut self, ask: &Asked<'_>, outcome: Option<CycleOutcome>) -> Result<Parted, RunError> {
        let place = &ask.step.place;
        if let Some(part) = ask.part {
            self.observer.event(&Event::PartStarted {
                part: part.phase.number,
                of: part.of,
                title: &part.phase.title,
            });
        }
        let mut feedback = None;
        let mut session = None;
        let mut number = self.tries_so_far(place) + 1;
        let mut tries = 0;
        let mut waited = Duration::ZERO;
        loop {
            tries += 1;
            let prompt = self.prompt(ask, feedback.as_deref())?;
            let job = Job {
                session: session.take(),
                cycle_outcome: outcome,
                number,
                once_more: tries < TRIES,
                ..ask.job(prompt)
            };
            number += 1;
            match self.attempt(&job)? {
                Tried::Finished(_) => return Ok(Parted::Done),
                Tried::Stopped => return Ok(Parted::Went(Went::On)),
                Tried::Unusable { problem, .. } if tries < TRIES => feedback = Some(problem),
                Tried::Unusable { .. } | Tried::Failed { .. } => {
                    return Ok(Parted::Went(self.finish_what_is_left()?));
                }
                Tried::Capped { detail } => {
                    let detail = self.which_cap(&detail);
                    return self.pause_part(PauseReason::BudgetExceeded, detail);
                }
                Tried::Unavailable { detail } => {
                    return self.pause_part(PauseReason::AgentUnavailable, detail);
                }
                Tried::Quota { until_unix } => {
                    tries -= 1;
                    session = self
                        .live
                        .attempts
                        .last()
                        .and_then(|it| it.session_id.clone());
                    if let Some(went) = self.wait_for_quota(until_unix, &mut waited)? {
                        return Ok(Parted::Went(went));
                    }
                }
            }
        }
    }

    /// Sets aside what is left of an attempt; the run pauses.
    fn pause_part(&mut self, reason: PauseReason, detail: String) -> Result<Parted, RunError> {
        self.finish_what_is_left()?;
        Ok(Parted::Went(Went::Pause(reason, detail)))
    }

    /// Which of the two budgets an attempt used up, and how it is raised.
    fn which_cap(&self, detail: &str) -> String {
        let settings = &self.live.start.settings;
        let since = crate::progress::cost_micro(&self.live.attempts).unwrap_or(0);
        let dollars = crate::files::dollars;
        if self.spent_committed + since >= settings.max_budget_micro_usd {
            let all = dollars(settings.max_budget_micro_usd);
            return format!("{detail}: the run's budget is ${all:.2}");
        }
        let of_stage = dollars(settings.stage_budget_micro_usd);
        format!("{detail}: a stage's budget (limits.stageBudgetUsd) is ${of_stage:.2}")
    }

    fn tries_so_far(&self, place: &Place) -> u32 {
        let of_place = |it: &&crate::files::record::Phase| {
            it.stage.as_deref() == Some(place.stage.name()) && it.cycle == Some(place.cycle)
        };
        self.live.attempts.iter().filter(of_place).count() as u32
    }

    /// Keeps a finished part of `implement`, so that a crash later does not pay for it again.
    pub(super) fn keep_part(&mut self) -> Result<(), RunError> {
        let Work::AgentFinished(done) = self.live.work.clone() else {
            return Ok(());
        };
        let Some(part) = done.attempt.part else {
            return Ok(());
        };
        let reason = format!("part {part} of {} finished", done.attempt.place().label());
        let (entry, tree) = self.undo_entry(&reason, Vec::new())?;
        self.live.attempts.push(crate::element::of_finished(&done));
        self.live
            .finished_parts
            .push(FinishedPart { part, tree, entry });
        self.live.work = Work::Idle;
        self.live.write(&self.repo)?;
        Ok(())
    }

    fn prompt(&self, ask: &Asked<'_>, feedback: Option<&str>) -> Result<String, RunError> {
        let stage = ask.step.place.stage;
        let own = self
            .live
            .worktree
            .join(".dex/prompts")
            .join(format!("{stage}.md"));
        let own = store::read(&own)?.and_then(|bytes| String::from_utf8(bytes).ok());
        let template = own
            .as_deref()
            .or(prompt::built_in(stage.name()))
            .unwrap_or_default();
        let paths = Paths::of(&self.live.start.goal);
        let earlier = ask.run.inherited.iter().chain(&ask.run.phases);
        let answers: Vec<(String, String)> = earlier
            .flat_map(|it| &it.assumptions)
            .map(|it| (it.question.clone(), it.answer.clone()))
            .collect();
        let failures = ask.run.failures(&ask.step.place);
        let values = Values {
            root: &self.live.worktree,
            paths: &paths,
            live: &self.live,
            cycle: ask.step.place.cycle,
            feature: ask.step.feature.as_ref(),
            spec_dir: ask.spec_dir,
            part: ask.part,
            verify_output: ask.verified.map_or("", |it| it.output.as_str()),
            failures: &failures,
            answers: &answers,
        };
        let mut text = prompt::render(template, &values.map())
            .map_err(|source| RunError::Prompt { stage, source })?;
        if let Some(feedback) = feedback {
            text.push_str(&prompt::try_again(feedback));
        }
        Ok(text)
    }

    /// Commits what the agent left; where that is refused for a reason the agent can mend (a
    /// likely secret), asks it once.
    fn finish_and_retry(
        &mut self,
        run: &Reconciled,
        step: &Step,
        verified: Option<&verify::Ran>,
    ) -> Result<Went, RunError> {
        if let Some(went) = self.settle_questions()? {
            return Ok(went);
        }
        if !self.verify_again()? {
            return Ok(Went::On);
        }
        let found = match self.commit_finished()? {
            Committed::Done => return Ok(Went::On),
            Committed::Pause(reason, why) => return Ok(Went::Pause(reason, why)),
            Committed::Secrets(found) => found,
        };
        let Work::AgentFinished(done) = self.live.work.clone() else {
            return Ok(Went::On);
        };
        if done.attempt.number >= TRIES {
            return Ok(Went::Pause(
                PauseReason::NeedsInput,
                super::judged::explain_secrets(&found),
            ));
        }
        let ask = Asked {
            run,
            step,
            part: None,
            spec_dir: done.attempt.spec_dir.as_deref(),
            verified,
        };
        self.ask_without_secrets(&ask, &done, &super::judged::tell_secrets(&found))
    }

    /// The one attempt more in which an agent takes a likely secret out again.
    fn ask_without_secrets(
        &mut self,
        ask: &Asked<'_>,
        done: &Finished,
        problem: &str,
    ) -> Result<Went, RunError> {
        let ending = crate::element::Ending {
            at: done.ended_at.clone(),
            duration_ms: done.duration_ms,
            reason: "likely_secret".to_owned(),
            retried: true,
        };
        let status = crate::files::record::PhaseStatus::Failed;
        let phase = crate::element::of_attempt(&done.attempt, status, Some(&ending));
        let job = Job {
            part: done.attempt.part,
            verify: done.attempt.verify.clone(),
            verified_files: done.attempt.verified_files.clone(),
            noticed: done.noticed.clone(),
            session: done.attempt.session.clone(),
            cycle_outcome: done.cycle_outcome,
            number: done.attempt.number + 1,
            ..ask.job(self.prompt(ask, Some(problem))?)
        };
        self.live.attempts.push(phase);
        self.live.work = Work::Idle;
        self.live.write(&self.repo)?;
        match self.attempt(&job)? {
            Tried::Finished(_) => {}
            Tried::Stopped => return Ok(Went::On),
            _ => {
                // The first attempt's work stands; only its secret is still in the way.
                self.live
                    .attempts
                    .retain(|it| it.phase_id != done.attempt.phase_id);
                self.live.work = Work::AgentFinished(Box::new(done.clone()));
                self.live.write(&self.repo)?;
            }
        }
        self.finish_what_is_left()
    }
}

/// What an agent is asked, with what it is told.
struct Asked<'a> {
    run: &'a Reconciled,
    step: &'a Step,
    part: Option<&'a Part>,
    spec_dir: Option<&'a str>,
    verified: Option<&'a verify::Ran>,
}

impl Asked<'_> {
    /// A first and only attempt at it.
    fn job(&self, prompt: String) -> Job {
        let place = &self.step.place;
        let verified = self.verified;
        Job {
            place: place.clone(),
            spec_dir: self.spec_dir.map(str::to_owned),
            part: self.part.map(|it| it.phase.number),
            prompt,
            tools: tools(place.stage),
            verify: verified.map(|it| it.verify.clone()),
            verified_files: verified.map(|it| it.files.clone()),
            noticed: verified.map_or_else(Vec::new, |it| it.noticed.clone()),
            session: None,
            cycle_outcome: None,
            number: 1,
            once_more: false,
        }
    }
}

enum Parted {
    Done,
    Went(Went),
}

fn tools(stage: Stage) -> ToolSurface {
    match stage {
        Stage::GapAnalysis | Stage::Learnings | Stage::ManifestExtraction => ToolSurface::ReadOnly,
        Stage::Prerequisites
        | Stage::ClarificationProduct
        | Stage::ClarificationTechnical
        | Stage::ClarificationSynthesis
        | Stage::Constitution
        | Stage::Specify
        | Stage::Plan
        | Stage::Tasks
        | Stage::Implement
        | Stage::ImplementFix
        | Stage::Verify
        | Stage::Completion => ToolSurface::Workspace,
    }
}

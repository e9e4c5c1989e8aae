//! Waiting: for a quota to come back, and for answers to what an agent asks.

use std::time::{Duration, Instant};

use super::{Event, Reply, RunError, Runner, Went, stamp};
use crate::answer::{self, Question};
use crate::files::record::Assumption;
use crate::live::{Finished, PauseReason, Work};
use crate::stage::Stage;

impl Runner<'_> {
    /// Waits for a quota, bounded over all waits for one stage, and says so. Some: the run ends
    /// here.
    pub(super) fn wait_for_quota(
        &mut self,
        until_unix: Option<i64>,
        waited: &mut Duration,
    ) -> Result<Option<Went>, RunError> {
        let longest = Duration::from_millis(self.live.start.settings.wait_for_quota_ms);
        let now_ts = jiff::Timestamp::now();
        let wait = match until_unix {
            Some(until) => Duration::from_secs(
                u64::try_from(until - now_ts.as_second())
                    .unwrap_or(0)
                    .max(1),
            ),
            // Not told: a minute, then twice as long each time, at most half an hour.
            None => (*waited).clamp(Duration::from_secs(60), Duration::from_secs(1800)),
        };
        let until = now_ts.checked_add(wait).unwrap_or(jiff::Timestamp::MAX);
        if *waited + wait > longest {
            let why = format!(
                "the quota comes back at {}, later than this run may wait",
                stamp(until)
            );
            return Ok(Some(Went::Pause(PauseReason::QuotaExhausted, why)));
        }
        self.live.quota_until = Some(stamp(until));
        self.live.write(&self.repo)?;
        self.observer.event(&Event::Waiting {
            until: &stamp(until),
        });
        *waited += wait;
        let began = Instant::now();
        while began.elapsed() < wait {
            if self.control.wants_end() {
                return Ok(Some(Went::On));
            }
            std::thread::sleep(Duration::from_millis(100).min(wait));
        }
        self.live.quota_until = None;
        self.live.write(&self.repo)?;
        Ok(None)
    }

    /// Asks, assumes or stops for the questions of an answer. Some: the run ends here.
    pub(super) fn settle_questions(&mut self) -> Result<Option<Went>, RunError> {
        let Work::AgentFinished(done) = &self.live.work else {
            return Ok(None);
        };
        let mut done = done.clone();
        let questions = open_questions(&done);
        if questions.is_empty() {
            return Ok(None);
        }
        let asked_at_once = self.person
            && matches!(
                done.attempt.stage,
                Stage::ClarificationProduct
                    | Stage::ClarificationTechnical
                    | Stage::ClarificationSynthesis
            );
        if self.live.start.ask && !asked_at_once {
            return self.wait_for_answers(&done, questions).map(Some);
        }
        for question in &questions {
            let reply = if asked_at_once {
                self.observer.ask(question)
            } else {
                Reply::Nobody
            };
            done.assumptions.push(settled(question, reply));
        }
        self.live.work = Work::AgentFinished(done);
        self.live.write(&self.repo)?;
        Ok(None)
    }

    /// Writes the questions down for `dex answer`; the run ends here.
    fn wait_for_answers(
        &mut self,
        done: &Finished,
        questions: Vec<Question>,
    ) -> Result<Went, RunError> {
        let count = questions.len();
        self.live.question = Some(crate::live::Question {
            checkpoint: done.attempt.place().checkpoint(),
            asks: questions,
            given: Vec::new(),
        });
        self.live.write(&self.repo)?;
        let why = format!(
            "{count} question{} wait for an answer",
            if count == 1 { "" } else { "s" }
        );
        Ok(Went::Pause(PauseReason::NeedsInput, why))
    }
}

/// What an answer asks; after a restart some may be settled already.
fn open_questions(done: &Finished) -> Vec<Question> {
    let stage = done.attempt.stage;
    let given = done.answer.as_ref();
    let checked = given.and_then(|it| answer::check(stage.name(), it).ok());
    let mut questions = checked.map_or_else(Vec::new, |it| it.questions().to_vec());
    questions.retain(|it| {
        let asked = agents::redact::redact(&it.question);
        !done.assumptions.iter().any(|given| given.question == asked)
    });
    questions
}

fn settled(question: &Question, reply: Reply) -> Assumption {
    let assumed = question.assumed().unwrap_or("left to the agent").to_owned();
    let (answer, by) = match reply {
        Reply::Answer(answer) => (answer, "person"),
        Reply::Nobody => (assumed, "assumed"),
    };
    Assumption {
        question: agents::redact::redact(&question.question),
        answer: agents::redact::redact(&answer),
        by: by.to_owned(),
        more: serde_json::Map::new(),
    }
}

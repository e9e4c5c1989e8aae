//! What a run shows while it works: one line a stage, and under it what the agent does now. On a
//! terminal that line moves ([`doing`]); elsewhere each action is a line of its own.

use std::io::IsTerminal as _;
use std::time::Duration;

use dex::answer::Question;
use dex::run::{Event, Observer, Reply};
use dex::stage::Stage;
use indicatif::{ProgressBar, ProgressStyle};

use crate::ui::{self, BAD, DIM, GOOD, NAME, WARN, clean, cut, styled};

pub mod doing;

use doing::{Changed, Doing};

/// Shows a run on standard error and asks at the terminal.
pub struct Live {
    moving: Moving,
    doing: Doing,
    person: Person,
}

/// Whether somebody is there to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Person {
    /// At the terminal.
    Here,
    /// They said that the rest is decided for them, or were told that they can leave.
    Left,
    /// Nobody was there from the start.
    Nobody,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// Ready to show.
    pub fn new(person: Person) -> Live {
        Live {
            moving: Moving::new(),
            doing: Doing::default(),
            person,
        }
    }

    fn line(&self, text: &str) {
        self.moving.line(text);
    }

    fn changed(&self, changed: Changed) {
        self.moving.changed(&self.doing, changed);
    }

    /// Takes the moving line away.
    pub fn end(&self) {
        self.moving.end();
    }
}

/// The line under the finished stages. Where standard error is no terminal nothing moves, and
/// what the agent does is written line by line.
#[derive(Debug)]
pub struct Moving(Option<ProgressBar>);

impl Moving {
    /// Nothing is shown yet.
    pub fn new() -> Moving {
        Moving(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("  {spinner} {elapsed} {wide_msg}")
                .expect("the template is right");
            bar.set_style(style);
            bar
        }))
    }

    /// A whole line, above the moving one.
    pub fn line(&self, text: &str) {
        self.above(|| ui::talk(text));
    }

    /// Something written above the moving line.
    pub fn above(&self, write: impl FnOnce()) {
        match &self.0 {
            Some(bar) if !bar.is_finished() => bar.suspend(write),
            _ => write(),
        }
    }

    /// A stage begins.
    pub fn begin(&self, doing: &Doing) {
        match &self.0 {
            Some(bar) => {
                bar.reset_elapsed();
                bar.enable_steady_tick(Duration::from_millis(120));
                bar.set_message(doing.line());
            }
            None => ui::talk(format!("  > {}", doing.line())),
        }
    }

    /// The stage goes on.
    pub fn changed(&self, doing: &Doing, changed: Changed) {
        match (&self.0, changed) {
            (_, Changed::Nothing) | (None, Changed::Detail) => {}
            (Some(bar), _) => bar.set_message(doing.line()),
            (None, Changed::Action) => ui::talk(format!("    {}", doing.plain())),
        }
    }

    /// Nothing is going on for the moment.
    pub fn rest(&self) {
        if let Some(bar) = &self.0 {
            bar.disable_steady_tick();
        }
    }

    /// Takes the moving line away.
    pub fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Default for Moving {
    fn default() -> Moving {
        Moving::new()
    }
}

impl Observer for Live {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::StageStarted {
                place,
                agent,
                feature,
                spent_micro,
                budget_micro,
                ..
            } => {
                if place.stage == Stage::Constitution && self.person == Person::Here {
                    self.person = Person::Left;
                    self.line(&styled(
                        DIM,
                        "    that was the last question: you can leave now",
                    ));
                }
                let who = agent.map_or(String::new(), |it| format!(" ({it})"));
                let what = feature.map_or(String::new(), |it| format!(" · {}", clean(it)));
                let stage = format!("{}{what}{who}", place.label());
                self.doing = Doing::of_stage(&stage, *spent_micro, *budget_micro);
                self.moving.begin(&self.doing);
            }
            Event::PartStarted { part, of, title } => {
                self.line(&styled(
                    DIM,
                    format!("    part {part} of {of}: {}", clean(title)),
                ));
            }
            Event::Agent(event) => self.agent(event),
            Event::Verifying { command } => {
                let changed = self.doing.does(&format!("running {command}"));
                self.changed(changed);
            }
            Event::Committed {
                place,
                commit,
                phase,
                cost_micro,
                duration_ms,
            } => {
                self.moving.rest();
                let failed = phase.verify.as_ref().is_some_and(|it| !it.passed);
                let mark = if failed {
                    styled(BAD, "✗")
                } else {
                    styled(GOOD, "✓")
                };
                let feature = place.feature.as_deref().unwrap_or("");
                let spent =
                    cost_micro.map_or(String::new(), |it| format!("  {}", ui::money(Some(it))));
                let took = ui::duration(*duration_ms);
                self.line(&format!(
                    "{mark} {:<28} {:<24} {} {}",
                    place.label(),
                    cut(&clean(feature), 24),
                    styled(NAME, commit.short()),
                    styled(DIM, format!("{took}{spent}")),
                ));
                for left_out in &phase.left_out {
                    self.line(&styled(
                        WARN,
                        format!(
                            "    left out: {} ({})",
                            clean(&left_out.path),
                            left_out.reason
                        ),
                    ));
                }
                for assumption in phase.assumptions.iter().filter(|it| it.by == "assumed") {
                    self.line(&styled(
                        DIM,
                        format!(
                            "    assumed: {} — {}",
                            clean(&assumption.question),
                            clean(&assumption.answer)
                        ),
                    ));
                }
            }
            Event::Failed {
                place,
                reason,
                detail,
                again,
            } => {
                let then = if *again { "; it is tried again" } else { "" };
                self.line(&format!(
                    "{} {:<28} {}",
                    styled(BAD, "✗"),
                    place.label(),
                    styled(BAD, format!("{reason}: {}{then}", cut(&clean(detail), 200)))
                ));
            }
            Event::Notice(text) => self.line(&styled(WARN, format!("    {}", clean(text)))),
            Event::Waiting { until } => {
                self.line(&styled(
                    WARN,
                    format!("    the quota is used up; waiting until {until}"),
                ));
            }
        }
    }

    fn ask(&mut self, question: &Question) -> Reply {
        if self.person != Person::Here {
            return Reply::Nobody;
        }
        self.moving.rest();
        self.line(&format!(
            "\n{} {}",
            styled(ui::BOLD, "?"),
            ui::clean_lines(&question.question)
        ));
        for (at, option) in question.options.iter().enumerate() {
            let recommended = if option.recommended {
                styled(DIM, "  (recommended)")
            } else {
                String::new()
            };
            self.line(&format!(
                "  {} {}{recommended}",
                at + 1,
                clean(&option.label)
            ));
        }
        let prompt =
            "Number or answer (empty: the recommended one; `leave`: decide the rest for me):";
        loop {
            let line = match ui::ask_line(prompt) {
                None => return Reply::Nobody,
                Some(line) if line.is_empty() => return Reply::Nobody,
                Some(line) if line == "leave" => {
                    self.person = Person::Left;
                    return Reply::Nobody;
                }
                Some(line) => line,
            };
            match choice(question, &line) {
                Some(answer) => return Reply::Answer(answer),
                None => self.line("There is no such choice."),
            }
        }
    }
}

impl Live {
    fn agent(&mut self, event: &agents::Event) {
        if let agents::Event::Denied { tool } = event {
            self.line(&styled(WARN, format!("    refused: {}", clean(tool))));
        }
        let changed = self.doing.event(event);
        self.changed(changed);
    }
}

/// An answer as typed: the number of an option stands for it, nothing for what is recommended.
/// None for a number of no option, which is more likely a slip than an answer.
pub fn choice(question: &Question, typed: &str) -> Option<String> {
    if typed.trim().is_empty() {
        return question.assumed().map(str::to_owned);
    }
    let Ok(number) = typed.trim().parse::<usize>() else {
        return Some(typed.to_owned());
    };
    if question.options.is_empty() {
        return Some(typed.to_owned());
    }
    let option = question.options.get(number.checked_sub(1)?)?;
    Some(option.label.clone())
}

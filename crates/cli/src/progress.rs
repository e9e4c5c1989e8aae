//! What a run shows while it works: one line a stage, and on a terminal the agent's current
//! action under it.

use std::io::IsTerminal as _;
use std::time::Duration;

use dex::answer::Question;
use dex::run::{Event, Observer, Reply};
use dex::stage::Stage;
use indicatif::{ProgressBar, ProgressStyle};

use crate::ui::{self, BAD, DIM, GOOD, NAME, WARN, clean, cut, styled};

/// Shows a run on standard error and asks at the terminal.
pub struct Live {
    spinner: Option<ProgressBar>,
    /// Of the attempt at work.
    cost_micro: Option<u64>,
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
        let spinner = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("  {spinner} {elapsed} {wide_msg}")
                .expect("the template is right");
            bar.set_style(style);
            bar
        });
        Live {
            spinner,
            cost_micro: None,
            person,
        }
    }

    fn line(&self, text: &str) {
        match &self.spinner {
            Some(bar) if !bar.is_finished() => bar.suspend(|| ui::talk(text)),
            _ => ui::talk(text),
        }
    }

    fn doing(&self, text: &str) {
        if let Some(bar) = &self.spinner {
            let spent = self
                .cost_micro
                .map_or(String::new(), |it| format!("{} · ", ui::money(Some(it))));
            bar.set_message(cut(&format!("{spent}{}", clean(text)), 100));
        }
    }

    /// Takes the moving line away.
    pub fn end(&self) {
        if let Some(bar) = &self.spinner {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Live {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::StageStarted {
                place,
                agent,
                feature,
                ..
            } => {
                self.cost_micro = None;
                if place.stage == Stage::Constitution && self.person == Person::Here {
                    self.person = Person::Left;
                    self.line(&styled(
                        DIM,
                        "    that was the last question: you can leave now",
                    ));
                }
                if let Some(bar) = &self.spinner {
                    bar.reset_elapsed();
                    bar.enable_steady_tick(Duration::from_millis(120));
                }
                let who = agent.map_or(String::new(), |it| format!(" ({it})"));
                let what = feature.map_or(String::new(), |it| format!(" · {}", clean(it)));
                self.doing(&format!("{}{what}{who}", place.label()));
            }
            Event::PartStarted { part, of, title } => {
                self.line(&styled(
                    DIM,
                    format!("    part {part} of {of}: {}", clean(title)),
                ));
            }
            Event::Agent(event) => self.agent(event),
            Event::Verifying { command } => self.doing(&format!("running {command}")),
            Event::Committed {
                place,
                commit,
                phase,
            } => {
                if let Some(bar) = &self.spinner {
                    bar.disable_steady_tick();
                }
                let failed = phase.verify.as_ref().is_some_and(|it| !it.passed);
                let mark = if failed {
                    styled(BAD, "✗")
                } else {
                    styled(GOOD, "✓")
                };
                let feature = place.feature.as_deref().unwrap_or("");
                let spent = phase
                    .cost_usd
                    .map_or(String::new(), |it| format!("  ${it:.2}"));
                let took = ui::duration(phase.duration_ms.unwrap_or(0));
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
        if let Some(bar) = &self.spinner {
            bar.disable_steady_tick();
        }
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
        match event {
            agents::Event::Text(text) => self.doing(text.lines().last().unwrap_or("")),
            agents::Event::ToolCall { name, summary } => self.doing(&format!("{name} {summary}")),
            agents::Event::SubAgent { what } => self.doing(&format!("sub-agent: {what}")),
            agents::Event::Denied { tool } => {
                self.line(&styled(WARN, format!("    refused: {}", clean(tool))));
            }
            agents::Event::Retry { attempt, why } => {
                self.doing(&format!("the agent tries again ({attempt}): {why}"));
            }
            agents::Event::Usage(usage) => self.cost_micro = usage.cost_micro_usd,
            agents::Event::Started { .. } | agents::Event::ToolResult { .. } => {}
        }
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

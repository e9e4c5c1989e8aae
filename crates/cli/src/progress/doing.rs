//! What a run is at this moment, in one line: the same for whoever runs it and for whoever
//! watches it from elsewhere.

use agents::Event;
use agents::transcript::Step;

use crate::ui::{clean, cut, money};

/// Longest line, in characters; a terminal cuts it shorter.
const WIDTH: usize = 160;

/// What is known of the stage at work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Doing {
    /// Stage, cycle, feature, back end.
    stage: String,
    /// What the agent does: a tool with its target, the last line it said.
    action: String,
    tokens: Option<u64>,
    /// Micro-dollars of this attempt.
    cost: Option<u64>,
    /// Micro-dollars of the run before this attempt.
    before: u64,
    /// Micro-dollars the run may cost.
    budget: u64,
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// The agent does something else now: worth a line of its own where no line can move.
    Action,
    /// What it says, or how much it used.
    Detail,
    /// Nothing that is shown.
    Nothing,
}

impl Doing {
    /// A stage begins. `before` and `budget` are micro-dollars of the whole run.
    pub fn of_stage(stage: &str, before: u64, budget: u64) -> Doing {
        Doing {
            stage: clean(stage),
            before,
            budget,
            ..Doing::default()
        }
    }

    /// Takes in what the agent did.
    pub fn event(&mut self, event: &Event) -> Changed {
        match event {
            Event::Text(text) => self.said(text),
            Event::ToolCall { name, summary } => self.does(&format!("{name} {summary}")),
            Event::SubAgent { what } => self.does(&format!("sub-agent: {what}")),
            Event::Retry { attempt, why } => {
                self.does(&format!("the agent tries again ({attempt}): {why}"))
            }
            Event::Usage(usage) => {
                let tokens = [usage.input_tokens, usage.output_tokens, usage.cached_tokens];
                self.used(usage.cost_micro_usd, tokens)
            }
            Event::Denied { .. } | Event::Started { .. } | Event::ToolResult { .. } => {
                Changed::Nothing
            }
        }
    }

    /// As [`Doing::event`], from a line of the transcript.
    pub fn step(&mut self, step: &Step) -> Changed {
        let number = |name: &str| step.more.get(name).and_then(serde_json::Value::as_u64);
        match step.kind.as_str() {
            "text" => self.said(&step.text),
            "tool_call" => {
                let tool = step.tool.as_deref().unwrap_or("tool");
                self.does(&format!("{tool} {}", step.text))
            }
            "sub_agent" => self.does(&format!("sub-agent: {}", step.text)),
            "retry" => self.does(&format!("the agent tries again: {}", step.text)),
            "usage" => {
                let tokens = ["inputTokens", "outputTokens", "cachedTokens"].map(number);
                self.used(number("costMicroUsd"), tokens)
            }
            _ => Changed::Nothing,
        }
    }

    /// Something of ours is going on, not the agent's.
    pub fn does(&mut self, action: &str) -> Changed {
        self.action = clean(action.trim());
        Changed::Action
    }

    fn said(&mut self, text: &str) -> Changed {
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => {
                self.action = clean(line.trim());
                Changed::Detail
            }
            None => Changed::Nothing,
        }
    }

    fn used(&mut self, cost: Option<u64>, tokens: [Option<u64>; 3]) -> Changed {
        self.cost = cost.or(self.cost);
        if tokens.iter().any(Option::is_some) {
            self.tokens = Some(tokens.iter().flatten().sum());
        }
        Changed::Detail
    }

    /// The action alone, for output that does not move.
    pub fn plain(&self) -> String {
        cut(&self.action, WIDTH)
    }

    /// Stage, tokens, cost against the budget, and what the agent does now.
    pub fn line(&self) -> String {
        let spent = self.before + self.cost.unwrap_or(0);
        let cost = format!("{} of {}", money(Some(spent)), money(Some(self.budget)));
        let tokens = self.tokens.map(|it| format!("{} tokens", thousands(it)));
        let parts = [Some(self.stage.clone()), tokens, Some(cost)];
        let mut line = parts.into_iter().flatten().collect::<Vec<_>>().join(" · ");
        if !self.action.is_empty() {
            line.push_str(" · ");
            line.push_str(&self.action);
        }
        cut(&line, WIDTH)
    }
}

/// `999`, `12.3k`, `4.5M`.
fn thousands(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use agents::Usage;

    use super::*;

    fn usage(cost: Option<u64>, input: u64) -> Event {
        Event::Usage(Usage {
            cost_micro_usd: cost,
            input_tokens: Some(input),
            output_tokens: Some(345),
            cached_tokens: None,
        })
    }

    #[test]
    fn one_line_says_stage_tokens_cost_against_the_budget_and_action() {
        let mut doing = Doing::of_stage("implement · cycle 1", 1_000_000, 50_000_000);
        assert_eq!(doing.line(), "implement · cycle 1 · $1.00 of $50.00");
        doing.event(&usage(Some(250_000), 12_000));
        let edit = Event::ToolCall {
            name: "Edit".to_owned(),
            summary: "src/main.rs".to_owned(),
        };
        assert_eq!(doing.event(&edit), Changed::Action);
        assert_eq!(
            doing.line(),
            "implement · cycle 1 · 12.3k tokens · $1.25 of $50.00 · Edit src/main.rs"
        );
    }

    #[test]
    fn a_back_end_without_dollars_keeps_what_was_spent_before() {
        let mut doing = Doing::of_stage("plan · cycle 1", 0, 5_000_000);
        doing.event(&usage(None, 10));
        assert_eq!(doing.line(), "plan · cycle 1 · 355 tokens · $0.00 of $5.00");
    }

    #[test]
    fn what_an_agent_says_cannot_move_the_cursor() {
        let mut doing = Doing::of_stage("plan", 0, 0);
        doing.event(&Event::Text("first\n\u{1b}[2Jsecond\r\u{7}\n\n".to_owned()));
        assert!(
            !doing.line().contains(['\u{1b}', '\r', '\u{7}']),
            "{doing:?}"
        );
    }
}

//! `dex answer`

use std::path::Path;

use dex::facts;
use dex::files::lock::RunLock;
use dex::files::record::Assumption;
use dex::live::Live;
use serde_json::json;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui::{self, BOLD, DIM, clean, clean_lines, styled};

/// Shows or answers the question a run waits with.
pub fn answer(dir: &Path, args: &args::Answer) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let known = facts::find(&repo, args.run.as_deref())?;
    let facts = facts::read(&repo, &known)?;
    let asks = facts.live.as_ref().and_then(|it| it.question.as_ref());
    let open = asks.is_some_and(|it| !it.asks.is_empty());
    let (Some(live), true) = (&facts.live, open) else {
        return Err(
            Failure::new(Exit::NotFound, format!("{} asks nothing", known.branch))
                .hint("See what it is doing with `dex status`."),
        );
    };
    let Some(given) = &args.answer else {
        show(live, args.json);
        return Ok(Exit::Waiting);
    };
    let _lock = RunLock::acquire(&live.worktree, &live.git_dir)?;
    let mut live = Live::read(&repo, &live.run_id)?
        .ok_or_else(|| Failure::new(Exit::Failed, "the run's live record is gone"))?;
    let Some(question) = live.question.as_mut().filter(|it| !it.asks.is_empty()) else {
        return Err(Failure::new(
            Exit::Moved,
            "the question was answered meanwhile",
        ));
    };
    let Some(text) = crate::progress::choice(&question.asks[0], given) else {
        if given.trim().is_empty() {
            let nothing = "the answer is empty, and nothing is recommended; nothing was answered";
            return Err(Failure::new(Exit::Usage, nothing).hint("Answer in your own words."));
        }
        let options = &question.asks[0].options;
        let choices: Vec<String> = options
            .iter()
            .enumerate()
            .map(|(at, it)| format!("{} {}", at + 1, clean(&it.label)))
            .collect();
        return Err(Failure::new(
            Exit::Usage,
            format!("there is no choice {}; nothing was answered", clean(given)),
        )
        .hint(format!(
            "The choices: {}. Type a number from 1 to {}, or words: a number of your own as in `dex answer \"the number 8080\"`.",
            choices.join(", "),
            options.len()
        )));
    };
    let ask = question.asks.remove(0);
    question.given.push(Assumption {
        question: agents::redact::redact(&ask.question),
        answer: agents::redact::redact(&text),
        by: "person".to_owned(),
        more: serde_json::Map::new(),
    });
    let left = question.asks.len();
    live.write(&repo)?;
    ui::talk(format!("answered: {}", clean(&text)));
    if left > 0 {
        show(&live, false);
        return Ok(Exit::Waiting);
    }
    ui::talk("nothing is open any more; go on with `dex resume`");
    Ok(Exit::Done)
}

fn show(live: &Live, as_json: bool) {
    let Some(question) = &live.question else {
        return;
    };
    if as_json {
        ui::json(&json!({
            "runId": live.run_id,
            "checkpoint": question.checkpoint,
            "questions": question.asks,
            "given": question.given,
        }));
        return;
    }
    let Some(ask) = question.asks.first() else {
        return;
    };
    ui::out(format!(
        "{} {}",
        styled(BOLD, "?"),
        clean_lines(&ask.question)
    ));
    for (at, option) in ask.options.iter().enumerate() {
        let recommended = if option.recommended {
            styled(DIM, "  (recommended)")
        } else {
            String::new()
        };
        ui::out(format!(
            "  {} {}{recommended}",
            at + 1,
            clean(&option.label)
        ));
    }
    let more = question.asks.len() - 1;
    if more > 0 {
        ui::out(styled(
            DIM,
            format!("{} more after this one", ui::count(more, "question")),
        ));
    }
    ui::talk("Answer with `dex answer NUMBER` or `dex answer \"your words\"`.");
}

//! How an attempt ended: a pure decision over the stream's last state and why the process ended.
//!
//! The last line of the stream decides, then what we did to the process. The exit status decides
//! nothing: the CLI leaves with 0 after an interrupt and with 1 and `subtype: "success"` after an
//! API error.

use serde_json::Value;

use super::stream::{Parser, Terminal};
use crate::ending::failed;
use crate::process::End;
use crate::{Ended, Failure, Limits};

/// Decides. `stderr` is the last line the CLI wrote there.
pub(super) fn ended(
    parser: &Parser,
    end: End,
    stderr: &str,
    limits: &Limits,
    now_unix: i64,
) -> Ended {
    match &parser.terminal {
        Some(last) if last.subtype == "success" && !last.is_error => Ended::Finished,
        // An interrupted CLI reports an error of its own; that was us.
        _ if end == End::Stopped => Ended::Stopped,
        Some(last) => complaint(parser, last, now_unix),
        None => without_last_line(parser, end, stderr, limits),
    }
}

fn complaint(parser: &Parser, last: &Terminal, now_unix: i64) -> Ended {
    let text = last.complaint();
    let lower = text.to_ascii_lowercase();
    let problem = parser.problem.as_deref().unwrap_or_default();
    let quota = matches!(last.api_status, Some(429 | 529))
        || matches!(problem, "rate_limit" | "overloaded")
        || (lower.contains("limit reached|"));
    let account = matches!(last.api_status, Some(401 | 403))
        || matches!(problem, "authentication_failed" | "billing_error")
        || lower.contains("please run /login");

    if last.subtype == "error_max_turns" || last.reason == "max_turns" {
        failed(Failure::MaxTurns, text)
    } else if last.subtype == "error_max_budget_usd" || last.reason == "budget_exhausted" {
        failed(Failure::CostCap, text)
    } else if quota {
        let until_unix = last.quota_until(parser.resets_at, now_unix);
        Ended::Quota { until_unix }
    } else if account {
        let hint = if problem == "billing_error" {
            "top up the account"
        } else {
            "run `claude auth login`, or set ANTHROPIC_API_KEY"
        };
        failed(Failure::Unavailable, format!("{text} ({hint})"))
    } else {
        failed(Failure::AgentError, text)
    }
}

fn without_last_line(parser: &Parser, end: End, stderr: &str, limits: &Limits) -> Ended {
    if let Some(failure) = parser.over() {
        let detail = match failure {
            Failure::NeedsPermission => "it asked for a permission nobody is there to give",
            Failure::Unavailable => "its key is refused again and again (run `claude auth login`)",
            Failure::MaxTurns => "it went on past its turns, and was ended",
            _ => "it went on past its budget, and was ended",
        };
        return failed(failure, detail.to_owned());
    }
    end.ended_by(limits).unwrap_or_else(|| {
        let said = [stderr, parser.stray.as_deref().unwrap_or_default()];
        let detail = match said.into_iter().find(|it| !it.is_empty()) {
            Some(line) => format!("it ended without a result: {line}"),
            None => "it ended without a result".to_owned(),
        };
        failed(Failure::Protocol, detail)
    })
}

/// The structured answer: the CLI's own field, else the last fenced JSON block of the final text,
/// else the whole text when it is a JSON object.
pub(super) fn answer(last: &Terminal) -> Option<Value> {
    let in_text = || crate::text::answer_in(&last.text);
    last.structured.clone().or_else(in_text)
}

//! How an attempt ended: a pure decision over the stream's last state and why the process ended.
//!
//! The last line of the stream decides, then what we did to the process; the exit status decides
//! nothing. Codex names no kind of error, it words it, so the words decide between a wait, an
//! account that is not usable, and a failure; what the model says is never looked at.

use super::stream::{Parser, Terminal};
use crate::ending::failed;
use crate::process::{End, Finished};
use crate::{Ended, Failure, Limits, quota};

/// Decides. `stderr` is the last line the CLI wrote there.
pub(super) fn ended(
    parser: &Parser,
    end: End,
    stderr: &str,
    limits: &Limits,
    now_unix: i64,
) -> Ended {
    match &parser.terminal {
        Some(Terminal::Completed) => Ended::Finished,
        _ if end == End::Stopped => Ended::Stopped,
        Some(Terminal::Failed(message)) => complaint(message, now_unix),
        None => without_last_line(parser, end, stderr, limits, now_unix),
    }
}

/// Whether the process ended before any of our limits.
pub(super) fn left_by_itself(finished: &Finished) -> bool {
    matches!(finished.end, End::Exited(_))
}

fn complaint(message: &str, now_unix: i64) -> Ended {
    match kind(message) {
        Kind::Limited => Ended::Quota {
            until_unix: quota::until(message, now_unix),
        },
        Kind::Account(hint) => failed(Failure::Unavailable, format!("{message} ({hint})")),
        Kind::Unreachable => failed(Failure::Unavailable, format!("no connection: {message}")),
        Kind::Other => failed(Failure::AgentError, message.to_owned()),
    }
}

/// What a message of the CLI is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Wait.
    Limited,
    /// The account cannot be used; what to do.
    Account(&'static str),
    /// The service cannot be reached.
    Unreachable,
    /// Anything else.
    Other,
}

pub(super) fn kind(message: &str) -> Kind {
    let message = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|it| message.contains(it));
    if has(&["billing", "insufficient_quota", "credits depleted"]) {
        Kind::Account("top up the account")
    } else if has(&[
        "status 401",
        "status 403",
        "status: 401",
        "status: 403",
        "not logged in",
        "log in again",
        "sign in again",
        "access token could not be refreshed",
        "incorrect api key",
        "missing environment variable",
    ]) {
        Kind::Account("run `codex login`, or set CODEX_API_KEY")
    } else if has(&[
        "usage limit",
        "rate limit",
        "too many requests",
        "at capacity",
        "overloaded",
        "high demand",
        "status 429",
        "status 503",
        "status 529",
        "status: 429",
        "status: 503",
        "status: 529",
    ]) {
        Kind::Limited
    } else if has(&[
        "error sending request",
        "waiting for network",
        "failed to lookup address",
        "connection failed",
        "connection refused",
    ]) {
        Kind::Unreachable
    } else {
        Kind::Other
    }
}

fn without_last_line(
    parser: &Parser,
    end: End,
    stderr: &str,
    limits: &Limits,
    now_unix: i64,
) -> Ended {
    if let Some(failure) = parser.over() {
        let problem = parser.problem.as_deref().unwrap_or_default();
        return match failure {
            Failure::MaxTurns => {
                let turns = limits.turns;
                failed(failure, format!("ended by us after {turns} turns"))
            }
            _ => match complaint(problem, now_unix) {
                Ended::Failed { detail, .. } => failed(failure, detail),
                other => other,
            },
        };
    }
    if let Some(ended) = end.ended_by(limits) {
        return ended;
    }
    // A message that was to be followed by a last line, which never came.
    if let Some(problem) = &parser.problem {
        return complaint(problem, now_unix);
    }
    let said = [stderr, parser.stray.as_deref().unwrap_or_default()];
    let said = said.into_iter().find(|it| !it.is_empty());
    if let Some(line) = said
        && !parser.started
        && let Kind::Account(_) = kind(line)
    {
        return complaint(line, now_unix);
    }
    let detail = match said {
        Some(line) => format!("it ended without a result: {line}"),
        None => "it ended without a result".to_owned(),
    };
    failed(Failure::Protocol, detail)
}

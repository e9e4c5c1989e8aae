//! Ends that every back end reaches in the same way: it could not start, it cannot be used, its
//! session is gone.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::process::StartError;
use crate::text::with_causes;
use crate::{Ended, Event, Failure, Outcome, Request, Sink, Usage};

/// An attempt that did not do its work.
pub(crate) fn failed(failure: Failure, detail: impl Into<String>) -> Ended {
    Ended::Failed {
        failure,
        detail: detail.into(),
    }
}

/// The agent cannot be used here, however often it is tried.
pub(crate) fn unavailable(detail: impl Into<String>) -> Ended {
    failed(Failure::Unavailable, detail)
}

/// The agent's program did not come up.
pub(crate) fn could_not_start(error: &StartError) -> Ended {
    unavailable(match error {
        StartError::NotFound { .. } => format!("{error}; install it, or name another agent"),
        StartError::Io { .. } => with_causes(error),
    })
}

/// The outcome where no program ran. `cost_micro_usd` is 0, or none for a back end that never
/// tells dollars.
pub(crate) fn never_started(ended: Ended, cost_micro_usd: Option<u64>) -> Outcome {
    Outcome {
        ended,
        answer: None,
        text: String::new(),
        usage: Usage {
            cost_micro_usd,
            ..Usage::default()
        },
        model: None,
        session: None,
        survivors: Vec::new(),
    }
}

/// The session to go on with does not exist; nothing was done and nothing spent.
pub(crate) struct NoSession(pub(crate) String);

/// Makes an attempt, and once more in a session of its own where the one to go on with `is_gone`.
pub(crate) fn in_a_session_that_exists(
    request: &Request,
    sink: &mut Sink<'_>,
    is_gone: &str,
    attempt: &mut dyn FnMut(&Request, &mut Sink<'_>) -> Result<Outcome, NoSession>,
) -> Result<Outcome, Ended> {
    attempt(request, sink)
        .or_else(|NoSession(missing)| {
            sink(Event::Text(format!(
                "Session {missing} {is_gone}; a new one is begun."
            )));
            let mut fresh = request.clone();
            fresh.session = None;
            attempt(&fresh, sink)
        })
        .map_err(|NoSession(session)| {
            let detail = format!("it says that session {session}, a new one, does not exist");
            failed(Failure::Protocol, detail)
        })
}

/// Seconds since 1970.
pub(crate) fn now_unix() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| i64::try_from(it.as_secs()).unwrap_or(i64::MAX))
}

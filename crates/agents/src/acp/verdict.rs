//! How an attempt ended: pure decisions over what the agent answered. Its exit decides nothing.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::updates::one_line;
use super::wire::{AUTH_REQUIRED, RpcError};
use crate::ending::failed;
use crate::quota;
use crate::{Ended, Failure};

static QUOTA: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(429|529)\b|rate.?limit|usage.?limit|hit your .*limit|limit reached|quota|too many requests|overloaded|resource.?exhausted|at capacity",
    )
});
/// What a program says to people when it is told to come back later. Narrower than [`QUOTA`]: these
/// lines are about anything.
static COMPLAINT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(429|529)\b|rate.?limit|usage.?limit|too many requests|overloaded|resource.?exhausted",
    )
});
static ACCOUNT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(401|403)\b|unauthori[sz]ed|authenticat|api.?key|not logged in|/login|credential|billing|credit balance|insufficient (balance|funds)",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a fixed pattern, used by a test")
}

/// Everything an error says, on one line.
pub(super) fn words(error: &RpcError) -> String {
    let data = &error.data;
    let nested = [
        &data["details"],
        &data["message"],
        &data["error"]["message"],
        data,
    ];
    let nested = nested.into_iter().find_map(Value::as_str);
    let nested = nested.map(str::to_owned).or_else(|| {
        (data.is_object() && !data.as_object().is_some_and(serde_json::Map::is_empty))
            .then(|| data.to_string())
    });
    let said = match nested {
        Some(more) if !error.message.contains(&more) => format!("{}: {more}", error.message),
        _ => error.message.clone(),
    };
    match one_line(&said) {
        said if said.is_empty() => format!("error {}", error.code),
        said => said,
    }
}

/// What an error of the agent means; `login` says what to type.
pub(super) fn of_error(error: &RpcError, login: &str, now_unix: i64) -> Ended {
    let said = words(error);
    // What a service says of its quota may also mention keys and billing.
    if error.code != AUTH_REQUIRED && QUOTA.is_match(&said) {
        let until_unix = quota::until(&said, now_unix);
        Ended::Quota { until_unix }
    } else if error.code == AUTH_REQUIRED || ACCOUNT.is_match(&said) {
        failed(Failure::Unavailable, format!("{said} ({login})"))
    } else {
        failed(Failure::AgentError, said)
    }
}

/// Whether a line on standard error complains of a used-up quota or an overloaded service.
pub(super) fn is_complaint(line: &str) -> bool {
    COMPLAINT.is_match(line)
}

/// A quota that a complaint tells of.
pub(super) fn of_complaint(line: &str, now_unix: i64) -> Ended {
    let until_unix = quota::until(line, now_unix);
    Ended::Quota { until_unix }
}

/// What the reason means for which a prompt ended.
pub(super) fn of_stop_reason(reason: &str) -> Ended {
    match reason {
        "end_turn" => Ended::Finished,
        "max_tokens" => failed(
            Failure::AgentError,
            "its answer is longer than its model can give",
        ),
        "max_turn_requests" => failed(Failure::MaxTurns, "it used up its turns"),
        "refusal" => failed(Failure::AgentError, "it refused"),
        "cancelled" => failed(Failure::AgentError, "it cancelled its turn"),
        other => failed(
            Failure::Protocol,
            format!("it ended its turn with `{}`", one_line(other)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_agents_errors_are_told_apart() {
        let mut table = String::new();
        for (code, message, data) in [
            (
                -32603,
                "Internal error",
                json!({"details": "429 Too Many Requests"}),
            ),
            (
                -32603,
                "You've hit your session limit · resets 4:40am (UTC)",
                json!(null),
            ),
            (
                -32603,
                "RESOURCE_EXHAUSTED: Quota exceeded, check billing",
                json!({}),
            ),
            (-32603, "Overloaded", json!("529 overloaded_error")),
            (-32000, "Authentication required", json!(null)),
            (
                -32603,
                "Internal error",
                json!({"error": {"message": "401 invalid x-api-key"}}),
            ),
            (
                -32603,
                "Internal error: port 4290 in use",
                json!({"errno": 14010}),
            ),
            (-1, "", json!(null)),
        ] {
            let error = RpcError {
                code,
                message: message.to_owned(),
                data,
            };
            table.push_str(&format!(
                "{:?}\n",
                of_error(&error, "log in", 1_796_078_400)
            ));
        }
        insta::assert_snapshot!(table, @r#"
        Quota { until_unix: None }
        Quota { until_unix: Some(1796100000) }
        Quota { until_unix: None }
        Quota { until_unix: None }
        Failed { failure: Unavailable, detail: "Authentication required (log in)" }
        Failed { failure: Unavailable, detail: "Internal error: 401 invalid x-api-key (log in)" }
        Failed { failure: AgentError, detail: "Internal error: port 4290 in use: {\"errno\":14010}" }
        Failed { failure: AgentError, detail: "error -1" }
        "#);
    }

    #[test]
    fn every_stop_reason_has_a_name() {
        let reasons = [
            "end_turn",
            "max_tokens",
            "max_turn_requests",
            "refusal",
            "cancelled",
            "tired",
        ];
        let ended: Vec<_> = reasons
            .iter()
            .map(|it| format!("{:?}", of_stop_reason(it)))
            .collect();
        insta::assert_snapshot!(ended.join("\n"), @r#"
        Finished
        Failed { failure: AgentError, detail: "its answer is longer than its model can give" }
        Failed { failure: MaxTurns, detail: "it used up its turns" }
        Failed { failure: AgentError, detail: "it refused" }
        Failed { failure: AgentError, detail: "it cancelled its turn" }
        Failed { failure: Protocol, detail: "it ended its turn with `tired`" }
        "#);
    }
}

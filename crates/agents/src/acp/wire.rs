//! JSON-RPC 2.0, one message a line. Pure.
//!
//! A line that is no message is told apart, never an error: agents print warnings where they
//! should not, and half a line is what a crash leaves behind. An id is kept as it came and sent
//! back unchanged, whatever its type.

use serde_json::{Value, json};

/// The method is not one of ours.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are wrong, or name something we refuse.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// Something failed on our side.
pub(super) const INTERNAL: i64 = -32603;
/// The agent wants a login first.
pub(super) const AUTH_REQUIRED: i64 = -32000;
/// A file or session is not there.
pub(super) const NOT_FOUND: i64 = -32002;

/// What a line holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    /// Wants an answer with this id.
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    /// Wants none.
    Notification { method: String, params: Value },
    /// The answer to one of our requests.
    Response {
        id: Value,
        result: Result<Value, RpcError>,
    },
    /// Not JSON-RPC.
    Other,
}

/// An error of the other side.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Value,
}

/// Reads a line.
pub(super) fn read(line: &str) -> Message {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return Message::Other;
    };
    let id = fields.remove("id").filter(|it| !it.is_null());
    let method = match fields.remove("method") {
        Some(Value::String(method)) => Some(method),
        _ => None,
    };
    match (method, id) {
        (Some(method), Some(id)) => Message::Request {
            id,
            method,
            params: fields.remove("params").unwrap_or_default(),
        },
        (Some(method), None) => Message::Notification {
            method,
            params: fields.remove("params").unwrap_or_default(),
        },
        (None, Some(id)) => {
            let result = match (fields.remove("error"), fields.remove("result")) {
                (Some(error), _) if !error.is_null() => Err(RpcError {
                    code: error["code"].as_i64().unwrap_or_default(),
                    message: error["message"].as_str().unwrap_or_default().to_owned(),
                    data: error["data"].clone(),
                }),
                (_, Some(result)) => Ok(result),
                (_, None) => return Message::Other,
            };
            Message::Response { id, result }
        }
        (None, None) => Message::Other,
    }
}

/// A request of ours.
pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A notification of ours.
pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Our answer to a request.
pub(super) fn answer(id: &Value, result: Result<Value, (i64, String)>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h04_what_is_no_message_is_passed_over() {
        for line in [
            "",
            "Warning: deprecated",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"res",
            "[]",
            "{}",
            "{\"id\":null,\"result\":1}",
            "{\"id\":1}",
            "{\"method\":7}",
        ] {
            assert_eq!(read(line), Message::Other, "{line}");
        }
    }

    #[test]
    fn an_id_is_sent_back_as_it_came() {
        for id in [json!("abc"), json!(0), json!(-7), json!(1.5), json!("")] {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": "x"}).to_string();
            let Message::Request { id: read, .. } = read(&line) else {
                panic!("{line}")
            };
            assert_eq!(answer(&read, Ok(json!({})))["id"], id);
        }
    }
}

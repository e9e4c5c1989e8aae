//! `{placeholders}` and the answers of stages whose script gives none.

use serde_json::{Map, Value, json};

use crate::Request;

/// The names that are filled. Everything else in braces is the script's own text: source code
/// is full of braces.
const NAMES: &[&str] = &[
    "specDir",
    "cycle",
    "feature",
    "runId",
    "shortRunId",
    "goalFile",
    "goalProductDomain",
    "goalTechnicalDomain",
    "goalClarified",
];

/// Fills placeholders for one attempt.
#[derive(Debug)]
pub(super) struct Values<'a> {
    request: &'a Request,
    feature: Option<String>,
}

impl<'a> Values<'a> {
    /// `feature` is the script's feature id, or none where the manifest's slug counts.
    pub(super) fn new(request: &'a Request, feature: Option<&str>) -> Values<'a> {
        let mut values = Values {
            request,
            feature: request.feature.clone(),
        };
        if let Some(feature) = feature {
            // The id itself may hold placeholders, but not its own.
            values.feature = None;
            values.feature = Some(values.fill(feature));
        }
        values
    }

    /// The text with every known placeholder filled that has a value here.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            filled.push_str(&rest[..open]);
            rest = &rest[open..];
            let value = rest.find('}').and_then(|close| {
                let value = self.value(&rest[1..close])?;
                Some((value, close + 1))
            });
            match value {
                Some((value, end)) => {
                    filled.push_str(&value);
                    rest = &rest[end..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        filled
    }

    /// As [`Values::fill`] for a path, where a known placeholder without a value is an error:
    /// it would make a directory named `{specDir}`.
    pub(super) fn fill_path(&self, path: &str) -> Result<String, String> {
        let filled = self.fill(path);
        match NAMES
            .iter()
            .find(|name| filled.contains(&format!("{{{name}}}")))
        {
            Some(name) => Err(format!("{{{name}}} in {path} has no value in this stage")),
            None => Ok(filled),
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        if !NAMES.contains(&name) {
            return None;
        }
        let request = self.request;
        match name {
            "cycle" => Some(request.cycle.to_string()),
            "feature" => self.feature.clone(),
            "specDir" => request.spec_dir.clone(),
            "runId" => Some(request.run_id.clone()),
            "shortRunId" => request
                .values
                .get(name)
                .cloned()
                .or_else(|| Some(request.run_id.chars().take(6).collect())),
            _ => request.values.get(name).cloned(),
        }
    }
}

/// The answer that its schema calls success with nothing in it. `titles` are the script's
/// features.
pub(super) fn empty_success(request: &Request, titles: &[String]) -> Option<Map<String, Value>> {
    let answer = match request.stage.as_str() {
        "manifest_extraction" => {
            let features: Vec<Value> = titles
                .iter()
                .zip(1..)
                .map(|(title, id)| json!({"id": id, "title": title, "description": title}))
                .collect();
            json!({ "features": features })
        }
        "gap_analysis" => json!({"decision": "RESUME_FEATURE", "reason": "scripted"}),
        "verify" => json!({
            "passed": true,
            "buildSucceeded": true,
            "testsSucceeded": true,
            "failures": [],
            "summary": "scripted: nothing was checked",
        }),
        "learnings" => json!({"insights": []}),
        "clarification_synthesis" => json!({
            "filesProduced": [],
            "goalClarifiedPath": request.values.get("goalClarified"),
        }),
        _ => return None,
    };
    match answer {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

//! `dex doctor`: what could get in the way of a run, each finding with a stable code and a
//! remedy that makes it go away. Changes nothing but for a throw-away object of the signing
//! test; locks of git's are named, never removed.

use std::path::Path;

use gitdb::Repo;
use serde::Serialize;
use serde_json::json;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui::{self, BAD, DIM, GOOD, NAME, WARN, clean, clean_lines, styled};

mod git;
mod project;
mod walls;

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    /// Stable; listed in `docs/formats/json-output.md`.
    code: &'static str,
    status: Health,
    /// What was found.
    text: String,
    /// What to type.
    remedy: Option<String>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    /// Nothing to do.
    Ok,
    /// A run works, with less.
    Warn,
    /// A run would be refused, or something is broken.
    Bad,
}

impl Check {
    fn ok(code: &'static str, text: impl Into<String>) -> Check {
        Check {
            code,
            status: Health::Ok,
            text: text.into(),
            remedy: None,
        }
    }

    fn warn(code: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check {
            code,
            status: Health::Warn,
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn bad(code: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check {
            code,
            status: Health::Bad,
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }

    /// A check that could not be made is a finding of its own, not a healthy one.
    fn failed(code: &'static str, failure: &Failure) -> Check {
        let text = super::runs::said(failure);
        let remedy = failure
            .hint
            .clone()
            .unwrap_or_else(|| "Mend what is named here.".to_owned());
        Check::bad(code, text, remedy)
    }
}

/// Checks everything.
pub fn doctor(dir: &Path, args: &args::Json) -> Result<Exit, Failure> {
    let checks = match session::open(dir) {
        Ok(repo) => all(&repo),
        Err(failure) => vec![Check::failed("repository", &failure)],
    };
    let bad = checks.iter().any(|it| it.status == Health::Bad);
    if args.json {
        ui::json(&json!({ "healthy": !bad, "checks": checks }));
    } else {
        checks.iter().for_each(show);
    }
    Ok(if bad { Exit::Failed } else { Exit::Done })
}

fn all(repo: &Repo) -> Vec<Check> {
    let mut checks = git::checks(repo);
    checks.extend(project::checks(repo));
    checks
}

fn show(check: &Check) {
    let mark = match check.status {
        Health::Ok => styled(GOOD, "ok  "),
        Health::Warn => styled(WARN, "warn"),
        Health::Bad => styled(BAD, "bad "),
    };
    let code = styled(DIM, format!("{:<16}", check.code));
    ui::out(format!(
        "{mark} {code} {}",
        clean_lines(&check.text).replace('\n', "\n     ")
    ));
    if let Some(remedy) = &check.remedy {
        ui::out(format!(
            "     {:<16} {} {}",
            "",
            styled(NAME, "→"),
            clean(remedy)
        ));
    }
}

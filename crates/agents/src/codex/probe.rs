//! Asking the CLI about itself, within seconds and without spending.
//!
//! Always from a directory of ours. What an installed program can do is asked once per program
//! and remembered as long as we live; what the user has configured and whether they are logged in
//! is asked each time.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::settings::Settings;
use crate::ending::{could_not_start, unavailable};
use crate::process::{self, End, Go, Line, StartError};
use crate::sandbox::Sandbox;
use crate::text::{one_line, with_causes};
use crate::{Availability, Ended, Stop};

/// Flags of `codex exec` without which we do not start it.
const NEEDED: [&str; 4] = ["--json", "--sandbox", "--config", "--skip-git-repo-check"];

/// How long one question may take when a person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// And when a run does, perhaps on a machine that is busy with its tests.
const LONGER_PATIENCE: Duration = Duration::from_secs(30);
const OUTPUT_BYTES: u64 = 1024 * 1024;
const MAX_SERVERS: usize = 200;

type Environment = BTreeMap<OsString, OsString>;

/// What there is to know before a start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) version: Option<String>,
    pub(super) output_schema: bool,
    pub(super) ignore_rules: bool,
    /// Names of the MCP servers the user has configured.
    pub(super) servers: Vec<String>,
}

/// What a program can do.
#[derive(Debug, Clone)]
struct Features {
    version: Option<String>,
    missing: Vec<&'static str>,
    output_schema: bool,
    ignore_rules: bool,
}

/// A program as it was asked: its path, when it was changed, its length.
type Identity = (PathBuf, Option<SystemTime>, u64);

static FEATURES: LazyLock<Mutex<Vec<(Identity, Features)>>> = LazyLock::new(Mutex::default);

/// How questions are asked.
struct Asking<'a> {
    program: &'a Path,
    environment: &'a Environment,
    dir: &'a Path,
    wall: Duration,
    stop: &'a Stop,
}

struct Answer {
    end: End,
    out: String,
    /// Its last line on standard error.
    err: String,
}

/// Is it there, and logged in as far as it knows itself?
pub(super) fn availability(
    program: &Path,
    environment: &Environment,
    settings: &Settings,
) -> Availability {
    let name = program.display().to_string();
    let dir = std::env::temp_dir().join(format!("dex-ask-codex-{}", uuid::Uuid::now_v7()));
    if std::fs::create_dir(&dir).is_err() {
        return Availability::Ready { version: None };
    }
    let stop = Stop::new();
    let asking = Asking {
        program,
        environment,
        dir: &dir,
        wall: PATIENCE,
        stop: &stop,
    };
    let said = asking.availability(settings);
    // Nothing of value is in it; a leftover in the temp directory is the worst case.
    let _ = std::fs::remove_dir_all(&dir);
    match said {
        Ok(availability) => availability,
        Err(StartError::NotFound { .. }) => Availability::NotInstalled { program: name },
        Err(error @ StartError::Io { .. }) => Availability::NotInstalled {
            program: with_causes(&error),
        },
    }
}

/// What a start needs to know; or why there is none.
pub(super) fn known(
    program: &Path,
    environment: &Environment,
    settings: &Settings,
    (scratch, stop): (&Path, &Stop),
) -> Result<Known, Ended> {
    let asking = Asking {
        program,
        environment,
        dir: scratch,
        wall: LONGER_PATIENCE,
        stop,
    };
    let features = asking.features()?;
    if !features.missing.is_empty() {
        let missing = features.missing.join(" ");
        return Err(unavailable(format!(
            "{} lacks {missing}, without which it cannot be run safely; run `codex update`",
            program.display()
        )));
    }
    if let Some(hint) = asking
        .not_logged_in(settings)
        .map_err(|it| could_not_start(&it))?
    {
        return Err(unavailable(format!("not logged in ({hint})")));
    }
    if stop.is_set() {
        return Err(Ended::Stopped);
    }
    let servers = asking.servers()?;
    Ok(Known {
        version: features.version,
        output_schema: features.output_schema,
        ignore_rules: features.ignore_rules,
        servers,
    })
}

impl Asking<'_> {
    fn availability(&self, settings: &Settings) -> Result<Availability, StartError> {
        let answer = self.ask(&["--version"])?;
        if !matches!(answer.end, End::Exited(_)) {
            let program = format!("{} (it does not answer --version)", self.program.display());
            return Ok(Availability::NotInstalled { program });
        }
        let version = version(&answer.out);
        Ok(match self.not_logged_in(settings)? {
            Some(hint) => Availability::NotLoggedIn { hint },
            None => Availability::Ready { version },
        })
    }

    /// What to do about a missing login; none when there is one, or none is needed.
    fn not_logged_in(&self, settings: &Settings) -> Result<Option<String>, StartError> {
        let is_set = |name: &str| {
            let value = self.environment.get(OsStr::new(name));
            value.is_some_and(|it| !it.is_empty())
        };
        if settings.provider.is_some() {
            let missing = settings.key.as_deref().filter(|it| !is_set(it));
            return Ok(missing.map(|it| format!("set {it}, which your Codex settings name")));
        }
        if is_set("CODEX_API_KEY") || is_set("CODEX_ACCESS_TOKEN") {
            return Ok(None);
        }
        let answer = self.ask(&["login", "status"])?;
        // Only a plain "no" counts: one that is slow to answer may still work.
        let said = format!("{} {}", answer.out, answer.err).to_ascii_lowercase();
        let no = matches!(answer.end, End::Exited(_)) && said.contains("not logged in");
        Ok(no.then(|| "codex login".to_owned()))
    }

    fn features(&self) -> Result<Features, Ended> {
        let identity = self.identity();
        let known = FEATURES.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(it, _)| Some(it) == identity.as_ref());
        let found = found.map(|(_, features)| features.clone());
        drop(known);
        if let Some(features) = found {
            return Ok(features);
        }
        let version = self.must_answer(&["--version"])?;
        let help = self.must_answer(&["exec", "--help"])?;
        let has = |flag: &str| {
            let mut words = help.split(|c: char| c.is_whitespace() || c == ',');
            words.any(|it| it == flag)
        };
        let features = Features {
            version: self::version(&version),
            missing: NEEDED.into_iter().filter(|flag| !has(flag)).collect(),
            output_schema: has("--output-schema"),
            ignore_rules: has("--ignore-rules"),
        };
        if let Some(identity) = identity {
            let mut known = FEATURES.lock().unwrap_or_else(PoisonError::into_inner);
            // One program in a process; the bound is for tests, which have many.
            if known.len() < 64 {
                known.push((identity, features.clone()));
            }
        }
        Ok(features)
    }

    fn identity(&self) -> Option<Identity> {
        let path = process::find_program(self.program.as_os_str(), self.dir)?;
        let path = path.canonicalize().ok()?;
        let meta = path.metadata().ok()?;
        Some((path, meta.modified().ok(), meta.len()))
    }

    /// Names of the configured MCP servers: each is switched off by its name.
    fn servers(&self) -> Result<Vec<String>, Ended> {
        let answer = self.ask(&["mcp", "list", "--json"]);
        let answer = answer.map_err(|error| could_not_start(&error))?;
        let list: Option<Value> = serde_json::from_str(&answer.out).ok();
        let Some(list) = list.as_ref().and_then(Value::as_array) else {
            if self.stop.is_set() {
                return Err(Ended::Stopped);
            }
            let said = one_line(&answer.err, 300);
            let detail = format!("it does not say which MCP servers are configured: {said}");
            return Err(unavailable(detail));
        };
        let names = list.iter().filter_map(|it| it["name"].as_str());
        Ok(names.take(MAX_SERVERS).map(str::to_owned).collect())
    }

    fn must_answer(&self, words: &[&str]) -> Result<String, Ended> {
        let answer = self.ask(words).map_err(|error| could_not_start(&error))?;
        match answer.end {
            End::Exited(_) => Ok(answer.out),
            End::Stopped => Err(Ended::Stopped),
            End::TimeOut | End::Idle | End::OutputCap | End::Asked => {
                let program = self.program.display();
                let words = words.join(" ");
                Err(unavailable(format!("{program} does not answer {words}")))
            }
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<Answer, StartError> {
        let mut argv: Vec<OsString> = vec![self.program.into()];
        argv.extend(arguments.iter().map(OsString::from));
        let spec = process::Spec {
            argv,
            dir: self.dir.to_owned(),
            env: self.environment.clone(),
            stdin: Vec::new(),
            wall: self.wall,
            idle: None,
            output_bytes: OUTPUT_BYTES,
            line_bytes: 64 * 1024,
            sandbox: Sandbox::none(),
            process_list: self.dir.join("processes"),
        };
        let (mut out, mut err) = (String::new(), String::new());
        let finished = process::run(&spec, self.stop, &mut |line| {
            match line {
                Some(Line::Out(line)) => {
                    out.push_str(&line);
                    out.push('\n');
                }
                Some(Line::Err(line)) if !line.trim().is_empty() => err = line,
                Some(Line::Err(_)) | None => {}
            }
            Go::On
        })?;
        let end = finished.end;
        Ok(Answer { end, out, err })
    }
}

/// `0.171.0` of `codex-cli 0.171.0`.
fn version(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let version = words.find(|it| it.starts_with(|c: char| c.is_ascii_digit()));
    version.map(str::to_owned)
}

//! Every setting: its name, its environment variable, what it may be, what it is by itself.

use serde_json::{Value, json};

/// One setting.
#[derive(Debug)]
pub(super) struct Key {
    /// Dotted.
    pub(super) name: &'static str,
    /// The environment variable that sets it.
    pub(super) env: Option<&'static str>,
    /// What it may be.
    pub(super) kind: Kind,
    /// Why a file that is part of the repository may not set it.
    pub(super) guard: Guard,
}

/// What a setting may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any text; null or "" for none.
    Text,
    /// A program and its arguments; null for none.
    Argv,
    /// A list of texts.
    Texts,
    /// A list of paths, absolute or in the home directory (`~/…`).
    Paths,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A number, fractions allowed.
    Amount { min: f64, max: f64 },
}

/// What a project file that git tracks may not do: it is written by whoever can push.
#[derive(Debug, Clone, Copy)]
pub(super) enum Guard {
    /// It may set the value.
    Free,
    /// It may set it to none only: the value is run here.
    Runs,
    /// It may not set it: anything but what is built in opens the sandbox.
    Opens,
    /// It may not set it to this word, which takes a protection away.
    Weakens(&'static str),
}

const WORDS_OF_AGENT: &[&str] = &["scripted", "mock", "command", "claude", "codex", "acp"];

/// A year: far beyond any use, and short enough for every clock.
const YEAR_MINUTES: f64 = 366.0 * 24.0 * 60.0;
const YEAR_HOURS: f64 = 366.0 * 24.0;
/// Less is nothing at all in micro-dollars.
const MICRO: f64 = 0.000_001;
const MAX_USD: f64 = 1_000_000.0;
/// Six milliseconds: tests use such limits, and zero would be no limit.
const MIN_MINUTES: f64 = 0.0001;

const fn key(name: &'static str, env: Option<&'static str>, kind: Kind) -> Key {
    Key {
        name,
        env,
        kind,
        guard: Guard::Free,
    }
}

const fn guarded(name: &'static str, env: Option<&'static str>, kind: Kind, guard: Guard) -> Key {
    Key {
        name,
        env,
        kind,
        guard,
    }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn amount(min: f64, max: f64) -> Kind {
    Kind::Amount { min, max }
}

/// In the order of `docs/formats/config.md`.
pub(super) static KEYS: &[Key] = &[
    key("agent", Some("DEX_AGENT"), Kind::OneOf(WORDS_OF_AGENT)),
    guarded("agentCommand", None, Kind::Argv, Guard::Runs),
    key("model", Some("DEX_MODEL"), Kind::Text),
    guarded(
        "verifyCommand",
        Some("DEX_VERIFY_COMMAND"),
        Kind::Text,
        Guard::Runs,
    ),
    guarded("notify", None, Kind::Argv, Guard::Runs),
    // Not endless: a run that cannot end by itself is the one thing that must not happen.
    key("limits.maxCycles", Some("DEX_MAX_CYCLES"), count(1, 10_000)),
    key(
        "limits.maxBudgetUsd",
        Some("DEX_MAX_BUDGET_USD"),
        amount(MICRO, MAX_USD),
    ),
    key(
        "limits.stageBudgetUsd",
        Some("DEX_STAGE_BUDGET_USD"),
        amount(MICRO, MAX_USD),
    ),
    key(
        "limits.stageTimeoutMinutes",
        Some("DEX_STAGE_TIMEOUT_MINUTES"),
        amount(MIN_MINUTES, YEAR_MINUTES),
    ),
    key(
        "limits.idleMinutes",
        Some("DEX_IDLE_MINUTES"),
        amount(MIN_MINUTES, YEAR_MINUTES),
    ),
    key("limits.maxTurns", Some("DEX_MAX_TURNS"), count(1, 100_000)),
    // Zero is the tightest bound here, not the absence of one: no second try, no waiting.
    key(
        "limits.maxVerifyRetries",
        Some("DEX_MAX_VERIFY_RETRIES"),
        count(0, 100),
    ),
    key(
        "limits.waitForQuotaHours",
        Some("DEX_WAIT_FOR_QUOTA_HOURS"),
        amount(0.0, YEAR_HOURS),
    ),
    guarded(
        "sandbox",
        Some("DEX_SANDBOX"),
        Kind::OneOf(&["required", "auto", "off"]),
        Guard::Weakens("off"),
    ),
    guarded("sandboxWritable", None, Kind::Paths, Guard::Opens),
    guarded("sandboxReadable", None, Kind::Paths, Guard::Opens),
    guarded(
        "verifyNetwork",
        Some("DEX_VERIFY_NETWORK"),
        Kind::Flag,
        Guard::Opens,
    ),
    guarded(
        "hooks",
        Some("DEX_HOOKS"),
        Kind::OneOf(&["skip", "run"]),
        Guard::Weakens("run"),
    ),
    key("sign", Some("DEX_SIGN"), Kind::OneOf(&["auto", "never"])),
    key(
        "commit.maxFileBytes",
        Some("DEX_MAX_FILE_BYTES"),
        count(1, 1 << 40),
    ),
    key("commit.allow", None, Kind::Texts),
    key("worktreeDir", Some("DEX_WORKTREE_DIR"), Kind::Text),
    key("promote.primary", None, Kind::Text),
    key("promote.curated", None, Kind::Flag),
    key("promote.withoutDex", None, Kind::Texts),
    key("conflictResolver.model", None, Kind::Text),
    key("conflictResolver.maxIterations", None, count(1, 1000)),
    key(
        "conflictResolver.maxIterationsTotal",
        None,
        count(1, 10_000),
    ),
    key(
        "conflictResolver.maxTurnsPerIteration",
        None,
        count(1, 10_000),
    ),
    key("conflictResolver.costCapUsd", None, amount(0.0, MAX_USD)),
    key(
        "conflictResolver.timeoutMinutes",
        None,
        amount(MIN_MINUTES, YEAR_MINUTES),
    ),
    guarded(
        "conflictResolver.verifyCommand",
        None,
        Kind::Text,
        Guard::Runs,
    ),
];

/// Keys that hold other keys.
pub(super) const GROUPS: [&str; 4] = ["limits", "commit", "promote", "conflictResolver"];

/// The setting of this dotted name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

impl Key {
    /// What it is where nobody sets it.
    pub(super) fn built_in(&self) -> Value {
        match self.name {
            "agent" => json!("claude"),
            "limits.maxCycles" => json!(20),
            "limits.maxBudgetUsd" => json!(25),
            "limits.stageBudgetUsd" => json!(5),
            "limits.stageTimeoutMinutes" => json!(60),
            "limits.idleMinutes" => json!(10),
            "limits.maxTurns" => json!(200),
            "limits.maxVerifyRetries" => json!(2),
            "limits.waitForQuotaHours" => json!(8),
            "sandbox" | "sign" => json!("auto"),
            "hooks" => json!("skip"),
            // What the common hosts refuse to take is far above; what a person writes far below.
            "commit.maxFileBytes" => json!(20 * 1024 * 1024),
            "commit.allow" | "promote.withoutDex" | "sandboxWritable" | "sandboxReadable" => {
                json!([])
            }
            "verifyNetwork" => json!(false),
            "promote.curated" => json!(false),
            "conflictResolver.maxIterations" => json!(5),
            "conflictResolver.maxIterationsTotal" => json!(50),
            "conflictResolver.maxTurnsPerIteration" => json!(10),
            "conflictResolver.costCapUsd" => json!(0.5),
            "conflictResolver.timeoutMinutes" => json!(30),
            _ => Value::Null,
        }
    }

    /// The value in its one spelling, or what is wrong with it.
    pub(super) fn check(&self, value: &Value) -> Result<Value, String> {
        let good = match (self.kind, value) {
            (Kind::OneOf(words), Value::String(word)) if words.contains(&word.as_str()) => {
                // The existing Dex's word for the same thing.
                Some(json!(if word == "mock" { "scripted" } else { word }))
            }
            (Kind::Text | Kind::Argv, Value::Null) => Some(Value::Null),
            (Kind::Text, Value::String(text)) if text.trim().is_empty() => Some(Value::Null),
            (Kind::Text, Value::String(text)) if !text.contains('\0') => Some(value.clone()),
            (Kind::Argv, Value::Array(words)) => {
                let program = words.first().is_some_and(|word| *word != json!(""));
                (program && words.iter().all(is_word)).then(|| value.clone())
            }
            (Kind::Texts, Value::Array(words)) if words.iter().all(is_word) => Some(value.clone()),
            (Kind::Paths, Value::Array(words)) if words.iter().all(is_path) => Some(value.clone()),
            (Kind::Flag, Value::Bool(_)) => Some(value.clone()),
            (Kind::Count { min, max }, Value::Number(number)) => whole(number)
                .filter(|it| (min..=max).contains(it))
                .map(Value::from),
            (Kind::Amount { min, max }, Value::Number(number)) => number
                .as_f64()
                .filter(|it| (min..=max).contains(it))
                .map(number_of),
            _ => None,
        };
        good.ok_or_else(|| self.complaint(value))
    }

    /// The value that a text means, as environment variables give it.
    pub(super) fn of_text(&self, text: &str) -> Result<Value, String> {
        let value = match self.kind {
            Kind::Text | Kind::OneOf(_) => json!(text),
            Kind::Flag => match text {
                "true" | "1" => json!(true),
                "false" | "0" => json!(false),
                _ => json!(text),
            },
            Kind::Count { .. } => match text.trim().parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(text),
            },
            // Infinity and NaN become null here, which is refused like any other non-number.
            Kind::Amount { .. } => match text.trim().parse::<f64>() {
                Ok(number) if number.is_finite() => json!(number),
                Ok(_) | Err(_) => json!(text),
            },
            Kind::Argv | Kind::Texts | Kind::Paths => {
                serde_json::from_str(text).unwrap_or_else(|_| json!(text))
            }
        };
        self.check(&value)
    }

    fn complaint(&self, value: &Value) -> String {
        let given = shortened(value);
        let name = self.name;
        let must = match self.kind {
            Kind::OneOf(words) => format!("be one of {}", words.join(", ")),
            Kind::Text => "be a text, or null for none".to_owned(),
            Kind::Argv => {
                "be a list of texts, a program and its arguments, or null for none".to_owned()
            }
            Kind::Texts => "be a list of texts".to_owned(),
            Kind::Paths => "be a list of paths that begin with / or ~/".to_owned(),
            Kind::Flag => "be true or false".to_owned(),
            Kind::Count { min, max } => format!("be a whole number from {min} to {max}"),
            Kind::Amount { min, max } => format!("be a number from {min} to {max}"),
        };
        let unbounded = value.is_null() || value.as_f64().is_some_and(|it| it <= 0.0);
        let why = match name.starts_with("limits.") && unbounded {
            true => "; a run never goes without a bound",
            false => "",
        };
        format!("{name} must {must}, not {given}{why}")
    }
}

fn is_word(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.contains('\0'))
}

fn is_path(value: &Value) -> bool {
    is_word(value) && (value.as_str()).is_some_and(|it| it.starts_with('/') || it.starts_with("~/"))
}

fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number.as_f64()?;
        (float.fract() == 0.0 && (0.0..9e15).contains(&float)).then_some(float as u64)
    })
}

/// A number without a fraction where it has none, so that 25 is shown as 25.
pub(super) fn number_of(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => json!(number as i64),
        false => json!(number),
    }
}

fn shortened(value: &Value) -> String {
    const MOST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The setting that somebody probably meant.
pub(super) fn did_you_mean(name: &str) -> Option<&'static str> {
    let plain = |text: &str| -> String {
        let letters = text.chars().filter(|c| c.is_alphanumeric() || *c == '.');
        letters.flat_map(char::to_lowercase).collect()
    };
    let leaf = |text: &str| text.rsplit('.').next().unwrap_or(text).to_owned();
    // A foreign file may hold names of any length; comparing those helps nobody.
    if name.len() > 64 {
        return None;
    }
    let wanted = plain(name);
    let distance = |known: &str| {
        let known = plain(known);
        // The right name in the wrong place counts as one mistake.
        let moved = 1 + edits(&leaf(&wanted), &leaf(&known));
        match letters(&wanted) == letters(&known) {
            true => edits(&wanted, &known).min(1),
            false => edits(&wanted, &known).min(moved),
        }
    };
    let most = (leaf(&wanted).len() / 3).clamp(1, 3);
    KEYS.iter()
        .map(|key| (distance(key.name), key.name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The letters in order of the alphabet: swapping two of them is one mistake, not two.
fn letters(text: &str) -> Vec<char> {
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters
}

/// How many letters must be added, removed or changed.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

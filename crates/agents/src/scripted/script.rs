//! The script format as types. What is refused is refused with its place.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};

use crate::Failure;

/// Stages of a run that belong to no cycle.
pub(super) const RUN_STAGES: &[&str] = &[
    "prerequisites",
    "create_branch",
    "clarification",
    "clarification_product",
    "clarification_technical",
    "clarification_synthesis",
    "constitution",
    "manifest_extraction",
    "completion",
    "commit",
];
/// Stages of a cycle that a script must name.
pub(super) const CYCLE_STAGES: &[&str] = &[
    "gap_analysis",
    "specify",
    "plan",
    "tasks",
    "implement",
    "verify",
    "learnings",
];

/// Whether it is a stage of a run, as opposed to a prompt of its own (a conflict's, say).
pub(super) fn is_stage(name: &str) -> bool {
    RUN_STAGES.contains(&name) || CYCLE_STAGES.contains(&name) || name == "implement_fix"
}

pub(super) type Stages = BTreeMap<String, Descriptor>;

/// The whole file. Unknown fields beside these are the user's own notes.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Root {
    #[serde(deserialize_with = "run_stages")]
    pub(super) prerequisites: Stages,
    #[serde(deserialize_with = "run_stages")]
    pub(super) clarification: Stages,
    pub(super) dex_loop: Loop,
    #[serde(deserialize_with = "run_stages")]
    pub(super) completion: Stages,
    #[serde(default, rename = "oneShotResponses")]
    pub(super) one_shot: Vec<OneShot>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Loop {
    #[serde(deserialize_with = "at_least_one")]
    pub(super) cycles: Vec<Cycle>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Cycle {
    pub(super) feature: Feature,
    #[serde(deserialize_with = "cycle_stages")]
    pub(super) stages: Stages,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Feature {
    #[serde(deserialize_with = "not_empty")]
    pub(super) id: String,
    #[serde(deserialize_with = "not_empty")]
    pub(super) title: String,
}

/// What one stage does. Unknown fields are refused here: a misspelt one would silently do
/// nothing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Descriptor {
    /// Milliseconds before anything else.
    #[serde(deserialize_with = "milliseconds")]
    pub(super) delay: f64,
    pub(super) writes: Vec<Write>,
    pub(super) appends: Vec<Append>,
    pub(super) delete: Vec<ScriptPath>,
    pub(super) edit: Vec<Edit>,
    pub(super) run: Commands,
    pub(super) structured_output: Option<serde_json::Map<String, serde_json::Value>>,
    pub(super) questions: Vec<serde_json::Value>,
    pub(super) text: Option<String>,
    #[serde(deserialize_with = "dollars")]
    pub(super) cost: u64,
    pub(super) tokens: Tokens,
    pub(super) fail: Option<Fail>,
    pub(super) exit: Option<i32>,
    pub(super) hang: Option<Hang>,
    pub(super) quota: Option<Quota>,
    /// Overrides for the task phases of `implement`, by number.
    #[serde(deserialize_with = "phases")]
    pub(super) phases: BTreeMap<String, Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    pub(super) path: ScriptPath,
    pub(super) content: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Append {
    pub(super) path: ScriptPath,
    pub(super) line: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) path: ScriptPath,
    #[serde(deserialize_with = "not_empty")]
    pub(super) find: String,
    pub(super) replace: String,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cached: u64,
}

/// A path inside the request's directory, before its placeholders are filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptPath(pub(super) String);

/// Whether a failure leaves the stage's changes behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum When {
    /// Nothing was done yet.
    Before,
    /// Everything was done but the end.
    #[default]
    After,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fail {
    pub(super) failure: Failure,
    pub(super) detail: String,
    /// Only the first so many attempts; none: every one.
    pub(super) times: Option<u32>,
    pub(super) when: When,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Hang {
    /// Until stopped or limited.
    Forever,
    For(f64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quota {
    /// Milliseconds after which it is said to be available again; none: not said.
    pub(super) after_ms: Option<f64>,
    /// Only the first so many attempts.
    pub(super) times: u32,
}

/// One argv or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Commands(pub(super) Vec<Vec<String>>);

/// An answer to a prompt outside the stages. First match wins.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneShot {
    pub(super) match_prompt: String,
    #[serde(default)]
    pub(super) is_regex: bool,
    pub(super) final_text: String,
    #[serde(default, deserialize_with = "dollars")]
    pub(super) cost: u64,
    #[serde(default)]
    pub(super) input_tokens: u64,
    #[serde(default)]
    pub(super) output_tokens: u64,
    #[serde(default = "yes")]
    pub(super) finished_normally: bool,
    #[serde(default)]
    pub(super) edit_file: Option<Write>,
    #[serde(default, deserialize_with = "milliseconds")]
    pub(super) delay_ms: f64,
}

impl OneShot {
    /// A pattern that is none matches nothing, as in the existing Dex.
    pub(super) fn matches(&self, prompt: &str) -> bool {
        if self.is_regex {
            return regex::Regex::new(&self.match_prompt).is_ok_and(|it| it.is_match(prompt));
        }
        prompt.contains(&self.match_prompt)
    }
}

fn yes() -> bool {
    true
}

/// A day: longer than any limit, and it still fits every clock.
fn milliseconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number(
        deserializer,
        "milliseconds, from 0 to 86400000",
        86_400_000.0,
    )
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let dollars = number(deserializer, "dollars, from 0 to 1000000", 1_000_000.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was just checked"
    )]
    Ok((dollars * 1e6).round() as u64)
}

fn number<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
    most: f64,
) -> Result<f64, D::Error> {
    struct Number(&'static str, f64);
    impl Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        #[expect(
            clippy::cast_precision_loss,
            reason = "far below 2^53, or out of range"
        )]
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<f64, E> {
            self.visit_f64(number as f64)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
            Err(E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
            if (0.0..=self.1).contains(&number) {
                return Ok(number);
            }
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
    deserializer.deserialize_any(Number(expected, most))
}

fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() {
        return Err(de::Error::invalid_value(
            Unexpected::Str(&text),
            &"text that is not empty",
        ));
    }
    Ok(text)
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Cycle>, D::Error> {
    let cycles: Vec<Cycle> = Vec::deserialize(deserializer)?;
    if cycles.is_empty() {
        return Err(de::Error::invalid_length(0, &"at least one cycle"));
    }
    Ok(cycles)
}

fn run_stages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stages, D::Error> {
    let stages = Stages::deserialize(deserializer)?;
    match stages.keys().find(|it| !RUN_STAGES.contains(&it.as_str())) {
        Some(unknown) => {
            let accepted = RUN_STAGES.join(", ");
            let problem = format!("no stage is named `{unknown}`, expected {accepted}");
            Err(de::Error::custom(problem))
        }
        None => Ok(stages),
    }
}

fn cycle_stages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stages, D::Error> {
    let stages = Stages::deserialize(deserializer)?;
    match CYCLE_STAGES.iter().find(|it| !stages.contains_key(**it)) {
        Some(missing) => {
            let all = CYCLE_STAGES.join(", ");
            let problem = format!(
                "missing stage `{missing}`, expected {all} (one that does nothing: {{\"delay\": 0}})"
            );
            Err(de::Error::custom(problem))
        }
        None => Ok(stages),
    }
}

fn phases<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Stages, D::Error> {
    let phases = Stages::deserialize(deserializer)?;
    let bad = |(number, it): &(&String, &Descriptor)| {
        number.parse::<u32>().is_err() || !it.phases.is_empty()
    };
    match phases.iter().find(bad) {
        Some((number, _)) => Err(de::Error::custom(format!(
            "`{number}`: expected a task phase's number, with a descriptor that has no phases"
        ))),
        None => Ok(phases),
    }
}

impl<'de> Deserialize<'de> for ScriptPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let inside = !text.is_empty()
            && !text.starts_with('/')
            && !text.contains('\0')
            && text.split('/').all(|part| part != "..");
        if inside {
            return Ok(ScriptPath(text));
        }
        Err(de::Error::invalid_value(
            Unexpected::Str(&text),
            &"a path inside the project, not absolute and without `..`",
        ))
    }
}

/// The names `fail` accepts, and what they mean.
const FAILURES: &[Failure] = &[
    Failure::AgentError,
    Failure::TimeOut,
    Failure::Idle,
    Failure::MaxTurns,
    Failure::CostCap,
    Failure::OutputCap,
    Failure::Protocol,
    Failure::Unavailable,
    Failure::NeedsPermission,
];

fn failure_named<E: de::Error>(name: &str) -> Result<Failure, E> {
    FAILURES
        .iter()
        .find(|it| it.name() == name)
        .copied()
        .ok_or_else(|| {
            let names: Vec<&str> = FAILURES.iter().map(|it| it.name()).collect();
            let expected = format!("one of {}", names.join(", "));
            E::invalid_value(Unexpected::Str(name), &expected.as_str())
        })
}

impl<'de> Deserialize<'de> for Fail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            failure: Option<String>,
            #[serde(default)]
            detail: Option<String>,
            #[serde(default)]
            times: Option<u32>,
            #[serde(default)]
            when: When,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Fail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reason, or an object with `failure`, `detail`, `times`, `when`")
            }

            fn visit_str<E: de::Error>(self, reason: &str) -> Result<Fail, E> {
                Ok(Fail {
                    failure: Failure::AgentError,
                    detail: reason.to_owned(),
                    times: None,
                    when: When::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fail, A::Error> {
                let fields = Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let failure = match &fields.failure {
                    None => Failure::AgentError,
                    Some(name) => failure_named(name)?,
                };
                Ok(Fail {
                    failure,
                    detail: fields
                        .detail
                        .unwrap_or_else(|| format!("scripted {}", failure.name())),
                    times: fields.times,
                    when: fields.when,
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Hang {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Hang;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, or milliseconds from 0")
            }

            fn visit_bool<E: de::Error>(self, hangs: bool) -> Result<Hang, E> {
                Ok(if hangs { Hang::Forever } else { Hang::For(0.0) })
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Hang, E> {
                #[expect(clippy::cast_precision_loss, reason = "milliseconds of a test")]
                Ok(Hang::For(number as f64))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Hang, E> {
                if number >= 0.0 {
                    return Ok(Hang::For(number));
                }
                Err(E::invalid_value(Unexpected::Float(number), &self))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for Quota {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "camelCase")]
        struct Fields {
            #[serde(default, deserialize_with = "some_milliseconds")]
            after_ms: Option<f64>,
            #[serde(default = "once")]
            times: u32,
        }
        fn once() -> u32 {
            1
        }
        fn some_milliseconds<'de, D: Deserializer<'de>>(it: D) -> Result<Option<f64>, D::Error> {
            milliseconds(it).map(Some)
        }
        let fields = Fields::deserialize(deserializer)?;
        Ok(Quota {
            after_ms: fields.after_ms,
            times: fields.times,
        })
    }
}

impl<'de> Deserialize<'de> for Commands {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a program's name, or a list of program and arguments"
        )]
        enum Item {
            Word(String),
            Argv(Vec<String>),
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Commands;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("[program, argument…], or a list of such lists")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Commands, A::Error> {
                let (mut words, mut argvs) = (Vec::new(), Vec::new());
                while let Some(item) = items.next_element()? {
                    match item {
                        Item::Word(word) => words.push(word),
                        Item::Argv(argv) => argvs.push(argv),
                    }
                }
                let mixed = !words.is_empty() && !argvs.is_empty();
                if mixed || argvs.iter().any(Vec::is_empty) {
                    return Err(de::Error::invalid_value(Unexpected::Seq, &self));
                }
                if !words.is_empty() {
                    argvs.push(words);
                }
                Ok(Commands(argvs))
            }
        }
        deserializer.deserialize_seq(Either)
    }
}

//! The structured answers of the stages.
//!
//! One type per shape both reads the answer and yields the JSON Schema the agent is given, so
//! the two cannot drift apart. Every answer may also carry open `questions`.
//!
//! Answers come from an agent, so they are untrusted: unknown fields are refused, every list and
//! every text has a bound, and at the bound [`check`] fails and names the field; nothing is cut
//! off silently. The schema is a plain, self-contained draft-07 subset (no `$ref`, `$schema`,
//! `oneOf`), because the agents' own validators know no more.
//!
//! Nothing here decides what an answer means for the run: a `passed` of [`Verify`] is the agent's
//! word, and the project's verify command outranks it elsewhere.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

mod bounds;
mod plain;

use bounds::within_bounds;
use plain::plain_schema;

/// Features in a manifest.
pub const MAX_FEATURES: usize = 200;
/// Failures of one verification.
pub const MAX_FAILURES: usize = 200;
/// Insights of one cycle.
pub const MAX_INSIGHTS: usize = 50;
/// Files named by one answer.
pub const MAX_FILES: usize = 500;
/// Questions of one answer.
pub const MAX_QUESTIONS: usize = 20;
/// Options of one question.
pub const MAX_OPTIONS: usize = 10;
/// Characters of a title, a label, a category or a path.
pub const MAX_LINE_CHARS: usize = 300;
/// Characters of any other text.
pub const MAX_TEXT_CHARS: usize = 8_000;

/// What a stage answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `manifest_extraction`.
    Manifest(Manifest),
    /// `gap_analysis`, when an agent was asked.
    GapAnalysis(GapAnalysis),
    /// `verify`.
    Verify(Verify),
    /// `learnings`.
    Learnings(Learnings),
    /// `clarification_synthesis`.
    Synthesis(Synthesis),
    /// Every stage whose result is the files it wrote.
    Done(Done),
}

/// The features to build, in the order to build them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// 1 to 200 features, in the order to build them.
    pub features: Vec<Feature>,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// One feature of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// A number of its own, counted from 1.
    pub id: u32,
    /// One short line without line breaks; at most 300 characters.
    pub title: String,
    /// What a user can do once it is built, and how one can tell; at most 8000 characters.
    pub description: String,
}

/// How to go on with a feature that was started in an earlier cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GapAnalysis {
    /// RESUME_FEATURE: the plan holds, go on implementing. REPLAN_FEATURE: plan it anew.
    pub decision: Decision,
    /// Why, with the file or task that shows it; at most 8000 characters.
    pub reason: String,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// The two ways to go on with a started feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decision {
    /// The plan holds: implement what is left.
    #[serde(rename = "RESUME_FEATURE")]
    ResumeFeature,
    /// The plan does not hold: plan, tasks, implement.
    #[serde(rename = "REPLAN_FEATURE")]
    ReplanFeature,
}

/// What the agent found when it checked a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Verify {
    /// True only if the feature does what its spec says and nothing blocking is left.
    pub passed: bool,
    /// Whether the project builds.
    pub build_succeeded: bool,
    /// Whether its tests pass.
    pub tests_succeeded: bool,
    /// What is wrong; empty when nothing is; at most 200.
    pub failures: Vec<VerifyFailure>,
    /// What was checked and how, in a few sentences; at most 8000 characters.
    pub summary: String,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// One thing that verification found wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyFailure {
    /// The acceptance criterion, test or command that failed; at most 8000 characters.
    pub criterion: String,
    /// What happens instead, where, and how to see it; at most 8000 characters.
    pub description: String,
    /// blocking: the feature is not done. minor: it is done, but this should be known.
    pub severity: Severity,
}

/// Whether a failure keeps a feature from being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The feature is not done.
    Blocking,
    /// It is done, but this should be known.
    Minor,
}

/// What a cycle taught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Learnings {
    /// What the next cycle should know; empty when nothing new was learnt; at most 50.
    pub insights: Vec<Insight>,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// One thing worth knowing later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Insight {
    /// What it is about. Read: any slug, because older scripts used others than these.
    #[schemars(
        description = "What it is about.",
        extend("enum" = ["build", "testing", "api", "architecture", "tooling", "workaround"])
    )]
    pub category: String,
    /// One sentence that would have saved time; at most 8000 characters.
    pub insight: String,
    /// Where it was learnt: feature, file or command; at most 8000 characters.
    pub context: String,
}

/// What the synthesis of the clarification wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Synthesis {
    /// The files written, as paths in the project; at most 500.
    pub files_produced: Vec<String>,
    /// The clarified goal, as a path in the project.
    pub goal_clarified_path: String,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// The answer of a stage whose result is the files it wrote.
///
/// Reading is lenient: no answer at all is the empty one, and foreign fields are let through,
/// because nothing is decided by them and a repeated stage costs money.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Done {
    /// What was done, in a few sentences; at most 8000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Open questions, if any; at most 20.
    #[serde(
        default,
        deserialize_with = "absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub questions: Vec<Question>,
}

/// Something only the user can decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The question, understandable without having seen the work; at most 8000 characters.
    pub question: String,
    /// The answers that make sense, at most 10; empty for a free answer.
    #[serde(default, deserialize_with = "absent")]
    pub options: Vec<QuestionOption>,
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionOption {
    /// One short line; at most 300 characters.
    pub label: String,
    /// True for the one that is assumed until the user answers.
    #[serde(default, deserialize_with = "absent")]
    pub recommended: bool,
}

/// An answer that is not what the stage asked for. One line for people and for the retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer to {stage} is not usable: {field}: {problem}")]
pub struct AnswerError {
    /// The stage.
    pub stage: String,
    /// Where: `features[3].title`, or `answer` for the whole of it.
    pub field: String,
    /// What is wrong there and what is accepted.
    pub problem: String,
}

impl Answer {
    /// What the agent wants to ask the user.
    pub fn questions(&self) -> &[Question] {
        match self {
            Answer::Manifest(it) => &it.questions,
            Answer::GapAnalysis(it) => &it.questions,
            Answer::Verify(it) => &it.questions,
            Answer::Learnings(it) => &it.questions,
            Answer::Synthesis(it) => &it.questions,
            Answer::Done(it) => &it.questions,
        }
    }

    /// The stage's empty success, for a back end that answers nothing (a script that leaves
    /// `structured_output` out). None for `manifest_extraction`: without a feature there is
    /// nothing to build, so an empty one would not be a success.
    pub fn empty_success(stage: &str) -> Option<Answer> {
        Some(match Shape::of(stage) {
            Shape::Manifest => return None,
            Shape::GapAnalysis => Answer::GapAnalysis(GapAnalysis {
                decision: Decision::ResumeFeature,
                reason: String::new(),
                questions: Vec::new(),
            }),
            Shape::Verify => Answer::Verify(Verify {
                passed: true,
                build_succeeded: true,
                tests_succeeded: true,
                failures: Vec::new(),
                summary: String::new(),
                questions: Vec::new(),
            }),
            Shape::Learnings => Answer::Learnings(Learnings {
                insights: Vec::new(),
                questions: Vec::new(),
            }),
            Shape::Synthesis => Answer::Synthesis(Synthesis {
                files_produced: Vec::new(),
                goal_clarified_path: String::new(),
                questions: Vec::new(),
            }),
            Shape::Done => Answer::Done(Done::default()),
        })
    }
}

impl Verify {
    /// Whether the answer as a whole says the feature is done. An agent that writes `passed`
    /// beside a failed build or a blocking failure contradicts itself, and then it is not.
    pub fn says_done(&self) -> bool {
        self.passed
            && self.build_succeeded
            && self.tests_succeeded
            && self.blocking().next().is_none()
    }

    /// The failures that keep the feature from being done.
    pub fn blocking(&self) -> impl Iterator<Item = &VerifyFailure> {
        self.failures
            .iter()
            .filter(|it| it.severity == Severity::Blocking)
    }
}

impl Question {
    /// What is assumed until the user answers: the recommended option, else the first.
    pub fn assumed(&self) -> Option<&str> {
        let recommended = self.options.iter().find(|it| it.recommended);
        recommended
            .or(self.options.first())
            .map(|it| it.label.as_str())
    }
}

/// The JSON Schema of a stage's answer. Every stage has one; a stage without an answer of its
/// own has that of [`Done`].
pub fn schema(stage: &str) -> Value {
    match Shape::of(stage) {
        Shape::Manifest => plain_schema::<Manifest>(),
        Shape::GapAnalysis => plain_schema::<GapAnalysis>(),
        Shape::Verify => plain_schema::<Verify>(),
        Shape::Learnings => plain_schema::<Learnings>(),
        Shape::Synthesis => plain_schema::<Synthesis>(),
        Shape::Done => plain_schema::<Done>(),
    }
}

/// Reads a stage's answer. `null` stands for no answer, which only [`Done`] stages allow.
pub fn check(stage: &str, value: &Value) -> Result<Answer, AnswerError> {
    let read = match Shape::of(stage) {
        Shape::Manifest => read::<Manifest>(value).map(Answer::Manifest),
        Shape::GapAnalysis => read::<GapAnalysis>(value).map(Answer::GapAnalysis),
        Shape::Verify => read::<Verify>(value).map(Answer::Verify),
        Shape::Learnings => read::<Learnings>(value).map(Answer::Learnings),
        Shape::Synthesis => read::<Synthesis>(value).map(Answer::Synthesis),
        Shape::Done if value.is_null() => Ok(Answer::Done(Done::default())),
        Shape::Done => read::<Done>(value).map(Answer::Done),
    };
    let bounded = read.and_then(|answer| within_bounds(&answer).map(|()| answer));
    bounded.map_err(|Problem { field, problem }| AnswerError {
        stage: stage.to_owned(),
        field,
        problem,
    })
}

/// Which type a stage answers with.
enum Shape {
    Manifest,
    GapAnalysis,
    Verify,
    Learnings,
    Synthesis,
    Done,
}

impl Shape {
    fn of(stage: &str) -> Shape {
        match stage {
            "manifest_extraction" => Shape::Manifest,
            "gap_analysis" => Shape::GapAnalysis,
            "verify" => Shape::Verify,
            "learnings" => Shape::Learnings,
            "clarification_synthesis" => Shape::Synthesis,
            _ => Shape::Done,
        }
    }
}

/// A field and what is wrong with it.
struct Problem {
    field: String,
    problem: String,
}

impl Problem {
    fn at(field: impl fmt::Display, problem: impl fmt::Display) -> Problem {
        Problem {
            field: field.to_string(),
            problem: problem.to_string(),
        }
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Problem> {
    match value {
        Value::Object(_) => {}
        Value::Null => {
            return Err(Problem::at(
                "answer",
                "there is none; an object as in the stage's schema is needed",
            ));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Problem::at(
                "answer",
                "is no object; an object as in the stage's schema is needed",
            ));
        }
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        let field = if field == "." {
            "answer".to_owned()
        } else {
            field
        };
        Problem::at(field, error.into_inner())
    })
}

/// `null` reads like an absent field: some back ends can only ask for fields that are always
/// present, and then write `null` for "none".
fn absent<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;

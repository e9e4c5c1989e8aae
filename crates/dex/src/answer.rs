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

use std::collections::BTreeSet;
use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

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

fn within_bounds(answer: &Answer) -> Result<(), Problem> {
    match answer {
        Answer::Manifest(it) => features(&it.features)?,
        Answer::GapAnalysis(it) => text("reason", &it.reason)?,
        Answer::Verify(it) => {
            at_most("failures", it.failures.len(), MAX_FAILURES)?;
            for (n, failure) in it.failures.iter().enumerate() {
                text(format_args!("failures[{n}].criterion"), &failure.criterion)?;
                text(
                    format_args!("failures[{n}].description"),
                    &failure.description,
                )?;
            }
            text("summary", &it.summary)?;
        }
        Answer::Learnings(it) => {
            at_most("insights", it.insights.len(), MAX_INSIGHTS)?;
            for (n, insight) in it.insights.iter().enumerate() {
                category(format_args!("insights[{n}].category"), &insight.category)?;
                text(format_args!("insights[{n}].insight"), &insight.insight)?;
                text(format_args!("insights[{n}].context"), &insight.context)?;
            }
        }
        Answer::Synthesis(it) => {
            at_most("filesProduced", it.files_produced.len(), MAX_FILES)?;
            for (n, path) in it.files_produced.iter().enumerate() {
                line(format_args!("filesProduced[{n}]"), path)?;
            }
            line("goalClarifiedPath", &it.goal_clarified_path)?;
        }
        Answer::Done(it) => text("summary", it.summary.as_deref().unwrap_or_default())?,
    }
    questions(answer.questions())
}

fn features(features: &[Feature]) -> Result<(), Problem> {
    if features.is_empty() {
        return Err(Problem::at(
            "features",
            "is empty; at least one feature is needed",
        ));
    }
    at_most("features", features.len(), MAX_FEATURES)?;
    let mut seen = BTreeSet::new();
    for (n, feature) in features.iter().enumerate() {
        if feature.id == 0 || !seen.insert(feature.id) {
            let problem = format!("{} is zero or used twice; count from 1", feature.id);
            return Err(Problem::at(format_args!("features[{n}].id"), problem));
        }
        line(format_args!("features[{n}].title"), &feature.title)?;
        if feature.title.trim().is_empty() {
            return Err(Problem::at(format_args!("features[{n}].title"), "is empty"));
        }
        text(
            format_args!("features[{n}].description"),
            &feature.description,
        )?;
    }
    Ok(())
}

fn questions(questions: &[Question]) -> Result<(), Problem> {
    at_most("questions", questions.len(), MAX_QUESTIONS)?;
    for (n, question) in questions.iter().enumerate() {
        text(format_args!("questions[{n}].question"), &question.question)?;
        at_most(
            format_args!("questions[{n}].options"),
            question.options.len(),
            MAX_OPTIONS,
        )?;
        for (m, option) in question.options.iter().enumerate() {
            line(
                format_args!("questions[{n}].options[{m}].label"),
                &option.label,
            )?;
        }
    }
    Ok(())
}

fn at_most(field: impl fmt::Display, count: usize, most: usize) -> Result<(), Problem> {
    if count <= most {
        return Ok(());
    }
    Err(Problem::at(
        field,
        format_args!("has {count} entries; at most {most} are accepted"),
    ))
}

fn bounded(field: impl fmt::Display, value: &str, most: usize) -> Result<(), Problem> {
    let count = value.chars().count();
    if count <= most {
        return Ok(());
    }
    Err(Problem::at(
        field,
        format_args!("has {count} characters; at most {most} are accepted"),
    ))
}

fn text(field: impl fmt::Display, value: &str) -> Result<(), Problem> {
    bounded(field, value, MAX_TEXT_CHARS)
}

fn line(field: impl fmt::Display, value: &str) -> Result<(), Problem> {
    if value.contains(['\n', '\r']) {
        return Err(Problem::at(field, "has a line break; one line is accepted"));
    }
    bounded(field, value, MAX_LINE_CHARS)
}

fn category(field: impl fmt::Display, value: &str) -> Result<(), Problem> {
    let slug = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=50).contains(&value.len()) && value.chars().all(slug) {
        return Ok(());
    }
    Err(Problem::at(
        field,
        "is not a word of letters, digits, _ and - with at most 50 characters",
    ))
}

fn plain_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|it| {
        it.inline_subschemas = true;
        it.meta_schema = None;
    });
    let schema: Schema = settings.into_generator().into_root_schema_for::<T>();
    let mut value = schema.to_value();
    simplify(&mut value);
    value
}

/// Takes out what weaker validators trip over: `title`, `format`, `default`, and the `oneOf`
/// of constants that an enum becomes.
fn simplify(value: &mut Value) {
    let Value::Object(node) = value else {
        if let Value::Array(items) = value {
            items.iter_mut().for_each(simplify);
        }
        return;
    };
    // `properties` maps names to schemas: a field that is called `title` must stay.
    let is_schema =
        node.contains_key("type") || node.contains_key("oneOf") || node.contains_key("enum");
    if is_schema {
        for keyword in ["title", "format", "default"] {
            if node.get(keyword).is_some_and(|it| !it.is_object()) {
                node.shift_remove(keyword);
            }
        }
        if let Some(Value::Array(choices)) = node.shift_remove("oneOf") {
            let names = choices
                .iter()
                .filter_map(|it| it.get("const"))
                .cloned()
                .collect();
            node.insert("type".to_owned(), Value::from("string"));
            node.insert("enum".to_owned(), Value::Array(names));
        }
    }
    node.values_mut().for_each(simplify);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const STAGES: [&str; 6] = [
        "manifest_extraction",
        "gap_analysis",
        "verify",
        "learnings",
        "clarification_synthesis",
        "plan",
    ];

    fn refused(stage: &str, value: Value) -> String {
        check(stage, &value)
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn a_schema_is_self_contained_and_plain() {
        insta::assert_snapshot!(schema("gap_analysis")["properties"]["decision"], @r#"{"description":"RESUME_FEATURE: the plan holds, go on implementing. REPLAN_FEATURE: plan it anew.","type":"string","enum":["RESUME_FEATURE","REPLAN_FEATURE"]}"#);
        insta::assert_snapshot!(schema("gap_analysis")["required"], @r#"["decision","reason"]"#);
        for stage in STAGES {
            let text = schema(stage).to_string();
            for word in [
                "$ref",
                "$schema",
                "oneOf",
                "anyOf",
                "\"format\"",
                "\"default\"",
                "\"definitions\"",
            ] {
                assert!(!text.contains(word), "{stage}: {word} in {text}");
            }
            assert_eq!(
                schema(stage)["additionalProperties"],
                json!(false),
                "{stage}"
            );
            assert_eq!(
                schema(stage)["properties"]["questions"]["type"],
                json!("array"),
                "{stage}"
            );
        }
        assert_eq!(
            schema("verify")["properties"]["failures"]["items"]["properties"]["severity"]["enum"],
            json!(["blocking", "minor"])
        );
        assert_eq!(
            schema("manifest_extraction")["properties"]["features"]["items"]["required"],
            json!(["id", "title", "description"])
        );
    }

    #[test]
    fn the_scripts_of_the_existing_dex_pass() {
        let manifest =
            json!({"features": [{"id": 1, "title": "Authentication", "description": "Sign-up."}]});
        assert!(matches!(
            check("manifest_extraction", &manifest),
            Ok(Answer::Manifest(_))
        ));
        let gap =
            json!({"decision": "RESUME_FEATURE", "reason": "mock: only consulted on RESUME path"});
        assert!(matches!(
            check("gap_analysis", &gap),
            Ok(Answer::GapAnalysis(_))
        ));
        let verify = json!({"passed": true, "buildSucceeded": true, "testsSucceeded": true,
            "failures": [], "summary": "mock: verify passed"});
        assert!(matches!(check("verify", &verify), Ok(Answer::Verify(it)) if it.says_done()));
        let learnings =
            json!({"insights": [{"category": "product", "insight": "i", "context": "c"}]});
        assert!(matches!(
            check("learnings", &learnings),
            Ok(Answer::Learnings(_))
        ));
    }

    #[test]
    fn an_error_names_the_field_and_what_is_accepted() {
        let severity = json!({"passed": false, "buildSucceeded": true, "testsSucceeded": true, "summary": "",
            "failures": [{"criterion": "c", "description": "d", "severity": "major"}]});
        insta::assert_snapshot!(refused("verify", severity), @"the answer to verify is not usable: failures[0].severity: unknown variant `major`, expected `blocking` or `minor`");
        insta::assert_snapshot!(refused("gap_analysis", json!({"decision": "NEXT_FEATURE", "reason": ""})), @"the answer to gap_analysis is not usable: decision: unknown variant `NEXT_FEATURE`, expected `RESUME_FEATURE` or `REPLAN_FEATURE`");
        insta::assert_snapshot!(refused("gap_analysis", json!({"decision": "RESUME_FEATURE"})), @"the answer to gap_analysis is not usable: answer: missing field `reason`");
        insta::assert_snapshot!(refused("learnings", json!({"insights": [], "mood": "good"})), @"the answer to learnings is not usable: mood: unknown field `mood`, expected `insights` or `questions`");
        insta::assert_snapshot!(refused("verify", Value::Null), @"the answer to verify is not usable: answer: there is none; an object as in the stage's schema is needed");
        insta::assert_snapshot!(refused("verify", json!("passed")), @"the answer to verify is not usable: answer: is no object; an object as in the stage's schema is needed");
        insta::assert_snapshot!(refused("plan", json!({"questions": [{"question": "q", "options": [{}]}]})), @"the answer to plan is not usable: questions[0].options[0]: missing field `label`");
    }

    #[test]
    fn at_a_bound_the_answer_is_refused_not_cut() {
        let feature = |id: usize| json!({"id": id, "title": "t", "description": "d"});
        let manifest =
            |count: usize| json!({"features": (1..=count).map(feature).collect::<Vec<_>>()});
        assert!(check("manifest_extraction", &manifest(MAX_FEATURES)).is_ok());
        insta::assert_snapshot!(refused("manifest_extraction", manifest(MAX_FEATURES + 1)), @"the answer to manifest_extraction is not usable: features: has 201 entries; at most 200 are accepted");
        insta::assert_snapshot!(refused("manifest_extraction", manifest(0)), @"the answer to manifest_extraction is not usable: features: is empty; at least one feature is needed");
        insta::assert_snapshot!(refused("manifest_extraction", json!({"features": [feature(1), feature(1)]})), @"the answer to manifest_extraction is not usable: features[1].id: 1 is zero or used twice; count from 1");
        let title =
            |title: String| json!({"features": [{"id": 1, "title": title, "description": "d"}]});
        assert!(check("manifest_extraction", &title("ü".repeat(MAX_LINE_CHARS))).is_ok());
        insta::assert_snapshot!(refused("manifest_extraction", title("ü".repeat(MAX_LINE_CHARS + 1))), @"the answer to manifest_extraction is not usable: features[0].title: has 301 characters; at most 300 are accepted");
        insta::assert_snapshot!(refused("manifest_extraction", title("a\nb".into())), @"the answer to manifest_extraction is not usable: features[0].title: has a line break; one line is accepted");
        insta::assert_snapshot!(refused("plan", json!({"summary": "x".repeat(MAX_TEXT_CHARS + 1)})), @"the answer to plan is not usable: summary: has 8001 characters; at most 8000 are accepted");
        let category = json!({"insights": [{"category": "a b", "insight": "i", "context": "c"}]});
        insta::assert_snapshot!(refused("learnings", category), @"the answer to learnings is not usable: insights[0].category: is not a word of letters, digits, _ and - with at most 50 characters");
    }

    #[test]
    fn a_stage_that_writes_files_may_answer_nothing() {
        for value in [
            Value::Null,
            json!({}),
            json!({"summary": null, "questions": null}),
            json!({"mock": 1}),
        ] {
            assert_eq!(
                check("specify", &value),
                Ok(Answer::Done(Done::default())),
                "{value}"
            );
        }
    }

    #[test]
    fn the_recommended_option_is_assumed_else_the_first() {
        let ask = |options: Value| {
            let value = json!({"questions": [{"question": "Which database?", "options": options}]});
            let answer = check("clarification_product", &value).unwrap();
            answer.questions()[0].assumed().map(str::to_owned)
        };
        let recommended = json!([{"label": "SQLite", "recommended": false}, {"label": "Files", "recommended": true}]);
        assert_eq!(ask(recommended).as_deref(), Some("Files"));
        assert_eq!(
            ask(json!([{"label": "SQLite"}, {"label": "Files"}])).as_deref(),
            Some("SQLite")
        );
        assert_eq!(ask(json!([])), None);
    }

    #[test]
    fn passed_beside_a_blocking_failure_is_not_done() {
        let value = json!({"passed": true, "buildSucceeded": true, "testsSucceeded": true, "summary": "",
            "failures": [{"criterion": "c", "description": "d", "severity": "blocking"}]});
        assert!(matches!(check("verify", &value), Ok(Answer::Verify(it)) if !it.says_done()));
    }

    #[test]
    fn what_is_written_reads_back() {
        for stage in STAGES {
            let Some(answer) = Answer::empty_success(stage) else {
                assert_eq!(stage, "manifest_extraction");
                continue;
            };
            let value = match &answer {
                Answer::Manifest(it) => serde_json::to_value(it),
                Answer::GapAnalysis(it) => serde_json::to_value(it),
                Answer::Verify(it) => serde_json::to_value(it),
                Answer::Learnings(it) => serde_json::to_value(it),
                Answer::Synthesis(it) => serde_json::to_value(it),
                Answer::Done(it) => serde_json::to_value(it),
            };
            assert_eq!(check(stage, &value.unwrap()), Ok(answer));
        }
    }
}

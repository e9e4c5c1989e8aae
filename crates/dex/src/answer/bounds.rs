//! Every list and every text of an answer has a bound; at the bound the field is named.

use std::collections::BTreeSet;
use std::fmt;

use super::*;

pub(super) fn within_bounds(answer: &Answer) -> Result<(), Problem> {
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

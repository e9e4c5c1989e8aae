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
    let learnings = json!({"insights": [{"category": "product", "insight": "i", "context": "c"}]});
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
    let manifest = |count: usize| json!({"features": (1..=count).map(feature).collect::<Vec<_>>()});
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
    let recommended =
        json!([{"label": "SQLite", "recommended": false}, {"label": "Files", "recommended": true}]);
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

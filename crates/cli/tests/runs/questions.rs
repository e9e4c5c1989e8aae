//! What an agent asks: assumed and told, or answered by a person, and never lost.

use serde_json::{Value, json};

use super::support::{Project, wrote};

fn question(text: &str, options: &[&str]) -> Value {
    let options: Vec<Value> = options
        .iter()
        .enumerate()
        .map(|(at, it)| json!({ "label": it, "recommended": at == 1 }))
        .collect();
    json!({ "question": text, "options": options })
}

fn asking(path: &str, questions: Vec<Value>) -> Value {
    let mut stage = wrote(path, "# Written\n");
    stage["questions"] = json!(questions);
    stage
}

fn project() -> Project {
    Project::with(json!({}), &["Say hello"], |_, name| match name {
        "clarification_product" => Some(asking(
            "{goalProductDomain}",
            vec![
                question("Which greeting?", &["Hello", "Hi", "Hey"]),
                question("To whom?", &[]),
            ],
        )),
        "plan" => Some(asking(
            "{specDir}/plan.md",
            vec![question("Which colour?", &["red", "blue"])],
        )),
        _ => None,
    })
}

fn assumptions(project: &Project, stage: &str, cycle: u32) -> Vec<(String, String, String)> {
    let phases = project.phases_of(stage, cycle);
    let all = phases
        .iter()
        .flat_map(|it| it["assumptions"].as_array().cloned().unwrap_or_default());
    let text = |it: &Value, name: &str| it[name].as_str().unwrap().to_owned();
    all.map(|it| (text(&it, "question"), text(&it, "answer"), text(&it, "by")))
        .collect()
}

fn of(question: &str, answer: &str, by: &str) -> (String, String, String) {
    (question.to_owned(), answer.to_owned(), by.to_owned())
}

#[test]
fn unattended_the_recommended_answer_is_taken_recorded_and_reported() {
    let project = project();
    let answer = project.exits(0, &["run"]);
    let asked = assumptions(&project, "clarification_product", 0);
    assert_eq!(asked[0], of("Which greeting?", "Hi", "assumed"));
    assert_eq!(
        (asked[1].0.as_str(), asked[1].2.as_str()),
        ("To whom?", "assumed")
    );
    assert_eq!(
        assumptions(&project, "plan", 1),
        [of("Which colour?", "blue", "assumed")]
    );
    let report = project.exits(0, &["report"]);
    for shown in [&answer.err, &report.out] {
        assert!(
            shown.contains("Which greeting?") && shown.contains("Hi"),
            "{shown}"
        );
        assert!(shown.contains("Which colour?"), "{shown}");
    }
}

#[test]
fn with_ask_the_run_stops_and_every_answer_by_number_or_words_is_taken() {
    let project = project();
    let answer = project.exits(9, &["run", "--ask"]);
    assert!(
        answer
            .err
            .contains("paused (needs_input): 2 questions wait for an answer"),
        "{}",
        answer.err
    );
    assert!(
        answer.err.contains("next: dex answer, then dex resume"),
        "{}",
        answer.err
    );
    assert_eq!(project.checkpoints(), [""; 0]);
    let status = project.exits(9, &["status"]);
    assert!(
        status.out.contains("waiting for an answer"),
        "{}",
        status.out
    );
    assert!(
        status.out.contains("Which greeting?"),
        "status says what is asked: {}",
        status.out
    );

    // Not answered: it waits on, and nothing is paid for again.
    project.exits(9, &["resume"]);
    let shown = project.exits(9, &["answer"]);
    assert!(
        shown.out.contains("Which greeting?") && shown.out.contains("2 Hi  (recommended)"),
        "{}",
        shown.out
    );
    let asked = project.dex(&["answer", "--json"]);
    assert_eq!(asked.code, Some(9));
    let asked: Value = serde_json::from_str(&asked.out).unwrap();
    assert_eq!(asked["questions"].as_array().unwrap().len(), 2);

    let next = project.exits(9, &["answer", "3"]);
    assert!(
        next.err.contains("answered: Hey") && next.out.contains("To whom?"),
        "{}{}",
        next.out,
        next.err
    );
    project.exits(9, &["resume"]);
    let last = project.exits(0, &["answer", "the whole world"]);
    assert!(last.err.contains("dex resume"), "{}", last.err);
    project.exits(3, &["answer", "again"]);

    // Later ones stop it too.
    project.exits(9, &["resume"]);
    assert_eq!(project.checkpoints().last().unwrap(), "specify:1");
    let id = project.record()["runId"].as_str().unwrap().to_owned();
    project.exits(0, &["answer", "--run", &id, "1"]);
    project.exits(0, &["resume"]);
    assert_eq!(
        assumptions(&project, "clarification_product", 0),
        [
            of("Which greeting?", "Hey", "person"),
            of("To whom?", "the whole world", "person")
        ]
    );
    assert_eq!(
        assumptions(&project, "plan", 1),
        [of("Which colour?", "red", "person")]
    );
    let paid = project.phases_of("clarification_product", 0);
    assert_eq!(paid.len(), 1, "no stage was worked on again");
}

#[test]
fn a_choice_that_is_not_there_is_refused() {
    let project = project();
    project.exits(9, &["run", "--ask"]);
    for wrong in ["0", "4"] {
        let answer = project.exits(2, &["answer", wrong]);
        assert!(answer.err.contains("1 to 3"), "{}", answer.err);
    }
    assert_eq!(
        project.live()["question"]["asks"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn questions_survive_a_kill_between_the_answer_and_the_commit() {
    let project = project();
    // The first attempt has ended; the process dies before it looks at what was asked.
    let killed = project
        .command(&["run"])
        .env("DEX_CRASH_AT", "dotdex.before:1")
        .output()
        .unwrap();
    assert_ne!(killed.status.code(), Some(0));
    project.exits(0, &["resume"]);
    assert_eq!(assumptions(&project, "clarification_product", 0).len(), 2);

    for at in 1..=6 {
        let project = self::project();
        let at = format!("live.after:{at}");
        let killed = project
            .command(&["run", "--ask"])
            .env("DEX_CRASH_AT", &at)
            .output()
            .unwrap();
        assert_ne!(killed.status.code(), Some(0), "{at}");
        let mut answer = project.dex(&["resume", "--discard"]);
        if answer.code == Some(3) {
            answer = project.dex(&["run", "--ask"]);
        }
        assert_eq!(answer.code, Some(9), "{at}: {}", answer.err);
        assert_eq!(
            project.live()["question"]["asks"].as_array().unwrap().len(),
            2,
            "{at}"
        );
    }
}

#[test]
fn a_question_of_the_first_part_of_implement_is_not_lost() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut first = asking("src/one.txt", vec![question("Which name?", &["a", "b"])]);
        first["phases"] =
            json!({ "2": asking("src/two.txt", vec![question("Which size?", &["s", "m"])]) });
        (name == "implement").then_some(first)
    });
    project.exits(9, &["run", "--ask"]);
    project.exits(0, &["answer", "1"]);
    project.exits(9, &["resume"]);
    project.exits(0, &["answer", "other"]);
    project.exits(0, &["resume"]);
    let asked = assumptions(&project, "implement", 1);
    assert_eq!(
        asked,
        [
            of("Which name?", "a", "person"),
            of("Which size?", "other", "person")
        ]
    );
}

#[test]
fn answers_reach_the_prompts_of_later_stages() {
    let project = Project::new(&super::support::good(&["Say hello"]));
    let agent = r##"
        prompt=$(cat)
        echo 0.01 > "$DEX_COST"
        case $DEX_STAGE in
        clarification_product)
            echo hello > GOAL_product_domain.md
            echo '{"questions":[{"question":"Which greeting?","options":[{"label":"Hello"},{"label":"Hi","recommended":true}]}]}' > "$DEX_ANSWER" ;;
        clarification_technical)
            case $prompt in
            *"Which greeting?"*"Howdy"*) echo told > GOAL_technical_domain.md ;;
            esac ;;
        *) exit 1 ;;
        esac"##;
    project.settings(&json!({ "agent": "command", "agentCommand": ["sh", "-c", agent] }));
    project.exits(9, &["run", "--ask"]);
    project.exits(0, &["answer", "Howdy"]);
    project.exits(1, &["resume"]);
    assert_eq!(
        project.checkpoints().last().unwrap(),
        "clarification_technical:0"
    );
}

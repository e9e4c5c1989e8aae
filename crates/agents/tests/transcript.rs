//! Transcripts on disk.

mod support;

use std::io::Write as _;
use std::process::Command;

use agents::transcript::{Step, Transcript, read};
use agents::{Event, Usage};
use support::{Place, guard_executable};

fn text(said: &str) -> Event {
    Event::Text(said.into())
}

fn call(summary: &str) -> Event {
    Event::ToolCall {
        name: "Bash".into(),
        summary: summary.into(),
    }
}

fn kinds(steps: &[Step]) -> Vec<String> {
    steps
        .iter()
        .map(|step| format!("{} {} {}", step.seq, step.kind, step.text))
        .collect()
}

/// Our own token, put together so that no scanner finds one here.
fn token() -> String {
    format!("{}{}", "ghp_", "k3".repeat(18))
}

#[test]
fn every_event_becomes_a_line_of_json() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    let mut transcript = Transcript::open(&path, 1 << 20).expect("opens");
    let events = [
        Event::Started {
            model: Some("m".into()),
            session: Some("s".into()),
            version: None,
        },
        text("hello"),
        call("make"),
        Event::ToolResult {
            ok: false,
            summary: "no rule".into(),
        },
        Event::Usage(Usage {
            cost_micro_usd: Some(5),
            ..Usage::default()
        }),
        Event::SubAgent {
            what: "looks".into(),
        },
        Event::Denied {
            tool: "WebFetch".into(),
        },
        Event::Retry {
            attempt: 2,
            why: "overloaded".into(),
        },
    ];
    for (event, at) in events.iter().zip(0..) {
        transcript.event(event, at * 10);
    }
    assert!(transcript.error().is_none());
    drop(transcript);
    insta::assert_snapshot!(std::fs::read_to_string(&path).expect("reads"), @r#"
    {"seq":1,"atMs":0,"kind":"started","text":"m","session":"s"}
    {"seq":2,"atMs":10,"kind":"text","text":"hello"}
    {"seq":3,"atMs":20,"kind":"tool_call","text":"make","tool":"Bash"}
    {"seq":4,"atMs":30,"kind":"tool_result","text":"no rule","ok":false}
    {"seq":5,"atMs":40,"kind":"usage","text":"","costMicroUsd":5}
    {"seq":6,"atMs":50,"kind":"sub_agent","text":"looks"}
    {"seq":7,"atMs":60,"kind":"denied","text":"","tool":"WebFetch"}
    {"seq":8,"atMs":70,"kind":"retry","text":"overloaded","attempt":2}
    "#);
    let (steps, skipped) = read(&path).expect("reads");
    assert_eq!((steps.len(), skipped), (8, 0));
    assert_eq!(steps[7].more["attempt"], 2);
}

#[test]
fn i01_no_secret_reaches_the_file_or_the_run_record_whatever_event_carries_it() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    let mut transcript = Transcript::open(&path, 1 << 20).expect("opens");
    let secret = token();
    for event in [
        text(&format!("it is {secret}")),
        call(&format!("printf {secret} | gh secret set X")),
        Event::ToolResult {
            ok: true,
            summary: secret.clone(),
        },
        Event::ToolCall {
            name: secret.clone(),
            summary: String::new(),
        },
        Event::SubAgent {
            what: secret.clone(),
        },
        Event::Retry {
            attempt: 1,
            why: secret.clone(),
        },
        Event::Denied {
            tool: secret.clone(),
        },
        Event::Started {
            model: Some(secret.clone()),
            session: Some(secret.clone()),
            version: None,
        },
        text(&secret),
    ] {
        transcript.event(&event, 1);
    }
    let record = serde_json::to_string(&transcript.steps(100)).expect("json");
    drop(transcript);
    let written = std::fs::read_to_string(&path).expect("reads");
    assert!(
        !record.contains(&secret) && !written.contains(&secret),
        "{written}"
    );
    assert!(
        written.matches("[redacted:github_token]").count() >= 9,
        "{written}"
    );
}

#[test]
fn i01_a_private_key_printed_line_by_line_is_not_kept() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    let mut transcript = Transcript::open(&path, 1 << 20).expect("opens");
    let body = "MIIEpAIBAAKCAQEA7k3Zf9Qm1xVb2uW8pYt4sLd6cHnR0aGjT5eXoKiUqPwFyBzE";
    transcript.event(&text("cat id_rsa"), 0);
    transcript.event(&text(concat!("-----BEGIN RSA PRIV", "ATE KEY-----")), 1);
    for at in 0..20 {
        transcript.event(&text(body), at);
        transcript.event(&Event::Usage(Usage::default()), at);
        assert!(
            !serde_json::to_string(&transcript.steps(9))
                .expect("json")
                .contains(body)
        );
    }
    transcript.event(&text(concat!("-----END RSA PRIV", "ATE KEY-----")), 30);
    transcript.event(&text("done"), 31);
    drop(transcript);
    let written = std::fs::read_to_string(&path).expect("reads");
    assert!(!written.contains(body), "{written}");
    assert!(
        written.contains("[redacted:private_key]") && written.contains("done"),
        "{written}"
    );
}

#[test]
fn f06_a_torn_last_line_is_truncated_before_anything_is_added() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    Transcript::open(&path, 1 << 20)
        .expect("opens")
        .event(&call("one"), 0);
    let whole = std::fs::read_to_string(&path).expect("reads");
    for torn in ["{\"seq\":2,\"atMs\":5,\"ki", "x", &"y".repeat(3 << 20)] {
        std::fs::write(&path, format!("{whole}{torn}")).expect("writes");
        assert_eq!(
            read(&path).map(|it| (it.0.len(), it.1)).expect("reads"),
            (1, 1)
        );
        Transcript::open(&path, 1 << 20)
            .expect("opens")
            .event(&call("two"), 1);
        let (steps, skipped) = read(&path).expect("reads");
        assert_eq!(kinds(&steps), ["1 tool_call one", "2 tool_call two"]);
        assert_eq!(skipped, 0);
    }
    // A file that is nothing but a torn line.
    std::fs::write(&path, "{\"seq\"").expect("writes");
    Transcript::open(&path, 1 << 20)
        .expect("opens")
        .event(&call("one"), 1);
    assert_eq!(kinds(&read(&path).expect("reads").0), ["1 tool_call one"]);
}

#[test]
fn f06_a_write_that_fails_half_way_leaves_whole_lines_and_a_named_error() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    // A file size limit of 2 blocks fails like a full disk: after a part of the line.
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" write-transcript \"$1\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .args([guard_executable(), path.clone()])
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("FileTooLarge"), "{said} {output:?}");
    let bytes = std::fs::read(&path).expect("reads");
    assert!(
        bytes.len() > 500 && bytes.ends_with(b"\n"),
        "{}",
        bytes.len()
    );
    let (steps, skipped) = read(&path).expect("reads");
    assert!(steps.len() > 3);
    assert_eq!(skipped, 0);
    // With room again it goes on where it was.
    Transcript::open(&path, 1 << 20)
        .expect("opens")
        .event(&call("more"), 9);
    let (after, _) = read(&path).expect("reads");
    assert_eq!(after.len(), steps.len() + 1);
    assert_eq!(
        after.last().expect("one").seq,
        steps.last().expect("one").seq + 1
    );
}

#[test]
fn f06_a_full_disk_is_remembered_and_the_record_still_has_its_steps() {
    let mut transcript = Transcript::open("/dev/full".as_ref(), 1 << 20).expect("opens");
    transcript.event(&call("one"), 0);
    transcript.event(&call("two"), 1);
    let error = transcript.error().expect("an error");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(
        kinds(&transcript.steps(5)),
        ["1 tool_call one", "2 tool_call two"]
    );
}

#[test]
fn the_file_is_bounded_and_says_so_once() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    for _ in 0..2 {
        let mut transcript = Transcript::open(&path, 2000).expect("opens");
        for at in 0..100 {
            transcript.event(&call(&format!("step {at}")), at);
        }
        assert!(transcript.error().is_none());
    }
    let (steps, _) = read(&path).expect("reads");
    assert_eq!(
        steps.iter().filter(|step| step.kind == "dropped").count(),
        1
    );
    assert_eq!(
        steps.last().expect("one").text,
        "nothing more is kept after 2000 bytes"
    );
    assert!(std::fs::metadata(&path).expect("there").len() <= 2000);
}

#[test]
fn a_single_text_is_bounded() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    let mut transcript = Transcript::open(&path, 1 << 20).expect("opens");
    transcript.event(&text(&"ä".repeat(1 << 20)), 0);
    let recorded = transcript.steps(1);
    assert!(recorded[0].text.len() <= 410, "{}", recorded[0].text.len());
    drop(transcript);
    let (steps, _) = read(&path).expect("reads");
    assert!(steps.iter().all(|step| step.text.len() <= 8200));
}

#[test]
fn the_record_gets_the_last_calls_and_denials_and_the_last_text() {
    let place = Place::new();
    let mut transcript = Transcript::open(&place.file("log"), 1 << 20).expect("opens");
    transcript.event(&text("early"), 0);
    for at in 1..=3 {
        transcript.event(&call(&at.to_string()), at);
    }
    transcript.event(&text("late"), 4);
    transcript.event(
        &Event::Denied {
            tool: "Write".into(),
        },
        5,
    );
    transcript.event(
        &Event::ToolResult {
            ok: true,
            summary: "long".into(),
        },
        6,
    );
    assert_eq!(
        kinds(&transcript.steps(4)),
        ["3 tool_call 2", "4 tool_call 3", "5 text late", "6 denied "]
    );
    assert_eq!(kinds(&transcript.steps(1)), ["5 text late"]);
    assert!(transcript.steps(0).is_empty());
}

#[test]
fn lines_nobody_can_read_are_skipped_and_counted_and_unknown_fields_are_kept() {
    let place = Place::new();
    let path = place.file("log.jsonl");
    let mut file = std::fs::File::create(&path).expect("creates");
    file.write_all(b"not json\n\xff\xfe\n{\"seq\":1,\"atMs\":2,\"kind\":\"new\",\"text\":\"t\",\"later\":[1]}\n\n")
        .expect("writes");
    file.write_all("z".repeat(5 << 20).as_bytes())
        .expect("writes");
    file.write_all(b"\n{\"seq\":2,\"atMs\":2,\"kind\":\"text\",\"text\":\"u\"}\n")
        .expect("writes");
    let (steps, skipped) = read(&path).expect("reads");
    assert_eq!((steps.len(), skipped), (2, 4));
    assert_eq!(steps[0].more["later"], serde_json::json!([1]));
}

#[test]
fn only_the_user_can_read_a_transcript() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let path = place.file("log");
    Transcript::open(&path, 1).expect("opens");
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);
}

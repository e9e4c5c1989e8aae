//! Our Claude adapter against a program that misbehaves in every way a stream can.
//!
//! The program is a shell script that answers `--help` like a recent CLI, reads its input, and
//! then does what the test says.

mod support;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agents::claude::Claude;
use agents::{Agent, Ended, Event, Failure, Outcome, Stop};
use support::Place;

const HELP: &str = "--input-format --permission-mode --session-id --setting-sources \
    --strict-mcp-config --tools --max-budget-usd --json-schema";
const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","tools":["Bash"],"model":"claude-sonnet-4-5"}"#;
const DONE: &str = r#"{"subtype":"success","is_error":false,"result":"done","total_cost_usd":0.01,"session_id":"s","type":"result"}"#;

struct Run {
    outcome: Outcome,
    events: Vec<Event>,
    took: Duration,
}

impl Run {
    fn failure(&self) -> Failure {
        match &self.outcome.ended {
            Ended::Failed { failure, .. } => *failure,
            other => panic!("not a failure: {other:?}"),
        }
    }
}

fn program(place: &Place, script: &str) -> PathBuf {
    let path = place.scratch().join("claude");
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in --help) echo '{HELP}'; exit;; esac\ncat >/dev/null\n\
         init() {{ echo '{INIT}'; }}\ndone_() {{ echo '{DONE}'; }}\n\
         says() {{ echo '{{\"type\":\"assistant\",\"parent_tool_use_id\":null,\"message\":{{\"id\":\"'$1'\",\
         \"model\":\"claude-sonnet-4-5\",\"content\":[],\"usage\":{{\"input_tokens\":'$2'}}}}}}'; }}\n{script}\n"
    );
    install(&path, &text);
    path
}

/// Written by another process: were the file open for writing in ours, a child that a test beside
/// this one is just starting could still hold it open, and starting it would fail as busy.
fn install(path: &Path, text: &str) {
    let mut child = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(child.wait().expect("our child").success());
}

fn run(script: &str) -> Run {
    let place = Place::new();
    let mut request = place.request("implement", 1);
    request.limits.idle = Duration::from_secs(2);
    request.limits.wall = Duration::from_secs(15);
    request.limits.turns = 3;
    request.limits.cost_micro_usd = 10_000;
    request.limits.output_bytes = 8 << 20;
    let claude = Claude {
        program: program(&place, script),
        environment: BTreeMap::new(),
    };
    let started = Instant::now();
    let mut events = Vec::new();
    let outcome = claude.run(&request, &mut |event| events.push(event), &Stop::new());
    assert_eq!(outcome.survivors, [0; 0]);
    Run {
        outcome,
        events,
        took: started.elapsed(),
    }
}

#[test]
fn a_well_behaved_program_finishes_whatever_its_status() {
    let run = run("init; says m1 100; done_; exit 143");
    assert_eq!(run.outcome.ended, Ended::Finished);
    assert_eq!(run.outcome.usage.cost_micro_usd, Some(10_000));
    assert_eq!(run.outcome.session.as_deref(), Some("s"));
}

#[test]
fn h04_silence_with_an_open_or_a_closed_output_is_idle() {
    assert_eq!(run("init; sleep 60").failure(), Failure::Idle);
    assert_eq!(
        run("init; exec >/dev/null 2>&1; sleep 60").failure(),
        Failure::Idle
    );
}

#[test]
fn h04_an_endless_stream_of_nothing_new_reaches_the_wall_clock_or_the_output_cap() {
    let run = run("init; while :; do printf '{\"type\":\"noise\",\"x\":\"%01000d\"}\\n' 0; done");
    assert!(matches!(
        run.failure(),
        Failure::OutputCap | Failure::TimeOut
    ));
}

#[test]
fn h04_an_end_in_the_middle_of_a_line_is_a_protocol_error() {
    assert_eq!(
        run("init; printf '{\"type\":\"result\",\"subtype\":\"succ'").failure(),
        Failure::Protocol
    );
    let run = run("init; echo 'Error: something broke' >&2; exit 0");
    assert_eq!(run.failure(), Failure::Protocol);
    let Ended::Failed { detail, .. } = &run.outcome.ended else {
        unreachable!("it failed")
    };
    assert!(detail.contains("something broke"), "{detail}");
}

#[test]
fn h04_bytes_that_are_no_text_and_lines_that_are_no_json_are_passed_over() {
    let run = run(
        "printf '\\377\\376\\0{\\n'; echo 'Warning: [x]'; init; printf '{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\\377b\"}]}}\\n'; done_",
    );
    assert_eq!(run.outcome.ended, Ended::Finished);
    assert!(run.events.contains(&Event::Text("a\u{fffd}b".to_owned())));
}

#[test]
fn h04_a_huge_line_is_bounded() {
    let run = run("init; head -c 6000000 /dev/zero | tr '\\0' x; echo; done_");
    assert_eq!(run.outcome.ended, Ended::Finished);
    let run = self::run("init; head -c 40000000 /dev/zero | tr '\\0' x; echo; done_");
    assert_eq!(run.failure(), Failure::OutputCap);
}

#[test]
fn h04_a_program_that_ignores_its_turns_or_budget_is_ended() {
    let turns = run("init; for n in 1 2 3 4 5; do says m$n 10; done; sleep 60");
    assert_eq!(turns.failure(), Failure::MaxTurns);
    let dear = run("init; says m1 7000; sleep 60");
    assert_eq!(dear.failure(), Failure::CostCap);
    assert_eq!(dear.outcome.usage.cost_micro_usd, Some(21_000));
    assert!(dear.took < Duration::from_secs(10));
}

#[test]
fn h04_a_program_that_stays_after_its_last_line_is_ended_and_has_finished() {
    let run = run("init; done_; trap '' TERM; sleep 60 & wait; sleep 60");
    assert_eq!(run.outcome.ended, Ended::Finished);
    assert!(run.took < Duration::from_secs(25), "{:?}", run.took);
}

#[test]
fn a_version_without_the_needed_flags_is_unavailable() {
    let place = Place::new();
    let path = place.scratch().join("claude");
    install(&path, "#!/bin/sh\necho --tools --session-id\n");
    let claude = Claude {
        program: path,
        environment: BTreeMap::new(),
    };
    let outcome = claude.run(&place.request("plan", 1), &mut |_| {}, &Stop::new());
    let Ended::Failed { failure, detail } = outcome.ended else {
        panic!("it must not be used")
    };
    assert_eq!(failure, Failure::Unavailable);
    assert!(detail.contains("--setting-sources"), "{detail}");
}

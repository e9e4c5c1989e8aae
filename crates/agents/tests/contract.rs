//! What every back end promises, run over each of them.
//!
//! A back end joins by saying how to make it do one thing ([`Does`]).

mod support;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use agents::command::Command;
use agents::scripted::{Script, Scripted};
use agents::{Agent, Availability, Ended, Event, Failure, Outcome, Request, Stop};
use serde_json::{Value, json};
use support::{Place, lives, pid_in};

/// One thing for an agent to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    /// Writes `made.txt`, answers `{"passed": true}`, costs $0.25, says `done`.
    Work,
    /// Reports a failure.
    Fails,
    /// Is silent for ever.
    Hangs,
    /// Says more than 100 kB.
    Floods,
    /// Costs $9.
    Spends,
    /// Ends without its terminal event, or with nonsense in it.
    Garbles,
    /// Has no quota left.
    HasNoQuota,
    /// Starts a process in its own session that ignores TERM and writes its pid to `pid`, then
    /// hangs.
    Daemonises,
}

type Make = fn(Does) -> Box<dyn Agent>;

fn scripted(does: Does) -> Box<dyn Agent> {
    let stage = match does {
        Does::Work => json!({
            "writes": [{"path": "made.txt", "content": "made\n"}],
            "structured_output": {"passed": true}, "cost": 0.25, "text": "done",
        }),
        Does::Fails => json!({"fail": "it gave up", "cost": 0.25}),
        Does::Hangs => json!({"hang": true, "cost": 0.25}),
        Does::Floods => json!({"run": ["yes", "word"], "cost": 0.25}),
        Does::Spends => json!({"cost": 9}),
        Does::Garbles => json!({"exit": 0}),
        Does::HasNoQuota => json!({"quota": {}, "cost": 0.25}),
        Does::Daemonises => json!({"run": ["sh", "-c", DAEMON], "cost": 0.25}),
    };
    let nothing = json!({"delay": 0});
    let script = json!({
        "prerequisites": {}, "clarification": {}, "completion": {},
        "dex_loop": {"cycles": [{"feature": {"id": "f", "title": "F"}, "stages": {
            "gap_analysis": nothing, "specify": nothing, "plan": nothing, "tasks": nothing,
            "implement": nothing, "verify": stage, "learnings": nothing,
        }}]},
    });
    let script = Script::parse(&script.to_string()).expect("a good script");
    Box::new(Scripted::new(script, 0.0))
}

const DAEMON: &str = "(setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.1; done' \
    > /dev/null 2>&1 &); exec sleep 60";

fn command(does: Does) -> Box<dyn Agent> {
    let work = "cat > prompt.txt; echo made > made.txt; echo 0.25 > $DEX_COST; \
        echo '{\"passed\": true}' > $DEX_ANSWER; echo done";
    let script = match does {
        Does::Work => work.to_owned(),
        Does::Fails => "echo 0.25 > $DEX_COST; echo it gave up >&2; exit 3".to_owned(),
        Does::Hangs => "echo 0.25 > $DEX_COST; exec sleep 60".to_owned(),
        Does::Floods => "echo 0.25 > $DEX_COST; exec yes word".to_owned(),
        Does::Spends => "echo 9 > $DEX_COST; exec sleep 60".to_owned(),
        Does::Garbles => "printf '{\"passed\": tr' > $DEX_ANSWER".to_owned(),
        Does::HasNoQuota => "echo 0.25 > $DEX_COST; exit 75".to_owned(),
        Does::Daemonises => format!("echo 0.25 > $DEX_COST; {DAEMON}"),
    };
    Box::new(Command {
        argv: ["sh", "-c", &script].iter().map(OsString::from).collect(),
    })
}

/// Every back end under contract.
const BACK_ENDS: &[(&str, Make)] = &[("scripted", scripted), ("command", command)];

fn run_with(make: Make, does: Does, limits: impl Fn(&mut Request)) -> (Place, Outcome, Vec<Event>) {
    let place = Place::new();
    let mut request = place.request("verify", 1);
    limits(&mut request);
    let mut events = Vec::new();
    let outcome = make(does).run(&request, &mut |event| events.push(event), &Stop::new());
    (place, outcome, events)
}

fn failure(outcome: &Outcome) -> Failure {
    match &outcome.ended {
        Ended::Failed { failure, .. } => *failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_works_in_the_directory_answers_and_says_what_it_cost() {
    for (name, make) in BACK_ENDS {
        let (place, outcome, events) = run_with(*make, Does::Work, |_| ());
        assert_eq!(outcome.ended, Ended::Finished, "{name}");
        assert_eq!(place.read("made.txt"), "made\n", "{name}");
        assert_eq!(outcome.answer, Some(json!({"passed": true})), "{name}");
        assert_eq!(outcome.usage.cost_micro_usd, Some(250_000), "{name}");
        assert_eq!(outcome.text, "done", "{name}");
        assert!(outcome.survivors.is_empty(), "{name}");
        assert!(
            matches!(events.first(), Some(Event::Started { .. })),
            "{name}"
        );
        let last = events.iter().rev().find_map(|event| match event {
            Event::Usage(usage) => Some(*usage),
            _ => None,
        });
        assert_eq!(
            last,
            Some(outcome.usage),
            "{name}: the last usage is the outcome's"
        );
        assert!(!place.list().exists(), "{name}: no list is left");
    }
}

#[test]
fn it_is_available_and_knows_its_name() {
    for (name, make) in BACK_ENDS {
        let agent = make(Does::Work);
        assert_eq!(agent.name(), *name);
        assert!(
            matches!(agent.availability(), Availability::Ready { .. }),
            "{name}"
        );
    }
}

#[test]
fn a_failure_is_the_agents_own_with_its_reason_and_cost() {
    for (name, make) in BACK_ENDS {
        let (_, outcome, _) = run_with(*make, Does::Fails, |_| ());
        let Ended::Failed { failure, detail } = &outcome.ended else {
            panic!("{outcome:?}")
        };
        assert_eq!(*failure, Failure::AgentError, "{name}");
        assert!(detail.contains("it gave up"), "{name}: {detail}");
        assert_eq!(outcome.usage.cost_micro_usd, Some(250_000), "{name}");
        assert_eq!(outcome.answer, None, "{name}");
    }
}

#[test]
fn h04_the_wall_clock_ends_it_whatever_it_does() {
    for (name, make) in BACK_ENDS {
        let started = Instant::now();
        let (_, outcome, _) = run_with(*make, Does::Hangs, |request| {
            request.limits.wall = Duration::from_millis(500);
        });
        assert_eq!(failure(&outcome), Failure::TimeOut, "{name}");
        assert_eq!(
            outcome.usage.cost_micro_usd,
            Some(250_000),
            "{name}: cost is kept"
        );
        assert!(started.elapsed() < Duration::from_secs(4), "{name}");
    }
}

#[test]
fn h04_silence_ends_it() {
    for (name, make) in BACK_ENDS {
        let (_, outcome, _) = run_with(*make, Does::Hangs, |request| {
            request.limits.idle = Duration::from_millis(300);
        });
        assert_eq!(failure(&outcome), Failure::Idle, "{name}");
        assert_eq!(
            outcome.usage.cost_micro_usd,
            Some(250_000),
            "{name}: cost is kept"
        );
    }
}

#[test]
fn h04_too_much_output_ends_it() {
    for (name, make) in BACK_ENDS {
        let (_, outcome, events) = run_with(*make, Does::Floods, |request| {
            request.limits.output_bytes = 100_000;
        });
        assert_eq!(failure(&outcome), Failure::OutputCap, "{name}");
        assert!(events.len() <= 20_010, "{name}");
        assert!(outcome.text.len() <= 16 * 1024, "{name}");
    }
}

#[test]
fn h04_spending_too_much_ends_it_with_its_name() {
    for (name, make) in BACK_ENDS {
        let started = Instant::now();
        let (_, outcome, _) = run_with(*make, Does::Spends, |_| ());
        assert_eq!(failure(&outcome), Failure::CostCap, "{name}");
        assert_eq!(outcome.usage.cost_micro_usd, Some(9_000_000), "{name}");
        assert!(started.elapsed() < Duration::from_secs(5), "{name}");
    }
}

#[test]
fn h04_an_end_that_cannot_be_read_is_a_protocol_error_not_a_success() {
    for (name, make) in BACK_ENDS {
        let (_, outcome, _) = run_with(*make, Does::Garbles, |_| ());
        if *name == "command" {
            // Its exit is its end, and that can be read; its answer is handed on as unusable.
            let told = outcome.answer.as_ref().and_then(Value::as_str);
            assert!(
                told.is_some_and(|it| it.contains("cannot be read")),
                "{told:?}"
            );
            continue;
        }
        assert_eq!(failure(&outcome), Failure::Protocol, "{name}");
        assert_eq!(outcome.answer, None, "{name}");
    }
}

#[test]
fn a_used_up_quota_is_not_a_failure() {
    for (name, make) in BACK_ENDS {
        let (_, outcome, _) = run_with(*make, Does::HasNoQuota, |_| ());
        assert_eq!(outcome.ended, Ended::Quota { until_unix: None }, "{name}");
        assert_eq!(outcome.usage.cost_micro_usd, Some(250_000), "{name}");
    }
}

#[test]
fn g04_stop_ends_it_at_once_and_says_stopped() {
    for (name, make) in BACK_ENDS {
        let place = Place::new();
        let stop = Stop::new();
        let stopper = stop.clone();
        let stopped = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            stopper.set();
            Instant::now()
        });
        let outcome = make(Does::Hangs).run(&place.request("verify", 1), &mut |_| (), &stop);
        let asked = stopped.join().expect("stops");
        assert_eq!(outcome.ended, Ended::Stopped, "{name}");
        assert!(asked.elapsed() < Duration::from_secs(3), "{name}");
        assert_eq!(
            outcome.usage.cost_micro_usd,
            Some(250_000),
            "{name}: cost is kept"
        );
    }
}

#[test]
fn g04_no_process_is_left_behind() {
    for (name, make) in BACK_ENDS {
        let (place, outcome, _) = run_with(*make, Does::Daemonises, |request| {
            request.limits.wall = Duration::from_millis(700);
        });
        assert_eq!(failure(&outcome), Failure::TimeOut, "{name}");
        assert!(outcome.survivors.is_empty(), "{name}");
        assert!(!lives(pid_in(&place.file("pid"))), "{name}");
    }
}

/// Runs a shell script as the `command` back end.
fn shell(place: &Place, script: &str, change: impl Fn(&mut Request)) -> (Outcome, Vec<Event>) {
    let agent = Command {
        argv: ["sh", "-c", script].iter().map(OsString::from).collect(),
    };
    let mut request = place.request("verify", 2);
    change(&mut request);
    let mut events = Vec::new();
    let outcome = agent.run(&request, &mut |event| events.push(event), &Stop::new());
    (outcome, events)
}

#[test]
fn h07_a_command_is_told_everything_about_its_stage_each_time() {
    let place = Place::new();
    let script = "cat; env | grep '^DEX_' | grep -v 'GUARD\\|ANSWER\\|COST\\|SCHEMA' | sort; \
        cat $DEX_SCHEMA";
    let (outcome, _) = shell(&place, script, |request| {
        request.prompt = "the prompt\n".into();
        request.model = Some("big".into());
        request.tools = agents::ToolSurface::ReadOnly;
        request.schema = Some(json!({"type": "object"}));
    });
    insta::assert_snapshot!(outcome.text, @r#"
    the prompt
    DEX_CYCLE=2
    DEX_FEATURE=manifest-slug
    DEX_MODEL=big
    DEX_RUN_ID=0198a0b1-c2d3-7abc-8def-0123456789ab
    DEX_SPEC_DIR=specs/001-thing
    DEX_STAGE=verify
    DEX_TOOLS=read_only
    {"type":"object"}
    "#);
}

#[test]
fn h04_an_answer_that_is_no_bounded_regular_file_is_refused_without_waiting() {
    for script in [
        "mkfifo $DEX_ANSWER",
        "ln -s /etc/hostname $DEX_ANSWER",
        "mkdir $DEX_ANSWER",
        "head -c 2000000 /dev/zero | tr '\\0' 1 > $DEX_ANSWER",
        "printf '\\377\\376' > $DEX_ANSWER",
        "echo '{} {}' > $DEX_ANSWER",
    ] {
        let place = Place::new();
        let (outcome, _) = shell(&place, script, |_| ());
        let told = outcome.answer.as_ref().and_then(Value::as_str);
        let told = told.unwrap_or_else(|| panic!("{script}: {outcome:?}"));
        assert!(told.contains("cannot be read"), "{script}: {told}");
    }
    for script in [
        "echo free > $DEX_COST",
        "echo -1 > $DEX_COST",
        "mkdir $DEX_COST",
    ] {
        let place = Place::new();
        let (outcome, _) = shell(&place, script, |_| ());
        assert_eq!(failure(&outcome), Failure::Protocol, "{script}");
    }
    let place = Place::new();
    for script in ["true", ": > $DEX_ANSWER"] {
        let (outcome, _) = shell(&place, script, |_| ());
        assert_eq!(
            (outcome.ended, outcome.answer),
            (Ended::Finished, None),
            "{script}"
        );
    }
}

#[test]
fn an_earlier_attempts_answer_and_cost_are_not_taken_for_this_ones() {
    let place = Place::new();
    shell(
        &place,
        "echo '{\"a\":1}' > $DEX_ANSWER; echo 1 > $DEX_COST",
        |_| (),
    );
    let (outcome, _) = shell(&place, "true", |_| ());
    assert_eq!(outcome.answer, None::<Value>);
    assert_eq!(outcome.usage.cost_micro_usd, None, "not reported is not 0");
}

#[test]
fn the_cost_is_followed_while_it_works_and_never_falls() {
    let place = Place::new();
    let script =
        "echo 0.5 > $DEX_COST; sleep 0.8; echo x > $DEX_COST; sleep 0.4; echo 0.1 > $DEX_COST";
    let (outcome, events) = shell(&place, script, |_| ());
    assert_eq!(outcome.usage.cost_micro_usd, Some(500_000));
    assert_eq!(
        events
            .iter()
            .filter(|it| matches!(it, Event::Usage(_)))
            .count(),
        1
    );
}

#[test]
fn i01_what_a_command_says_last_is_redacted_in_its_outcome() {
    let place = Place::new();
    let (outcome, _) = shell(
        &place,
        "echo DB_PASSWORD=hunter2; echo API_TOKEN=abcd1234efgh >&2; exit 1",
        |_| (),
    );
    assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
    assert!(
        !format!("{outcome:?}").contains("abcd1234efgh"),
        "{outcome:?}"
    );
}

#[test]
fn a_command_that_is_not_installed_is_unavailable() {
    let agent = Command {
        argv: vec!["no-such-agent".into()],
    };
    assert_eq!(
        agent.availability(),
        Availability::NotInstalled {
            program: "no-such-agent".into()
        }
    );
    let place = Place::new();
    let outcome = agent.run(&place.request("plan", 1), &mut |_| (), &Stop::new());
    assert_eq!(failure(&outcome), Failure::Unavailable);
}

#[test]
fn an_exit_by_a_signal_is_a_failure_with_what_was_said() {
    let place = Place::new();
    let (outcome, _) = shell(&place, "echo working; kill -9 $$", |_| ());
    let Ended::Failed { failure, detail } = outcome.ended else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (failure, detail.as_str()),
        (Failure::AgentError, "ended by a signal: working")
    );
}

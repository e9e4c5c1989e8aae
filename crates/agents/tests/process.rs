//! Running programs under limits.

mod support;

use std::time::{Duration, Instant};

use agents::Stop;
use agents::process::{End, Finished, Go, Line, Spec, StartError, run};
use support::{Place, lives, pid_in};

fn lines_of(spec: &Spec) -> (Finished, Vec<Line>) {
    let mut lines = Vec::new();
    let finished = run(spec, &Stop::new(), &mut |line| {
        lines.extend(line);
        Go::On
    })
    .expect("it starts");
    (finished, lines)
}

fn out(text: &str) -> Line {
    Line::Out(text.into())
}

#[test]
fn a_program_gets_its_input_and_we_get_its_lines_and_status() {
    let place = Place::new();
    let mut spec = place.shell("cat; echo oops >&2; exit 3");
    spec.stdin = b"one\ntwo".to_vec();
    let (finished, mut lines) = lines_of(&spec);
    lines.sort_by_key(|line| matches!(line, Line::Err(_)));
    assert_eq!(lines, [out("one"), out("two"), Line::Err("oops".into())]);
    assert_eq!(finished.end, End::Exited(Some(3)));
    assert!(finished.survivors.is_empty());
    assert!(!place.list().exists(), "the list is removed");
}

#[test]
fn a_signal_is_not_an_exit_status() {
    let place = Place::new();
    let (finished, _) = lines_of(&place.shell("kill -9 $$"));
    assert_eq!(finished.end, End::Exited(None));
    let (finished, _) = lines_of(&place.shell("exit 137"));
    assert_eq!(finished.end, End::Exited(Some(137)));
}

#[test]
fn a_program_that_is_not_installed_is_said_to_be_so() {
    let place = Place::new();
    let start = |argv: &[&str]| run(&place.program(argv), &Stop::new(), &mut |_| Go::On);
    assert!(matches!(
        start(&["no-such-program"]),
        Err(StartError::NotFound { program }) if program == "no-such-program"
    ));
    assert!(matches!(
        start(&["./absent"]),
        Err(StartError::NotFound { .. })
    ));
    assert!(matches!(start(&[]), Err(StartError::NotFound { .. })));
    let mut spec = place.program(&["true"]);
    spec.dir = place.file("gone");
    assert!(matches!(
        run(&spec, &Stop::new(), &mut |_| Go::On),
        Err(StartError::Io { .. })
    ));
}

#[test]
fn input_larger_than_a_pipe_does_not_block_a_program_that_ignores_it() {
    let place = Place::new();
    let mut spec = place.shell("echo done");
    spec.stdin = vec![b'x'; 4 << 20];
    let (finished, lines) = lines_of(&spec);
    assert_eq!(finished.end, End::Exited(Some(0)));
    assert_eq!(lines, [out("done")]);
}

#[test]
fn i03_the_environment_is_an_allow_list_plus_what_the_caller_adds() {
    let place = Place::new();
    let mut spec = place.program(&["env"]);
    spec.env.insert("DEX_STAGE".into(), "plan".into());
    let (_, lines) = lines_of(&spec);
    let names: Vec<String> = lines
        .iter()
        .map(|line| match line {
            Line::Out(text) | Line::Err(text) => text.split('=').next().unwrap_or("").to_owned(),
        })
        .collect();
    assert!(names.contains(&"PATH".to_owned()) && names.contains(&"DEX_STAGE".to_owned()));
    // Cargo sets many variables for a test; none of them is on the list but these.
    let leaked: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with("CARGO") || name.starts_with("GIT"))
        .filter(|name| *name != "CARGO_HOME")
        .collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}

#[test]
fn the_wall_clock_ends_a_program_that_ignores_term() {
    let place = Place::new();
    let mut spec = place.shell("trap '' TERM; while :; do echo tick; sleep 0.1; done");
    spec.wall = Duration::from_millis(300);
    let started = Instant::now();
    let (finished, _) = lines_of(&spec);
    assert_eq!(finished.end, End::TimeOut);
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_program_may_use_the_grace_to_say_its_last_words() {
    let place = Place::new();
    let mut spec =
        place.shell("trap 'echo last; exit 0' TERM; echo up; while :; do sleep 0.05; done");
    spec.wall = Duration::from_millis(400);
    let (finished, lines) = lines_of(&spec);
    assert_eq!(finished.end, End::TimeOut);
    // The shell may say on its other output that its `sleep` was ended.
    assert!(
        lines.starts_with(&[out("up")]) && lines.contains(&out("last")),
        "{lines:?}"
    );
}

#[test]
fn h04_a_silent_program_that_keeps_its_output_open_is_ended_as_idle() {
    let place = Place::new();
    let mut spec = place.shell("echo up; exec sleep 60");
    spec.idle = Some(Duration::from_millis(300));
    let started = Instant::now();
    let (finished, lines) = lines_of(&spec);
    assert_eq!((finished.end, lines), (End::Idle, vec![out("up")]));
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn dots_without_a_line_end_are_not_idleness() {
    let place = Place::new();
    let mut spec = place.shell("for i in 1 2 3 4 5 6 7 8; do printf .; sleep 0.1; done");
    spec.idle = Some(Duration::from_millis(500));
    let (finished, lines) = lines_of(&spec);
    assert_eq!(
        (finished.end, lines),
        (End::Exited(Some(0)), vec![out("........")])
    );
}

#[test]
fn a_slow_line_handler_is_not_taken_for_a_silent_program() {
    let place = Place::new();
    let mut spec = place.shell("for i in 1 2 3; do echo $i; done");
    spec.idle = Some(Duration::from_millis(200));
    let mut heard = 0;
    let finished = run(&spec, &Stop::new(), &mut |line| {
        if line.is_some() {
            heard += 1;
            std::thread::sleep(Duration::from_millis(300));
        }
        Go::On
    })
    .expect("it starts");
    assert_eq!((finished.end, heard), (End::Exited(Some(0)), 3));
}

#[test]
fn h04_a_program_that_closes_its_output_and_lives_is_waited_for_and_limited() {
    let place = Place::new();
    let (finished, _) = lines_of(&place.shell("exec >&- 2>&-; sleep 0.4; exit 5"));
    assert_eq!(finished.end, End::Exited(Some(5)));
    let mut spec = place.shell("exec >&- 2>&-; exec sleep 60");
    spec.wall = Duration::from_millis(300);
    assert_eq!(lines_of(&spec).0.end, End::TimeOut);
}

#[test]
fn h04_output_kept_open_after_the_main_process_died_does_not_hold_us() {
    let place = Place::new();
    let started = Instant::now();
    let script =
        "setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do :; done; exit 4";
    let (finished, _) = lines_of(&place.shell(script));
    assert_eq!(finished.end, End::Exited(Some(4)));
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    assert!(!lives(pid_in(&place.file("pid"))));
}

#[test]
fn h04_a_line_of_200_megabytes_is_cut_and_ends_at_the_output_bound() {
    let place = Place::new();
    let mut spec = place.shell("head -c 200000000 /dev/zero | tr '\\0' x");
    spec.line_bytes = 1000;
    spec.output_bytes = u64::MAX;
    let (finished, lines) = lines_of(&spec);
    assert_eq!(finished.end, End::Exited(Some(0)));
    let [Line::Out(line)] = &lines[..] else {
        panic!("{} lines", lines.len())
    };
    assert!(
        line.len() < 1100 && line.ends_with("[199999000 more bytes of this line were dropped]")
    );

    spec.output_bytes = 1 << 20;
    let (finished, lines) = lines_of(&spec);
    assert_eq!((finished.end, lines), (End::OutputCap, vec![]));
}

#[test]
fn a_flood_of_lines_ends_at_the_output_bound() {
    let place = Place::new();
    let mut spec = place.shell("exec yes");
    spec.output_bytes = 10_000;
    let (finished, lines) = lines_of(&spec);
    assert_eq!(finished.end, End::OutputCap);
    assert_eq!(lines.len(), 5000);
}

#[test]
fn the_line_handler_can_end_a_program_and_hears_nothing_more() {
    let place = Place::new();
    let mut heard = 0;
    let finished = run(&place.shell("exec yes"), &Stop::new(), &mut |line| {
        heard += u32::from(line.is_some());
        if heard < 3 { Go::On } else { Go::End }
    })
    .expect("it starts");
    assert_eq!((finished.end, heard), (End::Asked, 3));
}

#[test]
fn the_line_handler_hears_of_silence_and_can_end_it() {
    let place = Place::new();
    let mut ticks = 0;
    let finished = run(&place.shell("exec sleep 60"), &Stop::new(), &mut |line| {
        ticks += u32::from(line.is_none());
        if ticks < 3 { Go::On } else { Go::End }
    })
    .expect("it starts");
    assert_eq!((finished.end, ticks), (End::Asked, 3));
}

#[test]
fn g04_stop_ends_children_that_left_the_session_before_they_write() {
    let place = Place::new();
    // `setsid`, and a double fork whose middle process is gone at once.
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ > one; sleep 3; touch canary' &
        (setsid sh -c 'trap \"\" TERM; echo $$ > two; sleep 3; touch canary' > /dev/null 2>&1 &)
        trap '' TERM; while :; do sleep 0.1; done";
    let stop = Stop::new();
    let stopper = stop.clone();
    let (one, two) = (place.file("one"), place.file("two"));
    let pids = std::thread::spawn(move || {
        let pids = [pid_in(&one), pid_in(&two)];
        stopper.set();
        pids
    });
    let finished = run(&place.shell(script), &stop, &mut |_| Go::On).expect("it starts");
    let pids = pids.join().expect("pids");
    assert_eq!(
        finished,
        Finished {
            end: End::Stopped,
            survivors: vec![]
        }
    );
    assert!(!pids.into_iter().any(lives), "gone when we are told so");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!place.file("canary").exists());
}

#[test]
fn g04_a_stopped_process_and_one_that_keeps_forking_are_ended_too() {
    let place = Place::new();
    let script = "sh -c 'echo $$ > stopped; kill -STOP $$; sleep 60' &
        sh -c 'trap \"\" TERM; while :; do (sleep 0.02; sleep 30) & sleep 0.01; done' &
        wait";
    let mut spec = place.shell(script);
    spec.wall = Duration::from_millis(500);
    let (finished, _) = lines_of(&spec);
    assert_eq!(
        finished,
        Finished {
            end: End::TimeOut,
            survivors: vec![]
        }
    );
    assert!(!lives(pid_in(&place.file("stopped"))));
}

#[test]
fn a_program_that_kills_its_guard_is_ended_all_the_same() {
    let place = Place::new();
    let script = "echo $$ > pid; kill -9 $PPID; exec sleep 60";
    let (finished, _) = lines_of(&place.shell(script));
    assert_eq!(finished.end, End::Exited(None));
    assert!(!lives(pid_in(&place.file("pid"))));
    assert!(!place.list().exists());
}

#[test]
fn g04_a_program_that_stops_its_guard_is_ended_all_the_same() {
    let place = Place::new();
    let mut spec = place.shell("echo $$ > pid; kill -STOP $PPID; exec sleep 60");
    spec.wall = Duration::from_millis(300);
    let (finished, _) = lines_of(&spec);
    assert_eq!(
        finished,
        Finished {
            end: End::TimeOut,
            survivors: vec![]
        }
    );
    assert!(!lives(pid_in(&place.file("pid"))));
    assert!(!place.list().exists());
}

#[test]
fn a_program_that_deletes_the_list_still_has_its_status_told() {
    let place = Place::new();
    let (finished, _) = lines_of(&place.shell("rm -r ../scratch; exit 6"));
    assert_eq!(finished.end, End::Exited(Some(6)));
}

#[test]
fn the_program_sees_its_own_name_and_directory() {
    let place = Place::new();
    let (_, lines) = lines_of(&place.shell("echo $0; pwd -P"));
    let work = place.work().canonicalize().expect("a path");
    assert_eq!(lines, [out("sh"), out(&work.display().to_string())]);
}

#[test]
fn a_short_program_costs_little_more_than_itself() {
    let place = Place::new();
    let started = Instant::now();
    for _ in 0..10 {
        assert_eq!(
            lines_of(&place.program(&["true"])).0.end,
            End::Exited(Some(0))
        );
    }
    println!("{:?} each", started.elapsed() / 10);
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_program_is_answered_while_it_runs() {
    let place = Place::new();
    let spec = place.shell("while read -r line; do echo \"got $line\"; done; echo end");
    let mut said = Vec::new();
    let finished = agents::process::converse(&spec, &Stop::new(), &mut |input, line| {
        match line {
            None if said.is_empty() => {
                said.push("asked".to_owned());
                input.send(b"one\n".to_vec()).expect("it reads");
            }
            Some(Line::Out(line)) => {
                match line.as_str() {
                    "got one" => input.send(b"two\n".to_vec()).expect("it reads"),
                    "got two" => input.close(),
                    _ => {}
                }
                said.push(line);
            }
            _ => {}
        }
        Go::On
    })
    .expect("it starts");
    assert_eq!(finished.end, End::Exited(Some(0)));
    assert_eq!(said, ["asked", "got one", "got two", "end"]);
}

#[test]
fn h04_a_program_that_never_reads_does_not_keep_us_from_ending_it() {
    let place = Place::new();
    let mut spec = place.shell("trap '' TERM; echo here; exec sleep 60");
    spec.wall = Duration::from_secs(2);
    let started = Instant::now();
    let mut sent = 0;
    let finished = agents::process::converse(&spec, &Stop::new(), &mut |input, _| {
        // 200 MiB, far more than a pipe holds and than is kept for it.
        while sent < 200 && input.send(vec![b'x'; 1 << 20]).is_ok() {
            sent += 1;
        }
        Go::On
    })
    .expect("it starts");
    assert_eq!(finished.end, End::TimeOut);
    assert!(sent > 0);
    assert!(started.elapsed() < Duration::from_secs(9));
}

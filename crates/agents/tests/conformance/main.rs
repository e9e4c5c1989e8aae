//! What every back end that starts somebody else's program promises: one list of scenarios, one
//! row for each back end.
//!
//! A scenario says what is asked for and what must come of it ([`Scenario::check`]); it knows no
//! back end. A row ([`rows::Row`]) says how its program is made to do it: the real CLI against the
//! fake model, or a program of the test's that speaks the CLI's stream and misbehaves as no
//! scripted model can make the real one. What a back end does not have, a row says in words, and
//! the table below shows it. A new back end is one more `Row`.
//!
//! The real CLIs come from npm at pinned versions (`testkit::real_agent`). One that cannot be
//! installed fails the suite. The back ends without a stream, `command` and `scripted`, have
//! `contract.rs`.

mod fake_cli;
#[path = "../support/ground.rs"]
mod ground;
mod rows;
mod scenario;
mod world;

use rows::{How, ROWS};
use scenario::Scenario;

#[test]
fn the_table_of_back_ends_and_scenarios() {
    let mut table = String::new();
    for scenario in Scenario::ALL {
        table.push_str(&format!("{:24}", scenario.name()));
        for row in ROWS {
            let how = match row.how(*scenario) {
                How::Real(_) => "real",
                How::Fake(_) | How::Acted(_) => "fake",
                How::Not(_) => "none",
            };
            table.push_str(&format!(" {}: {how:6}", row.name()));
        }
        table = table.trim_end().to_owned() + "\n";
    }
    for (row, scenario, why) in missing() {
        table.push_str(&format!("{row}, {scenario}: {why}\n"));
    }
    insta::assert_snapshot!(table, @r"
    edit                     claude: real   codex: real   acp: fake
    several steps            claude: real   codex: real   acp: fake
    refused tool             claude: real   codex: real   acp: fake
    dollar cap               claude: real   codex: none   acp: fake
    budget overshoot         claude: real   codex: none   acp: fake
    turn cap                 claude: real   codex: real   acp: fake
    wall clock               claude: real   codex: real   acp: fake
    silence                  claude: real   codex: real   acp: fake
    output cap               claude: fake   codex: fake   acp: fake
    1 GB of output           claude: fake   codex: fake   acp: fake
    cancel                   claude: real   codex: real   acp: fake
    resume                   claude: real   codex: real   acp: fake
    crash                    claude: fake   codex: fake   acp: fake
    garbage                  claude: fake   codex: fake   acp: fake
    half a line              claude: fake   codex: fake   acp: fake
    no credentials           claude: real   codex: real   acp: fake
    overload                 claude: real   codex: real   acp: fake
    quota                    claude: real   codex: real   acp: fake
    ignores SIGTERM          claude: fake   codex: fake   acp: fake
    forks away               claude: fake   codex: fake   acp: fake
    exit 0 after failing     claude: fake   codex: fake   acp: fake
    hangs on a 401           claude: fake   codex: fake   acp: none
    hostile repository       claude: real   codex: real   acp: none
    codex, dollar cap: it reports no dollars
    codex, budget overshoot: it reports no dollars
    acp, hangs on a 401: it has no word for trying again; silence ends it
    acp, hostile repository: each agent has settings of its own: tests/real_acp
    ");
}

fn missing() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut missing = Vec::new();
    for row in ROWS {
        for scenario in Scenario::ALL {
            if let How::Not(why) = row.how(*scenario) {
                missing.push((row.name(), scenario.name(), why));
            }
        }
    }
    missing
}

macro_rules! scenarios {
    ($($test:ident => $scenario:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                world::every_row(Scenario::$scenario);
            }
        )*

        #[test]
        fn every_scenario_is_run() {
            let run = [$(Scenario::$scenario),*];
            assert_eq!(run.as_slice(), Scenario::ALL);
        }
    };
}

scenarios! {
    it_edits_a_file => Edit,
    it_takes_several_steps => Steps,
    a_refused_tool_is_told_and_does_nothing => RefusedTool,
    h04_its_dollars_are_bounded => DollarCap,
    an_overshot_budget_is_reported_as_it_was => Overshoot,
    h04_its_turns_are_bounded => TurnCap,
    h04_the_wall_clock_ends_it => WallCap,
    h04_silence_ends_it => IdleCap,
    h04_its_output_is_bounded => OutputCap,
    h04_a_flood_is_read_and_thrown_away => Flood,
    g04_a_stop_ends_it_and_its_children => Cancel,
    its_session_goes_on_and_is_counted_once => Resume,
    h04_a_crash_is_a_protocol_error => Crash,
    h04_garbage_is_passed_over => Garbage,
    h04_half_a_last_line_is_no_end => HalfALine,
    no_credentials_is_said_at_once => NoCredentials,
    an_overloaded_service_is_waited_for => Overload,
    a_used_up_quota_says_until_when => Quota,
    g04_ignoring_term_does_not_help => IgnoresTerm,
    g04_forking_away_does_not_help => ForksAway,
    an_exit_status_of_0_is_no_success => ExitsZeroAfterFailing,
    a_refused_key_does_not_hang => HangsOnRefusal,
    i03_a_hostile_repository_changes_nothing => HostileRepository,
}

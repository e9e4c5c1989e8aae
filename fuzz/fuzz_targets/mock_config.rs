//! A script is written by hand: reading does not panic, and an error says where.
#![no_main]

use agents::scripted::Script;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &str| match Script::parse(json) {
    Ok(script) => assert!(!script.features().is_empty(), "there is at least one cycle"),
    Err(error) => assert!(!error.place.is_empty() && !error.problem.is_empty()),
});

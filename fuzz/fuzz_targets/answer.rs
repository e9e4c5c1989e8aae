//! An agent may answer anything: checking does not panic, and an answer that is accepted is
//! accepted again when it is given back as we keep it.
#![no_main]

use dex::answer::{self, Answer};
use libfuzzer_sys::fuzz_target;

const STAGES: [&str; 6] = [
    "manifest_extraction",
    "gap_analysis",
    "verify",
    "learnings",
    "clarification_synthesis",
    "plan",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, json)) = bytes.split_first() else {
        return;
    };
    let stage = STAGES[usize::from(*first) % STAGES.len()];
    let Ok(value) = serde_json::from_slice(json) else {
        return;
    };
    let Ok(read) = answer::check(stage, &value) else {
        return;
    };
    let kept = match &read {
        Answer::Manifest(it) => serde_json::to_value(it),
        Answer::GapAnalysis(it) => serde_json::to_value(it),
        Answer::Verify(it) => serde_json::to_value(it),
        Answer::Learnings(it) => serde_json::to_value(it),
        Answer::Synthesis(it) => serde_json::to_value(it),
        Answer::Done(it) => serde_json::to_value(it),
    };
    assert_eq!(
        answer::check(stage, &kept.expect("an answer can be written")),
        Ok(read)
    );
});

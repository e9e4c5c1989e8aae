//! Reading runs: report, runs, timeline, log, show, undo, config, prompts, doctor. The runs are
//! made by hand with stock git, as `docs/formats/` says they look.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod doctor;
mod hand;
mod logs;
mod reports;
mod safety;
mod settings;
mod taking_back;

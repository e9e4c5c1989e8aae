//! Unattended feature runs: a run is a branch, every finished stage a commit.

pub mod answer;
pub mod prompt;

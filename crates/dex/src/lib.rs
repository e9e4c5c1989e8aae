//! Unattended feature runs: a run is a branch, every finished stage a commit.
//!
//! What is decided is decided in pure functions (`next`, `reconcile`) over values that were
//! read; `run` carries the decisions out. Progression comes from commits, cost and duration
//! from the run's record, what happened since the last commit from the live record;
//! `state.json` is a cache of these. Knows nothing of terminals or HTTP.

pub mod config;
pub mod files;
pub mod names;
pub mod stage;

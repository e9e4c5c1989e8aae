//! Unattended feature runs: a run is a branch, every finished stage a commit.
//!
//! What is decided is decided in pure functions ([`next`], [`reconcile`]) over values that were
//! read ([`facts`]); [`run`] carries the decisions out. Progression comes from commits, cost and
//! duration from the run's record, what happened since the last commit from the [`live`] record;
//! `state.json` is a cache of these. Knows nothing of terminals or HTTP.

pub mod answer;
pub mod config;
pub mod element;
pub mod facts;
pub mod files;
pub mod live;
pub mod names;
pub mod next;
pub mod outcome;
pub mod progress;
pub mod prompt;
pub mod reconcile;
pub mod report;
pub mod run;
pub mod stage;

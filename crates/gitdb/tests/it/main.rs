//! Tests at the boundary: real repositories, read with stock git.
#![allow(
    clippy::unwrap_used,
    reason = "in a test a failed step should end it; clippy only sees `#[test]` functions"
)]

mod checkpoint;
mod common;
mod crash;
mod git_programs;
mod hooks_and_signing;
mod odd_trees;
mod performance;
mod protecting;
mod reading;
mod refs;
mod repositories;
mod restoring;
mod stage_commit;
mod stage_contents;
mod undoing;

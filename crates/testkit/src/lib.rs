//! Test helpers. Dev-only: no shipped crate depends on it.

pub mod crash;
pub mod fake_model;
mod graph;
pub mod left_out;
pub mod real_agent;
pub mod repo;

pub use repo::Repo;

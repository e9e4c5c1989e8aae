//! Test helpers. Dev-only: no shipped crate depends on it.

pub mod fake_model;
pub mod repo;

pub use repo::Repo;

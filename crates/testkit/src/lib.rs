//! Test helpers. Dev-only: no shipped crate depends on it.

pub mod repo;

pub use repo::Repo;

//! Git as a database.
//!
//! The only crate that touches a repository. Everything here is blocking and is done by the
//! git program, in fresh processes started by [`git_cli`] alone. Nothing here knows what a run,
//! a stage's meaning or a quest is.
//!
//! Promises: refs move only through [`refs`], always with an expected old value; reading takes
//! no lock and refreshes no index; our own git calls start none of the repository's hooks or
//! config-defined programs; the user's index, HEAD and checkout change only in
//! [`snapshot`] (a finished stage) and [`undo`] (a restore the user asked for).

pub mod checkpoint;
pub mod fault;
mod files;
pub mod git_cli;
pub mod oid;
pub mod protect;
pub mod refs;
pub mod repo;
pub mod snapshot;
pub mod undo;

pub use git_cli::{Git, GitError};
pub use oid::Oid;
pub use repo::{Head, OpenError, Repo};

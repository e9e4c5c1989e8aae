//! What a stage may do with its tools, and whether a back end can hold it to that.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::sandbox::Sandbox;

/// What a stage may do with its tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSurface {
    /// Look, change nothing (the back end asks for a structured answer).
    ReadOnly,
    /// Read, and edit these files and no others. No commands.
    ReadEdit {
        /// Relative to the directory of the request.
        only: Vec<PathBuf>,
    },
    /// Work in the directory: read, edit, run commands.
    Workspace,
}

impl ToolSurface {
    /// The name used in the environment of commands and in messages.
    pub fn name(&self) -> &'static str {
        match self {
            ToolSurface::ReadOnly => "read_only",
            ToolSurface::ReadEdit { .. } => "read_edit",
            ToolSurface::Workspace => "workspace",
        }
    }
}

impl ToolSurface {
    /// Whether these walls hold a program that works in `dir` to it, whatever its back end can do.
    pub fn is_held_by(&self, walls: &Sandbox, dir: &Path) -> bool {
        match self {
            ToolSurface::ReadOnly => walls.keeps(dir),
            // Made for a directory, not for single files in it.
            ToolSurface::ReadEdit { .. } => false,
            ToolSurface::Workspace => true,
        }
    }
}

impl fmt::Display for ToolSurface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolSurface::ReadOnly => "only look",
            ToolSurface::ReadEdit { .. } => "edit only the files named",
            ToolSurface::Workspace => "work in the directory",
        })
    }
}

/// How a back end holds an agent to a [`ToolSurface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// The back end itself does, where the agent works.
    InPlace,
    /// Only away from the tree: [`crate::private_copy::run`] gives it copies of the files and
    /// takes back those and nothing else.
    OnACopy,
}

/// A back end cannot hold an agent to a [`ToolSurface`] by itself, so it must not be used for that
/// unless walls do ([`ToolSurface::is_held_by`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{agent} cannot be made to {surface}: {why}")]
pub struct Refusal {
    /// The back end.
    pub agent: &'static str,
    /// What it cannot be held to.
    pub surface: ToolSurface,
    /// What is missing.
    pub why: String,
}

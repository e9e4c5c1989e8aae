//! Whole runs of the built `dex` with agents that are programs of their own: the real Claude Code
//! and Codex CLIs against the fake model on loopback, and a shell script through the `command` back end.

mod claude;
mod codex;
mod command;
mod hostile;
mod repositories;
mod world;

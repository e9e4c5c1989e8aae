//! Whole runs of the built `dex` with agents that are programs of their own: the real Claude Code
//! CLI against the fake model on loopback, and a shell script through the `command` back end.

mod claude;
mod command;
mod hostile;
mod repositories;
mod world;

//! `dex run` as a user has it: the built binary, a real repository, stock git as the oracle.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod agent_files;
mod agent_git;
mod agent_index;
mod by_hand;
mod disk_full;
mod flows;
mod guards;
mod hostile;
mod kill;
mod limits;
mod locks;
mod main_job;
mod odd;
mod odd_files;
mod old_dex;
mod prompts;
mod questions;
mod read_run;
mod ready;
mod resuming;
mod reviewed;
mod secrets;
mod starting;
mod stopping;
mod support;
mod taking_up;
mod terminal;
mod walls;

//! `dex run` as a user has it: the built binary, a real repository, stock git as the oracle.

mod agent_git;
mod kill;
mod locks;
mod main_job;
mod odd;
mod odd_files;
mod secrets;
mod support;

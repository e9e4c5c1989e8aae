//! `dex run` as a user has it: the built binary, a real repository, stock git as the oracle.

mod flows;
mod kill;
mod limits;
mod main_job;
mod questions;
mod starting;
mod stopping;
mod support;

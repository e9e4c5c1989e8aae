//! `dex run` as a user has it: the built binary, a real repository, stock git as the oracle.

mod flows;
mod kill;
mod main_job;
mod support;

//! The commands, one module each.

pub mod answer;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod generated;
pub mod init;
pub mod log;
pub mod prompts;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod show;
pub mod status;
pub mod stop;
pub mod timeline;
pub mod undo;

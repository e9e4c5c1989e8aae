//! What the programs share: arguments, errors with exit codes, and all printing.
//!
//! The only crate that prints. Each command is a function in [`commands`] that returns an
//! [`exit::Exit`] or an [`error::Failure`]; nothing else ends the process.

pub mod args;
pub mod commands;
pub mod error;
pub mod exit;
pub mod pager;
pub mod progress;
pub mod ready;
pub mod session;
pub mod ui;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Color, Command, Dex};
use crate::error::Failure;
use crate::exit::Exit;

/// The whole of `dex`.
pub fn dex_main() -> ExitCode {
    if let Some(status) = agents::guard::main_if_guard() {
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    let args = Dex::try_parse().unwrap_or_else(|told| {
        if told.use_stderr() {
            told.exit();
        }
        // Help and version are results like any other.
        if let Err(error) = told.print().and_then(|()| std::io::stdout().flush()) {
            ui::unwritten(&error);
        }
        std::process::exit(0)
    });
    let choice = match args.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    if args.no_pager {
        pager::forbid();
    }
    let exit = match dispatch(&args) {
        Ok(exit) => exit,
        Err(failure) => {
            ui::failure(&failure);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

fn dispatch(args: &Dex) -> Result<Exit, Failure> {
    let dir = args.dir.as_deref().unwrap_or(std::path::Path::new("."));
    let status = Command::Status(args::Status::default());
    match args.command.as_ref().unwrap_or(&status) {
        Command::Init(it) => commands::init::init(dir, it),
        Command::Demo(it) => commands::demo::demo(it),
        Command::Run(it) => commands::run::run(dir, it),
        Command::Resume(it) => commands::resume::resume(dir, it),
        Command::Stop(it) => commands::stop::stop(dir, it),
        Command::Answer(it) => commands::answer::answer(dir, it),
        Command::Status(it) => commands::status::status(dir, it),
        Command::Report(it) => commands::report::report(dir, it),
        Command::Runs(it) => commands::runs::runs(dir, it),
        Command::Timeline(it) => commands::timeline::timeline(dir, it),
        Command::Log(it) => commands::log::log(dir, it),
        Command::Show(it) => commands::show::show(dir, it),
        Command::Undo(it) => commands::undo::undo(dir, it),
        Command::Redo(it) => commands::undo::redo(dir, it),
        Command::Config(it) => commands::config::config(dir, it),
        Command::Prompts(it) => commands::prompts::prompts(dir, it),
        Command::Doctor(it) => commands::doctor::doctor(dir, it),
        Command::Completions(it) => commands::generated::completions(it),
        Command::Man(it) => commands::generated::man(it),
    }
}

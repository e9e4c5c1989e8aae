//! `dex completions` and `dex man`: made from the command line itself, so they cannot differ.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::ui;

/// Prints a completion script.
pub fn completions(args: &args::Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::Dex::command(), "dex", &mut script);
    ui::out(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Done)
}

/// Writes `dex.1`, `git-dex.1` and one page for each command into a directory, nothing else.
pub fn man(args: &args::Man) -> Result<Exit, Failure> {
    std::fs::create_dir_all(&args.dir)?;
    let mut dex = args::Dex::command();
    dex.build();
    let mut pages = vec![("dex".to_owned(), dex.clone())];
    // `git help dex` looks for this name.
    pages.push((
        "git-dex".to_owned(),
        dex.clone().display_name("git-dex").bin_name("git dex"),
    ));
    for command in dex
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && it.get_name() != "help")
    {
        let name = format!("dex-{}", command.get_name());
        pages.push((name.clone(), command.clone().display_name(name)));
    }
    let mut written = Vec::new();
    for (name, command) in pages {
        written.push(page(&args.dir, &name, command)?);
    }
    for path in &written {
        ui::out(path.display().to_string());
    }
    ui::talk(format!("wrote {}", ui::count(written.len(), "page")));
    Ok(Exit::Done)
}

fn page(dir: &Path, name: &str, command: clap::Command) -> Result<PathBuf, Failure> {
    let path = dir.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .render(&mut text)?;
    std::fs::write(&path, text).map_err(|error| {
        Failure::new(Exit::Failed, format!("{} was not written", path.display())).because(&error)
    })?;
    Ok(path)
}

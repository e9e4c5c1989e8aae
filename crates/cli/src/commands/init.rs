//! `dex init`

use std::path::Path;

use dex::config;
use dex::files::store;
use gitdb::Repo;
use serde_json::json;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui::{self, NAME, clean, styled};

/// Gets a repository ready: settings, exclude lines, the verify command.
pub fn init(dir: &Path, args: &args::Init) -> Result<Exit, Failure> {
    let mut repo = session::open(dir)?;
    let root = session::root(&repo)?.to_owned();
    let blocking = gitdb::refs::read(&repo, dex::names::BLOCKING_BRANCH)?;
    if blocking.is_some() {
        return Err(Failure::new(
            Exit::Moved,
            "a branch named dex is in the way of dex/…; nothing was changed",
        )
        .hint(
            "Rename it: `git branch -m dex my-dex`. Git cannot hold `dex` and `dex/…` at once.",
        ));
    }
    if args.allow_filters {
        allow_filters(&repo)?;
        repo.allow_filters(true);
    }
    let lines: Vec<String> = dex::run::setup::excluded();
    repo.exclude(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    if let Some(agent) = &args.agent {
        config::set_in_project(&root, "agent", json!(agent))?;
    }
    let current = session::load_config(&repo, &Vec::new())?;
    match (&args.verify, &current.verify_command) {
        (Some(command), _) => {
            config::set_in_project(&root, "verifyCommand", json!(command))?;
            ui::out(format!("verify command: {}", styled(NAME, clean(command))));
        }
        (None, Some(command)) => {
            ui::out(format!(
                "verify command: {} (kept)",
                styled(NAME, clean(command))
            ));
        }
        (None, None) => match config::detect_verify_command(&root) {
            Some((command, why)) => {
                config::set_in_project(&root, "verifyCommand", json!(command))?;
                ui::out(format!(
                    "verify command: {} ({why})",
                    styled(NAME, clean(&command))
                ));
            }
            None => ui::out(
                "verify command: none found; set one with `dex config verifyCommand \"CMD\"`",
            ),
        },
    }
    let current = session::load_config(&repo, &Vec::new())?;
    ui::out(format!(
        "agent: {}",
        styled(NAME, session::agent_name(current.agent))
    ));
    if repo.identity()?.is_none() {
        ui::talk(
            "git has no identity yet: `git config user.name \"Your Name\"` and `git config user.email you@example.com`",
        );
    }
    ui::talk(
        "Write what you want into GOAL.md, then `dex run`; or `dex run -m \"what you want\" --small`.",
    );
    Ok(Exit::Done)
}

fn allow_filters(repo: &Repo) -> Result<(), Failure> {
    let filters = repo.own_filters()?;
    if filters.is_empty() {
        ui::out("filters: this repository's own configuration names none");
        return Ok(());
    }
    for line in &filters {
        ui::out(format!("allowed filter: {}", clean(line)));
    }
    let digest = dex::run::setup::digest(filters.join("\n").as_bytes());
    store::write(
        &repo.common_dir,
        &session::allowed_file(repo),
        format!("{digest}\n").as_bytes(),
    )?;
    Ok(())
}

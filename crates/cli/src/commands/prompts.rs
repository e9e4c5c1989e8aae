//! `dex prompts`

use std::collections::BTreeMap;
use std::path::Path;

use dex::files::store;
use dex::prompt;
use gitdb::Repo;
use serde_json::json;

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, DIM, NAME, clean, clean_lines, styled};

/// A stage's prompt as the next run would use it.
pub(crate) struct Prompt {
    pub(crate) stage: &'static str,
    /// The project's own file takes the place of ours.
    pub(crate) overridden: bool,
    /// From the root.
    pub(crate) path: String,
    text: String,
    /// Why it cannot be used.
    pub(crate) problem: Option<String>,
}

/// Lists the prompts, or shows one.
pub fn prompts(dir: &Path, args: &args::Prompts) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let all = read(&repo)?;
    let Some(stage) = &args.stage else {
        if args.json {
            let list = all.iter().map(|it| {
                json!({ "stage": it.stage, "overridden": it.overridden, "path": it.path, "problem": it.problem })
            });
            ui::json(&json!({ "prompts": list.collect::<Vec<_>>() }));
        } else {
            list(&all);
        }
        return Ok(Exit::Done);
    };
    let Some(prompt) = all.iter().find(|it| it.stage == stage) else {
        let names: Vec<&str> = prompt::stages().collect();
        return Err(Failure::new(
            Exit::Usage,
            format!("no stage with a prompt is called {stage}"),
        )
        .hint(format!("There are {}.", names.join(", "))));
    };
    if args.json {
        ui::json(&json!({
            "stage": prompt.stage, "overridden": prompt.overridden, "path": prompt.path,
            "problem": prompt.problem, "text": prompt.text,
        }));
        return Ok(Exit::Done);
    }
    let whose = if prompt.overridden {
        &prompt.path
    } else {
        "built in"
    };
    ui::talk(styled(DIM, format!("{}: {}", prompt.stage, clean(whose))));
    if let Some(problem) = &prompt.problem {
        ui::talk(styled(
            BAD,
            format!("it cannot be used: {}", clean(problem)),
        ));
    }
    let _paging = pager::start();
    ui::out(clean_lines(prompt.text.trim_end()));
    Ok(Exit::Done)
}

/// Every prompt, the project's own where there is one.
pub(crate) fn read(repo: &Repo) -> Result<Vec<Prompt>, Failure> {
    let empty: BTreeMap<&str, String> = prompt::names()
        .iter()
        .map(|name| (*name, String::new()))
        .collect();
    let mut all = Vec::new();
    for stage in prompt::stages() {
        let path = format!(".dex/prompts/{stage}.md");
        let own = match repo.work_tree() {
            Some(root) => store::read(&root.join(&path))?,
            None => None,
        };
        let overridden = own.is_some();
        let text = match own {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => prompt::built_in(stage).unwrap_or_default().to_owned(),
        };
        let problem = prompt::render(&text, &empty).err().map(|it| it.to_string());
        all.push(Prompt {
            stage,
            overridden,
            path,
            text,
            problem,
        });
    }
    Ok(all)
}

fn list(all: &[Prompt]) {
    for it in all {
        let whose = match (it.overridden, &it.problem) {
            (_, Some(problem)) => styled(
                BAD,
                format!("{} cannot be used: {}", it.path, clean(problem)),
            ),
            (true, None) => format!("the project's own, {}", it.path),
            (false, None) => styled(DIM, "built in"),
        };
        ui::out(format!(
            "{} {whose}",
            styled(NAME, format!("{:<24}", it.stage))
        ));
    }
    ui::talk(
        "show one with `dex prompts STAGE`; a file .dex/prompts/STAGE.md takes the place of ours",
    );
}

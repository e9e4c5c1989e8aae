//! `dex demo`

use std::path::{Path, PathBuf};

use dex::files::store;
use gitdb::Repo;

use crate::args;
use crate::commands::run;
use crate::error::Failure;
use crate::exit::Exit;
use crate::ui::{self, BOLD, DIM, NAME, styled};

const FILES: [(&str, &str); 4] = [
    ("notes.sh", include_str!("../../demo/notes.sh")),
    ("run-tests.sh", include_str!("../../demo/run-tests.sh")),
    (".gitignore", "notes.txt\n"),
    ("README.md", "# notes\n\nA throw-away project, made by `dex demo`.\n"),
];
const GOAL: &str = include_str!("../../demo/GOAL.md");
const SCRIPT: &str = include_str!("../../demo/mock-config.json");
const CONFIG: &str =
    "{\n  \"agent\": \"scripted\",\n  \"verifyCommand\": \"sh run-tests.sh\"\n}\n";

/// Makes a throw-away repository and a goal, and runs three features in it.
pub fn demo(args: &args::Demo) -> Result<Exit, Failure> {
    let dir = make_place()?;
    make_project(&dir)?;
    ui::talk(format!("{} {}", styled(BOLD, "a throw-away repository:"), dir.display()));
    ui::talk(styled(DIM, "its goal: keep one-line notes at the shell: add, list, find"));
    ui::talk(styled(
        DIM,
        "the agent is scripted; every stage is a real commit, every verify runs `sh run-tests.sh`\n",
    ));
    let speed = if args.fast { 0.0 } else { crate::session::script_speed() };
    let wanted = args::Run {
        goal: None,
        message: None,
        agent: None,
        budget: None,
        cycles: None,
        small: false,
        ask: false,
        step: false,
        detach: false,
        worktree: false,
        save: false,
        allow: Vec::new(),
    };
    let exit = run::start_and_carry_out(&dir, &wanted, run::Pace { speed, person: false })?;
    look_at_it(&dir)?;
    Ok(exit)
}

/// A new directory of ours. Only throw-away things are ever kept in a temporary place.
fn make_place() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir().canonicalize()?;
    for n in 1..10_000 {
        let dir = base.join(format!("dex-demo-{}-{n}", std::process::id()));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new(Exit::Failed, "no free name for the demo's directory was found"))
}

fn make_project(dir: &Path) -> Result<(), Failure> {
    let repo = Repo::init(dir, "main", "Dex Demo", "demo@example.com")?;
    for (path, text) in FILES {
        store::write(dir, &dir.join(path), text.as_bytes())?;
    }
    let lines = dex::run::setup::excluded();
    repo.exclude(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    repo.commit_work_tree("an empty notes program\n").map_err(|error| {
        Failure::new(Exit::Failed, "the demo's first commit could not be made").because(&error)
    })?;
    store::write(dir, &dir.join("GOAL.md"), GOAL.as_bytes())?;
    store::write(dir, &dir.join(".dex/dex-config.json"), CONFIG.as_bytes())?;
    store::write(dir, &dir.join(".dex/mock-config.json"), SCRIPT.as_bytes())?;
    Ok(())
}

fn look_at_it(dir: &Path) -> Result<(), Failure> {
    let me = std::env::current_exe()?;
    let me = me.display();
    let at = dir.display();
    ui::talk(format!("\n{}", styled(BOLD, "Look at it with stock git:")));
    for command in [
        format!("git -C {at} log --oneline --grep='\\[checkpoint:'"),
        format!("git -C {at} branch --list 'dex/*'"),
        format!("git -C {at} show --stat HEAD~2"),
    ] {
        ui::talk(format!("  {}", styled(NAME, command)));
    }
    ui::talk(styled(BOLD, "and with dex:"));
    for command in ["timeline", "report", "show verify:2#1", "log"] {
        ui::talk(format!("  {}", styled(NAME, format!("{me} -C {at} {command}"))));
    }
    ui::talk(format!("It can go when you are done: {}", styled(NAME, format!("rm -r {at}"))));
    Ok(())
}

//! `dex undo` and `dex redo`
//!
//! What is said before and after comes from the same look at entry, refs and disk
//! ([`preview`]), so that message and result agree (case K04).

use std::path::Path;

use dex::files::lock::{self, RunLock};
use gitdb::Repo;
use gitdb::undo::{self, Entry, EntryKind, UndoError};
use serde_json::{Value, json};

use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::session;
use crate::ui::{self, BOLD, DIM, NAME, WARN, clean, styled};

mod preview;
use preview::Preview;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Undo,
    Redo,
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Undo => "undo",
            Way::Redo => "redo",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Way::Undo => "undone",
            Way::Redo => "redone",
        }
    }

    fn back(self) -> &'static str {
        match self {
            Way::Undo => "dex redo",
            Way::Redo => "dex undo",
        }
    }

    fn pick(self, entries: &[Entry]) -> Option<&Entry> {
        match self {
            Way::Undo => undo::newest_to_undo(entries),
            Way::Redo => undo::newest_to_redo(entries),
        }
    }
}

/// Puts back what the last destructive step replaced, or lists what can be.
pub fn undo(dir: &Path, args: &args::Undo) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    if args.list {
        return list(&repo, args.json);
    }
    go(&repo, Way::Undo, args.dry_run, args.yes)
}

/// Takes the last undo back.
pub fn redo(dir: &Path, args: &args::Redo) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    go(&repo, Way::Redo, args.dry_run, args.yes)
}

fn go(repo: &Repo, way: Way, dry_run: bool, yes: bool) -> Result<Exit, Failure> {
    let root = session::root(repo)?;
    refuse_while_running(repo, root, way)?;
    let entries = undo::list(repo)?;
    let Some(entry) = way.pick(&entries) else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is nothing to {}", way.word()),
        )
        .hint("`dex undo --list` shows what is kept."));
    };
    let preview = Preview::read(repo, entry)?;
    ui::talk(format!(
        "{} {}",
        styled(BOLD, format!("{}:", way.word())),
        clean(&entry.reason)
    ));
    preview.lines(way.back()).iter().for_each(ui::talk);
    ui::talk(styled(
        DIM,
        format!(
            "What is there now is kept first; `{}` brings it back.",
            way.back()
        ),
    ));
    if dry_run {
        ui::talk("nothing was changed (--dry-run)");
        return Ok(Exit::Done);
    }
    confirm(way, yes)?;
    // No run may begin while files change under it.
    let lock = RunLock::acquire(root, &repo.git_dir)?;
    dex::run::clear_leftovers(repo)?;
    let done = match way {
        Way::Undo => undo::undo(repo, Some(entry.n), now()),
        Way::Redo => undo::redo(repo, now()),
    };
    drop(lock);
    let done = done.map_err(|error| failed(way, &error))?;
    ui::out(format!("{}: {}", way.done(), clean(&done.entry.reason)));
    // Read again, after the fact. The redone entry is spent, and gone.
    if way == Way::Undo {
        let left = Preview::read(repo, &done.entry)?;
        if !left.is_in_place() {
            ui::talk(styled(
                WARN,
                "not all of it is in place; what still differs:",
            ));
            left.lines(way.back()).iter().for_each(ui::talk);
        }
    }
    ui::talk(format!("`{}` takes it back", way.back()));
    Ok(Exit::Done)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn refuse_while_running(repo: &Repo, root: &Path, way: Way) -> Result<(), Failure> {
    let Some(holder) = lock::holder(root, &repo.git_dir) else {
        return Ok(());
    };
    let who = match holder.pid {
        0 => "a process".to_owned(),
        pid => format!("process {pid}"),
    };
    Err(Failure::new(
        Exit::Locked,
        format!(
            "{who} works on a run in this work tree; nothing was {}",
            way.done()
        ),
    )
    .hint(format!(
        "Stop it first: `dex stop`, then `dex {}`.",
        way.word()
    )))
}

fn confirm(way: Way, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let refused = |why: &str| {
        Failure::new(Exit::Waiting, format!("{why}; nothing was {}", way.done()))
            .hint(format!("Type `dex {} --yes`.", way.word()))
    };
    if !ui::person_is_there() {
        return Err(refused("nobody is here to confirm"));
    }
    match ui::ask_line("Go on? y or n:").as_deref() {
        Some("y" | "Y" | "yes") => Ok(()),
        _ => Err(refused("not confirmed")),
    }
}

fn failed(way: Way, error: &UndoError) -> Failure {
    let headline = format!("nothing was {}", way.done());
    match error {
        UndoError::Nothing | UndoError::NoSuchEntry(_) => {
            Failure::new(Exit::NotFound, headline).because(error)
        }
        UndoError::RefMoved { .. } => Failure::new(Exit::Moved, headline)
            .because(error)
            .hint("Look at what moved (`git log`), then type the same command again."),
        UndoError::Damaged { .. } => Failure::new(Exit::Failed, headline).because(error),
        UndoError::Git(_) => Failure::new(Exit::Failed, format!("{} did not finish", way.word()))
            .because(error)
            .hint("Mend what is named above, then type the same command again: it goes on where it stopped."),
    }
}

fn list(repo: &Repo, as_json: bool) -> Result<Exit, Failure> {
    let entries = undo::list(repo)?;
    if as_json {
        let all = entries.iter().map(|it| to_json(repo, it));
        let all: Vec<Value> = all.collect::<Result<_, _>>()?;
        ui::json(&json!({ "entries": all }));
        return Ok(Exit::Done);
    }
    if entries.is_empty() {
        ui::talk("there is nothing to undo");
    }
    let (next_undo, next_redo) = (
        undo::newest_to_undo(&entries).map(|it| it.n),
        undo::newest_to_redo(&entries).map(|it| it.n),
    );
    for it in &entries {
        let mark = match Some(it.n) {
            n if n == next_undo => styled(NAME, "  ← dex undo"),
            n if n == next_redo => styled(NAME, "  ← dex redo"),
            _ => String::new(),
        };
        let stages = leaving(repo, it)?.len();
        let older = match stages {
            0 => String::new(),
            some => styled(
                WARN,
                format!("  from before {}", ui::count(some, "finished stage")),
            ),
        };
        ui::out(format!(
            "{:>4}  {}  {} {}{older}{mark}",
            it.n,
            ui::moment(&session::rfc3339(it.time_unix)),
            clean(&it.reason),
            styled(DIM, format!("({})", ui::size(it.bytes))),
        ));
    }
    Ok(Exit::Done)
}

/// The finished stages that would leave their branch. What an entry that cannot be read would do
/// is not known; `dex undo` says so when it comes to it.
fn leaving(repo: &Repo, entry: &Entry) -> Result<Vec<String>, Failure> {
    match entry.kind {
        EntryKind::Undo | EntryKind::Redo { .. } => preview::stages(repo, entry),
        EntryKind::Redone | EntryKind::Interrupted => Ok(Vec::new()),
    }
}

fn to_json(repo: &Repo, entry: &Entry) -> Result<Value, Failure> {
    let (kind, of) = match entry.kind {
        EntryKind::Undo => ("undo", None),
        EntryKind::Redo { of } => ("redo", Some(of)),
        EntryKind::Redone => ("redone", None),
        EntryKind::Interrupted => ("interrupted", None),
    };
    Ok(json!({
        "n": entry.n,
        "kind": kind,
        "of": of,
        "reason": entry.reason,
        "time": session::rfc3339(entry.time_unix),
        "bytes": entry.bytes,
        "commit": entry.oid,
        "beforeStages": leaving(repo, entry)?,
    }))
}

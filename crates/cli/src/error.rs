//! Errors as people read them: what did not happen, why, what to type next, and the exit code.

use std::error::Error;

use dex::facts::FactsError;
use dex::files::lock::LockError;
use dex::files::store::FileError;
use dex::run::RunError;
use dex::run::setup::StartError;
use gitdb::snapshot::SnapshotError;
use gitdb::{GitError, OpenError};

use crate::exit::Exit;

/// Something that ends the program.
#[derive(Debug)]
pub struct Failure {
    /// What did not happen.
    pub headline: String,
    /// Why, outermost first.
    pub causes: Vec<String>,
    /// What to type next.
    pub hint: Option<String>,
    /// Exit code.
    pub exit: Exit,
}

impl Failure {
    /// A failure without a cause of its own.
    pub fn new(exit: Exit, headline: impl Into<String>) -> Failure {
        Failure {
            headline: headline.into(),
            causes: Vec::new(),
            hint: None,
            exit,
        }
    }

    /// With what to type next.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// With a cause and its causes.
    pub fn because(mut self, error: &dyn Error) -> Failure {
        self.causes.extend(chain(error));
        self
    }

    /// With another headline; the old one becomes a cause.
    pub fn while_doing(mut self, headline: impl Into<String>) -> Failure {
        let old = std::mem::replace(&mut self.headline, headline.into());
        self.causes.insert(0, old);
        self
    }
}

/// An error and everything under it, as text.
fn chain(error: &dyn Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut below = error.source();
    while let Some(error) = below {
        let text = error.to_string();
        if texts.last() != Some(&text) {
            texts.push(text);
        }
        below = error.source();
    }
    texts
}

/// The failure of an error: its own text as headline, what is under it as causes.
fn plain(exit: Exit, error: &dyn Error) -> Failure {
    let mut texts = chain(error);
    let headline = texts.remove(0);
    Failure {
        headline,
        causes: texts,
        hint: None,
        exit,
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        match &error {
            OpenError::NotARepository(_) => plain(Exit::NotFound, &error)
                .hint("Go to a repository, or make one with `git init`."),
            OpenError::UnsafeOwner(_) => plain(Exit::Usage, &error)
                .hint("Git names the command that trusts this one directory; nothing was changed."),
            OpenError::GitMissing => plain(Exit::Usage, &error).hint("Install git 2.39 or newer."),
            OpenError::GitTooOld { .. } => {
                plain(Exit::Usage, &error).hint("Install git 2.39 or newer.")
            }
            OpenError::Unsupported(_) => plain(Exit::Usage, &error),
            OpenError::Git(_) => plain(Exit::Failed, &error),
        }
    }
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Failure {
        match &error {
            GitError::Locked { .. } => plain(Exit::Locked, &error)
                .hint("Wait for the process that holds it. If none does, `dex doctor` tells more."),
            GitError::NotLocal { .. } => plain(Exit::Failed, &error).hint(
                "Nothing was changed. Type it again where the remote can be reached; `git fetch --refetch --no-filter` brings everything here.",
            ),
            _ => plain(Exit::Failed, &error),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        match &error {
            FileError::Io { .. } => plain(Exit::Failed, &error),
            FileError::Malformed { path, .. } if path.ends_with("live.json") => {
                plain(Exit::Usage, &error).hint(format!(
                    "Nothing was changed. Move it away (`mv {0} {0}.bad`): the run then goes on from its commits with `dex resume`.",
                    path.display()
                ))
            }
            FileError::Malformed { .. } | FileError::Setting { .. } => plain(Exit::Usage, &error),
        }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Failure {
        match &error {
            LockError::Held { .. } => plain(Exit::Locked, &error)
                .hint("See it with `dex status`, stop it with `dex stop`, or work in a tree of its own with `dex run --worktree`."),
            _ => plain(Exit::Failed, &error),
        }
    }
}

impl From<FactsError> for Failure {
    fn from(error: FactsError) -> Failure {
        match error {
            FactsError::Git(error) => error.into(),
            FactsError::File(error) => Failure::from(error),
            FactsError::NotFound(_) => {
                plain(Exit::NotFound, &error).hint("See which there are with `dex runs`.")
            }
            FactsError::NoCheckpoint(_) => plain(Exit::NotFound, &error).hint(
                "`dex timeline` lists the stages: name one as plan:2, verify:2#1 or RUN@plan:2.",
            ),
            FactsError::Several(_) => {
                plain(Exit::Usage, &error).hint("Name one: its branch, its id or the six digits.")
            }
            FactsError::NoRuns => {
                plain(Exit::NotFound, &error).hint("Start one with `dex run GOAL.md`.")
            }
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        match error {
            StartError::Git(error) => Failure::from(error),
            StartError::File(error) => Failure::from(error),
            StartError::Run(error) => Failure::from(error),
            StartError::Locked(error) => Failure::from(error),
            other => start(&other),
        }
        .while_doing("the run was not started; nothing was changed")
    }
}

fn start(error: &StartError) -> Failure {
    let (exit, hint) = match error {
        StartError::Bare => {
            (Exit::Usage, "Make a work tree with `git worktree add PATH`, and run there.".to_owned())
        }
        StartError::Unborn => (
            Exit::Usage,
            "Make a first commit: `git commit --allow-empty -m \"first commit\"`.".to_owned(),
        ),
        StartError::Operation(operation) => (
            Exit::Moved,
            format!("End or abort it first (`git status` says how): {operation:?}."),
        ),
        StartError::NoIdentity => (
            Exit::Usage,
            "Type `git config user.name \"Your Name\"` and `git config user.email you@example.com`."
                .to_owned(),
        ),
        StartError::BlockingBranch => (
            Exit::Moved,
            "Rename it: `git branch -m dex my-dex`. Git cannot hold `dex` and `dex/…` at once."
                .to_owned(),
        ),
        StartError::Dirty(paths) => (Exit::Moved, dirty_hint(paths)),
        StartError::NoSandbox(_) => (Exit::Usage, NO_SANDBOX.to_owned()),
        StartError::NotHeld(_) => (Exit::Agent, NOT_HELD.to_owned()),
        StartError::Signing(_) => (
            Exit::Usage,
            "Unlock the key first, or type `dex config sign never` to leave stage commits unsigned."
                .to_owned(),
        ),
        StartError::FilterNotAllowed { .. } => (
            Exit::Usage,
            "If you trust the program that .git/config names for it, type `dex init --allow-filters`."
                .to_owned(),
        ),
        StartError::NoGoal(path) => (
            Exit::NotFound,
            format!("Write what you want into {path}, or type `dex run -m \"what you want\"`."),
        ),
        StartError::GoalTooLarge { .. } => (
            Exit::Usage,
            "Shorten it; what agents only look up can be in files of its own.".to_owned(),
        ),
        StartError::BranchExists(_) => (Exit::Moved, "Type the same command again.".to_owned()),
        StartError::NotWritable { .. } => {
            (Exit::Failed, "Make it writable for you, or work in a clone of your own.".to_owned())
        }
        StartError::HomeDirectory(_) => (
            Exit::Usage,
            "Work in a repository of its own below it; everything in here would be taken in."
                .to_owned(),
        ),
        StartError::Locked(_) | StartError::Git(_) | StartError::File(_) | StartError::Run(_) => {
            (Exit::Failed, String::new())
        }
    };
    let failure = plain(exit, error);
    if hint.is_empty() {
        failure
    } else {
        failure.hint(hint)
    }
}

/// What to do when a required sandbox cannot be made.
const NO_SANDBOX: &str = "`dex doctor` says what this machine can enforce. Install bubblewrap (`bwrap`), or take what there is: `dex config sandbox auto`.";

/// What to do when nothing would keep an agent to looking.
pub(crate) const NOT_HELD: &str = "Install bubblewrap (`bwrap`), or choose an agent that can be held to it (`dex config agent claude`), or let this one work on trust: `dex config sandbox off`.";

fn dirty_hint(paths: &[String]) -> String {
    format!(
        "Not committed: {}. Commit or stash them; or commit them now with `--save`; or leave them alone and work in a tree of its own with `--worktree`.",
        crate::ui::some_of(paths, 5)
    )
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        match error {
            RunError::Facts(error) => Failure::from(error),
            RunError::Git(error) => Failure::from(error),
            RunError::File(error) => Failure::from(error),
            RunError::Snapshot(SnapshotError::Git(error)) => Failure::from(error),
            RunError::Snapshot(error) => plain(Exit::Failed, &error),
            RunError::PutBack(error) => plain(Exit::Failed, &error),
            RunError::Sandbox(_) => plain(Exit::Usage, &error).hint(NO_SANDBOX),
            RunError::Prompt { .. } => plain(Exit::Usage, &error)
                .hint("Mend the file under .dex/prompts/, then `dex resume`. `dex prompts STAGE` shows ours."),
            RunError::BranchGone { ref branch, ref tip } => {
                let hint = match tip {
                    Some(tip) => format!(
                        "Bring it back with `git branch {branch} {tip}` and `git switch {branch}`, then `dex resume`."
                    ),
                    None => "`git reflog` may still know its tip: `git branch NAME TIP` brings it back.".to_owned(),
                };
                plain(Exit::Moved, &error).hint(hint)
            }
            RunError::ElsewhereNow { ref branch, .. } => {
                let hint = format!("Go back with `git switch {branch}`, then `dex resume`.");
                plain(Exit::Moved, &error).hint(hint)
            }
            RunError::Unmarked(ref lost) => {
                let hint = format!(
                    "Give it its message back with {}, or have the stage done again after {}; then `dex resume`.",
                    lost.way_back(),
                    lost.way_on()
                );
                plain(Exit::Moved, &error).hint(hint)
            }
            RunError::Operation(_) => plain(Exit::Moved, &error)
                .hint("End or abort it (`git status` says how), then `dex resume`."),
            RunError::HalfDone(_) => plain(Exit::Waiting, &error).hint(
                "Go on with `dex resume --keep` (its files stay and it is worked on again) or `dex resume --discard` (its files go back to before the stage). Either way they are kept as an undo entry first.",
            ),
            RunError::Unanswered => {
                plain(Exit::Waiting, &error).hint("Answer with `dex answer`, then `dex resume`.")
            }
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        plain(Exit::Failed, &error)
    }
}

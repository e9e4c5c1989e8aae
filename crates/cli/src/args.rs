//! The command line of `dex`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;

/// Unattended feature runs: every finished stage is a commit, a run is a branch.
#[derive(Debug, Parser)]
#[command(name = "dex", version, max_term_width = 100, after_help = exit::TABLE)]
#[command(disable_help_subcommand = false, infer_subcommands = false)]
pub struct Dex {
    /// Work in this directory instead of the current one.
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    /// When to use colour.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto, global = true)]
    pub color: Color,
    /// Never start a pager.
    #[arg(long, global = true)]
    pub no_pager: bool,
    /// What to do; without it, `dex status`.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Get this repository ready: find the verify command, write the settings file.
    Init(Init),
    /// Make a throw-away repository and run three features in it with the scripted agent.
    Demo(Demo),
    /// Start a run: from a goal to a branch on which every stage is a commit.
    Run(Run),
    /// Go on with a run that stopped, was stopped, or whose process died.
    Resume(Resume),
    /// Stop a run after the stage in progress.
    Stop(Stop),
    /// Answer what a run asks.
    Answer(Answer),
    /// Say what a run is doing (also without any command).
    Status(Status),
    /// The morning after: what came of each feature, what it cost, what to do next.
    Report(Report),
    /// List the runs of this repository.
    Runs(Json),
    /// List a run's finished stages.
    Timeline(Timeline),
    /// Show what the agent did, step by step.
    Log(Log),
    /// Show one finished stage.
    Show(Show),
    /// Put back what the last destructive step replaced.
    Undo(Undo),
    /// Take the last undo back.
    Redo(Redo),
    /// Show settings with where each comes from, or set one.
    Config(Config),
    /// List the stages' prompts, or show one.
    Prompts(Prompts),
    /// Check git, the repository, the settings and the agents.
    Doctor(Json),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Write manual pages into a directory.
    Man(Man),
}

/// `--json` alone.
#[derive(Debug, Args)]
pub struct Json {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex init`
#[derive(Debug, Args)]
pub struct Init {
    /// The agent to use: scripted, command, claude, codex, acp.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The command that says whether the project works.
    #[arg(long, value_name = "CMD")]
    pub verify: Option<String>,
    /// Let filter programs run that only this repository's own configuration names.
    #[arg(long)]
    pub allow_filters: bool,
}

/// `dex demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Without waiting.
    #[arg(long)]
    pub fast: bool,
}

/// `dex run`
#[derive(Debug, Args)]
pub struct Run {
    /// The goal file (GOAL.md by default), or - to read the goal from standard input.
    #[arg(value_name = "GOAL.md")]
    pub goal: Option<String>,
    /// The goal as text.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "goal")]
    pub message: Option<String>,
    /// The agent to use: scripted, command, claude, codex, acp.
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Dollars the run may cost.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = positive)]
    pub budget: Option<f64>,
    /// Cycles the run may take.
    #[arg(long, value_name = "N")]
    pub cycles: Option<u32>,
    /// For goals of one sentence: no clarification, one feature.
    #[arg(long)]
    pub small: bool,
    /// Stop at questions instead of taking the recommended answer.
    #[arg(long)]
    pub ask: bool,
    /// Pause after every stage.
    #[arg(long)]
    pub step: bool,
    /// Work in the background; watch with `dex status --watch`.
    #[arg(long)]
    pub detach: bool,
    /// Work in a work tree of its own and leave this one alone.
    #[arg(long, conflicts_with = "save")]
    pub worktree: bool,
    /// Commit uncommitted changes on the current branch first.
    #[arg(long)]
    pub save: bool,
    /// Let this path be committed though it is large or looks like a secret.
    #[arg(long, value_name = "PATH")]
    pub allow: Vec<String>,
}

/// `dex resume`
#[derive(Debug, Args)]
pub struct Resume {
    /// The run: branch, id or its six digits.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Start a new run from this finished stage (`plan:2`).
    #[arg(long, value_name = "CP", conflicts_with_all = ["run", "keep", "discard"])]
    pub from: Option<String>,
    /// A word of advice for the following stages.
    #[arg(short = 'm', long = "message", value_name = "NOTE")]
    pub note: Option<String>,
    /// Dollars the whole run may cost from now on.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = positive)]
    pub budget: Option<f64>,
    /// Dollars one stage may cost, until the next resume.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = positive)]
    pub stage_budget: Option<f64>,
    /// Minutes one stage may take, until the next resume.
    #[arg(long, value_name = "MINUTES", allow_negative_numbers = true, value_parser = positive)]
    pub stage_timeout: Option<f64>,
    /// Cycles the whole run may take from now on.
    #[arg(long, value_name = "N")]
    pub cycles: Option<u32>,
    /// Keep the files of a half-done stage and go on from them.
    #[arg(long, conflicts_with = "discard")]
    pub keep: bool,
    /// Put the files of a half-done stage back first.
    #[arg(long)]
    pub discard: bool,
    /// Pause after every stage.
    #[arg(long)]
    pub step: bool,
    /// Work in the background.
    #[arg(long)]
    pub detach: bool,
    /// Let this path be committed though it is large or looks like a secret.
    #[arg(long, value_name = "PATH")]
    pub allow: Vec<String>,
    /// This process is the background one.
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// `dex stop`
#[derive(Debug, Args)]
pub struct Stop {
    /// The run: branch, id or its six digits.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// At once; the stage in progress stays half-done.
    #[arg(long)]
    pub now: bool,
}

/// `dex answer`
#[derive(Debug, Args)]
pub struct Answer {
    /// The run.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// The number of a choice, or an answer in your own words; without it, the question.
    #[arg(value_name = "CHOICE|TEXT")]
    pub answer: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex status`
#[derive(Debug, Args, Default)]
pub struct Status {
    /// The run: branch, id or its six digits.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Keep showing it until it is over.
    #[arg(long)]
    pub watch: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "watch")]
    pub json: bool,
}

/// `dex report`
#[derive(Debug, Args)]
pub struct Report {
    /// The run: branch, id or its six digits.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Print Markdown.
    #[arg(long)]
    pub md: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "md")]
    pub json: bool,
}

/// `dex timeline`
#[derive(Debug, Args)]
pub struct Timeline {
    /// Every run, not only this work tree's.
    #[arg(long)]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex log`
#[derive(Debug, Args)]
pub struct Log {
    /// The run: branch, id or its six digits.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Keep following.
    #[arg(short, long)]
    pub follow: bool,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// `dex show`
#[derive(Debug, Args)]
pub struct Show {
    /// The stage: `plan:2`, `verify:2#1`, `RUN@plan:2`, or any git revision. The newest by default.
    #[arg(value_name = "CP")]
    pub checkpoint: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex undo`
#[derive(Debug, Args)]
pub struct Undo {
    /// List what can be undone.
    #[arg(long)]
    pub list: bool,
    /// Say what would be put back, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Print JSON (with --list).
    #[arg(long, requires = "list")]
    pub json: bool,
}

/// `dex redo`
#[derive(Debug, Args)]
pub struct Redo {
    /// Say what would be put back, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
}

/// `dex config`
#[derive(Debug, Args)]
pub struct Config {
    /// One key, e.g. `limits.maxBudgetUsd`.
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// Its new value in this project's settings file.
    #[arg(value_name = "VALUE", requires = "key")]
    pub value: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex prompts`
#[derive(Debug, Args)]
pub struct Prompts {
    /// The stage.
    #[arg(value_name = "STAGE")]
    pub stage: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `dex completions`
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `dex man`
#[derive(Debug, Args)]
pub struct Man {
    /// Where to write them.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// A limit: a number that is finite and more than nothing.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|it| it.is_finite() && *it > 0.0)
        .ok_or_else(|| "a limit is a number greater than 0, as in 2.50".to_owned())
}

//! `dex show`: one finished stage, or what git knows of any other commit.

use std::path::Path;

use dex::facts::{self, Found};
use dex::files::record::{Decision, Phase};
use dex::progress::{self, Finished};
use dex::reconcile::Reconciled;
use dex::report::{Changes, attempts_at};
use gitdb::repo::{Commit, FileStat, ObjectFormat};
use gitdb::{Head, Oid, Repo};
use serde_json::{Value, json};

use super::timeline::verify_mark;
use crate::args;
use crate::error::Failure;
use crate::exit::Exit;
use crate::pager;
use crate::session;
use crate::ui::{self, BAD, BOLD, DIM, GOOD, NAME, WARN, clean, clean_lines, styled};

/// More of one list than this is counted; `--json` has all.
const SHOWN: usize = 50;

/// A commit, with everything known of it.
struct Shown {
    commit: Commit,
    author: String,
    files: Vec<FileStat>,
    stage: Option<Finished>,
    run: Option<Reconciled>,
    attempts: Vec<Phase>,
}

/// Shows a stage.
pub fn show(dir: &Path, args: &args::Show) -> Result<Exit, Failure> {
    let repo = session::open(dir)?;
    let found = find(&repo, args.checkpoint.as_deref())?;
    let shown = read(&repo, found)?;
    if args.json {
        ui::json(&to_json(&shown));
        return Ok(Exit::Done);
    }
    let _paging = pager::start();
    print(&shown);
    Ok(Exit::Done)
}

/// The named checkpoint; without a name the newest stage of this work tree's run.
fn find(repo: &Repo, name: Option<&str>) -> Result<Found, Failure> {
    if let Some(name) = name {
        return Ok(facts::checkpoint(repo, name)?);
    }
    let known = facts::find(repo, None)?;
    let run = facts::read_run(repo, &known)?;
    let at = run.progress.done.len().checked_sub(1);
    let commit = match (run.progress.last(), repo.head()?) {
        (Some(last), _) => last.commit.clone(),
        (None, Head::Branch { oid: Some(oid), .. } | Head::Detached(oid)) => {
            return Ok(Found {
                commit: oid,
                run: None,
                at: None,
            });
        }
        (None, Head::Branch { oid: None, .. }) => {
            return Err(Failure::new(Exit::NotFound, "there is no commit yet"));
        }
    };
    Ok(Found {
        commit,
        run: Some(run),
        at,
    })
}

fn read(repo: &Repo, found: Found) -> Result<Shown, Failure> {
    let mut commits = repo.first_parents(&found.commit, None, 1)?;
    let commit = commits.pop().ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("commit {} cannot be read", found.commit),
        )
    })?;
    let from = match commit.parents.first() {
        Some(parent) => parent.clone(),
        None => empty_tree(repo),
    };
    // A shallow history ends at a commit whose parent is not here.
    let files = match repo.diff_stat(&from, &commit.oid, &[]) {
        Err(gitdb::GitError::Failed { .. }) if repo.shallow => Vec::new(),
        other => other?,
    };
    let author = repo
        .git
        .read(["show", "-s", "--format=%an <%ae>", commit.oid.as_str()])
        .text()?;
    let stage = found
        .run
        .as_ref()
        .zip(found.at)
        .and_then(|(run, at)| run.progress.done.get(at))
        .cloned();
    let attempts = match (&found.run, &stage) {
        (Some(run), Some(stage)) => attempts_at(run, stage).into_iter().cloned().collect(),
        _ => Vec::new(),
    };
    Ok(Shown {
        commit,
        author,
        files,
        stage,
        run: found.run,
        attempts,
    })
}

/// What a commit without a parent is compared with; git knows these two without storing them.
fn empty_tree(repo: &Repo) -> Oid {
    let id = match repo.object_format {
        ObjectFormat::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        ObjectFormat::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
    };
    id.parse().expect("a full id")
}

fn print(shown: &Shown) {
    let commit = &shown.commit;
    let title = match (&shown.stage, &commit.stage) {
        (Some(stage), _) => styled(BOLD, stage.place.label()),
        (None, Some(message)) => format!(
            "{} {}",
            styled(BOLD, message.checkpoint.to_string()),
            styled(
                WARN,
                "(a stage commit that counts in no run here: reverted, or a copy)"
            )
        ),
        (None, None) => styled(BOLD, "not a stage"),
    };
    ui::out(title);
    if let (Some(stage), Some(run)) = (&shown.stage, &shown.run) {
        let branch = clean(run.branch.as_deref().unwrap_or_default());
        field(
            "checkpoint",
            format!("{} of {}", stage.place.checkpoint(), styled(NAME, branch)),
        );
        if let Some(slug) = &stage.place.feature {
            field("feature", title_of(run, slug));
        }
    }
    field("commit", styled(NAME, &commit.oid));
    let parents: Vec<&str> = commit.parents.iter().map(Oid::as_str).collect();
    field(
        "parent",
        if parents.is_empty() {
            "none".to_owned()
        } else {
            parents.join(" ")
        },
    );
    field("author", clean(&shown.author));
    field("time", ui::moment(&session::rfc3339(commit.time_unix)));
    for line in clean_lines(commit.message.trim_end()).lines() {
        ui::out(format!("    {line}"));
    }
    if shown.stage.is_some() {
        work(&shown.attempts);
    }
    files(&shown.files);
    if let Some(last) = shown.attempts.last().filter(|it| !it.steps.is_empty()) {
        section(
            "Steps",
            DIM,
            last.steps.iter().map(|it| {
                let tool = it
                    .tool
                    .as_deref()
                    .map(|it| format!("{it}: "))
                    .unwrap_or_default();
                format!(
                    "{}{tool}{}",
                    if it.ok == Some(false) { "failed " } else { "" },
                    it.text
                )
            }),
        );
    }
}

fn title_of(run: &Reconciled, slug: &str) -> String {
    let found = run
        .features
        .iter()
        .find(|it| it.slug.as_deref() == Some(slug));
    found.map_or_else(
        || clean(slug),
        |it| format!("{} ({})", clean(&it.title), clean(slug)),
    )
}

fn field(name: &str, value: impl std::fmt::Display) {
    ui::out(format!("  {name:<12} {value}"));
}

/// What the record says.
fn work(attempts: &[Phase]) {
    let Some(last) = attempts.last() else {
        field("record", "none: cost and time are not known");
        return;
    };
    let agent = last
        .agent
        .as_deref()
        .map_or_else(|| "none was needed".to_owned(), clean);
    let model = last
        .model
        .as_deref()
        .map(|it| format!(", model {}", clean(it)));
    field("agent", format!("{agent}{}", model.unwrap_or_default()));
    if let Some(sandbox) = &last.sandbox {
        field("sandbox", clean(sandbox));
    }
    field("cost", ui::money(progress::cost_micro(attempts)));
    let tokens =
        |it: Option<u64>| it.map_or_else(|| "not reported".to_owned(), |it| it.to_string());
    if last
        .input_tokens
        .or(last.output_tokens)
        .or(last.cached_tokens)
        .is_some()
    {
        field(
            "tokens",
            format!(
                "in {}, out {}, cached {}",
                tokens(sum(attempts, |it| it.input_tokens)),
                tokens(sum(attempts, |it| it.output_tokens)),
                tokens(sum(attempts, |it| it.cached_tokens)),
            ),
        );
    }
    field("worked", ui::duration(progress::duration_ms(attempts)));
    if attempts.len() > 1 {
        let failed = attempts
            .iter()
            .filter_map(|it| it.reason.as_deref())
            .map(clean);
        let reasons = failed.collect::<Vec<_>>().join(", ");
        let reasons = if reasons.is_empty() {
            reasons
        } else {
            format!(" ({reasons})")
        };
        field("attempts", format!("{}{reasons}", attempts.len()));
    }
    if let Some(decision) = last.decision {
        field("decision", decision_words(decision));
    }
    if let Some(verify) = &last.verify {
        let command = verify
            .command
            .as_deref()
            .map(|it| format!(": {}", clean(it)));
        field(
            "verify",
            format!("{}{}", verify_mark(verify), command.unwrap_or_default()),
        );
        section("Failures", BAD, verify.failures.iter().cloned());
    }
    if let Some(outcome) = last.cycle_outcome {
        field("cycle", format!("{outcome:?}").to_lowercase());
    }
    section(
        "Left out",
        WARN,
        all(attempts, |it| &it.left_out).map(|it| format!("{} ({})", it.path, it.reason)),
    );
    section(
        "Questions",
        WARN,
        all(attempts, |it| &it.assumptions)
            .map(|it| format!("{} → {} ({})", it.question, it.answer, it.by)),
    );
    section(
        "Commits of the agent, folded in",
        DIM,
        all(attempts, |it| &it.agent_commits).cloned(),
    );
    section("Noticed", WARN, all(attempts, |it| &it.noticed).cloned());
}

fn sum(attempts: &[Phase], value: impl Fn(&Phase) -> Option<u64>) -> Option<u64> {
    let known: Vec<u64> = attempts.iter().filter_map(value).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

fn all<'a, T: 'a>(
    attempts: &'a [Phase],
    list: impl Fn(&'a Phase) -> &'a Vec<T>,
) -> impl Iterator<Item = &'a T> {
    attempts.iter().flat_map(list)
}

fn decision_words(decision: Decision) -> &'static str {
    match decision {
        Decision::NextFeature => "the next feature, from its spec on",
        Decision::ReplanFeature => "the same feature, planned anew",
        Decision::ResumeFeature => "the same feature, implemented further",
    }
}

fn section(title: &str, style: anstyle::Style, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    if items.is_empty() {
        return;
    }
    ui::out(styled(style, title));
    for item in items.iter().take(SHOWN) {
        ui::out(format!("    {}", ui::cut(&clean(item), 300)));
    }
    if items.len() > SHOWN {
        ui::out(format!(
            "    and {} more (`--json` has all)",
            items.len() - SHOWN
        ));
    }
}

fn files(files: &[FileStat]) {
    let (own, others): (Vec<_>, Vec<_>) =
        files.iter().partition(|it| it.path.starts_with(b".dex/"));
    let lines = others.iter().map(|it| {
        let path = String::from_utf8_lossy(&it.path);
        match it.binary {
            true => format!("binary       {path}"),
            false => format!(
                "{:>5} {:>6} {path}",
                format!("+{}", it.added),
                format!("-{}", it.removed)
            ),
        }
    });
    section(
        &format!("{} changed", ui::count(others.len(), "file")),
        GOOD,
        lines,
    );
    if others.is_empty() {
        ui::out(styled(DIM, "No file changed outside .dex/"));
    }
    if !own.is_empty() {
        ui::out(styled(
            DIM,
            format!("and {} under .dex/", ui::count(own.len(), "file")),
        ));
    }
}

fn to_json(shown: &Shown) -> Value {
    let commit = &shown.commit;
    let place = shown.stage.as_ref().map(|it| &it.place);
    let changes = Changes::of(&shown.files);
    json!({
        "commit": commit.oid,
        "parents": commit.parents,
        "tree": commit.tree,
        "author": shown.author,
        "time": session::rfc3339(commit.time_unix),
        "message": commit.message,
        "runId": shown.run.as_ref().map(|it| &it.run_id),
        "branch": shown.run.as_ref().and_then(|it| it.branch.as_ref()),
        "checkpoint": place.map(|it| it.checkpoint()),
        "label": place.map(|it| it.label()),
        "stage": place.map(|it| it.stage.name()),
        "cycle": place.map(|it| it.cycle),
        "feature": place.and_then(|it| it.feature.as_ref()),
        "costUsd": progress::cost_micro(&shown.attempts).map(dex::files::dollars),
        "durationMs": shown.attempts.first().map(|_| progress::duration_ms(&shown.attempts)),
        "attempts": shown.attempts,
        "changes": changes,
        "files": shown.files.iter().map(|it| json!({
            "path": String::from_utf8_lossy(&it.path),
            "added": (!it.binary).then_some(it.added),
            "removed": (!it.binary).then_some(it.removed),
            "binary": it.binary,
        })).collect::<Vec<_>>(),
    })
}

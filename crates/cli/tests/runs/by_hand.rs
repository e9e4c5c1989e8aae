//! After people changed things by hand: what `dex status` says, and that `dex resume` does right.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Answer, Project, good};

/// A run of two features that paused after the first: 12 stage commits.
fn paused() -> Project {
    let project = Project::new(&good(&["Add notes", "List notes"]));
    assert_eq!(project.dex(&["run", "--cycles", "1"]).code, Some(7));
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["stageCommits"], 12);
    assert_eq!(status["differences"], json!([]));
    project
}

/// The codes of the differences that `dex status` explains, and its numbers against the commits.
fn codes(project: &Project) -> Vec<String> {
    let status = project.json(&["status", "--json"]);
    let branch = status["branch"].as_str().unwrap();
    let tip = project
        .repo
        .try_git(&["rev-parse", "-q", "--verify", branch]);
    if tip.status.success() {
        let log = |grep: &str| project.repo.git(&["log", "--format=%h", grep, branch]);
        if log("--grep=^Revert ").is_empty() {
            let learnings = log(r"--grep=^\[checkpoint:learnings:").lines().count();
            assert_eq!(status["cyclesCompleted"], learnings);
        }
    }
    let differences = status["differences"].as_array().unwrap();
    assert!(
        differences
            .iter()
            .all(|it| !it["text"].as_str().unwrap().is_empty())
    );
    let shown = project.dex(&["status"]).out;
    for it in differences {
        assert!(shown.contains("note:"), "{shown}: {it}");
    }
    differences
        .iter()
        .map(|it| it["code"].as_str().unwrap().to_owned())
        .collect()
}

/// Goes on to the end; every stage of both features is there once (or more often, where said).
fn finish(project: &Project, what: &str) -> Vec<String> {
    let answer = project.dex(&["resume", "--cycles", "9"]);
    assert_eq!(answer.code, Some(0), "{what}: {}", answer.err);
    let stages: Vec<String> = project
        .stages()
        .into_iter()
        .filter_map(|it| {
            Some(
                it.lines()
                    .find(|it| it.starts_with("[checkpoint:"))?
                    .to_owned(),
            )
        })
        .collect();
    assert_eq!(
        stages.last().unwrap(),
        "[checkpoint:completion:0]",
        "{what}"
    );
    assert!(
        project.is_clean(),
        "{what}: {}",
        project.repo.git(&["status", "--porcelain"])
    );
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "completed", "{what}");
    assert_eq!(status["cyclesCompleted"], 2, "{what}");
    let features = status["features"].as_array().unwrap();
    assert!(
        features.iter().all(|it| it["status"] == "completed"),
        "{what}: {status}"
    );
    stages
}

fn count(stages: &[String], name: &str) -> usize {
    stages
        .iter()
        .filter(|it| **it == format!("[checkpoint:{name}]"))
        .count()
}

#[test]
fn a_state_file_that_was_edited_emptied_or_broken_is_made_again_from_the_commits_f05_f07() {
    let edited = |project: &Project| {
        let text = project.repo.read(".dex/state.json");
        let mut state: Value = serde_json::from_str(&text).unwrap();
        state["cyclesCompleted"] = json!(99);
        state["lastCompletedStep"] = json!("plan");
        project.repo.write(".dex/state.json", state.to_string());
    };
    let path = |project: &Project| project.repo.path().join(".dex/state.json");
    type Change<'a> = (&'a str, &'a str, Box<dyn Fn(&Project)>);
    let changes: Vec<Change<'_>> = vec![
        ("edited", "state_differs", Box::new(edited)),
        (
            "missing",
            "state_missing",
            Box::new(move |it| std::fs::remove_file(path(it)).unwrap()),
        ),
        (
            "nul",
            "unreadable",
            Box::new(|it| it.repo.write(".dex/state.json", [0_u8; 500])),
        ),
        (
            "truncated",
            "unreadable",
            Box::new(|it| it.repo.write(".dex/state.json", "{\"version\": 2, \"run")),
        ),
        (
            "unreadable",
            "unreadable",
            Box::new(move |it| {
                // Where we are root, a mode hinders nobody: a directory is as unreadable.
                std::fs::remove_file(path(it)).unwrap();
                it.repo.write(".dex/state.json/inside.txt", "theirs");
            }),
        ),
    ];
    for (what, code, change) in changes {
        let project = paused();
        change(&project);
        assert_eq!(codes(&project), [code], "{what}");
        let stages = finish(&project, what);
        assert_eq!(stages.len(), 20, "{what}: {stages:#?}");
        if code == "unreadable" {
            let aside = find(&project.repo.path().join(".git/dex/runs"), "state.json");
            assert!(!aside.is_empty(), "{what}: the bad file is kept aside");
        }
    }
}

fn find(dir: &std::path::Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(name) {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|it| it.is_dir()) {
            found.extend(find(&entry.path(), name));
        }
    }
    found
}

#[test]
fn commits_made_by_hand_are_built_upon() {
    let project = paused();
    project.repo.write("by-hand.txt", "mine\n");
    project.repo.git(&["add", "by-hand.txt"]);
    project
        .repo
        .git(&["commit", "-qm", "by hand, see [checkpoint:plan:7]"]);
    assert_eq!(codes(&project), ["tip_moved"]);
    assert_eq!(finish(&project, "by hand").len(), 20);
    assert!(
        project
            .repo
            .git(&["log", "--format=%s"])
            .contains("by hand, see")
    );
    assert_eq!(project.repo.git(&["show", "HEAD:by-hand.txt"]), "mine");
}

#[test]
fn an_amended_stage_commit_still_counts() {
    let project = paused();
    project.repo.write("forgotten.txt", "mine\n");
    project.repo.git(&["add", "forgotten.txt"]);
    project.repo.git(&["commit", "-q", "--amend", "--no-edit"]);
    assert_eq!(codes(&project), ["tip_moved"]);
    let stages = finish(&project, "amended");
    assert_eq!(stages.len(), 20, "{stages:#?}");
    assert_eq!(project.repo.git(&["show", "HEAD:forgotten.txt"]), "mine");
}

/// The message back, as `dex status` says it; between backticks.
fn named(text: &str, begins: &str) -> String {
    let at = text.find(begins).unwrap_or_else(|| panic!("{text}"));
    text[at..].split('`').next().unwrap().to_owned()
}

#[test]
fn a_stage_whose_message_was_amended_away_is_not_paid_for_twice() {
    let project = paused();
    project
        .repo
        .git(&["commit", "-q", "--amend", "-m", "What I learned today"]);
    let found = codes(&project);
    assert!(found.contains(&"stage_unmarked".to_owned()), "{found:?}");
    let told = project.dex(&["status"]).out;
    let before = project.fingerprint();
    let answer = project.exits(5, &["resume", "--cycles", "9"]);
    assert!(answer.err.contains("Cycle 1 — Learnings"), "{}", answer.err);
    assert_eq!(project.fingerprint().0, before.0, "no ref has moved");
    let command = named(&told, "git commit --amend");
    assert!(answer.err.contains(&command), "{told}{}", answer.err);
    let shell = |line: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).current_dir(project.repo.path());
        let out = project.repo.hermetic(&mut shell).output().unwrap();
        assert!(out.status.success(), "{line}: {out:?}");
    };
    shell(&command);
    assert_eq!(codes(&project), ["tip_moved"]);
    let stages = finish(&project, "given back");
    assert_eq!(stages.len(), 20, "{stages:#?}");
    assert_eq!(count(&stages, "learnings:1"), 1, "{stages:#?}");
}

#[test]
fn a_stage_whose_message_was_amended_away_is_done_again_once_it_is_reverted() {
    let project = paused();
    project
        .repo
        .git(&["commit", "-q", "--amend", "-m", "What I learned today"]);
    let told = project.dex(&["status"]).out;
    let revert = named(&told, "git revert");
    let id = revert.rsplit(' ').next().unwrap();
    project.repo.git(&["revert", "--no-edit", id]);
    let stages = finish(&project, "reverted");
    assert_eq!(count(&stages, "learnings:1"), 1, "{stages:#?}");
    assert_eq!(count(&stages, "verify:1"), 1, "{stages:#?}");
}

#[test]
fn a_record_of_many_megabytes_is_an_error_that_names_it() {
    let project = paused();
    let id = project.json(&["status", "--json"])["runId"].clone();
    let path = format!(".dex/runs/{}.json", id.as_str().unwrap());
    project.repo.write(&path, vec![b' '; 80 << 20]);
    project.repo.git(&["add", &path]);
    project.repo.git(&["commit", "-qm", "a record gone wrong"]);
    std::fs::remove_file(project.repo.path().join(&path)).unwrap();
    let answer = project.exits(1, &["status"]);
    assert!(
        answer.err.contains(&path) && answer.err.contains("larger than 64 MiB"),
        "{}",
        answer.err
    );
}

#[test]
fn a_reverted_stage_counts_as_not_done_and_is_done_again() {
    let project = paused();
    project.repo.git(&["revert", "--no-edit", "HEAD"]);
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["cyclesCompleted"], 0, "{status}");
    let codes = codes(&project);
    assert!(codes.contains(&"stage_reverted".to_owned()), "{codes:?}");
    let stages = finish(&project, "reverted");
    assert_eq!(count(&stages, "learnings:1"), 2, "{stages:#?}");
    assert_eq!(count(&stages, "implement:1"), 1, "{stages:#?}");
}

#[test]
fn stages_reset_away_are_done_again() {
    let project = paused();
    project.repo.git(&["reset", "-q", "--hard", "HEAD~2"]);
    let codes = codes(&project);
    assert!(codes.contains(&"tip_moved".to_owned()), "{codes:?}");
    let stages = finish(&project, "reset");
    assert_eq!(stages.len(), 20, "{stages:#?}");
    assert_eq!(count(&stages, "verify:1"), 1);
}

#[test]
fn a_record_removed_by_hand_is_said_and_the_run_goes_on() {
    let project = paused();
    let id = project.json(&["status", "--json"])["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    project.repo.git(&["rm", "-q", "-r", ".dex/runs"]);
    project.repo.git(&["commit", "-qm", "no records, please"]);
    let found = codes(&project);
    assert!(
        found.contains(&"commit_without_record".to_owned()),
        "{found:?}"
    );
    assert_eq!(project.json(&["status", "--json"])["runId"], id.as_str());
    let stages = finish(&project, "no record");
    assert_eq!(stages.len(), 20, "{stages:#?}");
    assert_eq!(project.record()["runId"], id.as_str());
}

#[test]
fn without_the_working_data_the_commits_are_enough() {
    let project = paused();
    let before = project.json(&["status", "--json"]);
    std::fs::remove_dir_all(project.repo.path().join(".git/dex")).unwrap();
    let after = project.json(&["status", "--json"]);
    for key in [
        "runId",
        "branch",
        "tip",
        "stageCommits",
        "cyclesCompleted",
        "costUsd",
        "features",
        "lastCompletedStage",
    ] {
        assert_eq!(after[key], before[key], "{key}");
    }
    let stages = finish(&project, "lost .git/dex");
    assert_eq!(stages.len(), 20, "{stages:#?}");
    assert_eq!(project.record()["runId"], before["runId"]);
    let micro = |it: &Value| (it.as_f64().unwrap() * 1e6).round() as u64;
    let record = project.record();
    let sum: u64 = record["phases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["costUsd"].is_number())
        .map(|it| micro(&it["costUsd"]))
        .sum();
    assert_eq!(micro(&record["totalCostUsd"]), sum);
}

#[test]
fn another_clone_reads_the_same_run_and_changes_nothing() {
    let project = paused();
    finish(&project, "here");
    let report = project.json(&["report", "--json"]);
    let there = project.repo.beside("there");
    let text = there.to_str().unwrap().to_owned();
    project.repo.git(&[
        "clone",
        "-q",
        "-b",
        "main",
        project.repo.path().to_str().unwrap(),
        &text,
    ]);
    let clone = Project { repo: Repo::new() };
    let dex = |args: &[&str]| -> Answer {
        clone
            .command(args)
            .current_dir(&there)
            .output()
            .unwrap()
            .into()
    };
    let refs = project.repo.git_in(&there, &["for-each-ref"]);
    let status: Value = serde_json::from_str(&dex(&["status", "--json"]).out).unwrap();
    assert_eq!(status["stageCommits"], 20);
    assert_eq!(status["status"], "completed");
    let again: Value = serde_json::from_str(&dex(&["report", "--json"]).out).unwrap();
    assert_eq!(again, report);
    assert!(dex(&["runs"]).out.contains("only on a remote"));
    assert_eq!(project.repo.git_in(&there, &["for-each-ref"]), refs);
    assert!(!there.join(".git/dex").exists(), "reading never writes");
}

#[test]
fn a_branch_that_was_deleted_is_said_with_the_way_back() {
    let project = paused();
    let branch = project.branch();
    let tip = project.repo.git(&["rev-parse", &branch]);
    project.repo.git(&["switch", "-q", "main"]);
    project.repo.git(&["branch", "-q", "-D", &branch]);
    let found = codes(&project);
    assert!(found.contains(&"branch_gone".to_owned()), "{found:?}");
    let answer = project.dex(&["resume"]);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    let way = format!("git branch {branch} {tip}");
    assert!(answer.err.contains(&way), "{}", answer.err);
    assert_eq!(
        project
            .repo
            .git(&["for-each-ref", "refs/heads"])
            .lines()
            .count(),
        1
    );
    project.repo.git(&["branch", &branch, &tip]);
    project.repo.git(&["switch", "-q", &branch]);
    assert_eq!(finish(&project, "brought back").len(), 20);
}

#[test]
fn on_another_branch_resume_says_what_to_type_and_commits_nothing_c27() {
    let project = paused();
    let branch = project.branch();
    let tip = project.repo.git(&["rev-parse", &branch]);
    let main = project.repo.git(&["rev-parse", "main"]);
    project.repo.git(&["switch", "-q", "main"]);
    let found = codes(&project);
    assert!(found.contains(&"not_checked_out".to_owned()), "{found:?}");
    for _ in 0..2 {
        let answer = project.dex(&["resume", "--cycles", "9"]);
        assert_eq!(answer.code, Some(5), "{}", answer.err);
        assert!(
            answer.err.contains(&format!("git switch {branch}")),
            "{}",
            answer.err
        );
        assert_eq!(
            project.repo.git(&["rev-parse", &branch, "main"]),
            format!("{tip}\n{main}")
        );
    }
    project.repo.git(&["switch", "-q", &branch]);
    assert_eq!(finish(&project, "switched back").len(), 20);
}

#[test]
fn a_finished_stage_is_not_committed_from_another_branch_c27() {
    let secret = json!({ "cost": 0.05, "writes": [{ "path": ".env", "content": format!("KEY=ghp_{}\n", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8") }] });
    let project = Project::in_repo(Repo::new(), &super::support::implementing(secret));
    assert_eq!(project.dex(&["run", "--small"]).code, Some(9));
    let branch = project.branch();
    let before = project.repo.git(&["for-each-ref", "refs/heads"]);
    project.repo.git(&["switch", "-q", "-f", "main"]);
    std::fs::remove_file(project.repo.path().join(".env")).unwrap();
    for words in [
        &["resume"][..],
        &["resume", "--keep"],
        &["resume", "--discard"],
    ] {
        let answer = project.dex(words);
        assert_eq!(answer.code, Some(5), "{words:?}: {}", answer.err);
        assert!(
            answer.err.contains(&format!("git switch {branch}")),
            "{}",
            answer.err
        );
        assert_eq!(project.repo.git(&["for-each-ref", "refs/heads"]), before);
        assert_eq!(
            project.repo.git(&["symbolic-ref", "--short", "HEAD"]),
            "main"
        );
    }
    project.repo.git(&["switch", "-q", &branch]);
    project.dex_ok(&["resume"]);
    project.is_over("switched back");
}

#[test]
fn a_work_tree_that_is_gone_stops_the_run_and_nothing_falls_back_c26() {
    let project = Project::new(&good(&["Add notes", "List notes"]));
    let answer = project.dex(&["run", "--cycles", "1", "--worktree"]);
    assert_eq!(answer.code, Some(7), "{}", answer.err);
    let branch = project.branch();
    let tree = project.live()["worktree"].as_str().unwrap().to_owned();
    let main = project.repo.git(&["rev-parse", "HEAD"]);
    // The branch belongs to the other work tree: git itself refuses it here.
    assert!(
        !project
            .repo
            .try_git(&["switch", "-q", &branch])
            .status
            .success()
    );
    std::fs::remove_dir_all(&tree).unwrap();
    assert_eq!(project.dex(&["status"]).code, Some(0));
    let answer = project.dex(&["resume", "--cycles", "9"]);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    assert!(
        answer.err.contains(&tree) && answer.err.contains("git worktree"),
        "{}",
        answer.err
    );
    assert_eq!(project.repo.git(&["rev-parse", "HEAD"]), main);
    assert_eq!(
        project.repo.git(&["symbolic-ref", "--short", "HEAD"]),
        "main"
    );
    project.repo.git(&["worktree", "prune"]);
    project.repo.git(&["worktree", "add", "-q", &tree, &branch]);
    project.repo.git(&["diff", "--quiet"]);
    project.dex_ok(&["resume", "--cycles", "9"]);
    assert_eq!(
        project.json(&["status", "--json", &branch])["stageCommits"],
        20
    );
}

#[test]
fn a_live_record_that_cannot_be_read_is_an_error_and_never_a_new_run_g10() {
    for bad in [
        &b"{\"version\": 1, \"runId\": \"0"[..],
        b"\0\0\0\0",
        b"",
        b"not json at all",
    ] {
        let project = paused();
        let file = find(&project.repo.path().join(".git/dex/runs"), "live.json").remove(0);
        std::fs::write(&file, bad).unwrap();
        let refs = project.repo.git(&["for-each-ref"]);
        for words in [&["status"][..], &["resume", "--cycles", "9"], &["report"]] {
            let answer = project.dex(words);
            assert!(matches!(answer.code, Some(1 | 2)), "{words:?}: {answer:?}");
            assert!(answer.err.contains("live.json"), "{words:?}: {answer:?}");
        }
        assert_eq!(project.repo.git(&["for-each-ref"]), refs);
        assert_eq!(std::fs::read(&file).unwrap(), bad);
        let runs = project.dex(&["runs"]);
        assert!(
            format!("{}{}", runs.out, runs.err).contains(&project.branch()),
            "{runs:?}"
        );
        // The way out that is named: moved away, the commits are enough.
        let answer = project.dex(&["resume", "--cycles", "9"]);
        assert!(answer.err.contains("hint:"), "{}", answer.err);
        std::fs::rename(&file, project.repo.beside("live.json.bad")).unwrap();
        assert_eq!(finish(&project, "rebuilt").len(), 20);
    }
}

#[test]
fn in_a_copy_of_the_repository_the_run_goes_on_in_the_copy() {
    let project = Project::new(&good(&["Say hello"]));
    project.dex(&["run", "--step"]);
    let before = project.repo.git(&["rev-parse", "HEAD"]);
    let copy = project.repo.beside("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([project.repo.path(), copy.as_path()])
        .status();
    assert!(copied.is_ok_and(|it| it.success()));
    let original = project.repo.path().to_owned();
    let copy = Project {
        repo: project.repo.seen_from(&copy),
    };
    copy.dex_ok(&["resume"]);
    assert_ne!(copy.repo.git(&["rev-parse", "HEAD"]), before);
    let there = copy.repo.git_in(&original, &["rev-parse", "HEAD"]);
    assert_eq!(there, before);
}

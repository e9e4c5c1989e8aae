//! Starting: what is refused and leaves everything as it was, where a run works, and what it
//! takes over.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use testkit::Repo;

use super::support::{Answer, Project, good, wrote};

pub(crate) fn project() -> Project {
    Project::new(&good(&["Say hello"]))
}

/// `dex run …`, refused with this code, and nothing changed.
#[track_caller]
pub(crate) fn refused(project: &Project, code: i32, args: &[&str]) -> Answer {
    refused_command(project, code, project.command(args))
}

#[track_caller]
fn refused_command(project: &Project, code: i32, mut command: Command) -> Answer {
    let before = project.fingerprint();
    let answer: Answer = command.output().unwrap().into();
    assert_eq!(answer.code, Some(code), "{}{}", answer.out, answer.err);
    assert_eq!(project.fingerprint(), before, "{}", answer.err);
    assert!(answer.err.contains("hint:"), "what to type: {}", answer.err);
    answer
}

#[test]
fn a_dirty_tree_is_refused_with_the_choices() {
    for (path, staged) in [
        ("README.md", false),
        ("new.txt", false),
        ("README.md", true),
    ] {
        let project = project();
        project.repo.write(path, "mine\n");
        if staged {
            project.repo.git(&["add", path]);
        }
        let answer = refused(&project, 5, &["run"]);
        for word in [path, "--save", "--worktree", "Commit or stash"] {
            assert!(answer.err.contains(word), "{word}: {}", answer.err);
        }
        assert_eq!(project.repo.read(path), "mine\n");
    }
}

#[test]
fn save_commits_what_is_uncommitted_on_the_current_branch_first() {
    let project = project();
    project.repo.write("README.md", "mine\n");
    project.repo.write("new.txt", "new\n");
    project.exits(0, &["run", "--save"]);
    assert_eq!(
        project.repo.git(&["log", "-1", "--format=%B", "main"]),
        "dex: pre-run autosave"
    );
    assert_eq!(project.repo.git(&["show", "main:README.md"]), "mine");
    assert_eq!(project.repo.git(&["show", "main:new.txt"]), "new");
    let machine = project
        .repo
        .git(&["ls-tree", "-r", "--name-only", "main", ".dex"]);
    assert!(!machine.contains("config.json"), "{machine}");
    assert_eq!(
        project.record()["baseSha"],
        project.repo.git(&["rev-parse", "main"]).as_str()
    );
}

#[test]
fn save_never_takes_the_work_of_a_run_that_is_at_work() {
    let project = Project::with(json!({}), &["Say hello"], |_, name| {
        let mut stage = wrote("half.txt", "half\n");
        stage["hang"] = json!(true);
        (name == "constitution").then_some(stage)
    });
    let mut child = project.start(&["run"]);
    project.until("it works", |it| {
        it.is_at("constitution") && it.repo.path().join("half.txt").exists()
    });
    let tip = project.repo.git(&["rev-parse", "HEAD"]);
    let answer = project.exits(8, &["run", "--save"]);
    assert!(
        answer.err.contains(&format!("process {}", child.id())),
        "{}",
        answer.err
    );
    assert_eq!(project.repo.git(&["rev-parse", "HEAD"]), tip);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn worktree_of(project: &Project) -> PathBuf {
    let list = project.repo.git(&["worktree", "list", "--porcelain"]);
    let paths: Vec<&str> = list
        .lines()
        .filter_map(|it| it.strip_prefix("worktree "))
        .collect();
    PathBuf::from(paths[1])
}

#[test]
fn with_worktree_the_users_tree_index_and_staged_work_are_left_alone() {
    let project = project();
    project.repo.write("README.md", "staged\n");
    project.repo.git(&["add", "README.md"]);
    project.repo.write("README.md", "and edited\n");
    project.repo.write("untracked.txt", "mine\n");
    let index = project.fingerprint().2;
    // `.dex/` goes out of sight: it is named in the repository's own exclude file.
    let status = |project: &Project| {
        let shown = project.fingerprint().3;
        let own: Vec<&str> = shown.lines().filter(|it| !it.contains(".dex/")).collect();
        own.join("\n")
    };
    let before = status(&project);
    project.exits(0, &["run", "--worktree"]);
    assert_eq!(project.fingerprint().2, index);
    assert_eq!(status(&project), before);
    assert_eq!(
        project.repo.git(&["symbolic-ref", "HEAD"]),
        "refs/heads/main"
    );
    assert_eq!(project.repo.read("README.md"), "and edited\n");
    assert_eq!(project.checkpoints().len(), 13);
    assert_eq!(
        project
            .repo
            .git(&["show", &format!("{}:README.md", project.branch())]),
        "# project"
    );
    // A15: not in a temporary place, but with the user's data.
    let tree = worktree_of(&project);
    assert!(
        tree.starts_with(project.repo.home().join(".local/share/dex/worktrees")),
        "{tree:?}"
    );
    assert!(
        project
            .repo
            .git_in(&tree, &["status", "--porcelain"])
            .is_empty()
    );
    // Its commands work from the user's tree.
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["status"], "completed");
}

#[test]
fn a_run_in_a_work_tree_of_its_own_is_resumed_from_the_users() {
    let project = project();
    project.repo.write("README.md", "mine\n");
    project.exits(0, &["run", "--worktree", "--step"]);
    project.exits(0, &["resume"]);
    assert_eq!(project.checkpoints().len(), 13);
    assert_eq!(project.repo.read("README.md"), "mine\n");
    assert_eq!(
        project.repo.git(&["symbolic-ref", "HEAD"]),
        "refs/heads/main"
    );
}

#[test]
fn two_runs_in_two_work_trees_at_once_do_not_disturb_each_other() {
    let project = project();
    let children: Vec<_> = (0..2)
        .map(|_| project.start(&["run", "--worktree"]))
        .collect();
    for mut child in children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let branches = project.branch();
    let branches: Vec<&str> = branches.lines().collect();
    assert_eq!(branches.len(), 2);
    for branch in branches {
        let log = project
            .repo
            .git(&["log", "--format=%s", branch, "--not", "main"]);
        assert_eq!(log.lines().count(), 13);
        let record = project.record_at(branch);
        assert_eq!(record["status"], "completed");
        let noticed: Vec<String> = record["phases"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["noticed"].as_array().filter(|it| !it.is_empty()))
            .map(|it| format!("{it:?}"))
            .collect();
        assert!(noticed.is_empty(), "{noticed:?}");
    }
}

#[test]
fn c01_a_repository_without_a_commit_is_told_what_it_needs() {
    let project = Project::in_repo(Repo::unborn(&[]), &good(&["Say hello"]));
    let answer = refused(&project, 2, &["run"]);
    assert!(
        answer.err.contains("git commit --allow-empty"),
        "{}",
        answer.err
    );
    project
        .repo
        .git(&["commit", "-q", "--allow-empty", "-m", "first commit"]);
    project.exits(0, &["run"]);
}

#[test]
fn a_bare_repository_is_told_what_it_needs() {
    let project = project();
    let bare = project.repo.beside("bare.git");
    let bare_path = bare.to_string_lossy().into_owned();
    project
        .repo
        .git(&["clone", "-q", "--bare", ".", &bare_path]);
    let answer = refused(&project, 2, &["-C", &bare_path, "run", "-m", "hello"]);
    assert!(answer.err.contains("git worktree add"), "{}", answer.err);
    assert!(!bare.join("dex").exists());
}

#[test]
fn b05_a_missing_identity_is_named_before_anything_runs() {
    for only_config in [false, true] {
        let project = project();
        project.repo.git(&["config", "--unset", "user.name"]);
        project.repo.git(&["config", "--unset", "user.email"]);
        if only_config {
            project.repo.git(&["config", "user.useConfigOnly", "true"]);
        }
        let answer = refused(&project, 2, &["run"]);
        assert!(
            answer.err.contains("git config user.name"),
            "{}",
            answer.err
        );
        assert!(
            answer.err.contains("git config user.email"),
            "{}",
            answer.err
        );
    }
}

#[test]
fn a_branch_named_dex_in_the_way_is_named() {
    let project = project();
    project.repo.git(&["branch", "dex"]);
    let answer = refused(&project, 5, &["run"]);
    assert!(answer.err.contains("git branch -m dex"), "{}", answer.err);
}

#[test]
fn b07_an_operation_in_progress_is_named() {
    let project = project();
    project.repo.git(&["switch", "-qc", "side"]);
    project.repo.write("README.md", "side\n");
    project.repo.git(&["commit", "-qam", "side"]);
    project.repo.git(&["switch", "-q", "main"]);
    project.repo.write("README.md", "main\n");
    project.repo.git(&["commit", "-qam", "main"]);
    assert!(
        !project
            .repo
            .try_git(&["cherry-pick", "side"])
            .status
            .success()
    );
    for args in [&["run"][..], &["run", "--save"], &["run", "-m", "x"]] {
        let answer = refused(&project, 5, args);
        assert!(
            answer.err.to_lowercase().contains("cherry"),
            "{}",
            answer.err
        );
    }
    assert!(project.repo.read("README.md").contains("<<<<<<<"));
}

#[test]
fn c13_the_home_directory_is_refused_also_through_a_link() {
    let project = project();
    let link = project.repo.beside("link");
    std::os::unix::fs::symlink(project.repo.path(), &link).unwrap();
    for home in [project.repo.path().to_owned(), link] {
        let mut command = project.command(&["run"]);
        command.env("HOME", home);
        let answer = refused_command(&project, 2, command);
        assert!(answer.err.contains("home directory"), "{}", answer.err);
    }
}

#[test]
fn an_agent_that_is_not_there_is_named() {
    let project = project();
    project.settings(&json!({ "agent": "command", "agentCommand": ["no-such-agent"] }));
    let answer = refused(&project, 4, &["run"]);
    assert!(answer.err.contains("no-such-agent"), "{}", answer.err);
}

#[test]
fn bad_settings_are_named_by_file_line_and_field() {
    let project = project();
    project.repo.write(
        ".dex/dex-config.json",
        "{\n  \"agent\": \"scripted\",\n  \"limits\": { \"maxCycles\": \"many\" }\n}\n",
    );
    let before = project.fingerprint();
    let answer = project.exits(2, &["run"]);
    assert_eq!(project.fingerprint(), before);
    for word in ["dex-config.json", "3", "limits.maxCycles"] {
        assert!(answer.err.contains(word), "{word}: {}", answer.err);
    }
    project
        .repo
        .write(".dex/dex-config.json", "{\n  \"agent\": \"scripted\",\n");
    let answer = project.exits(2, &["run"]);
    assert!(answer.err.contains("dex-config.json"), "{}", answer.err);
    project.exits(2, &["run", "--agent", "nobody"]);
    assert_eq!(project.branch(), "");
}

#[test]
fn d01_of_two_runs_started_at_once_exactly_one_wins_and_the_other_names_it() {
    for round in 0..20 {
        let project = Project::with(json!({}), &["Say hello"], |_, name| {
            let mut stage = wrote("GOAL_product_domain.md", "x\n");
            stage["hang"] = json!(true);
            (name == "clarification_product").then_some(stage)
        });
        let start = || {
            let mut command = project.command(&["run"]);
            command.stdin(std::process::Stdio::null());
            command
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        };
        let mut both = vec![start(), start()];
        let loser = loop {
            let ended = both
                .iter_mut()
                .position(|it| it.try_wait().unwrap().is_some());
            if let Some(at) = ended {
                break both.remove(at);
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut winner = both.remove(0);
        let answer: Answer = loser.wait_with_output().unwrap().into();
        assert_eq!(answer.code, Some(8), "round {round}: {}", answer.err);
        assert!(
            answer.err.contains(&format!("process {}", winner.id())),
            "round {round}: {}",
            answer.err
        );
        assert!(answer.err.contains("nothing was changed"), "{}", answer.err);
        assert!(
            winner.try_wait().unwrap().is_none(),
            "round {round}: the winner works on"
        );
        project.until("the winner's branch", |it| !it.branch().is_empty());
        winner.kill().unwrap();
        winner.wait().unwrap();
        assert_eq!(project.branch().lines().count(), 1, "round {round}");
    }
}

#[test]
fn the_goal_can_be_text_standard_input_or_a_file_anywhere_in_the_project() {
    let small = ["run", "--small", "-m", "Print a greeting"];
    let project = project();
    std::fs::remove_file(project.repo.path().join("GOAL.md")).unwrap();
    project.exits(0, &small);
    assert_eq!(project.repo.read("GOAL.md"), "Print a greeting\n");

    // A different GOAL.md is left as it is.
    let project = self::project();
    project.repo.git(&["add", "GOAL.md"]);
    project.repo.git(&["commit", "-qm", "goal"]);
    let mut child = project
        .command(&["run", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"Wave\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let six = project.branch().rsplit('-').next().unwrap().to_owned();
    assert_eq!(project.repo.read(format!("GOAL-{six}.md")), "Wave\n");
    assert!(
        project
            .repo
            .path()
            .join(format!("GOAL-{six}_clarified.md"))
            .exists()
    );
    assert_eq!(project.repo.read("GOAL.md"), "# A greeting\n\nSay hello.\n");

    let project = self::project();
    std::fs::remove_file(project.repo.path().join("GOAL.md")).unwrap();
    project.repo.write("docs/idea.md", "Say hello.\n");
    project.exits(0, &["-C", "docs", "run", "idea.md"]);
    for file in ["idea.md", "idea_product_domain.md", "idea_clarified.md"] {
        assert!(project.was_committed(&format!("docs/{file}")), "{file}");
    }
    assert_eq!(project.record()["descriptionFile"], "docs/idea.md");
}

#[test]
fn a_goal_that_is_outside_missing_or_empty_is_refused() {
    let project = project();
    std::fs::write(project.repo.beside("outside.md"), "Say hello.\n").unwrap();
    let outside = refused(&project, 2, &["run", "../outside.md"]);
    assert!(outside.err.contains("not inside"), "{}", outside.err);
    refused(&project, 3, &["run", "nowhere.md"]);
    refused(&project, 2, &["run", "-m", "  "]);
    std::fs::remove_file(project.repo.path().join("GOAL.md")).unwrap();
    refused(&project, 3, &["run"]);
}

#[test]
fn a_small_goal_needs_no_agent_before_its_one_feature() {
    let project = project();
    project.exits(0, &["run", "--small"]);
    assert_eq!(project.checkpoints().len(), 13);
    assert_eq!(project.features(), ["completed"]);
    let once: Vec<_> = project
        .phases()
        .into_iter()
        .filter(|it| it["cycle"] == 0)
        .collect();
    assert_eq!(once.len(), 6);
    assert!(
        once.iter()
            .all(|it| it["agent"].is_null() && it["costUsd"].is_null()),
        "{once:?}"
    );
    assert_eq!(
        project.repo.read("GOAL_clarified.md"),
        "# Clarified goal\n\n# A greeting\n\nSay hello.\n"
    );
}

#[test]
fn a_goal_that_says_nothing_or_is_no_text_is_refused_before_anything_starts() {
    let project = Project::new(&good(&["Say hello"]));
    for (bytes, says) in [(&b" \n"[..], "is empty"), (&b"F\xfcge ein"[..], "UTF-8")] {
        std::fs::write(project.repo.path().join("OTHER.md"), bytes).unwrap();
        let answer = project.exits(2, &["run", "OTHER.md", "--small"]);
        assert!(answer.err.contains(says), "{}", answer.err);
    }
    assert_eq!(project.repo.git(&["branch", "--list", "dex/*"]), "");
}

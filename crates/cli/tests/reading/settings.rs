//! config, prompts, completions and manual pages.

use serde_json::json;
use testkit::Repo;

use crate::hand::dex;

#[test]
fn each_setting_is_shown_with_where_it_comes_from() {
    let repo = Repo::new();
    assert_eq!(dex(&repo, &["config", "limits.maxCycles", "7"]).code, 0);
    let shown = dex(&repo, &["config", "limits.maxCycles"]);
    assert_eq!(shown.out, "7\n");
    assert!(shown.err.contains(".dex/dex-config.json"), "{}", shown.err);
    let json = dex(&repo, &["config", "limits.maxBudgetUsd", "--json"]).json();
    assert_eq!(
        json,
        json!({ "key": "limits.maxBudgetUsd", "value": 25, "origin": { "kind": "built_in", "name": null } })
    );
    // A text that happens to be JSON is still a text where one is wanted.
    assert_eq!(
        dex(&repo, &["config", "verifyCommand", "true"]).out,
        "true\n"
    );
    assert_eq!(
        dex(&repo, &["config", "commit.allow", "[\"a\"]"]).out,
        "[\"a\"]\n"
    );
}

#[test]
fn an_unknown_setting_is_refused_with_the_one_that_was_meant() {
    let repo = Repo::new();
    for args in [
        &["config", "limits.maxCycle"][..],
        &["config", "limits.maxCycle", "3"],
    ] {
        let answer = dex(&repo, args);
        assert_eq!(answer.code, 2);
        assert!(
            answer.err.contains("did you mean limits.maxCycles?"),
            "{}",
            answer.err
        );
    }
    let bad = dex(&repo, &["config", "limits.maxCycles", "0"]);
    assert_eq!(bad.code, 2);
    assert!(!repo.path().join(".dex").exists(), "nothing was written");
}

#[test]
fn a_linked_work_tree_sets_the_file_that_counts() {
    let repo = Repo::new();
    dex(&repo, &["config", "limits.maxTurns", "9"]);
    let linked = repo.beside("linked");
    repo.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    let answer = crate::hand::dex_in(&repo, &linked, &["config", "limits.maxCycles", "7"]);
    assert_eq!(answer.out, "7\n", "{}", answer.err);
    assert_eq!(dex(&repo, &["config", "limits.maxCycles"]).out, "7\n");
    assert!(!linked.join(".dex").exists());
}

#[test]
fn the_projects_own_prompt_takes_the_place_of_ours() {
    let repo = Repo::new();
    assert!(dex(&repo, &["prompts", "plan"]).out.starts_with("# Plan"));
    repo.write(".dex/prompts/plan.md", "Plan {{feature_title}}.\n");
    repo.write(".dex/prompts/tasks.md", "{{nonsense}}\n");
    assert_eq!(
        dex(&repo, &["prompts", "plan"]).out,
        "Plan {{feature_title}}.\n"
    );
    let list = dex(&repo, &["prompts"]).out;
    assert!(
        list.contains("plan                     the project's own, .dex/prompts/plan.md"),
        "{list}"
    );
    assert!(
        list.contains(".dex/prompts/tasks.md cannot be used: line 1: {{nonsense}}"),
        "{list}"
    );
    assert_eq!(dex(&repo, &["prompts", "nope"]).code, 2);
}

#[test]
fn completions_and_manual_pages_come_from_the_command_line_itself() {
    let repo = Repo::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            dex(&repo, &["completions", shell]).out.contains("timeline"),
            "{shell}"
        );
    }
    let dir = repo.beside("man");
    let answer = dex(&repo, &["man", dir.to_str().unwrap()]);
    assert_eq!(answer.code, 0, "{}", answer.all());
    let mut there: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|it| it.unwrap().path().display().to_string())
        .collect();
    let mut said: Vec<String> = answer.out.lines().map(str::to_owned).collect();
    there.sort();
    said.sort();
    assert_eq!(said, there, "it says what it wrote");
    for page in ["dex.1", "git-dex.1", "dex-run.1", "dex-report.1"] {
        assert!(dir.join(page).is_file(), "{page}");
    }
    let page = std::fs::read_to_string(dir.join("dex.1")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
}

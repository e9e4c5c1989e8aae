//! What an agent does to the index, and to what the index says is left alone: a stage's tree is
//! what `git add -A` would make of it.

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, implementing, runs};

fn sh(script: &str) -> Value {
    implementing(runs(&[&["sh", "-ec", script]]))
}

fn project(script: &str) -> Project {
    Project::in_repo(Repo::new(), &sh(script))
}

/// A repository with a branch `up` that changes `out/1` and `conf.json`.
fn with_a_branch() -> Repo {
    let repo = Repo::new();
    repo.write("out/1", "one\n");
    repo.write("src/a", "a\n");
    repo.write("conf.json", "theirs\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "files"]);
    repo.git(&["switch", "-qc", "up"]);
    repo.write("out/1", "merged\n");
    repo.write("conf.json", "merged\n");
    repo.git(&["commit", "-qam", "up"]);
    repo.git(&["switch", "-q", "main"]);
    repo
}

#[test]
fn a_merge_by_the_agent_keeps_what_a_sparse_checkout_leaves_out() {
    let repo = with_a_branch();
    repo.git(&["sparse-checkout", "set", "src"]);
    let project = Project::in_repo(repo, &sh("git merge -q --no-edit up"));
    project.whole_run("merged in a sparse checkout");
    assert_eq!(project.repo.git(&["show", "HEAD:out/1"]), "merged");
}

#[test]
fn a_merge_by_the_agent_leaves_files_that_git_does_not_look_at_as_they_are() {
    let repo = with_a_branch();
    repo.git(&["update-index", "--skip-worktree", "conf.json"]);
    let project = Project::in_repo(repo, &sh("git merge -q --no-edit up"));
    project.whole_run("merged beside a hidden file");
    let all = project.repo.git(&["rev-list", "main..HEAD"]);
    for commit in all.lines() {
        let there = project.repo.git(&["ls-tree", commit, "conf.json"]);
        assert!(!there.is_empty(), "{commit}");
    }
    assert_eq!(project.repo.git(&["show", "HEAD:conf.json"]), "merged");
}

#[test]
fn a_file_the_agent_stops_tracking_and_ignores_is_out_of_the_tree_and_stays_on_disk() {
    let repo = Repo::new();
    repo.write("build.log", "log\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "oops"]);
    let script = "git rm -q --cached build.log; echo build.log >> .gitignore";
    let project = Project::in_repo(repo, &sh(script));
    project.whole_run("untracked and ignored");
    assert_eq!(project.repo.git(&["ls-tree", "HEAD", "build.log"]), "");
    assert_eq!(project.repo.read("build.log"), "log\n");
}

#[test]
fn a_tracked_file_whose_place_a_repository_takes_is_deleted_and_the_tree_is_clean_b14() {
    let repo = Repo::new();
    repo.write("a.txt", "a\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "a"]);
    let project = Project::in_repo(repo, &sh("rm a.txt; git init -q a.txt"));
    project.whole_run("a repository in a file's place");
    assert_eq!(project.repo.git(&["ls-tree", "HEAD", "a.txt"]), "");
}

#[test]
fn a_large_file_whose_name_is_no_text_is_left_out_and_the_tree_is_clean() {
    let project =
        project(r#"head -c 200000 /dev/zero > "$(printf 'big\377.bin')"; echo x > x.txt"#);
    project.settings(&json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } }));
    project.whole_run("left out");
    let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    assert!(!tree.contains("big") && tree.contains("x.txt"), "{tree}");
}

#[test]
fn a_pipe_in_the_place_of_a_goal_file_hangs_nobody() {
    let script = super::support::script(&["Say hello"], |_, name| match name {
        "clarification_technical" => Some(runs(&[&[
            "sh",
            "-c",
            "rm -f GOAL_product_domain.md; mkfifo GOAL_product_domain.md",
        ]])),
        _ => None,
    });
    let project = Project::new(&script);
    let child = project.start(&["run"]);
    let ended = project.ends_within(child, std::time::Duration::from_secs(60));
    assert!(ended, "it waits for somebody to write into the pipe");
}

#[test]
fn an_entry_that_left_out_what_is_ignored_since_can_be_undone() {
    let project = project("git init -q nest; echo n > nest/n; echo w > w.txt");
    project.whole_run("a nested repository");
    project.repo.write("w.txt", "edited\n");
    let repo = gitdb::Repo::open(project.repo.path()).unwrap();
    let keep = gitdb::undo::Keep {
        leave_out: vec![b"nest".to_vec()],
        ..gitdb::undo::Keep::default()
    };
    gitdb::undo::record(&repo, "tried", &keep, 1).unwrap();
    project.repo.git(&["checkout", "-q", "w.txt"]);
    project.dex_ok(&["undo", "--yes"]);
    assert_eq!(project.repo.read("w.txt"), "edited\n");
    assert_eq!(project.repo.read("nest/n"), "n\n");
}

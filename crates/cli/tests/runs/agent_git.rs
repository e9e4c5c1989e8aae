//! What an agent does to git and to `.dex/`, by accident or on purpose.

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, implementing, runs, script};

pub(crate) fn sh(script: &str) -> Value {
    implementing(runs(&[&["sh", "-ec", script]]))
}

pub(crate) fn project(script: &str) -> Project {
    Project::in_repo(Repo::new(), &sh(script))
}

pub(crate) fn phases(project: &Project, stage: &str) -> Vec<Value> {
    let all = project.record()["phases"].as_array().unwrap().clone();
    all.into_iter().filter(|it| it["stage"] == stage).collect()
}

pub(crate) fn noticed(project: &Project) -> String {
    phases(project, "implement")[0]["noticed"].to_string()
}

const FORGED: &str = "git commit -q --allow-empty -m 'dex: verify completed [cycle:1] [feature:a-greeting]\n[checkpoint:verify:1]'";

#[test]
fn commits_an_agent_makes_are_folded_and_a_forged_marker_counts_for_nothing_b11() {
    let project = project(&format!(
        "echo a > a.txt; git add a.txt; git commit -qm mine; {FORGED}; echo b > b.txt"
    ));
    project.whole_run("agent commits");
    let files = project.repo.git(&["ls-tree", "--name-only", "HEAD"]);
    assert!(
        files.contains("a.txt") && files.contains("b.txt"),
        "{files}"
    );
    let implement = phases(&project, "implement");
    let commits = implement[0]["agentCommits"].as_array().unwrap();
    assert_eq!(commits.len(), 2, "{implement:?}");
    let undo = project.dex_ok(&["undo", "--list"]);
    assert!(undo.contains("folded"), "{undo}");
    for commit in commits {
        let held = project.repo.git(&[
            "for-each-ref",
            "--contains",
            commit.as_str().unwrap(),
            "--format=%(refname)",
        ]);
        assert!(held.starts_with("refs/dex-local/undo/"), "{held}");
    }
    assert_eq!(
        phases(&project, "verify").len(),
        1,
        "it was verified, whatever the agent wrote"
    );
}

#[test]
fn a_large_file_or_a_secret_that_an_agent_committed_is_judged_as_well() {
    let project = project(
        "head -c 200000 /dev/zero > big.bin; git add -A; git commit -qm big; echo x > x.txt",
    );
    project.settings(&json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } }));
    project.whole_run("agent committed a large file");
    let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    assert!(
        !tree.contains("big.bin") && tree.contains("x.txt"),
        "{tree}"
    );
    assert!(project.repo.path().join("big.bin").exists());
    assert_eq!(
        phases(&project, "implement")[0]["leftOut"][0]["path"],
        "big.bin"
    );
}

/// Runs to the pause that moving HEAD causes, and checks that nothing else moved.
fn moved(script: &str) -> Project {
    let project = project(script);
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(5), "{script}: {}", answer.err);
    let status = project.json(&["status", "--json"]);
    assert_eq!(
        status["pause"]["reason"], "head_moved",
        "{script}: {status}"
    );
    assert!(answer.err.contains("dex resume --keep"), "{}", answer.err);
    let again = project.dex(&["resume"]);
    assert_eq!(again.code, Some(9), "{script}: {}", again.err);
    assert!(
        again.err.contains("--keep") && again.err.contains("--discard"),
        "{}",
        again.err
    );
    project
}

#[test]
fn an_agent_that_moves_head_stops_the_run_and_keep_takes_the_tree() {
    for script in [
        "echo x > made.txt; git switch -q -c elsewhere; git add made.txt; git commit -qm there",
        "echo x > made.txt; git checkout -q --detach",
        "git reset -q --hard HEAD~2; echo x > made.txt",
        "echo x > made.txt; git add made.txt; git commit -qm on-branch; git switch -q -c elsewhere",
        "echo x > made.txt; b=$(git symbolic-ref HEAD); git checkout -q --detach; git update-ref -d $b",
    ] {
        let project = moved(script);
        project.dex_ok(&["resume", "--keep"]);
        project.is_over(script);
        assert_eq!(
            project.repo.git(&["show", "HEAD:made.txt"]),
            "x",
            "{script}"
        );
        assert_eq!(
            phases(&project, "implement").len(),
            1,
            "{script}: paid once"
        );
        assert_eq!(
            phases(&project, "tasks").len(),
            1,
            "{script}: no stage was lost"
        );
    }
}

#[test]
fn an_agent_that_moves_head_stops_the_run_and_discard_goes_back() {
    for script in [
        "if [ -e ../once ]; then echo y > second.txt; else touch ../once; echo x > made.txt; git switch -q -c elsewhere; git add made.txt; git commit -qm there; fi",
        "if [ -e ../once ]; then echo y > second.txt; else touch ../once; git reset -q --hard HEAD~2; echo x > made.txt; fi",
        "if [ -e ../once ]; then echo y > second.txt; else touch ../once; echo x > made.txt; git add -A; git commit -qm on-branch; git checkout -q --detach; fi",
    ] {
        let project = moved(script);
        project.dex_ok(&["resume", "--discard"]);
        project.is_over(script);
        let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
        assert!(
            tree.contains("second.txt") && !tree.contains("made.txt"),
            "{script}: {tree}"
        );
        assert!(tree.contains("/tasks.md"), "{script}: {tree}");
        let attempts = phases(&project, "implement");
        assert_eq!(attempts.len(), 2, "{script}: the first one's cost counts");
        assert_eq!(attempts[0]["reason"], "head_moved");
    }
}

#[test]
fn commits_of_an_attempt_that_failed_are_taken_back_with_it() {
    let forging = format!("echo x > made.txt; git add -A; git commit -qm mine; {FORGED}; exit 1");
    let failing = json!({ "cost": 0.05, "run": ["sh", "-ec", format!("if [ -e ../once ]; then echo y > second.txt; else touch ../once; {forging}; fi")] });
    let project = Project::in_repo(Repo::new(), &implementing(failing));
    let answer = project.dex(&["run", "--small"]);
    let commits = project.stages();
    let verified = commits
        .iter()
        .filter(|it| it.contains("[checkpoint:verify:"))
        .count();
    let implemented = commits
        .iter()
        .filter(|it| it.contains("[checkpoint:implement:"))
        .count();
    assert!(verified <= implemented, "{}\n{commits:#?}", answer.err);
    assert!(!commits.iter().any(|it| it == "mine"), "{commits:#?}");
    let undo = project.dex_ok(&["undo", "--list"]);
    assert!(undo.contains("failed"), "{undo}");
    assert!(project.is_clean());
}

#[test]
fn an_operation_left_open_stops_the_run_until_a_person_ends_it() {
    let merging = "b=$(git symbolic-ref --short HEAD); git switch -q -c side; echo theirs > README.md; git commit -qam theirs; \
        git switch -q $b; echo mine > README.md; git commit -qam mine; git merge side || true";
    let project = project(merging);
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(5), "{}", answer.err);
    assert_eq!(
        project.json(&["status", "--json"])["pause"]["reason"],
        "agent_left_operation"
    );
    assert!(
        answer.err.to_lowercase().contains("merge"),
        "{}",
        answer.err
    );
    let tip = project.repo.git(&["rev-parse", "HEAD"]);
    let again = project.dex(&["resume"]);
    assert_eq!(again.code, Some(5), "{}", again.err);
    assert_eq!(
        project.repo.git(&["rev-parse", "HEAD"]),
        tip,
        "nothing moved"
    );
    assert!(project.repo.path().join(".git/MERGE_HEAD").exists());
    project.repo.git(&["merge", "--abort"]);
    project.dex_ok(&["resume"]);
    project.is_over("after the merge was aborted");
    assert_eq!(phases(&project, "implement").len(), 1);
}

#[test]
fn reset_hard_and_clean_take_neither_the_machine_files_nor_an_uncommitted_goal_a12() {
    let project = project(
        "echo x > kept.txt; git stash -q -u; git reset -q --hard; git clean -qfdx; echo y > after.txt",
    );
    let settings = project.repo.read(".dex/dex-config.json");
    let mock = project.repo.read(".dex/mock-config.json");
    project.whole_run("cleaned up");
    assert_eq!(project.repo.read(".dex/dex-config.json"), settings);
    assert_eq!(project.repo.read(".dex/mock-config.json"), mock);

    let cleaning = script(&["A greeting"], |cycle, name| {
        (cycle == 0 && name == "clarification_product").then(|| {
            let write =
                "git reset -q --hard; git clean -qfdx; printf product > GOAL_product_domain.md";
            json!({ "cost": 0.01, "run": ["sh", "-ec", write] })
        })
    });
    let project = Project::in_repo(Repo::new(), &cleaning);
    let goal = project.repo.read("GOAL.md");
    project.dex_ok(&["run"]);
    project.is_over("cleaned up in the first stage");
    assert_eq!(project.repo.read("GOAL.md"), goal);
    assert!(
        project
            .repo
            .git(&["show", "HEAD:GOAL.md"])
            .contains("Say hello")
    );
}

#[test]
fn configuration_and_hooks_are_put_back_before_git_runs_and_the_rest_is_listed() {
    let repo = Repo::new();
    let canary = repo.beside("canary");
    let wt = repo.beside("agent-wt");
    let script = format!(
        "echo x > made.txt; git branch b1; git tag t1; echo s > stashed.txt; git add stashed.txt; git stash -q; \
        git worktree add -q -b b2 {wt}; \
        printf '#!/bin/sh\\necho $0 >> {canary}\\n' > ../canary.sh; chmod +x ../canary.sh; \
        for h in pre-commit post-commit reference-transaction post-index-change post-checkout; do cp ../canary.sh .git/hooks/$h; done; \
        printf '[core]\\n\\tfsmonitor = {0}.sh\\n\\thooksPath = hooks\\n[alias]\\n\\tstatus = !{0}.sh\\n[diff]\\n\\texternal = {0}.sh\\n[include]\\n\\tpath = {0}.inc\\n' >> .git/config; \
        printf '[filter \"x\"]\\n\\tclean = {0}.sh\\n' > {0}.inc; echo '* filter=x' > .git/info/attributes; echo made.txt >> .git/info/exclude",
        canary.display(),
        wt = wt.display(),
        canary = canary.display(),
    );
    let project = Project::in_repo(repo, &sh(&script));
    let read = |name: &str| std::fs::read(project.repo.path().join(".git").join(name)).unwrap();
    let config = read("config");
    project.whole_run("config and hooks");
    assert!(
        !canary.exists(),
        "{}",
        std::fs::read_to_string(&canary).unwrap_or_default()
    );
    assert_eq!(read("config"), config);
    assert!(!String::from_utf8_lossy(&read("info/exclude")).contains("made.txt"));
    assert!(!project.repo.path().join(".git/hooks/pre-commit").exists());
    assert!(!project.repo.path().join(".git/info/attributes").exists());
    assert_eq!(project.repo.git(&["show", "HEAD:made.txt"]), "x");
    let noticed = noticed(&project);
    for word in [
        "config was changed",
        "pre-commit",
        "refs/heads/b1",
        "refs/tags/t1",
        "refs/heads/b2",
        "agent-wt",
        "stash",
        "exclude",
        "attributes",
    ] {
        assert!(noticed.contains(word), "{word}: {noticed}");
    }
    // Listed, not undone.
    for name in [
        "refs/heads/b1",
        "refs/tags/t1",
        "refs/heads/b2",
        "refs/stash",
    ] {
        project.repo.git(&["rev-parse", "--verify", "-q", name]);
    }
}

#[test]
fn the_users_stash_is_the_same_before_and_after_a13() {
    let repo = Repo::new();
    repo.write("README.md", "mine, for later\n");
    repo.git(&["stash", "-q"]);
    let stash = repo.git(&["log", "-g", "--format=%H %gd", "refs/stash"]);
    let project = Project::in_repo(repo, &sh("echo x > x.txt"));
    project.whole_run("with a stash");
    assert_eq!(
        project
            .repo
            .git(&["log", "-g", "--format=%H %gd", "refs/stash"]),
        stash
    );
    assert_eq!(
        project.repo.git(&["show", "refs/stash:README.md"]),
        "mine, for later"
    );
}

#[test]
fn flags_an_agent_sets_do_not_hide_its_work_and_the_users_own_stay() {
    let repo = Repo::new();
    repo.write("mine.txt", "as committed\n");
    repo.write("other.txt", "as committed\n");
    repo.write("removed.txt", "as committed\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "files"]);
    repo.git(&["update-index", "--assume-unchanged", "mine.txt"]);
    repo.write("mine.txt", "only here\n");
    let project = Project::in_repo(
        repo,
        &sh("echo new > README.md; echo new > other.txt; \
             git update-index --assume-unchanged README.md; \
             git update-index --skip-worktree other.txt removed.txt; rm removed.txt"),
    );
    project.whole_run("hidden files");
    for path in ["README.md", "other.txt"] {
        assert_eq!(project.repo.git(&["show", &format!("HEAD:{path}")]), "new");
    }
    assert_eq!(project.repo.git(&["ls-tree", "HEAD", "removed.txt"]), "");
    assert_eq!(project.repo.git(&["show", "HEAD:mine.txt"]), "as committed");
    assert_eq!(
        project.repo.git(&["ls-files", "-v", "mine.txt"]),
        "h mine.txt"
    );
    let noticed = noticed(&project);
    assert!(noticed.contains("README.md was hidden"), "{noticed}");
}

#[test]
fn what_is_left_out_is_looked_at_anew_at_each_stage() {
    let nested = "git init -q nested; git -C nested -c user.name=x -c user.email=x@x commit -q --allow-empty -m x";
    let big = "head -c 200000 /dev/zero > shrinks.bin; cp shrinks.bin stays.bin";
    let implement = format!("{big}; {nested}; echo x > nested/file.txt");
    let verify = "rm -rf nested/.git; echo small > shrinks.bin";
    let script = script(&["A greeting"], |_, name| match name {
        "implement" => Some(runs(&[&["sh", "-ec", &implement]])),
        "verify" => Some(runs(&[&["sh", "-ec", verify]])),
        _ => None,
    });
    let project = Project::in_repo(Repo::new(), &script);
    let settings = json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } });
    project.settings(&settings);
    project.repo.write(".git/info/exclude", "# mine\nown.txt");
    project.whole_run("left out for a while");
    let left_out = |stage: &str| -> Vec<String> {
        let phase = phases(&project, stage).pop().unwrap()["leftOut"].clone();
        let paths = phase.as_array().cloned().unwrap_or_default();
        paths
            .iter()
            .map(|it| it["path"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        left_out("implement"),
        ["nested", "shrinks.bin", "stays.bin"]
    );
    assert!(left_out("verify").is_empty(), "named once");
    assert_eq!(project.repo.git(&["show", "HEAD:shrinks.bin"]), "small");
    assert_eq!(project.repo.git(&["show", "HEAD:nested/file.txt"]), "x");
    let exclude = project.repo.read(".git/info/exclude");
    assert!(exclude.starts_with("# mine\nown.txt\n"), "{exclude}");
    assert!(
        exclude.ends_with("(begin)\n/stays.bin\n# dex: left out of commits in main (end)\n"),
        "{exclude}"
    );
    // Over, and gone: the next run leaves no block behind.
    std::fs::remove_file(project.repo.path().join("stays.bin")).unwrap();
    project.prepare(&implementing(runs(&[&["sh", "-ec", "echo y > y.txt"]])));
    project.dex_ok(&["run", "--small"]);
    let exclude = project.repo.read(".git/info/exclude");
    assert!(!exclude.contains("left out"), "{exclude}");
}

#[test]
fn a_goal_that_could_not_be_committed_is_refused_by_name() {
    let project = project("echo x > x.txt");
    project.repo.write("GOAL.md", "long\n".repeat(300_000));
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    assert!(answer.err.contains("GOAL.md"), "{}", answer.err);
    assert_eq!(project.branch(), "");
}

#[test]
fn branches_tags_and_stashes_an_agent_takes_away_can_be_brought_back() {
    let repo = Repo::new();
    let commit = |name: &str| {
        repo.git(&["switch", "-q", "-c", name]);
        repo.write(format!("{name}.txt"), name);
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", name]);
        let oid = repo.git(&["rev-parse", "HEAD"]);
        repo.git(&["switch", "-q", "main"]);
        oid
    };
    let (gone, moved, tagged) = (commit("gone"), commit("moved"), commit("tagged"));
    repo.git(&["tag", "-a", "-m", "t", "t1", "tagged"]);
    repo.git(&["branch", "-D", "tagged"]);
    repo.write("README.md", "mine, for later\n");
    repo.git(&["stash", "-q"]);
    let stash = repo.git(&["rev-parse", "refs/stash"]);
    let script = "echo x > x.txt; git branch -D gone; git branch -f moved main; \
        git tag -d t1; git stash drop -q";
    let project = Project::in_repo(repo, &sh(script));
    project.whole_run("taken away");
    project
        .repo
        .git(&["reflog", "expire", "--expire=now", "--all"]);
    project.repo.git(&["gc", "-q", "--prune=now"]);
    for oid in [&gone, &moved, &tagged, &stash] {
        project.repo.git(&["cat-file", "-e", oid]);
    }
    let noticed = noticed(&project);
    for words in [
        format!("`git branch -f gone {gone}`"),
        format!("`git branch -f moved {moved}`"),
        "`git tag -f t1 ".to_owned(),
        format!("`git stash store {stash}`"),
    ] {
        assert!(noticed.contains(&words), "{words}: {noticed}");
    }
    let undo = project.dex_ok(&["undo", "--list"]);
    assert!(undo.contains("removed or moved"), "{undo}");
}

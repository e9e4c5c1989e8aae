//! What an agent does to git and to `.dex/`, by accident or on purpose.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, implementing, runs, script};

fn sh(script: &str) -> Value {
    implementing(runs(&[&["sh", "-ec", script]]))
}

fn project(script: &str) -> Project {
    Project::in_repo(Repo::new(), &sh(script))
}

fn phases(project: &Project, stage: &str) -> Vec<Value> {
    let all = project.record()["phases"].as_array().unwrap().clone();
    all.into_iter().filter(|it| it["stage"] == stage).collect()
}

fn noticed(project: &Project) -> String {
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
fn what_an_agent_writes_under_dot_dex_is_put_back_and_listed() {
    let tampering = [
        "echo '{}' > .dex/state.json; echo '{}' > .dex/feature-manifest.json; for f in .dex/runs/*; do echo '{}' > $f; done; \
            mkdir -p .dex/prompts; echo evil > .dex/prompts/verify.md; echo '{}' > .dex/mock-config.json; echo '{\"agent\":\"claude\"}' > .dex/dex-config.json; \
            echo new > .dex/new.txt; rm .dex/.gitignore",
        "mv .dex ../gone; mkdir ../trap; ln -s ../trap .dex",
        "rm -rf .dex",
        "rm .dex/state.json; mkdir .dex/state.json; echo x > .dex/state.json/x; rm -r .dex/runs; echo file > .dex/runs; mkfifo .dex/pipe",
        "mv .dex .dex-moved; echo file > .dex",
    ];
    for script in tampering {
        let project = project(&format!("{script}; echo x > made.txt; rm -rf .dex-moved"));
        let settings = project.repo.read(".dex/dex-config.json");
        let mock = project.repo.read(".dex/mock-config.json");
        project.whole_run(script);
        assert_eq!(
            project.repo.read(".dex/dex-config.json"),
            settings,
            "{script}"
        );
        assert_eq!(project.repo.read(".dex/mock-config.json"), mock, "{script}");
        let noticed = noticed(&project);
        assert!(noticed.contains("put back"), "{script}: {noticed}");
        let tracked = project.repo.git(&["ls-files", ".dex"]);
        assert_eq!(tracked.lines().count(), 6, "{script}: {tracked}");
        let trap = project.repo.beside("trap");
        assert!(
            !trap.exists() || std::fs::read_dir(trap).unwrap().next().is_none(),
            "{script}"
        );
        assert!(
            !project.repo.path().join(".dex/prompts/verify.md").exists(),
            "{script}"
        );
    }
}

#[test]
fn links_of_the_users_under_dot_dex_stay_links() {
    let repo = Repo::new();
    let shared = repo.beside("prompts");
    std::fs::create_dir(&shared).unwrap();
    let settings = repo.beside("settings.json");
    std::fs::write(&settings, json!({ "agent": "scripted" }).to_string()).unwrap();
    let project = Project::in_repo(
        repo,
        &sh("echo x > x.txt; rm .dex/prompts; mkdir .dex/prompts"),
    );
    let at = |name: &str| project.repo.path().join(".dex").join(name);
    std::os::unix::fs::symlink(&shared, at("prompts")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", at("dangling")).unwrap();
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(std::fs::read_link(at("prompts")).unwrap(), shared);
    assert!(
        noticed(&project).contains(".dex/prompts"),
        "{}",
        noticed(&project)
    );
}

#[test]
fn learnings_only_ever_grow() {
    let project = project("echo '- by the agent' > .dex/learnings.md; echo x > x.txt");
    project
        .repo
        .write(".dex/learnings.md", "# Learnings\n\n- from before\n");
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let learnings = project.repo.git(&["show", "HEAD:.dex/learnings.md"]);
    for line in ["- from before", "- by the agent", "learned in 1"] {
        assert!(learnings.contains(line), "{learnings}");
    }
}

#[test]
fn a_process_left_behind_does_not_write_after_the_stage() {
    let project = project(
        "(trap '' HUP TERM; while :; do date +%N >> noise.txt; sleep 0.02; done) >/dev/null 2>&1 & \
        setsid sh -c 'while :; do date +%N >> more.txt; sleep 0.02; done' >/dev/null 2>&1 & sleep 0.1",
    );
    let began = Instant::now();
    project.whole_run("left behind");
    let size =
        |name: &str| std::fs::metadata(project.repo.path().join(name)).map_or(0, |it| it.len());
    let before = (size("noise.txt"), size("more.txt"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((size("noise.txt"), size("more.txt")), before);
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(project.is_clean());
}

#[test]
fn what_the_verify_command_does_to_git_and_dot_dex_is_put_back_too() {
    let repo = Repo::new();
    let canary = repo.beside("canary");
    let check = format!(
        "printf '#!/bin/sh\\necho $0 >> {0}\\n' > ../canary.sh; chmod +x ../canary.sh; \
         cp ../canary.sh .git/hooks/post-commit; git config core.fsmonitor {0}.sh; \
         mkdir -p .dex/prompts; echo evil > .dex/prompts/learnings.md; \
         echo '{{\"agent\":\"claude\"}}' > .dex/dex-config.json; echo seen > ../seen\n",
        canary.display()
    );
    std::fs::write(repo.beside("check.sh"), check).unwrap();
    let project = Project::in_repo(repo, &sh("cp ../check.sh check.sh"));
    // Inside walls it could not even try.
    project.settings(
        &json!({ "agent": "scripted", "verifyCommand": "sh check.sh", "sandbox": "off" }),
    );
    let settings = project.repo.read(".dex/dex-config.json");
    let config = project.repo.read(".git/config");
    project.whole_run("a verify command that tampers");
    assert!(project.repo.beside("seen").exists());
    assert!(!canary.exists());
    assert_eq!(project.repo.read(".dex/dex-config.json"), settings);
    assert_eq!(project.repo.read(".git/config"), config);
    for gone in [".git/hooks/post-commit", ".dex/prompts/learnings.md"] {
        assert!(!project.repo.path().join(gone).exists(), "{gone}");
    }
    let noticed = phases(&project, "verify")[0]["noticed"].to_string();
    for word in ["the verify command ran", "config", "post-commit", "prompts"] {
        assert!(noticed.contains(word), "{word}: {noticed}");
    }
}

#[test]
fn what_the_verify_command_did_before_a_crash_is_put_back_at_the_resume() {
    let project = project("echo x > x.txt");
    let command = "if [ ! -e ../once ]; then git config core.fsmonitor /nowhere; \
        mkdir -p .dex/prompts; echo evil > .dex/prompts/learnings.md; touch ../once; sleep 60; fi";
    project.settings(&json!({ "agent": "scripted", "verifyCommand": command, "sandbox": "off" }));
    let config = project.repo.read(".git/config");
    let mut child = project.start(&["run", "--small"]);
    project.until("the command is at work", |it| {
        it.repo.beside("once").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(project.repo.read(".git/config"), config);
    project.dex_ok(&["resume"]);
    project.is_over("killed in the verify command");
    assert_eq!(project.repo.read(".git/config"), config);
    assert!(
        !project
            .repo
            .path()
            .join(".dex/prompts/learnings.md")
            .exists()
    );
}

#[test]
fn files_changed_by_the_verifying_agent_are_verified_again() {
    let verifying = |run: &str| {
        let run = run.to_owned();
        script(&["A greeting"], move |_, name| match name {
            "implement" => Some(runs(&[&["sh", "-ec", "echo x > good.txt"]])),
            "verify" => Some(runs(&[&["sh", "-ec", &run]])),
            _ => None,
        })
    };
    let cases = [
        ("rm good.txt", false, 2),
        ("git rm -q good.txt; git commit -qm 'all is well'", false, 2),
        ("echo more > other.txt", true, 2),
        ("true", true, 1),
    ];
    for (run, passed, times) in cases {
        let project = Project::in_repo(Repo::new(), &verifying(run));
        project.settings(
            &json!({ "agent": "scripted", "limits": { "maxVerifyRetries": 0 },
            "sandbox": "off", "verifyCommand": "echo ran >> ../ran; test -e good.txt" }),
        );
        let answer = project.dex(&["run", "--small"]);
        let verify = &phases(&project, "verify")[0];
        assert_eq!(
            verify["verify"]["passed"], passed,
            "{run}: {verify} {}",
            answer.err
        );
        assert_eq!(verify["verify"]["by"], "command");
        let ran = std::fs::read_to_string(project.repo.beside("ran")).unwrap();
        let ran = ran.lines().count();
        // What failed is fixed and verified once more.
        assert!(ran == times || (!passed && ran > times), "{run}: {ran}");
    }
}

#[test]
fn flags_an_agent_sets_do_not_hide_its_work_and_the_users_own_stay() {
    let repo = Repo::new();
    repo.write("mine.txt", "as committed\n");
    repo.write("other.txt", "as committed\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "files"]);
    repo.git(&["update-index", "--assume-unchanged", "mine.txt"]);
    repo.write("mine.txt", "only here\n");
    let project = Project::in_repo(
        repo,
        &sh("echo new > README.md; echo new > other.txt; \
             git update-index --assume-unchanged README.md; git update-index --skip-worktree other.txt"),
    );
    project.whole_run("hidden files");
    for path in ["README.md", "other.txt"] {
        assert_eq!(project.repo.git(&["show", &format!("HEAD:{path}")]), "new");
    }
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

//! What an agent, or the verify command, does to `.dex/`, to files that are judged already, and after
//! its end.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Repo;

use super::agent_git::{noticed, phases, project, sh};
use super::support::{Project, runs, script};

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
    project.settings(&json!({ "agent": "scripted", "verifyCommand": "sh check.sh" }));
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
    project.settings(&json!({ "agent": "scripted", "verifyCommand": command }));
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
            "verifyCommand": "echo ran >> ../ran; test -e good.txt" }),
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

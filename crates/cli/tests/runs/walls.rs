//! Agents and verify commands inside the sandbox, as a run has it.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Answer, Project, implementing, runs};

/// A project whose agent is a program: this shell script in `implement`, and what a run needs in
/// every other stage.
fn with_agent(implement: &str, more: &Value) -> Project {
    let agent = format!(
        "cat > /dev/null; case $DEX_STAGE in \
         specify) mkdir -p $DEX_SPEC_DIR; echo spec > $DEX_SPEC_DIR/spec.md;; \
         plan) echo plan > $DEX_SPEC_DIR/plan.md;; \
         tasks) printf '# T\\n\\n## Phase 1: All\\n\\n- [ ] T001 One\\n' > $DEX_SPEC_DIR/tasks.md;; \
         implement) printf '# T\\n\\n## Phase 1: All\\n\\n- [x] T001 One\\n' > $DEX_SPEC_DIR/tasks.md; \
         {implement}\n;; \
         verify) echo '{{\"passed\": true, \"buildSucceeded\": true, \"testsSucceeded\": true, \
         \"failures\": [], \"summary\": \"ok\"}}' > $DEX_ANSWER;; esac"
    );
    let project = Project::in_repo(Repo::new(), &implementing(json!({})));
    let mut settings = json!({ "agent": "command", "agentCommand": ["sh", "-c", agent] });
    let more = more.as_object().expect("an object").clone();
    settings.as_object_mut().expect("an object").extend(more);
    project.settings(&settings);
    project
}

fn phase(project: &Project, stage: &str) -> Value {
    let record = project.record();
    let phases = record["phases"].as_array().expect("a list");
    phases
        .iter()
        .find(|it| it["stage"] == stage)
        .expect("the stage")
        .clone()
}

fn ran(project: &Project, args: &[&str]) -> Answer {
    let answer = project.dex(args);
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    answer
}

/// A `bwrap` first on PATH that may not do its work, as where a distribution forbids it.
fn forbidden_bwrap(project: &Project) -> std::ffi::OsString {
    let dir = project.repo.beside("forbidden");
    std::fs::create_dir_all(&dir).expect("makes");
    let program = dir.join("bwrap");
    let script = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n";
    std::fs::write(&program, script).expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("chmod");
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(dir).chain(std::env::split_paths(&rest));
    std::env::join_paths(all).expect("a path")
}

/// Everything an agent might try on git, each allowed to fail.
const TAMPERS: &str = "echo made > made.txt; \
    for try in 'git add made.txt' 'git commit -qam mine' 'git branch b1' 'git stash -u' \
      'git config core.fsmonitor /evil' 'git config alias.st !evil' \
      'echo evil > .git/hooks/post-commit' 'echo evil > .git/info/attributes' 'rm -rf .git' \
      'mv .git .git2' 'echo evil > .dex/state.json'; \
    do (eval \"$try\") > /dev/null 2>&1 && echo \"$try\" >> did.txt; done; \
    git status --short > status.txt; git log --oneline > log.txt";

#[test]
fn c24_an_agent_can_look_at_git_and_change_nothing_of_it_and_the_stage_is_committed() {
    if !testkit::left_out::with_bwrap() {
        return;
    }
    for place in ["in place", "in a linked work tree"] {
        let project = with_agent(TAMPERS, &json!({ "sandbox": "required" }));
        let config = project.repo.read(".git/config");
        match place {
            "in place" => ran(&project, &["run", "--small"]),
            _ => ran(&project, &["run", "--small", "--worktree"]),
        };
        let branch = project.branch();
        let show = |name: &str| project.repo.git(&["show", &format!("{branch}:{name}")]);
        assert_eq!(show("made.txt"), "made", "{place}");
        assert!(show("status.txt").contains("?? made.txt"), "{place}");
        assert!(show("log.txt").contains("dex: tasks completed"), "{place}");
        let files = project.repo.git(&["ls-tree", "--name-only", &branch]);
        assert!(!files.contains("did.txt"), "{place}: {}", show("did.txt"));
        assert_eq!(project.repo.read(".git/config"), config);
        assert_eq!(project.stages().len(), 13, "{place}");
        let implement = phase(&project, "implement");
        assert_eq!(implement["sandbox"], "bwrap", "{place}");
        for nothing in ["noticed", "agentCommits"] {
            let told = implement[nothing].as_array().map_or(0, Vec::len);
            assert_eq!(told, 0, "{place}: {implement}");
        }
    }
}

#[test]
fn what_was_in_force_is_shown_and_recorded_also_when_it_was_nothing() {
    let project = with_agent("echo x > x.txt", &json!({ "sandbox": "off" }));
    ran(&project, &["run", "--small"]);
    assert_eq!(phase(&project, "implement")["sandbox"], "none");
    let shown = project.dex_ok(&["show", "implement:1"]);
    assert!(shown.contains("none"), "{shown}");

    if !testkit::left_out::with_bwrap() {
        return;
    }
    let project = with_agent("echo x > x.txt", &json!({}));
    ran(&project, &["run", "--small"]);
    let shown = project.dex_ok(&["show", "implement:1"]);
    assert!(shown.contains("bwrap"), "{shown}");
}

#[test]
fn a_verify_command_has_no_network_unless_configured_and_changes_nothing_outside() {
    if !testkit::left_out::with_bwrap() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    let check = format!(
        "bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'; echo $? > net.txt; \
        (echo x > .git/hooks/post-commit) 2> /dev/null; echo $? > git.txt; ls ~/.ssh 2> /dev/null; true"
    );
    for (network, expected) in [(false, "1"), (true, "0")] {
        let project = Project::new(&implementing(runs(&[&["sh", "-c", "echo x > x.txt"]])));
        project.settings(&json!({
            "agent": "scripted", "verifyCommand": check, "verifyNetwork": network,
        }));
        project.whole_run("verify in the sandbox");
        let branch = project.branch();
        let show = |name: &str| project.repo.git(&["show", &format!("{branch}:{name}")]);
        assert_eq!(
            (show("net.txt"), show("git.txt")),
            (expected.into(), "2".into())
        );
        let verify = phase(&project, "verify");
        assert_eq!(verify["verify"]["sandbox"], "bwrap");
        assert_eq!(
            verify["sandbox"], "none",
            "the scripted agent starts no program"
        );
    }
}

#[test]
fn where_bwrap_may_not_work_landlock_takes_over_and_what_it_cannot_hold_is_said() {
    let script = "echo made > made.txt; (echo x > ../outside) 2> /dev/null || echo kept > kept.txt";
    let project = with_agent(script, &json!({}));
    let path = forbidden_bwrap(&project);
    let run = |args: &[&str]| -> Answer {
        let mut command = project.command(args);
        command
            .env("PATH", &path)
            .output()
            .expect("dex starts")
            .into()
    };
    let answer = run(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert!(
        answer
            .err
            .contains("landlock (not enforced: can be changed"),
        "{}",
        answer.err
    );
    let sandbox = phase(&project, "implement")["sandbox"].to_string();
    assert!(
        sandbox.contains("landlock") && sandbox.contains(".git"),
        "{sandbox}"
    );
    assert_eq!(project.repo.git(&["show", "HEAD:kept.txt"]), "kept");
    assert!(!project.repo.beside("outside").exists());

    let doctor: Value = serde_json::from_str(&run(&["doctor", "--json"]).out).expect("JSON");
    let checks = doctor["checks"].as_array().expect("a list");
    let check = checks
        .iter()
        .find(|it| it["code"] == "sandbox")
        .expect("a check");
    assert_eq!(check["status"], "warn");
    let text = check["text"].as_str().expect("a text");
    assert!(
        text.contains("uid map: Permission denied") && text.contains("Landlock works"),
        "{text}"
    );
}

/// Every kind of change an agent might try in a stage that only looks, each allowed to fail.
const CHANGES: &str = "for try in 'echo x > made.txt' 'echo x >> GOAL.md' 'rm GOAL.md' \
      'mkdir dir' 'echo x >> .dex/learnings.md' 'git commit --allow-empty -qm mine'; \
    do (eval \"$try\") > /dev/null 2>&1 && did=\"$did$try; \"; done; echo \"did: $did\"";

/// As [`with_agent`], and it tries to change things where it only looks. The first cycle is not
/// verified, so that the second begins with a look of the agent's.
fn that_does_not_only_look(more: &Value) -> Project {
    let project = with_agent("echo x > x.txt", more);
    let settings = project.repo.read(".dex/dex-config.json");
    let mut settings: Value = serde_json::from_str(&settings).expect("JSON");
    let agent = settings["agentCommand"][2].as_str().expect("a script");
    let agent = format!(
        "if [ $DEX_TOOLS = read_only ]; then cat > /dev/null; {CHANGES}; case $DEX_STAGE in \
         gap_analysis) echo '{{\"decision\": \"RESUME_FEATURE\", \"reason\": \"begun\"}}';; \
         *) echo '{{\"insights\": []}}';; esac > $DEX_ANSWER; exit; fi; \
         if [ $DEX_STAGE$DEX_CYCLE = verify1 ]; then cat > /dev/null; echo '{{\"passed\": false, \
         \"buildSucceeded\": true, \"testsSucceeded\": false, \"failures\": [], \
         \"summary\": \"no\"}}' > $DEX_ANSWER; exit; fi; {agent}"
    );
    settings["agentCommand"][2] = agent.into();
    settings["limits"] = json!({ "maxVerifyRetries": 0 });
    project.settings(&settings);
    project
}

/// The attempts of stages in which the agent only looks.
fn looks(project: &Project) -> Vec<Value> {
    let looks = [("learnings", 1), ("gap_analysis", 2), ("learnings", 2)];
    let looks = looks.map(|(stage, cycle)| project.phases_of(stage, cycle));
    let looks = looks.concat();
    assert_eq!(looks.len(), 3, "{looks:?}");
    assert!(looks.iter().all(|it| it["agent"] == "command"), "{looks:?}");
    looks
}

#[test]
fn h07_a_stage_that_only_looks_changes_nothing_whatever_the_agent_tries() {
    for (walls, place) in [
        ("bwrap", &["run", "--small"][..]),
        ("bwrap", &["run", "--small", "--worktree"]),
        ("landlock", &["run", "--small"]),
        ("landlock", &["run", "--small", "--worktree"]),
    ] {
        if walls == "bwrap" && !testkit::left_out::with_bwrap() {
            continue;
        }
        let what = format!("{walls}, {place:?}");
        let project = that_does_not_only_look(&json!({}));
        let mut command = project.command(place);
        if walls == "landlock" {
            command.env("PATH", forbidden_bwrap(&project));
        }
        let answer: Answer = command.output().expect("dex starts").into();
        assert_eq!(answer.code, Some(0), "{what}: {}", answer.err);
        assert!(!answer.err.contains("only looks"), "{what}: {}", answer.err);
        assert_eq!(project.stages().len(), 17, "{what}");
        for path in ["made.txt", "dir"] {
            assert!(!project.was_committed(path), "{what}: {path}");
        }
        for phase in looks(&project) {
            let text = phase["sandbox"].as_str().expect("a text");
            assert!(text.starts_with(walls), "{what}: {text}");
            // Not even what Landlock cannot take out of a writable work tree.
            assert!(!text.contains(".git"), "{what}: {text}");
            assert_eq!(phase["filesChanged"], 0, "{what}: {phase}");
            for nothing in ["noticed", "agentCommits"] {
                let told = phase[nothing].as_array().map_or(0, Vec::len);
                assert_eq!(told, 0, "{what}: {phase}");
            }
        }
        // Elsewhere it works as ever.
        assert!(project.was_committed("x.txt"), "{what}");
    }
}

#[test]
fn h07_where_walls_are_switched_off_the_agent_is_trusted_and_the_record_says_so() {
    let project = that_does_not_only_look(&json!({ "sandbox": "off" }));
    let answer = ran(&project, &["run", "--small"]);
    let told = "sandbox: off, so command is trusted to change nothing in stages that only look";
    assert!(answer.err.contains(told), "{}", answer.err);
    assert_eq!(phase(&project, "implement")["sandbox"], "none");
    for phase in looks(&project) {
        assert_eq!(phase["sandbox"], "none (trusted to change nothing)");
    }
    // What it changed all the same is said, and stays: it might be a person's.
    let first = &looks(&project)[0];
    let noticed = first["noticed"].to_string();
    for word in ["Learnings only looks", "made.txt", "GOAL.md"] {
        assert!(noticed.contains(word), "{word}: {first}");
    }
    assert!(answer.err.contains("made.txt"), "{}", answer.err);
    let branch = project.branch();
    let log = ["log", "-1", "--format=%s", &branch, "--", "made.txt"];
    let at = project.repo.git(&log);
    assert!(at.contains("learnings"), "{at}");
}

/// Runs `dex` where neither `bwrap` nor Landlock can be used: in as many Landlock domains as the
/// kernel allows, none of which forbids anything.
fn without_walls(project: &Project, args: &[&str]) -> Answer {
    use landlock::{ABI, Access as _, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr as _};
    use landlock::{RulesetCreatedAttr as _, RulesetError};
    let mut command = project.command(args);
    let domain = || -> Result<(), RulesetError> {
        let all = AccessFs::from_all(ABI::V2);
        let root = PathFd::new("/").expect("a root");
        let ruleset = Ruleset::default().handle_access(all)?.create()?;
        ruleset
            .add_rule(PathBeneath::new(root, all))?
            .restrict_self()?;
        Ok(())
    };
    command.env("PATH", forbidden_bwrap(project));
    // Only this thread, and what it starts.
    let thread = std::thread::spawn(move || {
        let domains = (0..100).take_while(|_| domain().is_ok()).count();
        assert!((1..100).contains(&domains), "{domains} domains");
        command.output().expect("dex starts").into()
    });
    thread.join().expect("it ran")
}

#[test]
fn h07_an_agent_that_nothing_can_keep_to_looking_is_refused_before_anything_is_changed() {
    let project = that_does_not_only_look(&json!({}));
    let answer = without_walls(&project, &["run", "--small"]);
    assert_eq!(answer.code, Some(4), "{}", answer.err);
    insta::assert_snapshot!(answer.err, @r"
    error: the run was not started; nothing was changed
      caused by: some stages only look, and nothing here holds the agent to that
      caused by: command cannot be made to only look: a program is told what it may do, and nothing here keeps it to that; sandbox: none (bwrap does not work here (setting up uid map: Permission denied) and the kernel has no Landlock)
    hint: Install bubblewrap (`bwrap`), or choose an agent that can be held to it (`dex config agent claude`), or let this one work on trust: `dex config sandbox off`.
    ");
    assert_eq!(project.branch(), "");
    // The doctor knows.
    let doctor = without_walls(&project, &["doctor", "--json"]);
    let doctor: Value = serde_json::from_str(&doctor.out).expect("JSON");
    let checks = doctor["checks"].as_array().expect("a list");
    let agent = checks.iter().find(|it| it["code"] == "agent");
    let agent = agent.expect("a check");
    assert_eq!(agent["status"], "bad", "{agent}");
    assert!(agent["text"].to_string().contains("only look"), "{agent}");

    let project = that_does_not_only_look(&json!({ "sandbox": "off" }));
    let answer = without_walls(&project, &["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
}

#[test]
fn h07_a_run_taken_up_where_nothing_keeps_the_agent_to_looking_pauses_by_name() {
    let project = that_does_not_only_look(&json!({}));
    project.exits(0, &["run", "--small", "--step"]);
    while project
        .checkpoints()
        .last()
        .is_some_and(|it| it != "verify:1")
    {
        project.exits(0, &["resume", "--step"]);
    }
    let before = project.fingerprint();
    let answer = without_walls(&project, &["resume"]);
    assert_eq!(answer.code, Some(4), "{}", answer.err);
    for word in ["agent_unavailable", "Learnings only looks", "bubblewrap"] {
        assert!(answer.err.contains(word), "{word}: {}", answer.err);
    }
    assert_eq!(project.fingerprint(), before);
    project.exits(0, &["resume"]);
    assert_eq!(project.stages().len(), 17);
}

#[test]
fn a_required_sandbox_that_cannot_be_whole_is_refused_before_anything_is_changed() {
    let project = with_agent("echo x > x.txt", &json!({ "sandbox": "required" }));
    let path = forbidden_bwrap(&project);
    let mut command = project.command(&["run", "--small"]);
    let answer: Answer = command
        .env("PATH", &path)
        .output()
        .expect("dex starts")
        .into();
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    for word in [".git", "dex doctor", "nothing was changed"] {
        assert!(answer.err.contains(word), "{word}: {}", answer.err);
    }
    assert_eq!(project.branch(), "");
}

#[test]
fn a_tracked_settings_file_cannot_open_the_sandbox() {
    for (key, value) in [
        ("sandboxWritable", json!(["/etc"])),
        ("sandboxReadable", json!(["~/.ssh"])),
        ("verifyNetwork", json!(true)),
    ] {
        let project = Project::new(&implementing(json!({})));
        project.settings(&json!({ "agent": "scripted", key: value }));
        project.repo.git(&["add", "-f", ".dex/dex-config.json"]);
        project
            .repo
            .git(&["commit", "-qm", "settings for everybody"]);
        let answer = project.dex(&["run", "--small"]);
        assert_eq!(answer.code, Some(2), "{key}: {}", answer.err);
        assert!(answer.err.contains(key), "{key}: {}", answer.err);
    }
}

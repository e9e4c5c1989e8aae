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

    let project = with_agent("echo x > x.txt", &json!({}));
    ran(&project, &["run", "--small"]);
    let shown = project.dex_ok(&["show", "implement:1"]);
    assert!(shown.contains("bwrap"), "{shown}");
}

#[test]
fn a_verify_command_has_no_network_unless_configured_and_changes_nothing_outside() {
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

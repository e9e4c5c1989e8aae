//! Runs in repositories unpacked from real packages, which are fetched by name and version with
//! their ordinary clients. Long form: `.ci/slow repos`. What was found: `docs/guide/real-repositories.md`.

#![expect(
    clippy::print_stdout,
    reason = "sizes and ratios are the point of a long form"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Repo;
use testkit::fake_model::Turn;

use super::claude::{IMPLEMENT, World, answer, at, edits, stage};
use super::world::{attempts, branch, dex, micro, ok, record};

fn left_out() -> bool {
    let offline = std::env::var_os("DEX_TESTS_OFFLINE").is_some_and(|it| it == "1");
    if offline {
        println!("left out: needs packages, and DEX_TESTS_OFFLINE is set");
    }
    offline
}

fn run(command: &mut Command) {
    let output = command.output().expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
}

/// Unpacks a package of npm into a directory.
fn npm(package: &str, into: &Path) {
    let packed = tempfile::tempdir().expect("a directory");
    let mut pack = Command::new("npm");
    run(pack
        .args(["pack", "--silent", package, "--pack-destination"])
        .arg(packed.path()));
    let file = std::fs::read_dir(packed.path())
        .expect("it is there")
        .next();
    let file = file.expect("one package").expect("an entry").path();
    std::fs::create_dir_all(into).expect("a directory");
    let mut tar = Command::new("tar");
    run(tar
        .arg("-xzf")
        .arg(file)
        .args(["--strip-components=1", "-C"])
        .arg(into));
}

/// Unpacks a crate into a directory.
fn crate_source(name: &str, version: &str, into: &Path) {
    let project = tempfile::tempdir().expect("a directory");
    let manifest = format!(
        "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [lib]\npath = \"lib.rs\"\n[dependencies]\n{name} = \"={version}\"\n[workspace]\n"
    );
    std::fs::write(project.path().join("Cargo.toml"), manifest).expect("writes");
    std::fs::write(project.path().join("lib.rs"), "").expect("writes");
    run(Command::new(env!("CARGO"))
        .args(["vendor", "--quiet", "vendored"])
        .current_dir(project.path()));
    let from = project.path().join("vendored").join(name);
    run(Command::new("cp").arg("-R").arg(from.join(".")).arg(into));
}

/// A scripted run that changes one file of the project.
fn script(edit: &Value) -> Value {
    let writes = |path: &str, content: &str| json!({"delay": 0, "cost": 0.01, "writes": [{"path": path, "content": content}]});
    json!({
        "prerequisites": {},
        "clarification": {
            "clarification_product": writes("{goalProductDomain}", "# Product\n"),
            "clarification_technical": writes("{goalTechnicalDomain}", "# Technology\n"),
            "clarification_synthesis": writes("{goalClarified}", "# Goal\n"),
            "constitution": writes("specs/constitution.md", "# Constitution\n"),
            "manifest_extraction": {"delay": 0, "cost": 0.01},
        },
        "dex_loop": {"cycles": [{
            "feature": {"id": "f1", "title": "Say hello"},
            "stages": {
                "gap_analysis": {"delay": 0},
                "specify": writes("{specDir}/spec.md", "# Spec\n"),
                "plan": writes("{specDir}/plan.md", "# Plan\n"),
                "tasks": writes("{specDir}/tasks.md", "## Phase 1: All\n\n- [ ] T001 One\n"),
                "implement": {"delay": 0, "cost": 0.05, "edit": [edit]},
                "verify": {"delay": 0, "cost": 0.01},
                "learnings": {"delay": 0, "cost": 0.01},
            },
        }]},
        "completion": {},
    })
}

/// Commits what was unpacked, as it is.
fn committed(repo: &Repo) {
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "as published"]);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
}

fn scripted_run(repo: &Repo, edit: &Value) -> Duration {
    repo.write("GOAL.md", "# Hello\n\nSay hello.\n");
    repo.write(".dex/mock-config.json", script(edit).to_string());
    repo.write(".dex/dex-config.json", r#"{"agent": "scripted"}"#);
    let began = Instant::now();
    ok(dex(repo, &["run"]));
    began.elapsed()
}

/// What must hold after any run, in any repository. `changed` is the project's one changed file.
fn check(repo: &Repo, changed: &str) {
    let tip = branch(repo);
    let count = repo.git(&["rev-list", "--count", &tip, "--not", "main"]);
    assert_eq!(count, "13", "5 + 7 + 1 stage commits");
    let marked = repo.git(&["log", "--oneline", r"--grep=\[checkpoint:", &tip]);
    assert_eq!(marked.lines().count(), 13);
    repo.git(&["fsck", "--strict", "--no-dangling", "--no-progress"]);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(stock_tree(repo), repo.git(&["rev-parse", "HEAD^{tree}"]));
    let outside = [
        "diff",
        "--name-only",
        "main",
        &tip,
        "--",
        ".",
        ":!specs",
        ":!.dex",
        ":!GOAL*",
    ];
    assert_eq!(repo.git(&outside), changed);
    let record = record(repo);
    assert!(micro(&record["totalCostUsd"]).is_some_and(|it| it > 0));
    assert_eq!(attempts(&record, "implement").len(), 1);
}

/// The tree stock git makes of the work tree with an index of its own.
fn stock_tree(repo: &Repo) -> String {
    let index = repo.beside("stock-index");
    let _ = std::fs::remove_file(&index);
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(repo.path()).args(args);
        repo.hermetic(&mut git).env("GIT_INDEX_FILE", &index);
        let output = git.output().expect("git runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    git(&["read-tree", "main"]);
    git(&["add", "-A"]);
    git(&["write-tree"])
}

/// Line endings in index and work tree of every file of the project, the changed one included.
fn endings(repo: &Repo) -> Vec<String> {
    let all = repo.git(&[
        "ls-files", "--eol", "--", ".", ":!specs", ":!.dex", ":!GOAL*",
    ]);
    all.lines().map(str::to_owned).collect()
}

/// Prints how a run compares with as many commits by stock git.
fn compare(repo: &Repo, name: &str, took: Duration) {
    let files = repo.git(&["ls-files"]).lines().count();
    repo.git(&["switch", "-q", "-c", "compare"]);
    let mut commits: Vec<Duration> = (0..5)
        .map(|round| {
            repo.write("compare.txt", format!("{round}\n"));
            let began = Instant::now();
            repo.git(&["add", "-A"]);
            repo.git(&["commit", "-qm", "compare"]);
            began.elapsed()
        })
        .collect();
    commits.sort();
    let ratio = took.as_secs_f64() / (13.0 * commits[2].as_secs_f64());
    println!(
        "{name}: {files} files; a run of 13 stages took {ratio:.1} × 13 `git add -A && git commit`"
    );
}

#[test]
#[ignore = "fetches packages: .ci/slow repos"]
fn more_than_five_thousand_files() {
    if left_out() {
        return;
    }
    let repo = Repo::new();
    npm("date-fns@2.30.0", repo.path());
    committed(&repo);
    assert!(repo.git(&["ls-files"]).lines().count() > 5_000);
    let edit = json!({"path": "README.md", "find": "date-fns", "replace": "Hello, date-fns"});
    let took = scripted_run(&repo, &edit);
    check(&repo, "README.md");
    compare(&repo, "date-fns 2.30.0", took);
}

#[test]
#[ignore = "fetches packages: .ci/slow repos"]
fn files_with_crlf_as_published() {
    if left_out() {
        return;
    }
    let repo = Repo::new();
    crate_source("generic-array", "0.14.7", repo.path());
    committed(&repo);
    let before = endings(&repo);
    let crlf = before.iter().filter(|it| it.contains("w/crlf"));
    assert!(crlf.count() > 5, "{before:#?}");
    let edit =
        json!({"path": "src/lib.rs", "find": "//! This crate", "replace": "//! Hello. This crate"});
    let took = scripted_run(&repo, &edit);
    check(&repo, "src/lib.rs");
    assert_eq!(endings(&repo), before);
    compare(&repo, "generic-array 0.14.7", took);
}

#[test]
#[ignore = "fetches packages: .ci/slow repos"]
fn files_with_crlf_and_a_filter_by_attribute() {
    if left_out() {
        return;
    }
    let repo = Repo::new();
    // A filter of the user's own configuration, which content depends on.
    for (key, value) in [("clean", "tr a-z n-za-m"), ("smudge", "tr n-za-m a-z")] {
        repo.git(&["config", "--global", &format!("filter.turn.{key}"), value]);
    }
    crate_source("generic-array", "0.14.7", repo.path());
    repo.write(".gitattributes", "*.rs text eol=crlf\n*.md filter=turn\n");
    committed(&repo);
    let before = endings(&repo);
    assert!(
        before.iter().any(|it| it.contains("i/lf    w/crlf")),
        "{before:#?}"
    );
    let edit = json!({"path": "README.md", "find": "generic", "replace": "hello generic"});
    let took = scripted_run(&repo, &edit);
    check(&repo, "README.md");
    assert_eq!(endings(&repo), before);
    // Stored turned, shown straight.
    assert!(
        repo.git(&["cat-file", "blob", "HEAD:README.md"])
            .contains("uryyb")
    );
    assert!(repo.read("README.md").contains("hello generic"));
    compare(&repo, "generic-array 0.14.7 with attributes", took);
}

/// Makes a package of npm a repository of its own, and that a submodule.
fn submodule(repo: &Repo, package: &str, name: &str) {
    let own: PathBuf = repo.beside(&format!("modules/{name}"));
    npm(package, &own);
    repo.git_in(&own, &["init", "-q", "-b", "main"]);
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
        repo.git_in(&own, &["config", key, value]);
    }
    repo.git_in(&own, &["add", "-A"]);
    repo.git_in(&own, &["commit", "-qm", "as published"]);
    let url = own.display().to_string();
    let path = format!("modules/{name}");
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        &url,
        &path,
    ]);
}

#[test]
#[ignore = "fetches packages: .ci/slow repos"]
fn submodules_and_the_real_claude_code() {
    if left_out() {
        return;
    }
    let repo = Repo::new();
    npm("express@4.19.2", repo.path());
    submodule(&repo, "accepts@1.3.8", "accepts");
    submodule(&repo, "qs@6.11.0", "qs");
    committed(&repo);
    let settings = json!({
        "verifyCommand": "grep -q 'Hello, express' index.js", "model": "claude-sonnet-4-5",
    });
    repo.write(".dex/dex-config.json", settings.to_string());
    let implement = |root: &Path| {
        let read = Turn::call("Read", json!({"file_path": at(root, "index.js")}));
        let tasks = "specs/001-say-hello/tasks.md";
        let mut turns = vec![read];
        turns.push(edits(root, "index.js", " * express", " * Hello, express"));
        turns.push(Turn::call("Read", json!({"file_path": at(root, tasks)})));
        turns.push(edits(root, tasks, "[ ] T001", "[x] T001"));
        turns.push(answer(json!({"summary": "Said."})));
        stage(IMPLEMENT, turns)
    };
    let Some(world) = World::in_repo(repo, implement) else {
        return;
    };
    let repo = &world.repo;
    let links = |rev: &str| {
        let all = repo.git(&["ls-tree", "-r", rev]);
        let links = all.lines().filter(|it| it.starts_with("160000"));
        links.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = (links("main"), repo.git(&["submodule", "status"]));
    assert_eq!(before.0.len(), 2);
    let began = Instant::now();
    ok(world.dex(&["run", "-m", "say hello", "--small", "--agent", "claude"]));
    let took = began.elapsed();
    check(repo, "index.js");
    let after = (links(&branch(repo)), repo.git(&["submodule", "status"]));
    assert_eq!(after, before);
    for name in ["accepts", "qs"] {
        let dir = repo.path().join("modules").join(name);
        assert_eq!(repo.git_in(&dir, &["status", "--porcelain"]), "");
    }
    compare(
        repo,
        "express 4.19.2 with two submodules, Claude Code",
        took,
    );
}

//! A repository whose own configuration names programs: none of them starts from any command.
//!
//! Case I06. `odd.rs` has the run over the usual keys; here is every key found that makes git
//! start something, and every command.

use std::path::Path;

use serde_json::json;
use testkit::Repo;

use super::support::{Project, implementing, runs};

/// A script that leaves a mark when anything starts it.
struct Trap {
    script: String,
    mark: std::path::PathBuf,
}

impl Trap {
    fn beside(repo: &Repo) -> Trap {
        let (script, mark) = (repo.beside("trap.sh"), repo.beside("sprung"));
        let text = format!("#!/bin/sh\necho \"$0 $*\" >> {}\nexit 0\n", mark.display());
        executable(&script, &text);
        Trap {
            script: script.display().to_string(),
            mark,
        }
    }

    #[track_caller]
    fn is_not_sprung(&self, by: &str) {
        let said = std::fs::read_to_string(&self.mark).unwrap_or_default();
        assert_eq!(said, "", "started by {by}");
    }
}

fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("makes");
    std::fs::write(path, text).expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("chmod");
}

/// Sections of a `.git/config`, with `TRAP` for the program.
const PROGRAMS: &str = r#"
[core]
	fsmonitor = TRAP
	hooksPath = HOOKS
	pager = TRAP
	editor = TRAP
	askPass = TRAP
	sshCommand = TRAP
	gitProxy = TRAP
	alternateRefsCommand = TRAP
[sequence]
	editor = TRAP
[pager]
	log = TRAP
	diff = TRAP
	show = TRAP
[diff]
	external = TRAP
	tool = t
[diff "x"]
	command = TRAP
	textconv = TRAP
	cachetextconv = true
[difftool "t"]
	cmd = TRAP
[merge]
	tool = t
[merge "x"]
	driver = TRAP %O %A %B
[mergetool "t"]
	cmd = TRAP
[interactive]
	diffFilter = TRAP
[credential]
	helper = !TRAP
[gpg]
	program = TRAP
[gpg "ssh"]
	program = TRAP
	defaultKeyCommand = TRAP
[gpg "x509"]
	program = TRAP
[log]
	showSignature = true
[alias]
	status = !TRAP
	rev-parse = !TRAP
	cat-file = !TRAP
	log = !TRAP
[uploadpack]
	packObjectsHook = TRAP
[trailer "x"]
	command = TRAP
	cmd = TRAP
	ifexists = add
[gc]
	auto = 1
	recentObjectsHook = TRAP
[maintenance]
	auto = true
[browser "x"]
	cmd = TRAP
[man "x"]
	cmd = TRAP
[sendemail]
	smtpServer = TRAP
[protocol "ext"]
	allow = always
[remote "origin"]
	url = ext::TRAP
	fetch = +refs/heads/*:refs/remotes/origin/*
	uploadpack = TRAP
	receivepack = TRAP
	proxy = TRAP
[submodule "s"]
	update = !TRAP
"#;

const HOOKS: [&str; 12] = [
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-checkout",
    "post-index-change",
    "post-rewrite",
    "post-merge",
    "pre-auto-gc",
    "reference-transaction",
    "fsmonitor-watchman",
    "update",
];

/// A project in which all of that is set, directly and through an included file.
fn hostile() -> (Project, Trap) {
    let repo = Repo::new();
    let trap = Trap::beside(&repo);
    let project = Project::in_repo(
        repo,
        &implementing(runs(&[&["sh", "-c", "echo x > made.txt"]])),
    );
    // Attributes that name no filter, which would be refused; those are tested where they stop.
    project.repo.write(".gitattributes", "* diff=x merge=x\n");
    project.repo.write(".envrc", format!("{}\n", trap.script));
    project.repo.git(&["add", ".gitattributes", ".envrc"]);
    project.repo.git(&["commit", "-qm", "attributes"]);
    let hooks = project.repo.beside("hooks");
    for name in HOOKS {
        let text = std::fs::read_to_string(&trap.script).expect("reads");
        executable(&hooks.join(name), &text);
        executable(&project.repo.path().join(".git/hooks").join(name), &text);
    }
    let text = PROGRAMS
        .replace("TRAP", &trap.script)
        .replace("HOOKS", &hooks.display().to_string());
    let included = project.repo.beside("included");
    std::fs::write(&included, &text).expect("writes");
    let config = project.repo.path().join(".git/config");
    let old = std::fs::read_to_string(&config).expect("reads");
    let include = format!("[include]\n\tpath = {}\n", included.display());
    std::fs::write(&config, format!("{old}{text}{include}")).expect("writes");
    (project, trap)
}

/// Every command that looks.
const LOOKING: &[&[&str]] = &[
    &[],
    &["status"],
    &["status", "--json"],
    &["report"],
    &["report", "--md"],
    &["runs"],
    &["timeline"],
    &["timeline", "--all"],
    &["log"],
    &["show"],
    &["show", "implement:1"],
    &["show", "HEAD~1"],
    &["undo", "--list"],
    &["config"],
    &["prompts"],
    &["doctor"],
];

#[test]
fn i06_no_program_that_the_repositorys_configuration_names_starts_from_any_command() {
    let (project, trap) = hostile();
    for words in LOOKING {
        project.dex(words);
        trap.is_not_sprung(&format!("dex {words:?} before a run"));
    }
    project.dex(&["init", "--agent", "scripted"]);
    trap.is_not_sprung("dex init");
    let answer = project.dex(&["run", "--small", "--step"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    trap.is_not_sprung("dex run --step");
    for words in LOOKING {
        project.dex(words);
        trap.is_not_sprung(&format!("dex {words:?} while a run waits"));
    }
    project.repo.write("README.md", "mine\n");
    for words in [
        &["stop"][..],
        &["resume", "--step"],
        &["resume", "--discard", "--step"],
        &["undo", "--yes"],
        &["redo", "--yes"],
        &["undo", "--yes"],
    ] {
        project.dex(words);
        trap.is_not_sprung(&format!("dex {words:?}"));
    }
    let (project, trap) = hostile();
    project.repo.write("README.md", "mine\n");
    let answer = project.dex(&["run", "--small", "--save"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    trap.is_not_sprung("dex run --save");
    for words in LOOKING {
        project.dex(words);
        trap.is_not_sprung(&format!("dex {words:?} after a run"));
    }
    project.dex(&["undo", "--yes"]);
    trap.is_not_sprung("dex undo");
    let answer = project.dex(&["run", "-m", "more", "--small", "--worktree"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    trap.is_not_sprung("dex run --worktree");
}

#[test]
fn i06_a_repository_that_asks_for_signatures_does_not_choose_the_program_that_makes_them() {
    for format in ["openpgp", "ssh", "x509"] {
        let (project, trap) = hostile();
        let config = project.repo.path().join(".git/config");
        let old = std::fs::read_to_string(&config).expect("reads");
        let sign = format!(
            "[commit]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n[gpg]\n\tformat = {format}\n"
        );
        std::fs::write(&config, format!("{old}{sign}")).expect("writes");
        for words in [
            &["doctor"][..],
            &["run", "--small"],
            &["status"],
            &["report"],
        ] {
            project.dex(words);
            trap.is_not_sprung(&format!("dex {words:?} with {format} signatures"));
        }
    }
}

#[test]
fn i06_objects_that_are_missing_are_not_fetched_by_a_program_the_repository_names() {
    for url in ["ext::TRAP", "file:///nowhere"] {
        let (project, trap) = hostile();
        let url = url.replace("TRAP", &trap.script);
        let config = project.repo.path().join(".git/config");
        let old = std::fs::read_to_string(&config).expect("reads");
        let partial = format!(
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n\
             [remote \"origin\"]\n\tpromisor = true\n\turl = {url}\n"
        );
        let old = old.replace(&format!("\turl = ext::{}\n", trap.script), "");
        let blob = project
            .repo
            .git(&["-c", "alias.rev-parse=", "rev-parse", "HEAD:README.md"]);
        std::fs::write(&config, format!("{old}{partial}")).expect("writes");
        let objects = project.repo.path().join(".git/objects");
        let object = objects.join(&blob[..2]).join(&blob[2..]);
        std::fs::remove_file(&object).expect("removes");
        let _ = std::fs::remove_file(&trap.mark);
        for words in LOOKING.iter().copied().chain([&["run", "--small"][..]]) {
            project.dex(words);
            trap.is_not_sprung(&format!("dex {words:?} with missing objects at {url}"));
        }
        // A run may have made it again.
        let _ = std::fs::remove_file(&object);
        let said = project.repo.try_git(&["cat-file", "-p", &blob]);
        assert!(trap.mark.exists(), "stock git starts it: {said:?}");
    }
}

#[test]
fn i06_a_filter_that_only_the_repository_names_stops_a_run_and_starts_from_no_command() {
    let (project, trap) = hostile();
    let config = project.repo.path().join(".git/config");
    let old = std::fs::read_to_string(&config).expect("reads");
    let filter = format!(
        "[filter \"f\"]\n\tclean = {0}\n\tsmudge = {0}\n\tprocess = {0}\n\trequired = true\n",
        trap.script
    );
    project.repo.write(".gitattributes", "*.md filter=f\n");
    std::fs::write(&config, format!("{old}{filter}")).expect("writes");
    for words in LOOKING {
        project.dex(words);
        trap.is_not_sprung(&format!("dex {words:?}"));
    }
    let answer = project.dex(&["run", "--small", "--save"]);
    assert_ne!(answer.code, Some(0));
    assert!(answer.err.contains("filter"), "{}", answer.err);
    trap.is_not_sprung("dex run");
}

#[test]
fn i06_what_an_agent_without_walls_leaves_in_configuration_and_hooks_starts_in_no_later_stage() {
    let repo = Repo::new();
    let trap = Trap::beside(&repo);
    let text = PROGRAMS
        .replace("TRAP", &trap.script)
        .replace("HOOKS", ".git/hooks");
    let hooks: Vec<String> = HOOKS
        .iter()
        .map(|it| format!("cp ../trap.sh .git/hooks/{it}"))
        .collect();
    std::fs::write(repo.beside("evil"), text).expect("writes");
    let script = format!(
        "echo x > made.txt; cat ../evil >> .git/config; {}; cp ../trap.sh .envrc",
        hooks.join("; ")
    );
    let project = Project::in_repo(repo, &implementing(runs(&[&["sh", "-ec", &script]])));
    project.settings(&json!({ "agent": "scripted", "verifyCommand": "test -e made.txt" }));
    project.whole_run("an agent that leaves traps");
    trap.is_not_sprung("a later stage");
    assert!(!project.repo.read(".git/config").contains("trap.sh"));
    assert!(!project.repo.path().join(".git/hooks/post-commit").exists());
}

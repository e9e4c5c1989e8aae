//! The doctor: silent about what is healthy, and each remedy works.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testkit::Repo;

use crate::hand::{dex, dex_in};

/// A repository in which a run could start.
fn healthy() -> Repo {
    let repo = Repo::new();
    let settings = json!({ "agent": "command", "agentCommand": ["true"] });
    repo.write(".git/info/exclude", "/.dex/dex-config.json\n");
    repo.write(".dex/dex-config.json", settings.to_string());
    repo
}

fn findings(repo: &Repo, dir: &std::path::Path) -> Vec<(String, String)> {
    let report = dex_in(repo, dir, &["doctor", "--json"]).json();
    let text = |it: &Value| it.as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap();
    let wrong = checks.iter().filter(|it| it["status"] != "ok");
    // What a machine can enforce is no state of its repositories.
    let wrong = wrong.filter(|it| it["code"] != "sandbox");
    wrong
        .map(|it| {
            assert!(it["remedy"].is_string(), "{it}");
            (text(&it["code"]), text(&it["status"]))
        })
        .collect()
}

fn only_verify() -> Vec<(String, String)> {
    vec![("verify_command".to_owned(), "warn".to_owned())]
}

#[test]
fn k02_healthy_repositories_of_every_shape_raise_no_alarm() {
    let repo = healthy();
    assert_eq!(findings(&repo, repo.path()), only_verify());
    assert_eq!(dex(&repo, &["doctor"]).code, 0);
    let linked = repo.beside("linked");
    repo.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    assert_eq!(findings(&repo, &linked), only_verify());
    let shallow = repo.beside("shallow");
    let url = format!("file://{}", repo.path().display());
    repo.git(&["clone", "-q", "--depth=1", &url, shallow.to_str().unwrap()]);
    repo.git_in(&shallow, &["config", "user.name", "Ada"]);
    repo.git_in(&shallow, &["config", "user.email", "a@example.com"]);
    std::fs::create_dir(shallow.join(".dex")).unwrap();
    std::fs::copy(
        repo.path().join(".dex/dex-config.json"),
        shallow.join(".dex/dex-config.json"),
    )
    .unwrap();
    assert_eq!(findings(&repo, &shallow), only_verify());
    repo.git(&["config", "verifyCommand.unrelated", "x"]);
    assert_eq!(
        dex(&repo, &["config", "verifyCommand", "make test"]).code,
        0
    );
    assert_eq!(findings(&repo, repo.path()), []);
}

/// A finding, how it comes about, and its remedy.
type Case = (&'static str, fn(&Repo), fn(&Repo));

const CASES: [Case; 11] = [
    (
        "identity",
        |it| drop(it.git(&["config", "--unset", "user.email"])),
        |it| {
            it.git(&["config", "user.email", "ada@example.com"]);
        },
    ),
    (
        "blocking_branch",
        |it| drop(it.git(&["branch", "dex"])),
        |it| {
            it.git(&["branch", "-m", "dex", "my-dex"]);
        },
    ),
    (
        "operation",
        |it| {
            it.write(
                ".git/MERGE_HEAD",
                format!("{}\n", it.git(&["rev-parse", "HEAD"])),
            )
        },
        |it| {
            it.git(&["merge", "--abort"]);
        },
    ),
    (
        "filters",
        |it| drop(it.git(&["config", "filter.x.clean", "cat"])),
        |it| {
            assert_eq!(dex(it, &["init", "--allow-filters"]).code, 0);
            // Only the filter is this remedy's business.
            it.git(&["config", "--unset", "filter.x.clean"]);
        },
    ),
    (
        "mirror",
        |it| drop(it.git(&["config", "remote.o.push", "+refs/*:refs/*"])),
        |it| {
            it.git(&["config", "remote.o.push", "refs/heads/*:refs/heads/*"]);
        },
    ),
    (
        "git_locks",
        |it| {
            it.write(".git/index.lock", "");
            let file = std::fs::File::options()
                .write(true)
                .open(it.path().join(".git/index.lock"));
            file.unwrap()
                .set_modified(SystemTime::now() - Duration::from_secs(3600))
                .unwrap();
        },
        |it| std::fs::remove_file(it.path().join(".git/index.lock")).unwrap(),
    ),
    (
        "config",
        |it| {
            it.write(
                ".dex/dex-config.json",
                r#"{"agent":"command","agentCommand":["true"],"agnt":1}"#,
            )
        },
        |it| {
            it.write(
                ".dex/dex-config.json",
                r#"{"agent":"command","agentCommand":["true"]}"#,
            );
        },
    ),
    (
        "machine_files",
        |it| {
            it.write(".dex/ui.json", "{}");
            it.git(&["add", "-f", ".dex/ui.json"]);
        },
        |it| drop(it.git(&["rm", "-q", "--cached", ".dex/ui.json"])),
    ),
    (
        "prompts",
        |it| it.write(".dex/prompts/plan.md", "{{nonsense}}"),
        |it| {
            std::fs::remove_file(it.path().join(".dex/prompts/plan.md")).unwrap();
        },
    ),
    (
        "agent",
        |it| {
            assert_eq!(
                dex(it, &["config", "agentCommand", "[\"no-such-program\"]"]).code,
                0
            );
        },
        |it| {
            assert_eq!(dex(it, &["config", "agentCommand", "[\"true\"]"]).code, 0);
        },
    ),
    (
        "signing",
        |it| {
            it.git(&["config", "--global", "gpg.program", "false"]);
            it.git(&["config", "commit.gpgsign", "true"]);
        },
        |it| drop(it.git(&["config", "commit.gpgsign", "false"])),
    ),
];

#[test]
fn k02_every_finding_has_a_remedy_that_makes_it_go_away() {
    for (code, break_it, mend) in CASES {
        let repo = healthy();
        break_it(&repo);
        let found = findings(&repo, repo.path());
        let codes: Vec<&str> = found.iter().map(|it| it.0.as_str()).collect();
        let mut expected = vec![code, "verify_command"];
        expected.sort_unstable();
        let mut sorted = codes.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected, "{code}");
        let bad = found.iter().any(|it| it.1 == "bad");
        assert_eq!(dex(&repo, &["doctor"]).code, i32::from(bad), "{code}");
        mend(&repo);
        assert!(
            !findings(&repo, repo.path()).iter().any(|it| it.0 == code),
            "{code} is mended"
        );
    }
}

#[test]
fn outside_a_repository_the_doctor_says_so() {
    let repo = Repo::new();
    let answer = dex_in(&repo, &repo.home(), &["doctor"]);
    assert_eq!(answer.code, 1);
    assert!(answer.out.contains("git init"), "{}", answer.all());
}

//! Likely secrets: in no commit, in no object, in no record.

use serde_json::{Value, json};
use testkit::Repo;

use super::support::{Project, implementing, script};

/// Secrets of several shapes, made up here so that no scanner finds one in this file.
fn token() -> String {
    format!("ghp_{}", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8")
}

fn private_key() -> String {
    let body = "MIIEpAIBAAKCAQEAx4UbaDzY2TqLZyxVnJNbXg0v8y2G1nZc5oHfB7dK9sPqRtWm\n".repeat(4);
    format!(
        "-----BEGIN RSA {0} KEY-----\n{body}-----END RSA {0} KEY-----\n",
        "PRIVATE"
    )
}

fn provider_key() -> String {
    format!("sk-ant-{}", "api03-Zk3Jq8vT1xWm5Rb7Yc9Ld2Nf4Hg6Ps0Qa")
}

/// Every object there is, reachable or not, holds none of these; nor does anything of ours.
fn nowhere(project: &Project, secrets: &[&str]) {
    let all = project
        .repo
        .try_git(&["cat-file", "--batch-all-objects", "--batch", "--buffer"])
        .stdout;
    let mut places = vec![("git's objects".to_owned(), all)];
    let mut todo = vec![
        project.repo.path().join(".git/dex/runs"),
        project.repo.path().join(".dex/runs"),
    ];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            if entry.file_name() == "dex-kept" {
                // The test's own script, as it was before the attempt.
            } else if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else {
                places.push((
                    entry.path().display().to_string(),
                    std::fs::read(entry.path()).unwrap(),
                ));
            }
        }
    }
    for secret in secrets {
        for (place, bytes) in &places {
            let found = bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes());
            assert!(!found, "a secret is in {place}");
        }
    }
}

fn attempts(project: &Project) -> Vec<Value> {
    let all = project.record()["phases"].as_array().unwrap().clone();
    all.into_iter()
        .filter(|it| it["stage"] == "implement")
        .collect()
}

/// `implement` writes this; a second attempt replaces it by `then`.
fn writing(path: &str, content: &str, then: Option<&str>) -> Project {
    let once = "if [ -e ../once ]; then cp ../then \"$0\"; else touch ../once; mkdir -p \"$(dirname \"$0\")\"; cp ../content \"$0\"; fi";
    let project = Project::in_repo(
        Repo::new(),
        &implementing(json!({ "cost": 0.05, "run": ["sh", "-ec", once, path],
            "text": format!("I wrote {content}") })),
    );
    std::fs::write(project.repo.beside("content"), content).unwrap();
    std::fs::write(project.repo.beside("then"), then.unwrap_or(content)).unwrap();
    project
}

#[test]
fn a_secret_that_the_second_attempt_removes_is_nowhere_and_the_run_goes_on_i01() {
    for secret in [token(), provider_key()] {
        let text = format!("first line\nAPI = \"{secret}\"\n");
        let project = writing(
            "src/config.txt",
            &text,
            Some("API = from the environment\n"),
        );
        project.whole_run("mended");
        let attempts = attempts(&project);
        assert_eq!(attempts.len(), 2);
        assert_eq!(attempts[0]["status"], "failed");
        assert_eq!(attempts[0]["reason"], "likely_secret");
        assert_eq!(attempts[0]["costUsd"], 0.05, "it was paid for");
        nowhere(&project, &[&secret]);
    }
}

#[test]
fn the_agent_is_told_path_and_line_and_never_the_secret() {
    let secret = token();
    let repo = Repo::new();
    let told = repo.beside("told");
    std::fs::write(
        repo.beside("content"),
        format!("one\ntwo\nkey = {secret}\n"),
    )
    .unwrap();
    let agent = format!(
        "cat > '{0}.tmp'; case $DEX_STAGE in \
         specify) mkdir -p $DEX_SPEC_DIR; echo spec > $DEX_SPEC_DIR/spec.md;; \
         plan) echo plan > $DEX_SPEC_DIR/plan.md;; \
         tasks) printf '# T\\n\\n## Phase 1: All\\n\\n- [ ] T001 One\\n' > $DEX_SPEC_DIR/tasks.md;; \
         implement) if [ -e ../once ]; then [ -e '{0}' ] || cp '{0}.tmp' '{0}'; echo fine > src.txt; else touch ../once; cp ../content src.txt; fi;; \
         esac",
        told.display()
    );
    let project = Project::in_repo(repo, &implementing(json!({})));
    project.settings(
        &json!({ "agent": "command", "agentCommand": ["sh", "-c", agent],
        "sandbox": "off" }),
    );
    let answer = project.dex(&["run", "--small"]);
    let told = std::fs::read_to_string(&told).unwrap_or_else(|_| panic!("{}", answer.err));
    assert!(told.contains("src.txt, line 3"), "{told}");
    assert!(!told.contains(&secret));
    nowhere(&project, &[&secret]);
}

#[test]
fn a_secret_that_stays_stops_the_run_and_allow_lets_one_path_through() {
    let key = private_key();
    let project = writing("keys/test.pem", &key, None);
    let tasks = || project.stages().len();
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(9), "{}", answer.err);
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["pause"]["reason"], "needs_input");
    assert!(
        status["pause"]["why"]
            .as_str()
            .unwrap()
            .contains("keys/test.pem line 1"),
        "{status}"
    );
    assert!(answer.err.contains("--allow"), "{}", answer.err);
    assert_eq!(tasks(), 9, "nothing was committed");
    nowhere(
        &project,
        &[
            &key,
            "MIIEpAIBAAKCAQEAx4UbaDzY2TqLZyxVnJNbXg0v8y2G1nZc5oHfB7dK9sPqRtWm",
        ],
    );
    // Going on without saying anything changes nothing, and pays for nothing.
    assert_eq!(project.dex(&["resume"]).code, Some(9));
    assert_eq!(
        project.dex(&["resume", "--allow", "other.pem"]).code,
        Some(9)
    );
    assert_eq!(tasks(), 9);
    project.dex_ok(&["resume", "--allow", "keys/test.pem"]);
    project.is_over("allowed");
    assert_eq!(
        project.repo.git(&["show", "HEAD:keys/test.pem"]),
        key.trim_end()
    );
    assert_eq!(attempts(&project).len(), 2);
}

#[test]
fn a_person_who_removes_the_secret_by_hand_just_resumes() {
    let secret = token();
    let project = writing(".env", &format!("TOKEN={secret}\n"), None);
    assert_eq!(project.dex(&["run", "--small"]).code, Some(9));
    std::fs::remove_file(project.repo.path().join(".env")).unwrap();
    project.repo.write("made.txt", "x\n");
    project.dex_ok(&["resume"]);
    project.is_over("removed by hand");
    nowhere(&project, &[&secret]);
}

#[test]
fn a_secret_in_work_that_is_set_aside_becomes_no_object_either_i01() {
    let secret = token();
    let repo = Repo::new();
    std::fs::write(repo.beside("content"), format!("TOKEN={secret}\n")).unwrap();
    let failing = "head -c 200000 /dev/zero > big.bin; cp ../content .env; cp ../content README.md; \
        cp ../content \"$(printf 'latin-\\351')\"; echo x > x.txt; exit 1";
    let project = Project::in_repo(
        repo,
        &implementing(json!({ "cost": 0.05, "run": ["sh", "-ec", failing] })),
    );
    project.settings(&json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } }));
    let answer = project.dex(&["run", "--small"]);
    assert_ne!(answer.code, Some(0), "{}", answer.err);
    nowhere(&project, &[&secret]);
    assert_eq!(project.repo.read("README.md"), "# project\n");
    for gone in [".env", "x.txt"] {
        assert!(!project.repo.path().join(gone).exists(), "{gone}");
    }
    // Too large for the undo entry: it may not be removed.
    assert!(project.repo.path().join("big.bin").exists());
}

#[test]
fn a_skipped_feature_with_a_secret_and_a_half_done_one_leave_no_object_either_i01() {
    let secret = token();
    let repo = Repo::new();
    std::fs::write(repo.beside("content"), format!("TOKEN={secret}\n")).unwrap();
    let hanging = json!({ "cost": 0.05, "run": ["sh", "-ec", "cp ../content .env; echo x > x.txt"], "hang": true });
    let project = Project::in_repo(repo, &implementing(hanging));
    let mut child = project
        .command(&["run", "--small"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..600 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        if project.repo.path().join("x.txt").exists() {
            break;
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["unfinished"], "half_done", "{status}");
    project.repo.write(
        ".dex/mock-config.json",
        implementing(json!({ "writes": [{ "path": "y.txt", "content": "y\n" }] })).to_string(),
    );
    project.dex_ok(&["resume", "--discard"]);
    project.is_over("discarded");
    nowhere(&project, &[&secret]);
    assert!(!project.repo.path().join(".env").exists());
    // Kept by copy, not in git: undo brings it back.
    let listed = project.dex_ok(&["undo", "--list"]);
    assert!(listed.contains("interrupted"), "{listed}");
}

#[test]
fn a_secret_that_was_there_before_is_not_judged() {
    let repo = Repo::new();
    repo.write("old-key.pem", private_key());
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "a test key"]);
    let project = Project::in_repo(
        repo,
        &implementing(json!({ "writes": [{ "path": "x.txt", "content": "x\n" }] })),
    );
    project.whole_run("an old secret");
}

#[test]
fn what_an_agent_says_is_redacted_in_transcripts_record_and_report_i01_i02() {
    let secrets = [token(), provider_key()];
    let text = format!("the token is {} and the key {}", secrets[0], secrets[1]);
    let sha = "9b1c0e6f3b7a4d5e8f90123456789abcdef01234";
    let talking = script(&["A greeting"], |cycle, name| {
        (cycle == 1 && name == "learnings").then(|| {
            json!({ "cost": 0.01, "text": text, "structured_output": { "insights": [
                { "category": "security", "insight": format!("{text}; see {sha}"), "context": "x" } ] } })
        })
    });
    let project = Project::in_repo(Repo::new(), &talking);
    project.dex_ok(&["run", "--small"]);
    project.is_over("talking");
    nowhere(&project, &[&secrets[0], &secrets[1]]);
    assert!(
        project
            .repo
            .git(&["show", "HEAD:.dex/learnings.md"])
            .contains(sha),
        "ids stay"
    );
    for words in [&["report", "--json"][..], &["log"], &["report"]] {
        let answer = project.dex(words);
        assert!(
            secrets.iter().all(|it| !answer.out.contains(it.as_str())),
            "{words:?}"
        );
    }
}

#[test]
fn large_files_links_and_names_are_looked_at_and_the_pause_says_how_many_more() {
    let secret = token();
    let repo = Repo::new();
    std::fs::write(repo.beside("content"), format!("TOKEN={secret}\n")).unwrap();
    let script = format!(
        "(head -c 6000000 /dev/zero | tr '\\0' 'x' | fold -w 80; echo; cat ../content) > a-large.txt; \
         ln -sf /tmp/{0} b-link; echo x > c-{0}.txt; \
         for n in 1 2 3 4; do cp ../content d$n.txt; done; \
         grep -q ghp_ .dex/learnings.md 2>/dev/null || cat ../content >> .dex/learnings.md",
        secret.replace("ghp_", "$(printf gh)p_")
    );
    let project = Project::in_repo(
        repo,
        &implementing(json!({ "cost": 0.05, "run": ["sh", "-ec", script] })),
    );
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(9), "{}", answer.err);
    let status = project.json(&["status", "--json"]);
    let why = status["pause"]["why"].as_str().unwrap();
    for part in [
        "a-large.txt line 75001",
        "b-link where the link points",
        "c-[redacted:github_token].txt its name",
        ".dex/learnings.md line ",
        "and 3 more files",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    nowhere(&project, &[&secret]);
}

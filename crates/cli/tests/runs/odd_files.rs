//! Whole runs with files of every kind.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use testkit::Repo;

use super::support::{Project, implementing, runs};

fn sh(script: &str) -> serde_json::Value {
    implementing(runs(&[&["sh", "-c", script]]))
}

#[test]
fn line_endings_survive_and_the_tree_is_clean_c08() {
    for (attributes, autocrlf) in [
        ("*.txt text eol=crlf\n*.bat -text\n", "false"),
        ("* text=auto\n", "true"),
    ] {
        let repo = Repo::new();
        repo.git(&["config", "core.autocrlf", autocrlf]);
        repo.write(".gitattributes", attributes);
        repo.write("dos.txt", "one\r\ntwo\r\n");
        repo.write("run.bat", "echo\r\n");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "with line endings"]);
        let project = Project::in_repo(
            repo,
            &sh(
                "printf 'one\\r\\nTWO\\r\\n' > dos.txt; printf 'new\\r\\n' > new.txt; printf 'mixed\\r\\nlines\\n' > mixed.txt",
            ),
        );
        project.whole_run(attributes);
        assert_eq!(project.repo.read("dos.txt"), "one\r\nTWO\r\n");
        assert_eq!(project.repo.read("run.bat"), "echo\r\n");
        let stat = project
            .repo
            .git(&["diff", "--stat", "main", "HEAD", "--", "dos.txt"]);
        assert!(stat.contains("1 insertion(+), 1 deletion(-)"), "{stat}");
        assert_eq!(
            project.repo.git(&["cat-file", "-p", "HEAD:dos.txt"]),
            "one\nTWO"
        );
    }
}

fn filtered(user: bool) -> Project {
    let repo = Repo::new();
    repo.write(".gitattributes", "*.rot filter=rot\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "attributes"]);
    let config = repo.home().join(".gitconfig");
    let file = if user {
        config
    } else {
        repo.path().join(".git/config")
    };
    for (key, value) in [("clean", "tr a-z b-za"), ("smudge", "tr b-za a-z")] {
        repo.git(&[
            "config",
            "--file",
            file.to_str().unwrap(),
            &format!("filter.rot.{key}"),
            value,
        ]);
    }
    Project::in_repo(
        repo,
        &implementing(
            json!({ "cost": 0.1, "writes": [{ "path": "secret.rot", "content": "abc\n" }] }),
        ),
    )
}

#[test]
fn a_filter_of_the_users_own_configuration_runs() {
    let project = filtered(true);
    project.whole_run("the user's filter");
    assert_eq!(
        project.repo.git(&[
            "-c",
            "filter.rot.smudge=cat",
            "cat-file",
            "-p",
            "HEAD:secret.rot"
        ]),
        "bcd"
    );
    assert_eq!(project.repo.read("secret.rot"), "abc\n");
}

#[test]
fn a_filter_of_the_repositorys_configuration_runs_after_it_was_allowed() {
    let project = filtered(false);
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(
        answer.err.contains("filter_not_allowed") && answer.err.contains("rot"),
        "{answer:?}"
    );
    let status = project.json(&["status", "--json"]);
    assert_eq!(status["pause"]["reason"], "could_not_commit");
    assert_eq!(status["lastCompletedStage"]["stage"], "tasks");
    assert!(
        answer.err.contains("dex init --allow-filters"),
        "{answer:?}"
    );
    project.dex_ok(&["init", "--allow-filters"]);
    project.dex_ok(&["resume"]);
    project.is_over("allowed filter");
    assert_eq!(
        project.repo.git(&["cat-file", "-p", "HEAD:secret.rot"]),
        "bcd"
    );
    let implement: Vec<_> = phases(&project, "implement");
    assert_eq!(implement.len(), 1, "nothing was paid for twice");
}

fn phases(project: &Project, stage: &str) -> Vec<serde_json::Value> {
    let all = project.record()["phases"].as_array().unwrap().clone();
    all.into_iter().filter(|it| it["stage"] == stage).collect()
}

#[test]
fn skip_worktree_assume_unchanged_and_intent_to_add_entries_stay_what_they_are() {
    let repo = Repo::new();
    for name in ["skipped.txt", "assumed.txt"] {
        repo.write(name, "as committed\n");
    }
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "files"]);
    repo.git(&["update-index", "--skip-worktree", "skipped.txt"]);
    repo.git(&["update-index", "--assume-unchanged", "assumed.txt"]);
    repo.write("skipped.txt", "mine\n");
    let project = Project::in_repo(
        repo,
        &sh("echo new > later.txt; git add -N later.txt; echo x > plain.txt"),
    );
    project.whole_run("flags");
    let flags = project.repo.git(&["ls-files", "-v"]);
    assert!(
        flags.contains("S skipped.txt") && flags.contains("h assumed.txt"),
        "{flags}"
    );
    assert_eq!(
        project.repo.git(&["show", "HEAD:skipped.txt"]),
        "as committed"
    );
    assert_eq!(project.repo.read("skipped.txt"), "mine\n");
    assert_eq!(project.repo.git(&["show", "HEAD:later.txt"]), "new");
}

#[test]
fn executable_bits_and_links_are_kept_and_never_followed_b13_c10() {
    let repo = Repo::new();
    let outside = repo.beside("outside.txt");
    std::fs::write(&outside, "not for git\n").unwrap();
    repo.write("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(repo.path().join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    symlink(&outside, repo.path().join("link")).unwrap();
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "modes"]);
    let script = format!(
        "echo '# edited' >> run.sh; ln -s '{0}' leak; ln -s /nowhere dangling; echo x > new.sh; chmod +x new.sh; ln -s . loop",
        outside.display()
    );
    let project = Project::in_repo(repo, &sh(&script));
    project.whole_run("modes");
    let modes = project.repo.git(&["ls-files", "-s"]);
    let mode = |name: &str| {
        modes
            .lines()
            .find(|it| it.ends_with(&format!("\t{name}")))
            .map(|it| it[..6].to_owned())
    };
    assert_eq!(mode("run.sh").as_deref(), Some("100755"));
    assert_eq!(mode("new.sh").as_deref(), Some("100755"));
    for link in ["link", "leak", "dangling", "loop"] {
        assert_eq!(mode(link).as_deref(), Some("120000"), "{link}");
    }
    assert_eq!(
        project.repo.git(&["cat-file", "-p", "HEAD:leak"]),
        outside.to_str().unwrap()
    );
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "not for git\n");
}

#[test]
fn names_and_contents_that_are_no_text_are_taken_byte_for_byte_c15_c11() {
    let repo = Repo::new();
    repo.write("was-file", "file\n");
    repo.write("was-dir/inside", "inside\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "files"]);
    let script = "printf '\\377\\376\\000x' > data; printf 'caf\\351\\n' > \"$(printf 'latin-\\351')\"; \
        echo a > Case.txt; echo b > case.txt; echo c > ' lead'; echo d > -dash; echo e > '\"quoted\"'; \
        echo f > \"$(printf 'line\\nend')\"; rm was-file; mkdir was-file; echo g > was-file/now; rm -r was-dir; echo h > was-dir";
    let project = Project::in_repo(repo, &sh(script));
    project.whole_run("names");
    let raw = project
        .repo
        .try_git(&["ls-tree", "-r", "-z", "--name-only", "HEAD"])
        .stdout;
    let names: Vec<&[u8]> = raw.split(|it| *it == 0).collect();
    for name in [
        &b"data"[..],
        b"latin-\xe9",
        b"Case.txt",
        b"case.txt",
        b" lead",
        b"-dash",
        b"\"quoted\"",
        b"line\nend",
        b"was-file/now",
        b"was-dir",
    ] {
        assert!(names.contains(&name), "{}", String::from_utf8_lossy(name));
    }
    let data = project
        .repo
        .try_git(&["cat-file", "-p", "HEAD:data"])
        .stdout;
    assert_eq!(data, b"\xff\xfe\x00x");
    let latin = Path::new(OsStr::from_bytes(b"latin-\xe9"));
    assert_eq!(
        std::fs::read(project.repo.path().join(latin)).unwrap(),
        b"caf\xe9\n"
    );
    // Reading commands show such names and do not stop at them.
    for words in [&["show"][..], &["report"], &["status"]] {
        assert_eq!(project.dex(words).code, Some(0), "{words:?}");
    }
}

#[test]
fn a_large_file_is_left_out_named_everywhere_and_stays_on_disk_c12() {
    let project = Project::in_repo(
        Repo::new(),
        &sh(
            "head -c 200000 /dev/zero > big.bin; mkdir -p out; head -c 200000 /dev/zero > 'out/[big] *.bin'; echo x > small.txt",
        ),
    );
    project.settings(&json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } }));
    project.whole_run("large file");
    let tree = project.repo.git(&["ls-tree", "-r", "--name-only", "HEAD"]);
    assert!(
        !tree.contains("big") && tree.contains("small.txt"),
        "{tree}"
    );
    for name in ["big.bin", "out/[big] *.bin"] {
        assert_eq!(
            std::fs::metadata(project.repo.path().join(name))
                .unwrap()
                .len(),
            200_000
        );
    }
    let left_out = &phases(&project, "implement")[0]["leftOut"];
    assert_eq!(left_out[0]["path"], "big.bin");
    assert_eq!(left_out[0]["reason"], "too_large");
    assert_eq!(left_out[0]["bytes"], 200_000);
    assert_eq!(left_out.as_array().unwrap().len(), 2);
    assert_eq!(project.json(&["status", "--json"])["leftOut"], *left_out);
    for words in [&["status"][..], &["report"], &["report", "--md"]] {
        let answer = project.dex(words);
        assert!(answer.out.contains("big.bin"), "{words:?}: {}", answer.out);
    }
}

#[test]
fn a_large_file_that_git_tracks_keeps_its_committed_content_c12() {
    let repo = Repo::new();
    repo.write("data.bin", "small\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "data"]);
    let project = Project::in_repo(
        repo,
        &sh("head -c 200000 /dev/zero > data.bin; echo x > small.txt"),
    );
    project.settings(&json!({ "agent": "scripted", "commit": { "maxFileBytes": 100_000 } }));
    let answer = project.dex(&["run", "--small"]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    assert_eq!(project.repo.git(&["show", "HEAD:data.bin"]), "small");
    assert_eq!(project.repo.git(&["show", "HEAD:small.txt"]), "x");
    assert_eq!(
        std::fs::metadata(project.repo.path().join("data.bin"))
            .unwrap()
            .len(),
        200_000
    );
    assert_eq!(project.stages().len(), 13);
}

fn git_files(root: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn nested_repositories_are_left_out_and_untouched_b14_c04_c05() {
    let repo = Repo::new();
    repo.write("be/main.txt", "backend\n");
    let be = repo.path().join("be");
    repo.git_in(&be, &["init", "-q", "-b", "main"]);
    for args in [
        &["config", "user.name", "A"][..],
        &["config", "user.email", "a@example.com"],
        &["add", "-A"],
        &["commit", "-qm", "inner"],
    ] {
        repo.git_in(&be, args);
    }
    // The user's own nested repository is theirs; a run starts beside it.
    repo.git(&["config", "core.excludesFile", "/dev/null"]);
    repo.write(".git/info/exclude", "/be/\n");
    let before = git_files(&be);
    let script = "git clone -q . vendor/x; git init -q empty; echo y > empty/file; git worktree add -q wt -b w; echo x > ok.txt";
    let project = Project::in_repo(repo, &sh(script));
    project.whole_run("nested");
    let tree = project.repo.git(&["ls-tree", "-r", "HEAD"]);
    assert!(
        !tree.contains("160000") && tree.contains("ok.txt"),
        "{tree}"
    );
    assert!(!tree.contains("vendor") && !tree.contains("\twt"), "{tree}");
    assert_eq!(git_files(&be), before);
    assert!(project.repo.path().join("vendor/x/.git").is_dir());
    let left_out = phases(&project, "implement")[0]["leftOut"].clone();
    let paths: Vec<&str> = left_out
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    for path in ["vendor/x", "wt"] {
        assert!(
            paths.iter().any(|it| it.trim_end_matches('/') == path),
            "{paths:?}"
        );
    }
    assert!(
        left_out
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["reason"] == "nested_repository")
    );
    // The nested one is a project of its own.
    let inner = project
        .command(&["status"])
        .current_dir(&be)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&inner.stdout).contains("No run yet"));
}

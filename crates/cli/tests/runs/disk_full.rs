//! The disk fills up while a run works (case F06).

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testkit::Repo;

use super::support::{Project, implementing, runs};

/// A small file system of its own, for as long as this lives.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<SmallDisk> {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(&at)
            .output();
        mounted
            .is_ok_and(|it| it.status.success())
            .then_some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_stops_the_run_by_name_and_nothing_is_torn_f06() {
    // How much space is left decides which write is the first to fail.
    for left_kib in [0, 12, 28, 60] {
        let repo = Repo::new();
        let Some(disk) = SmallDisk::mount(repo.beside("disk")) else {
            println!("skipped: nothing can be mounted here");
            return;
        };
        let work = disk.0.join("work");
        repo.git(&["clone", "-q", ".", work.to_str().unwrap()]);
        for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com")] {
            repo.git_in(&work, &["config", key, value]);
        }
        let fill = format!(
            "echo made > made.txt; if [ ! -e ../filled ]; then touch ../filled; \
             head -c 20000000 /dev/zero > ../ballast 2>/dev/null || true; truncate -s -{left_kib}K ../ballast; fi"
        );
        let script = implementing(runs(&[&["sh", "-c", &fill]]));
        let project = Project::in_repo(repo.seen_from(&work), &script);
        let answer = project.dex(&["run", "--small"]);
        let what = format!("{left_kib} KiB left: {}", answer.err);
        assert!(!answer.err.contains("panicked"), "{what}");
        if answer.code != Some(0) {
            assert_eq!(answer.code, Some(1), "{what}");
            let named = ["No space left", "could_not_commit", "no space"];
            assert!(named.iter().any(|it| answer.err.contains(it)), "{what}");
        }
        // Reading works on a full disk, and every file there is whole.
        let status = project.json(&["status", "--json"]);
        assert!(
            status["stageCommits"].as_u64().unwrap() >= 9,
            "{what}: {status}"
        );
        let record: Value = project.record();
        assert!(record["phases"].is_array());
        project.live();
        project
            .repo
            .git(&["fsck", "--no-dangling", "--no-progress"]);
        std::fs::remove_file(disk.0.join("ballast")).unwrap();
        if answer.code != Some(0) {
            let answer = project.dex(&["resume", "--keep"]);
            assert_eq!(answer.code, Some(0), "{what}\nthen: {}", answer.err);
        }
        // An agent that found the disk full may have failed its stage; the next cycle mends that.
        let status = project.json(&["status", "--json"]);
        assert_eq!(status["status"], "completed", "{what}: {status}");
        assert!(project.is_clean(), "{what}");
        assert!(!work.join(".git/index.lock").exists(), "{what}");
        assert_eq!(
            project.repo.git(&["show", "HEAD:made.txt"]),
            "made",
            "{what}"
        );
        drop(project);
        drop(disk);
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_and_a_reader_that_went_away_is_none() {
    let project = Project::new(&super::support::good(&["Say hello"]));
    project.exits(0, &["run"]);
    let commands: [&[&str]; 16] = [
        &["status"],
        &["status", "--json"],
        &["report"],
        &["report", "--json"],
        &["report", "--md"],
        &["runs"],
        &["timeline"],
        &["log"],
        &["show"],
        &["show", "plan:1", "--json"],
        &["config"],
        &["prompts", "plan"],
        &["doctor"],
        &["completions", "bash"],
        &["--help"],
        &["--version"],
    ];
    for args in commands {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let out = project.command(args).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.contains("error: the result could not be written") && said.contains("No space"),
            "{args:?}: {said}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let out = project.command(args).stdout(writer).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}");
    }
}

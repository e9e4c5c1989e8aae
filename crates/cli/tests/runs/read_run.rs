//! The guide's shell script tells of a finished run from a fresh clone, without `dex`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::{Project, good};

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/read-run.sh")
}

/// A directory with nothing but these programs in it, as the whole `PATH`.
fn only(project: &Project, name: &str, programs: &[&str]) -> PathBuf {
    let dir = project.repo.beside(name);
    std::fs::create_dir_all(&dir).unwrap();
    for program in programs {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|it| it.join(program))
            .find(|it| it.is_file());
        let found = found.unwrap_or_else(|| panic!("{program} is needed for this test"));
        std::os::unix::fs::symlink(found, dir.join(program)).unwrap();
    }
    dir
}

fn told(project: &Project, clone: &Path, path: &Path) -> String {
    let mut sh = Command::new("/bin/sh");
    sh.arg(script()).current_dir(clone);
    project.repo.hermetic(&mut sh).env("PATH", path);
    let output = sh.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    assert_eq!(err, "");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_guides_script_tells_features_stages_order_and_cost_from_a_fresh_clone() {
    let project = Project::new(&good(&["Add notes", "List notes"]));
    project.dex_ok(&["run"]);
    // As it is where the run was pushed to: the run is a remote-tracking branch of the clone.
    project.repo.git(&["switch", "-q", "main"]);
    let clone = project.repo.beside("clone");
    let (from, to) = (project.mark(), clone.display().to_string());
    project.repo.git(&["clone", "-q", "--no-local", &from, &to]);

    let bare = only(&project, "bare", &["git", "sed", "awk"]);
    let text = told(&project, &clone, &bare);
    let features: Vec<&str> = text
        .lines()
        .skip_while(|it| !it.starts_with("features"))
        .skip(1)
        .take_while(|it| !it.is_empty())
        .collect();
    assert_eq!(
        features,
        [
            "  1. add-notes (cycle 1, 7 stages)",
            "  2. list-notes (cycle 2, 7 stages)"
        ]
    );
    // Cycle and stage of each line, in the order of the commits.
    let stages: Vec<String> = text
        .lines()
        .skip_while(|it| !it.starts_with("stages"))
        .skip(1)
        .take_while(|it| !it.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("[checkpoint:{}:{}]", words[3], words[2])
        })
        .collect();
    let commits = project.stages();
    let markers: Vec<&str> = commits.iter().filter_map(|it| it.lines().nth(1)).collect();
    assert_eq!(stages, markers);
    assert_eq!(stages.len(), 5 + 7 * 2 + 1);
    let cost = project.record()["totalCostUsd"].to_string();
    assert!(text.contains(&format!("cost: ${cost}\n")), "{cost}: {text}");
    let branch = project.branch();
    assert!(
        text.starts_with(&format!("run origin/{branch}\n")),
        "{text}"
    );

    // Where jq is, it also counts the attempts; nothing else differs.
    let has_jq =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|it| it.join("jq").is_file());
    if has_jq {
        let jq = only(&project, "with-jq", &["git", "sed", "awk", "jq"]);
        let more = told(&project, &clone, &jq);
        let record = project.record();
        let phases = record["phases"].as_array().unwrap().iter();
        let attempts = phases.filter(|it| !it["agent"].is_null()).count();
        assert!(
            more.contains(&format!("cost: ${cost} in {attempts} attempts")),
            "{more}"
        );
    }
}

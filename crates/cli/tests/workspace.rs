//! What holds for the workspace as a whole: which crate may use which, what we depend on, and
//! the absences that make the code easy to reason about.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Packages in `Cargo.lock`, ours included. Raise it in the commit that adds a dependency, so
/// that a review sees how many came along.
const MOST_PACKAGES: usize = 150;

/// What a dependency may be licensed under (one of the alternatives, where it offers several).
const LICENCES: [&str; 7] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
];

#[test]
fn crates_use_each_other_only_downwards() {
    let metadata = cargo_metadata(&["--no-deps"]);
    let mut edges: Vec<String> = packages(&metadata)
        .map(|package| {
            let mut line = format!("{} ->", text(&package["name"]));
            for dependency in ours(package, Value::is_null) {
                line = format!("{line} {dependency}");
            }
            let tests = ours(package, |kind| kind == "dev");
            if !tests.is_empty() {
                line = format!("{line} (tests: {})", tests.join(" "));
            }
            line
        })
        .collect();
    edges.sort();
    insta::assert_snapshot!(edges.join("\n"), @r"
    agents -> (tests: testkit)
    cli -> agents dex gitdb (tests: testkit)
    dex -> agents gitdb (tests: testkit)
    gitdb -> (tests: testkit)
    testkit ->
    ");
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for manifest in manifests() {
        let content = std::fs::read_to_string(&manifest).unwrap();
        assert!(
            content.contains("[lints]\nworkspace = true\n"),
            "{}",
            manifest.display()
        );
    }
}

#[test]
fn the_number_of_packages_stays_under_its_ceiling() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let count = lock.lines().filter(|line| *line == "[[package]]").count();
    assert!(
        count <= MOST_PACKAGES,
        "{count} packages; the ceiling is {MOST_PACKAGES}"
    );
}

#[test]
fn every_dependency_has_a_licence_we_accept() {
    let host = host();
    let metadata = cargo_metadata(&["--filter-platform", &host]);
    assert!(
        packages(&metadata).count() > manifests().len(),
        "dependencies are listed"
    );
    let refused: Vec<String> = packages(&metadata)
        .filter(|package| !accepted(package["license"].as_str().unwrap_or_default()))
        .map(|package| {
            format!(
                "{} {}: {}",
                package["name"], package["version"], package["license"]
            )
        })
        .collect();
    assert!(
        refused.is_empty(),
        "not on the list of accepted licences:\n{}",
        refused.join("\n")
    );
}

#[test]
fn a_licence_is_judged_by_its_alternatives() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(accepted(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND GPL-3.0",
        "MIT WITH Something",
    ] {
        assert!(!accepted(bad), "{bad}");
    }
}

/// All spawning of git is in one module: it clears the environment, keeps hooks from running,
/// syncs what it writes and has a timeout.
#[test]
fn only_one_module_starts_git() {
    let mut offenders = Vec::new();
    for manifest in manifests() {
        let krate = manifest.parent().unwrap();
        if krate.ends_with("testkit") {
            continue;
        }
        for file in rust_files(&krate.join("src")) {
            let content = std::fs::read_to_string(&file).unwrap();
            let shipped = content.split("#[cfg(test)]").next().unwrap();
            if shipped.contains("Command::new(\"git\")") && !file.ends_with("gitdb/src/git_cli.rs")
            {
                offenders.push(file.display().to_string());
            }
        }
    }
    assert!(
        offenders.is_empty(),
        "start git through gitdb::git_cli:\n{}",
        offenders.join("\n")
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn manifests() -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let mut found: Vec<PathBuf> = crates
        .map(|entry| entry.unwrap().path().join("Cargo.toml"))
        .collect();
    found.retain(|manifest| manifest.is_file());
    found.sort();
    found
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn host() -> String {
    let rustc = Command::new("rustc")
        .arg("-vV")
        .current_dir(root())
        .output()
        .unwrap();
    let output = String::from_utf8(rustc.stdout).unwrap();
    output
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap()
        .to_owned()
}

fn cargo_metadata(arguments: &[&str]) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().unwrap().iter()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The crates of this workspace that a package depends on, of one kind.
fn ours(package: &Value, of_kind: impl Fn(&Value) -> bool) -> Vec<&str> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    let mut names: Vec<&str> = dependencies
        .filter(|it| it["path"].is_string() && of_kind(&it["kind"]))
        .map(|it| text(&it["name"]))
        .collect();
    names.sort_unstable();
    names
}

/// Judges an SPDX expression: `OR` needs one side, `AND` both. The older `/` means `OR`.
fn accepted(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

fn any_of(rest: &mut &[&str]) -> bool {
    let mut good = all_of(rest);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        let other = all_of(rest);
        good = good || other;
    }
    good
}

fn all_of(rest: &mut &[&str]) -> bool {
    let mut good = one(rest);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        let other = one(rest);
        good = good && other;
    }
    good
}

fn one(rest: &mut &[&str]) -> bool {
    let Some((word, after)) = rest.split_first() else {
        return false;
    };
    *rest = after;
    if *word == "(" {
        let good = any_of(rest);
        let closed = rest.first() == Some(&")");
        *rest = rest.get(1..).unwrap_or_default();
        return good && closed;
    }
    let mut name = (*word).to_owned();
    if rest.first() == Some(&"WITH") {
        name = format!("{name} WITH {}", rest.get(1).unwrap_or(&""));
        *rest = rest.get(2..).unwrap_or_default();
    }
    LICENCES.contains(&name.as_str())
}

//! A proposal for the verify command, from the files a project has.
//!
//! Only ever a proposal: it comes from the repository, so a person accepts it before it is
//! written to the configuration and run.

use std::path::Path;

use serde_json::Value;

use crate::files::store;

/// The command that most likely verifies the project, and why; none when nothing is known.
pub fn detect_verify_command(dir: &Path) -> Option<(String, String)> {
    let found = |it: (&str, &str)| (it.0.to_owned(), it.1.to_owned());
    cargo(dir)
        .or_else(|| node(dir))
        .or_else(|| python(dir))
        .or_else(|| has(dir, "go.mod").then(|| found(("go test ./...", "there is a go.mod"))))
        .or_else(|| make(dir))
        .or_else(|| jvm(dir).map(found))
        .or_else(|| just(dir))
}

fn cargo(dir: &Path) -> Option<(String, String)> {
    let text = text(dir, "Cargo.toml")?;
    let has_table = |name: &str| text.lines().any(|line| line.trim() == name);
    // From the root package alone, cargo tests nothing but that package.
    match has_table("[workspace]") && has_table("[package]") {
        true => Some((
            "cargo test --workspace".to_owned(),
            "there is a Cargo.toml with a package and a workspace".to_owned(),
        )),
        false => Some(("cargo test".to_owned(), "there is a Cargo.toml".to_owned())),
    }
}

fn node(dir: &Path) -> Option<(String, String)> {
    let package: Value = serde_json::from_str(&text(dir, "package.json")?).ok()?;
    let script = package.get("scripts")?.get("test")?.as_str()?;
    // What `npm init` writes always fails, and a watching test never ends.
    let is_real = !script.trim().is_empty()
        && !script.contains("no test specified")
        && !script.contains("--watch");
    if !is_real {
        return None;
    }
    let (command, lock) = [
        ("pnpm test", "pnpm-lock.yaml"),
        ("yarn test", "yarn.lock"),
        ("bun run test", "bun.lock"),
        ("bun run test", "bun.lockb"),
        ("npm test", "package-lock.json"),
    ]
    .into_iter()
    .find(|(_, lock)| has(dir, lock))
    .unwrap_or(("npm test", ""));
    let why = match lock {
        "" => "package.json has a test script".to_owned(),
        lock => format!("package.json has a test script, and there is a {lock}"),
    };
    Some((command.to_owned(), why))
}

fn python(dir: &Path) -> Option<(String, String)> {
    let names = |file: &str, table: &str| text(dir, file).is_some_and(|text| text.contains(table));
    let why = if names("pyproject.toml", "[tool.pytest") {
        "pyproject.toml configures pytest"
    } else if has(dir, "pytest.ini") {
        "there is a pytest.ini"
    } else if names("setup.cfg", "[tool:pytest]") {
        "setup.cfg configures pytest"
    } else if names("tox.ini", "[pytest]") {
        "tox.ini configures pytest"
    } else if has_python_tests(dir) {
        "there are tests that pytest finds"
    } else {
        return None;
    };
    let command = match () {
        () if has(dir, "uv.lock") => "uv run pytest",
        () if has(dir, "poetry.lock") => "poetry run pytest",
        () => "pytest",
    };
    Some((command.to_owned(), why.to_owned()))
}

fn has_python_tests(dir: &Path) -> bool {
    /// A directory of tests is looked at, not searched.
    const MOST_ENTRIES: usize = 1000;
    let is_test = |name: &str| {
        let python = name.strip_suffix(".py");
        python
            .is_some_and(|it| it == "conftest" || it.starts_with("test_") || it.ends_with("_test"))
    };
    ["tests", "test"].iter().any(|tests| {
        std::fs::read_dir(dir.join(tests)).is_ok_and(|entries| {
            let mut names = entries.take(MOST_ENTRIES).flatten();
            names.any(|entry| entry.file_name().to_str().is_some_and(is_test))
        })
    })
}

fn make(dir: &Path) -> Option<(String, String)> {
    let file = first_with(
        dir,
        &["GNUmakefile", "makefile", "Makefile"],
        is_make_target,
    )?;
    Some((
        "make test".to_owned(),
        format!("{file} has a target `test`"),
    ))
}

/// `test:`, `check test: deps`, not `test := x`.
fn is_make_target(line: &str) -> bool {
    let Some((targets, rest)) = line.split_once(':') else {
        return false;
    };
    let targets = targets.strip_suffix(':').unwrap_or(targets);
    !line.starts_with(char::is_whitespace)
        && !rest.starts_with('=')
        && !rest.starts_with(":=")
        && targets.split_whitespace().any(|target| target == "test")
}

fn just(dir: &Path) -> Option<(String, String)> {
    let file = first_with(dir, &["justfile", "Justfile", ".justfile"], is_just_recipe)?;
    Some((
        "just test".to_owned(),
        format!("{file} has a recipe `test`"),
    ))
}

/// `test:`, `test *args: deps`, `@test:`, not `test := x`.
fn is_just_recipe(line: &str) -> bool {
    let line = line.strip_prefix('@').unwrap_or(line);
    let Some((head, rest)) = line.split_once(':') else {
        return false;
    };
    !line.starts_with(char::is_whitespace)
        && !rest.starts_with('=')
        && head.split_whitespace().next() == Some("test")
}

fn jvm(dir: &Path) -> Option<(&'static str, &'static str)> {
    let wrapped = [
        (
            "pom.xml",
            "mvnw",
            ("./mvnw test", "there is a pom.xml and its wrapper"),
        ),
        ("pom.xml", "pom.xml", ("mvn test", "there is a pom.xml")),
        (
            "gradlew",
            "gradlew",
            ("./gradlew test", "there is a Gradle wrapper"),
        ),
    ];
    wrapped
        .into_iter()
        .find(|(build, wrapper, _)| has(dir, build) && has(dir, wrapper))
        .map(|(_, _, found)| found)
}

fn first_with<'a>(dir: &Path, files: &[&'a str], wanted: fn(&str) -> bool) -> Option<&'a str> {
    let holds = |file: &str| text(dir, file).is_some_and(|text| text.lines().any(wanted));
    files.iter().copied().find(|file| holds(file))
}

fn has(dir: &Path, name: &str) -> bool {
    dir.join(name).is_file()
}

/// A file that cannot be read proposes nothing; that is no error.
fn text(dir: &Path, name: &str) -> Option<String> {
    let bytes = store::read(&dir.join(name)).ok()??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(files: &[(&str, &str)]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            store::write(dir.path(), &dir.path().join(name), text.as_bytes()).unwrap();
        }
        detect_verify_command(dir.path()).map(|(command, _)| command)
    }

    #[test]
    fn the_projects_own_files_propose_the_command() {
        let package = r#"{"scripts": {"test": "vitest run"}}"#;
        for (command, files) in [
            ("cargo test", vec![("Cargo.toml", "[workspace]\n")]),
            (
                "cargo test --workspace",
                vec![("Cargo.toml", "[package]\n[workspace]\n")],
            ),
            ("npm test", vec![("package.json", package)]),
            (
                "pnpm test",
                vec![("package.json", package), ("pnpm-lock.yaml", "")],
            ),
            (
                "yarn test",
                vec![("package.json", package), ("yarn.lock", "")],
            ),
            (
                "pytest",
                vec![("pyproject.toml", "[tool.pytest.ini_options]\n")],
            ),
            ("pytest", vec![("tests/test_x.py", "")]),
            ("uv run pytest", vec![("pytest.ini", ""), ("uv.lock", "")]),
            ("go test ./...", vec![("go.mod", "module x\n")]),
            (
                "make test",
                vec![("Makefile", ".PHONY: test\ncheck test: build\n\ttrue\n")],
            ),
            ("./mvnw test", vec![("pom.xml", ""), ("mvnw", "")]),
            ("./gradlew test", vec![("gradlew", "")]),
            ("just test", vec![("justfile", "test *args:\n  true\n")]),
        ] {
            assert_eq!(detected(&files).as_deref(), Some(command), "{files:?}");
        }
    }

    #[test]
    fn a_test_that_is_none_is_not_proposed() {
        let npm = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;
        for files in [
            vec![],
            vec![("package.json", npm)],
            vec![("package.json", r#"{"scripts": {"test": "jest --watch"}}"#)],
            vec![("package.json", "not json")],
            vec![("Makefile", "test := x\ntesting:\n\ttest:\n.PHONY: test\n")],
            vec![("justfile", "test := \"x\"\n")],
            vec![("pyproject.toml", "[project]\n")],
            vec![("tests/data.json", "")],
        ] {
            assert_eq!(detected(&files), None, "{files:?}");
        }
    }
}

//! What a stage reads and writes: paths, digests, the values of its prompt.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::files::learnings;
use crate::files::manifest::Feature;
use crate::files::state::{Artifact, State};
use crate::files::tasks::{self, TaskPhase};
use crate::live::Live;
use crate::stage::Stage;

/// Bytes of learnings told to an agent.
const LEARNINGS_BYTES: usize = 4_000;

/// The files of a run, from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths {
    /// The goal.
    pub(super) goal: String,
    /// What was found out about the product.
    pub(super) product: String,
    /// What was found out about the technology.
    pub(super) technical: String,
    /// The clarified goal.
    pub(super) clarified: String,
}

/// Where the constitution is written.
pub(super) const CONSTITUTION: &str = "specs/constitution.md";
/// Where the existing Dex has it.
pub(super) const OLD_CONSTITUTION: &str = ".specify/memory/constitution.md";

impl Paths {
    /// The files beside a goal: `GOAL.md` has `GOAL_clarified.md`.
    pub(super) fn of(goal: &str) -> Paths {
        let (dir, name) = goal
            .rsplit_once('/')
            .map_or(("", goal), |(dir, name)| (dir, name));
        let (stem, ext) = match name.rsplit_once('.') {
            Some((stem, ext)) if !stem.is_empty() => (stem, ext),
            _ => (name, "md"),
        };
        let beside = |suffix: &str| {
            let name = format!("{stem}_{suffix}.{ext}");
            if dir.is_empty() {
                name
            } else {
                format!("{dir}/{name}")
            }
        };
        Paths {
            goal: goal.to_owned(),
            product: beside("product_domain"),
            technical: beside("technical_domain"),
            clarified: beside("clarified"),
        }
    }

    /// What a stage must leave behind, any one of these.
    pub(super) fn output(&self, stage: Stage, spec_dir: Option<&str>) -> Vec<String> {
        let in_spec = |name: &str| {
            spec_dir
                .map(|dir| format!("{dir}/{name}"))
                .into_iter()
                .collect()
        };
        match stage {
            Stage::ClarificationProduct => vec![self.product.clone()],
            Stage::ClarificationTechnical => vec![self.technical.clone()],
            Stage::ClarificationSynthesis => vec![self.clarified.clone()],
            Stage::Constitution => vec![CONSTITUTION.to_owned(), OLD_CONSTITUTION.to_owned()],
            Stage::Specify => in_spec("spec.md"),
            Stage::Plan => in_spec("plan.md"),
            Stage::Tasks => in_spec("tasks.md"),
            Stage::Prerequisites
            | Stage::ManifestExtraction
            | Stage::GapAnalysis
            | Stage::Implement
            | Stage::ImplementFix
            | Stage::Verify
            | Stage::Learnings
            | Stage::Completion => Vec::new(),
        }
    }

    /// What a once-per-run stage reads.
    fn sources(&self, stage: Stage) -> Vec<&str> {
        match stage {
            Stage::ClarificationProduct => vec![&self.goal],
            Stage::ClarificationTechnical => vec![&self.goal, &self.product],
            Stage::ClarificationSynthesis => vec![&self.goal, &self.product, &self.technical],
            Stage::Constitution | Stage::ManifestExtraction => vec![&self.clarified],
            _ => Vec::new(),
        }
    }

    /// Name of a stage's artifact in `state.json`.
    fn artifact(stage: Stage) -> Option<&'static str> {
        match stage {
            Stage::ClarificationProduct => Some("productDomain"),
            Stage::ClarificationTechnical => Some("technicalDomain"),
            Stage::ClarificationSynthesis => Some("clarifiedGoal"),
            Stage::Constitution => Some("constitution"),
            Stage::ManifestExtraction => Some("manifest"),
            _ => None,
        }
    }
}

/// Hex SHA-256.
pub(super) fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// A file, or a link to one. An agent may have put anything in its place, and reading a pipe would
/// never end.
fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    let is_file = std::fs::metadata(path).is_ok_and(|it| it.is_file());
    is_file.then(|| std::fs::read(path).ok())?
}

/// As text, empty when there is none.
pub(super) fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&bytes_of(path).unwrap_or_default()).into_owned()
}

/// Digest over what a stage reads; none when a source is missing.
fn input_digest(root: &Path, paths: &Paths, stage: Stage) -> Option<String> {
    let mut all = Vec::new();
    for source in paths.sources(stage) {
        let bytes = bytes_of(&root.join(source))?;
        all.extend_from_slice(sha256(&bytes).as_bytes());
    }
    Some(sha256(&all))
}

fn manifest_path() -> String {
    ".dex/feature-manifest.json".to_owned()
}

/// Whether a once-per-run stage's output is there already, made from the same inputs.
pub(super) fn is_current(root: &Path, paths: &Paths, stage: Stage, state: Option<&State>) -> bool {
    let Some(name) = Paths::artifact(stage) else {
        return false;
    };
    let entry = state.and_then(|it| it.artifacts.get(name));
    let Some(entry) = entry.and_then(|it| serde_json::from_value::<Artifact>(it.clone()).ok())
    else {
        return false;
    };
    let output = match stage {
        Stage::ManifestExtraction => vec![manifest_path()],
        _ => paths.output(stage, None),
    };
    let same_output = output.contains(&entry.path) && root.join(&entry.path).is_file();
    same_output
        && entry.input_sha256.is_some()
        && entry.input_sha256 == input_digest(root, paths, stage)
}

/// The artifact entry of a once-per-run stage that just finished.
pub(super) fn artifacts(
    root: &Path,
    paths: &Paths,
    stage: Stage,
    at: &str,
) -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    let mut add = |name: &str, path: &str, input: Option<String>| {
        let Some(bytes) = bytes_of(&root.join(path)) else {
            return;
        };
        let entry = Artifact {
            path: path.to_owned(),
            sha256: sha256(&bytes),
            input_sha256: input,
            completed_at: at.to_owned(),
        };
        entries.insert(name.to_owned(), json!(entry));
    };
    let Some(name) = Paths::artifact(stage) else {
        return entries;
    };
    let input = input_digest(root, paths, stage);
    if stage == Stage::ClarificationProduct {
        add("goalFile", &paths.goal, None);
    }
    if stage == Stage::ManifestExtraction {
        // Its bytes change as features finish: the digest of its inputs is what counts.
        let entry = Artifact {
            path: manifest_path(),
            sha256: String::new(),
            input_sha256: input,
            completed_at: at.to_owned(),
        };
        entries.insert(name.to_owned(), json!(entry));
        return entries;
    }
    let output = paths.output(stage, None);
    if let Some(path) = output.iter().find(|it| root.join(it).is_file()) {
        add(name, path, input);
    }
    entries
}

/// A part of `implement`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its phase of `tasks.md`.
    pub(super) phase: TaskPhase,
    /// How many parts there are.
    pub(super) of: u32,
}

/// The parts of `tasks.md` that are not done yet; one without a phase when it has none.
pub(super) fn parts(root: &Path, spec_dir: Option<&str>, live: &Live) -> Vec<Option<Part>> {
    let text = spec_dir
        .map(|dir| text_of(&root.join(dir).join("tasks.md")))
        .unwrap_or_default();
    let phases = tasks::parse(&text);
    let of = phases.len() as u32;
    let finished = |number: u32| live.finished_parts.iter().any(|it| it.part == number);
    let open: Vec<Option<Part>> = phases
        .into_iter()
        .filter(|it| !it.is_complete() && !finished(it.number))
        .map(|phase| Some(Part { phase, of }))
        .collect();
    if of == 0 { vec![None] } else { open }
}

/// Everything a prompt may be filled with.
pub(super) struct Values<'a> {
    pub(super) root: &'a Path,
    pub(super) paths: &'a Paths,
    pub(super) live: &'a Live,
    pub(super) cycle: u32,
    pub(super) feature: Option<&'a Feature>,
    pub(super) spec_dir: Option<&'a str>,
    pub(super) part: Option<&'a Part>,
    pub(super) verify_output: &'a str,
    pub(super) failures: &'a [String],
    pub(super) answers: &'a [(String, String)],
}

impl Values<'_> {
    /// By placeholder. Every placeholder has a value, if only an empty one.
    pub(super) fn map(&self) -> BTreeMap<&'static str, String> {
        let mut all = BTreeMap::new();
        all.extend(self.files());
        all.extend(self.of_feature());
        all.extend(self.of_part());
        all.extend(self.told());
        all
    }

    /// Where things are.
    fn files(&self) -> [(&'static str, String); 11] {
        let in_spec = |name: &str| self.spec_dir.map(|dir| format!("{dir}/{name}"));
        let constitution = if self.root.join(OLD_CONSTITUTION).is_file() {
            OLD_CONSTITUTION
        } else {
            CONSTITUTION
        };
        [
            ("goal_file", self.paths.goal.clone()),
            ("product_domain_file", self.paths.product.clone()),
            ("technical_domain_file", self.paths.technical.clone()),
            ("clarified_file", self.paths.clarified.clone()),
            ("constitution_file", constitution.to_owned()),
            ("manifest_file", manifest_path()),
            ("learnings_file", ".dex/learnings.md".to_owned()),
            ("spec_dir", self.spec_dir.unwrap_or_default().to_owned()),
            ("spec_file", in_spec("spec.md").unwrap_or_default()),
            ("plan_file", in_spec("plan.md").unwrap_or_default()),
            ("tasks_file", in_spec("tasks.md").unwrap_or_default()),
        ]
    }

    fn of_feature(&self) -> [(&'static str, String); 4] {
        let of = |text: fn(&Feature) -> String| self.feature.map(text).unwrap_or_default();
        [
            ("feature_title", of(|it| it.title.clone())),
            ("feature_description", of(|it| it.description.clone())),
            ("feature_slug", of(|it| it.slug.clone().unwrap_or_default())),
            ("cycle", self.cycle.to_string()),
        ]
    }

    /// The part of `implement` at work; as a whole where there is none.
    fn of_part(&self) -> [(&'static str, String); 3] {
        let Some(Part { phase, .. }) = self.part else {
            return [
                ("phase_number", "1".to_owned()),
                ("phase_title", "all tasks".to_owned()),
                ("phase_tasks", String::new()),
            ];
        };
        let lines = phase.tasks.iter().map(|task| {
            let mark = if task.done == tasks::Done::Yes {
                "x"
            } else {
                " "
            };
            format!("- [{mark}] {} {}", task.id, task.text)
        });
        [
            ("phase_number", phase.number.to_string()),
            ("phase_title", phase.title.clone()),
            ("phase_tasks", lines.collect::<Vec<_>>().join("\n")),
        ]
    }

    /// What commands, agents and people said.
    fn told(&self) -> [(&'static str, String); 6] {
        let learned = text_of(&self.root.join(".dex/learnings.md"));
        let verify_command = self.live.start.settings.verify_command.clone();
        let failures = self.failures.iter().map(|it| format!("- {it}"));
        let answers = self.answers.iter().map(|(q, a)| format!("- {q} — {a}"));
        [
            ("learnings", learnings::tail(&learned, LEARNINGS_BYTES)),
            ("verify_command", verify_command.unwrap_or_default()),
            ("verify_output", self.verify_output.to_owned()),
            ("failures", failures.collect::<Vec<_>>().join("\n")),
            ("note", self.live.notes.join("\n\n")),
            ("answers", answers.collect::<Vec<_>>().join("\n")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stand_beside_their_goal() {
        let paths = Paths::of("docs/GOAL.md");
        assert_eq!(paths.product, "docs/GOAL_product_domain.md");
        assert_eq!(paths.technical, "docs/GOAL_technical_domain.md");
        assert_eq!(paths.clarified, "docs/GOAL_clarified.md");
        assert_eq!(Paths::of("goal").clarified, "goal_clarified.md");
    }
}

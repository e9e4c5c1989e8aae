//! The stages of a run, in order.

use std::{fmt, str::FromStr};

use gitdb::checkpoint::{Checkpoint, FeatureSlug, StageMessage};

/// A stage. The unit of work and of storage.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Checks before anything is paid for. Makes no commit.
    Prerequisites,
    /// Questions about the product.
    ClarificationProduct,
    /// Questions about the technology.
    ClarificationTechnical,
    /// One clarified goal.
    ClarificationSynthesis,
    /// The project's principles.
    Constitution,
    /// The list of features.
    ManifestExtraction,
    /// What to do in this cycle.
    GapAnalysis,
    /// What the feature must do.
    Specify,
    /// How it will be built.
    Plan,
    /// The steps, in phases.
    Tasks,
    /// The code.
    Implement,
    /// Mending what verify found.
    ImplementFix,
    /// The project's command, and a look.
    Verify,
    /// What to remember.
    Learnings,
    /// The end of the run.
    Completion,
}

/// Every stage, in order.
pub const ALL: [Stage; 15] = [
    Stage::Prerequisites,
    Stage::ClarificationProduct,
    Stage::ClarificationTechnical,
    Stage::ClarificationSynthesis,
    Stage::Constitution,
    Stage::ManifestExtraction,
    Stage::GapAnalysis,
    Stage::Specify,
    Stage::Plan,
    Stage::Tasks,
    Stage::Implement,
    Stage::ImplementFix,
    Stage::Verify,
    Stage::Learnings,
    Stage::Completion,
];

/// Not the name of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a stage")]
pub struct NotAStage;

impl Stage {
    /// Its name in commits, files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Prerequisites => "prerequisites",
            Stage::ClarificationProduct => "clarification_product",
            Stage::ClarificationTechnical => "clarification_technical",
            Stage::ClarificationSynthesis => "clarification_synthesis",
            Stage::Constitution => "constitution",
            Stage::ManifestExtraction => "manifest_extraction",
            Stage::GapAnalysis => "gap_analysis",
            Stage::Specify => "specify",
            Stage::Plan => "plan",
            Stage::Tasks => "tasks",
            Stage::Implement => "implement",
            Stage::ImplementFix => "implement_fix",
            Stage::Verify => "verify",
            Stage::Learnings => "learnings",
            Stage::Completion => "completion",
        }
    }

    /// Whether it belongs to a cycle (its cycle number is not 0).
    pub fn in_cycle(self) -> bool {
        match self {
            Stage::Prerequisites
            | Stage::ClarificationProduct
            | Stage::ClarificationTechnical
            | Stage::ClarificationSynthesis
            | Stage::Constitution
            | Stage::ManifestExtraction
            | Stage::Completion => false,
            Stage::GapAnalysis
            | Stage::Specify
            | Stage::Plan
            | Stage::Tasks
            | Stage::Implement
            | Stage::ImplementFix
            | Stage::Verify
            | Stage::Learnings => true,
        }
    }

    /// For people: "Clarified goal", "Plan".
    pub fn title(self) -> &'static str {
        match self {
            Stage::Prerequisites => "Prerequisites",
            Stage::ClarificationProduct => "Product questions",
            Stage::ClarificationTechnical => "Technical questions",
            Stage::ClarificationSynthesis => "Clarified goal",
            Stage::Constitution => "Constitution",
            Stage::ManifestExtraction => "Features",
            Stage::GapAnalysis => "Gap analysis",
            Stage::Specify => "Spec",
            Stage::Plan => "Plan",
            Stage::Tasks => "Tasks",
            Stage::Implement => "Implement",
            Stage::ImplementFix => "Fix",
            Stage::Verify => "Verify",
            Stage::Learnings => "Learnings",
            Stage::Completion => "Completion",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Stage {
    type Err = NotAStage;

    fn from_str(name: &str) -> Result<Self, NotAStage> {
        ALL.into_iter()
            .find(|stage| stage.name() == name)
            .ok_or(NotAStage)
    }
}

/// A place in a run: which stage, which cycle, for which feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The stage.
    pub stage: Stage,
    /// The cycle, 0 outside cycles.
    pub cycle: u32,
    /// The feature's slug, none outside cycles.
    pub feature: Option<String>,
}

impl Place {
    /// A place outside cycles.
    pub fn once(stage: Stage) -> Place {
        Place {
            stage,
            cycle: 0,
            feature: None,
        }
    }

    /// The message of the commit that finishes it.
    pub fn message(&self) -> String {
        let feature = self.feature.as_deref().map(|slug| {
            slug.parse::<FeatureSlug>()
                .expect("slugs are made of letters, digits and dashes")
        });
        let stage = self
            .stage
            .name()
            .parse()
            .expect("stage names follow the grammar");
        StageMessage {
            checkpoint: Checkpoint {
                stage,
                cycle: self.cycle,
            },
            feature,
        }
        .to_string()
    }

    /// `plan:2`.
    pub fn checkpoint(&self) -> String {
        format!("{}:{}", self.stage, self.cycle)
    }

    /// "Cycle 2 — Plan", as people read it.
    pub fn label(&self) -> String {
        if self.stage.in_cycle() {
            format!("Cycle {} — {}", self.cycle, self.stage.title())
        } else {
            self.stage.title().to_owned()
        }
    }
}

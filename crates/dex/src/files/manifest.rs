//! `.dex/feature-manifest.json`: the features of a run. Extracted once; drives selection.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The manifest, version 2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub version: u32,
    /// SHA-256 (hex) of the clarified goal it was extracted from.
    pub source_hash: String,
    /// Path of that file, from the project's root.
    pub source_path: String,
    /// The features, in order of work.
    pub features: Vec<Feature>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Feature {
    /// Number within the manifest.
    pub id: u32,
    /// Short title.
    pub title: String,
    /// What it is.
    pub description: String,
    /// Where it stands.
    pub status: Status,
    /// Directory of its spec, once there is one.
    pub spec_dir: Option<String>,
    /// Its slug, fixed once. Older manifests have none: see [`Manifest::slug`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
    /// Unknown fields, kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// `pending → active → completed | skipped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not begun.
    Pending,
    /// Begun and not finished.
    Active,
    /// Verified.
    Completed,
    /// Given up.
    Skipped,
}

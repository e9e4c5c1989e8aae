//! `.dex/feature-manifest.json`: the features of a run. Extracted once; drives selection.
//!
//! A slug ends up in commit messages and in the name of a directory, so the reader refuses one
//! that is not a plain name (case B11), wherever it comes from.

use std::collections::HashSet;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::CycleOutcome;
use super::store::{self, FileError};

/// From the root of the work tree.
pub const PATH: &str = ".dex/feature-manifest.json";

/// The only version there is.
pub const VERSION: u32 = 2;

/// The longest slug.
pub const MAX_SLUG: usize = 50;

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
    #[serde(default)]
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

impl Status {
    /// What a feature is after a cycle of its own that came to this. One that failed is still at
    /// work.
    pub fn after(outcome: CycleOutcome) -> Status {
        match outcome {
            CycleOutcome::Completed => Status::Completed,
            CycleOutcome::Skipped => Status::Skipped,
            CycleOutcome::Failed => Status::Active,
        }
    }

    /// What it is once a stage of its own has finished, its cycle not being over.
    pub fn begun(self) -> Status {
        match self {
            Status::Pending => Status::Active,
            Status::Active | Status::Completed | Status::Skipped => self,
        }
    }
}

impl Manifest {
    /// Reads a manifest. Never panics, whatever the bytes.
    pub fn read(bytes: &[u8]) -> Result<Manifest, FileError> {
        let manifest: Manifest = store::parse_json(Path::new(PATH), bytes)?;
        match manifest.problem() {
            None => Ok(manifest),
            Some(problem) => Err(FileError::malformed(Path::new(PATH), problem)),
        }
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        store::to_json(self)
    }

    /// The slug of one of these features: the stored one, else the one [`assign_slugs`] would
    /// store.
    ///
    /// [`assign_slugs`]: Manifest::assign_slugs
    pub fn slug(&self, feature: &Feature) -> String {
        if let Some(slug) = &feature.slug {
            return slug.clone();
        }
        let same = |it: &Feature| it == feature;
        match self.features.iter().position(same) {
            Some(at) => self.slugs().swap_remove(at),
            None => slug_of(&feature.title, feature.id, &HashSet::new()),
        }
    }

    /// Fixes the slug of every feature that has none.
    pub fn assign_slugs(&mut self) {
        let slugs = self.slugs();
        for (feature, slug) in self.features.iter_mut().zip(slugs) {
            feature.slug = Some(slug);
        }
    }

    /// The first feature nobody has begun.
    pub fn next_pending(&self) -> Option<&Feature> {
        self.first(Status::Pending)
    }

    /// The feature at work.
    pub fn active(&self) -> Option<&Feature> {
        self.first(Status::Active)
    }

    fn first(&self, status: Status) -> Option<&Feature> {
        self.features.iter().find(|it| it.status == status)
    }

    /// Every feature's slug, in order. Stored ones are never given a second time, wherever in
    /// the list they stand.
    pub fn slugs(&self) -> Vec<String> {
        let stored = self.features.iter().filter_map(|it| it.slug.clone());
        let mut taken: HashSet<String> = stored.collect();
        let mut slugs = Vec::with_capacity(self.features.len());
        for feature in &self.features {
            let slug = match &feature.slug {
                Some(slug) => slug.clone(),
                None => slug_of(&feature.title, feature.id, &taken),
            };
            taken.insert(slug.clone());
            slugs.push(slug);
        }
        slugs
    }

    fn problem(&self) -> Option<String> {
        if self.version != VERSION {
            let version = self.version;
            return Some(format!(
                "field `version`: {version} is not known here, only {VERSION}"
            ));
        }
        let mut taken = HashSet::new();
        for (n, feature) in self.features.iter().enumerate() {
            if let Some(slug) = &feature.slug {
                if !is_slug(slug) {
                    return Some(format!(
                        "field `features[{n}].slug`: it must be 1 to {MAX_SLUG} of a-z, A-Z, \
                         0-9, `.`, `_` and `-`, and begin with a letter or a digit"
                    ));
                }
                if !taken.insert(slug) {
                    return Some(format!(
                        "field `features[{n}].slug`: {slug} is taken already"
                    ));
                }
            }
            if feature
                .spec_dir
                .as_deref()
                .is_some_and(|dir| !is_inside(dir))
            {
                return Some(format!(
                    "field `features[{n}].specDir`: it must be a directory inside the project"
                ));
            }
        }
        None
    }
}

/// A new slug for a title: lower case, `[a-z0-9-]`, at most [`MAX_SLUG`]; `feature-<id>` when
/// nothing is left; `-2`, `-3` … when it is taken.
pub fn slug_of(title: &str, id: u32, taken: &HashSet<String>) -> String {
    let mut base = String::new();
    for c in title.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => base.push(c),
            // An apostrophe is no gap: "user's" is one word.
            '\'' | '’' => {}
            _ if base.ends_with('-') || base.is_empty() => {}
            _ => base.push('-'),
        }
    }
    let mut base = cut(&base, MAX_SLUG).to_owned();
    if base.is_empty() {
        base = format!("feature-{id}");
    }
    if !taken.contains(&base) {
        return base;
    }
    // Ends after at most one more step than slugs are taken.
    (2u64..)
        .map(|n| {
            let suffix = format!("-{n}");
            format!("{}{suffix}", cut(&base, MAX_SLUG - suffix.len()))
        })
        .find(|slug| !taken.contains(slug))
        .expect("fewer slugs are taken than there are numbers")
}

fn cut(slug: &str, max: usize) -> &str {
    slug[..slug.len().min(max)].trim_matches('-')
}

fn is_slug(text: &str) -> bool {
    text.len() <= MAX_SLUG
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_inside(dir: &str) -> bool {
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    !dir.contains(char::is_control) && Path::new(dir).components().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feature(id: u32, title: &str, slug: Option<&str>) -> Feature {
        Feature {
            id,
            title: title.to_owned(),
            description: String::new(),
            status: Status::Pending,
            spec_dir: None,
            slug: slug.map(str::to_owned),
            more: Map::new(),
        }
    }

    fn manifest(features: Vec<Feature>) -> Manifest {
        Manifest {
            version: 2,
            source_hash: "0".repeat(64),
            source_path: "GOAL_clarified.md".to_owned(),
            features,
            more: Map::new(),
        }
    }

    #[test]
    fn slugs_are_words_and_collisions_are_numbered() {
        let long = "word ".repeat(30);
        let mut manifest = manifest(vec![
            feature(1, "Cart & Checkout!", None),
            feature(2, "cart checkout", None),
            feature(3, "目录", None),
            feature(4, "Cart-checkout", Some("mine")),
            feature(5, "Mine", None),
            feature(6, &long, None),
            feature(7, &long, None),
            feature(8, "Feature 3", None),
            feature(9, "x\n[checkpoint:ship:99]", None),
            feature(10, "A user's cart", None),
        ]);
        let last = manifest.slug(&manifest.features[9]);
        manifest.assign_slugs();
        let slugs: Vec<_> = manifest
            .features
            .iter()
            .flat_map(|it| it.slug.clone())
            .collect();
        insta::assert_snapshot!(slugs.join("\n"), @r"
        cart-checkout
        cart-checkout-2
        feature-3
        mine
        mine-2
        word-word-word-word-word-word-word-word-word-word
        word-word-word-word-word-word-word-word-word-wor-2
        feature-3-2
        x-checkpoint-ship-99
        a-users-cart
        ");
        assert_eq!(last, slugs[9]);
        assert!(Manifest::read(&manifest.to_bytes()).is_ok());
    }

    #[test]
    fn a_slug_or_directory_that_reaches_outside_is_refused_b11() {
        for slug in ["", "-", "../x", "a/b", "x\n[checkpoint:ship:99]", ".git"] {
            let bad = manifest(vec![feature(1, "t", Some(slug))]);
            assert!(Manifest::read(&bad.to_bytes()).is_err(), "{slug:?}");
        }
        for dir in ["/etc", "specs/../../x", "specs/a\nb"] {
            let mut bad = manifest(vec![feature(1, "t", None)]);
            bad.features[0].spec_dir = Some(dir.to_owned());
            assert!(Manifest::read(&bad.to_bytes()).is_err(), "{dir:?}");
        }
    }

    #[test]
    fn a_bad_status_names_its_line_and_what_is_accepted() {
        let text = "{\n\"version\": 2, \"sourceHash\": \"\", \"sourcePath\": \"\", \"features\": [\n\
            {\"id\": 1, \"title\": \"t\", \"description\": \"\", \"status\": \"done\"}]}";
        let error = Manifest::read(text.as_bytes()).unwrap_err().to_string();
        insta::assert_snapshot!(error, @".dex/feature-manifest.json: line 3, column 59: field `features[0].status`: unknown variant `done`, expected one of `pending`, `active`, `completed`, `skipped`");
    }

    proptest! {
        #[test]
        fn every_title_gets_a_slug_of_its_own(titles in prop::collection::vec("\\PC{0,60}|[a-b]{1,2}", 0..12)) {
            let features = titles.iter().zip(1..).map(|(title, id)| feature(id, title, None));
            let mut manifest = manifest(features.collect());
            manifest.assign_slugs();
            let read = Manifest::read(&manifest.to_bytes());
            prop_assert_eq!(read.unwrap(), manifest);
        }

        #[test]
        fn a_manifest_keeps_what_it_does_not_know(text in "\\PC{0,8}", id in any::<u32>()) {
            let value = serde_json::json!({
                "version": 2, "sourceHash": text, "sourcePath": text, "later": [text],
                "features": [{"id": id, "title": text, "description": text, "status": "active",
                              "specDir": null, "later": {"x": id}}],
            });
            let manifest = Manifest::read(value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(serde_json::to_value(&manifest).unwrap(), value);
            prop_assert_eq!(Manifest::read(&manifest.to_bytes()).unwrap(), manifest);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Manifest::read(&bytes);
        }
    }
}

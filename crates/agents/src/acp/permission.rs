//! What an agent may do when it asks, as a pure decision over the kind of act and where it acts.
//!
//! Nobody is there to be asked further, so every doubt is a refusal: an edit that names no file,
//! a kind we do not know. A refusal is not a failure; the agent is told and goes on without.
//!
//! This holds for what an agent asks about. What it does without asking is not seen here.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::ToolSurface;

/// What a tool does, in the protocol's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    Other,
}

impl Kind {
    /// An unknown word is [`Kind::Other`].
    pub(super) fn of(word: &str) -> Kind {
        match word {
            "read" => Kind::Read,
            "edit" => Kind::Edit,
            "delete" => Kind::Delete,
            "move" => Kind::Move,
            "search" => Kind::Search,
            "execute" => Kind::Execute,
            "think" => Kind::Think,
            "fetch" => Kind::Fetch,
            "switch_mode" => Kind::SwitchMode,
            _ => Kind::Other,
        }
    }
}

/// Where a path leads once links are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Below the work directory, at this path relative to it.
    Inside(PathBuf),
    /// Git's own directory, wherever it is.
    Git,
    /// Anywhere else, or nowhere that can be told.
    Outside,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    /// With the reason, for the agent and the report.
    Refuse(&'static str),
}

const OUTSIDE: Verdict = Verdict::Refuse("outside the working directory");
const ONLY: Verdict = Verdict::Refuse("this stage edits only the files named");
const READ_ONLY: Verdict = Verdict::Refuse("this stage changes nothing");

/// Decides about a tool that acts on these places.
pub(super) fn decide(tools: &ToolSurface, kind: Kind, places: &[Place]) -> Verdict {
    match kind {
        Kind::Read | Kind::Search => looking(places),
        Kind::Think => Verdict::Allow,
        Kind::Edit => changing(tools, places),
        Kind::Delete | Kind::Move | Kind::Other => match tools {
            ToolSurface::ReadEdit { .. } => ONLY,
            ToolSurface::ReadOnly | ToolSurface::Workspace => changing(tools, places),
        },
        Kind::Execute => match tools {
            ToolSurface::ReadOnly => READ_ONLY,
            ToolSurface::ReadEdit { .. } => ONLY,
            // Not confined by us: that is a sandbox's work.
            ToolSurface::Workspace => Verdict::Allow,
        },
        Kind::Fetch => Verdict::Refuse("no web access"),
        Kind::SwitchMode => Verdict::Refuse("the mode is set once per stage"),
    }
}

fn looking(places: &[Place]) -> Verdict {
    if places.contains(&Place::Outside) {
        OUTSIDE
    } else {
        Verdict::Allow
    }
}

fn changing(tools: &ToolSurface, places: &[Place]) -> Verdict {
    match tools {
        ToolSurface::ReadOnly => READ_ONLY,
        ToolSurface::ReadEdit { only } => {
            let named = |place: &Place| matches!(place, Place::Inside(it) if only.contains(it));
            match !places.is_empty() && places.iter().all(named) {
                true => Verdict::Allow,
                false => ONLY,
            }
        }
        ToolSurface::Workspace if places.is_empty() => Verdict::Refuse("it names no file"),
        ToolSurface::Workspace => {
            let refused = places.iter().find_map(|place| match place {
                Place::Inside(_) => None,
                Place::Git => Some(Verdict::Refuse("git's own files")),
                Place::Outside => Some(OUTSIDE),
            });
            refused.unwrap_or(Verdict::Allow)
        }
    }
}

/// The answer to a permission request: the option that says no more than the verdict does, else
/// that nobody chose.
pub(super) fn choose(verdict: Verdict, options: &Value) -> Value {
    let wanted = match verdict {
        Verdict::Allow => ["allow_once", "allow_always"],
        Verdict::Refuse(_) => ["reject_once", "reject_always"],
    };
    let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let option = wanted.iter().find_map(|kind| {
        let option = options.iter().find(|it| it["kind"] == *kind)?;
        option["optionId"].as_str()
    });
    match option {
        Some(id) => json!({"outcome": {"outcome": "selected", "optionId": id}}),
        None => cancelled(),
    }
}

/// The answer once the turn was cancelled.
pub(super) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_act_on_every_place_has_its_verdict() {
        let places = [
            ("none", vec![]),
            ("inside", vec![Place::Inside("a".into())]),
            ("git", vec![Place::Git]),
            ("outside", vec![Place::Outside]),
            ("mixed", vec![Place::Inside("a".into()), Place::Outside]),
        ];
        let words = [
            "read",
            "search",
            "think",
            "edit",
            "delete",
            "move",
            "execute",
            "fetch",
            "switch_mode",
            "other",
            "novel",
        ];
        let mut table = String::new();
        for tools in [ToolSurface::ReadOnly, ToolSurface::Workspace] {
            table.push_str(&format!("{tools:?}\n"));
            for word in words {
                let allowed = places
                    .iter()
                    .filter(|(_, places)| decide(&tools, Kind::of(word), places) == Verdict::Allow);
                let allowed: Vec<_> = allowed.map(|(name, _)| *name).collect();
                let allowed = if allowed.is_empty() {
                    "never".to_owned()
                } else {
                    allowed.join(" ")
                };
                table.push_str(&format!("  {word}: {allowed}\n"));
            }
        }
        insta::assert_snapshot!(table, @"
        ReadOnly
          read: none inside git
          search: none inside git
          think: none inside git outside mixed
          edit: never
          delete: never
          move: never
          execute: never
          fetch: never
          switch_mode: never
          other: never
          novel: never
        Workspace
          read: none inside git
          search: none inside git
          think: none inside git outside mixed
          edit: inside
          delete: inside
          move: inside
          execute: none inside git outside mixed
          fetch: never
          switch_mode: never
          other: inside
          novel: inside
        ");
    }

    #[test]
    fn the_narrowest_option_is_chosen_and_an_unknown_one_never() {
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
        let all = json!([
            option("1", "allow_always"),
            option("2", "allow_once"),
            option("3", "reject_always"),
            option("4", "reject_once"),
        ]);
        let id = |verdict, options: &Value| {
            let chosen = choose(verdict, options);
            let id = chosen["outcome"]["optionId"].as_str();
            id.unwrap_or("cancelled").to_owned()
        };
        let refuse = Verdict::Refuse("no");
        assert_eq!(id(Verdict::Allow, &all), "2");
        assert_eq!(id(refuse, &all), "4");
        let strange = json!([option("1", "allow_everything"), {"kind": "allow_once"}, 7]);
        assert_eq!(id(Verdict::Allow, &strange), "cancelled");
        assert_eq!(id(refuse, &strange), "cancelled");
        assert_eq!(id(Verdict::Allow, &Value::Null), "cancelled");
    }

    #[test]
    fn where_only_some_files_may_be_edited_nothing_else_may() {
        let only = vec!["a".into(), "d/b".into()];
        let tools = ToolSurface::ReadEdit { only };
        let inside = |it: &str| Place::Inside(it.into());
        let allows = |kind: Kind, places: &[Place]| decide(&tools, kind, places) == Verdict::Allow;
        assert!(allows(Kind::Edit, &[inside("a"), inside("d/b")]));
        assert!(allows(Kind::Read, &[inside("c")]));
        for places in [vec![], vec![inside("b")], vec![inside("a"), Place::Outside]] {
            assert!(!allows(Kind::Edit, &places), "{places:?}");
        }
        for kind in [Kind::Delete, Kind::Move, Kind::Execute, Kind::Other] {
            assert!(!allows(kind, &[inside("a")]), "{kind:?}");
        }
    }
}

//! Who keeps an agent to looking in a stage that only looks. Pure.
//!
//! A back end that can does it by itself. For one that cannot, walls are made in which the work
//! tree is not writable. Where there are none either, the stage is not begun, unless a person
//! switched walls off: then the agent is trusted, and the record says so.

use agents::{Held, Refusal};

/// What walls around a work tree that is not writable came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Walls {
    /// They hold.
    Hold,
    /// There is something they do not hold; what.
    Leak(String),
    /// They are switched off.
    Off,
}

/// Who keeps the agent to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keeper {
    /// The back end.
    BackEnd,
    /// The walls.
    Walls,
    /// Nobody, and a person knows.
    Trust(Refusal),
    /// Nobody.
    Nobody(NotHeld),
}

/// Nobody can keep an agent to what a stage may do, so the stage is not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{refusal}; sandbox: {walls}")]
pub struct NotHeld {
    /// Why the back end does not.
    pub refusal: Refusal,
    /// What the walls are, in the words of records.
    pub walls: String,
}

/// Whether walls are to be made in which the work tree is not writable.
pub(super) fn needs_walls(itself: &Result<Held, Refusal>) -> bool {
    match itself {
        Ok(Held::InPlace | Held::OnACopy) => false,
        Err(_) => true,
    }
}

/// Decides. `walls` are what was made where [`needs_walls`] says so, and else of no account.
pub(super) fn keeper(itself: Result<Held, Refusal>, walls: Walls) -> Keeper {
    match (itself, walls) {
        (Ok(Held::InPlace | Held::OnACopy), _) => Keeper::BackEnd,
        (Err(_), Walls::Hold) => Keeper::Walls,
        (Err(refusal), Walls::Off) => Keeper::Trust(refusal),
        (Err(refusal), Walls::Leak(walls)) => Keeper::Nobody(NotHeld { refusal, walls }),
    }
}

#[cfg(test)]
mod tests {
    use agents::ToolSurface;

    use super::*;

    #[test]
    fn who_keeps_an_agent_to_looking() {
        let refusal = Refusal {
            agent: "command",
            surface: ToolSurface::ReadOnly,
            why: "nothing keeps it".to_owned(),
        };
        let itself = [
            ("holds itself", Ok(Held::InPlace)),
            ("holds a copy", Ok(Held::OnACopy)),
            ("cannot", Err(refusal)),
        ];
        let walls = [
            ("walls hold", Walls::Hold),
            ("none here", Walls::Leak("none (no bwrap)".to_owned())),
            ("switched off", Walls::Off),
        ];
        let mut table = String::new();
        for (agent, itself) in &itself {
            for (there, walls) in &walls {
                let keeper = match keeper(itself.clone(), walls.clone()) {
                    Keeper::BackEnd => "the back end".to_owned(),
                    Keeper::Walls => "the walls".to_owned(),
                    Keeper::Trust(_) => "trust".to_owned(),
                    Keeper::Nobody(why) => format!("nobody: {why}"),
                };
                table.push_str(&format!("{agent}, {there}: {keeper}\n"));
            }
        }
        insta::assert_snapshot!(table, @"
        holds itself, walls hold: the back end
        holds itself, none here: the back end
        holds itself, switched off: the back end
        holds a copy, walls hold: the back end
        holds a copy, none here: the back end
        holds a copy, switched off: the back end
        cannot, walls hold: the walls
        cannot, none here: nobody: command cannot be made to only look: nothing keeps it; sandbox: none (no bwrap)
        cannot, switched off: trust
        ");
        let asked: Vec<bool> = itself.iter().map(|it| needs_walls(&it.1)).collect();
        assert_eq!(
            asked,
            [false, false, true],
            "walls are made only where needed"
        );
    }
}

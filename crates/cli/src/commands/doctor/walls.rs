//! What this machine can enforce around an agent, found by trying it.

use agents::sandbox::{self, Abilities, Bwrap};

use super::Check;

const CODE: &str = "sandbox";

/// `mode` is the setting `sandbox`.
pub(super) fn check(mode: &str) -> Check {
    found(mode, sandbox::machine())
}

fn found(mode: &str, machine: &Abilities) -> Check {
    if mode == "off" {
        return Check::warn(
            CODE,
            format!("switched off; {}", can(machine)),
            "Agents work with your rights. `dex config sandbox auto` puts walls around them.",
        );
    }
    let weaker = format!("{}: {}", can(machine), without(machine));
    match (&machine.bwrap, mode) {
        (Bwrap::Works { .. }, _) => Check::ok(
            CODE,
            "bwrap works: agents and verify commands change only the work tree, cannot write to .git and do not see credentials; verify commands have no network unless `verifyNetwork` is set",
        ),
        (_, "required") => Check::bad(CODE, weaker, remedy(machine)),
        (_, _) => Check::warn(CODE, weaker, remedy(machine)),
    }
}

fn can(machine: &Abilities) -> String {
    let bwrap = match &machine.bwrap {
        Bwrap::Works { .. } => "bwrap works".to_owned(),
        Bwrap::Absent => "bwrap is not installed".to_owned(),
        Bwrap::Fails { why, .. } => format!("bwrap is installed and does not work here ({why})"),
    };
    match machine.landlock {
        Some(version) => format!("{bwrap}, Landlock works (version {version})"),
        None => format!("{bwrap}, the kernel has no Landlock"),
    }
}

fn without(machine: &Abilities) -> &'static str {
    match machine.landlock {
        Some(_) => {
            "agents change only the work tree and do not see credentials, but in a run in place they can write to .git, and of the network only TCP can be taken away"
        }
        None => "nothing is enforced; limits, not walls, bound an agent",
    }
}

fn remedy(machine: &Abilities) -> &'static str {
    match machine.bwrap {
        Bwrap::Absent => "Install bubblewrap, e.g. `apt install bubblewrap`.",
        Bwrap::Fails { .. } => {
            "Let bwrap make namespaces (on Ubuntu an AppArmor profile for it), or use `dex run --worktree`, whose .git lies outside."
        }
        Bwrap::Works { .. } => "`dex config sandbox auto`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mode: &str, bwrap: Bwrap, landlock: Option<u32>) -> String {
        let check = found(mode, &Abilities { bwrap, landlock });
        format!("{:?} {}", check.status, check.text)
    }

    #[test]
    fn doctor_says_what_is_enforced_and_what_is_not() {
        let works = Bwrap::Works {
            program: "/usr/bin/bwrap".into(),
            layers: true,
        };
        let fails = Bwrap::Fails {
            program: "/usr/bin/bwrap".into(),
            why: "setting up uid map: Permission denied".to_owned(),
        };
        insta::assert_snapshot!(line("auto", works.clone(), None), @"Ok bwrap works: agents and verify commands change only the work tree, cannot write to .git and do not see credentials; verify commands have no network unless `verifyNetwork` is set");
        insta::assert_snapshot!(line("off", works, Some(6)), @"Warn switched off; bwrap works, Landlock works (version 6)");
        insta::assert_snapshot!(line("auto", fails, Some(6)), @"Warn bwrap is installed and does not work here (setting up uid map: Permission denied), Landlock works (version 6): agents change only the work tree and do not see credentials, but in a run in place they can write to .git, and of the network only TCP can be taken away");
        insta::assert_snapshot!(line("required", Bwrap::Absent, None), @"Bad bwrap is not installed, the kernel has no Landlock: nothing is enforced; limits, not walls, bound an agent");
    }
}

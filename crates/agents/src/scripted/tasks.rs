//! Ticking tasks in `tasks.md`, as an agent that implemented them would.

/// The number of a task phase's heading, `## Phase 2: …`.
fn phase_of(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("## Phase ")
        .or_else(|| line.strip_prefix("## TaskPhase "))?;
    let number = rest.split(':').next()?.trim();
    (rest.contains(':') && number.parse::<u32>().is_ok()).then_some(number)
}

/// The first phase's number, if the file has phases.
pub(super) fn first_phase(tasks: &str) -> Option<&str> {
    tasks.lines().find_map(phase_of)
}

/// The text with the open tasks of one phase ticked; without phases, or without a number, all
/// of them.
pub(super) fn tick(tasks: &str, phase: Option<&str>) -> String {
    let phase = phase.filter(|_| first_phase(tasks).is_some());
    let mut ours = phase.is_none();
    tasks
        .split_inclusive('\n')
        .map(|line| {
            if let Some(wanted) = phase.filter(|_| line.starts_with("## ")) {
                ours = phase_of(line.trim_end()) == Some(wanted);
            }
            match line.strip_prefix("- [ ]").filter(|_| ours) {
                Some(rest) => format!("- [x]{rest}"),
                None => line.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: &str = "# Tasks\n\n## Phase 1: Setup\n\n- [ ] T001 a\n- [x] T002 b\n\n\
        ## Phase 2: Build\r\n- [ ] T003 c\r\n## Notes\n- [ ] not a task of a phase";

    #[test]
    fn only_the_phases_own_open_tasks_are_ticked() {
        assert_eq!(first_phase(TASKS), Some("1"));
        let ticked = tick(TASKS, Some("2"));
        assert_eq!(ticked, TASKS.replace("[ ] T003", "[x] T003"));
    }

    #[test]
    fn without_phases_every_task_is_ticked() {
        assert_eq!(tick("- [ ] T001 a\n", Some("1")), "- [x] T001 a\n");
    }
}

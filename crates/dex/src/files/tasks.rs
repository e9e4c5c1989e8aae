//! `tasks.md`: the steps of a feature, in phases.

/// One phase of a `tasks.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPhase {
    /// Its number.
    pub number: u32,
    /// Its title.
    pub title: String,
    /// Its `**Purpose**`, when given.
    pub purpose: Option<String>,
    /// Its tasks, in order.
    pub tasks: Vec<Task>,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// `T001`.
    pub id: String,
    /// The text after the id, tags included.
    pub text: String,
    /// Whether its box is ticked.
    pub done: Done,
}

/// What a task's box says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// `[ ]`
    No,
    /// `[~]`: code exists.
    CodeExists,
    /// `[x]` or `[X]`
    Yes,
}

impl TaskPhase {
    /// Whether every task is done.
    pub fn is_complete(&self) -> bool {
        !self.tasks.is_empty() && self.tasks.iter().all(|task| task.done == Done::Yes)
    }
}

/// Reads a `tasks.md`. Lines that are neither header, purpose nor task are prose.
///
/// ```text
/// ## Phase 1: Setup                  or  ## TaskPhase 1: Setup
/// **Purpose**: why
/// - [ ] T001 [P] [US1] what          boxes: space, ~, x, X
/// ```
///
/// Tasks above the first header are kept as a phase with number 0, so that a list without
/// phases is not a list without tasks.
pub fn parse(text: &str) -> Vec<TaskPhase> {
    let mut phases: Vec<TaskPhase> = Vec::new();
    for line in text.lines() {
        if let Some((number, title)) = header(line) {
            phases.push(TaskPhase {
                number,
                title: title.to_owned(),
                purpose: None,
                tasks: Vec::new(),
            });
        } else if let Some(task) = task(line) {
            if phases.is_empty() {
                phases.push(TaskPhase {
                    number: 0,
                    title: "Tasks".to_owned(),
                    purpose: None,
                    tasks: Vec::new(),
                });
            }
            if let Some(phase) = phases.last_mut() {
                phase.tasks.push(task);
            }
        } else if let Some(purpose) = line.strip_prefix("**Purpose**: ")
            && let Some(phase) = phases.last_mut()
            && phase.purpose.is_none()
        {
            phase.purpose = Some(purpose.trim_end().to_owned());
        }
    }
    phases
}

/// The text with the boxes of these tasks ticked. Only ever promotes: a box that is ticked
/// stays as it is, and nothing else in the text changes.
pub fn tick<S: AsRef<str>>(text: &str, ids: &[S]) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let wanted = task(line.trim_end_matches(['\n', '\r'])).is_some_and(|task| {
            task.done != Done::Yes && ids.iter().any(|id| id.as_ref() == task.id)
        });
        if wanted {
            out.push_str("- [x]");
            out.push_str(&line["- [ ]".len()..]);
        } else {
            out.push_str(line);
        }
    }
    out
}

fn header(line: &str) -> Option<(u32, &str)> {
    let rest = line.strip_prefix("## ")?;
    let rest = rest
        .strip_prefix("TaskPhase ")
        .or_else(|| rest.strip_prefix("Phase "))?;
    let (number, title) = rest.split_once(": ")?;
    let title = title.trim();
    if title.is_empty() || !is_digits(number) {
        return None;
    }
    Some((number.parse().ok()?, title))
}

fn task(line: &str) -> Option<Task> {
    let rest = line.strip_prefix("- [")?;
    let (done, rest) = [
        (" ] ", Done::No),
        ("~] ", Done::CodeExists),
        ("x] ", Done::Yes),
        ("X] ", Done::Yes),
    ]
    .into_iter()
    .find_map(|(mark, done)| Some((done, rest.strip_prefix(mark)?)))?;
    let (id, text) = rest.split_once(char::is_whitespace)?;
    let text = text.trim();
    let digits = id.strip_prefix('T')?;
    (is_digits(digits) && !text.is_empty()).then(|| Task {
        id: id.to_owned(),
        text: text.to_owned(),
        done,
    })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TASKS: &str = "\
# Tasks — Cart

## Phase 1: Setup
**Purpose**: a place to work
- [x] T001 Make the module
- [X] T002 [P] Add a test

## TaskPhase 2: Cart state
Some prose.
- [~] T003 [US1] Keep the cart
- [ ] T004   Merge a guest's cart
- [ ] no id
";

    #[test]
    fn both_headers_and_every_box_are_read() {
        let phases = parse(TASKS);
        assert_eq!(phases.len(), 2);
        assert_eq!(phases[0].purpose.as_deref(), Some("a place to work"));
        assert!(phases[0].is_complete(), "an upper-case X is a tick too");
        assert_eq!(
            (phases[1].number, phases[1].title.as_str()),
            (2, "Cart state")
        );
        let done: Vec<_> = phases[1].tasks.iter().map(|task| task.done).collect();
        assert_eq!(done, [Done::CodeExists, Done::No]);
        assert_eq!(phases[1].tasks[1].text, "Merge a guest's cart");
    }

    #[test]
    fn windows_line_ends_are_read_and_kept() {
        let text = TASKS.replace('\n', "\r\n");
        assert_eq!(parse(&text), parse(TASKS));
        let ticked = tick(&text, &["T004"]);
        assert_eq!(ticked, text.replace("[ ] T004", "[x] T004"));
    }

    #[test]
    fn ticking_promotes_and_changes_nothing_else() {
        let ticked = tick(TASKS, &["T002", "T003", "T004", "T999"]);
        let expected = TASKS
            .replace("[~] T003", "[x] T003")
            .replace("[ ] T004", "[x] T004");
        assert_eq!(ticked, expected);
        assert!(parse(&ticked).iter().all(TaskPhase::is_complete));
    }

    #[test]
    fn tasks_without_a_phase_are_not_lost() {
        let phases = parse("- [ ] T001 Do it\n");
        assert_eq!((phases[0].number, phases[0].tasks.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_ticking_nothing_changes_nothing(text in ".*") {
            parse(&text);
            prop_assert_eq!(tick::<&str>(&text, &[]), text);
        }

        #[test]
        fn what_is_ticked_reads_as_done(marks in prop::collection::vec("[ x~X]", 1..8)) {
            let text: String = marks
                .iter()
                .enumerate()
                .map(|(n, mark)| format!("- [{mark}] T{n:03} do {n}\n"))
                .collect();
            let ids: Vec<String> = (0..marks.len()).map(|n| format!("T{n:03}")).collect();
            let phases = parse(&tick(&text, &ids));
            prop_assert!(phases[0].is_complete());
        }
    }
}

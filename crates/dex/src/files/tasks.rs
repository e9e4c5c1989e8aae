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
pub fn parse(_text: &str) -> Vec<TaskPhase> {
    todo!()
}

//! The shape of a repository's history as text, for snapshots.

use crate::Repo;

impl Repo {
    /// Every branch and tag: what `git log --graph` draws, with subjects and names but no ids, so
    /// the same history is the same text. The marker line of a stage commit is part of its
    /// subject here, as git joins the first paragraph.
    ///
    /// Refs outside `refs/heads` and `refs/tags` are left out; see [`Repo::graph_of`].
    pub fn graph(&self) -> String {
        self.graph_of(&["--branches", "--tags", "HEAD"])
    }

    /// As [`Repo::graph`], of these revisions (`--all`, a ref, a range), with every ref's name.
    pub fn graph_of(&self, revisions: &[&str]) -> String {
        let mut arguments = vec![
            "log",
            "--graph",
            "--date-order",
            "--no-color",
            "--decorate=short",
            "--format=%s%d",
        ];
        arguments.extend(revisions);
        arguments.push("--");
        let text = self.git(&arguments);
        let lines = text.lines().map(str::trim_end);
        lines.collect::<Vec<_>>().join("\n")
    }
}

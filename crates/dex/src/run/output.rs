//! What a stage must leave in the work tree, whatever its agent says.

use super::Runner;
use super::attempt::Job;
use crate::files::tasks;
use crate::live::Attempt;
use crate::stage::Stage;

impl Runner<'_> {
    /// Checks that the stage left what it must; returns the feature's spec directory.
    pub(super) fn output_of(&self, job: &Job, attempt: &Attempt) -> Result<Option<String>, String> {
        let root = &self.live.worktree;
        let mut spec_dir = attempt.spec_dir.clone();
        if job.place.stage == Stage::Specify {
            spec_dir = Some(self.new_spec_dir(attempt.spec_dir.as_deref())?);
        }
        let paths = super::inputs::Paths::of(&self.live.start.goal);
        let wanted = paths.output(job.place.stage, spec_dir.as_deref());
        let there = wanted.iter().any(|path| is_written(root, path));
        if wanted.is_empty() || there {
            if job.place.stage == Stage::Tasks {
                self.has_open_tasks(&wanted)?;
            }
            Ok(spec_dir)
        } else if root.join(&wanted[0]).exists() {
            let path = &wanted[0];
            Err(format!("{path} is empty, or a symbolic link leads to it"))
        } else {
            Err(format!("{} was not written", wanted[0]))
        }
    }

    /// Whoever plans the tasks does not do them: boxes that are ticked from the start would leave
    /// `implement` with nothing to do. Ticks of an earlier cycle, which are in the last commit,
    /// are true; but a list with ticks that nobody touched is the earlier plan's, and this stage
    /// is there to make one that follows from the plan of now.
    fn has_open_tasks(&self, wanted: &[String]) -> Result<(), String> {
        let [path] = wanted else {
            return Ok(());
        };
        let all_ticked = |text: &str| {
            let tasks: Vec<_> = tasks::parse(text)
                .into_iter()
                .flat_map(|it| it.tasks)
                .collect();
            !tasks.is_empty() && tasks.iter().all(|it| it.done == tasks::Done::Yes)
        };
        let ticked_any = |text: &str| {
            let mut phases = tasks::parse(text).into_iter().flat_map(|it| it.tasks);
            phases.any(|it| it.done == tasks::Done::Yes)
        };
        let now = std::fs::read_to_string(self.live.worktree.join(path)).unwrap_or_default();
        let before = self.repo.read_file(&self.live.tip, path);
        let before = before.ok().flatten();
        let before = before.map(|it| String::from_utf8_lossy(&it).into_owned());
        if before.as_ref() == Some(&now) && ticked_any(&now) {
            return Err(format!(
                "{path} is the list of an earlier cycle, unchanged: write the tasks that the plan of now asks for; keep a tick only where the work is in the code and still right"
            ));
        }
        let too_soon = match &before {
            None => ticked_any(&now),
            Some(before) => all_ticked(&now) && !all_ticked(before),
        };
        match too_soon {
            true => Err(format!(
                "{path} has ticked boxes, but nothing is implemented yet: write every open task as `- [ ]`"
            )),
            false => Ok(()),
        }
    }

    /// The directory `specify` made: the proposed one, else the only new one under `specs/`.
    fn new_spec_dir(&self, proposed: Option<&str>) -> Result<String, String> {
        let root = &self.live.worktree;
        if let Some(proposed) = proposed.filter(|it| is_written(root, &format!("{it}/spec.md"))) {
            return Ok(proposed.to_owned());
        }
        let before = self
            .repo
            .list_tree(&self.live.tip, "specs")
            .unwrap_or_default();
        let mut new: Vec<String> = std::fs::read_dir(root.join("specs"))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|it| it.file_type().is_ok_and(|it| it.is_dir()))
            .filter_map(|it| it.file_name().into_string().ok())
            .map(|name| format!("specs/{name}"))
            .filter(|dir| !before.contains(dir) && is_written(root, &format!("{dir}/spec.md")))
            .collect();
        match new.len() {
            1 => Ok(new.remove(0)),
            0 => Err(format!(
                "{}/spec.md was not written",
                proposed.unwrap_or("specs/<NNN>-<slug>")
            )),
            _ => Err(format!("several new spec directories: {}", new.join(", "))),
        }
    }
}

/// Whether a file below the root has content, with no symbolic link on the way: what is behind
/// one is in no commit, and perhaps not even in the project.
fn is_written(root: &std::path::Path, path: &str) -> bool {
    let mut at = root.to_owned();
    for part in std::path::Path::new(path).components() {
        at.push(part);
        if at.symlink_metadata().map_or(true, |it| it.is_symlink()) {
            return false;
        }
    }
    at.metadata().is_ok_and(|it| it.is_file() && it.len() > 0)
}

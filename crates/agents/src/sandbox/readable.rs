//! Everything but some places, said as a list of hierarchies: Landlock can only allow.

use std::path::{Path, PathBuf};

/// Entries of one directory at most; what is beyond is not readable.
const ENTRIES: usize = 20_000;

/// Paths that together cover everything except what is at or below one of `hidden`, as it is now.
/// What is made later beside a hidden place is not covered. Symbolic links are left out: a rule
/// for one would be a rule for what it points to.
pub(super) fn everything_but(hidden: &[PathBuf]) -> Vec<PathBuf> {
    let mut covered = Vec::new();
    cover(Path::new("/"), hidden, &mut covered);
    covered
}

/// Paths that together cover a directory except what is at or below one of `others`.
pub(super) fn parts_without(dir: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let mut covered = Vec::new();
    cover(dir, others, &mut covered);
    covered
}

fn cover(dir: &Path, hidden: &[PathBuf], covered: &mut Vec<PathBuf>) {
    if hidden.iter().any(|it| dir.starts_with(it)) {
        return;
    }
    if !hidden.iter().any(|it| it.starts_with(dir)) {
        covered.push(dir.to_owned());
        return;
    }
    // The depth is that of the hidden paths.
    for entry in std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .take(ENTRIES)
    {
        if entry.file_type().is_ok_and(|it| !it.is_symlink()) {
            cover(&entry.path(), hidden, covered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_a_hidden_place_is_covered_and_the_way_to_it_is_not() {
        let root = tempfile::tempdir().expect("a directory");
        let home = root.path().canonicalize().expect("a path");
        for dir in [".ssh", ".config/gh", ".config/git", "work"] {
            std::fs::create_dir_all(home.join(dir)).expect("makes");
        }
        std::os::unix::fs::symlink(home.join(".ssh"), home.join("keys")).expect("links");
        let hidden = [home.join(".ssh"), home.join(".config/gh")];
        let mut covered = Vec::new();
        cover(&home, &hidden, &mut covered);
        covered.sort();
        assert_eq!(covered, [home.join(".config/git"), home.join("work")]);
    }
}

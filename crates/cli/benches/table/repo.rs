//! Two equal repositories, one for us and one for the peer.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Repo;

/// Files changed by every stage.
pub(crate) const CHANGED: usize = 50;

/// Path of the n-th file.
pub(crate) fn path(n: usize) -> String {
    format!("d{}/e{}/f{n}.txt", n % 40, n % 7)
}

/// Content of a file as one round leaves it.
pub(crate) fn content(round: &str, n: usize) -> String {
    format!("{round} {n}\n").repeat(20)
}

/// Which files change.
pub(crate) fn changed(files: usize) -> impl Iterator<Item = usize> {
    (0..files).step_by(files / CHANGED).take(CHANGED)
}

/// Equal in every file, each with one packed commit.
pub(crate) fn pair(files: usize) -> (Repo, Repo) {
    let pair = (Repo::new(), Repo::new());
    for repo in [&pair.0, &pair.1] {
        // Else a repository that grows beyond git's limit packs itself while the peer is timed.
        repo.git(&["config", "gc.auto", "0"]);
        import(repo, files);
        repo.git(&["reset", "-q", "--hard"]);
    }
    // Else the first fsync pays for the files just written.
    let synced = Command::new("sync").status();
    assert!(synced.is_ok_and(|it| it.success()));
    pair
}

/// One pack, written at once: adding so many files one by one takes minutes.
fn import(repo: &Repo, files: usize) {
    let mut stream = String::from(
        "commit refs/heads/main\ncommitter Ada Example <ada@example.com> 1767323045 +0000\n\
         data 10\nmany files\nfrom refs/heads/main^0\n",
    );
    for n in 0..files {
        let text = content("first", n);
        stream.push_str(&format!("M 100644 inline {}\n", path(n)));
        stream.push_str(&format!("data {}\n{text}\n", text.len()));
    }
    let mut git = Command::new("git");
    repo.hermetic(git.current_dir(repo.path()))
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped());
    let mut child = git.spawn().expect("git starts");
    let mut pipe = child.stdin.take().expect("it is piped");
    pipe.write_all(stream.as_bytes()).expect("git reads");
    drop(pipe);
    assert!(child.wait().is_ok_and(|it| it.success()));
}

/// Changes the files of one round, as an agent would.
pub(crate) fn change(root: &Path, files: usize, round: &str) {
    for n in changed(files) {
        std::fs::write(root.join(path(n)), content(round, n)).expect("writes");
    }
}

//! Files are replaced whole or not at all: when the disk is full, and when we are killed.

use std::path::Path;
use std::process::{Command, ExitStatus};

use dex::files::store;

const PLACE: &str = "DEX_TEST_STORE_PLACE";
const OLD: &[u8] = b"old\n";

fn new_bytes() -> Vec<u8> {
    vec![b'n'; 64 * 1024]
}

/// Not a test of its own: the program that the tests below start. Writes one file.
#[test]
fn process_that_writes() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let place = Path::new(&place);
    let done = store::write(place, &place.join(".dex/state.json"), &new_bytes());
    std::process::exit(if done.is_ok() { 0 } else { 7 });
}

fn write_in_a_process(place: &Path, shell: &str, env: &[(&str, &str)]) -> ExitStatus {
    let me = std::env::current_exe().expect("a test has a program");
    let script = format!("{shell}exec \"$0\" --exact process_that_writes --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(me)
        .env(PLACE, place)
        .envs(env.iter().copied())
        .output()
        .expect("the program starts")
        .status
}

fn place_with_old_file() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("there is a temporary directory");
    let file = dir.path().join(".dex/state.json");
    store::write(dir.path(), &file, OLD).expect("it is writable");
    dir
}

fn names(place: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(place.join(".dex")).expect("it is there");
    let mut names: Vec<String> = entries
        .map(|it| {
            it.expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn state(place: &Path) -> Vec<u8> {
    let file = place.join(".dex/state.json");
    store::read(&file).expect("readable").expect("never gone")
}

#[test]
fn a_full_disk_leaves_the_old_file_and_nothing_half_written_f06_f07() {
    let place = place_with_old_file();
    // A file-size limit ends a write in its middle, as a full disk does.
    let limit = "trap '' XFSZ; ulimit -f 4; ";
    let ended = write_in_a_process(place.path(), limit, &[]);
    assert_eq!(ended.code(), Some(7), "the write says that it failed");
    assert_eq!(state(place.path()), OLD);
    assert_eq!(names(place.path()), ["state.json"]);
}

// A release build has no crash points.
#[cfg(debug_assertions)]
#[test]
fn a_kill_at_any_step_leaves_the_old_file_or_the_new_one_f05() {
    use std::os::unix::process::ExitStatusExt as _;

    let outcomes = [("1", OLD.to_vec(), 2), ("2", new_bytes(), 1)];
    for (at, expected, files) in outcomes {
        let place = place_with_old_file();
        let ended = write_in_a_process(place.path(), "", &[("DEX_CRASH_AT", at)]);
        assert_eq!(ended.signal(), Some(9), "it was killed");
        assert_eq!(state(place.path()), expected, "killed at {at}");
        let left = names(place.path());
        assert_eq!(left.len(), files, "{left:?}");
        let extra = left.iter().filter(|name| *name != "state.json");
        assert!(extra.clone().all(|name| name.ends_with(store::TMP_SUFFIX)));
        // The next write tidies up.
        let file = place.path().join(".dex/state.json");
        store::write(place.path(), &file, OLD).expect("it is writable");
        assert_eq!(names(place.path()), ["state.json"]);
    }
}

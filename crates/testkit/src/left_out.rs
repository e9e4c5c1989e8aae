//! Tests that are left out where something they need is not to be had, each said by name.
//!
//! Only where somebody asked for that: otherwise what is missing is a failure. `./check --quick`
//! asks, and shows at its end what `DEX_TESTS_LEFT_OUT` names the file of.

use std::io::Write as _;

fn asked(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|it| it == "1")
}

/// Whether a test that needs `bwrap` is run: not with `DEX_TESTS_WITHOUT_BWRAP=1`.
pub fn with_bwrap() -> bool {
    if asked("DEX_TESTS_WITHOUT_BWRAP") {
        say("bwrap");
        return false;
    }
    true
}

/// Whether a test that needs something from npm is run: not with `DEX_TESTS_OFFLINE=1`.
pub(crate) fn with_npm(what: &str) -> bool {
    if asked("DEX_TESTS_OFFLINE") {
        say(&format!("{what} from npm"));
        return false;
    }
    true
}

#[expect(clippy::print_stdout, reason = "a test that did not run must say so")]
fn say(what: &str) {
    let thread = std::thread::current();
    let line = format!("{}: needs {what}\n", thread.name().unwrap_or("a test"));
    print!("left out: {line}");
    let Some(list) = std::env::var_os("DEX_TESTS_LEFT_OUT") else {
        return;
    };
    let list = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(list);
    // One write, so that lines of tests at work side by side stay whole.
    let written = list.and_then(|mut it| it.write_all(line.as_bytes()));
    written.expect("the list of what is left out can be written");
}

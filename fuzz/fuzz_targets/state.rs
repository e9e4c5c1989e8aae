//! The run state: reading does not panic, and what was read is written and read back the same,
//! fields that we do not know included.
#![no_main]

use dex::files::state::State;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut read) = State::read(bytes) else {
        return;
    };
    let again = State::read(&read.to_bytes()).expect("what we write, we read");
    // An older file becomes version 2 when it is written.
    read.version = 2;
    assert_eq!(again, read);
});

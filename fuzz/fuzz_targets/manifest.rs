//! A manifest: reading does not panic, and what was read is written and read back the same,
//! fields that we do not know included.
#![no_main]

use dex::files::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = serde_json::from_slice::<Manifest>(bytes) else {
        return;
    };
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    let again: Manifest = serde_json::from_slice(&written).expect("what we write, we read");
    assert_eq!(again, read);
});

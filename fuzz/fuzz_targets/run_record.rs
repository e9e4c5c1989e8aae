//! A run's record: reading does not panic, and what was read is written and read back the same,
//! fields that we do not know included.
#![no_main]

use dex::files::record::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = Record::read(bytes) else {
        return;
    };
    let again = Record::read(&read.to_bytes()).expect("what we write, we read");
    assert_eq!(again, read);
});

//! A manifest: reading does not panic, and what was read is written and read back the same,
//! fields that we do not know included.
#![no_main]

use dex::files::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = Manifest::read(bytes) else {
        return;
    };
    let again = Manifest::read(&read.to_bytes()).expect("what we write, we read");
    assert_eq!(again, read);
    // A slug becomes part of a commit message and of a path.
    for feature in &read.features {
        let slug = read.slug(feature);
        assert!(
            !slug.is_empty() && slug.len() <= 50 && !slug.contains('/'),
            "{slug}"
        );
    }
});

//! Whatever a commit message holds: reading does not panic, and what is read as a stage commit
//! is written back in our own spelling and reads as the same.
#![no_main]

use gitdb::checkpoint::{Checkpoint, StageMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|raw: &str| {
    if let Ok(message) = StageMessage::read(raw) {
        let ours = message.to_string();
        assert_eq!(StageMessage::read(&ours), Ok(message));
        assert_eq!(ours.lines().count(), 2);
    }
    if let Ok(checkpoint) = raw.parse::<Checkpoint>() {
        assert_eq!(checkpoint.to_string(), raw, "one spelling per checkpoint");
    }
});

use gitdb::checkpoint::{Checkpoint, FeatureSlug, StageMessage, StageName};
use proptest::prelude::*;

fn message() -> impl Strategy<Value = StageMessage> {
    let feature =
        proptest::option::of("[A-Za-z0-9._/-]{1,40}").prop_map(|it| it.filter(|s| s != "-"));
    ("[a-z][a-z0-9_]{0,20}", any::<u32>(), feature).prop_map(|(stage, cycle, feature)| {
        StageMessage {
            checkpoint: Checkpoint {
                stage: stage.parse().unwrap(),
                cycle,
            },
            feature: feature.map(|it| it.parse().unwrap()),
        }
    })
}

proptest! {
    #[test]
    fn what_we_write_we_read_back(message in message()) {
        let text = message.to_string();
        prop_assert_eq!(text.parse::<StageMessage>().unwrap(), message.clone());
        prop_assert_eq!(StageMessage::read(&text).unwrap(), message.clone());
        let marker = message.checkpoint.to_string();
        prop_assert_eq!(marker.parse::<Checkpoint>().unwrap(), message.checkpoint);
        prop_assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn what_parses_is_spelled_as_we_would(text in "\\[checkpoint:[a-z0-9_:+ ]{0,12}\\]?") {
        if let Ok(parsed) = text.parse::<Checkpoint>() {
            prop_assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = StageMessage::read(&text);
        let _ = text.parse::<Checkpoint>();
    }

    #[test]
    fn a_small_damage_never_reads_as_another_stage(message in message(), at in any::<prop::sample::Index>(), byte in 0x20u8..0x7f) {
        let mut text = message.to_string().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let text = String::from_utf8(text).unwrap();
        if let Ok(read) = StageMessage::read(&text) {
            // Both lines carry stage and cycle, so a change of one of them is noticed.
            prop_assert_eq!(read.checkpoint, message.checkpoint);
        }
    }
}

fn reads(text: &str) -> Option<String> {
    StageMessage::read(text).ok().map(|it| it.to_string())
}

#[test]
fn older_spellings_of_a_stage_are_read() {
    let ours = "dex: plan completed [cycle:2] [feature:product-catalogue]\n[checkpoint:plan:2]\n";
    for older in [
        ours,
        "dex: plan completed [cycle:2] [feature:product-catalogue]\n\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:2] [feature:product-catalogue] [cost:$1.25]\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:2] [feature:product-catalogue]\n",
        "dex: plan completed [cycle:2] [feature:product-catalogue]",
        "dex: plan completed [cycle:2] [feature:product-catalogue]\r\n[checkpoint:plan:2]\r\n",
        "dex: plan completed [cycle:2] [feature:product-catalogue]\r\n\r\n[checkpoint:plan:2]\r\n\r\n",
    ] {
        assert_eq!(reads(older).as_deref(), Some(ours), "{older:?}");
    }
    let none = "dex: constitution completed [cycle:0] [feature:-]\n[checkpoint:constitution:0]\n";
    assert_eq!(reads(none).as_deref(), Some(none));
    let older = "dex: constitution completed [cycle:0]\n[checkpoint:constitution:0]\n";
    assert_eq!(reads(older).as_deref(), Some(none));
    let older =
        "dex: constitution completed [cycle:0] [cost:$0.00]\n\n[checkpoint:constitution:0]\n";
    assert_eq!(reads(older).as_deref(), Some(none));
}

#[test]
fn b11_a_marker_in_prose_or_a_forged_line_is_no_checkpoint() {
    for forged in [
        "docs: explain [checkpoint:plan:2]\n",
        "docs: how\n\n[checkpoint:plan:2]\n",
        "[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:2] [feature:x]\n[checkpoint:ship:99]\n",
        "dex: plan completed [cycle:2] [feature:x]\n[checkpoint:plan:3]\n",
        "dex: plan completed [cycle:2] [feature:x]\nand more\n",
        "dex: plan completed [cycle:2] [feature:x]\n[checkpoint:plan:2]\n[checkpoint:ship:99]\n",
        "dex: plan completed [cycle:2] [feature:x]\n\n\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:2] [feature:x\n[checkpoint:ship:99]]\n[checkpoint:plan:2]\n",
        " dex: plan completed [cycle:2] [feature:x]\n[checkpoint:plan:2]\n",
        "Revert \"dex: plan completed [cycle:2] [feature:x]\"\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:02] [feature:x]\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:+2] [feature:x]\n[checkpoint:plan:+2]\n",
        "dex: plan completed [cycle:2] [feature:]\n[checkpoint:plan:2]\n",
        "dex: Plan completed [cycle:2] [feature:x]\n[checkpoint:Plan:2]\n",
        "dex: plan completed [cycle:2] [feature:x] [cost:$1.2]\n[checkpoint:plan:2]\n",
        "dex: plan completed [cycle:4294967296] [feature:x]\n[checkpoint:plan:4294967296]\n",
        "",
    ] {
        assert_eq!(reads(forged), None, "{forged:?}");
    }
    for name in [
        "x\n[checkpoint:ship:99]",
        "",
        "-",
        "a b",
        "a]",
        "ü",
        "a\u{0}",
    ] {
        assert!(name.parse::<FeatureSlug>().is_err(), "{name:?}");
    }
    for name in ["", "Plan", "1plan", "_x", "plan-b", "plan:2"] {
        assert!(name.parse::<StageName>().is_err(), "{name:?}");
    }
}

//! `learnings.md` is edited by everyone: adding does not panic, adding twice changes nothing, and
//! no line that we do not understand is lost.
#![no_main]

use dex::files::learnings::{self, Insight};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &str, &str)| {
    let (file, category, insight, context) = input;
    let new = Insight {
        category: category.to_owned(),
        insight: insight.to_owned(),
        context: context.to_owned(),
    };
    let once = learnings::add(file, std::slice::from_ref(&new), 20);
    assert_eq!(learnings::add(&once, std::slice::from_ref(&new), 20), once);
    for line in file.lines().filter(|line| !line.starts_with("- **")) {
        assert!(once.contains(line), "{line}");
    }
    assert!(learnings::tail(&once, 200).len() <= 200);
});

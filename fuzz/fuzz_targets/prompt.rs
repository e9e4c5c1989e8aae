//! A project's own prompt and a value from an agent: rendering does not panic, and the value
//! cannot close the fence it stands in.
#![no_main]

use std::collections::BTreeMap;

use dex::prompt;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str)| {
    let (template, value) = input;
    let values: BTreeMap<&str, String> = prompt::names()
        .iter()
        .map(|name| (*name, value.to_owned()))
        .collect();
    let _ = prompt::render(template, &values);

    let fenced = prompt::render("<<<DATA\n{{learnings}}\nDATA>>>\n", &values);
    let fenced = fenced.expect("a good template renders");
    assert_eq!(fenced.matches("DATA>>>").count(), 1);
    assert_eq!(fenced.matches("<<<DATA").count(), 1);
});

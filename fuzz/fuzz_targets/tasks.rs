//! People and agents edit `tasks.md`: reading does not panic, and ticking a task ticks it and
//! changes nothing else that is read.
#![no_main]

use dex::files::tasks::{self, Done};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let before = tasks::parse(text);
    let Some(id) = before
        .iter()
        .flat_map(|it| &it.tasks)
        .map(|it| it.id.clone())
        .next()
    else {
        assert_eq!(tasks::tick(text, &["T001"]), text);
        return;
    };
    let after = tasks::parse(&tasks::tick(text, &[&id]));
    assert_eq!(before.len(), after.len());
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(
            (old.number, &old.title, &old.purpose),
            (new.number, &new.title, &new.purpose)
        );
        for (old, new) in old.tasks.iter().zip(&new.tasks) {
            assert_eq!((&old.id, &old.text), (&new.id, &new.text));
            let wanted = if old.id == id { Done::Yes } else { old.done };
            assert_eq!(new.done, wanted);
        }
    }
});

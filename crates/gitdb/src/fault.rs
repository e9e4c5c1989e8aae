//! Crash points: where the kill tests end the process.
//!
//! Every effect that must survive a crash has a [`point`] before and after it. In a debug build
//! `DEX_CRASH_AT=<n>` ends the process, as `kill -9` would, at the n-th point it passes, and
//! `DEX_CRASH_AT=<name>` or `<name>:<n>` at the n-th pass of the named one. `DEX_CRASH_LOG=<file>`
//! appends the name of every point passed. A release build contains none of this.

/// Marks a place where the process may die.
pub fn point(name: &str) {
    #[cfg(debug_assertions)]
    imp::point(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod imp {
    use std::collections::HashMap;
    use std::io::Write as _;
    use std::sync::{LazyLock, Mutex};

    enum At {
        Pass(u64),
        Named(String, u64),
    }

    struct Plan {
        at: Option<At>,
        log: Option<std::path::PathBuf>,
        passed: u64,
        by_name: HashMap<String, u64>,
    }

    static PLAN: LazyLock<Mutex<Plan>> = LazyLock::new(|| {
        let at = std::env::var("DEX_CRASH_AT")
            .ok()
            .map(|text| match text.parse::<u64>() {
                Ok(n) => At::Pass(n),
                Err(_) => match text
                    .rsplit_once(':')
                    .and_then(|(n, k)| Some((n, k.parse().ok()?)))
                {
                    Some((name, nth)) => At::Named(name.to_owned(), nth),
                    None => At::Named(text, 1),
                },
            });
        let log = std::env::var_os("DEX_CRASH_LOG").map(Into::into);
        Mutex::new(Plan {
            at,
            log,
            passed: 0,
            by_name: HashMap::new(),
        })
    });

    pub(super) fn point(name: &str) {
        let mut plan = PLAN
            .lock()
            .expect("no panic happens while the plan is held");
        if plan.at.is_none() && plan.log.is_none() {
            return;
        }
        plan.passed += 1;
        let passes = plan.by_name.entry(name.to_owned()).or_default();
        *passes += 1;
        let passes = *passes;
        if let Some(path) = &plan.log
            && let Ok(mut file) = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
        {
            let _ = writeln!(file, "{name}");
        }
        let die = match &plan.at {
            Some(At::Pass(n)) => plan.passed == *n,
            Some(At::Named(wanted, n)) => wanted == name && passes == *n,
            None => false,
        };
        if die {
            let me = rustix::process::getpid();
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            std::process::abort();
        }
    }
}

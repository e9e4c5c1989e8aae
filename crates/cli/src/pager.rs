//! A pager for long results, as git has one.
//!
//! Only where standard output is a terminal and `--no-pager` is absent. `$DEX_PAGER`, else
//! `$GIT_PAGER`, `$PAGER`, `less`; with `LESS=FRX` unless the user says otherwise, so that less
//! ends by itself where everything fits on the screen. `core.pager` is not looked at: the
//! repository's own configuration could name a program there.

use std::io::{IsTerminal as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static FORBIDDEN: AtomicBool = AtomicBool::new(false);
static PAGER: Mutex<Option<Pager>> = Mutex::new(None);

struct Pager {
    child: Child,
    colour: bool,
}

/// `--no-pager`
pub fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
}

/// As long as it lives, results go through the pager; then the pager is waited for.
#[derive(Debug)]
#[must_use]
pub struct Paging(());

/// Starts a pager where one is wanted. Without one everything works the same.
pub fn start() -> Paging {
    if !FORBIDDEN.load(Ordering::Relaxed)
        && std::io::stdout().is_terminal()
        && let Some(program) = wanted(|name| std::env::var(name).ok())
    {
        let mut command = Command::new("sh");
        command.args(["-c", &program]).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", "FRX");
        }
        let colour = anstream::AutoStream::choice(&std::io::stdout());
        if let Ok(child) = command.spawn() {
            // Interrupting is for the pager: were we to end, it would fight the shell for keys.
            let unused = Arc::new(AtomicBool::new(false));
            let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, unused);
            let colour = colour != anstream::ColorChoice::Never;
            *PAGER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Pager { child, colour });
        }
    }
    Paging(())
}

fn wanted(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = ["DEX_PAGER", "GIT_PAGER", "PAGER"]
        .iter()
        .find_map(|name| variable(name));
    let program = named.unwrap_or_else(|| "less".to_owned());
    // The usual ways to say "none".
    (!matches!(program.trim(), "" | "cat")).then_some(program)
}

impl Drop for Paging {
    fn drop(&mut self) {
        let pager = PAGER.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut pager) = pager {
            drop(pager.child.stdin.take());
            let _ = pager.child.wait();
        }
    }
}

/// Writes to the pager; none when there is none. False when its reader went away.
pub(crate) fn write(text: &str) -> Option<bool> {
    let mut pager = PAGER.lock().unwrap_or_else(PoisonError::into_inner);
    let pager = pager.as_mut()?;
    let plain = if pager.colour {
        text.to_owned()
    } else {
        anstream::adapter::strip_str(text).to_string()
    };
    let stdin = pager.child.stdin.as_mut()?;
    Some(
        stdin
            .write_all(plain.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .is_ok(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_pager_wins_and_cat_means_none() {
        let given = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        assert_eq!(wanted(given(&[])).as_deref(), Some("less"));
        assert_eq!(wanted(given(&[("PAGER", "more")])).as_deref(), Some("more"));
        assert_eq!(
            wanted(given(&[("PAGER", "more"), ("DEX_PAGER", "cat")])),
            None
        );
        assert_eq!(wanted(given(&[("GIT_PAGER", "")])), None);
    }
}

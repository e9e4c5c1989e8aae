//! What people read: colour where wanted, untrusted text made harmless, numbers made short.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};

use crate::error::Failure;
use crate::exit::Exit;

/// Faint.
pub const DIM: Style = Style::new().dimmed();
/// Strong.
pub const BOLD: Style = Style::new().bold();
/// Good.
pub const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
/// Bad.
pub const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
/// To be noticed.
pub const WARN: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));
/// Names and ids.
pub const NAME: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

/// Text in a style. Colour is taken out again where it is not wanted.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A line of results, on standard output. A reader that went away ends the program quietly; any
/// other failure to write, such as a full disk, is an error: half a result is none.
pub fn out(text: impl AsRef<str>) {
    let text = text.as_ref();
    match crate::pager::write(text) {
        Some(true) => return,
        Some(false) => unwritten(&std::io::ErrorKind::BrokenPipe.into()),
        None => {}
    }
    let mut stdout = anstream::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush());
    if let Err(error) = written {
        unwritten(&error);
    }
}

/// Ends the program: its results have no reader, or nowhere to go.
pub(crate) fn unwritten(error: &std::io::Error) -> ! {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let told = Failure::new(
        Exit::Failed,
        "the result could not be written to standard output",
    )
    .because(error)
    .hint("What the command did stands. Make room, or write elsewhere, and ask again.");
    failure(&told);
    std::process::exit(i32::from(told.exit.code()))
}

/// A line of talk, on standard error.
pub fn talk(text: impl AsRef<str>) {
    let mut stderr = anstream::stderr().lock();
    // Nobody is there to be told.
    let _ = writeln!(stderr, "{}", text.as_ref());
}

/// JSON, on standard output.
pub fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("our own values are JSON");
    out(harmless_json(&text));
}

/// JSON on one line, on standard output.
pub fn json_line(value: &impl serde::Serialize) {
    let text = serde_json::to_string(value).expect("our own values are JSON");
    out(harmless_json(&text));
}

/// The same JSON, with what a terminal or a reader's eye could take wrong written as `\uXXXX`
/// (case I04). Such characters stand only inside strings; line ends are the layout's.
fn harmless_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && harmful(c) {
            let _ = write!(shown, "\\u{:04x}", c as u32);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a person is at the terminal, to read and to answer.
pub fn person_is_there() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks for one line; none at the end of input.
pub fn ask_line(prompt: &str) -> Option<String> {
    let mut stderr = anstream::stderr().lock();
    let _ = write!(stderr, "{prompt} ");
    let _ = stderr.flush();
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}

/// Untrusted text on one line: control, escape and direction characters are made visible (case
/// I04), so that it can neither move the cursor nor disguise itself.
pub fn clean(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => shown.push(' '),
            '\n' => shown.push('⏎'),
            c if harmful(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", c as u32);
            }
            c => shown.push(c),
        }
    }
    shown
}

/// As [`clean`], keeping line ends.
pub fn clean_lines(text: &str) -> String {
    text.split('\n')
        .map(|line| clean(line.trim_end_matches('\r')))
        .collect::<Vec<_>>()
        .join("\n")
}

fn harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{061c}')
}

/// At most so many characters.
pub fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// `$1.23`, or "not reported".
pub fn money(micro: Option<u64>) -> String {
    match micro {
        Some(micro) => format!("${:.2}", micro as f64 / 1e6),
        None => "not reported".to_owned(),
    }
}

/// `1 h 2 min`, `3 min 4 s`, `5.6 s`.
pub fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{:.1} s", ms as f64 / 1000.0),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// An RFC 3339 time for people: `2026-01-02 03:04 UTC`. What is no such time is shown as it is.
pub fn moment(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => clean(rfc3339),
    }
}

/// `12 bytes`, `1.5 KiB`, `20.0 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return count(bytes as usize, "byte");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// The first few of a list, and how many more there are.
pub fn some_of(names: &[String], shown: usize) -> String {
    let more = names.len().saturating_sub(shown);
    let first = names[..names.len().min(shown)].join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}

/// `1 file`, `2 files`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

/// Shows a failure.
pub fn failure(failure: &Failure) {
    talk(format!(
        "{} {}",
        styled(BAD.bold(), "error:"),
        clean_lines(&failure.headline)
    ));
    for cause in &failure.causes {
        talk(format!(
            "  {} {}",
            styled(DIM, "caused by:"),
            clean_lines(cause)
        ));
    }
    if let Some(hint) = &failure.hint {
        talk(format!(
            "{} {}",
            styled(NAME.bold(), "hint:"),
            clean_lines(hint)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i04_terminal_escapes_and_direction_changes_are_made_visible() {
        assert_eq!(clean("a\u{1b}]52;c;x\u{7}b"), "a\\u{1b}]52;c;x\\u{7}b");
        assert_eq!(
            clean("x\rALL PASSED\u{9b}2J\u{202e}"),
            "x\\u{d}ALL PASSED\\u{9b}2J\\u{202e}"
        );
        assert_eq!(clean("plain äöü 漢字"), "plain äöü 漢字");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(money(Some(1_234_567)), "$1.23");
        assert_eq!(money(None), "not reported");
        assert_eq!(duration(5_600), "5.6 s");
        assert_eq!(duration(3_725_000), "1 h 2 min");
    }
}

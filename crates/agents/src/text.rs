//! Bounds on text.

use std::collections::VecDeque;
use std::error::Error;

/// Longest text kept in an outcome.
pub(crate) const OUTCOME_BYTES: usize = 16 * 1024;
/// Longest line of output handed on.
pub(crate) const LINE_BYTES: usize = 64 * 1024;

/// The beginning of a text, cut between characters.
pub(crate) fn head(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)])
}

/// The text on one line, at most `max` bytes.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    // Cut first: a text may be long, and only its start is wanted.
    let words = cut(text, max * 4).split_whitespace();
    cut(&words.collect::<Vec<_>>().join(" "), max).to_owned()
}

/// The beginning of a text, cut between characters, with nothing to say so.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    match text.char_indices().find(|(at, c)| at + c.len_utf8() > max) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

/// An error and its causes on one line.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The last lines that fit into a bound.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
}

impl Tail {
    pub(crate) fn push(&mut self, line: &str) {
        let line = head(line, OUTCOME_BYTES / 4);
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > OUTCOME_BYTES {
            let Some(dropped) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= dropped.len() + 1;
        }
    }

    pub(crate) fn text(&self) -> String {
        self.lines
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The last line with something on it.
    pub(crate) fn last(&self) -> Option<&str> {
        self.lines
            .iter()
            .rev()
            .map(|it| it.trim())
            .find(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(head("aé", 2), "a…");
        assert_eq!(head("aé", 3), "aé");
    }

    #[test]
    fn the_tail_of_much_output_is_bounded_and_ends_with_the_last_line() {
        let mut tail = Tail::default();
        for number in 0..10_000 {
            tail.push(&number.to_string());
        }
        tail.push(" ");
        assert!(tail.text().len() <= OUTCOME_BYTES);
        assert_eq!(tail.last(), Some("9999"));
    }
}

//! Private keys in blocks of lines (PEM, OpenSSH, PGP, PuTTY), also as one line with `\n` in it.

use std::sync::LazyLock;

use regex::Regex;

use super::Hit;

const KIND: &str = "private_key";
/// The longest block taken for a key. RSA with 16384 bits has 13 KiB.
const BLOCK_BYTES: usize = 32 * 1024;
/// Shortest run of base64 in a real key; documentation has `...` there.
const RUN: usize = 32;

static BEGIN: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\bPrivate-Lines: \d+",
    )
});
static END: LazyLock<Regex> = LazyLock::new(|| {
    super::shapes::compile(
        r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|\bPrivate-MAC:",
    )
});

pub(super) fn find(text: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut from = 0;
    while let Some(begin) = BEGIN.find_at(text, from) {
        let end = end_of_block(text, begin.end());
        from = begin.end();
        if looks_like_a_key(&text[begin.end()..end]) {
            hits.push(Hit {
                range: begin.start()..end,
                kind: KIND,
            });
            from = end;
        }
    }
    hits
}

/// The start of a block that begins before `cut` and does not end there.
pub(super) fn open_at(text: &str, cut: usize) -> Option<usize> {
    let begin = BEGIN.find_iter(&text[..cut]).last()?;
    let end = END.find_at(text, begin.end());
    end.is_none_or(|end| end.end() > cut)
        .then_some(begin.start())
}

/// Where the inside begins of a key that has certainly begun at the start of this text.
pub(super) fn inside(text: &str) -> Option<usize> {
    let begin = BEGIN.find(text).filter(|it| it.start() == 0)?;
    looks_like_a_key(&text[begin.end()..]).then_some(begin.end())
}

/// Where the rest of a key ends whose beginning was seen before, and whether that is its end.
pub(super) fn rest(text: &str) -> (usize, bool) {
    match END.find(text) {
        Some(end) => (end.end(), true),
        None => {
            let body = body_length(text);
            (body, body < text.len())
        }
    }
}

fn end_of_block(text: &str, from: usize) -> usize {
    let most = text.floor_char_boundary(text.len().min(from + BLOCK_BYTES));
    // A mere mention must not reach into the next key.
    let next = BEGIN.find(&text[from..most]).map(|it| from + it.start());
    let most = next.unwrap_or(most);
    match END.find(&text[from..most]) {
        Some(end) => from + end.end(),
        // Cut off: as much as can be part of a key.
        None => from + body_length(&text[from..most]),
    }
}

/// How much of a text can be the inside of a block: lines of base64 and header lines, ended as
/// they are or by an escaped `\n`, perhaps in the quotes of source code.
fn body_length(text: &str) -> usize {
    let mut length = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (line, end) = next_line(rest);
        let complete = line.len() < rest.len();
        if !may_be_inside(line, complete) {
            break;
        }
        length += end;
        rest = &rest[end..];
    }
    length
}

/// A line and where the next begins.
fn next_line(text: &str) -> (&str, usize) {
    let end = text.find(['\n', '\\']).unwrap_or(text.len());
    let rest = text[end..].trim_start_matches('\\');
    // `\r` and `\n` as letters, only behind the backslash.
    let escaped = text[end..].starts_with('\\');
    let rest = match rest.strip_prefix(['n', 'r']).filter(|_| escaped) {
        Some(rest) => rest,
        None => rest.strip_prefix('\n').unwrap_or(rest),
    };
    (&text[..end], text.len() - rest.len())
}

fn may_be_inside(line: &str, complete: bool) -> bool {
    const HEADERS: &[&str] = &[
        "Proc-Type:",
        "DEK-Info:",
        "Version:",
        "Comment:",
        "Charset:",
    ];
    let line = line.trim_matches(|it: char| it.is_whitespace() || "\"'`,+.>|#*:".contains(it));
    let base64 = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/' | b'=' | b'-');
    // A short word is base64 as well; inside a key only the last line is short.
    let long = line.len() >= 16 || line.ends_with('=') || line.starts_with('-') || !complete;
    let ending = line.starts_with("-----END ") && !complete;
    line.is_empty()
        || ending
        || HEADERS.iter().any(|it| line.starts_with(it))
        || (long && line.bytes().all(base64))
}

fn looks_like_a_key(body: &str) -> bool {
    // `\n` inside a string would otherwise break or lengthen a run.
    let base64 = |it: &u8| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/' | b'=');
    let mut run = 0;
    body.as_bytes().iter().any(|byte| {
        run = if base64(byte) { run + 1 } else { 0 };
        run >= RUN
    })
}

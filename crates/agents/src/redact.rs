//! Finding secrets: before a transcript is written, and before a file is committed.
//!
//! Three kinds of rules, each in its own module. *Shapes* are tokens whose own form gives them
//! away (`shapes`); *blocks* are private keys over several lines (`blocks`); *named* secrets are
//! ordinary text, told by the name or command beside them (`named`, with `plausible` deciding
//! what a value must look like). Everything but blocks stays within one line, which is what lets
//! [`Redactor`] work on streams.
//!
//! Object ids, UUIDs, digests of lock files, base64 pictures and account numbers match no shape.
//! A hexadecimal value is taken only where a name says that it is a secret.
//!
//! Files are held to a stricter measure than transcripts: a wrong finding there keeps somebody's
//! work out of a commit, while one in a transcript costs a word.

mod blocks;
mod named;
mod plausible;
mod shapes;
mod stream;

pub use stream::Redactor;

/// A likely secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Byte range in the text.
    pub range: std::ops::Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// What kind, e.g. `private_key`, `aws_access_key`, `token_in_url`.
    pub kind: &'static str,
}

/// What the text is, which decides how much a value must look like a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Output, commands, transcripts.
    Transcript,
    /// A file of a project.
    File,
    /// A `.env` file: every value with a secret's name counts.
    Environment,
}

/// Where a rule found something.
#[derive(Debug, Clone)]
struct Hit {
    range: std::ops::Range<usize>,
    kind: &'static str,
}

/// Every likely secret in a text. Object ids, UUIDs, lock-file hashes and base64 pictures are
/// not secrets (case I02).
pub fn find(text: &str) -> Vec<Finding> {
    find_as(text, Source::Transcript)
}

/// As [`find`], over the bytes of a file; binary files are searched for private keys and
/// prefixed tokens only. In `.env` and `.env.*` (not the examples) every value with a secret's
/// name counts, whatever it looks like.
pub fn find_in_file(path: &str, bytes: &[u8]) -> Vec<Finding> {
    // One byte stays one byte, so that ranges hold in what is not UTF-8 as well.
    let ascii: String;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => {
            let shown = |byte: &u8| {
                if byte.is_ascii() {
                    char::from(*byte)
                } else {
                    '\x01'
                }
            };
            ascii = bytes.iter().map(shown).collect();
            &ascii
        }
    };
    if bytes.contains(&0) {
        let mut hits = blocks::find(text);
        hits.extend(shapes::find(text, shapes::Group::Prefixed));
        return in_order(text, hits);
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let source = if is_environment_file(name) {
        Source::Environment
    } else {
        Source::File
    };
    find_as(text, source)
}

/// The text with every likely secret replaced by `[redacted:<kind>]`.
pub fn redact(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut done = 0;
    for finding in find(text) {
        redacted.push_str(&text[done..finding.range.start]);
        redacted.push_str(&mark(finding.kind));
        done = finding.range.end;
    }
    redacted.push_str(&text[done..]);
    redacted
}

fn mark(kind: &str) -> String {
    format!("[redacted:{kind}]")
}

fn find_as(text: &str, source: Source) -> Vec<Finding> {
    let mut hits = blocks::find(text);
    hits.extend(shapes::find(text, shapes::Group::All(source)));
    hits.extend(named::find(text, source));
    in_order(text, hits)
}

/// `.env`, `.env.production`; not `.env.example`, which is meant to be read.
fn is_environment_file(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(".env") else {
        return false;
    };
    let example = ["example", "sample", "template", "dist", "defaults"]
        .iter()
        .any(|it| rest.split('.').any(|part| part.eq_ignore_ascii_case(it)));
    (rest.is_empty() || rest.starts_with('.')) && !example
}

/// In order of place; of those that overlap the first kind stays and covers them all.
fn in_order(text: &str, mut hits: Vec<Hit>) -> Vec<Finding> {
    // Stable: rules that know more come first and stay first.
    hits.sort_by_key(|hit| hit.range.start);
    let mut findings: Vec<Finding> = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for hit in hits.into_iter().filter(|hit| !hit.range.is_empty()) {
        if let Some(last) = findings.last_mut()
            && hit.range.start < last.range.end
        {
            last.range.end = last.range.end.max(hit.range.end);
            continue;
        }
        let between = text.as_bytes().get(counted..hit.range.start);
        line += between.map_or(0, |it| it.iter().filter(|byte| **byte == b'\n').count());
        counted = hit.range.start;
        findings.push(Finding {
            range: hit.range,
            line,
            kind: hit.kind,
        });
    }
    findings
}

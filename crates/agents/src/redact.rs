//! Finding secrets: before a transcript is written, and before a file is committed.

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

/// Every likely secret in a text. Object ids, UUIDs, lock-file hashes and base64 pictures are
/// not secrets (case I02).
pub fn find(_text: &str) -> Vec<Finding> {
    todo!()
}

/// As [`find`], over the bytes of a file; binary files are searched for private keys and
/// prefixed tokens only.
pub fn find_in_file(_path: &str, _bytes: &[u8]) -> Vec<Finding> {
    todo!()
}

/// The text with every likely secret replaced by `[redacted:<kind>]`.
pub fn redact(_text: &str) -> String {
    todo!()
}

/// Redacts a stream of chunks: a secret split between two chunks is still found.
#[derive(Debug, Default)]
pub struct Redactor {
    pending: String,
}

impl Redactor {
    /// Takes a chunk and returns what can safely be written now.
    pub fn push(&mut self, _chunk: &str) -> String {
        todo!()
    }

    /// The rest.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }
}

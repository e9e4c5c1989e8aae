//! Redaction of text that comes in pieces.

use super::{blocks, find, mark, redact};

/// Text held back at most. A line longer than this is cut where no secret is.
const PENDING_BYTES: usize = 64 * 1024;
/// Held back of a line that is cut: more than any token and the name before it.
const OVERLAP_BYTES: usize = 8 * 1024;
/// Held back inside a private key, to see the marker of its end whole.
const MARKER_BYTES: usize = 96;

/// Redacts a stream of chunks: a secret split between two chunks is still found.
///
/// Whole lines are handed on as soon as no private key is open before them. What is held back
/// is bounded; a key longer than the bound is swallowed up to its end.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    pending: String,
    /// A private key was marked as redacted and its end has not come yet.
    in_key: bool,
}

impl Redactor {
    /// Takes a chunk and returns what can safely be written now.
    pub fn push(&mut self, chunk: &str) -> String {
        let mut ready = String::new();
        let mut rest = chunk;
        // In pieces, so that one huge chunk is not held as a whole beside its redaction.
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(PENDING_BYTES));
            self.pending.push_str(piece);
            rest = later;
            // Without a line's end nothing can become ready before the bound.
            if piece.contains('\n') || self.pending.len() > PENDING_BYTES || self.in_key {
                self.advance(&mut ready);
            }
        }
        ready
    }

    /// The rest.
    pub fn finish(&mut self) -> String {
        if std::mem::take(&mut self.in_key) {
            let (end, _) = blocks::rest(&self.pending);
            self.pending.drain(..end);
        }
        redact(&std::mem::take(&mut self.pending))
    }

    fn advance(&mut self, ready: &mut String) {
        if self.in_key && !self.swallow() {
            return;
        }
        let cut = self.safe_cut();
        ready.push_str(&redact(&self.pending[..cut]));
        self.pending.drain(..cut);
        if self.pending.len() > PENDING_BYTES
            && let Some(inside) = blocks::inside(&self.pending)
        {
            ready.push_str(&mark("private_key"));
            self.pending.drain(..inside);
            self.in_key = true;
            self.swallow();
        }
    }

    /// Drops what belongs to the key. Whether it is over.
    fn swallow(&mut self) -> bool {
        let (end, over) = blocks::rest(&self.pending);
        let end = if over {
            end
        } else {
            self.pending
                .floor_char_boundary(end.saturating_sub(MARKER_BYTES))
        };
        self.pending.drain(..end);
        self.in_key = !over;
        over
    }

    /// How much can be redacted without knowing what comes.
    fn safe_cut(&self) -> usize {
        let text = self.pending.as_str();
        let lines = text.rfind('\n').map_or(0, |at| at + 1);
        let too_long = text.len() > PENDING_BYTES;
        let seen = if too_long { text.len() } else { lines };
        if let Some(open) = blocks::open_at(text, seen)
            && (!too_long || blocks::inside(&text[open..]).is_some())
        {
            return open;
        }
        if lines > 0 || !too_long {
            return lines;
        }
        let mut cut = text.floor_char_boundary(text.len() - OVERLAP_BYTES);
        if let Some(over) = find(text).into_iter().find(|it| it.range.contains(&cut)) {
            // One that fills everything is cut behind: it is marked, and nothing is held forever.
            cut = if over.range.start == 0 {
                over.range.end
            } else {
                over.range.start
            };
        }
        cut
    }
}

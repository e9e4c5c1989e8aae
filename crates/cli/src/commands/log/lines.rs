//! Lines of a file of any size, in bounded memory.

use std::io::{self, BufRead};

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line beyond the bound; it was read over.
    TooLong,
    /// No complete line (yet). What there is of it stays in `pending`.
    NotYet,
}

/// The next complete line. `pending` carries the beginning of one that is still being written;
/// beyond `max` bytes only its length counts.
pub(super) fn next_line(
    reader: &mut impl BufRead,
    pending: &mut Vec<u8>,
    max: usize,
) -> io::Result<Line> {
    loop {
        let (used, ended) = {
            let bytes = match reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if bytes.is_empty() {
                return Ok(Line::NotYet);
            }
            let end = bytes.iter().position(|b| *b == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            // One byte more than allowed is how a line that is too long is remembered.
            let room = (max + 1).saturating_sub(pending.len());
            pending.extend_from_slice(&part[..part.len().min(room)]);
            (part.len() + usize::from(end.is_some()), end.is_some())
        };
        reader.consume(used);
        if ended {
            let line = std::mem::take(pending);
            return Ok(if line.len() > max {
                Line::TooLong
            } else {
                Line::Whole(line)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    #[test]
    fn long_lines_are_passed_over_and_a_torn_one_waits_for_its_end_k01() {
        let text = format!("one\n{}\n\ntwo\nto", "x".repeat(5000));
        let mut reader = BufReader::with_capacity(16, Cursor::new(text));
        let mut pending = Vec::new();
        let mut next = || next_line(&mut reader, &mut pending, 100).unwrap();
        assert_eq!(next(), Line::Whole(b"one".to_vec()));
        assert_eq!(next(), Line::TooLong);
        assert_eq!(next(), Line::Whole(b"".to_vec()));
        assert_eq!(next(), Line::Whole(b"two".to_vec()));
        assert_eq!(next(), Line::NotYet);
        assert_eq!(next(), Line::NotYet);
        let mut more = BufReader::new(Cursor::new("rn\n"));
        assert_eq!(
            next_line(&mut more, &mut pending, 100).unwrap(),
            Line::Whole(b"torn".to_vec())
        );
    }
}

//! Output split into bounded lines.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::Line;

/// From a reading thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A line.
    Line(Line),
    /// The bound on output was passed; what follows is read and thrown away.
    Over,
}

/// What both reading threads count together.
#[derive(Debug)]
pub(super) struct Meter {
    started: Instant,
    bytes: AtomicU64,
    /// Milliseconds after `started` at which the last byte came.
    last_ms: AtomicU64,
}

impl Meter {
    pub(super) fn new() -> Arc<Meter> {
        Arc::new(Meter {
            started: Instant::now(),
            bytes: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        })
    }

    /// Time since the last byte, or since the start.
    pub(super) fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }

    /// Counts bytes that came; returns how many there were before.
    fn came(&self, bytes: usize) -> u64 {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.fetch_max(now, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed)
    }
}

/// Reads to the end. Goes on reading after the bound, because a child that cannot write cannot
/// be asked to end nicely.
pub(super) fn read(
    mut source: impl Read,
    kind: fn(String) -> Line,
    line_bytes: usize,
    output_bytes: u64,
    meter: &Meter,
    lines: &SyncSender<Message>,
) {
    let mut chunk = vec![0; 64 * 1024];
    let mut splitter = Splitter::new(line_bytes);
    let mut over = false;
    loop {
        let read = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let before = meter.came(read);
        if over {
            continue;
        }
        let left = usize::try_from(output_bytes.saturating_sub(before)).unwrap_or(usize::MAX);
        let taken = read.min(left);
        let mut delivered = true;
        splitter.push(&chunk[..taken], &mut |text| {
            delivered &= lines.send(Message::Line(kind(text))).is_ok();
        });
        if taken < read {
            over = true;
            delivered &= lines.send(Message::Over).is_ok();
        }
        if !delivered {
            return;
        }
    }
    if let Some(rest) = splitter.finish().filter(|_| !over) {
        let _ = lines.send(Message::Line(kind(rest)));
    }
}

/// Splits bytes into lines and holds at most `bound` bytes of one.
struct Splitter {
    bound: usize,
    line: Vec<u8>,
    dropped: u64,
}

impl Splitter {
    fn new(bound: usize) -> Splitter {
        Splitter {
            bound,
            line: Vec::new(),
            dropped: 0,
        }
    }

    fn push(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(String)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(&bytes[..end]);
            line(self.text());
            bytes = &bytes[end + 1..];
        }
        self.take(bytes);
    }

    fn finish(&mut self) -> Option<String> {
        (!self.line.is_empty() || self.dropped > 0).then(|| self.text())
    }

    fn take(&mut self, bytes: &[u8]) {
        let room = self.bound - self.line.len();
        let taken = bytes.len().min(room);
        self.line.extend_from_slice(&bytes[..taken]);
        self.dropped += (bytes.len() - taken) as u64;
    }

    fn text(&mut self) -> String {
        if self.dropped == 0 && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!(
                " [{} more bytes of this line were dropped]",
                self.dropped
            ));
        }
        self.line.clear();
        self.dropped = 0;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bound: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut splitter = Splitter::new(bound);
        for chunk in chunks {
            splitter.push(chunk, &mut |line| lines.push(line));
        }
        lines.extend(splitter.finish());
        lines
    }

    #[test]
    fn lines_are_whole_whatever_the_chunks_are() {
        assert_eq!(
            split(99, &[b"a\nb", b"c\r\n\n", b"d"]),
            ["a", "bc", "", "d"]
        );
    }

    #[test]
    fn h04_a_long_line_is_cut_at_its_bound_and_says_so() {
        let lines = split(4, &[b"abcdef", b"gh\nok\n"]);
        assert_eq!(
            lines,
            ["abcd [4 more bytes of this line were dropped]", "ok"]
        );
    }

    #[test]
    fn h04_bytes_that_are_no_utf8_are_replaced_not_fatal() {
        assert_eq!(split(9, &[b"a\xff\n"]), ["a\u{fffd}"]);
    }
}

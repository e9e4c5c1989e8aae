//! When a used-up quota is said to come back, from the words a CLI prints.
//!
//! Seen: `… limit reached|1796100000`, `You've hit your session limit · resets 4:40am (UTC)`,
//! `resets Dec 3, 4pm (Europe/London)`, `try again in 20 minutes`, `try again at 4:13 AM`,
//! `try again at Dec 3rd, 2026 4:13 PM`. Words change between versions,
//! so a structured `rate_limit_event` is preferred where there is one, and an unknown wording
//! gives none, never an error. A time in the past, or more than [`FURTHEST_S`] away, is not
//! believed: a run must not sleep for a year because of a typing error.

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use regex::{Captures, Regex};

/// The furthest reset that is believed: a weekly limit and a day.
const FURTHEST_S: i64 = 8 * 24 * 3600;
/// Clocks differ; a reset this little in the past means "now".
const SLACK_S: i64 = 300;

static UNIX: LazyLock<Regex> = LazyLock::new(|| pattern(r"\|(\d{10,13})\b"));
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:resets?(?:\s+at)?|try\s+again\s+at)\s+(?:([a-z]{3})[a-z]*\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(?:\d{4},?\s+)?(?:at\s+)?)?(\d{1,2})(?::(\d{2}))?\s*([ap]m)?(?:\s*\(([^)]+)\))?",
    )
});
static SPAN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:in|after)\s+(\d{1,6})\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)\b",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a fixed pattern, used by a test")
}

/// The time in the text, if there is one and it can be believed.
pub(crate) fn until(text: &str, now_unix: i64) -> Option<i64> {
    let said = unix(text)
        .or_else(|| CLOCK.captures(text).and_then(|it| clock(&it, now_unix)))
        .or_else(|| SPAN.captures(text).and_then(|it| span(&it, now_unix)));
    believed(said?, now_unix)
}

/// A time that came in seconds or milliseconds, if it can be believed.
pub(crate) fn believed(until_unix: i64, now_unix: i64) -> Option<i64> {
    let seconds = if until_unix > 100_000_000_000 {
        until_unix / 1000
    } else {
        until_unix
    };
    let away_s = seconds.checked_sub(now_unix)?;
    match away_s {
        ..=0 if away_s >= -SLACK_S => Some(now_unix),
        1..=FURTHEST_S => Some(seconds),
        _ => None,
    }
}

fn unix(text: &str) -> Option<i64> {
    UNIX.captures(text)?[1].parse().ok()
}

fn span(words: &Captures<'_>, now_unix: i64) -> Option<i64> {
    let count: i64 = words[1].parse().ok()?;
    let unit_s = match words[2].to_ascii_lowercase().chars().next()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => 24 * 3600,
    };
    now_unix.checked_add(count.checked_mul(unit_s)?)
}

/// The next time the clock shows this, in the zone named (else the machine's).
fn clock(words: &Captures<'_>, now_unix: i64) -> Option<i64> {
    let number = |index: usize| {
        words
            .get(index)
            .and_then(|it| it.as_str().parse::<i8>().ok())
    };
    let hour = number(3)?;
    let hour = match words.get(5).map(|it| it.as_str().to_ascii_lowercase()) {
        Some(half) if !(1..=12).contains(&hour) || half.is_empty() => return None,
        Some(half) => hour % 12 + if half == "pm" { 12 } else { 0 },
        // "resets 15 minutes from now" is not a clock.
        None if words.get(4).is_none() => return None,
        None => hour,
    };
    let zone = match words.get(6) {
        Some(name) => TimeZone::get(name.as_str().trim()).ok()?,
        None => TimeZone::system(),
    };
    let now = Timestamp::from_second(now_unix).ok()?.to_zoned(zone);
    let mut at = now
        .with()
        .hour(hour)
        .minute(number(4).unwrap_or(0))
        .second(0)
        .subsec_nanosecond(0)
        .build()
        .ok()?;
    if let (Some(month), Some(day)) = (words.get(1), number(2)) {
        at = on_date(&at, &now, month_number(month.as_str())?, day)?;
    } else if at < now {
        at = at.checked_add(1.day()).ok()?;
    }
    Some(at.timestamp().as_second())
}

fn on_date(at: &Zoned, now: &Zoned, month: i8, day: i8) -> Option<Zoned> {
    let this_year = at.with().month(month).day(day).build().ok()?;
    if this_year >= *now {
        return Some(this_year);
    }
    this_year.checked_add(1.year()).ok()
}

fn month_number(name: &str) -> Option<i8> {
    let names = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let name = name.to_ascii_lowercase();
    let index = names.iter().position(|it| *it == name)?;
    i8::try_from(index + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::until;

    /// 2026-11-30 22:40:00 UTC.
    const NOW: i64 = 1_796_078_400;

    #[test]
    fn a_reset_time_is_read_from_every_wording_seen() {
        for (text, seconds) in [
            ("Claude AI usage limit reached|1796100000", Some(21_600)),
            ("Claude AI usage limit reached|1796100000000", Some(21_600)),
            (
                "You've hit your session limit · resets 4:40am (UTC)",
                Some(21_600),
            ),
            ("5-hour limit reached ∙ resets 11pm (UTC)", Some(1_200)),
            ("resets at 23:05 (UTC)", Some(1_500)),
            (
                "weekly limit · resets Dec 3, 4pm (Europe/London)",
                Some(235_200),
            ),
            ("resets Dec 3 at 4pm (UTC)", Some(235_200)),
            ("please try again in 20 minutes", Some(1_200)),
            ("or try again at 4:40 AM (UTC).", Some(21_600)),
            ("try again at Dec 3rd, 2026 4:00 PM (UTC).", Some(235_200)),
            ("retry after 30 s", Some(30)),
            (
                "You've hit your session limit · resets 10:38pm (UTC)",
                Some(86_280),
            ),
            ("limit reached|1796078390", Some(0)),
        ] {
            let said = until(text, NOW).map(|it| it - NOW);
            assert_eq!(said, seconds, "{text}");
        }
    }

    #[test]
    fn a_reset_time_that_cannot_be_believed_is_none() {
        for text in [
            "overloaded",
            "limit reached|9999999999",
            "limit reached|1000000000",
            "resets 25:00 (UTC)",
            "resets 13pm (UTC)",
            "resets 4pm (Nowhere/Land)",
            "resets Foo 3, 4pm (UTC)",
            "resets Aug 3, 4pm (UTC)",
            "resets 3 things",
            "in 999999 days",
        ] {
            assert_eq!(until(text, NOW), None, "{text}");
        }
    }
}

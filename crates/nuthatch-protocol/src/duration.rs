//! Durations as Go writes and reads them, for texts that clients compare or send.

use std::fmt::Write as _;

pub use crate::config::{DurationError, parse_duration_ns as parse_go};

const NS_PER_US: u64 = 1_000;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// Parses a Go duration from bytes, into nanoseconds; `None` if it is none.
#[must_use]
pub fn parse_go_bytes(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok().and_then(|text| parse_go(text).ok())
}

/// Formats nanoseconds as Go's `Duration.String` does: `1h0m0s`, `1.5s`, `250ms`, `3µs`, `0s`.
#[must_use]
pub fn format_go(duration_ns: i64) -> String {
    let mut out = String::new();
    if duration_ns < 0 {
        out.push('-');
    }
    let ns = duration_ns.unsigned_abs();
    match ns {
        0 => out.push_str("0s"),
        1..NS_PER_US => push_fraction(&mut out, ns, 1, "ns"),
        NS_PER_US..NS_PER_MS => push_fraction(&mut out, ns, NS_PER_US, "µs"),
        NS_PER_MS..NS_PER_S => push_fraction(&mut out, ns, NS_PER_MS, "ms"),
        _ => push_clock(&mut out, ns),
    }
    out
}

/// Hours and minutes as far as needed, then seconds.
fn push_clock(out: &mut String, ns: u64) {
    let minutes = ns / NS_PER_S / 60;
    // Writing to a string cannot fail.
    if minutes >= 60 {
        let _ = write!(out, "{}h", minutes / 60);
    }
    if minutes > 0 {
        let _ = write!(out, "{}m", minutes % 60);
    }
    push_fraction(out, ns - minutes * 60 * NS_PER_S, NS_PER_S, "s");
}

/// `value / unit_ns` with as many decimals as it has.
fn push_fraction(out: &mut String, value: u64, unit_ns: u64, unit: &str) {
    let _ = write!(out, "{}", value / unit_ns);
    if !value.is_multiple_of(unit_ns) {
        let width = unit_ns.ilog10() as usize;
        let digits = format!("{:0width$}", value % unit_ns);
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
    out.push_str(unit);
}

#[cfg(test)]
mod tests;

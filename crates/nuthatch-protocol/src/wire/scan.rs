//! Scanning shared by both parsers: lines, tokens, decimal sizes.

use memchr::memchr;

use crate::swar;

/// The longest decimal size nats-server accepts: nine digits, so at most 999,999,999.
const MAX_SIZE_DIGITS: usize = 9;

/// Is `byte` a token separator of the NATS protocol (space or tab)?
#[inline]
pub(super) fn is_separator(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Result of [`find_line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// The arguments, without separators in front and without the line end;
    /// `end` is the offset of the first byte after the line.
    Complete {
        /// The bytes between the verb and the line end.
        args: &'a [u8],
        /// Offset in the buffer of the byte after the line feed.
        end: usize,
    },
    /// There is no line feed yet.
    Partial,
    /// The arguments are longer than the limit.
    TooLong,
}

/// Finds the end of the line whose arguments start at `at`.
///
/// A line ends with LF; one CR before it is dropped. `max_args` bounds the arguments in bytes,
/// and so the scan: a longer line costs `max_args`, not its length.
#[inline]
pub(super) fn find_line(buf: &[u8], at: usize, max_args: usize) -> Line<'_> {
    let rest = &buf[at..];
    let window = &rest[..rest.len().min(max_args.saturating_add(LINE_SLACK))];
    let Some(feed) = memchr(b'\n', window) else {
        return if window.len() == max_args.saturating_add(LINE_SLACK) {
            Line::TooLong
        } else {
            Line::Partial
        };
    };
    let mut args = &window[..feed];
    if let [head @ .., b'\r'] = args {
        args = head;
    }
    while let [first, tail @ ..] = args
        && is_separator(*first)
    {
        args = tail;
    }
    if args.len() > max_args { Line::TooLong } else { Line::Complete { args, end: at + feed + 1 } }
}

/// Room for the separator behind the verb, the CR and the LF.
const LINE_SLACK: usize = 3;

/// Result of [`scan_args`].
pub(super) enum Args<'a, const N: usize> {
    /// A whole line.
    Complete {
        /// The arguments; those beyond `N` are not kept.
        tokens: [&'a [u8]; N],
        /// How many arguments there are, also beyond `N`.
        count: usize,
        /// Offset in the buffer of the byte after the line feed.
        end: usize,
    },
    /// There is no line feed yet.
    Partial,
    /// The arguments are longer than the limit.
    TooLong,
}

/// Finds the end of the line whose arguments start at `at` and splits them at spaces and tabs, in
/// one pass. Line end and limit are as for [`find_line`].
#[inline(always)]
pub(super) fn scan_args<const N: usize>(buf: &[u8], at: usize, max_args: usize) -> Args<'_, N> {
    let limit = at.saturating_add(max_args).saturating_add(LINE_SLACK);
    let window = &buf[..buf.len().min(limit)];
    let mut tokens: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    let mut args_start = at;
    let mut start = at;
    let mut base = at;
    while base < window.len() {
        let mut hits = swar::at_most_space(swar::word_at(window, base));
        while hits != 0 {
            let place = base + swar::first(hits);
            hits &= hits - 1;
            let byte = window[place];
            let is_feed = byte == b'\n';
            if !is_feed && !is_separator(byte) {
                // A CR that ends the line is dropped with its LF; others belong to a token.
                continue;
            }
            let cr = is_feed && place > start && window[place - 1] == b'\r';
            let token = &window[start..place - usize::from(cr)];
            if !token.is_empty() {
                if count == 0 {
                    args_start = start;
                }
                if let Some(slot) = tokens.get_mut(count) {
                    *slot = token;
                }
                count += 1;
            }
            if is_feed {
                if place - usize::from(cr) - args_start > max_args {
                    return Args::TooLong;
                }
                return Args::Complete { tokens, count, end: place + 1 };
            }
            start = place + 1;
        }
        base += 8;
    }
    if window.len() == limit { Args::TooLong } else { Args::Partial }
}

/// Parses a size: one to nine decimal digits, nothing else.
#[inline]
pub(super) fn parse_size(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > MAX_SIZE_DIGITS {
        return None;
    }
    let mut value = 0usize;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + usize::from(digit);
    }
    Some(value)
}

//! Scanning shared by both parsers: lines, tokens, decimal sizes.

use memchr::{memchr, memchr2};

/// The longest decimal size nats-server accepts: nine digits, so at most 999,999,999.
const MAX_SIZE_DIGITS: usize = 9;

/// Is `byte` a token separator of the NATS protocol (space or tab)?
#[inline]
pub(super) fn is_separator(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// What [`find_line`] saw.
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

/// Splits `args` at runs of spaces and tabs into at most `N` tokens.
///
/// Returns the tokens and how many there are; `None` when there are more than `N`.
#[inline]
pub(super) fn split_tokens<const N: usize>(args: &[u8]) -> Option<([&[u8]; N], usize)> {
    let mut tokens: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    let mut rest = args;
    loop {
        while let [first, tail @ ..] = rest
            && is_separator(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some((tokens, count));
        }
        if count == N {
            return None;
        }
        let end = memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        tokens[count] = &rest[..end];
        count += 1;
        rest = &rest[end..];
    }
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

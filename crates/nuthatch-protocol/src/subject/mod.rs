//! Subjects: dot-separated names, and the wildcard patterns that select them.
//!
//! `*` stands for one token, a final `>` for one or more; both only as whole tokens. The rules are
//! those of nats-server 2.15.2. [`tree`] finds the subscriptions of a subject, [`map`] gives the
//! subjects of a stream dense numbers and finds those a pattern selects.

mod compact;
pub mod map;
pub mod tree;

use memchr::memchr;

/// Separates tokens.
pub const SEPARATOR: u8 = b'.';
/// The token that matches any one token.
pub const ANY_TOKEN: &[u8] = b"*";
/// The last token that matches one or more tokens.
pub const ANY_TAIL: &[u8] = b">";

/// The tokens of a subject, in order. An empty subject has one empty token.
#[inline]
pub fn tokens(subject: &[u8]) -> Tokens<'_> {
    Tokens { rest: Some(subject) }
}

/// Iterator over the tokens of a subject; see [`tokens`].
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Tokens<'a> {
    /// The part not yet read, `None` behind the last token.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> Option<&'a [u8]> {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        if let Some(dot) = memchr(SEPARATOR, rest) {
            self.rest = Some(&rest[dot + 1..]);
            Some(&rest[..dot])
        } else {
            self.rest = None;
            Some(rest)
        }
    }
}

/// How many tokens `subject` has.
#[inline]
#[must_use]
pub fn count_tokens(subject: &[u8]) -> usize {
    memchr::memchr_iter(SEPARATOR, subject).count() + 1
}

/// Has `subject` a token without bytes (or no bytes at all)?
#[inline]
#[must_use]
pub fn has_empty_token(subject: &[u8]) -> bool {
    let (Some(first), Some(last)) = (subject.first(), subject.last()) else { return true };
    // No early exit, so that the comparison runs on whole vectors.
    let pairs = subject.iter().zip(&subject[1..]);
    let double = pairs.fold(false, |found, (&a, &b)| found | ((a == SEPARATOR) & (b == SEPARATOR)));
    double || *first == SEPARATOR || *last == SEPARATOR
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c)
}

/// May `subject` be subscribed to? No empty token, no white space, `>` only last.
#[must_use]
pub fn is_valid_subject(subject: &[u8]) -> bool {
    let mut ended = false;
    for token in tokens(subject) {
        if token.is_empty() || ended || token.iter().any(|&byte| is_space(byte)) {
            return false;
        }
        ended = token == ANY_TAIL;
    }
    true
}

/// Has `subject` a token that is a wildcard?
#[must_use]
pub fn has_wildcard(subject: &[u8]) -> bool {
    // Most subjects hold neither byte anywhere, and one vectored scan says so.
    memchr::memchr2(b'*', b'>', subject).is_some() && tokens(subject).any(is_wildcard)
}

/// Is `token` a wildcard?
#[inline]
#[must_use]
pub fn is_wildcard(token: &[u8]) -> bool {
    matches!(token, b"*" | b">")
}

/// Is `subject` free of wildcards and empty tokens? This is what nats-server checks of a pedantic
/// client's publishes; white space is not looked for, since the parser has split at it.
#[must_use]
pub fn is_valid_literal(subject: &[u8]) -> bool {
    tokens(subject).all(|token| !token.is_empty() && !is_wildcard(token))
}

/// May something be published to `subject`? A valid subject without wildcards.
#[must_use]
pub fn is_valid_publish_subject(subject: &[u8]) -> bool {
    is_valid_subject(subject) && !has_wildcard(subject)
}

/// Does `pattern` select the literal subject `literal`?
///
/// Both must be valid; a wildcard in `literal` is compared like any other token.
#[inline]
#[must_use]
pub fn matches(pattern: &[u8], literal: &[u8]) -> bool {
    let (mut p, mut l) = (0, 0);
    loop {
        let token_end = pattern.get(p + 1).is_none_or(|&byte| byte == SEPARATOR);
        match pattern.get(p) {
            Some(b'>') if p + 1 == pattern.len() => return l < literal.len(),
            Some(b'*') if token_end => {
                let end = l + memchr(SEPARATOR, &literal[l..]).unwrap_or(literal.len() - l);
                if end == l {
                    return false;
                }
                (p, l) = (p + 1, end);
            }
            _ => {
                while p < pattern.len() && pattern[p] != SEPARATOR {
                    if literal.get(l) != Some(&pattern[p]) {
                        return false;
                    }
                    (p, l) = (p + 1, l + 1);
                }
            }
        }
        match (pattern.get(p), literal.get(l)) {
            (None, None) => return true,
            (Some(_), Some(&SEPARATOR)) => (p, l) = (p + 1, l + 1),
            _ => return false,
        }
    }
}

/// Does `pattern` select every subject that `subject` (itself possibly a pattern) selects?
#[must_use]
pub fn is_subset(subject: &[u8], pattern: &[u8]) -> bool {
    let mut narrow = tokens(subject);
    for wide in tokens(pattern) {
        let Some(token) = narrow.next() else { return false };
        if token.is_empty() || wide.is_empty() {
            return false;
        }
        if wide == ANY_TAIL {
            return true;
        }
        if token == ANY_TAIL || (wide != ANY_TOKEN && token != wide) {
            return false;
        }
    }
    narrow.next().is_none()
}

/// Is there a subject that both patterns select?
#[must_use]
pub fn overlap(a: &[u8], b: &[u8]) -> bool {
    let (mut left, mut right) = (tokens(a), tokens(b));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(x), Some(y)) => {
                if x == ANY_TAIL || y == ANY_TAIL {
                    return true;
                }
                if x != ANY_TOKEN && y != ANY_TOKEN && x != y {
                    return false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

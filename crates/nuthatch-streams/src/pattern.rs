//! Subject patterns: token by token, `*` for one token, `>` for all that follow.

/// Whether a pattern has wildcard tokens.
#[must_use]
pub(crate) fn has_wildcard(pattern: &[u8]) -> bool {
    pattern.split(|&b| b == b'.').any(|token| token == b"*" || token == b">")
}

/// Whether `subject` (without wildcards) matches `pattern`.
#[must_use]
pub(crate) fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let mut tokens = subject.split(|&b| b == b'.');
    for wanted in pattern.split(|&b| b == b'.') {
        if wanted == b">" {
            return tokens.next().is_some();
        }
        match tokens.next() {
            Some(token) if wanted == b"*" || wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// Whether some subject matches both patterns.
#[must_use]
pub(crate) fn collide(a: &[u8], b: &[u8]) -> bool {
    let (mut left, mut right) = (a.split(|&b| b == b'.'), b.split(|&b| b == b'.'));
    loop {
        match (left.next(), right.next()) {
            (None, None) => return true,
            (Some(b">"), Some(_)) | (Some(_), Some(b">")) => return true,
            (Some(l), Some(r)) if l == b"*" || r == b"*" || l == r => {}
            _ => return false,
        }
    }
}

/// Whether every subject that matches `narrow` matches `wide` as well.
#[must_use]
pub(crate) fn covers(wide: &[u8], narrow: &[u8]) -> bool {
    let mut right = narrow.split(|&b| b == b'.');
    for wanted in wide.split(|&b| b == b'.') {
        let token = right.next();
        match token {
            Some(_) if wanted == b">" => return true,
            Some(b">") => return false,
            Some(_) if wanted == b"*" => {}
            Some(b"*") => return false,
            Some(token) if token == wanted => {}
            _ => return false,
        }
    }
    right.next().is_none()
}

/// Whether a pattern (or subject) is well formed.
#[must_use]
pub(crate) fn is_valid(pattern: &[u8]) -> bool {
    let mut tail_seen = false;
    for token in pattern.split(|&b| b == b'.') {
        let clean = !token.iter().any(|b| b.is_ascii_whitespace());
        if token.is_empty() || tail_seen || !clean {
            return false;
        }
        tail_seen = token == b">";
    }
    true
}

//! Applying a transform to a subject.

use memchr::memmem;

use super::{Cut, Piece, Transform};
use crate::subject::{SEPARATOR, matches, tokens};
use crate::wire::write::push_u64;

impl Transform {
    /// Appends the transformed `subject` to `out` if the source selects it; says whether it does.
    ///
    /// `entropy` is a fresh random number, used by `random` only.
    pub fn apply(&self, subject: &[u8], entropy: u32, out: &mut Vec<u8>) -> bool {
        if !matches(&self.source, subject) {
            return false;
        }
        self.apply_matching(subject, entropy, out);
        true
    }

    /// Like [`Transform::apply`] for a subject that is known to match.
    pub fn apply_matching(&self, subject: &[u8], entropy: u32, out: &mut Vec<u8>) {
        for (number, piece) in self.pieces.iter().enumerate() {
            if number > 0 {
                out.push(SEPARATOR);
            }
            piece.apply(subject, entropy, out);
        }
        let Some(from) = self.tail_from else { return };
        if !self.pieces.is_empty() {
            out.push(SEPARATOR);
        }
        let mut skipped = tokens(subject);
        for _ in 0..from {
            skipped.next();
        }
        out.extend_from_slice(skipped.rest().unwrap_or_default());
    }
}

/// The token at `place`; empty if there is none.
fn token(subject: &[u8], place: usize) -> &[u8] {
    tokens(subject).nth(place).unwrap_or_default()
}

impl Piece {
    fn apply(&self, subject: &[u8], entropy: u32, out: &mut Vec<u8>) {
        match self {
            Self::Literal(text) => out.extend_from_slice(text),
            Self::Wildcard { token: place } => out.extend_from_slice(token(subject, *place)),
            Self::Partition { count, tokens } => {
                let hash = if tokens.is_empty() {
                    fnv1a(FNV_OFFSET, subject)
                } else {
                    tokens
                        .iter()
                        .fold(FNV_OFFSET, |hash, place| fnv1a(hash, token(subject, *place)))
                };
                // The incumbent converts a negative count like this.
                push_u64(out, u64::from(hash.checked_rem(*count as u32).unwrap_or(0)));
            }
            Self::Random { count } => {
                let positive = entropy & 0x7fff_ffff;
                push_u64(out, u64::from(positive.checked_rem(count.unsigned_abs()).unwrap_or(0)));
            }
            Self::Split { token: place, delimiter } => {
                push_split(out, token(subject, *place), delimiter);
            }
            Self::Cut { kind, token: place, size } => {
                let token = token(subject, *place);
                match usize::try_from(*size) {
                    Ok(size) if size > 0 && size < token.len() => push_cut(out, *kind, token, size),
                    // Too short to be cut there.
                    _ => out.extend_from_slice(token),
                }
            }
        }
    }
}

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// 32-bit FNV-1a, continued from `hash`.
fn fnv1a(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(FNV_PRIME))
}

/// `size` is above 0 and below the length of `token`.
fn push_cut(out: &mut Vec<u8>, kind: Cut, token: &[u8], size: usize) {
    let from_right = token.len() - size;
    match kind {
        Cut::Left => out.extend_from_slice(&token[..size]),
        Cut::Right => out.extend_from_slice(&token[from_right..]),
        Cut::SplitFromLeft => push_joined(out, [&token[..size], &token[size..]]),
        Cut::SplitFromRight => push_joined(out, [&token[..from_right], &token[from_right..]]),
        Cut::SliceFromLeft => push_joined(out, token.chunks(size)),
        Cut::SliceFromRight => {
            let (first, rest) = token.split_at(token.len() % size);
            let first = (!first.is_empty()).then_some(first);
            push_joined(out, first.into_iter().chain(rest.chunks(size)));
        }
    }
}

fn push_joined<'a>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'a [u8]>) {
    for (number, part) in parts.into_iter().enumerate() {
        if number > 0 {
            out.push(SEPARATOR);
        }
        out.extend_from_slice(part);
    }
}

/// The non-empty parts between delimiters; the token itself if there are none. An empty delimiter
/// separates every character.
fn push_split(out: &mut Vec<u8>, token: &[u8], delimiter: &[u8]) {
    let start = out.len();
    if delimiter.is_empty() {
        match std::str::from_utf8(token) {
            Ok(text) => {
                push_joined(out, text.split("").map(str::as_bytes).filter(|c| !c.is_empty()))
            }
            Err(_) => push_joined(out, token.chunks(1)),
        }
    } else {
        let mut from = 0;
        let ends = memmem::find_iter(token, delimiter).chain([token.len()]);
        let parts = ends.map(|end| {
            let part = &token[from..end];
            from = (end + delimiter.len()).min(token.len());
            part
        });
        push_joined(out, parts.filter(|part| !part.is_empty()));
    }
    if out.len() == start {
        out.extend_from_slice(token);
    }
}

//! Finding bytes eight at a time, inline.
//!
//! Control lines, tokens and header lines are mostly shorter than 30 bytes. For those a call into
//! a vectored search costs more than it saves; for anything longer use `memchr`.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
const STEP: usize = 8;

/// The place of the first `byte` in `haystack`.
#[inline(always)]
pub(crate) fn find_byte(haystack: &[u8], byte: u8) -> Option<usize> {
    let wanted = LOW * u64::from(byte);
    let (chunks, rest) = haystack.as_chunks::<STEP>();
    for (number, chunk) in chunks.iter().enumerate() {
        // A wanted byte is zero in `word`; only bytes behind the first zero can be mistaken.
        let word = u64::from_le_bytes(*chunk) ^ wanted;
        let hits = word.wrapping_sub(LOW) & !word & HIGH;
        if hits != 0 {
            return Some(number * STEP + first(hits));
        }
    }
    let place = rest.iter().position(|&other| other == byte)?;
    Some(chunks.len() * STEP + place)
}

/// The eight bytes at `at`, as far as there are that many, and 0xff behind them.
#[inline(always)]
pub(crate) fn word_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..).and_then(<[u8]>::first_chunk::<STEP>) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => last_word(bytes, at),
    }
}

#[cold]
#[inline(never)]
fn last_word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0xff; STEP];
    for (to, from) in word.iter_mut().zip(bytes.get(at..).unwrap_or_default()) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// The high bit of every byte of `word` that is a space or below.
#[inline(always)]
pub(crate) fn at_most_space(word: u64) -> u64 {
    // Adding 0x5f carries 0x21 and above into the high bit, and no byte into the next.
    let above = (word & !HIGH) + LOW * (0x7f - b' ') as u64;
    !(above | word) & HIGH
}

/// The place of the first byte marked in `hits`, which must not be 0.
#[inline(always)]
pub(crate) fn first(hits: u64) -> usize {
    hits.trailing_zeros() as usize / STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_place() {
        for byte in 0..=255u8 {
            for place in 0..20 {
                for filler in [0u8, 1, 0x20, 0x21, 0x7f, 0x80, 0xff] {
                    let mut bytes = [filler; 20];
                    bytes[place] = byte;
                    let expected = bytes.iter().position(|&other| other == byte);
                    assert_eq!(find_byte(&bytes, byte), expected);
                    let word = word_at(&bytes, 13);
                    for (i, &other) in bytes[13..].iter().enumerate() {
                        let bit = 0x80 << (8 * i);
                        assert_eq!(at_most_space(word) & bit != 0, other <= b' ');
                    }
                    assert_eq!(at_most_space(word) >> 56, 0, "padding is no space");
                }
            }
        }
        assert_eq!((find_byte(b"", 0), word_at(b"", 0), word_at(b"x", 9)), (None, !0, !0));
    }
}

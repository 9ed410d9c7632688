//! What tells streams of one name apart that were there one after the other, as servers tell each other.

use nuthatch_protocol::js::Time;
use ring::digest::{SHA256, digest};

/// Characters of a hash.
const HASH_CHARS: usize = 8;
/// Decimal digits of a moment are more than these.
const MOMENT_DIGITS_MIN: usize = HASH_CHARS + 1;

/// The short hash by which servers name things to each other: the incumbent's, so that both agree.
#[must_use]
pub fn short_hash(text: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let hash = digest(&SHA256, text.as_bytes());
    let chars = hash.as_ref().iter().take(HASH_CHARS);
    chars.map(|&byte| char::from(DIGITS[usize::from(byte) % DIGITS.len()])).collect()
}

/// The identity of a stream that was created then.
#[must_use]
pub fn stream_identity(created: Time) -> String {
    short_hash(&created.to_string())
}

/// True if both name the same stream: by its identity, or by the nanosecond of its creation.
pub(super) fn names_same(one: &[u8], other: &[u8]) -> bool {
    one == other || (!one.is_empty() && !other.is_empty() && named(one) == named(other))
}

fn named(origin: &[u8]) -> String {
    let text = String::from_utf8_lossy(origin);
    match text.parse() {
        Ok(created) if text.len() >= MOMENT_DIGITS_MIN => stream_identity(Time(created)),
        _ => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_incumbent() {
        // What it writes for its global account in the longer form of acknowledgements.
        assert_eq!(short_hash("A"), "NUmM6cRx");
    }

    #[test]
    fn a_stream_is_the_same_by_its_moment_and_by_its_identity() {
        let created = 1_700_000_000_123_456_789;
        let (moment, identity) = (created.to_string(), stream_identity(Time(created)));
        let same = |one: &str, other: &str| names_same(one.as_bytes(), other.as_bytes());
        assert!(same(&moment, &identity) && same(&identity, &moment) && same("", ""));
        assert!(!same(&moment, "1700000000123456788") && !same("", &identity));
        assert!(!same("12345678", &stream_identity(Time(12_345_678))), "eight digits are a hash");
    }
}

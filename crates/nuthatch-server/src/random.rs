//! Identities and secrets that nobody can guess.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes in a nonce.
const NONCE_BYTES: usize = 11;

/// A fresh nonce for a client to sign.
#[must_use]
pub fn new_nonce() -> String {
    let mut raw = [0; NONCE_BYTES];
    fill_random(&mut raw);
    URL_SAFE_NO_PAD.encode(raw)
}

/// A random id of so many characters, at most 64, for events.
#[must_use]
pub fn random_id(chars: usize) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut raw = [0; 64];
    fill_random(&mut raw);
    raw.iter().take(chars).map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect()
}

/// A random token of so many letters and digits, at most 64, for subjects.
#[must_use]
pub fn random_token(chars: usize) -> String {
    const DIGITS: &[u8; 36] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut raw = [0; 64];
    fill_random(&mut raw);
    raw.iter()
        .take(chars)
        .map(|byte| char::from(DIGITS[usize::from(*byte) % DIGITS.len()]))
        .collect()
}

/// Fills with the system's randomness; without it (it never fails on the systems we support) with
/// the hasher's, which is seeded from the same source.
pub(crate) fn fill_random(raw: &mut [u8]) {
    if SystemRandom::new().fill(raw).is_err() {
        use std::hash::{BuildHasher, RandomState};
        for (at, byte) in raw.iter_mut().enumerate() {
            *byte = RandomState::new().hash_one(at) as u8;
        }
    }
}

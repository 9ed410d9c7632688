//! The one place that checks ed25519 signatures, of nonces and of tokens.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use nuthatch_protocol::nkey::PublicKey;
use ring::signature::{ED25519, UnparsedPublicKey};

/// True if `signature` is that of `message` by the owner of `key`.
#[must_use]
pub fn verify(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// True if a client signed the nonce that it was given; `signature` is base64 of either alphabet.
#[must_use]
pub fn verify_nonce(key: &PublicKey, nonce: &str, signature: &str) -> bool {
    let signature = URL_SAFE_NO_PAD.decode(signature).or_else(|_| STANDARD.decode(signature));
    signature.is_ok_and(|signature| verify(key, nonce.as_bytes(), &signature))
}

//! Tests of keys and seals.

use super::*;
use crate::env::SeededEntropy;
use proptest::prelude::*;

fn key(text: &str) -> Key {
    Key::of_text(text.as_bytes()).expect("not empty")
}

fn ring(current: Option<&str>, previous: &[&str], cipher: Cipher, seed: u64) -> Keyring {
    let previous = previous.iter().map(|text| key(text)).collect();
    let keys = Keys { current: current.map(key), previous, cipher };
    Keyring::new(&keys, &mut SeededEntropy::new(seed))
}

fn sealed(ring: &Keyring, plain: &[u8]) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    ring.seal_vec(ring.current(), b"here", &mut bytes, 0);
    bytes
}

fn opened(ring: &Keyring, id: KeyId, bytes: &[u8]) -> Result<Vec<u8>, SealFault> {
    let mut bytes = bytes.to_vec();
    let len = ring.open(id, b"here", &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Ids are part of the format: a log finds its keys by them.
#[test]
fn the_id_of_a_key_stays_what_it_is() {
    assert_eq!(key("one").id(), key("one").id());
    assert_ne!(key("one").id(), key("two").id());
    assert_eq!(Key::of_text(b"").map(|key| key.id()), None);
    assert_eq!(key("nuthatch").id().to_string(), "c7e51288");
}

#[test]
fn nothing_tells_a_key() {
    let secret = key("correct horse battery staple");
    let keys = Keys { current: Some(secret.clone()), ..Keys::default() };
    let ring = Keyring::new(&keys, &mut SeededEntropy::new(1));
    let name = secret.id().to_string();
    assert_eq!(format!("{secret:?}"), format!("Key({name})"));
    assert_eq!(format!("{ring:?}"), format!("Keyring({name})"));
    assert!(!format!("{keys:?}").contains("horse"));
}

#[test]
fn what_is_sealed_opens_with_its_key_and_no_other() {
    for cipher in [Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm] {
        let old = ring(Some("one"), &[], cipher, 1);
        let (id, bytes) = (old.current(), sealed(&old, b"plain text"));
        let turned = ring(Some("two"), &["one"], Cipher::default(), 2);
        assert_eq!(opened(&turned, id, &bytes).as_deref(), Ok(&b"plain text"[..]));
        let off = ring(None, &["one"], Cipher::default(), 3);
        assert_eq!(off.current(), KeyId::NONE);
        assert_eq!(opened(&off, id, &bytes).as_deref(), Ok(&b"plain text"[..]));
        let without = ring(Some("two"), &[], Cipher::default(), 4);
        assert_eq!(opened(&without, id, &bytes), Err(SealFault::NoKey(id)));
        assert_eq!(opened(&Keyring::default(), id, &bytes), Err(SealFault::NoKey(id)));
        assert_eq!(old.open(id, b"elsewhere", &mut bytes.clone()), Err(SealFault::Broken));
        // Another key that had the same id.
        assert_eq!(opened(&without, without.current(), &bytes), Err(SealFault::Broken));
    }
}

/// Equal texts never look equal, neither in one opening nor in two.
#[test]
fn no_nonce_is_used_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let ring = ring(Some("one"), &["two"], Cipher::default(), seed);
        for _ in 0..50 {
            let bytes = sealed(&ring, b"equal");
            assert!(seen.insert(bytes[..SEAL_HEAD_BYTES].to_vec()));
            assert!(seen.insert(bytes[SEAL_HEAD_BYTES..].to_vec()));
        }
    }
}

#[test]
fn a_cipher_of_a_later_version_is_told_from_damage() {
    let ring = ring(Some("one"), &[], Cipher::default(), 1);
    for (at, byte) in [(0, 3), (0, 0), (1, 1), (3, 1)] {
        let mut bytes = sealed(&ring, b"text");
        bytes[at] = byte;
        assert_eq!(opened(&ring, ring.current(), &bytes), Err(SealFault::Unknown), "{at} {byte}");
    }
    assert_eq!(opened(&ring, ring.current(), &[1; 20]), Err(SealFault::Broken));
}

#[test]
fn derived_keys_are_bounded() {
    let reader = ring(Some("one"), &[], Cipher::default(), 1000);
    for seed in 0..3 * KEPT_KEYS as u64 {
        let other = ring(Some("one"), &[], Cipher::Aes256Gcm, seed);
        let text = seed.to_string();
        let bytes = sealed(&other, text.as_bytes());
        assert_eq!(opened(&reader, other.current(), &bytes).as_deref(), Ok(text.as_bytes()));
    }
    assert_eq!(reader.0.expect("has keys").derived.lock().len(), KEPT_KEYS);
}

proptest! {
    /// Whatever bit changes, what comes out is nothing, never something else.
    #[test]
    fn no_changed_bit_passes(
        plain in proptest::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        bit in 0..8u8,
        aes: bool,
    ) {
        let cipher = if aes { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 };
        let ring = ring(Some("one"), &[], cipher, 1);
        let mut bytes = sealed(&ring, &plain);
        prop_assert_eq!(opened(&ring, ring.current(), &bytes), Ok(plain));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(opened(&ring, ring.current(), &bytes).is_err());
    }
}

//! Keys of Curve25519 ("xkeys"): what one side seals for another can be read by that one alone, who
//! knows whom it is from. The box is NaCl's, in the envelope of `github.com/nats-io/nkeys`: a version,
//! the nonce, the box.

use crate::random::fill_random;
use crypto_box::aead::Aead;
use crypto_box::{Nonce, PublicKey, SalsaBox, SecretKey};
use nuthatch_protocol::nkey::{self, KeyKind};

const VERSION: &[u8] = b"xkv1";
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Bytes of a sealed message beside the message.
pub const SEAL_BYTES: usize = VERSION.len() + NONCE_BYTES + TAG_BYTES;

/// A pair of keys that seals and opens.
pub struct CurveKey {
    secret: SecretKey,
    public: String,
}

impl CurveKey {
    /// A fresh one that nobody can guess.
    #[must_use]
    pub fn random() -> Self {
        let mut secret = [0; KEY_BYTES];
        fill_random(&mut secret);
        Self::of(secret)
    }

    fn of(secret: [u8; KEY_BYTES]) -> Self {
        let secret = SecretKey::from_bytes(secret);
        let public = nkey::encode(KeyKind::Curve, secret.public_key().as_bytes());
        Self { secret, public }
    }

    /// The public key as text.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Seals a message for the owner of a key.
    #[must_use]
    pub fn seal(&self, message: &[u8], recipient: &nkey::PublicKey) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        fill_random(&mut nonce);
        let sealed = self.with(recipient).encrypt(&Nonce::from(nonce), message);
        // It fails for messages that no memory holds.
        let sealed = sealed.expect("a message of a few kilobytes");
        [VERSION, &nonce, &sealed].concat()
    }

    /// Opens what the owner of a key has sealed for this one; `None`: it has not, or not like this.
    #[must_use]
    pub fn open(&self, sealed: &[u8], sender: &nkey::PublicKey) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.strip_prefix(VERSION)?.split_first_chunk::<NONCE_BYTES>()?;
        self.with(sender).decrypt(&Nonce::from(*nonce), sealed).ok()
    }

    fn with(&self, other: &nkey::PublicKey) -> SalsaBox {
        SalsaBox::new(&PublicKey::from_bytes(*other), &self.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> nkey::PublicKey {
        nkey::decode_as(KeyKind::Curve, text).expect("a curve key")
    }

    /// What `github.com/nats-io/nkeys` 0.4.16 makes of the same secrets.
    #[test]
    fn the_envelope_is_that_of_nkeys() {
        let (sender, recipient) = (CurveKey::of([1; KEY_BYTES]), CurveKey::of([2; KEY_BYTES]));
        assert_eq!(
            [sender.public(), recipient.public()],
            [
                "XCSOBEUSWZI4E6FZO4WFNH27VG5RHWIGWRVLNDE57HOCWRAJ7CRATSUK",
                "XDHI2OWRZS3DH3D3ODAXQFFFY5XM2AUWQUCQ2NCHIW5ALBYOLB6VSWAL"
            ]
        );
        let sealed = "786b76311d1b2cc5f41dcbf17d35619b61a8366da7e668b5d569ed931a2fd91837c2ac41cf2301432\
                      ff696dc437b5878869f545f6f2c";
        let digits =
            sealed.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("digits"));
        let sealed: Vec<u8> =
            digits.map(|two| u8::from_str_radix(two, 16).expect("a byte")).collect();
        let opened = recipient.open(&sealed, &key(sender.public()));
        assert_eq!(opened.as_deref(), Some(&b"who is it?"[..]));
    }

    #[test]
    fn only_the_recipient_opens_what_only_the_sender_seals() {
        let [server, service, other] = std::array::from_fn(|_| CurveKey::random());
        let (own, its) = (key(server.public()), key(service.public()));
        let sealed = server.seal(b"who is it?", &its);
        assert_eq!(sealed.len(), b"who is it?".len() + SEAL_BYTES);
        assert_eq!(service.open(&sealed, &own).as_deref(), Some(&b"who is it?"[..]));
        assert_eq!(other.open(&sealed, &own), None);
        assert_eq!(service.open(&sealed, &key(other.public())), None);
        assert_ne!(server.seal(b"who is it?", &its), sealed, "no nonce counts twice");
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(service.open(&damaged, &own), None, "byte {at}");
            assert_eq!(service.open(&sealed[..at], &own), None, "{at} bytes");
        }
    }
}

//! Seeds of nkeys, which prove who we are by signing what the server sends, and credentials files,
//! which hold a token (JWT) beside such a seed. The encoding is that of the `nkeys` library: base32
//! of prefix, key and CRC-16.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// First byte of a seed, before the kind of key is mixed in: shows as `S`.
const PREFIX_SEED: u8 = 18 << 3;

/// Prefix, key, checksum.
const SEED_BYTES: usize = 2 + 32 + 2;

/// Text that cannot be used as a seed or as credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NkeyError {
    /// Not base32, of another length, not a seed, or with a wrong checksum.
    #[error("it holds no nkey seed (a word that starts with S, such as SUA…)")]
    BadSeed,
    /// A credentials file without a token.
    #[error("it holds no user JWT between -----BEGIN NATS USER JWT----- and the end marker")]
    NoJwt,
}

/// A pair of keys made from a seed.
pub struct Nkey {
    pair: Ed25519KeyPair,
    public: String,
}

impl fmt::Debug for Nkey {
    /// Shows the public key, never the seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nkey").field(&self.public).finish()
    }
}

impl Nkey {
    /// Reads a seed out of a file's text: the first line that looks like one.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn from_text(text: &str) -> Result<Self, NkeyError> {
        let line = text.lines().map(str::trim).find(|line| line.starts_with('S'));
        Self::from_seed(line.ok_or(NkeyError::BadSeed)?)
    }

    fn from_seed(seed: &str) -> Result<Self, NkeyError> {
        let bytes = base32_decode(seed).filter(|bytes| bytes.len() == SEED_BYTES);
        let bytes = bytes.ok_or(NkeyError::BadSeed)?;
        let (body, sum) = bytes.split_at(SEED_BYTES - 2);
        if crc16(body).to_le_bytes() != sum || body[0] & 0xf8 != PREFIX_SEED {
            return Err(NkeyError::BadSeed);
        }
        let kind = ((body[0] & 7) << 5) | (body[1] >> 3);
        let pair =
            Ed25519KeyPair::from_seed_unchecked(&body[2..]).map_err(|_| NkeyError::BadSeed)?;
        let mut public = vec![kind];
        public.extend_from_slice(pair.public_key().as_ref());
        let sum = crc16(&public).to_le_bytes();
        public.extend_from_slice(&sum);
        let public = base32_encode(&public);
        Ok(Self { pair, public })
    }

    /// The public key, such as `UDXU…`.
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The signature of a server's nonce as it stands in `CONNECT`.
    pub fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

/// The JWT of a credentials file.
///
/// # Errors
/// When there is none.
pub fn jwt_of(creds: &str) -> Result<String, NkeyError> {
    let begins = |line: &&str| line.contains("BEGIN NATS USER JWT");
    let mut lines = creds.lines().map(str::trim).skip_while(|line| !begins(line)).skip(1);
    let jwt = lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'));
    jwt.map(str::to_owned).ok_or(NkeyError::NoJwt)
}

/// CRC-16/XMODEM, which nkeys end in.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

/// Base32 without padding; bits that do not fill a byte are dropped.
fn base32_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut held) = (0u32, 0);
    for letter in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        bits = (bits << 5) | value as u32;
        held += 5;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    Some(out)
}

fn base32_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut held) = (0u32, 0);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            out.push(char::from(ALPHABET[(bits >> held) as usize & 31]));
        }
    }
    if held > 0 {
        out.push(char::from(ALPHABET[(bits << (5 - held)) as usize & 31]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // A pair from the documentation of nkeys; it protects nothing.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn a_seed_gives_its_public_key_and_signs() {
        let key = Nkey::from_text(&format!("# mine\n{SEED}\n")).unwrap();
        assert_eq!(key.public(), PUBLIC);
        let signature = URL_SAFE_NO_PAD.decode(key.sign("nonce")).unwrap();
        let public = base32_decode(PUBLIC).unwrap();
        ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, &public[1..33])
            .verify(b"nonce", &signature)
            .unwrap();
        assert!(!format!("{key:?}").contains(SEED));
    }

    #[test]
    fn damaged_seeds_are_refused() {
        for text in ["", "S", PUBLIC, &SEED[1..], &SEED.replace("SUACS", "SUACT"), "SU0"] {
            assert_eq!(Nkey::from_text(text).err(), Some(NkeyError::BadSeed), "{text}");
        }
    }

    #[test]
    fn credentials_files() {
        let creds = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.e30.sig\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        assert_eq!(jwt_of(&creds).unwrap(), "eyJ0.e30.sig");
        assert_eq!(Nkey::from_text(&creds).unwrap().public(), PUBLIC);
        assert_eq!(jwt_of(SEED), Err(NkeyError::NoJwt));
    }
}

//! Keys of our own: seeds of nkeys and credentials files, for authentication towards another server, and
//! the key of this server.

use crate::random::fill_random;
use crate::xkey::CurveKey;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nuthatch_protocol::nkey::{self, KeyKind};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use std::path::{Path, PathBuf};

/// Prefix byte of a seed, before the kind of key is mixed in: its text begins with `S`.
const SEED_PREFIX: u8 = 18 << 3;
/// Prefix byte of a user's public key: its text begins with `U`.
const USER_PREFIX: u8 = 20 << 3;
/// Two bytes of prefix, key, checksum.
const SEED_BYTES: usize = 2 + 32 + 2;
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Largest credentials file that is read.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why credentials are of no use. No part of a secret is in its text.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read the credentials file {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no credentials file.
    #[error("the credentials file {} holds no {what}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// The missing part.
        what: &'static str,
    },
}

/// An nkey that signs.
pub struct KeyPair {
    kind: KeyKind,
    pair: Ed25519KeyPair,
}

impl KeyPair {
    /// Reads the seed of a user's nkey (`SU…`); `None`: it is none.
    #[must_use]
    pub fn from_seed(text: &str) -> Option<Self> {
        let bytes = base32(text.trim())?;
        let (body, checksum) = bytes.split_at_checked(SEED_BYTES - 2)?;
        let kind = ((body[0] & 7) << 5) | (body[1] >> 3);
        let sound = crc16(body).to_le_bytes() == checksum
            && body[0] & 0xf8 == SEED_PREFIX
            && kind == USER_PREFIX;
        let pair = Ed25519KeyPair::from_seed_unchecked(&body[2..]).ok()?;
        sound.then_some(Self { kind: KeyKind::User, pair })
    }

    /// A fresh one that nobody can guess.
    #[must_use]
    pub fn random(kind: KeyKind) -> Self {
        let mut seed = [0; 32];
        fill_random(&mut seed);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every seed makes a key");
        Self { kind, pair }
    }

    /// The public key as text.
    #[must_use]
    pub fn public(&self) -> String {
        let key = self.pair.public_key().as_ref();
        nkey::encode(self.kind, key.try_into().expect("32 bytes"))
    }

    /// The signature of a nonce, as CONNECT holds it.
    #[must_use]
    pub fn sign(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.sign_bytes(nonce.as_bytes()))
    }

    /// A signature.
    #[must_use]
    pub fn sign_bytes(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// The keys of a server.
pub struct ServerKeys {
    /// Signs; its public part is the server's id.
    pub signing: KeyPair,
    /// Seals and opens.
    pub curve: CurveKey,
}

impl ServerKeys {
    /// Fresh ones.
    #[must_use]
    pub fn random() -> Self {
        Self { signing: KeyPair::random(KeyKind::Server), curve: CurveKey::random() }
    }
}

/// Content of a credentials file.
pub struct Credentials {
    /// The user's JWT.
    pub jwt: String,
    /// The key that it is for.
    pub key: KeyPair,
}

/// Reads a credentials file.
///
/// # Errors
/// See [`CredentialsError`].
pub fn read(path: &Path) -> Result<Credentials, CredentialsError> {
    use std::io::Read;
    let failed = |source| CredentialsError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    let missing = |what| CredentialsError::Malformed { path: path.to_owned(), what };
    let mut blocks = blocks(&text);
    let jwt = blocks.next().ok_or_else(|| missing("user JWT"))?.to_owned();
    let key = blocks.next().and_then(KeyPair::from_seed).ok_or_else(|| missing("user seed"))?;
    Ok(Credentials { jwt, key })
}

/// The lines between markers (`-----BEGIN …-----`), one of each block.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    std::iter::from_fn(move || {
        let is_marker = |line: &&str| line.starts_with("---");
        loop {
            lines.by_ref().find(is_marker)?;
            let line = lines.next()?;
            if !is_marker(&line) {
                // The end marker goes with it, so that the next one begins a block again.
                lines.by_ref().find(is_marker);
                return Some(line);
            }
        }
    })
}

fn base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut count) = (0_u32, 0);
    for c in text.bytes() {
        let value = ALPHABET.iter().position(|&known| known == c)?;
        bits = (bits << 5) | value as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    #[test]
    fn a_seed_gives_its_key() {
        assert_eq!(KeyPair::from_seed(SEED).unwrap().public(), PUBLIC);
        assert!(KeyPair::from_seed(&SEED.replace("CSS", "CST")).is_none());
        assert!(KeyPair::from_seed(PUBLIC).is_none());
        assert!(KeyPair::from_seed("").is_none());
    }

    #[test]
    fn a_credentials_file_holds_both() {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.eyJh.c2ln\n------END NATS USER JWT------\n\n\
             ***** IMPORTANT *****\n\n-----BEGIN USER NKEY SEED-----\n{SEED}\n\
             ------END USER NKEY SEED------\n\n*****\n"
        );
        let found: Vec<&str> = blocks(&text).collect();
        assert_eq!(found, ["eyJ0.eyJh.c2ln", SEED]);
        let file = std::env::temp_dir().join(format!("nuthatch-creds-{}", std::process::id()));
        std::fs::write(&file, &text).unwrap();
        let credentials = read(&file).unwrap();
        assert_eq!(
            (credentials.jwt.as_str(), credentials.key.public().as_str()),
            (found[0], PUBLIC)
        );
        std::fs::write(&file, "no credentials").unwrap();
        assert!(matches!(read(&file), Err(CredentialsError::Malformed { .. })));
        std::fs::remove_file(&file).unwrap();
        assert!(matches!(read(&file), Err(CredentialsError::Read { .. })));
    }
}

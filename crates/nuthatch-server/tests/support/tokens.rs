//! Keys, and tokens that they sign.
#![allow(dead_code, reason = "not every test file uses every part")]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Prefix bytes of public nkeys.
#[derive(Clone, Copy)]
pub enum Kind {
    Operator = 14 << 3,
    Account = 0,
    User = 20 << 3,
}

/// A pair of keys.
pub struct Key {
    pair: Ed25519KeyPair,
    pub public: String,
}

impl Key {
    /// The same for the same number.
    pub fn new(kind: Kind, number: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap();
        let mut raw = vec![kind as u8];
        raw.extend_from_slice(pair.public_key().as_ref());
        raw.extend(crc16(&raw).to_le_bytes());
        let bit = |at: usize| (raw[at / 8] >> (7 - at % 8)) & 1;
        let digit = |place: usize| (0..5).fold(0, |value, b| (value << 1) | bit(place * 5 + b));
        let public = (0..56).map(|place| char::from(ALPHABET[usize::from(digit(place))]));
        Self { public: public.collect(), pair }
    }

    /// A token about `subject`; `more` is merged into the claims.
    pub fn sign(&self, subject: &str, kind: &str, nats: Value, more: Value) -> String {
        let mut nats = nats;
        (nats["type"], nats["version"]) = (json!(kind), json!(2));
        let mut claims = json!({
            "iat": now(), "iss": self.public, "sub": subject, "name": "somebody", "nats": nats,
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let id = crc16(claims.to_string().as_bytes());
        claims["jti"] = json!(format!("ID{id}"));
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
        let signed = format!("{head}.{}", part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// `sig` of CONNECT.
    pub fn sign_nonce(&self, nonce: &str) -> String {
        URL_SAFE_NO_PAD.encode(self.pair.sign(nonce.as_bytes()))
    }
}

/// Seconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

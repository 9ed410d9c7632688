//! Public nkeys: base32 of a prefix byte, an ed25519 key and a checksum (the encoding of
//! `github.com/nats-io/nkeys`).

const KEY_BYTES: usize = 32;
/// Prefix, key and checksum.
const RAW_BYTES: usize = 1 + KEY_BYTES + 2;
/// Characters of 5 bits that hold [`RAW_BYTES`].
const TEXT_CHARS: usize = RAW_BYTES * 8 / 5;

const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

const _: () = assert!(TEXT_CHARS * 5 == RAW_BYTES * 8);

/// The 32 bytes of an ed25519 public key, or of one of Curve25519.
pub type PublicKey = [u8; KEY_BYTES];

/// Whose key it is, as its first character shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// `O…`
    Operator,
    /// `A…`
    Account,
    /// `U…`
    User,
    /// `N…`
    Server,
    /// `C…`
    Cluster,
    /// `X…`: a key of Curve25519, for encryption (an "xkey"), not for signatures.
    Curve,
}

impl KeyKind {
    const fn of(prefix: u8) -> Option<Self> {
        match prefix {
            0x70 => Some(Self::Operator),
            0x00 => Some(Self::Account),
            0xa0 => Some(Self::User),
            0x68 => Some(Self::Server),
            0x10 => Some(Self::Cluster),
            0xb8 => Some(Self::Curve),
            _ => None,
        }
    }

    const fn prefix(self) -> u8 {
        match self {
            Self::Operator => 0x70,
            Self::Account => 0x00,
            Self::User => 0xa0,
            Self::Server => 0x68,
            Self::Cluster => 0x10,
            Self::Curve => 0xb8,
        }
    }
}

/// The kind and the key of a public nkey, or `None` if the text is none.
#[must_use]
pub fn decode(text: &str) -> Option<(KeyKind, PublicKey)> {
    if text.len() != TEXT_CHARS {
        return None;
    }
    let mut raw = [0; RAW_BYTES];
    for (i, c) in text.bytes().enumerate() {
        let bits = match c {
            b'A'..=b'Z' => c - b'A',
            b'2'..=b'7' => c - b'2' + 26,
            _ => return None,
        };
        let (byte, shift) = (i * 5 / 8, i * 5 % 8);
        let spread = u16::from(bits) << (11 - shift);
        raw[byte] |= (spread >> 8) as u8;
        if let Some(next) = raw.get_mut(byte + 1) {
            *next |= (spread & 0xff) as u8;
        }
    }
    let (body, checksum) = raw.split_at(1 + KEY_BYTES);
    if crc16(body).to_le_bytes() != checksum {
        return None;
    }
    Some((KeyKind::of(body[0])?, body[1..].try_into().ok()?))
}

/// The key of a public nkey of this kind, or `None` if the text is none.
#[must_use]
pub fn decode_as(kind: KeyKind, text: &str) -> Option<PublicKey> {
    decode(text).filter(|(found, _)| *found == kind).map(|(_, key)| key)
}

/// The text of a public key.
#[must_use]
pub fn encode(kind: KeyKind, key: &PublicKey) -> String {
    let mut raw = [0; RAW_BYTES];
    raw[0] = kind.prefix();
    raw[1..=KEY_BYTES].copy_from_slice(key);
    let checksum = crc16(&raw[..=KEY_BYTES]).to_le_bytes();
    raw[1 + KEY_BYTES..].copy_from_slice(&checksum);
    let digit = |i: usize| {
        let (byte, shift) = (i * 5 / 8, i * 5 % 8);
        let two = u16::from_be_bytes([raw[byte], raw.get(byte + 1).copied().unwrap_or_default()]);
        char::from(DIGITS[usize::from(two >> (11 - shift)) & 31])
    };
    (0..TEXT_CHARS).map(digit).collect()
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

    #[test]
    fn a_key_decodes_and_damage_is_noticed() {
        let text = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR";
        let (kind, key) = decode(text).unwrap();
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!((kind, key.len()), (KeyKind::User, 32));
        assert_eq!(decode_as(KeyKind::User, text), Some(key));
        assert_eq!(decode_as(KeyKind::Account, text), None);
        assert_eq!(decode(&text.replacen('G', "H", 1)), None);
        assert_eq!(decode(&text[1..]), None);
        assert_eq!(decode(&format!("{}ü", &text[..54])), None);
        assert_eq!(decode(&text.to_lowercase()), None);
    }

    #[test]
    fn a_key_is_written_as_it_is_read() {
        let text = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR";
        let (kind, key) = decode(text).unwrap();
        assert_eq!(encode(kind, &key), text);
        for (kind, first) in [
            (KeyKind::Operator, 'O'),
            (KeyKind::Account, 'A'),
            (KeyKind::Server, 'N'),
            (KeyKind::Cluster, 'C'),
            (KeyKind::Curve, 'X'),
        ] {
            let text = encode(kind, &key);
            assert!(text.starts_with(first), "{text}");
            assert_eq!(decode(&text), Some((kind, key)));
        }
    }
}

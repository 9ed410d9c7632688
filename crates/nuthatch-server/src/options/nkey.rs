//! Decodes public nkeys of users: base32 of a prefix byte, an ed25519 key and a checksum.

/// Prefix byte of a user's public key, which makes its text begin with `U`.
const USER_PREFIX: u8 = 20 << 3;
const KEY_BYTES: usize = 32;
/// Prefix, key and checksum.
const RAW_BYTES: usize = 1 + KEY_BYTES + 2;
/// Characters of 5 bits that hold [`RAW_BYTES`].
const TEXT_CHARS: usize = RAW_BYTES * 8 / 5;

const _: () = assert!(TEXT_CHARS * 5 == RAW_BYTES * 8);

/// The ed25519 key of a user's public nkey, or `None` if the text is none.
pub(super) fn decode_user(text: &str) -> Option<[u8; KEY_BYTES]> {
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
    let sound = body[0] == USER_PREFIX && crc16(body).to_le_bytes() == checksum;
    sound.then(|| body[1..].try_into().ok()).flatten()
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
    fn a_user_key_decodes_and_damage_is_noticed() {
        let text = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR";
        let key = decode_user(text).unwrap();
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(key.len(), 32);
        assert_eq!(decode_user(&text.replacen('G', "H", 1)), None);
        assert_eq!(decode_user(&text[1..]), None);
        assert_eq!(decode_user(&format!("{}ü", &text[..54])), None);
        assert_eq!(decode_user(&text.to_lowercase()), None);
    }
}

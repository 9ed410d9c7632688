//! The message of the mqperf method (seed 004): 100 characters from a pool of 10,000 generated
//! messages, of which the first 40 say who sent it, as which of its messages, and when.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::payload::Payload;

/// Messages generated at the start.
pub const POOL_MESSAGES: u64 = 10_000;

/// Characters of a message.
pub const MESSAGE_CHARS: usize = 100;

/// Characters of the stamp at the start of every message.
pub const STAMP_CHARS: usize = SENDER_DIGITS + SEQ_DIGITS + TIME_DIGITS;

const SENDER_DIGITS: usize = 8;
const SEQ_DIGITS: usize = 16;
const TIME_DIGITS: usize = 16;

/// Identity of a message: its sender, its number, and when it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The sender's number, different for all senders of a run.
    pub sender: u32,
    /// Counts the sender's messages from 0.
    pub seq: u64,
    /// When it was sent, or with a set rate: when it should have been. Nanoseconds since 1970.
    pub sent_ns: u64,
}

impl Stamp {
    /// Writes it over the start of a message, in hexadecimal digits.
    pub fn write(self, message: &mut [u8]) {
        push_hex(&mut message[..SENDER_DIGITS], u64::from(self.sender));
        push_hex(&mut message[SENDER_DIGITS..SENDER_DIGITS + SEQ_DIGITS], self.seq);
        push_hex(&mut message[SENDER_DIGITS + SEQ_DIGITS..STAMP_CHARS], self.sent_ns);
    }

    /// Reads it from a message; `None` when there is none.
    pub fn read(message: &[u8]) -> Option<Self> {
        let (sender, rest) = message.get(..STAMP_CHARS)?.split_at(SENDER_DIGITS);
        let (seq, time) = rest.split_at(SEQ_DIGITS);
        Some(Self {
            sender: u32::try_from(hex(sender)?).ok()?,
            seq: hex(seq)?,
            sent_ns: hex(time)?,
        })
    }
}

fn push_hex(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value: u64, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Now, in nanoseconds since 1970. Processes on one machine share this clock.
pub fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The generated messages.
#[derive(Debug)]
pub struct Pool {
    text: Vec<u8>,
    size: usize,
}

impl Pool {
    /// Messages of `size` characters (at least those of the stamp) that depend on `seed` alone.
    pub fn new(size: usize, seed: u64) -> Self {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let size = size.max(STAMP_CHARS);
        let random = Payload::new(size * POOL_MESSAGES as usize, seed);
        let text = random.get(0).iter().map(|byte| ALPHABET[usize::from(byte & 63)]).collect();
        Self { text, size }
    }

    /// A copy of one message; `pick` is any number.
    pub fn message(&self, pick: u64) -> Vec<u8> {
        let start = (pick % POOL_MESSAGES) as usize * self.size;
        self.text[start..start + self.size].to_vec()
    }

    /// Writes one message over `out`, which has its size.
    pub fn copy(&self, pick: u64, out: &mut [u8]) {
        let start = (pick % POOL_MESSAGES) as usize * self.size;
        out.copy_from_slice(&self.text[start..start + self.size]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_and_rubbish_does_not() {
        let pool = Pool::new(MESSAGE_CHARS, 7);
        let mut message = pool.message(12_345);
        let stamp = Stamp { sender: 70_000, seq: u64::MAX, sent_ns: 1_700_000_000_123_456_789 };
        stamp.write(&mut message);
        assert_eq!((message.len(), Stamp::read(&message)), (MESSAGE_CHARS, Some(stamp)));
        assert_eq!(Stamp::read(b"short"), None);
        assert_eq!(Stamp::read(&[b'z'; MESSAGE_CHARS]), None);
    }
}

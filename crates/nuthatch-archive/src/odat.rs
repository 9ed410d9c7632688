//! The state of a consumer as the file store of nats-server keeps it (`o.dat`).
//!
//! ```text
//! magic 22 | version u8 | varints: ack floor (consumer, stream), delivered (consumer, stream),
//!   count of pending; if any: time of writing s (zigzag), then each: stream sequence above the ack
//!   floor, (version 2:) consumer sequence above it, seconds before that time (zigzag);
//!   count of redelivered; then each: stream sequence above the ack floor, count
//! ```

use nuthatch_protocol::js::{ConsumerState, PendingDelivery, SequencePair};

const MAGIC: u8 = 22;
const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// Messages that may be out: more than any server allows, and a bound on memory.
const PENDING_MAX: u64 = 1 << 22;

const ENDS_EARLY: &str = "it ends early";

struct Varints<'a>(&'a [u8]);

impl Varints<'_> {
    fn number(&mut self) -> Result<u64, &'static str> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(ENDS_EARLY)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits")
    }

    fn signed(&mut self) -> Result<i64, &'static str> {
        let raw = self.number()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn pair(&mut self) -> Result<SequencePair, &'static str> {
        Ok(SequencePair { consumer_seq: self.number()?, stream_seq: self.number()? })
    }

    fn count(&mut self) -> Result<u64, &'static str> {
        let count = self.number()?;
        // Each takes two bytes or more.
        if count > PENDING_MAX || count > self.0.len() as u64 {
            return Err("it tells of more messages than it can hold");
        }
        Ok(count)
    }
}

/// Reads a state.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<ConsumerState, &'static str> {
    let version = match bytes {
        [MAGIC, version @ 1..=2, ..] => *version,
        _ => return Err("it is no state of a consumer, or of an unknown version"),
    };
    let mut input = Varints(&bytes[2..]);
    let mut state = ConsumerState {
        ack_floor: input.pair()?,
        delivered: input.pair()?,
        ..ConsumerState::default()
    };
    let floor = state.ack_floor;
    if version == 1 {
        // Counted from the floor, and one too many.
        let delivered = &mut state.delivered;
        let above = |value: u64, floor: u64| value.saturating_add(floor.saturating_sub(1));
        delivered.consumer_seq = above(delivered.consumer_seq, floor.consumer_seq);
        delivered.stream_seq = above(delivered.stream_seq, floor.stream_seq);
    }
    if floor.stream_seq >> 63 != 0 || state.delivered.stream_seq >> 63 != 0 {
        return Err("a sequence beyond 63 bits");
    }
    let pending = input.count()?;
    let written_s = if pending > 0 { input.signed()? } else { 0 };
    for _ in 0..pending {
        let seq = above(floor.stream_seq, input.number()?)?;
        let sequence = if version == 1 { 0 } else { above(floor.consumer_seq, input.number()?)? };
        let age_s = input.signed()?;
        let at_s = if version == 1 {
            written_s.saturating_add(age_s)
        } else {
            written_s.saturating_sub(age_s)
        };
        let timestamp = at_s.saturating_mul(NANOS_PER_SECOND);
        state.pending.insert(seq, PendingDelivery { sequence, timestamp });
    }
    for _ in 0..input.count()? {
        let (seq, count) = (input.number()?, input.number()?);
        if seq > 0 && count > 0 {
            state.redelivered.insert(above(floor.stream_seq, seq)?, count);
        }
    }
    Ok(state)
}

fn above(floor: u64, seq: u64) -> Result<u64, &'static str> {
    floor.checked_add(seq).ok_or("a sequence beyond 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floor (3, 5), delivered (6, 9), out: 6 and 8, both a little before 1000 s; 8 once again.
    const GOOD: &[u8] = &[22, 2, 3, 5, 6, 9, 2, 0xd0, 0x0f, 1, 1, 4, 3, 2, 0, 1, 3, 1];

    #[test]
    fn a_state_is_read() {
        let state = decode(GOOD).expect("intact");
        assert_eq!(state.ack_floor, SequencePair { consumer_seq: 3, stream_seq: 5 });
        assert_eq!(state.delivered, SequencePair { consumer_seq: 6, stream_seq: 9 });
        let second = |s: i64| s * NANOS_PER_SECOND;
        let expected = [
            (6, PendingDelivery { sequence: 4, timestamp: second(998) }),
            (8, PendingDelivery { sequence: 5, timestamp: second(1000) }),
        ];
        assert_eq!(state.pending, expected.into());
        assert_eq!(state.redelivered, [(8, 1)].into());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        for len in 0..GOOD.len() {
            assert!(decode(&GOOD[..len]).is_err(), "{len}");
        }
        for at in 0..GOOD.len() {
            for bit in 0..8 {
                let mut bad = GOOD.to_vec();
                bad[at] ^= 1 << bit;
                let _ = decode(&bad);
            }
        }
    }
}

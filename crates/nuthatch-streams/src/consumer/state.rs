//! How a consumer's progress is written: compact, versioned, tolerant of loss.
//!
//! ```text
//! state   = version u8 (1) | varints: next, resume, next consumer seq, delivered stream seq,
//!           floor consumer seq, floor stream seq
//!         | runs: count, then (gap of stream seq, gap of consumer seq, length) each
//!         | redelivered: count, then (gap of index among the pending, deliveries) each
//!         | exhausted: byte length, roaring treemap
//! whole   = version u8 (1) | created i64 | config length varint | config JSON | state
//! ```
//!
//! A run is a stretch of pending messages in which both sequences rise by one; gaps are counted from
//! the end of the run before. A thousand messages in flight are a few bytes.

use super::env::StateError;
use super::pending::Pending;
use roaring::RoaringTreemap;

const VERSION: u8 = 1;
/// Pending messages accepted from a record: guards the allocation.
const PENDING_MAX: u64 = 1 << 26;

/// The persisted part of a consumer, apart from its configuration.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Next stream sequence to look at.
    pub next: u64,
    /// See `Cursor::resume`.
    pub resume: u64,
    /// Consumer sequence of the next delivery.
    pub next_consumer_seq: u64,
    /// Stream sequence of the last delivery.
    pub delivered_stream: u64,
    /// Acknowledgement floor: consumer sequence, stream sequence.
    pub floor: (u64, u64),
    /// In flight.
    pub pending: Pending,
    /// Given up after `max_deliver`, still in the stream.
    pub exhausted: RoaringTreemap,
}

/// Input of [`encode`]; the borrowed form of [`Progress`].
pub(super) struct ProgressRef<'a> {
    pub next: u64,
    pub resume: u64,
    pub next_consumer_seq: u64,
    pub delivered_stream: u64,
    pub floor: (u64, u64),
    pub pending: &'a Pending,
    pub exhausted: &'a RoaringTreemap,
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct StateReader<'a> {
    bytes: &'a [u8],
}

impl<'a> StateReader<'a> {
    fn byte(&mut self) -> Result<u8, StateError> {
        let (&first, rest) = self.bytes.split_first().ok_or(StateError::Truncated)?;
        self.bytes = rest;
        Ok(first)
    }

    fn number(&mut self) -> Result<u64, StateError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(StateError::Damaged { what: "a number of more than 64 bits" })
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], StateError> {
        let len = usize::try_from(len).map_err(|_| StateError::Truncated)?;
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(StateError::Truncated)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn version(&mut self) -> Result<(), StateError> {
        match self.byte()? {
            VERSION => Ok(()),
            version => Err(StateError::Version { version, known: VERSION }),
        }
    }
}

fn encode_pending(pending: &Pending, out: &mut Vec<u8>) {
    let (mut runs, mut redelivered): (Vec<[u64; 3]>, Vec<[u64; 2]>) = (Vec::new(), Vec::new());
    for (index, entry) in pending.iter().enumerate() {
        match runs.last_mut() {
            Some([seq, consumer_seq, length])
                if *seq + *length == entry.seq && *consumer_seq + *length == entry.consumer_seq =>
            {
                *length += 1;
            }
            _ => runs.push([entry.seq, entry.consumer_seq, 1]),
        }
        if entry.delivered > 1 {
            redelivered.push([index as u64, u64::from(entry.delivered)]);
        }
    }
    put(out, runs.len() as u64);
    let (mut seq_end, mut consumer_end) = (0, 0);
    for [seq, consumer_seq, length] in runs {
        put(out, seq - seq_end);
        put(out, consumer_seq - consumer_end);
        put(out, length);
        (seq_end, consumer_end) = (seq + length, consumer_seq + length);
    }
    put(out, redelivered.len() as u64);
    let mut last = 0;
    for [index, delivered] in redelivered {
        put(out, index - last);
        put(out, delivered);
        last = index;
    }
}

/// Appends the state.
pub(super) fn encode(progress: &ProgressRef<'_>, out: &mut Vec<u8>) {
    out.push(VERSION);
    put(out, progress.next);
    put(out, progress.resume);
    put(out, progress.next_consumer_seq);
    put(out, progress.delivered_stream);
    put(out, progress.floor.0);
    put(out, progress.floor.1);
    encode_pending(progress.pending, out);
    if progress.exhausted.is_empty() {
        return put(out, 0);
    }
    put(out, progress.exhausted.serialized_size() as u64);
    progress.exhausted.serialize_into(out).expect("writing to memory does not fail");
}

fn add(a: u64, b: u64) -> Result<u64, StateError> {
    a.checked_add(b).ok_or(StateError::Damaged { what: "a sequence beyond 64 bits" })
}

fn decode_pending(reader: &mut StateReader<'_>) -> Result<Pending, StateError> {
    let mut entries: Vec<(u64, u64, u32)> = Vec::new();
    let (mut seq, mut consumer_seq) = (0, 0);
    for _ in 0..reader.number()? {
        seq = add(seq, reader.number()?)?;
        consumer_seq = add(consumer_seq, reader.number()?)?;
        let length = reader.number()?;
        if length > PENDING_MAX - entries.len() as u64 {
            return Err(StateError::Damaged { what: "too many pending messages" });
        }
        add(seq, length)?;
        add(consumer_seq, length)?;
        entries.extend((0..length).map(|at| (seq + at, consumer_seq + at, 1)));
        (seq, consumer_seq) = (seq + length, consumer_seq + length);
    }
    let mut index = 0;
    for _ in 0..reader.number()? {
        index = add(index, reader.number()?)?;
        let delivered = reader.number()?;
        let entry = usize::try_from(index).ok().and_then(|index| entries.get_mut(index));
        let Some(entry) = entry else {
            return Err(StateError::Damaged { what: "a delivery count without its message" });
        };
        entry.2 = u32::try_from(delivered).unwrap_or(u32::MAX).max(1);
    }
    let mut pending = Pending::default();
    for (seq, consumer_seq, delivered) in entries {
        pending.restore(seq, consumer_seq, delivered);
    }
    Ok(pending)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// [`StateError`]; sizes are checked before anything is allocated.
pub(super) fn decode(bytes: &[u8]) -> Result<Progress, StateError> {
    let mut reader = StateReader { bytes };
    reader.version()?;
    let mut progress = Progress {
        next: reader.number()?.max(1),
        resume: reader.number()?,
        next_consumer_seq: reader.number()?.max(1),
        delivered_stream: reader.number()?,
        floor: (reader.number()?, reader.number()?),
        ..Progress::default()
    };
    progress.pending = decode_pending(&mut reader)?;
    let len = reader.number()?;
    if len > 0 {
        progress.exhausted = RoaringTreemap::deserialize_from(reader.take(len)?)
            .map_err(|_| StateError::Damaged { what: "the list of exhausted messages" })?;
    }
    Ok(progress)
}

/// Appends configuration and creation time, to be followed by the state.
pub(super) fn encode_head(created: i64, config: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&created.to_le_bytes());
    put(out, config.len() as u64);
    out.extend_from_slice(config);
}

/// Reads what [`encode_head`] wrote: creation time, configuration, and the state's bytes.
///
/// # Errors
/// [`StateError`].
pub(super) fn decode_head(bytes: &[u8]) -> Result<(i64, &[u8], &[u8]), StateError> {
    let mut reader = StateReader { bytes };
    reader.version()?;
    let created = reader.take(8)?.try_into().map_err(|_| StateError::Truncated)?;
    let len = reader.number()?;
    let config = reader.take(len)?;
    Ok((i64::from_le_bytes(created), config, reader.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(pending: &Pending, exhausted: &RoaringTreemap) -> Vec<u8> {
        let mut out = Vec::new();
        let progress = ProgressRef {
            next: 1_000_001,
            resume: 7,
            next_consumer_seq: 900_001,
            delivered_stream: 999_999,
            floor: (899_000, 999_000),
            pending,
            exhausted,
        };
        encode(&progress, &mut out);
        out
    }

    #[test]
    fn a_thousand_in_flight_are_a_few_bytes() {
        let mut pending = Pending::default();
        for at in 0..1_000 {
            pending.push(999_001 + at, 899_001 + at, 5);
        }
        let out = encoded(&pending, &RoaringTreemap::new());
        assert!(out.len() < 40, "{} bytes", out.len());
        let back = decode(&out).map(|progress| {
            (progress.next, progress.resume, progress.floor, progress.pending.len())
        });
        assert_eq!(back, Ok((1_000_001, 7, (899_000, 999_000), 1_000)));
    }

    #[test]
    fn gaps_counts_and_exhausted_survive() {
        let mut pending = Pending::default();
        for (seq, consumer_seq, delivered) in [(5, 1, 3), (6, 2, 1), (9, 3, 1), (12, 9, 2)] {
            pending.restore(seq, consumer_seq, delivered);
        }
        let exhausted: RoaringTreemap = [3_u64, 1 << 40].into_iter().collect();
        let back = decode(&encoded(&pending, &exhausted));
        let Ok(back) = back else { panic!("{back:?}") };
        assert!(back.pending.iter().eq(pending.iter()));
        assert_eq!(back.exhausted, exhausted);
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let mut pending = Pending::default();
        pending.restore(5, 1, 3);
        let out = encoded(&pending, &[3_u64].into_iter().collect());
        for len in 0..out.len() {
            assert!(decode(&out[..len]).is_err());
        }
        for at in 0..out.len() {
            for bit in 0..8 {
                let mut bad = out.clone();
                bad[at] ^= 1 << bit;
                let _ = decode(&bad);
            }
        }
        assert!(matches!(decode(&[9]), Err(StateError::Version { version: 9, known: 1 })));
    }
}

//! The newest payloads in memory, for keepers that are a little behind and for the replicated directory.

use bytes::Bytes;
use nuthatch_quorum::types::Lsn;
use std::collections::VecDeque;

/// Bytes of payloads that a node keeps of all its logs together.
pub const RINGS_BYTES: usize = 64 << 20;

/// Payloads of the last entries of the log, dense.
#[derive(Debug)]
pub struct Ring {
    payloads: VecDeque<Bytes>,
    /// Number of the first.
    first: u64,
    bytes: usize,
    /// Bytes that are kept at most, but for a single payload that is longer.
    max: usize,
}

impl Ring {
    /// The ring of one of so many logs.
    #[must_use]
    pub fn of(logs: usize) -> Self {
        Self { payloads: VecDeque::new(), first: 0, bytes: 0, max: RINGS_BYTES / logs }
    }

    /// Adds the payload of an entry. Those behind it were cut off the log; with a gap the ring begins anew.
    pub fn push(&mut self, lsn: Lsn, payload: Bytes) {
        let end = self.first + self.payloads.len() as u64;
        if lsn.0 > end || lsn.0 < self.first || self.payloads.is_empty() {
            self.payloads.clear();
            (self.first, self.bytes) = (lsn.0, 0);
        }
        while self.first + self.payloads.len() as u64 > lsn.0 {
            self.bytes -= self.payloads.pop_back().map_or(0, |payload| payload.len());
        }
        self.bytes += payload.len();
        self.payloads.push_back(payload);
        while self.bytes > self.max && self.payloads.len() > 1 {
            self.bytes -= self.payloads.pop_front().map_or(0, |payload| payload.len());
            self.first += 1;
        }
    }

    /// The payload of an entry, if it is here.
    #[must_use]
    pub fn get(&self, lsn: Lsn) -> Option<&Bytes> {
        self.payloads.get(usize::try_from(lsn.0.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_payload_of_each_entry_is_kept() {
        let mut ring = Ring::of(2);
        for lsn in 5..10 {
            ring.push(Lsn(lsn), Bytes::from(vec![lsn as u8; 10]));
        }
        // Entries 7 to 9 were cut off.
        ring.push(Lsn(7), Bytes::from_static(b"seven"));
        assert_eq!(ring.get(Lsn(7)).map(|b| &b[..]), Some(&b"seven"[..]));
        assert_eq!(ring.get(Lsn(6)).map(|b| b.len()), Some(10));
        assert!(ring.get(Lsn(8)).is_none() && ring.get(Lsn(4)).is_none());
        assert_eq!(ring.bytes, 25);
        ring.push(Lsn(100), Bytes::from(vec![0; RINGS_BYTES / 2]));
        ring.push(Lsn(101), Bytes::from(vec![0; 2]));
        assert!(ring.get(Lsn(100)).is_none() && ring.get(Lsn(101)).is_some());
    }
}

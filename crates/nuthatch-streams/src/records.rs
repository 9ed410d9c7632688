//! The bodies of control records: versioned, little endian, checked before anything is allocated.
//!
//! Checksums are the frame's. `docs/records.md` describes every layout; a layout never changes, a
//! new one gets a new version number, and old numbers stay readable.

mod codec;
mod location;
#[cfg(test)]
mod tests;

pub use codec::{DecodeError, FieldReader, put_bytes, put_i64, put_u32, put_u64, put_u128};

pub use location::{StreamLocation, put_place, read_place};

use crate::sink::AccountId;
use nuthatch_log::StreamId;
use nuthatch_protocol::js::StreamConfig;

/// Version of every layout in this file that has no version of its own.
const VERSION: u8 = 1;
/// Version of [`StreamRecord`]: as 1, and deletes tell what the change made unneeded.
const STREAM_VERSION: u8 = 2;

/// Body of a `ConsumerDelete`: its version. Since version 1, deletes that follow name what no
/// consumer needs any more. Older ones are empty, and the replay finds out by itself.
pub const CONSUMER_DELETE_BODY: [u8; 1] = [1];

/// `StreamCreate` and `StreamUpdate`: account and configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct StreamRecord {
    /// Account.
    pub account: AccountId,
    /// Configuration.
    pub config: StreamConfig,
    /// True if `Delete` records tell what the change made unneeded under interest retention. Where
    /// they do not (version 1), a replay drops it with this record.
    pub drops_are_told: bool,
}

impl StreamRecord {
    /// Appends the body.
    pub fn encode(account: AccountId, config: &StreamConfig, out: &mut Vec<u8>) {
        out.push(STREAM_VERSION);
        put_u32(out, account.0);
        put_config(out, config);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::versioned(body, STREAM_VERSION)?;
        let drops_are_told = body[0] > VERSION;
        let account = AccountId(reader.u32()?);
        Ok(Self { account, config: read_config(&mut reader)?, drops_are_told })
    }
}

/// A configuration as JSON with its length.
pub fn put_config(out: &mut Vec<u8>, config: &StreamConfig) {
    // No maps with odd keys, no fallible impls. An empty one would be taken for damage at the next start.
    let json = serde_json::to_vec(config).expect("a configuration can be written");
    put_bytes(out, &json);
}

/// The reverse of [`put_config`].
///
/// # Errors
/// [`DecodeError`] if it ends early or is not a configuration.
pub fn read_config(reader: &mut FieldReader<'_>) -> Result<StreamConfig, DecodeError> {
    let json = reader.bytes()?;
    serde_json::from_slice(json).map_err(|error| DecodeError::Config { reason: error.to_string() })
}

/// Effect of an `Advance` besides using up a sequence. Persisted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvanceRollup {
    /// Nothing.
    None = 0,
    /// Clears the record's subject.
    Subject = 1,
    /// Clears the stream.
    All = 2,
}

/// `Advance`: a sequence used up with nothing stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance<'a> {
    /// Rollup header of the message.
    pub rollup: AdvanceRollup,
    /// Its id, empty if it had none.
    pub msg_id: &'a [u8],
}

impl<'a> Advance<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, self.rollup as u8]);
        out.extend_from_slice(self.msg_id);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::versioned(body, VERSION)?;
        let rollup = match reader.u8()? {
            0 => AdvanceRollup::None,
            1 => AdvanceRollup::Subject,
            2 => AdvanceRollup::All,
            _ => return Err(DecodeError::Damaged { what: "rollup" }),
        };
        Ok(Self { rollup, msg_id: reader.rest() })
    }
}

/// `BatchBegin`: the `count` records from the record's sequence on are one atomic batch: all of them
/// or none.
pub struct BatchBegin;

impl BatchBegin {
    /// Appends the body.
    pub fn encode(count: u32, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, count);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<u32, DecodeError> {
        FieldReader::versioned(body, VERSION)?.u32()
    }
}

/// `MoveOut`: where a stream is about to go; nowhere, if it stays after all.
pub struct MoveOut;

impl MoveOut {
    /// Appends the body.
    pub fn encode(to: Option<&StreamLocation>, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_place(to, out);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<Option<StreamLocation>, DecodeError> {
        read_place(&mut FieldReader::versioned(body, VERSION)?)
    }
}

/// `WriterTerm`: the term of the writer that has the stream for itself from this record on.
pub struct WriterTerm;

impl WriterTerm {
    /// Appends the body.
    pub fn encode(term: u64, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u64(out, term);
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<u64, DecodeError> {
        FieldReader::versioned(body, VERSION)?.u64()
    }
}

/// `Delete`: ranges of sequences, each first and last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Delete {
    /// Inclusive ranges.
    pub ranges: Vec<(u64, u64)>,
}

impl Delete {
    /// Adds a sequence, into the last range if it continues it.
    pub fn add(&mut self, seq: u64) {
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ => self.ranges.push((seq, seq)),
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, self.ranges.len() as u32);
        for &(first, last) in &self.ranges {
            put_u64(out, first);
            put_u64(out, last);
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::versioned(body, VERSION)?;
        let count = reader.count(16)?;
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push((reader.u64()?, reader.u64()?));
        }
        Ok(Self { ranges })
    }
}

/// Options of `STREAM.PURGE`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PurgeRequest {
    /// Only subjects that match; empty: all.
    pub filter: String,
    /// Up to but not including this sequence; 0: all.
    pub seq: u64,
    /// Keep this many of the newest; 0: none. Excludes `seq`.
    pub keep: u64,
}

/// `Purge`: the predicate. The record's sequence is the last one assigned when it was written.
pub struct Purge;

impl Purge {
    /// Appends the body.
    pub fn encode(request: &PurgeRequest, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u64(out, request.seq);
        put_u64(out, request.keep);
        put_bytes(out, request.filter.as_bytes());
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<PurgeRequest, DecodeError> {
        let mut reader = FieldReader::versioned(body, VERSION)?;
        let (seq, keep) = (reader.u64()?, reader.u64()?);
        let filter = String::from_utf8(reader.bytes()?.to_vec())
            .map_err(|_| DecodeError::Damaged { what: "purge filter" })?;
        Ok(PurgeRequest { filter, seq, keep })
    }
}

/// `LogState`: what the log itself must not forget.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LogState {
    /// No id at or above this one was ever used.
    pub next_id: StreamId,
    /// Streams that exist.
    pub live: Vec<StreamId>,
}

impl LogState {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, self.next_id.0);
        put_u32(out, self.live.len() as u32);
        for id in &self.live {
            put_u32(out, id.0);
        }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::versioned(body, VERSION)?;
        let next_id = StreamId(reader.u32()?);
        let count = reader.count(4)?;
        let mut live = Vec::with_capacity(count);
        for _ in 0..count {
            live.push(StreamId(reader.u32()?));
        }
        Ok(Self { next_id, live })
    }
}

//! State that a stream's surviving messages do not hold: the body of `StreamState` records and of
//! snapshots, and how a stream is recovered from it.

use super::dedup::Remembered;
use super::{MAX_WEIGHT_BYTES, Sourced, Stream};
use crate::records::{
    DecodeError, FieldReader, put_bytes, put_config, put_i64, put_u32, put_u64, put_u128,
    read_config,
};
use crate::rules::{STATE_DELETED, STATE_IDS};
use crate::sink::AccountId;
use nuthatch_log::{IndexedMessage, StreamId, Timestamp};
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;

/// Version of the layout. 2 added times to live, delete markers and sources at the end, 3 schedules,
/// 4 what the stream remembers of its moves, 5 wide gaps, sweeps
/// that are not done, and the writer's term.
const VERSION: u8 = 5;
/// Bytes of one wide gap.
const GAP_BYTES: usize = 8 + 8;
/// Sequences in a row that do not live are written as a gap from this number on: a bitmap takes
/// memory for each 65,536 of them.
pub(super) const GAP_MIN: u64 = 1 << 16;
/// Bytes of one time to live.
const TTL_BYTES: usize = 8 + 4;
/// Bytes of one schedule.
const SCHEDULE_BYTES: usize = 8 + 8;
/// Bytes of one remembered message id.
const REMEMBERED_BYTES: usize = 16 + 8 + 8;

/// Ranges of a state that a copy is compared with in one step: about a millisecond.
pub const LOOKED_AT_ONCE: usize = 16 * 1024;

/// What a comparison of a copy with a state has found so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Everything that the state says lives is there.
    Whole,
    /// So is everything below this sequence; there is more to look at.
    UpTo(u64),
    /// Of the sequences from the first to the second, which live, the copy lacks some.
    Lacks(u64, u64),
}

/// A stream while its messages are being indexed, with what decides which of them live.
#[derive(Debug)]
pub struct Recovering {
    /// Nothing below this sequence lives.
    floor: u64,
    /// Sequences from the floor to the last that do not live, but for `gaps`.
    deleted: RoaringTreemap,
    /// Wide ranges of such sequences, in order.
    gaps: Vec<(u64, u64)>,
    /// The last sequence that the state speaks of.
    last_seq: u64,
}

impl Recovering {
    /// The same, for those who look a log over.
    #[must_use]
    pub fn facts(&self, name: String) -> nuthatch_log::doctor::DecodedState {
        let mut deleted = self.gaps.clone();
        let mut alone: Vec<(u64, u64)> = Vec::new();
        for seq in &self.deleted {
            match alone.last_mut() {
                Some((_, last)) if *last + 1 == seq => *last = seq,
                _ => alone.push((seq, seq)),
            }
        }
        deleted.append(&mut alone);
        deleted.sort_unstable();
        let (floor, next) = (self.floor, self.last_seq + 1);
        nuthatch_log::doctor::DecodedState { name, floor, next, deleted }
    }

    /// Calls `visit(first, last)` for ranges of sequences from `from` on that live, in order, until
    /// it says stop.
    pub(super) fn each_live_range(&self, from: u64, mut visit: impl FnMut(u64, u64) -> bool) {
        let mut at = self.floor.max(1).max(from);
        let passed = self.gaps.partition_point(|&(_, last)| last < at);
        let mut gaps = self.gaps[passed..].iter().copied().peekable();
        let mut alone = self.deleted.iter();
        alone.advance_to(at);
        let mut alone = alone.map(|seq| (seq, seq)).peekable();
        loop {
            let first_of = |hole: Option<&(u64, u64)>| hole.map_or(u64::MAX, |(first, _)| *first);
            let next = match first_of(gaps.peek()) < first_of(alone.peek()) {
                true => gaps.next(),
                false => alone.next(),
            };
            let end = next.map_or(self.last_seq + 1, |(first, _)| first);
            if at < end && !visit(at, end - 1) {
                return;
            }
            let Some((_, last)) = next else { return };
            at = at.max(last + 1);
        }
    }

    fn is_deleted(&self, seq: u64) -> bool {
        let after = self.gaps.partition_point(|&(first, _)| first <= seq);
        let in_gap = after.checked_sub(1).is_some_and(|at| seq <= self.gaps[at].1);
        (in_gap || self.deleted.contains(seq)) && STATE_DELETED.holds()
    }
}

/// A decoded state: the stream without messages, and its consumers' encodings.
pub struct StreamSnapshot<'a> {
    /// The stream.
    pub stream: Stream,
    /// Which messages live.
    pub recovering: Recovering,
    /// Encodings of its consumers.
    pub consumers: Vec<&'a [u8]>,
}

impl Stream {
    /// Appends everything about the stream as of now (assigned state), with its consumers.
    pub fn encode_state<'c>(&self, consumers: impl Iterator<Item = &'c [u8]>, out: &mut Vec<u8>) {
        out.push(VERSION);
        put_u32(out, self.account.0);
        put_config(out, &self.config);
        put_i64(out, self.created.0);
        put_u64(out, self.contents.assigned_totals().last_seq + 1);
        put_i64(out, self.contents.assigned_totals().last_at.0);
        put_u64(out, self.contents.messages().first_kept());
        let (deleted, gaps) = self.contents.deleted_sequences();
        put_bytes(out, &deleted);
        put_u64(out, self.unwritten.expired_through());
        put_bytes(out, &self.last_msg_id);
        put_u32(out, self.dedup.len() as u32);
        for id in self.dedup.iter() {
            put_u128(out, id.hash);
            put_u64(out, id.seq);
            put_i64(out, id.at.0);
        }
        let consumers: Vec<&[u8]> = consumers.collect();
        put_u32(out, consumers.len() as u32);
        for consumer in consumers {
            put_bytes(out, consumer);
        }
        let ttls = self.contents.timers().sorted();
        put_u32(out, ttls.len() as u32);
        for (seq, ttl_s) in ttls {
            put_u64(out, seq);
            put_u32(out, ttl_s);
        }
        let mut markers = Vec::new();
        let written = self.contents.timers().markers().serialize_into(&mut markers);
        written.expect("writing to memory does not fail");
        put_bytes(out, &markers);
        self.sourced.encode(out);
        let schedules = self.contents.schedules().sorted();
        put_u32(out, schedules.len() as u32);
        for (seq, due) in schedules {
            put_u64(out, seq);
            put_i64(out, due.0);
        }
        self.provenance.encode(out);
        put_u32(out, gaps.len() as u32);
        for (first, last) in gaps {
            put_u64(out, first);
            put_u64(out, last);
        }
        put_u64(out, self.unwritten.unswept());
        put_u64(out, self.writer_term);
    }

    /// As [`Stream::encode_state`] for a stream of which nothing is known but its messages: any of
    /// them up to `last` may live.
    pub fn encode_as_of(&mut self, last: u64, out: &mut Vec<u8>) {
        self.contents.assume_last(last);
        self.encode_state(std::iter::empty(), out);
    }

    /// Reads what [`Stream::encode_state`] wrote.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub fn decode_state(
        id: StreamId,
        body: &[u8],
        hash_seed: u64,
    ) -> Result<StreamSnapshot<'_>, DecodeError> {
        let mut reader = FieldReader::versioned(body, VERSION)?;
        let account = AccountId(reader.u32()?);
        let config = read_config(&mut reader)?;
        let created = Timestamp(reader.i64()?);
        let mut stream = Self::new(id, account, Box::new(config), created, hash_seed);
        let next = reader.u64()?.max(1);
        let last_at = Timestamp(reader.i64()?);
        let floor = reader.u64()?;
        stream.contents.begin(floor, next, last_at);
        let deleted = RoaringTreemap::deserialize_from(reader.bytes()?)
            .map_err(|_| DecodeError::Damaged { what: "delete bitmap" })?;
        stream.unwritten.expiry_logged(reader.u64()?);
        stream.last_msg_id = reader.bytes()?.to_vec();
        for _ in 0..reader.count(REMEMBERED_BYTES)? {
            let (hash, seq) = (reader.u128()?, reader.u64()?);
            let remembered = Remembered { hash, seq, at: Timestamp(reader.i64()?) };
            if STATE_IDS.holds() {
                stream.dedup.remember(remembered);
            }
        }
        let count = reader.count(4)?;
        let mut consumers = Vec::with_capacity(count);
        for _ in 0..count {
            consumers.push(reader.bytes()?);
        }
        if body.first().is_some_and(|&version| version >= 2) {
            stream.read_timers(&mut reader)?;
        }
        if body.first().is_some_and(|&version| version >= 3) {
            stream.read_schedules(&mut reader)?;
        }
        if body.first().is_some_and(|&version| version >= 4) {
            stream.provenance = super::Provenance::decode(&mut reader)?;
        }
        let mut gaps = Vec::new();
        if body.first().is_some_and(|&version| version >= 5) {
            gaps = read_gaps(&mut reader)?;
            stream.unwritten.set_unswept(reader.u64()?);
            stream.set_writer_term(reader.u64()?);
        }
        let recovering = Recovering { floor, deleted, gaps, last_seq: next - 1 };
        Ok(StreamSnapshot { stream, recovering, consumers })
    }

    fn read_timers(&mut self, reader: &mut FieldReader<'_>) -> Result<(), DecodeError> {
        let mut ttls = FxHashMap::default();
        for _ in 0..reader.count(TTL_BYTES)? {
            let seq = reader.u64()?;
            ttls.insert(seq, reader.u32()?);
        }
        let markers = RoaringTreemap::deserialize_from(reader.bytes()?)
            .map_err(|_| DecodeError::Damaged { what: "delete markers" })?;
        self.contents.timers_mut().restore(ttls, markers);
        self.sourced = Sourced::decode(reader)?;
        Ok(())
    }

    fn read_schedules(&mut self, reader: &mut FieldReader<'_>) -> Result<(), DecodeError> {
        let mut due = FxHashMap::default();
        for _ in 0..reader.count(SCHEDULE_BYTES)? {
            let seq = reader.u64()?;
            due.insert(seq, Timestamp(reader.i64()?));
        }
        self.contents.schedules_mut().restore(due);
        Ok(())
    }

    /// Recovery: indexes a message that the state speaks of, if it lives.
    pub fn reindex(&mut self, message: &IndexedMessage<'_>, recovering: &Recovering) {
        let seq = message.seq.0;
        let lives = seq >= recovering.floor
            && seq <= recovering.last_seq
            && seq >= self.contents.messages().next()
            && !recovering.is_deleted(seq);
        if lives && message.weight as usize <= MAX_WEIGHT_BYTES {
            self.contents.reindex(message);
        }
    }

    /// Recovery: every message that the state speaks of has been indexed.
    pub fn reindexed(&mut self, recovering: &Recovering) {
        self.contents.reindexed(recovering.last_seq);
    }
}

/// Reads gaps, which must be in order.
fn read_gaps(reader: &mut FieldReader<'_>) -> Result<Vec<(u64, u64)>, DecodeError> {
    let (mut gaps, mut after) = (Vec::new(), 0);
    for _ in 0..reader.count(GAP_BYTES)? {
        let (first, last) = (reader.u64()?, reader.u64()?);
        if first < after || last < first || last == u64::MAX {
            return Err(DecodeError::Damaged { what: "gaps" });
        }
        after = last + 1;
        gaps.push((first, last));
    }
    Ok(gaps)
}

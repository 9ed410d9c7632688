//! Messages of other streams: a mirror takes them over with sequence and time, a stream with
//! sources gives them sequences of its own and remembers how far it has come with each source.
//!
//! How far that is follows from the `Nats-Stream-Source` header of what was stored, live and on
//! replay, so a message is sourced exactly once whatever happens in between.

use super::admit::{Admitted, Effects, Publish, Refusal, refusal};
use super::contents::When;
use super::dedup::hash_id;
use super::headers::{NO_HEADERS, PublishHeaders, scan};
use super::identity::names_same;
use super::messages::{Entry, MAX_WEIGHT_BYTES};
use super::{LAST_SEQ_MAX, Stream};
use crate::budget::Budget;
use crate::records::{
    Advance, AdvanceRollup, DecodeError, FieldReader, put_bytes, put_u32, put_u64,
};
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, Timestamp, Urgency};
use nuthatch_protocol::js::{RetentionPolicy, Time};
use nuthatch_protocol::jserror::JsError;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A message as mirrors and sources hand it on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Its sequence in its origin.
    pub seq: u64,
    /// When it was stored there.
    pub time: Time,
    /// Subject.
    pub subject: Vec<u8>,
    /// Header block, empty if none.
    pub headers: Vec<u8>,
    /// Payload.
    pub body: Vec<u8>,
}

impl Replica {
    /// As a publish.
    #[must_use]
    pub fn publish(&self) -> Publish<'_> {
        Publish { subject: &self.subject, reply: b"", headers: &self.headers, body: &self.body }
    }
}

/// How far a stream has come with its sources: the sequence of the last message of each, by the
/// source's key. It only grows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sourced {
    last: BTreeMap<Box<[u8]>, u64>,
}

impl Sourced {
    /// The sequence of the last message that came from a source; 0 if none did. Its origin may have been
    /// named another way then.
    #[must_use]
    pub fn last(&self, key: &[u8]) -> u64 {
        let (source, origin) = split_key(key);
        let of_source = self.last.range::<[u8], _>((Bound::Included(source), Bound::Unbounded));
        let of_source = of_source.take_while(|(known, _)| known.starts_with(source));
        let same = of_source.filter(|(known, _)| names_same(split_key(known).1, origin));
        same.map(|(_, &seq)| seq).max().unwrap_or(0)
    }

    /// A message with this header was stored.
    pub(super) fn note(&mut self, header: &[u8]) {
        if !header.is_empty()
            && let Some((key, seq)) = read_source(header)
        {
            self.come_to(key, seq);
        }
    }

    fn come_to(&mut self, key: Box<[u8]>, seq: u64) {
        let last = self.last.entry(key).or_insert(0);
        *last = seq.max(*last);
    }

    /// True if a message with this header was stored before.
    fn has(&self, header: &[u8]) -> bool {
        let is_past =
            |(key, seq): (Box<[u8]>, u64)| self.last.get(&key).is_some_and(|last| seq <= *last);
        read_source(header).is_some_and(is_past)
    }

    /// Appends it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.last.len() as u32);
        for (key, &seq) in &self.last {
            put_bytes(out, key);
            put_u64(out, seq);
        }
    }

    /// The reverse of [`Sourced::encode`].
    ///
    /// # Errors
    /// [`DecodeError`] if it is not understood.
    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Result<Self, DecodeError> {
        let mut sourced = Self::default();
        for _ in 0..reader.count(SOURCED_BYTES_MIN)? {
            let key = reader.bytes()?.into();
            sourced.come_to(key, reader.u64()?);
        }
        Ok(sourced)
    }
}

/// A source's key, up to its origin, and that.
fn split_key(key: &[u8]) -> (&[u8], &[u8]) {
    let end = key.iter().rposition(|&byte| byte == b' ').map_or(0, |at| at + 1);
    key.split_at(end)
}

/// Bytes of one source's position, at least.
const SOURCED_BYTES_MIN: usize = 4 + 8;

/// The key of a source and the sequence in a `Nats-Stream-Source` header
/// `<stream> <sequence> <filters> <destinations> <subject> <origin>`, where the last part tells
/// apart streams of one name that were there one after the other. The key is
/// `<stream> <filters> <destinations> <origin>`.
#[must_use]
pub fn read_source(header: &[u8]) -> Option<(Box<[u8]>, u64)> {
    let fields: Vec<&[u8]> = header.split(|&b| b == b' ').collect();
    let (stream, seq) = (fields.first()?, fields.get(1)?);
    let seq = std::str::from_utf8(seq).ok()?.parse().ok()?;
    let field = |at: usize, or: &'static [u8]| fields.get(at).copied().unwrap_or(or);
    let key = [*stream, field(2, b">"), field(3, b">"), field(5, b"")];
    Some((key.join(&b' ').into_boxed_slice(), seq))
}

impl Stream {
    /// How far it has come with its sources.
    #[must_use]
    pub const fn sourced(&self) -> &Sourced {
        &self.sourced
    }

    /// A mirror takes over a message of its origin, with sequence and time. Those that it has are
    /// passed over. Returns the frame.
    ///
    /// # Errors
    /// Why the log or a limit refuses it.
    pub fn mirror<L: LogAccess>(
        &mut self,
        copy: &Replica,
        log: &mut L,
        budget: &Budget,
    ) -> Result<Option<Lsn>, Refusal> {
        if copy.seq < self.contents.messages().next() {
            return Ok(None);
        }
        check_sequence(copy.seq)?;
        let publish = copy.publish();
        let weight = publish.weight();
        if weight > MAX_WEIGHT_BYTES {
            return Err(JsError::STREAM_STORE_FAILED.with_err("message too large"));
        }
        self.check_budget(&publish, budget)?;
        let at = Timestamp(copy.time.0).max(self.contents.assigned_totals().last_at);
        let record = RecordRef {
            kind: RecordKind::Message,
            stream: self.id,
            seq: Seq(copy.seq),
            timestamp: at,
            subject: publish.subject,
            headers: publish.headers,
            body: publish.body,
        };
        let lsn = log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn;
        self.contents.mark_before(lsn);
        self.contents.skip_to(copy.seq);
        let effects = self.copied_effects(&publish, at);
        let subject = self.contents.intern(publish.subject);
        let entry = Entry::new(subject, weight, !publish.headers.is_empty(), at);
        self.routes.stored(copy.seq, subject, &mut self.contents);
        if !publish.headers.is_empty() {
            self.sourced.note(scan(publish.headers).source);
        }
        self.add(publish.subject, entry, &effects, When::Committed(lsn));
        Ok(Some(lsn))
    }

    /// Effects of the headers of a copied message; the origin has checked them.
    fn copied_effects<'a>(&mut self, publish: &Publish<'a>, at: Timestamp) -> Effects<'a> {
        if publish.headers.is_empty() {
            return Effects::default();
        }
        let found = scan(publish.headers);
        let mut effects = self.replayed_effects(found.msg_id, found.rollup, at);
        effects.set_times(&found, &self.limits);
        effects.set_schedule(publish.headers, &found, &self.limits);
        effects
    }

    fn check_budget(&self, publish: &Publish<'_>, budget: &Budget) -> Result<(), Refusal> {
        let weight = publish.weight() as u64;
        if !budget.has_room_for_bytes(self.unaccounted_bytes(), weight) {
            return Err(JsError::INSUFFICIENT_RESOURCES);
        }
        if !budget.account_has_room(self.account, self.unaccounted_bytes(), weight) {
            return Err(JsError::ACCOUNT_RESOURCES_EXCEEDED);
        }
        match self.contents.subjects().find(publish.subject) {
            Some(_) => Ok(()),
            None => self.check_new_subject(publish.subject, 0, budget),
        }
    }

    /// A mirror's origin has nothing up to `seq` any more: neither has the mirror. Returns the
    /// frame.
    ///
    /// # Errors
    /// Why the log refuses it.
    pub fn mirror_gap<L: LogAccess>(
        &mut self,
        seq: u64,
        log: &mut L,
    ) -> Result<Option<Lsn>, Refusal> {
        if seq < self.contents.messages().next() {
            return Ok(None);
        }
        check_sequence(seq)?;
        let mut body = Vec::new();
        Advance { rollup: AdvanceRollup::None, msg_id: b"" }.encode(&mut body);
        // Its times are those of the origin.
        let at = self.contents.assigned_totals().last_at;
        let record = RecordRef {
            kind: RecordKind::Advance,
            stream: self.id,
            seq: Seq(seq),
            timestamp: at,
            subject: b"",
            headers: b"",
            body: &body,
        };
        let lsn = log.append(&record, Urgency::Awaited, false).map_err(refusal)?.lsn;
        self.contents.mark_before(lsn);
        self.advance(b"", &Effects::default(), seq, at, When::Committed(lsn));
        Ok(Some(lsn))
    }

    /// Stores a message of a source, whose `Nats-Stream-Source` header says which it is; one that is
    /// there already, by that header or by its message id, is passed over. Returns the frame.
    ///
    /// # Errors
    /// Why the log or a limit refuses it.
    pub fn source<L: LogAccess>(
        &mut self,
        copy: &Replica,
        log: &mut L,
        budget: &Budget,
        interested: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<Lsn>, Refusal> {
        let publish = copy.publish();
        let found = if publish.headers.is_empty() { NO_HEADERS } else { scan(publish.headers) };
        let now = log.now().max(self.contents.assigned_totals().last_at);
        if self.sourced.has(found.source) || self.is_known_id(&found, now) {
            self.sourced.note(found.source);
            return Ok(None);
        }
        self.check_own_size(&publish)?;
        let effects = self.copied_effects(&publish, now);
        let admitted = if self.limits.counter {
            self.store_counted(&publish, &found, &effects, now, log, budget)?
        } else if self.limits.retention == RetentionPolicy::Interest && !interested(publish.subject)
        {
            self.skip(&publish, &effects, now, log)?
        } else {
            if self.limits.discard_new {
                self.check_room(&publish, &effects)?;
            }
            self.store(&publish, &effects, now, log, budget)?
        };
        self.sourced.note(found.source);
        Ok(match admitted {
            Admitted::Sequenced { lsn, .. } => Some(lsn),
            Admitted::Duplicate { .. } => None,
        })
    }

    fn is_known_id(&mut self, found: &PublishHeaders<'_>, now: Timestamp) -> bool {
        if found.msg_id.is_empty() {
            return false;
        }
        self.dedup.sweep(now, self.limits.window_ns);
        self.dedup.find(hash_id(found.msg_id)).is_some()
    }
}

/// Sequences given by another server, or by a client that restores, are accepted as long as the
/// stream does not run out of them.
fn check_sequence(seq: u64) -> Result<(), Refusal> {
    if seq > LAST_SEQ_MAX {
        return Err(JsError::STREAM_STORE_FAILED.with_err("sequence too far ahead"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::stream_identity;

    #[test]
    fn a_source_is_followed_by_name_filter_and_origin_and_never_back() {
        let mut sourced = Sourced::default();
        sourced.note(b"A 7 > > a.x");
        sourced.note(b"A 3 > > a.y");
        sourced.note(b"");
        sourced.note(b"not a source");
        assert!(sourced.has(b"A 7 > > a.z") && !sourced.has(b"A 8 > > a.z"));
        assert!(!sourced.has(b"A 1 other > a.z"));
        let (key, _) = read_source(b"A 7 > > a.x").expect("a source");
        assert_eq!((sourced.last(&key), sourced.last(b"none")), (7, 0));
        let moment = 1_700_000_000_123_456_789;
        sourced.note(format!("B 4 > > b {moment}").as_bytes());
        sourced.note(format!("B 6 > > b {}", stream_identity(Time(moment))).as_bytes());
        sourced.note(b"B 9 > > b 1700000000123456788");
        assert_eq!(sourced.last(format!("B > > {moment}").as_bytes()), 6, "by either name");
        assert_eq!(sourced.last(b"B > > "), 0, "one without a name is another");
        let mut out = Vec::new();
        sourced.encode(&mut out);
        assert_eq!(Sourced::decode(&mut FieldReader::new(&out)), Ok(sourced));
    }
}

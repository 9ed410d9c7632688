//! Reading streams for others, and storing what was read: what mirrors and sources are made of.
//!
//! A reader asks for what comes from a sequence on and is answered once there is something; until
//! then its question is parked with the stream and costs nothing.

use super::Engine;
use super::outputs::Done;
use super::reads::{ParkedRead, ReadEnv, unreadable};
use crate::index::MessageIndex;
use crate::op::{OpOutcome, Range, RangeRequest, Replica, Respond};
use crate::rules::MISSING_IS_DAMAGE;
use crate::sink::Sink;
use crate::stream::wire_time;
use nuthatch_log::{LogAccess, Lsn, Read, Seq, StreamId, Timestamp};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;

/// Messages in one answer.
const RANGE_MESSAGES_MAX: usize = 1024;
/// Bytes in one answer, about.
const RANGE_BYTES_MAX: usize = 4 << 20;
/// Messages passed over in one go because they do not match.
const RANGE_LOOKS_MAX: u64 = 64 * 1024;

/// A reader's question that waits.
pub(super) struct RangeRead {
    request: RangeRequest,
    range: Range,
    bytes: usize,
    pub(super) respond: Respond,
}

impl<S: Sink> Engine<S> {
    pub(super) fn read_range<L: LogAccess>(
        &mut self,
        id: StreamId,
        mut request: RangeRequest,
        respond: Respond,
        log: &mut L,
    ) {
        let slot = match self.streams.live(id) {
            Ok(slot) => slot,
            Err(error) => return respond(Err(error)),
        };
        if let Some(at) = request.start_time.take() {
            request.from = request.from.max(slot.stream.contents().seq_at(Timestamp(at.0)).0);
        }
        let range = Range { next: request.from.max(1), ..Range::default() };
        let read = RangeRead { request, range, bytes: 0, respond };
        self.start_read(id, ParkedRead::Range(Box::new(read)), log);
    }

    /// Stores what a mirror or a source has read.
    pub(super) fn store_copies<L: LogAccess>(
        &mut self,
        id: StreamId,
        copies: &[Replica],
        gap_to: Option<u64>,
        mirrors: bool,
        log: &mut L,
    ) -> Done {
        if mirrors && !self.streams.live(id)?.takes_copies() {
            return Err(JsError::BAD_REQUEST);
        }
        if let Some(slot) = self.streams.get_mut(id) {
            slot.log_releases(log)?;
        }
        let (mut newest, mut problem) = (None, None);
        for copy in copies {
            match self.store_copy(id, copy, mirrors, log) {
                Ok(lsn) => newest = lsn.or(newest),
                Err(error) => {
                    problem = Some(error);
                    break;
                }
            }
        }
        if problem.is_none()
            && let Some(seq) = gap_to
        {
            newest = self.streams.live(id)?.stream.mirror_gap(seq, log)?.or(newest);
        }
        if let Some(lsn) = newest {
            self.streams.changed(id, lsn);
        }
        self.streams.schedule(id);
        match problem {
            None => Ok((newest, OpOutcome::Done)),
            Some(error) => Err(error),
        }
    }

    fn store_copy<L: LogAccess>(
        &mut self,
        id: StreamId,
        copy: &Replica,
        mirrors: bool,
        log: &mut L,
    ) -> Result<Option<Lsn>, JsError> {
        let mut mapped = std::mem::take(&mut self.scratch.subject);
        let slot = self.streams.get(id);
        let is_mapped =
            slot.is_some_and(|slot| slot.stream.routes().map(&copy.subject, &mut mapped, log));
        let own;
        let copy = if is_mapped {
            own = Replica { subject: mapped.clone(), ..copy.clone() };
            &own
        } else {
            copy
        };
        self.scratch.subject = mapped;
        if let Some(slot) = self.streams.get_mut(id)
            && slot.stream.must_log_releases(&copy.publish())
        {
            slot.log_releases(log)?;
        }
        let (slot, ledger) = self.streams.live_entry(id)?;
        let budget = ledger.budget();
        let (stream, consumers) = (&mut slot.stream, &slot.consumers);
        let lsn = if mirrors {
            stream.mirror(copy, log, budget)?
        } else {
            stream.source(copy, log, budget, |subject| consumers.any_wants(subject))?
        };
        if let Some(lsn) = lsn {
            ledger.stored(slot, lsn);
        }
        Ok(lsn)
    }
}

impl RangeRead {
    /// Answers a reader, or gives its question back if it must wait.
    pub(super) fn answer<S: Sink, L: LogAccess>(
        mut self: Box<Self>,
        env: &mut ReadEnv<'_, S, L>,
    ) -> Option<Box<Self>> {
        let (stream, id) = (&*env.stream, env.stream.id());
        let last = stream.contents().last().0;
        let mut looks = 0;
        while self.range.next <= last {
            let full = self.range.messages.len() >= RANGE_MESSAGES_MAX
                || self.bytes >= RANGE_BYTES_MAX
                || looks >= RANGE_LOOKS_MAX;
            if full {
                break;
            }
            let Some(seq) = stream.contents().next_live(Seq(self.range.next)) else {
                self.range.next = last + 1;
                break;
            };
            looks += 1;
            let subject = stream
                .contents()
                .get(seq)
                .map_or(&b""[..], |meta| stream.contents().subject_name(meta.subject));
            if self.wants(subject) {
                match env.log.read(id, seq) {
                    Read::Pending => return Some(self),
                    Read::Ready(stored) => self.take(&stored.record),
                    Read::Missing if MISSING_IS_DAMAGE.holds() => {
                        (self.respond)(Err(unreadable(seq)));
                        env.out.note_missing(stream, seq, env.log);
                        return None;
                    }
                    Read::Missing => {}
                    // A copy with a hole would look like a whole one.
                    Read::Damaged | Read::Failing => {
                        let why = format!("message {seq} of the origin can not be read");
                        (self.respond)(Err(JsError::STREAM_STORE_FAILED.with_err(why)));
                        return None;
                    }
                }
            }
            self.range.next = seq.0 + 1;
        }
        if self.range.next <= self.request.from.max(1) && self.request.wait {
            return Some(self);
        }
        self.range.last_seq = last;
        (self.respond)(Ok(OpOutcome::Range(self.range)));
        None
    }

    fn wants(&self, literal: &[u8]) -> bool {
        let filters = &self.request.filters;
        filters.is_empty() || filters.iter().any(|f| subject::matches(f.as_bytes(), literal))
    }

    fn take(&mut self, record: &nuthatch_log::RecordRef<'_>) {
        self.bytes += record.weight();
        self.range.messages.push(Replica {
            seq: record.seq.0,
            time: wire_time(record.timestamp),
            subject: record.subject.to_vec(),
            headers: record.headers.to_vec(),
            body: record.body.to_vec(),
        });
    }
}

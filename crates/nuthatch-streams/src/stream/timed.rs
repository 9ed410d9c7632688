//! Streams whose messages have times of their own (ADR-43): expiry message by message, and the
//! markers that the last message of a subject leaves.
//!
//! Such an expiry takes no prefix, so it does not commute with limits: it is logged the moment it
//! takes effect, as deletes, before anything else of the stream. A marker is a message like any
//! other; its rollup header removes what expired.

use super::Stream;
use super::admit::{Effects, Publish};
use super::headers::{PublishHeaders, Rollup, Ttl};
use super::limits::Limits;
use super::scheduled::with_rollup;
use crate::budget::Budget;
use crate::records::Delete;
use nuthatch_log::{LogAccess, Lsn, RecordKind, RecordRef, Seq, Timestamp, Urgency};
use nuthatch_protocol::headers;

/// Result of an expiry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expired {
    /// Messages that went.
    pub messages: u64,
    /// The newest frame with a marker or deletes in it.
    pub lsn: Option<Lsn>,
    /// What went and the log had no room to be told of: to be logged before anything else.
    pub unlogged: Delete,
}

/// The header block of a publish as it is stored, where the stream changes it: a time to live that is
/// shorter than that of delete markers is raised to it, because a marker must outlive what it marks;
/// a schedule takes the place of the one before; `Nats-Request-Info` goes. `None`: it stays as it is.
#[must_use]
pub fn rewritten(block: &[u8], found: &PublishHeaders<'_>, limits: &Limits) -> Option<Vec<u8>> {
    let mut changed = with_rollup(block, found, limits);
    if found.request_info {
        headers::remove(changed.get_or_insert_with(|| block.to_vec()), b"Nats-Request-Info");
    }
    if let Ttl::Seconds(ttl_s) = found.ttl
        && limits.ttl
        && ttl_s < limits.marker_ttl_s
        && limits.per_subject != 1
    {
        let block = changed.get_or_insert_with(|| block.to_vec());
        headers::remove(block, b"Nats-TTL");
        headers::append(block, b"Nats-TTL", limits.marker_ttl_s.to_string().as_bytes());
    }
    changed
}

impl Stream {
    /// True if messages expire one by one.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        !self.contents.timers().is_empty() || self.limits.marker_ttl_s > 0
    }

    /// When the next message goes by its own time or by age; possibly earlier than it really does.
    pub(super) fn next_timed(&self) -> Option<Timestamp> {
        let own = self.contents.timers().next();
        let by_age = (self.limits.age_ns > 0)
            .then(|| self.contents.messages().next_kept(self.age_cursor))
            .flatten()
            .and_then(|seq| self.contents.messages().get(seq))
            .map(|entry| entry.timestamp.plus_nanos(self.limits.age_ns));
        own.into_iter().chain(by_age).min()
    }

    /// Messages whose time is over, in order. Each is given once.
    fn due(&mut self, now: Timestamp) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(seq) = self.contents.timers_mut().pop(now) {
            due.push(seq);
        }
        if self.limits.age_ns > 0 {
            while let Some(seq) = self.contents.messages().next_kept(self.age_cursor)
                && let Some(entry) = self.contents.messages().get(seq)
                && entry.timestamp.plus_nanos(self.limits.age_ns) <= now
            {
                if !self.contents.timers().is_never(seq) {
                    due.push(seq);
                }
                self.age_cursor = seq + 1;
            }
        }
        due.sort_unstable();
        due.dedup();
        due
    }

    /// Removes what has expired at `now`, and logs it. `dead` is told of what is gone at once.
    pub fn expire_timed<L: LogAccess>(&mut self, log: &mut L, budget: &Budget) -> Expired {
        let now = log.now();
        if self.next_timed().is_none_or(|at| at > now) {
            return Expired::default();
        }
        let mut deletes = Delete::default();
        let (mut gone, mut last_of_subject) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for seq in self.due(now) {
            let Some(entry) = self.contents.messages().get_kept(seq) else { continue };
            let is_last = self.contents.subjects().kept(entry.subject) == 1;
            if is_last && self.limits.marker_ttl_s > 0 && !self.contents.timers().is_marker(seq) {
                last_of_subject.push(seq);
            } else if self.contents.remove_now(seq).is_some() {
                gone.push((Seq(seq), entry.weight()));
                bytes += self.limits.counted_bytes(entry.weight(), entry.has_headers());
                deletes.add(seq);
            }
        }
        let mut expired = Expired { messages: gone.len() as u64, ..Expired::default() };
        for (seq, weight) in gone {
            log.dead(self.id, seq, weight);
        }
        if !deletes.ranges.is_empty() {
            expired.lsn = self.log_deletes(&deletes, log);
            if expired.lsn.is_none() {
                self.unwritten.release(expired.messages, bytes);
                expired.unlogged = deletes;
            }
        }
        for seq in last_of_subject {
            expired.messages += 1;
            expired.lsn =
                self.mark_subject(seq, &mut expired.unlogged, log, budget).or(expired.lsn);
        }
        expired
    }

    /// `None`: there was no room for the record.
    fn log_deletes<L: LogAccess>(&mut self, deletes: &Delete, log: &mut L) -> Option<Lsn> {
        let mut body = Vec::new();
        deletes.encode(&mut body);
        let record = RecordRef {
            kind: RecordKind::Delete,
            stream: self.id,
            seq: Seq(0),
            timestamp: log.now(),
            subject: b"",
            headers: b"",
            body: &body,
        };
        let lsn = log.append(&record, Urgency::Lazy, true).ok()?.lsn;
        self.contents.mark_before(lsn);
        Some(lsn)
    }

    /// Puts a delete marker in the place of the last message of its subject. Where it cannot be
    /// stored, the message just goes.
    fn mark_subject<L: LogAccess>(
        &mut self,
        seq: u64,
        unlogged: &mut Delete,
        log: &mut L,
        budget: &Budget,
    ) -> Option<Lsn> {
        let entry = self.contents.messages().get_kept(seq)?;
        let subject = self.contents.subjects().name(entry.subject).to_vec();
        let ttl_s = self.limits.marker_ttl_s;
        let ttl = nuthatch_protocol::duration::format_go(i64::from(ttl_s) * 1_000_000_000);
        let block = format!(
            "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {ttl}\r\nNats-Rollup: sub\r\n\r\n"
        );
        let marker =
            Publish { subject: &subject, reply: b"", headers: block.as_bytes(), body: b"" };
        let effects =
            Effects { rollup: Some(Rollup::Subject), ttl_s, is_marker: true, ..Effects::default() };
        let now = log.now().max(self.contents.assigned_totals().last_at);
        match self.store(&marker, &effects, now, log, budget) {
            Ok(super::Admitted::Sequenced { lsn, .. }) => Some(lsn),
            _ => {
                let entry = self.contents.remove_now(seq)?;
                log.dead(self.id, Seq(seq), entry.weight());
                let mut deletes = Delete::default();
                deletes.add(seq);
                let lsn = self.log_deletes(&deletes, log);
                if lsn.is_none() {
                    let (weight, has_headers) = (entry.weight(), entry.has_headers());
                    self.unwritten.release(1, self.limits.counted_bytes(weight, has_headers));
                    unlogged.ranges.append(&mut deletes.ranges);
                }
                lsn
            }
        }
    }
}

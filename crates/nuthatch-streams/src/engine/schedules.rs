//! Schedules that are due (ADR-51): what each makes is stored like a publish of the server's own.
//!
//! They are called by the stream's deadline, so one that is not due costs nothing. What is not in
//! memory is read first; what has not committed is not acted on. A schedule that was due while the
//! server was down is due once when it is up again.

use super::Engine;
use crate::sink::Sink;
use crate::stream::{Admitted, Lookup, Made, Publish, rewritten, scan};
use nuthatch_log::{LogAccess, Read, Seq, StreamId, Timestamp};
use nuthatch_protocol::jserror::JsError;

/// Schedules of a stream that are looked at in one go; the others follow at once.
const AT_ONCE_MAX: usize = 256;
/// When what a schedule makes can not be stored or read, it is tried again after this, ns.
const RETRY_NS: i64 = 10_000_000_000;

/// Result of a schedule that was due.
enum Outcome {
    Done,
    /// A read or a commit comes first.
    Waits,
    /// Not now.
    Failed,
    /// It is no schedule.
    Nothing,
}

impl<S: Sink> Engine<S> {
    /// Makes what is due.
    pub(super) fn run_schedules<L: LogAccess>(&mut self, id: StreamId, log: &mut L) {
        let now = log.now();
        let is_stopped = self.out.has_failed();
        let Some(slot) = self.streams.get_mut(id) else { return };
        if slot.schedules_wait
            || slot.stream.contents().schedules().next().is_none_or(|at| at > now)
        {
            return;
        }
        if is_stopped || slot.deleting || slot.stream.contents().is_jumping() {
            slot.schedules_wait = true;
            return;
        }
        for (seq, due) in slot.stream.contents().schedules().due(now, AT_ONCE_MAX) {
            let outcome = self.run_schedule(id, Seq(seq), due, log);
            let Some(slot) = self.streams.get_mut(id) else { return };
            match outcome {
                Outcome::Done => {}
                Outcome::Waits => slot.schedules_wait = true,
                Outcome::Failed => slot
                    .stream
                    .contents_mut()
                    .schedules_mut()
                    .put_off(seq, now.plus_nanos(RETRY_NS)),
                Outcome::Nothing => slot.stream.contents_mut().schedules_mut().remove(seq),
            }
        }
    }

    fn run_schedule<L: LogAccess>(
        &mut self,
        id: StreamId,
        seq: Seq,
        due: Timestamp,
        log: &mut L,
    ) -> Outcome {
        let Some(slot) = self.streams.get_mut(id) else { return Outcome::Nothing };
        if seq.0 > slot.stream.contents().committed_totals().last_seq {
            return Outcome::Waits;
        }
        if !slot.stream.contents().keeps(seq) {
            // One that came before it in this turn has ended it.
            return Outcome::Nothing;
        }
        let now = log.now();
        let made = match log.read(id, seq) {
            Read::Ready(stored) => Made::new(&stored.record, due, now),
            other => return unread(&other),
        };
        let Some(mut made) = made else { return Outcome::Nothing };
        if let Some(source) = made.source.take() {
            match slot.stream.contents_mut().last_seen(&source) {
                Lookup::Missing => {}
                Lookup::InFlight => return Outcome::Waits,
                Lookup::Found(last) => match log.read(id, last) {
                    Read::Ready(stored) => made.fill(&stored.record),
                    other => return unread(&other),
                },
            }
        }
        match self.store_made(id, &made, log) {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Failed,
        }
    }

    fn store_made<L: LogAccess>(
        &mut self,
        id: StreamId,
        made: &Made,
        log: &mut L,
    ) -> Result<(), JsError> {
        let mut mapped = Vec::new();
        let slot = self.streams.live(id)?;
        let is_mapped = slot.stream.routes().map(&made.subject, &mut mapped, log);
        let subject = if is_mapped { &mapped } else { &made.subject };
        let changed = rewritten(&made.headers, &scan(&made.headers), slot.stream.limits());
        let headers = changed.as_deref().unwrap_or(&made.headers);
        let publish = Publish { subject, reply: b"", headers, body: &made.body };
        if slot.stream.must_log_releases(&publish) {
            self.streams.live(id)?.log_releases(log)?;
        }
        let (slot, ledger) = self.streams.live_entry(id)?;
        let budget = ledger.budget();
        let (stream, consumers) = (&mut slot.stream, &slot.consumers);
        let admitted =
            stream.publish_made(&publish, log, budget, |subject| consumers.any_wants(subject))?;
        if let Admitted::Sequenced { lsn, .. } = admitted {
            self.streams.changed(id, lsn);
        }
        Ok(())
    }

    /// A load of the stream has ended: schedules that wait are looked at again.
    pub(super) fn resume_schedules(&mut self, id: StreamId) {
        if let Some((slot, ledger)) = self.streams.entry(id)
            && slot.schedules_wait
            && !self.out.has_failed()
        {
            slot.schedules_wait = false;
            ledger.schedule(slot);
        }
    }
}

const fn unread(read: &Read<'_>) -> Outcome {
    match read {
        Read::Pending => Outcome::Waits,
        // The stream has it: a schedule is not dropped because the log has lost its message.
        Read::Missing | Read::Ready(_) | Read::Damaged | Read::Failing => Outcome::Failed,
    }
}

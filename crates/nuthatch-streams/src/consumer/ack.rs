//! Acknowledgements of every kind.

use super::advisory::{About, Advisory, send};
use super::pending::PendingPlace;
use super::progress::confirm_now;
use super::request::parse_nak_delay;
use super::{Ack, Consumer, EXHAUSTED_SHOWN_MAX, Env, FlowReply, Pull};
use crate::index::MessageIndex;
use crate::sink::{Message, Sink};
use nuthatch_log::{LogAccess, Seq};
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::AckPolicy;

/// The incumbent has no subscription for acks that a consumer does not need: no responders.
fn nobody_listens<I, L, S: Sink>(env: &mut Env<'_, I, L, S>, reply: &[u8]) {
    if !reply.is_empty() {
        let headers = b"NATS/1.0 503\r\n\r\n";
        let message = Message { subject: reply, reply: b"", headers, body: b"" };
        env.sink.publish(env.account, &message);
    }
}

impl<T> Consumer<T> {
    /// Takes an acknowledgement of any kind.
    pub fn ack<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if ack.stream_seq.0 == 0 {
            return;
        }
        if matches!(self.terms.ack_policy, AckPolicy::None | AckPolicy::FlowControl) {
            return nobody_listens(env, ack.reply);
        }
        match ack.body {
            b"" | b"+ACK" | b"+OK" => {
                if self.acknowledge(env, ack, true) {
                    self.confirm(env, ack.reply);
                }
            }
            b"+WPI" => {
                self.in_progress(ack.stream_seq.0, env.log.now().0);
                confirm_now(env, ack.reply);
            }
            body if body.starts_with(b"+NXT") => {
                self.acknowledge(env, ack, true);
                self.pull(env, &Pull { reply: ack.reply, body: &body[4..] });
            }
            body if body.starts_with(b"-NAK") => {
                self.nak(env, ack, &body[4..]);
                confirm_now(env, ack.reply);
            }
            body if body.starts_with(b"+TERM") => self.terminate(env, ack, &body[5..]),
            _ => confirm_now(env, ack.reply),
        }
    }

    /// Marks a message as done. `false`: it cannot have been delivered, and no reply is sent.
    fn acknowledge<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        ack: &Ack<'_>,
        sample: bool,
    ) -> bool
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if self.is_beyond(env.index, ack.stream_seq) {
            return false;
        }
        match self.terms.ack_policy {
            AckPolicy::None | AckPolicy::FlowControl => return false,
            AckPolicy::Explicit => self.acknowledge_one(env, ack, sample),
            AckPolicy::All => {
                self.acknowledge_through(env, ack.consumer_seq, ack.stream_seq.0);
            }
        }
        true
    }

    #[inline]
    fn acknowledge_one<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>, sample: bool)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let seq = ack.stream_seq.0;
        // Whether it was still waited for or not: as upstream.
        self.activity.acked = env.log.now().0;
        let Some(entry) = self.pending.remove(seq) else {
            if !self.exhausted.is_empty() && self.exhausted.remove(seq) {
                self.logging.changed();
                release(env, seq);
            }
            return;
        };
        self.acked(env, seq);
        if sample && self.terms.sample_percent > 0 {
            let sent_at = entry.deadline.saturating_sub(self.terms.wait_after(entry.delivered));
            self.sample(env, ack, sent_at);
        }
    }

    fn acked<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, seq: u64) {
        self.logging.changed();
        self.move_floor();
        release(env, seq);
    }

    /// A client answered a flow control request; with the ack policy `flow_control` the answer says up to
    /// where messages are done with.
    pub fn flow_response<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, reply: &FlowReply<'_>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let is_current = self.mode.flow_response(reply.subject);
        if !is_current || self.terms.ack_policy != AckPolicy::FlowControl {
            return;
        }
        let number = |name: &[u8]| {
            let text = find_header(reply.headers, name)?;
            std::str::from_utf8(text).ok()?.parse::<u64>().ok()
        };
        let consumer_seq = number(b"Nats-Last-Consumer").unwrap_or(0);
        // Who took over a longer copy elsewhere may be ahead of what it was given here.
        let stream_seq = number(b"Nats-Last-Stream").unwrap_or(0).min(self.delivered_stream);
        self.acknowledge_through(env, consumer_seq, stream_seq);
    }

    fn acknowledge_through<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        consumer_seq: u64,
        stream_seq: u64,
    ) where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if consumer_seq <= self.floor.consumer || stream_seq <= self.floor.stream {
            return;
        }
        self.pending.remove_through(stream_seq, |entry| release(env, entry.seq));
        self.logging.changed();
        self.activity.acked = env.log.now().0;
        self.move_floor();
    }

    /// Reports an acknowledgement to whoever watches the sampled ones.
    #[cold]
    fn sample<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>, sent_at: i64)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if env.log.entropy() % 100 < self.terms.sample_percent {
            let took = env.log.now().0.saturating_sub(sent_at);
            send(env, &self.config.name, about(ack), Advisory::Acked(took));
        }
    }

    /// True if the consumer sequence of an ack can be one that is still open.
    fn is_open(&self, ack: &Ack<'_>) -> bool {
        ack.consumer_seq > self.floor.consumer && ack.consumer_seq < self.next_consumer_seq
    }

    fn nak<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>, argument: &[u8])
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let seq = ack.stream_seq.0;
        let Some(entry) = self.pending.get(seq).copied().filter(|_| self.is_open(ack)) else {
            return;
        };
        send(env, &self.config.name, about(ack), Advisory::Naked);
        match parse_nak_delay(argument) {
            Some(delay) => {
                self.pending.postpone(seq, env.log.now().0.saturating_add(delay));
            }
            None if self.terms.is_spent(entry.delivered) => self.exhaust(env, seq),
            None => {
                self.pending.make_due(seq);
            }
        }
    }

    fn in_progress(&mut self, seq: u64, now: i64) {
        // What is due again already, after a nak say, stays so: as upstream.
        if let Some(entry) = self.pending.get(seq).filter(|entry| entry.place == PendingPlace::Out)
        {
            let deadline = now.saturating_add(self.terms.wait_after(entry.delivered));
            self.pending.postpone(seq, deadline);
        }
    }

    fn terminate<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>, reason: &[u8])
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let was_pending = self.pending.get(ack.stream_seq.0).is_some();
        if !self.acknowledge(env, ack, false) {
            return;
        }
        if was_pending {
            let reason = String::from_utf8_lossy(reason.trim_ascii()).into_owned();
            send(env, &self.config.name, about(ack), Advisory::Terminated(&reason));
        }
        self.confirm(env, ack.reply);
    }

    /// Gives up on a message: it is not delivered again. Streams with interest or work-queue
    /// retention keep it, to be examined.
    pub(super) fn exhaust<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, seq: u64)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let Some(entry) = self.pending.remove(seq) else { return };
        self.exhausted.insert(seq);
        if !self.terms.retained
            && self.exhausted.len() > EXHAUSTED_SHOWN_MAX
            && let Some(oldest) = self.exhausted.min()
        {
            self.exhausted.remove(oldest);
        }
        self.logging.changed();
        self.move_floor();
        let about = About {
            stream_seq: seq,
            consumer_seq: entry.consumer_seq,
            deliveries: u64::from(entry.delivered),
        };
        send(env, &self.config.name, about, Advisory::MaxDeliveries);
    }
}

fn about(ack: &Ack<'_>) -> About {
    About {
        stream_seq: ack.stream_seq.0,
        consumer_seq: ack.consumer_seq,
        deliveries: ack.delivered,
    }
}

/// Tells the stream that this consumer no longer needs a message.
#[inline]
pub(super) fn release<I, L, S>(env: &mut Env<'_, I, L, S>, seq: u64) {
    if let Some(released) = &mut env.released {
        released.push(Seq(seq));
    }
}

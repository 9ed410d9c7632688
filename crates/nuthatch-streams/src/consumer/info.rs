//! The response to `CONSUMER.INFO`.

use super::advisory::time_of;
use super::{Consumer, Env, Mode};
use crate::index::MessageIndex;
use crate::sink::Sink;
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::{ConsumerInfo, SequenceInfo, Time};

/// Waiting pulls whose inboxes are told.
const INBOXES_MAX: usize = 32;

impl<T> Consumer<T> {
    /// The response to `CONSUMER.INFO` (without `cluster`). `num_pending` is exact.
    pub fn info<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> ConsumerInfo
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.sync(env);
        self.cursor.certify(env.index, &mut self.filter);
        self.sweep_requests(env);
        // The notice that a listener has gone may still be on its way.
        self.push_is_open(env);
        let now = env.log.now();
        let pause_remaining = self.pause_end(now).map_or(0, |until| until - now.0);
        let (num_waiting, push_bound) = match &self.mode {
            Mode::Pull(queue) => (queue.len() as u64, false),
            Mode::Push(push) => (0, push.target.is_some()),
        };
        let waiting_inboxes = match &self.mode {
            Mode::Pull(queue) => queue.inboxes(INBOXES_MAX),
            Mode::Push(_) => Vec::new(),
        };
        let redelivered = self.pending.redelivered() as u64 + self.exhausted.len();
        ConsumerInfo {
            stream_name: env.stream_name.to_owned(),
            name: self.config.name.clone(),
            created: time_of(self.created),
            config: self.config.clone(),
            delivered: SequenceInfo {
                consumer_seq: self.next_consumer_seq - 1,
                stream_seq: self.delivered_stream,
                last_active: when(self.activity.delivered),
            },
            ack_floor: SequenceInfo {
                consumer_seq: self.floor.consumer,
                stream_seq: self.floor.stream,
                last_active: when(self.activity.acked),
            },
            num_ack_pending: self.pending.len() as u64,
            // With redeliveries disabled a count of them would only confuse.
            num_redelivered: if self.terms.max_deliver == 1 { 0 } else { redelivered },
            num_waiting,
            num_pending: self.cursor.pending(),
            oldest_ack_pending: self.oldest_ack_pending(env),
            waiting_inboxes,
            cluster: None,
            push_bound,
            paused: pause_remaining > 0,
            pause_remaining,
            priority_groups: self.priorities.states(),
            ts: time_of(now),
        }
    }
}

impl<T> Consumer<T> {
    /// When the oldest message that waits for its acknowledgement was stored; `None`: none waits, or
    /// the stream has it no more.
    fn oldest_ack_pending<I, L, S>(&self, env: &Env<'_, I, L, S>) -> Option<Time>
    where
        I: MessageIndex,
    {
        let oldest = self.pending.iter().next()?;
        Some(time_of(env.index.get(nuthatch_log::Seq(oldest.seq))?.timestamp))
    }

    /// [`Consumer::info`] of a consumer whose log has failed: what it has done since its newest
    /// durable record will not be there after a restart, and is not shown. `num_pending` counts from
    /// where it is in memory.
    pub fn durable_info<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> ConsumerInfo
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let mut info = self.info(env);
        if self.is_memory() {
            return info;
        }
        let marks = self.logging.durable(env.log.committed());
        (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) =
            (marks.floor.consumer, marks.floor.stream);
        (info.delivered.consumer_seq, info.delivered.stream_seq) = marks.delivered;
        info.num_ack_pending = marks.ack_pending;
        info.num_redelivered = if self.terms.max_deliver == 1 { 0 } else { marks.redelivered };
        info
    }
}

fn when(at: i64) -> Option<Time> {
    (at != i64::MIN).then_some(Time(at))
}

//! Creation, recovery, updates: how a consumer comes to its state.

use super::advisory::{send_pause, time_of};
use super::cursor::Cursor;
use super::filter::Filter;
use super::pending::Pending;
use super::priority::Priorities;
use super::pull::WaitQueue;
use super::push::Push;
use super::state::{self, Progress, ProgressRef};
use super::{
    Activity, Consumer, Env, Floor, Logging, Mode, Replay, Scratch, StateError, Stop, Terms,
};
use crate::index::MessageIndex;
use crate::sink::Sink;
use nuthatch_log::{LogAccess, Seq, Timestamp};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, DeliverPolicy, Nanos, ReplayPolicy, RetentionPolicy, StreamConfig,
    Time,
};
use nuthatch_protocol::wire::write::push_ack_prefix;
use std::ops::RangeInclusive;

/// Pull requests that may wait if the configuration does not say (nats-server's default).
const MAX_WAITING_DEFAULT: usize = 512;
/// Inactive thresholds of pull consumers are lengthened by this plus up to [`INACTIVE_JITTER_NS`].
const INACTIVE_GRACE_NS: i64 = 100_000_000;
const INACTIVE_JITTER_NS: u64 = 900_000_000;

/// Messages that a consumer may have out where nothing smaller is configured: its progress must
/// stay well below the largest record, and what is out costs about 40 bytes of memory each.
pub(super) const ACK_PENDING_MAX: usize = 1 << 22;

impl Terms {
    fn new(config: &ConsumerConfig, retained: bool, random: u64) -> Self {
        let mut inactive_threshold = config.inactive_threshold.max(0);
        if inactive_threshold > 0 && config.deliver_subject.is_empty() {
            let longer = INACTIVE_GRACE_NS + (random % INACTIVE_JITTER_NS) as i64;
            inactive_threshold = inactive_threshold.saturating_add(longer);
        }
        let max_pending = usize::try_from(config.max_ack_pending).ok().filter(|&max| max > 0);
        Self {
            ack_policy: config.ack_policy,
            ack_wait: config.ack_wait,
            backoff: config.backoff.as_slice().into(),
            max_deliver: u32::try_from(config.max_deliver).unwrap_or(0),
            max_ack_pending: max_pending.unwrap_or(ACK_PENDING_MAX).min(ACK_PENDING_MAX),
            sample_percent: config.sample_freq.trim_end_matches('%').parse().unwrap_or(0),
            inactive_threshold,
            retained,
        }
    }

    /// How long a message may stay out after its n-th delivery. With flow control that acknowledges it is
    /// for ever: a receiver that lacks messages resets the consumer.
    pub(super) fn wait_after(&self, delivered: u32) -> Nanos {
        if self.ack_policy == AckPolicy::FlowControl {
            return Nanos::MAX;
        }
        let last = self.backoff.len().saturating_sub(1);
        let step = (delivered.saturating_sub(1) as usize).min(last);
        self.backoff.get(step).copied().unwrap_or(self.ack_wait)
    }

    /// True if a message was delivered as often as it may be.
    pub(super) const fn is_spent(&self, delivered: u32) -> bool {
        self.max_deliver > 0 && delivered >= self.max_deliver
    }
}

impl<T> Consumer<T> {
    /// A new consumer with its starting position. `config` is what [`super::validate_consumer`]
    /// returned, with a name; `filter` is that of its filters.
    pub fn create<I, L, S>(
        config: ConsumerConfig,
        filter: Filter,
        stream: &StreamConfig,
        env: &mut Env<'_, I, L, S>,
    ) -> Self
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let mut consumer = Self::assemble(config, filter, env.log.now(), Progress::default());
        consumer.filter.settle(stream, env.index);
        consumer.seek(stream, env.index);
        consumer.settle_in(stream, env);
        consumer.announce_pause(env);
        consumer.cursor.sync(env.index, &mut consumer.filter, |_| {});
        consumer
    }

    pub(super) fn assemble(
        config: ConsumerConfig,
        filter: Filter,
        created: Timestamp,
        progress: Progress,
    ) -> Self {
        let mut cursor = Cursor::at(progress.next);
        cursor.resume = progress.resume;
        let max_waiting = usize::try_from(config.max_waiting).ok().filter(|&max| max > 0);
        let priorities = Priorities::new(&config);
        let mode = if config.deliver_subject.is_empty() {
            let mut queue = WaitQueue::new(max_waiting.unwrap_or(MAX_WAITING_DEFAULT));
            queue.set_ordered(priorities.are_ordered());
            Mode::Pull(queue)
        } else {
            Mode::Push(Push::new(&config, 0))
        };
        Self {
            created,
            terms: Terms::new(&config, false, 0),
            filter,
            cursor,
            pending: progress.pending,
            exhausted: progress.exhausted,
            next_consumer_seq: progress.next_consumer_seq.max(1),
            delivered_stream: progress.delivered_stream,
            floor: Floor { consumer: progress.floor.0, stream: progress.floor.1 },
            mode,
            stop: Stop::EndOfStream,
            priorities,
            replay: None,
            logging: Logging::default(),
            activity: Activity {
                last: created.0,
                check_at: i64::MAX,
                delivered: i64::MIN,
                acked: i64::MIN,
                paused: false,
                recheck_at: i64::MAX,
                unreadable: 0,
                missing: 0,
                held_until: i64::MIN,
            },
            scratch: Scratch::default(),
            outlives: false,
            config,
        }
    }

    /// Finds the starting position of a new consumer.
    fn seek<I: MessageIndex>(&mut self, stream: &StreamConfig, index: &I) {
        let (first, last) = (index.first().0, index.last().0);
        let start = match self.config.deliver_policy {
            DeliverPolicy::All => first,
            DeliverPolicy::New => last + 1,
            DeliverPolicy::Last => self.last_match(index).unwrap_or(first),
            DeliverPolicy::LastPerSubject => first,
            DeliverPolicy::ByStartTime => {
                let at = self.config.opt_start_time.unwrap_or(Time::ZERO);
                index.seq_at(Timestamp(at.0)).0.min(last + 1)
            }
            DeliverPolicy::ByStartSequence => self.config.opt_start_seq,
        };
        self.cursor = Cursor::at(start.max(first).max(1));
        // With one message per subject every message is the last of its subject.
        let last_only = self.config.deliver_policy == DeliverPolicy::LastPerSubject;
        if last_only && stream.max_msgs_per_subject != 1 {
            self.cursor.start_last_per_subject(index, &self.filter, last);
        }
        self.delivered_stream = self.cursor.next - 1;
        self.floor = Floor { consumer: 0, stream: self.delivered_stream };
    }

    fn last_match<I: MessageIndex>(&self, index: &I) -> Option<u64> {
        if self.filter.is_all() && index.get(index.last()).is_some() {
            return Some(index.last().0);
        }
        let mut newest = None;
        self.filter.for_each_subject(index, &mut |_, _, _, last| newest = newest.max(Some(last.0)));
        newest
    }

    /// Shared by creation and recovery: initialises everything that is not persisted.
    fn settle_in<I, L, S>(&mut self, stream: &StreamConfig, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        let retained = stream.retention != RetentionPolicy::Limits;
        self.terms = Terms::new(&self.config, retained, env.log.entropy());
        self.scratch.ack_prefix.clear();
        let (name, prefix) = (self.config.name.as_bytes(), &mut self.scratch.ack_prefix);
        push_ack_prefix(prefix, env.stream_name.as_bytes(), name);
        if let Mode::Push(push) = &mut self.mode {
            *push = Push::new(&self.config, stream.max_msg_size);
        }
        self.replay = (self.config.replay_policy == ReplayPolicy::Original).then(|| Replay {
            until: env.index.last().0,
            last_stored_at: i64::MIN,
            last_sent_at: i64::MIN,
        });
        self.activity.last = now;
        self.watch_inactivity(now);
        self.interest_changed(env);
    }

    /// Adopts a new configuration that [`super::check_update`] has allowed, with its filter.
    pub fn update<I, L, S>(
        &mut self,
        config: ConsumerConfig,
        filter: Filter,
        stream: &StreamConfig,
        env: &mut Env<'_, I, L, S>,
    ) where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let old = std::mem::replace(&mut self.config, config);
        let now = env.log.now();
        self.terms = Terms::new(&self.config, self.terms.retained, env.log.entropy());
        if old.filter_subject != self.config.filter_subject
            || old.filter_subjects != self.config.filter_subjects
        {
            self.filter = filter;
            self.stream_changed(stream, env);
        }
        if old.ack_wait != self.config.ack_wait || old.backoff != self.config.backoff {
            self.pending
                .rearm(|entry| now.0.saturating_add(self.terms.wait_after(entry.delivered)));
        }
        if old.deliver_subject != self.config.deliver_subject
            || old.rate_limit_bps != self.config.rate_limit_bps
        {
            if let Mode::Push(push) = &mut self.mode {
                *push = Push::new(&self.config, stream.max_msg_size);
            }
            self.interest_changed(env);
        }
        if self.priorities.update(&self.config)
            && let Mode::Pull(queue) = &mut self.mode
        {
            queue.set_ordered(self.priorities.are_ordered());
        }
        if old.pause_until != self.config.pause_until {
            self.announce_pause(env);
            if !self.activity.paused {
                let until = self.config.pause_until.unwrap_or(Time::ZERO);
                send_pause(env, &self.config.name, false, until);
            }
        }
        self.watch_inactivity(now.0);
        // What left the stream since the last call is not waited for any longer.
        self.sync(env);
    }

    /// `CONSUMER.RESET`: starts again at stream sequence `seq` (0: behind the acknowledgement floor),
    /// as a consumer that was just created. Returns the sequence; log the consumer as after an
    /// update.
    ///
    /// # Errors
    /// Why its deliver policy does not allow that.
    pub fn reset<I, L, S>(
        &mut self,
        seq: u64,
        stream: &StreamConfig,
        env: &mut Env<'_, I, L, S>,
    ) -> Result<u64, &'static str>
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if seq != 0 {
            match self.config.deliver_policy {
                DeliverPolicy::All => {}
                DeliverPolicy::ByStartSequence if seq >= self.config.opt_start_seq => {}
                DeliverPolicy::ByStartSequence => return Err("below start seq"),
                DeliverPolicy::ByStartTime => {
                    let at = self.config.opt_start_time.unwrap_or(Time::ZERO);
                    if seq < env.index.seq_at(Timestamp(at.0)).0 {
                        return Err("below start time");
                    }
                }
                _ => return Err("not allowed"),
            }
        }
        let seq = if seq == 0 { self.floor.stream + 1 } else { seq };
        self.pending = Pending::default();
        self.exhausted.clear();
        self.cursor = Cursor::at(seq);
        (self.next_consumer_seq, self.delivered_stream) = (1, seq - 1);
        self.floor = Floor { consumer: 0, stream: seq - 1 };
        (self.activity.delivered, self.activity.acked) = (i64::MIN, i64::MIN);
        self.filter.settle(stream, env.index);
        self.cursor.sync(env.index, &mut self.filter, |_| {});
        self.stop = Stop::EndOfStream;
        Ok(seq)
    }

    /// The stream's configuration changed: filters are compared with its subjects again.
    pub fn stream_changed<I, L, S>(&mut self, stream: &StreamConfig, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.terms.retained = stream.retention != RetentionPolicy::Limits;
        self.sync(env);
        self.filter.settle(stream, env.index);
        self.cursor.recount_later();
    }

    /// Notes a pause that is in force and tells those who watch.
    fn announce_pause<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let until = self.pause_end(env.log.now());
        self.activity.paused = until.is_some();
        if let Some(until) = until {
            send_pause(env, &self.config.name, true, Time(until));
        }
    }

    /// When a pause that is in force ends.
    pub(super) fn pause_end(&self, now: Timestamp) -> Option<i64> {
        let until = self.config.pause_until.filter(|until| !until.is_zero())?;
        (until > time_of(now)).then_some(until.0)
    }

    /// Recovery is over: ack waits start now.
    pub fn recovered<I, L, S>(&mut self, stream: &StreamConfig, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.filter.settle(stream, env.index);
        if self.cursor.resume > 0 {
            let resume = self.cursor.resume;
            self.cursor.start_last_per_subject(env.index, &self.filter, resume);
        }
        self.settle_in(stream, env);
        self.activity.paused = self.pause_end(env.log.now()).is_some();
        let now = env.log.now().0;
        self.pending.rearm(|entry| now.saturating_add(self.terms.wait_after(entry.delivered)));
        let marks = self.marks();
        self.logging.all_durable(marks);
        // Removals that happened in between are found by the first sync.
        self.cursor.recount_later();
        self.stop = Stop::EndOfStream;
    }

    pub(super) fn encode_progress(&self, out: &mut Vec<u8>) {
        let progress = ProgressRef {
            next: self.cursor.next,
            resume: self.cursor.resume,
            next_consumer_seq: self.next_consumer_seq,
            delivered_stream: self.delivered_stream,
            floor: (self.floor.consumer, self.floor.stream),
            pending: &self.pending,
            exhausted: &self.exhausted,
        };
        state::encode(&progress, out);
    }

    /// Everything about the consumer: configuration, creation time, progress. The body of a
    /// `ConsumerCreate` record (create *and* update) and what a `StreamState` holds per consumer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // Strings and numbers. An empty one would be taken for damage at the next start.
        let config = serde_json::to_vec(&self.config).expect("a configuration can be written");
        state::encode_head(self.created.0, &config, out);
        self.encode_progress(out);
    }

    /// The reverse of [`Consumer::encode`]. Call [`Consumer::recovered`] before anything else.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are not understood.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let (created, config, rest) = state::decode_head(bytes)?;
        let config = serde_json::from_slice(config)
            .map_err(|error| StateError::Config { reason: error.to_string() })?;
        let filter = Filter::new(&config);
        Ok(Self::assemble(config, filter, Timestamp(created), state::decode(rest)?))
    }

    /// Recovery: adopts the body of a `ConsumerState` record.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are not understood; nothing has changed then.
    pub fn apply_state(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let progress = state::decode(bytes)?;
        self.cursor = Cursor::at(progress.next);
        self.cursor.resume = progress.resume;
        self.pending = progress.pending;
        self.exhausted = progress.exhausted;
        self.next_consumer_seq = progress.next_consumer_seq;
        self.delivered_stream = progress.delivered_stream;
        self.floor = Floor { consumer: progress.floor.0, stream: progress.floor.1 };
        Ok(())
    }

    /// [`Consumer::apply_state`] for streams that keep messages until they are acknowledged: appends
    /// the stretches of sequences that are done with as of this record and were not before. They may
    /// hold messages that this consumer never wanted; [`Consumer::needs`] decides about the others.
    ///
    /// The work is proportional to what the record changed, not to what the stream holds.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are not understood; nothing has changed then.
    pub fn apply_state_releasing(
        &mut self,
        bytes: &[u8],
        released: &mut Vec<RangeInclusive<u64>>,
    ) -> Result<(), StateError> {
        let was_next = self.cursor.next;
        let open: Vec<u64> = self.open_sequences().collect();
        self.apply_state(bytes)?;
        let is_open = |seq: u64| self.pending.get(seq).is_some() || self.exhausted.contains(seq);
        released.extend(open.into_iter().filter(|&seq| !is_open(seq)).map(|seq| seq..=seq));
        let mut still_open: Vec<u64> =
            self.open_sequences().filter(|&seq| seq >= was_next).collect();
        still_open.sort_unstable();
        still_open.push(self.cursor.next);
        let mut from = was_next;
        for seq in still_open {
            if from < seq {
                released.push(from..=seq - 1);
            }
            from = from.max(seq + 1);
        }
        Ok(())
    }

    /// Delivered or given up, but not acknowledged.
    fn open_sequences(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|entry| entry.seq).chain(self.exhausted.iter())
    }

    /// True if a sequence lies beyond everything that was ever looked at; one that is gone from the stream does not.
    pub(super) fn is_beyond<I: MessageIndex>(&self, index: &I, seq: Seq) -> bool {
        seq.0 >= self.cursor.next && seq >= index.first()
    }
}

//! Consumers: what a stream's readers have been given, and what they have acknowledged.
//!
//! A [`Consumer`] is a state machine. The engine calls [`Consumer::pull`], [`Consumer::ack`] and
//! [`Consumer::flow_response`] as they arrive and [`Consumer::pump`] once per turn for every consumer
//! it touched, and for every *hungry* one of a stream in which messages were committed. Nothing is
//! delivered outside `pump` and `tick`. Progress is logged as one coalesced record per frame
//! ([`Consumer::log_state`]); a double ack is confirmed by [`Consumer::committed`] only.
//!
//! What the engine does, in short:
//! - after `pull`, `ack`, `flow_response`, `interest_changed`, `update`: `pump`, once per turn;
//! - at the end of a turn, if `needs_log() == Some(Awaited)`: `log_state(env, Awaited)`;
//! - in `before_seal`, if `needs_log()` is some: `log_state(env, Lazy)`;
//! - in `Machine::committed`: `committed(env, lsn)` if `awaits_commit()`, then `pump` if
//!   `has_caught_up()`;
//! - in `loaded`: `pump` if `waits_for_load()`; on `Writable`: if `waits_for_receiver()`;
//! - when messages left the stream: `pump` if `is_full()`;
//! - at `next_deadline()`: `tick`, and delete the consumer if that says so;
//! - after each of these: remove what is in `env.released` and no other consumer `needs`.

mod ack;
mod advisory;
mod config;
mod cursor;
mod deliver;
mod env;
mod filter;
mod info;
mod life;
mod mode;
mod pending;
mod priority;
mod progress;
mod pull;
mod push;
mod request;
mod snapshot;
mod start;
mod state;
mod update;

pub use config::{
    ConsumerLimits, FILTERS_MAX, PreparedConsumer, consumer_filters, validate_consumer,
    validate_prepared,
};
pub use env::{Ack, Env, FlowReply, Pull, StateError, TickOutcome};
pub use filter::Filter;
pub use life::EndOfPulls;
pub use priority::is_valid_group;
pub use update::{WORKQUEUE_FILTERS_MAX, check_alone, check_create, check_update, check_workqueue};

use crate::index::MessageIndex;
use crate::sink::Sink;
use advisory::send_unpinned;
use cursor::Cursor;
use mode::Mode;
use nuthatch_log::{LogAccess, Seq, Timestamp};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, Nanos};
use nuthatch_protocol::jserror::JsError;
use pending::Pending;
use priority::Priorities;
use progress::Logging;
use roaring::RoaringTreemap;
use start::ACK_PENDING_MAX;

/// Deadlines are met at most this much late, so that bursts expire together (nats-server's too).
const ACK_WAIT_SLACK_NS: Nanos = 1_000_000;
/// A new consumer waits for its creation to be answered, but no longer than this: the answer may be lost.
const START_WITHIN_NS: Nanos = 1_000_000_000;
/// A replay at the original pace does not bother to wait for less than this.
const REPLAY_MIN_DELAY_NS: Nanos = 1_000_000;
/// Given up messages that are remembered, for information only, where acks do not remove messages.
const EXHAUSTED_SHOWN_MAX: u64 = 4_096;

/// One consumer. `T` is [`Sink::Target`].
pub struct Consumer<T> {
    config: ConsumerConfig,
    created: Timestamp,
    terms: Terms,
    filter: Filter,
    cursor: Cursor,
    pending: Pending,
    /// Given up after `max_deliver` but kept by the stream: all of them where acks remove messages
    /// (one bit each), else the newest [`EXHAUSTED_SHOWN_MAX`].
    exhausted: RoaringTreemap,
    next_consumer_seq: u64,
    delivered_stream: u64,
    floor: Floor,
    mode: Mode<T>,
    stop: Stop,
    priorities: Priorities,
    replay: Option<Replay>,
    logging: Logging,
    activity: Activity,
    scratch: Scratch,
    /// Its state is logged although its configuration keeps it in memory.
    outlives: bool,
}

/// The part of the configuration that the hot path reads.
#[derive(Debug)]
struct Terms {
    ack_policy: AckPolicy,
    ack_wait: Nanos,
    /// In the place of `ack_wait`, after the first delivery and so on; the last one stays.
    backoff: Box<[Nanos]>,
    /// 0: no limit.
    max_deliver: u32,
    /// At most `ACK_PENDING_MAX`.
    max_ack_pending: usize,
    /// Percent of acks to report.
    sample_percent: u64,
    /// 0: never inactive.
    inactive_threshold: Nanos,
    /// The stream keeps messages until they are acknowledged.
    retained: bool,
}

/// Acknowledgement floor.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Floor {
    consumer: u64,
    stream: u64,
}

/// Why the last delivery round ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// Nothing more that matches.
    EndOfStream,
    /// No pull request waits, or no subscriber listens.
    NoReceiver,
    /// Those who ask want to be passed over until more is pending, or are not pinned.
    NoneFits,
    /// The receiver's buffers are full.
    SlowReceiver,
    /// The next message is being loaded.
    Loading,
    /// The next message cannot be read.
    Unreadable,
    /// `max_ack_pending` messages are out.
    AckPending,
    /// The flow control window is used up.
    Stalled,
    /// Paused, or slowed down by a rate or a replay, until then.
    Until(i64),
    /// This round's share is spent; there is more.
    Budget,
}

/// Replay at the original pace.
#[derive(Debug)]
struct Replay {
    /// Messages after this one come at once.
    until: u64,
    last_stored_at: i64,
    last_sent_at: i64,
}

impl Replay {
    /// Until when a message that was stored at `stored_at` is held back.
    fn held_until(&self, stored_at: i64, now: i64) -> Option<i64> {
        if self.last_sent_at == i64::MIN {
            return None;
        }
        let gap = stored_at.saturating_sub(self.last_stored_at);
        let due = self.last_sent_at.saturating_add(gap);
        (gap > REPLAY_MIN_DELAY_NS && now < due).then_some(due)
    }
}

/// When what last happened, ns since the epoch.
#[derive(Debug)]
struct Activity {
    last: i64,
    /// When to look for inactivity; `i64::MAX`: not at all.
    check_at: i64,
    /// Last delivery; `i64::MIN`: none.
    delivered: i64,
    /// Last acknowledgement; `i64::MIN`: none.
    acked: i64,
    /// A pause whose end has to be announced.
    paused: bool,
    /// When to ask again for a message that could not be read.
    recheck_at: i64,
    /// The message that could not be read last; 0: none yet.
    unreadable: u64,
    /// The log does not have this message, and the engine was not told yet; 0: none.
    missing: u64,
    /// Nothing is delivered before: the answer to its creation is still to be given. `i64::MIN`: it is.
    held_until: i64,
}

/// Buffers that are reused for every message.
#[derive(Debug, Default)]
struct Scratch {
    ack_prefix: Vec<u8>,
    reply: Vec<u8>,
    headers: Vec<u8>,
    pinned: Vec<u8>,
    seqs: Vec<u64>,
}

impl<T> Consumer<T> {
    /// Name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Configuration as validated.
    pub fn config(&self) -> &ConsumerConfig {
        &self.config
    }

    /// Which messages it wants.
    pub(crate) const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// When it was created.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// True if the consumer's state lives in memory only: it logs nothing, and what an interest or
    /// work-queue stream drops because of it must be logged as deletes.
    pub fn is_memory(&self) -> bool {
        self.config.direct || self.config.mem_storage && !self.outlives
    }

    /// It is in a log that other nodes go on with: what is in memory there outlives one of them.
    pub(crate) fn set_outlives(&mut self, outlives: bool) {
        self.outlives = outlives;
    }

    /// The subject whose interest starts and stops this consumer; `None` for pull consumers.
    pub fn deliver_subject(&self) -> Option<&str> {
        Some(self.config.deliver_subject.as_str()).filter(|subject| !subject.is_empty())
    }

    /// True if a message published now on this subject would be for this consumer.
    pub fn wants(&self, subject: &[u8]) -> bool {
        self.filter.matches_text(subject)
    }

    /// True if the message still has to be delivered to or acknowledged by this consumer. `subject`
    /// is the message's subject id in `index`.
    pub fn needs<I: MessageIndex>(&mut self, index: &I, seq: Seq, subject: u32) -> bool {
        if self.cursor.is_ahead(seq.0) {
            return self.filter.matches_unseen(index, subject);
        }
        self.pending.get(seq.0).is_some() || self.exhausted.contains(seq.0)
    }

    /// Every stream sequence up to here is done with, as far as this consumer is concerned.
    pub fn ack_floor(&self) -> Seq {
        let pending = self.pending.front().map_or(self.cursor.next, |entry| entry.seq);
        let exhausted = self.exhausted.min().unwrap_or(u64::MAX);
        Seq(pending.min(exhausted).saturating_sub(1))
    }

    /// True if it has caught up (as far as is known) and has a receiver: new messages are wanted at
    /// once.
    pub fn has_caught_up(&self) -> bool {
        matches!(self.stop, Stop::EndOfStream | Stop::NoneFits) && self.mode.has_receiver()
    }

    /// Waits for a slow receiver.
    pub fn waits_for_receiver(&self) -> bool {
        self.stop == Stop::SlowReceiver
    }

    /// The message at which it waits because the log does not have it, if that is new.
    pub fn take_missing(&mut self) -> Option<Seq> {
        if self.stop != Stop::Unreadable {
            return None;
        }
        let missing = std::mem::take(&mut self.activity.missing);
        (missing > 0).then_some(Seq(missing))
    }

    /// Waits for a load from the log.
    pub fn waits_for_load(&self) -> bool {
        self.stop == Stop::Loading
    }

    /// Has as many messages out as it may: it goes on with an acknowledgement, or when some of them
    /// leave the stream.
    pub fn is_full(&self) -> bool {
        self.stop == Stop::AckPending
    }

    /// `CONSUMER.UNPIN`: the next request that carries no pin is pinned.
    ///
    /// # Errors
    /// 10160 if there is no such group.
    pub fn unpin<I, L, S>(&mut self, group: &str, env: &mut Env<'_, I, L, S>) -> Result<(), JsError>
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.priorities.unpin(group)?;
        send_unpinned(env, &self.config.name, group, "admin");
        Ok(())
    }

    /// The earliest moment at which `tick` is wanted. May be in the past: there is work left over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let mut at = self.activity.check_at;
        match self.stop {
            Stop::Budget => return Some(Timestamp(0)),
            Stop::Until(until) => at = at.min(until),
            Stop::Unreadable => at = at.min(self.activity.recheck_at),
            _ => {}
        }
        if let Some(deadline) = self.pending.next_deadline() {
            at = at.min(deadline.saturating_add(ACK_WAIT_SLACK_NS));
        }
        at = at.min(self.mode.wake_at());
        at = at.min(self.priorities.pinned_until());
        (at != i64::MAX).then_some(Timestamp(at))
    }

    /// Nothing is delivered before [`Consumer::start`], or for [`START_WITHIN_NS`].
    pub fn hold(&mut self, now: Timestamp) {
        self.activity.held_until = now.0.saturating_add(START_WITHIN_NS);
    }

    /// The reverse of [`Consumer::hold`].
    pub const fn start(&mut self) {
        self.activity.held_until = i64::MIN;
    }

    /// Delivers what can be delivered, within a budget per call.
    pub fn pump<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.sync(env);
        self.run(env);
    }

    /// Follows the pending set with the acknowledgement floor.
    fn move_floor(&mut self) {
        match self.pending.front() {
            None => {
                self.floor =
                    Floor { consumer: self.next_consumer_seq - 1, stream: self.delivered_stream };
            }
            Some(first) if first.consumer_seq > self.floor.consumer + 1 => {
                self.floor = Floor { consumer: first.consumer_seq - 1, stream: first.seq - 1 };
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;

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
//! - in `Machine::committed`: `committed(env, lsn)` if `awaits_commit()`, then `pump` if `is_hungry()`;
//! - in `loaded` and on `Writable`: `pump` if `is_blocked()`;
//! - at `next_deadline()`: `tick`, and delete the consumer if that says so;
//! - after each of these: remove what is in `env.released` and no other consumer `needs`.

mod config;
mod env;

pub use config::{ConsumerLimits, check_update, check_workqueue, validate_consumer};
pub use env::{Ack, Env, Pull, StateError, TickOutcome};

use crate::index::MessageIndex;
use crate::sink::Sink;
use nuthatch_log::{AppendError, LogAccess, Lsn, Seq, Timestamp, Urgency};
use nuthatch_protocol::js::{ConsumerConfig, ConsumerInfo, StreamConfig};
use std::marker::PhantomData;

/// One consumer. `T` is [`Sink::Target`].
pub struct Consumer<T> {
    config: ConsumerConfig,
    created: Timestamp,
    target: PhantomData<T>,
}

impl<T> Consumer<T> {
    /// A new consumer with its starting position. `config` is what [`validate_consumer`] returned,
    /// with a name.
    pub fn create<I, L, S>(
        config: ConsumerConfig,
        stream: &StreamConfig,
        env: &mut Env<'_, I, L, S>,
    ) -> Self
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = stream;
        Self { config, created: env.log.now(), target: PhantomData }
    }

    /// Adopts a new configuration that [`check_update`] has allowed.
    pub fn update<I, L, S>(
        &mut self,
        config: ConsumerConfig,
        stream: &StreamConfig,
        env: &mut Env<'_, I, L, S>,
    ) where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (stream, env);
        self.config = config;
    }

    /// The stream's configuration changed: filters are compared with its subjects again.
    pub fn stream_changed<I, L, S>(&mut self, stream: &StreamConfig, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (stream, env);
    }

    /// Everything about the consumer: configuration, creation time, progress. The body of a
    /// `ConsumerCreate` record (create *and* update) and what a `StreamState` holds per consumer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.config.name.as_bytes());
    }

    /// The reverse of [`Consumer::encode`]. Call [`Consumer::recovered`] before anything else.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are not understood.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let _ = bytes;
        Err(StateError::Truncated)
    }

    /// Recovery: adopts the body of a `ConsumerState` record.
    ///
    /// # Errors
    /// [`StateError`] if the bytes are not understood; nothing has changed then.
    pub fn apply_state(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let _ = bytes;
        Ok(())
    }

    /// Recovery is over: ack waits start now.
    pub fn recovered<I, L, S>(&mut self, stream: &StreamConfig, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (stream, env);
    }

    /// Takes a pull request. Refusals are answered here, messages come with the next `pump`.
    pub fn pull<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, pull: &Pull<'_>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (env, pull);
    }

    /// Takes an acknowledgement of any kind.
    pub fn ack<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, ack: &Ack<'_>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (env, ack);
    }

    /// A client answered a flow control request; `subject` is the whole `$JS.FC.…` subject.
    pub fn flow_response(&mut self, subject: &[u8]) {
        let _ = subject;
    }

    /// Interest in the deliver subject may have changed (push) or a pull's inbox may be gone.
    pub fn interest_changed<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = env;
    }

    /// The subject whose interest starts and stops this consumer; `None` for pull consumers.
    pub fn deliver_subject(&self) -> Option<&str> {
        Some(self.config.deliver_subject.as_str()).filter(|subject| !subject.is_empty())
    }

    /// Delivers what can be delivered, within a budget per call.
    pub fn pump<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = env;
    }

    /// Time has passed: redeliveries, expiries, heartbeats, inactivity. Delivers as `pump` does.
    pub fn tick<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> TickOutcome
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = env;
        TickOutcome::Keep
    }

    /// The earliest moment at which `tick` is wanted. May be in the past: there is work left over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        None
    }

    /// Caught up (as far as is known) and somebody waits: new messages are wanted at once.
    pub fn is_hungry(&self) -> bool {
        false
    }

    /// Waits for a slow receiver or for a load from the log.
    pub fn is_blocked(&self) -> bool {
        false
    }

    /// Whether progress is to be logged, and how urgently.
    pub fn needs_log(&self) -> Option<Urgency> {
        None
    }

    /// Logs the progress as one `ConsumerState` record (subject: the consumer's name).
    ///
    /// # Errors
    /// [`AppendError`] of the log; the progress stays to be logged.
    pub fn log_state<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        urgency: Urgency,
    ) -> Result<(), AppendError>
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (env, urgency);
        Ok(())
    }

    /// Whether a double ack waits for a commit.
    pub fn awaits_commit(&self) -> bool {
        false
    }

    /// Everything up to `lsn` is durable: confirms double acks.
    pub fn committed<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, lsn: Lsn)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = (env, lsn);
    }

    /// The consumer (or its stream) is being deleted: tells whoever waits.
    pub fn on_delete<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let _ = env;
    }

    /// What `CONSUMER.INFO` tells (without `cluster`).
    pub fn info<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> ConsumerInfo
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        ConsumerInfo {
            stream_name: env.stream_name.to_owned(),
            name: self.config.name.clone(),
            config: self.config.clone(),
            ..ConsumerInfo::default()
        }
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Configuration as validated.
    pub fn config(&self) -> &ConsumerConfig {
        &self.config
    }

    /// When it was created.
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Whether the consumer's state lives in memory only: it logs nothing, and what an interest or
    /// work-queue stream drops because of it must be logged as deletes.
    pub fn is_memory(&self) -> bool {
        self.config.mem_storage
    }

    /// Whether the message still has to be delivered to or acknowledged by this consumer. `subject`
    /// is the message's subject id in `index`.
    pub fn needs<I: MessageIndex>(&mut self, index: &I, seq: Seq, subject: u32) -> bool {
        let _ = (index, seq, subject);
        true
    }

    /// Every stream sequence up to here is done with, as far as this consumer is concerned.
    pub fn ack_floor(&self) -> Seq {
        Seq(0)
    }
}

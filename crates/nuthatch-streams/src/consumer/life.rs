//! Everything that is not delivery: pull requests, statuses, interest, time, deletion.

use super::advisory::{send_pause, send_unpinned};
use super::pull::QueuedPull;
use super::push::{Flow, exceeded_expires};
use super::request::{PullRequest, parse_pull};
use super::{Consumer, Env, Mode, Pull, TickOutcome};
use crate::index::MessageIndex;
use crate::sink::{AccountId, Message, Sink};
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::{AckPolicy, Time};
use nuthatch_protocol::wire::write::{StatusHeader, push_status};

/// An inactive consumer whose end could not be logged is looked at again after this, ns.
const EXPIRY_RETRY_NS: i64 = 250_000_000;

/// Why pull requests that wait are ended. Clients know both texts (`checkPendingRequests` and
/// `processStreamSignalUpdate` of nats-server).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndOfPulls {
    /// The server is about to stop: `409 Server Shutdown`, with what is left open.
    ServerStops,
    /// Another node is to own the log: `409 Leadership Change`. Clients ask again at once.
    OwnerChanges,
}

/// Statuses with a fixed text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    NoMessages,
    RequestTimeout,
    RequestsPending,
    TooLargeForRequest,
    BatchCompleted,
    ExceededMaxWaiting,
    ConsumerDeleted,
    ServerShutdown,
    LeadershipChange,
    PushBased,
    IdleHeartbeat,
    WrongPin,
}

impl Status {
    fn text(self) -> (u16, &'static str) {
        match self {
            Self::NoMessages => (404, "No Messages"),
            Self::RequestTimeout => (408, "Request Timeout"),
            Self::RequestsPending => (408, "Requests Pending"),
            Self::TooLargeForRequest => (409, "Message Size Exceeds MaxBytes"),
            Self::BatchCompleted => (409, "Batch Completed"),
            Self::ExceededMaxWaiting => (409, "Exceeded MaxWaiting"),
            Self::ConsumerDeleted => (409, "Consumer Deleted"),
            Self::ServerShutdown => (409, "Server Shutdown"),
            Self::LeadershipChange => (409, "Leadership Change"),
            Self::PushBased => (409, "Consumer is push based"),
            Self::IdleHeartbeat => (100, "Idle Heartbeat"),
            Self::WrongPin => (423, "Nats-Wrong-Pin-Id"),
        }
    }
}

/// The headers that tell how much of a pull request is left open.
pub(super) fn pending_headers(messages: i64, bytes: i64) -> [StatusHeader<'static>; 2] {
    [
        StatusHeader::Number("Nats-Pending-Messages", messages.max(0) as u64),
        StatusHeader::Number("Nats-Pending-Bytes", bytes.max(0) as u64),
    ]
}

/// Publishes a status message.
#[cold]
pub(super) fn send_status<S: Sink>(
    sink: &mut S,
    account: AccountId,
    to: &[u8],
    status: Status,
    headers: &[StatusHeader<'_>],
) {
    let (code, text) = status.text();
    send_text(sink, account, to, code, text, headers);
}

fn send_text<S: Sink>(
    sink: &mut S,
    account: AccountId,
    to: &[u8],
    code: u16,
    text: &str,
    headers: &[StatusHeader<'_>],
) {
    let mut block = Vec::with_capacity(128);
    push_status(&mut block, code, text, headers);
    sink.publish(account, &Message { subject: to, reply: b"", headers: &block, body: b"" });
}

impl<T> Consumer<T> {
    /// Takes a pull request. Refusals are answered here, messages come with the next `pump`.
    pub fn pull<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, pull: &Pull<'_>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if pull.reply.is_empty() {
            return;
        }
        if matches!(self.mode, Mode::Push(_)) {
            return send_status(env.sink, env.account, pull.reply, Status::PushBased, &[]);
        }
        let request = match parse_pull(pull.body) {
            Ok(request) => request,
            Err(why) => {
                let text = format!("Bad Request - {why}");
                return send_text(env.sink, env.account, pull.reply, 400, &text, &[]);
            }
        };
        if let Some((code, text)) = self.refusal(&request) {
            return send_text(env.sink, env.account, pull.reply, code, &text, &[]);
        }
        self.priorities.keep_pin(&request, env.log.now().0);
        if self.mode.is_full() {
            self.sweep_requests(env);
        }
        if request.no_wait
            && let Some(status) = self.nothing_to_wait_for(env, &request)
        {
            self.activity.last = env.log.now().0;
            return send_status(env.sink, env.account, pull.reply, status, &[]);
        }
        if self.mode.is_full() {
            // A client with heartbeats notices by their absence; a refusal makes it ask in a loop.
            if request.idle_heartbeat == 0 {
                let status = Status::ExceededMaxWaiting;
                send_status(env.sink, env.account, pull.reply, status, &[]);
            }
            return;
        }
        self.enqueue(env, pull.reply, request);
    }

    fn enqueue<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, reply: &[u8], request: PullRequest)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        self.activity.last = now;
        let Mode::Pull(queue) = &mut self.mode else { return };
        let Some(target) = env.sink.resolve(env.account, reply, b"") else { return };
        let after = |nanos: i64| if nanos > 0 { now.saturating_add(nanos) } else { i64::MAX };
        queue.add(QueuedPull {
            reply: reply.into(),
            target,
            remaining: request.batch,
            delivered: 0,
            bytes_left: request.max_bytes.max(0),
            expires: after(request.expires),
            no_wait: request.no_wait,
            heartbeat: request.idle_heartbeat,
            heartbeat_at: after(request.idle_heartbeat),
            priority: request.priority,
        });
    }

    /// Why a request is refused, whatever the stream holds.
    fn refusal(&self, request: &PullRequest) -> Option<(u16, String)> {
        let config = &self.config;
        if config.max_batch > 0 && request.batch > config.max_batch {
            return Some((409, format!("Exceeded MaxRequestBatch of {}", config.max_batch)));
        }
        if config.max_expires > 0 && request.expires > config.max_expires {
            return Some((409, exceeded_expires(config.max_expires)));
        }
        if config.max_bytes > 0 && request.max_bytes > config.max_bytes {
            return Some((409, format!("Exceeded MaxRequestMaxBytes of {}", config.max_bytes)));
        }
        self.priorities.refusal(request).map(|(code, text)| (code, text.to_owned()))
    }

    /// The answer to a `no_wait` request for which there is nothing.
    fn nothing_to_wait_for<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        request: &PullRequest,
    ) -> Option<Status>
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.sync(env);
        let available = self.cursor.pending() + self.pending.due_len() as u64;
        if available == 0 {
            return (request.expires == 0).then_some(Status::NoMessages);
        }
        self.sweep_requests(env);
        let wanted = self.mode.wanted();
        (available < wanted).then_some(Status::RequestsPending)
    }

    /// Looks at every waiting request: expiry, interest, heartbeat.
    pub(super) fn sweep_requests<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let heartbeat = self.heartbeat_headers();
        if let Some(at) = self.mode.sweep(env, &heartbeat) {
            self.activity.last = at.max(self.activity.last);
        }
    }

    fn heartbeat_headers(&self) -> [StatusHeader<'static>; 2] {
        [
            StatusHeader::Number("Nats-Last-Consumer", self.next_consumer_seq - 1),
            StatusHeader::Number("Nats-Last-Stream", self.cursor.next.saturating_sub(1)),
        ]
    }

    /// Interest in the deliver subject of a push consumer may have changed. Pull requests are looked at
    /// when there is something for them: a client that is back by then, on the same inbox, gets it.
    pub fn interest_changed<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        let Mode::Push(push) = &mut self.mode else { return };
        let was_active = push.target.is_some();
        let (subject, group) = (&self.config.deliver_subject, &self.config.deliver_group);
        push.target = env.sink.resolve(env.account, subject.as_bytes(), group.as_bytes());
        let active = push.target.is_some();
        let heartbeat = self.config.idle_heartbeat;
        if !active {
            push.heartbeat_at = i64::MAX;
        } else if !was_active {
            push.heartbeat_at =
                if heartbeat > 0 { now.saturating_add(heartbeat) } else { i64::MAX };
            // Messages sent to a receiver that left will never be acknowledged.
            push.flow = push.flow.take().map(|_| Flow::default());
        }
        if active != was_active {
            self.watch_inactivity(now);
        }
    }

    /// True if a push consumer still has a listener; looks again if it seems to have none.
    pub fn push_is_open<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> bool
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let Mode::Push(push) = &mut self.mode else { return true };
        let listening = push.target.as_mut().is_some_and(|target| env.sink.refresh(target));
        if !listening && push.target.is_some() {
            self.interest_changed(env);
        }
        self.mode.has_receiver()
    }

    /// Decides when to look whether the consumer is still used.
    pub(super) fn watch_inactivity(&mut self, now: i64) {
        let threshold = self.terms.inactive_threshold;
        let is_used = matches!(self.mode, Mode::Push(_)) && self.mode.has_receiver();
        let watched = threshold > 0 && !is_used;
        self.activity.check_at = if watched { now.saturating_add(threshold) } else { i64::MAX };
    }

    /// Returns if the consumer was unused for too long; otherwise when to look again.
    fn is_inactive<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, now: i64) -> bool
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let threshold = self.terms.inactive_threshold;
        if matches!(self.mode, Mode::Push(_)) {
            return !self.mode.has_receiver();
        }
        self.sweep_requests(env);
        let waiting = self.mode.has_receiver();
        // Clients may still be working on pending messages.
        let busy_until = self.pending.latest_deadline().unwrap_or(i64::MIN);
        let used_at = if waiting { now } else { self.activity.last.max(busy_until) };
        self.activity.check_at = used_at.saturating_add(threshold);
        self.activity.check_at <= now
    }

    /// Time has passed: redeliveries, expiries, heartbeats, inactivity. Delivers as `pump` does.
    pub fn tick<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>) -> TickOutcome
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now();
        self.sync(env);
        self.expire_pending(env, now.0);
        if let Some(group) = self.priorities.expire(now.0) {
            send_unpinned(env, &self.config.name, &group, "timeout");
        }
        if self.activity.paused && self.pause_end(now).is_none() {
            self.activity.paused = false;
            let until = self.config.pause_until.unwrap_or(Time::ZERO);
            send_pause(env, &self.config.name, false, until);
        }
        self.run(env);
        self.push_heartbeat(env, now.0);
        if self.activity.check_at <= now.0 && self.is_inactive(env, now.0) {
            // Without room for the record of its end it stays, and is looked at again.
            self.activity.check_at = now.0.saturating_add(EXPIRY_RETRY_NS);
            return TickOutcome::Expired;
        }
        TickOutcome::Keep
    }

    /// Queues what was not acknowledged in time, or gives it up.
    fn expire_pending<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, now: i64)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let mut expired = std::mem::take(&mut self.scratch.seqs);
        self.pending.expired(now, &mut expired);
        for &seq in &expired {
            let delivered = self.pending.get(seq).map_or(0, |entry| entry.delivered);
            if self.terms.is_spent(delivered) {
                self.exhaust(env, seq);
            } else {
                self.pending.make_due(seq);
            }
        }
        self.scratch.seqs = expired;
    }

    fn push_heartbeat<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, now: i64)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let [last_consumer, last_stream] = self.heartbeat_headers();
        let Mode::Push(push) = &mut self.mode else { return };
        if push.heartbeat_at > now {
            return;
        }
        push.heartbeat_at = now.saturating_add(self.config.idle_heartbeat);
        let to = self.config.deliver_subject.as_bytes();
        let status = Status::IdleHeartbeat;
        match push.flow.as_ref().filter(|flow| !flow.request.is_empty()) {
            Some(flow) => {
                let stalled = StatusHeader::Text("Nats-Consumer-Stalled", &flow.request);
                let headers = [last_consumer, last_stream, stalled];
                send_status(env.sink, env.account, to, status, &headers);
            }
            None => {
                send_status(env.sink, env.account, to, status, &[last_consumer, last_stream]);
                let acknowledges = self.terms.ack_policy == AckPolicy::FlowControl;
                if acknowledges && !self.pending.is_empty() && push.flow.is_some() {
                    // At the end of the stream nothing else would have what was delivered acknowledged.
                    push.ask_flow_control(env, &self.config);
                }
            }
        }
    }

    /// The log is about to be closed here: tells whoever waits.
    pub fn end_pulls<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, why: EndOfPulls)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        match why {
            EndOfPulls::ServerStops => self.mode.end_all(env, Status::ServerShutdown, true),
            EndOfPulls::OwnerChanges => self.mode.end_all(env, Status::LeadershipChange, false),
        }
    }

    /// The consumer (or its stream) is being deleted: tells whoever waits.
    pub fn on_delete<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        I: MessageIndex,
        L: LogAccess,
        S: Sink<Target = T>,
    {
        self.mode.end_all(env, Status::ConsumerDeleted, false);
    }
}

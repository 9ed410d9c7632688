//! How messages reach the clients of a consumer: by the pull requests that wait, or by interest in a
//! deliver subject.

use super::life::{Status, pending_headers, send_status};
use super::pull::WaitQueue;
use super::push::Push;
use super::{Env, Stop};
use crate::sink::{AccountId, Message, Sink};
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::ConsumerConfig;
use nuthatch_protocol::wire::write::StatusHeader;

/// See the module.
#[derive(Debug)]
pub(super) enum Mode<T> {
    Pull(WaitQueue<T>),
    Push(Push<T>),
}

impl<T> Mode<T> {
    /// True if a request waits, or somebody listens.
    #[inline]
    pub(super) fn has_receiver(&self) -> bool {
        match self {
            Self::Pull(queue) => !queue.is_empty(),
            Self::Push(push) => push.target.is_some(),
        }
    }

    /// True if as many requests wait as may.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Pull(queue) if queue.is_full())
    }

    /// Messages that all requests together still want.
    pub(super) fn wanted(&self) -> u64 {
        if let Self::Pull(queue) = self { queue.wanted() } else { 0 }
    }

    /// When something expires or wants a heartbeat (or a little earlier); `i64::MAX`: never.
    pub(super) fn wake_at(&self) -> i64 {
        match self {
            Self::Pull(queue) => queue.wake_at(),
            Self::Push(push) => push.heartbeat_at,
        }
    }

    /// True if a request expires or wants a heartbeat.
    #[inline]
    pub(super) fn wants_sweep(&self, now: i64) -> bool {
        matches!(self, Self::Pull(queue) if queue.wake_at() <= now)
    }

    /// Why no receiver can be given a message, as far as that is known without one.
    #[inline]
    pub(super) fn stop<S: Sink<Target = T>>(&self, sink: &mut S) -> Option<Stop> {
        match self {
            Self::Pull(queue) => queue.is_empty().then_some(Stop::NoReceiver),
            Self::Push(push) => match &push.target {
                None => Some(Stop::NoReceiver),
                _ if push.flow.as_ref().is_some_and(|flow| flow.is_stalled()) => {
                    Some(Stop::Stalled)
                }
                Some(target) => (!sink.ready(target)).then_some(Stop::SlowReceiver),
            },
        }
    }

    /// Until when the rate limit holds a message of this size back.
    #[inline]
    pub(super) fn held_until(&self, bytes: u64, now: i64) -> Option<i64> {
        let Self::Push(push) = self else { return None };
        let at = push.rate.as_ref()?.allowed_at(bytes, now);
        (at > now).then_some(at)
    }

    /// A client answered a flow control request; `false`: not the one that is outstanding.
    pub(super) fn flow_response(&mut self, subject: &[u8]) -> bool {
        match self {
            Self::Push(push) => push.flow.as_mut().is_some_and(|flow| flow.answered(subject)),
            Self::Pull(_) => false,
        }
    }

    /// Looks at every waiting request: expiry, interest, heartbeat. Returns when the last one of
    /// those that are over expired.
    pub(super) fn sweep<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        heartbeat: &[StatusHeader<'_>],
    ) -> Option<i64>
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        let Self::Pull(queue) = self else { return None };
        let (sink, account) = (&mut *env.sink, env.account);
        let mut expired = None;
        queue.sweep(|request| {
            if request.expires <= now {
                let headers = pending_headers(request.remaining, request.bytes_left);
                send_status(sink, account, &request.reply, Status::RequestTimeout, &headers);
                expired = expired.max(Some(request.expires));
                return false;
            }
            if !sink.refresh(&mut request.target) {
                return false;
            }
            if request.heartbeat_at <= now {
                send_status(sink, account, &request.reply, Status::IdleHeartbeat, heartbeat);
                request.heartbeat_at = now.saturating_add(request.heartbeat);
            }
            true
        });
        expired
    }

    /// Nothing comes for now: requests that do not wait are over, but those that have expired, which are
    /// told that. True if there were any.
    pub(super) fn end_one_shots<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, now: i64) -> bool
    where
        S: Sink<Target = T>,
    {
        let Self::Pull(queue) = self else { return false };
        if !queue.has_one_shots() {
            return false;
        }
        let (sink, account) = (&mut *env.sink, env.account);
        let mut ended = false;
        queue.sweep(|request| {
            let over = request.no_wait
                && request.expires > now
                && (!request.has_expiry() || request.delivered > 0);
            if over {
                send_status(sink, account, &request.reply, Status::NoMessages, &[]);
                ended = true;
            }
            !over
        });
        ended
    }

    /// All requests are over: tells whoever waits, and `with_rest` what is left open.
    pub(super) fn end_all<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        status: Status,
        with_rest: bool,
    ) where
        S: Sink<Target = T>,
    {
        let Self::Pull(queue) = self else { return };
        while let Some(request) = queue.pop() {
            let rest = pending_headers(request.remaining, request.bytes_left);
            let headers = if with_rest { &rest[..] } else { &[] };
            send_status(env.sink, env.account, &request.reply, status, headers);
        }
    }

    /// Keeps the books of a delivery that a receiver has taken. `waits_for_flow`: nothing more is delivered
    /// before flow control is answered.
    #[inline]
    pub(super) fn delivered<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        config: &ConsumerConfig,
        bytes: u64,
        now: i64,
        waits_for_flow: bool,
    ) where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        match self {
            Self::Pull(queue) => settle_request(queue, env.sink, env.account, bytes, now),
            Self::Push(push) => {
                if push.heartbeat_at != i64::MAX {
                    push.heartbeat_at = now.saturating_add(config.idle_heartbeat);
                }
                if let Some(rate) = &mut push.rate {
                    rate.spend(bytes, now);
                }
                if push.flow.as_mut().is_some_and(|flow| flow.sent(bytes, waits_for_flow)) {
                    push.ask_flow_control(env, config);
                }
            }
        }
    }
}

impl<T> Push<T> {
    /// Asks the client to say that it has come this far.
    pub(super) fn ask_flow_control<I, L, S>(
        &mut self,
        env: &mut Env<'_, I, L, S>,
        config: &ConsumerConfig,
    ) where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let Some(flow) = &mut self.flow else { return };
        let stream = env.stream_name.as_bytes();
        flow.ask(stream, config.name.as_bytes(), env.log.entropy());
        let message = Message {
            subject: config.deliver_subject.as_bytes(),
            reply: &flow.request,
            headers: b"NATS/1.0 100 FlowControl Request\r\n\r\n",
            body: b"",
        };
        env.sink.publish(env.account, &message);
    }
}

/// Books a delivery on the request at the head of the queue.
#[inline]
fn settle_request<S: Sink>(
    queue: &mut WaitQueue<S::Target>,
    sink: &mut S,
    account: AccountId,
    bytes: u64,
    now: i64,
) {
    let Some(head) = queue.head() else { return };
    if head.bytes_left > 0 {
        head.bytes_left -= bytes as i64;
        if head.bytes_left == 0 {
            head.remaining = 1;
        }
    }
    head.remaining -= 1;
    head.delivered += 1;
    if head.heartbeat > 0 {
        head.heartbeat_at = now.saturating_add(head.heartbeat);
    }
    if head.remaining > 0 {
        return queue.rotate();
    }
    if head.bytes_left > 0 {
        let headers = pending_headers(head.remaining, head.bytes_left);
        send_status(sink, account, &head.reply, Status::BatchCompleted, &headers);
    }
    queue.pop();
}

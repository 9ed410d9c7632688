//! Priority groups (ADR-42): which of the waiting pull requests gets the next message.
//!
//! *Overflow*: a request may ask to be passed over until enough is pending. *Pinned*: one request's
//! client gets everything until it has been silent for the priority timeout; its pin is in memory
//! only. *Prioritized*: the queue is kept in order of priority.

use super::advisory::{pin_id, send_pinned, send_unpinned};
use super::deliver::Turn;
use super::life::{Status, pending_headers, send_status};
use super::pull::{QueuedPull, WaitQueue};
use super::request::{Priority, PullRequest};
use super::{Consumer, Env, Mode};
use crate::sink::Sink;
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::{ConsumerConfig, PriorityGroupState, PriorityPolicy, Time};
use nuthatch_protocol::jserror::JsError;

/// Default of `priority_timeout` (`JsDefaultPinnedTTL`).
pub(super) const PIN_TIMEOUT_DEFAULT_NS: i64 = 120_000_000_000;
/// Longest name of a priority group, in bytes.
const GROUP_NAME_BYTES_MAX: usize = 16;

/// The client that gets everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Pin {
    /// Pin id that its requests carry and its messages are sent with.
    pub id: String,
    group: String,
    since: i64,
    /// When it is lost unless a request with it comes.
    pub until: i64,
}

/// True if a priority group may have this name.
#[must_use]
pub fn is_valid_group(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/_=-".contains(&b);
    !name.is_empty() && name.len() <= GROUP_NAME_BYTES_MAX && name.bytes().all(allowed)
}

/// What a configuration may say about priority groups.
///
/// # Errors
/// 10159, 10161, 10162, 10178, 10196 or 10197.
pub(super) fn check_config(config: &ConsumerConfig) -> Result<(), JsError> {
    if config.priority_policy == PriorityPolicy::None {
        if !config.priority_groups.is_empty() {
            return Err(JsError::CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE);
        }
        if config.priority_timeout > 0 {
            return Err(JsError::CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE);
        }
        return Ok(());
    }
    if !config.deliver_subject.is_empty() {
        return Err(JsError::CONSUMER_PUSH_WITH_PRIORITY_GROUP);
    }
    if config.priority_groups.is_empty() {
        return Err(JsError::CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP);
    }
    for group in &config.priority_groups {
        if group.is_empty() {
            return Err(JsError::CONSUMER_EMPTY_GROUP_NAME);
        }
        if !is_valid_group(group) {
            return Err(JsError::CONSUMER_INVALID_GROUP_NAME);
        }
    }
    Ok(())
}

impl Priority {
    /// Overflow: whether enough is pending for a request that waits for that.
    const fn is_due(&self, pending: u64, ack_pending: u64) -> bool {
        let unconditional = self.min_pending <= 0 && self.min_ack_pending <= 0;
        unconditional
            || (self.min_pending > 0 && self.min_pending as u64 <= pending)
            || (self.min_ack_pending > 0 && self.min_ack_pending as u64 <= ack_pending)
    }
}

/// Whether a request may be served now.
enum Fit {
    Yes,
    /// Another one's turn.
    NotNow,
    /// It carries a pin that is not (or no more) in force.
    WrongPin,
}

impl<T> Consumer<T> {
    /// True if requests are not simply served in turn.
    pub(super) fn has_priorities(&self) -> bool {
        self.config.priority_policy != PriorityPolicy::None
    }

    /// Why a pull request is refused for what it says about priorities.
    pub(super) fn priority_refusal(&self, request: &PullRequest) -> Option<(u16, &'static str)> {
        let policy = self.config.priority_policy;
        let nothing = Priority::default();
        let asked = request.priority.as_deref().unwrap_or(&nothing);
        let overflow = asked.min_pending != 0 || asked.min_ack_pending != 0;
        if overflow && policy != PriorityPolicy::Overflow {
            return Some((400, "Bad Request - Not a Overflow Priority consumer"));
        }
        if !asked.id.is_empty() && policy != PriorityPolicy::PinnedClient {
            return Some((400, "Bad Request - Not a Pinned Client Priority consumer"));
        }
        if !(0..=9).contains(&asked.priority) {
            return Some((400, "Bad Request - Priority must be between 0 and 9"));
        }
        if policy == PriorityPolicy::None || !request.is_json {
            return None;
        }
        if asked.group.is_empty() {
            return Some((400, "Bad Request - Priority Group missing"));
        }
        if !self.config.priority_groups.contains(&asked.group) {
            return Some((400, "Bad Request - Invalid Priority Group"));
        }
        let is_other = |pin: &Pin| !asked.id.is_empty() && asked.id != pin.id;
        if self.pin.as_ref().is_some_and(is_other) {
            return Some((423, "Nats-Pin-Id mismatch"));
        }
        None
    }

    /// The client that is pinned has shown itself.
    pub(super) fn keep_pin(&mut self, request: &PullRequest, now: i64) {
        if let Some(pin) = &mut self.pin
            && request.priority.as_ref().is_some_and(|asked| asked.id == pin.id)
        {
            pin.until = now.saturating_add(self.config.priority_timeout);
        }
    }

    /// Ends a pin whose client has been silent for too long.
    pub(super) fn expire_pin<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        if let Some(pin) = self.pin.take_if(|pin| pin.until <= now) {
            send_unpinned(env, &self.config.name, &pin.group, "timeout");
        }
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
        if !self.config.priority_groups.iter().any(|own| own == group) {
            return Err(JsError::CONSUMER_INVALID_PRIORITY_GROUP);
        }
        self.pin = None;
        send_unpinned(env, &self.config.name, group, "admin");
        Ok(())
    }

    /// The groups as `CONSUMER.INFO` shows them.
    pub(super) fn group_states(&self) -> Vec<PriorityGroupState> {
        let Some(group) = self.config.priority_groups.first() else { return Vec::new() };
        let (id, since) = match &self.pin {
            Some(pin) => (pin.id.clone(), Time(pin.since)),
            None => (String::new(), Time::ZERO),
        };
        let state =
            PriorityGroupState { group: group.clone(), pinned_client_id: id, pinned_ts: since };
        vec![state]
    }

    fn fit(&self, request: &QueuedPull<T>) -> Fit {
        let asked = request.priority.as_deref();
        match self.config.priority_policy {
            PriorityPolicy::None | PriorityPolicy::Prioritized => Fit::Yes,
            PriorityPolicy::Overflow => {
                let (pending, out) = (self.cursor.pending(), self.pending.len() as u64);
                if asked.is_none_or(|asked| asked.is_due(pending, out)) {
                    Fit::Yes
                } else {
                    Fit::NotNow
                }
            }
            PriorityPolicy::PinnedClient => {
                let id = asked.map_or("", |asked| asked.id.as_str());
                match (&self.pin, id) {
                    (None, "") => Fit::Yes,
                    (Some(pin), id) if pin.id == id => Fit::Yes,
                    (Some(_), "") => Fit::NotNow,
                    _ => Fit::WrongPin,
                }
            }
        }
    }

    /// Brings a request that may be served, and takes `bytes`, to the head of the queue.
    pub(super) fn priority_turn<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>, bytes: u64) -> Turn
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        let now = env.log.now().0;
        let (mut passed, mut slow) = (0, 0);
        loop {
            let Mode::Pull(queue) = &self.mode else { return Turn::Nobody };
            let Some(head) = queue.first() else { return Turn::Nobody };
            if passed >= queue.len() {
                return if slow > 0 { Turn::AllSlow } else { Turn::NoneFits };
            }
            let fit = self.fit(head);
            let Mode::Pull(queue) = &mut self.mode else { return Turn::Nobody };
            match check_head(queue, env, &fit, bytes, now) {
                Head::Serve => {
                    self.pin_head(env);
                    return Turn::Head;
                }
                Head::Pass => passed += 1,
                Head::Slow => (passed, slow) = (passed + 1, slow + 1),
                Head::Gone => {}
            }
        }
    }

    /// Pins the client of the request at the head, if none is.
    fn pin_head<I, L, S>(&mut self, env: &mut Env<'_, I, L, S>)
    where
        L: LogAccess,
        S: Sink<Target = T>,
    {
        if self.config.priority_policy != PriorityPolicy::PinnedClient || self.pin.is_some() {
            return;
        }
        let Mode::Pull(queue) = &mut self.mode else { return };
        let Some(asked) = queue.head().and_then(|head| head.priority.as_deref_mut()) else {
            return;
        };
        let now = env.log.now().0;
        let id = pin_id(env.log);
        asked.id.clone_from(&id);
        let group = asked.group.clone();
        send_pinned(env, &self.config.name, &group, &id);
        let until = now.saturating_add(self.config.priority_timeout);
        self.pin = Some(Pin { id, group, since: now, until });
    }
}

/// Result of offering a message to the first request.
enum Head {
    Serve,
    /// It went to the end of the queue: not its turn.
    Pass,
    /// It went to the end of the queue: its receiver is slow.
    Slow,
    Gone,
}

fn check_head<I, L, S: Sink>(
    queue: &mut WaitQueue<S::Target>,
    env: &mut Env<'_, I, L, S>,
    fit: &Fit,
    bytes: u64,
    now: i64,
) -> Head {
    let (sink, account) = (&mut *env.sink, env.account);
    let Some(head) = queue.head() else { return Head::Gone };
    let status = if head.expires <= now {
        Some(Status::RequestTimeout)
    } else if matches!(fit, Fit::WrongPin) {
        Some(Status::WrongPin)
    } else if !sink.refresh(&mut head.target) {
        // There is no subscriber any more, so no status is sent.
        queue.pop();
        return Head::Gone;
    } else if matches!(fit, Fit::NotNow) {
        queue.pass();
        return Head::Pass;
    } else if !sink.ready(&head.target) {
        queue.pass();
        return Head::Slow;
    } else {
        (head.bytes_left > 0 && bytes > head.bytes_left as u64)
            .then_some(Status::TooLargeForRequest)
    };
    let Some(status) = status else { return Head::Serve };
    let headers = pending_headers(head.remaining, head.bytes_left);
    send_status(sink, account, &head.reply, status, &headers);
    queue.pop();
    Head::Gone
}

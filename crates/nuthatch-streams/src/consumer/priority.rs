//! Priority groups (ADR-42): which of the waiting pull requests gets the next message.
//!
//! *Overflow*: a request may ask to be passed over until enough is pending. *Pinned*: one request's
//! client gets everything until it has been silent for the priority timeout; its pin is in memory
//! only. *Prioritized*: the queue is kept in order of priority.

use super::Env;
use super::advisory::{pin_id, send_pinned};
use super::deliver::Turn;
use super::life::{Status, pending_headers, send_status};
use super::pull::{QueuedPull, WaitQueue};
use super::request::{Priority, PullRequest};
use crate::sink::Sink;
use nuthatch_log::LogAccess;
use nuthatch_protocol::js::{ConsumerConfig, Nanos, PriorityGroupState, PriorityPolicy, Time};
use nuthatch_protocol::jserror::JsError;

/// Default of `priority_timeout` (`JsDefaultPinnedTTL`).
pub(super) const PIN_TIMEOUT_DEFAULT_NS: i64 = 120_000_000_000;
/// Longest name of a priority group, in bytes.
const GROUP_NAME_BYTES_MAX: usize = 16;

/// The client that gets everything.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pin {
    /// Pin id that its requests carry and its messages are sent with.
    id: String,
    group: String,
    since: i64,
    /// When it is lost unless a request with it comes.
    until: i64,
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
    const fn is_due(&self, load: Load) -> bool {
        let unconditional = self.min_pending <= 0 && self.min_ack_pending <= 0;
        unconditional
            || (self.min_pending > 0 && self.min_pending as u64 <= load.pending)
            || (self.min_ack_pending > 0 && self.min_ack_pending as u64 <= load.ack_pending)
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

/// The priority groups of a consumer, and who is pinned. Nobody is under any policy but
/// `pinned_client`.
#[derive(Debug)]
pub(super) struct Priorities {
    policy: PriorityPolicy,
    groups: Vec<String>,
    timeout: Nanos,
    pin: Option<Pin>,
}

/// What requests may wait for: messages still to be delivered, and messages out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub pending: u64,
    pub ack_pending: u64,
}

impl Priorities {
    /// Those of a validated configuration; nobody is pinned.
    pub(super) fn new(config: &ConsumerConfig) -> Self {
        Self {
            policy: config.priority_policy,
            groups: config.priority_groups.clone(),
            timeout: config.priority_timeout,
            pin: None,
        }
    }

    /// Adopts a configuration. Under another policy nobody is pinned. True if the policy is another.
    pub(super) fn update(&mut self, config: &ConsumerConfig) -> bool {
        let pin = self.pin.take().filter(|_| self.policy == config.priority_policy);
        let is_other = self.policy != config.priority_policy;
        *self = Self { pin, ..Self::new(config) };
        is_other
    }

    /// True if requests wait in the order of their priorities.
    pub(super) fn are_ordered(&self) -> bool {
        self.policy == PriorityPolicy::Prioritized
    }

    /// The pin id that messages are sent with.
    pub(super) fn pin_id(&self) -> Option<&str> {
        self.pin.as_ref().map(|pin| pin.id.as_str())
    }

    /// When somebody is unpinned unless heard of; `i64::MAX`: never.
    pub(super) fn pinned_until(&self) -> i64 {
        self.pin.as_ref().map_or(i64::MAX, |pin| pin.until)
    }

    /// True if requests are not simply served in turn.
    pub(super) fn are_any(&self) -> bool {
        self.policy != PriorityPolicy::None
    }

    /// Why a pull request is refused for what it says about priorities.
    pub(super) fn refusal(&self, request: &PullRequest) -> Option<(u16, &'static str)> {
        let policy = self.policy;
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
        if !self.groups.contains(&asked.group) {
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
            pin.until = now.saturating_add(self.timeout);
        }
    }

    /// Ends a pin whose client has been silent for too long; returns its group.
    pub(super) fn expire(&mut self, now: i64) -> Option<String> {
        self.pin.take_if(|pin| pin.until <= now).map(|pin| pin.group)
    }

    /// The next request of a group that carries no pin is pinned.
    ///
    /// # Errors
    /// 10160 if there is no such group.
    pub(super) fn unpin(&mut self, group: &str) -> Result<(), JsError> {
        if !self.groups.iter().any(|own| own == group) {
            return Err(JsError::CONSUMER_INVALID_PRIORITY_GROUP);
        }
        self.pin = None;
        Ok(())
    }

    /// The groups as `CONSUMER.INFO` shows them.
    pub(super) fn states(&self) -> Vec<PriorityGroupState> {
        let Some(group) = self.groups.first() else { return Vec::new() };
        let (id, since) = match &self.pin {
            Some(pin) => (pin.id.clone(), Time(pin.since)),
            None => (String::new(), Time::ZERO),
        };
        let state =
            PriorityGroupState { group: group.clone(), pinned_client_id: id, pinned_ts: since };
        vec![state]
    }

    fn fit<T>(&self, request: &QueuedPull<T>, load: Load) -> Fit {
        let asked = request.priority.as_deref();
        match self.policy {
            PriorityPolicy::None | PriorityPolicy::Prioritized => Fit::Yes,
            PriorityPolicy::Overflow => {
                if asked.is_none_or(|asked| asked.is_due(load)) {
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
    pub(super) fn turn<I, L, S>(
        &mut self,
        queue: &mut WaitQueue<S::Target>,
        env: &mut Env<'_, I, L, S>,
        consumer: &str,
        bytes: u64,
        load: Load,
    ) -> Turn
    where
        L: LogAccess,
        S: Sink,
    {
        let now = env.log.now().0;
        let (mut passed, mut slow) = (0, 0);
        loop {
            let Some(head) = queue.first() else { return Turn::Nobody };
            if passed >= queue.len() {
                return if slow > 0 { Turn::AllSlow } else { Turn::NoneFits };
            }
            let fit = self.fit(head, load);
            match check_head(queue, env, &fit, bytes, now) {
                Head::Serve => {
                    self.pin_head(queue, env, consumer);
                    return Turn::Head;
                }
                Head::Pass => passed += 1,
                Head::Slow => (passed, slow) = (passed + 1, slow + 1),
                Head::Gone => {}
            }
        }
    }

    /// Pins the client of the request at the head, if none is.
    fn pin_head<I, L, S>(
        &mut self,
        queue: &mut WaitQueue<S::Target>,
        env: &mut Env<'_, I, L, S>,
        consumer: &str,
    ) where
        L: LogAccess,
        S: Sink,
    {
        if self.policy != PriorityPolicy::PinnedClient || self.pin.is_some() {
            return;
        }
        let Some(asked) = queue.head().and_then(|head| head.priority.as_deref_mut()) else {
            return;
        };
        let now = env.log.now().0;
        let id = pin_id(env.log);
        asked.id.clone_from(&id);
        let group = asked.group.clone();
        send_pinned(env, consumer, &group, &id);
        let until = now.saturating_add(self.timeout);
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

#[cfg(test)]
mod tests {
    use super::super::request::parse_pull;
    use super::*;

    fn pinned() -> Priorities {
        let config = ConsumerConfig {
            priority_policy: PriorityPolicy::PinnedClient,
            priority_groups: vec!["g".into()],
            priority_timeout: 10,
            ..ConsumerConfig::default()
        };
        let pin = Pin { id: "p".into(), group: "g".into(), since: 1, until: 11 };
        Priorities { pin: Some(pin), ..Priorities::new(&config) }
    }

    fn request(id: &str, group: &str) -> PullRequest {
        let body = format!("{{\"id\":\"{id}\",\"group\":\"{group}\"}}");
        parse_pull(body.as_bytes()).expect("a request")
    }

    #[test]
    fn a_pin_lasts_while_its_client_is_heard_of() {
        let mut priorities = pinned();
        priorities.keep_pin(&request("other", "g"), 8);
        assert_eq!(priorities.pinned_until(), 11);
        priorities.keep_pin(&request("p", "g"), 8);
        assert_eq!((priorities.pinned_until(), priorities.expire(17)), (18, None));
        assert_eq!(priorities.expire(18).as_deref(), Some("g"));
        assert_eq!((priorities.pin_id(), priorities.pinned_until()), (None, i64::MAX));
    }

    #[test]
    fn another_policy_pins_nobody_and_groups_are_checked() {
        let mut priorities = pinned();
        assert_eq!(priorities.refusal(&request("x", "g")).map(|(code, _)| code), Some(423));
        assert_eq!(priorities.refusal(&request("p", "h")).map(|(code, _)| code), Some(400));
        assert_eq!(priorities.refusal(&request("p", "g")), None);
        assert!(priorities.unpin("h").is_err() && priorities.pin_id().is_some());
        let none = ConsumerConfig::default();
        assert!(priorities.update(&none) && !priorities.update(&none));
        assert!(priorities.pin_id().is_none() && !priorities.are_any());
    }
}

//! Responses that are awaited: from the reply subject that a carried request got in the exporting
//! account to the one that it came with.

use super::inbound::{Inbound, route_inbound};
use super::latency::Measurement;
use crate::account::Account;
use crate::conn::Connection;
use crate::egress::Outgoing;
use crate::log_id::LogSlot;
use crate::options::ResponseKind;
use crate::route::DeliveryContext;
use crate::subscription::{Receiver, Subscription};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Responses awaited from one account at a time; beyond that the oldest is given up.
pub const RESPONSES_MAX: usize = 64 * 1024;
/// Keys of responses that came, kept until this many more than twice the awaited ones are there.
const SPARE_KEYS: usize = 64;
/// Prefix of the reply subjects of forwarded requests.
pub const PREFIX: &[u8] = b"_R_.";
/// Reply subjects that consumers need as they are.
const ACK_PREFIX: &[u8] = b"$JS.ACK.";
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Characters of the account's own part of a reply subject.
const ACCOUNT_CHARS: usize = 6;
/// Characters of a request's token: 64 unpredictable bits.
const REQUEST_CHARS: usize = 11;

/// Responses that are awaited from one account.
#[derive(Default)]
pub struct Responses {
    table: Arc<Mutex<Table>>,
    /// `_R_.` and the account's own part with its dot, once the first request came.
    prefix: OnceLock<Box<[u8]>>,
}

#[derive(Default)]
struct Table {
    awaited: FxHashMap<u64, Awaited>,
    /// In the order in which they came.
    order: VecDeque<u64>,
    random: RandomState,
    next: u64,
}

/// One awaited response, or several.
struct Awaited {
    requester: Weak<Account>,
    reply: Box<[u8]>,
    kind: ResponseKind,
    until: Instant,
    threshold: Duration,
    measurement: Option<Box<Measurement>>,
}

/// How responses to a request are handled.
pub(super) struct ResponseTerms {
    pub(super) kind: ResponseKind,
    pub(super) threshold: Duration,
    pub(super) measurement: Option<Box<Measurement>>,
}

impl Responses {
    /// A reply subject in `account`, whose responses these are, that leads to `reply` of
    /// `requester`.
    pub(super) fn open(
        &self,
        account: &Arc<Account>,
        server: &Arc<Connection>,
        requester: &Arc<Account>,
        reply: &[u8],
        terms: ResponseTerms,
    ) -> Vec<u8> {
        if reply.starts_with(ACK_PREFIX) {
            // A consumer's acknowledgement: renaming it would break pulls across accounts.
            return reply.to_vec();
        }
        let prefix = self.prefix.get_or_init(|| self.begin(account, server));
        let ResponseTerms { kind, threshold, measurement } = terms;
        let awaited = Awaited {
            requester: Arc::downgrade(requester),
            reply: reply.into(),
            kind,
            until: Instant::now() + threshold,
            threshold,
            measurement,
        };
        let key = self.table.lock().add(awaited);
        let mut subject = Vec::with_capacity(prefix.len() + REQUEST_CHARS);
        subject.extend_from_slice(prefix);
        push_base62(&mut subject, key, REQUEST_CHARS);
        subject
    }

    /// Subscribes to the account's reply subjects.
    fn begin(&self, account: &Arc<Account>, server: &Arc<Connection>) -> Box<[u8]> {
        let mut prefix = PREFIX.to_vec();
        push_base62(&mut prefix, RandomState::new().hash_one(&account.name), ACCOUNT_CHARS);
        prefix.push(b'.');
        let receiver = ReplyRelay {
            table: self.table.clone(),
            responder: Arc::downgrade(account),
            prefix_len: prefix.len(),
        };
        let pattern = [&prefix[..], b"*"].concat();
        let sub = Subscription::of_server(server.clone(), &pattern, Arc::new(receiver));
        account.interest.insert(Arc::new(sub));
        prefix.into_boxed_slice()
    }

    /// Releases the subject returned by `open`: the request was not delivered.
    pub(super) fn give_up(&self, subject: &[u8]) {
        let Some(prefix) = self.prefix.get() else { return };
        if let Some(key) = subject.strip_prefix(&**prefix).and_then(key_of) {
            self.table.lock().awaited.remove(&key);
        }
    }

    /// How many are awaited.
    #[must_use]
    pub fn count(&self) -> usize {
        self.table.lock().awaited.len()
    }
}

impl Table {
    fn add(&mut self, awaited: Awaited) -> u64 {
        let now = Instant::now();
        if self.order.len() > 2 * self.awaited.len() + SPARE_KEYS {
            let Self { awaited, order, .. } = self;
            order.retain(|key| awaited.contains_key(key));
        }
        while let Some(oldest) = self.order.front() {
            let alive = self.awaited.get(oldest).is_some_and(|oldest| oldest.until > now);
            if alive && self.awaited.len() < RESPONSES_MAX {
                break;
            }
            if let Some(oldest) = self.order.pop_front() {
                self.awaited.remove(&oldest);
            }
        }
        self.next += 1;
        let key = self.random.hash_one(self.next);
        self.awaited.insert(key, awaited);
        self.order.push_back(key);
        key
    }

    /// Takes the requester of this response; of a kind with a single response it is then forgotten.
    fn take(&mut self, key: u64, is_empty: bool) -> Option<PendingResponse> {
        let now = Instant::now();
        let awaited = self.awaited.get_mut(&key)?;
        let over = awaited.until <= now;
        let last = match awaited.kind {
            ResponseKind::Single => true,
            ResponseKind::Stream => false,
            ResponseKind::Chunked => is_empty,
        };
        awaited.until = now + awaited.threshold;
        let waiting = PendingResponse {
            requester: awaited.requester.clone(),
            reply: awaited.reply.clone(),
            kind: awaited.kind,
            threshold: awaited.threshold,
            measurement: awaited.measurement.take(),
        };
        if last || over {
            self.awaited.remove(&key);
        }
        (!over).then_some(waiting)
    }
}

/// A requester that waits for a response.
struct PendingResponse {
    requester: Weak<Account>,
    reply: Box<[u8]>,
    kind: ResponseKind,
    threshold: Duration,
    measurement: Option<Box<Measurement>>,
}

/// Relays responses of an account to the requesters.
struct ReplyRelay {
    table: Arc<Mutex<Table>>,
    responder: Weak<Account>,
    prefix_len: usize,
}

impl ReplyRelay {
    fn key(&self, routed: &[u8]) -> Option<u64> {
        key_of(routed.get(self.prefix_len..)?)
    }

    fn waiting(&self, routed: &[u8]) -> Option<(Arc<Account>, Box<[u8]>)> {
        let table = self.table.lock();
        let awaited = table.awaited.get(&self.key(routed)?)?;
        Some((awaited.requester.upgrade()?, awaited.reply.clone()))
    }
}

impl Receiver for ReplyRelay {
    fn receive(
        &self,
        sub: &Subscription,
        message: &Outgoing<'_>,
        way: &mut DeliveryContext<'_>,
    ) -> bool {
        let Some(key) = self.key(message.routed) else { return false };
        let is_empty = message.body.is_empty();
        let Some(waiting) = self.table.lock().take(key, is_empty) else { return false };
        let (Some(requester), Some(responder)) =
            (waiting.requester.upgrade(), self.responder.upgrade())
        else {
            return false;
        };
        if let Some(measurement) = waiting.measurement {
            measurement.answered(&responder, sub.conn.server(), way.from);
        }
        let mut reply = Vec::new();
        if !message.reply.is_empty() {
            let PendingResponse { kind, threshold, .. } = waiting;
            let terms = ResponseTerms { kind, threshold, measurement: None };
            let responses = &requester.imports.responses;
            reply = responses.open(&requester, &sub.conn, &responder, message.reply, terms);
        }
        let is_delivery = message.subject != message.routed;
        let inbound = Inbound {
            subject: if is_delivery { message.subject } else { &waiting.reply },
            routed: &waiting.reply,
            reply: &reply,
            headers: message.headers,
            body: message.body,
        };
        let taken = route_inbound(sub.conn.server(), &requester, &inbound, way);
        if !taken {
            self.table.lock().awaited.remove(&key);
        }
        taken
    }

    fn hears(&self, routed: &[u8]) -> bool {
        self.waiting(routed).is_some_and(|(requester, reply)| {
            let mut matched = crate::interest::Matched::default();
            requester.interest.match_into(&reply, &mut matched);
            crate::route::is_heard(&matched, b"", &reply)
        })
    }

    fn ready(&self, routed: &[u8], slot: LogSlot) -> bool {
        self.waiting(routed).is_none_or(|(requester, reply)| {
            let mut matched = crate::interest::Matched::default();
            requester.interest.match_into(&reply, &mut matched);
            crate::route::is_ready(&matched, &reply, slot)
        })
    }
}

fn push_base62(out: &mut Vec<u8>, mut number: u64, chars: usize) {
    for _ in 0..chars {
        out.push(DIGITS[(number % 62) as usize]);
        number /= 62;
    }
}

/// Parses what [`push_base62`] wrote with [`REQUEST_CHARS`].
fn key_of(text: &[u8]) -> Option<u64> {
    if text.len() != REQUEST_CHARS {
        return None;
    }
    text.iter().rev().try_fold(0_u64, |number, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'A'..=b'Z' => byte - b'A' + 10,
            b'a'..=b'z' => byte - b'a' + 36,
            _ => return None,
        };
        number.checked_mul(62)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_text() {
        for key in [0, 1, 61, 62, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut text = Vec::new();
            push_base62(&mut text, key, REQUEST_CHARS);
            assert_eq!(key_of(&text), Some(key));
        }
        assert_eq!(key_of(b"short"), None);
        assert_eq!(key_of(b"zzzzzzzzzzz"), None, "above 64 bits");
    }
}

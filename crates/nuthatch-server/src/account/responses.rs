//! Responses that are awaited: from the reply subject that a carried request got in the exporting
//! account to the one that it came with.

use super::Account;
use crate::latency::Measurement;
use crate::options::ResponseKind;
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
    until: Instant,
    terms: ResponseTerms,
}

/// How responses to a request are handled.
pub(crate) struct ResponseTerms {
    pub(crate) kind: ResponseKind,
    pub(crate) threshold: Duration,
    pub(crate) measurement: Option<Box<Measurement>>,
}

impl Responses {
    /// A response is awaited, which goes to `reply` of `requester`. Its reply subject, below
    /// [`Responses::prefix`].
    pub(crate) fn expect(
        &self,
        prefix: &[u8],
        requester: &Arc<Account>,
        reply: &[u8],
        terms: ResponseTerms,
    ) -> Vec<u8> {
        let until = Instant::now() + terms.threshold;
        let requester = Arc::downgrade(requester);
        let key = self.table.lock().add(Awaited { requester, reply: reply.into(), until, terms });
        let mut subject = Vec::with_capacity(prefix.len() + REQUEST_CHARS);
        subject.extend_from_slice(prefix);
        push_base62(&mut subject, key, REQUEST_CHARS);
        subject
    }

    /// The prefix of the account's reply subjects. `begin` subscribes to them: it is called once, with the
    /// prefix and the table that leads the responses back.
    pub(crate) fn prefix(
        &self,
        account: &str,
        begin: impl FnOnce(&[u8], AwaitedResponses),
    ) -> &[u8] {
        self.prefix.get_or_init(|| {
            let mut prefix = PREFIX.to_vec();
            push_base62(&mut prefix, RandomState::new().hash_one(account), ACCOUNT_CHARS);
            prefix.push(b'.');
            let prefix_len = prefix.len();
            begin(&prefix, AwaitedResponses { table: self.table.clone(), prefix_len });
            prefix.into_boxed_slice()
        })
    }

    /// Releases the subject returned by `expect`: the request was not delivered.
    pub(crate) fn give_up(&self, subject: &[u8]) {
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
        let last = match awaited.terms.kind {
            ResponseKind::Single => true,
            ResponseKind::Stream => false,
            ResponseKind::Chunked => is_empty,
        };
        let ResponseTerms { kind, threshold, .. } = awaited.terms;
        awaited.until = now + threshold;
        let waiting = PendingResponse {
            requester: awaited.requester.clone(),
            reply: awaited.reply.clone(),
            terms: ResponseTerms { kind, threshold, measurement: awaited.terms.measurement.take() },
        };
        if last || over {
            self.awaited.remove(&key);
        }
        (!over).then_some(waiting)
    }
}

/// A requester that waits for a response.
pub(crate) struct PendingResponse {
    pub(crate) requester: Weak<Account>,
    pub(crate) reply: Box<[u8]>,
    pub(crate) terms: ResponseTerms,
}

/// The responses that are awaited from an account, as the server's subscription to them knows them.
pub(crate) struct AwaitedResponses {
    table: Arc<Mutex<Table>>,
    prefix_len: usize,
}

impl AwaitedResponses {
    /// The key in a reply subject.
    pub(crate) fn key(&self, routed: &[u8]) -> Option<u64> {
        key_of(routed.get(self.prefix_len..)?)
    }

    /// Who waits for a response to this subject, and where.
    pub(crate) fn waiting(&self, routed: &[u8]) -> Option<(Arc<Account>, Box<[u8]>)> {
        let table = self.table.lock();
        let awaited = table.awaited.get(&self.key(routed)?)?;
        Some((awaited.requester.upgrade()?, awaited.reply.clone()))
    }

    /// Takes the requester of this response; of a kind with a single response it is then forgotten.
    pub(crate) fn take(&self, key: u64, is_empty: bool) -> Option<PendingResponse> {
        self.table.lock().take(key, is_empty)
    }

    /// Nothing is awaited under this key any more.
    pub(crate) fn forget(&self, key: u64) {
        self.table.lock().awaited.remove(&key);
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

//! `allow_responses`: reply subjects that a client may publish to because it was sent them.

use crate::options::ResponsePermission;
use rustc_hash::FxHashMap;
use std::time::Instant;

/// Most reply subjects remembered per connection; the oldest go first.
const TRACKED_MAX: usize = 4096;

#[derive(Debug)]
struct Allowance {
    left: Option<u32>,
    until: Option<Instant>,
    order: u64,
}

/// Reply subjects of one connection.
#[derive(Debug, Default)]
pub(super) struct ReplyTracker {
    allowed: FxHashMap<Box<[u8]>, Allowance>,
    next_order: u64,
}

impl ReplyTracker {
    /// Allows answers to `reply`.
    pub(super) fn track(&mut self, reply: &[u8], bounds: &ResponsePermission, now: Instant) {
        if self.allowed.len() >= TRACKED_MAX {
            self.prune(now);
        }
        self.next_order += 1;
        let until = bounds.expires.map(|expires| now + expires);
        let allowance = Allowance { left: bounds.max_msgs, until, order: self.next_order };
        self.allowed.insert(reply.into(), allowance);
    }

    /// Uses up one answer to `subject`; `false` if none is allowed.
    pub(super) fn spend(&mut self, subject: &[u8], now: Instant) -> bool {
        let Some(allowance) = self.allowed.get_mut(subject) else { return false };
        let expired = allowance.until.is_some_and(|until| until <= now);
        let allowed = !expired && allowance.left != Some(0);
        if let Some(left) = &mut allowance.left {
            *left = left.saturating_sub(1);
        }
        if !allowed || allowance.left == Some(0) {
            self.allowed.remove(subject);
        }
        allowed
    }

    /// Drops what has expired and, if that is not enough, the older half.
    fn prune(&mut self, now: Instant) {
        self.allowed.retain(|_, allowance| allowance.until.is_none_or(|until| until > now));
        if self.allowed.len() >= TRACKED_MAX {
            let keep_from = self.next_order.saturating_sub(TRACKED_MAX as u64 / 2);
            self.allowed.retain(|_, allowance| allowance.order > keep_from);
        }
    }
}

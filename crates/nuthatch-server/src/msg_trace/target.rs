//! What an account says about messages with a trace context.

use crate::member_rng::MemberRng;
use crate::options::{MsgTrace, WHOLE_SAMPLING};
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where an account wants messages with a trace context to be traced.
#[derive(Debug, Default)]
pub struct TraceTarget {
    is_set: AtomicBool,
    target: ArcSwapOption<MsgTrace>,
}

impl TraceTarget {
    pub(crate) fn set(&self, target: Option<MsgTrace>) {
        self.is_set.store(target.is_some(), Ordering::Relaxed);
        self.target.store(target.map(Arc::new));
    }

    /// True if it wants any.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// The subject, and whether the message at hand is one of those that are traced.
    pub fn choose(&self, rng: &mut MemberRng) -> Option<(Vec<u8>, bool)> {
        let target = self.target.load_full()?;
        let whole = usize::from(WHOLE_SAMPLING);
        let is_chosen = rng.below(whole) < usize::from(target.sampling);
        Some((target.dest.as_bytes().to_vec(), is_chosen))
    }
}

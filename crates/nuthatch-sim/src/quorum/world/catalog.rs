//! The catalog behind a network of its own, which loses calls and answers.

use super::super::host::Host;
use super::{Happening, MILLI, World};
use nuthatch_quorum::catalog::{Call, Ordering};
use nuthatch_quorum::store::Record;

impl World {
    /// How long a message to or from the catalog takes; none: it is lost.
    pub(super) fn catalog_delay(&mut self) -> Option<u64> {
        let away = self.schedule.now() < self.catalog_back;
        let rng = &mut self.schedule.rng;
        let loss = self.net.weather.loss;
        let lost = away || rng.chance(loss);
        let slow = self.schedule.now() < self.catalog_slow_until;
        let rng = &mut self.schedule.rng;
        let most =
            if slow { rng.between(20 * MILLI, 500 * MILLI) } else { self.net.weather.delay_max };
        (!lost).then(|| rng.between(500, 500 + most))
    }

    pub(super) fn call_arrives(&mut self, at: usize, life: u64, call: &Call) {
        let before = self.catalog.state().log.revision;
        if let (Some(ahead), Call::Propose(txn)) = (&self.catalog_ahead, call)
            && txn.seen < self.catalog_seen.min(ahead.state().revision)
        {
            // Sent before the catalog was set back.
            return;
        }
        let earlier = matches!(call, Call::Propose(_)).then(|| self.catalog.clone());
        let reply = self.catalog.call(call);
        if self.catalog_ahead.is_none() && reply.snapshot.log.revision > before {
            self.catalog_earlier.extend(earlier);
        }
        if self.schedule.now() < self.catalog_mute_until {
            return;
        }
        if let Some(delay) = self.catalog_delay() {
            self.schedule
                .after(delay, Happening::CallAnswered { at, life, reply: Box::new(reply) });
        }
    }

    /// The catalog is brought back as it was some changes ago, where all nodes run and have durably seen the
    /// present one: a node that has not cannot know. What was on its way to the true one is lost: where it went
    /// on from the earlier one, both would have other transactions under the same revisions.
    pub(super) fn catalog_goes_back(&mut self) {
        let revision = self.catalog.state().revision;
        let seen = |host: &Host| {
            let identity = host.disk.durable().identity;
            host.node.is_some()
                && matches!(identity, Record::Good(identity) if identity.seen == revision)
        };
        let fit = self.impaired.is_empty() && self.hosts.iter().all(seen);
        if !fit || self.catalog_ahead.is_some() || self.catalog_earlier.is_empty() {
            return;
        }
        let back = self.catalog_earlier.len().min(4) as u64;
        let back = 1 + self.schedule.rng.below(back) as usize;
        let earlier = self.catalog_earlier[self.catalog_earlier.len() - back].clone();
        self.catalog_seen = revision;
        self.catalog_ahead = Some(std::mem::replace(&mut self.catalog, earlier));
        let pause = self.schedule.rng.between(500 * MILLI, 4_000 * MILLI);
        self.schedule.after(pause, Happening::CatalogForward);
    }

    /// The catalog is again what it was: what was changed meanwhile in the one that had gone back is void.
    pub(super) fn catalog_forward(&mut self) {
        if let Some(ahead) = self.catalog_ahead.take() {
            self.catalog = ahead;
        }
    }
}

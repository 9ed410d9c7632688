//! Who has the log open at its owner: where its set can change the log is closed, and the core hears of that.

use super::super::checker::Violation;
use super::{Happening, MILLI, SECOND, World};
use crate::rng::Rng;
use nuthatch_quorum::node::Event;

/// The driver of whoever owns the log.
#[derive(Debug)]
pub(super) struct Driver {
    /// Its own, so that what it draws changes nothing else.
    rng: Rng,
    closes: Option<bool>,
}

impl Driver {
    pub(super) fn new(seed: u64, closes: Option<bool>) -> Self {
        Self { rng: Rng::new(!seed), closes }
    }

    /// How long it takes until it looks again: now and then longer than a core waits for it.
    fn pause(&mut self) -> u64 {
        match self.closes {
            None if self.rng.chance(100) => self.rng.between(4 * SECOND, 8 * SECOND),
            _ => self.rng.between(10 * MILLI, SECOND),
        }
    }
}

impl World {
    /// The owner is told that its set may change, whether it can or not.
    pub(super) fn driver_looks(&mut self) -> Result<(), Violation> {
        let pause = self.driver.pause();
        self.schedule.after(pause, Happening::DriverLooks);
        match self.owner().filter(|_| self.driver.closes != Some(false)) {
            Some(at) => self.event(at, Event::ChangeSet),
            None => Ok(()),
        }
    }

    /// True if the log's owner waits for its driver, which may do nothing for a while: the owner is to keep the log no more,
    /// or its set can change.
    pub(super) fn waits_for_driver(&self) -> bool {
        let keepers = &self.catalog.state().wish.value.keepers;
        self.owner().is_some_and(|at| {
            let host = &self.hosts[at];
            let now = host.time(self.schedule.now());
            let can_change = host.node.as_ref().is_some_and(|node| node.set_can_change(now));
            can_change || !keepers.contains(&host.id)
        })
    }
}

//! Steps of the cores: what happens to them, and what they ask for, under the lock of the cores.

use super::Host;
use super::core::Core;
use super::syncs::PendingSync;
use crate::clock::now;
use crate::packet::Packet;
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::Lsn;

/// Who takes a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// A thread of the log.
    Own,
    /// One that other logs need, too.
    Shared,
}

impl Host {
    /// Handles a packet whose epoch can be, when [`Host::catch_up`] was called: a beat lets go of all payloads that are held.
    pub(super) fn take(&self, core: &mut Core, packet: Packet) -> Vec<PendingSync> {
        let came = core.hold(&packet);
        let told = core.told_commit(&packet.envelope);
        let syncs = self.step_as(core, Event::Deliver(packet.envelope), Who::Own);
        if let Some((promise, commit)) = told
            && core.take_commit(promise, commit)
        {
            self.note(core);
        }
        core.let_go(&came);
        syncs
    }

    /// Takes a step, behind what others have left to be done.
    pub(super) fn step(&self, core: &mut Core, event: Event) -> Vec<PendingSync> {
        self.catch_up(core);
        self.step_as(core, event, Who::Own)
    }

    /// The cores' part of a step, in which one thing happens after the other; none after the end. What they ask for is to
    /// be done before anything else.
    pub(super) fn begin_step(
        &self,
        core: &mut Core,
        events: impl IntoIterator<Item = Event>,
    ) -> Option<Vec<Effect>> {
        #[cfg(feature = "mutations")]
        crate::rules_off::for_this_thread();
        if self.has_ended() {
            return None;
        }
        if std::mem::replace(&mut core.in_step, true) {
            // A thread has ended in the middle of a step: nothing may be answered on what it may not have written.
            core.dir_failed = true;
            self.report("a step of the node was not finished: it must be started again");
        }
        let effects = events.into_iter().flat_map(|event| core.node.step(event, now())).collect();
        self.set_lease(core);
        Some(effects)
    }

    /// Does what the cores ask for.
    pub(super) fn finish_step(&self, core: &mut Core, effects: Vec<Effect>) -> Vec<PendingSync> {
        let mut syncs = self.perform(core, effects);
        while let Some(lsn) = core.suspect.take() {
            let strays = core.stray_at(lsn).into_iter().collect();
            let event = Event::Verified { from: lsn, upto: lsn, damaged: vec![lsn], strays };
            let effects = core.node.step(event, now());
            self.set_lease(core);
            syncs.extend(self.perform(core, effects));
        }
        let owned = core.node.owner().map_or(Lsn(0), |owner| owner.commit());
        core.commit = core.commit.max(owned);
        core.watch();
        self.note(core);
        core.in_step = false;
        syncs
    }

    /// Does what shared threads have left to be done. For a thread of the log.
    pub fn do_deferred(&self) {
        self.catch_up(&mut self.cores());
    }

    /// Has the thread of the log do what was left to be done.
    pub(super) fn wake_stepper(&self) {
        // Where it was asked already it has not looked yet.
        let _ = self.helpers.deferred.offer(());
    }

    pub(super) fn finish_deferred(&self, core: &mut Core) -> Vec<PendingSync> {
        let deferred = std::mem::take(&mut core.deferred);
        if deferred.is_empty() || self.has_ended() {
            return vec![];
        }
        core.in_step = true;
        self.finish_step(core, deferred)
    }

    /// Takes a step. A shared thread leaves what the cores ask for to a thread of the log if any of it is written, or told.
    pub(super) fn step_as(&self, core: &mut Core, event: Event, who: Who) -> Vec<PendingSync> {
        self.steps_as(core, [event], who)
    }

    /// The same where several things happen at the same time.
    pub(super) fn steps_as(
        &self,
        core: &mut Core,
        events: impl IntoIterator<Item = Event>,
        who: Who,
    ) -> Vec<PendingSync> {
        let mut syncs = self.finish_deferred(core);
        let Some(effects) = self.begin_step(core, events) else { return syncs };
        let writes = |effect: &Effect| match effect {
            Effect::Store(ops) => !ops.is_empty(),
            effect => matches!(effect, Effect::Alarm(_)),
        };
        if who == Who::Shared && effects.iter().any(writes) {
            core.deferred = effects;
            core.in_step = false;
            self.wake_stepper();
        } else {
            syncs.extend(self.finish_step(core, effects));
        }
        syncs
    }
}

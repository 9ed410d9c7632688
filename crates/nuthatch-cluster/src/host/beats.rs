//! Beats and the passing of time. One thread lets it pass for all logs of a node, and one for each other node takes what
//! that says. These threads are shared, so they neither wait for a log that is at something long, as on a disk that hangs,
//! nor do such things themselves: what comes meanwhile is kept for whoever steps next, and what is to be written is left to
//! a thread of the log.

use super::Host;
use super::core::Core;
use super::cores::Cores;
use super::steps::Who;
use super::syncs::PendingSync;
use crate::clock::wall_now;
use crate::coding::{Malformed, malformed};
use crate::packet::{self, Packet};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::NodeId;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a shared thread waits for the cores of a log: longer than an ordinary step takes.
const WAIT: Duration = Duration::from_millis(1);

/// Beats that wait for the cores; the oldest gives way. Seven nodes send so many in a second.
const LATE_MAX: usize = 256;

/// What could not be handled when it came.
#[derive(Default)]
pub(super) struct Late {
    beats: Mutex<VecDeque<Packet>>,
    /// Time has passed.
    tick: AtomicBool,
}

impl Late {
    fn is_empty(&self) -> bool {
        self.beats.lock().is_empty()
    }

    fn push(&self, beat: Packet) {
        let mut beats = self.beats.lock();
        if beats.len() == LATE_MAX {
            beats.pop_front();
        }
        beats.push_back(beat);
    }

    /// What a node has said is not to be handled any more.
    pub(super) fn forget(&self, node: NodeId) {
        self.beats.lock().retain(|beat| beat.envelope.from != node);
    }
}

impl Host {
    /// Lets time pass. Syncs are handed on: beats must go out although a disk hangs.
    pub fn tick(&self) {
        let syncs = match self.core_soon() {
            Some(mut core) => self.pass_time(&mut core, Who::Shared),
            None => return self.leave_tick(),
        };
        self.hand_on(syncs);
    }

    /// Handles a packet of a peer that came on the connection of beats.
    ///
    /// # Errors
    /// It is no beat, or as for [`Host::deliver`].
    pub fn deliver_beat(&self, packet: Packet) -> Result<(), Malformed> {
        if !packet::is_beat(&packet.envelope.message) {
            return Err(malformed("what is no beat came on the connection of beats"));
        }
        let syncs = {
            let Some(mut core) = self.core_soon() else {
                self.late.push(packet);
                self.wake_stepper();
                return Ok(());
            };
            core.check(&packet.envelope.message)?;
            self.take_beat(&mut core, packet, Who::Shared)
        };
        self.hand_on(syncs);
        Ok(())
    }

    /// A node has ended its connection for beats to this one.
    pub(crate) fn beats_hung_up(&self, node: NodeId) {
        self.late.forget(node);
        if let Some(mut core) = self.core_soon() {
            core.node.lose_sight(node);
        }
        self.helpers.outbound.doubt(node);
    }

    /// The connection for beats to a node was lost and cannot be made again.
    pub(crate) fn beats_lost(&self, node: NodeId) {
        self.late.forget(node);
        // The log's own connection finds that out, too, and waits if the cores are at something long.
        let Some(mut core) = self.core_soon() else { return };
        let syncs = self.step_as(&mut core, Event::Reset(node), Who::Shared);
        drop(core);
        self.hand_on(syncs);
    }

    /// Whoever takes the next step lets time pass, too.
    fn leave_tick(&self) {
        self.late.tick.store(true, Ordering::Release);
        self.wake_stepper();
    }

    /// What was left to be done, or came, while the cores were at something long, as long as they are held now.
    /// The syncs that it leads to are handed on: they are not the business of who came by.
    pub(super) fn catch_up(&self, core: &mut Core) {
        let mut syncs = self.finish_deferred(core);
        let late = std::mem::take(&mut *self.late.beats.lock());
        for beat in late {
            if core.check(&beat.envelope.message).is_ok() {
                syncs.extend(self.take_beat(core, beat, Who::Own));
            }
        }
        if self.late.tick.swap(false, Ordering::AcqRel) {
            syncs.extend(self.pass_time(core, Who::Own));
        }
        self.hand_on(syncs);
    }

    /// The cores, if they can be had soon and nothing is left to be done before.
    fn core_soon(&self) -> Option<Cores<'_>> {
        let core = self.cores_within(WAIT);
        core.filter(|core| core.deferred.is_empty() && self.late.is_empty())
    }

    fn pass_time(&self, core: &mut Core, who: Who) -> Vec<PendingSync> {
        self.steps_as(core, [Event::Wall(wall_now()), Event::Tick], who)
    }

    fn take_beat(&self, core: &mut Core, beat: Packet, who: Who) -> Vec<PendingSync> {
        let told = core.told_commit(&beat.envelope);
        let syncs = self.step_as(core, Event::Deliver(beat.envelope), who);
        // What is left to be done has its payloads held, and is not to be seen before it is done.
        if core.deferred.is_empty() {
            if let Some((promise, commit)) = told
                && core.take_commit(promise, commit)
            {
                self.note(core);
            }
            core.let_go(&[]);
        }
        syncs
    }
}

//! Beats and the passing of time. One thread lets it pass for all logs of a node, and one for each other node takes what
//! that says: where a log is at something long, as on a disk that hangs, neither waits for it. What came meanwhile is
//! handled before time passes for that log.

use super::Host;
use super::core::Core;
use super::syncs::PendingSync;
use crate::clock::wall_now;
use crate::coding::{Malformed, malformed};
use crate::packet::{self, Packet};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::NodeId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the cores of a log are waited for: longer than what they do as long as the disk takes writes.
const WAIT: Duration = Duration::from_millis(10);

/// The same where they were waited for in vain: the other logs are not to be held up again.
const SHORT_WAIT: Duration = Duration::from_millis(1);

/// Beats that wait for the cores; the oldest gives way. Seven nodes send so many in a second.
const LATE_MAX: usize = 256;

/// What could not be handled when it came.
#[derive(Default)]
pub(super) struct Late {
    beats: Mutex<VecDeque<Packet>>,
    /// The cores were waited for in vain the last time.
    in_vain: AtomicBool,
}

impl Late {
    fn push(&self, beat: Packet) {
        let mut beats = self.beats.lock();
        if beats.len() == LATE_MAX {
            beats.pop_front();
        }
        beats.push_back(beat);
    }
}

impl Host {
    /// Lets time pass. Syncs are handed on: beats must go out although a disk hangs.
    pub fn tick(&self) {
        let syncs = {
            let Some(mut core) = self.core_soon() else { return };
            let mut syncs = self.take_late(&mut core);
            syncs.extend(self.step(&mut core, Event::Wall(wall_now())));
            syncs.extend(self.step(&mut core, Event::Tick));
            syncs
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
                return Ok(());
            };
            core.check(&packet.envelope.message)?;
            let mut syncs = self.take_late(&mut core);
            syncs.extend(self.take(&mut core, packet));
            syncs
        };
        self.hand_on(syncs);
        Ok(())
    }

    /// The connection for beats to a node was lost and cannot be made again.
    pub(crate) fn lost_beats(&self, node: NodeId) {
        // The log's own connection finds that out, too, and waits if the cores are at something long.
        let Some(mut core) = self.core_soon() else { return };
        let syncs = self.step(&mut core, Event::Reset(node));
        drop(core);
        self.hand_on(syncs);
    }

    /// The cores, if they can be had soon.
    fn core_soon(&self) -> Option<MutexGuard<'_, Core>> {
        let wait = if self.late.in_vain.load(Ordering::Relaxed) { SHORT_WAIT } else { WAIT };
        let core = self.core.try_lock_for(wait);
        self.late.in_vain.store(core.is_none(), Ordering::Relaxed);
        core
    }

    /// Handles what came while nobody could.
    fn take_late(&self, core: &mut Core) -> Vec<PendingSync> {
        let late = std::mem::take(&mut *self.late.beats.lock());
        let good = late.into_iter().filter(|beat| core.check(&beat.envelope.message).is_ok());
        let good: Vec<Packet> = good.collect();
        good.into_iter().flat_map(|beat| self.take(core, beat)).collect()
    }
}

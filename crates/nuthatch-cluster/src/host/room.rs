//! How much room the keeper's disk has, and what follows from that.

use super::Host;
use nuthatch_log::env::Disk;
use nuthatch_quorum::node::Event;
use std::sync::atomic::Ordering;

impl Host {
    /// Looks how much is free on the keeper's disk. Waits for the operating system, so nobody does it who must not.
    pub(crate) fn look_at_room(&self, disk: &dyn Disk) {
        // One that cannot say is not full.
        if !self.space.is_kept() || self.has_ended() {
            return;
        }
        let Ok(free) = disk.free_bytes() else { return };
        self.space.see(free);
        let (short, room) = (self.space.is_short(), !self.space.is_full());
        let (takes_none, had_room) = {
            let mut core = self.cores();
            core.node.set_short(short);
            (core.node.takes_no_messages(), core.node.keeper().has_room())
        };
        self.takes_none.store(takes_none, Ordering::Release);
        if room != had_room {
            self.report(match room {
                true => "there is room on this node's disk again: it keeps what the others have",
                false => "this node's disk is full: it keeps nothing more of this log until there is room, and is as good as away",
            });
            self.handle(Event::Room(room));
        }
    }

    /// True if no new messages are to be taken: this node's disk is nearly full, or those of too many others are.
    pub(crate) fn takes_no_messages(&self) -> bool {
        self.takes_none.load(Ordering::Acquire) || self.space.is_short()
    }

    /// True if this node's disk is nearly full.
    pub(crate) fn is_short(&self) -> bool {
        self.space.is_short()
    }
}

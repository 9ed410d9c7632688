//! What makes a host wait for its disk, done by threads that hold nothing: syncs, trimming, files of the journal.

use super::Host;
use crate::keeper_dir::Chore;
use crate::sync_gate::ToSync;
use nuthatch_log::env::is_full;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::{Lsn, SyncId};
use std::io;

/// A sync that was asked for.
pub struct PendingSync {
    pub(super) id: SyncId,
    pub(super) to_sync: ToSync,
    pub(super) good: bool,
}

impl Host {
    pub(super) fn hand_on(&self, syncs: Vec<PendingSync>) {
        for sync in syncs {
            // When its thread has ended nothing is answered any more.
            let _ = self.helpers.syncs.send(Some(sync));
        }
    }

    /// The files are durable up to an entry: the journal is trimmed as far as `keep.0` of its files stay, and where
    /// entries are `held` not past them, unless more than `keep.1` files would stay.
    pub fn trim(&self, durable: Lsn, keep: (usize, usize), held: Option<Lsn>) {
        let (syncs, chore) = {
            let mut core = self.cores();
            let wanted = core.dir.trim_point(keep.0).min(held.unwrap_or(durable));
            let upto = wanted.max(core.dir.trim_point(keep.1)).min(durable);
            if upto <= core.node.keeper().log().base().lsn {
                return;
            }
            let syncs = self.step(&mut core, Event::Trim { upto });
            (syncs, core.dir.take_trim())
        };
        self.sync_all(syncs);
        self.do_chore(chore);
    }

    /// Makes the journal's next file, if it is needed soon: whoever writes then does not wait for that.
    pub fn prepare_journal(&self) {
        let chore = self.cores().dir.take_spare();
        self.do_chore(chore);
    }

    /// Nobody waits meanwhile.
    fn do_chore(&self, chore: Option<Chore>) {
        let Some(chore) = chore else { return };
        let turn = chore.turn();
        match chore.finish() {
            Ok(Some((number, file))) => self.cores().dir.give_spare(&turn, number, file),
            Ok(None) => {}
            // It is tried again, and there is room in the file that is written.
            Err(error) if is_full(&error) => self.cores().dir.give_up_spare(&turn),
            Err(error) => self.fail(&format!("the keeper's journal cannot be tended: {error}")),
        }
    }

    /// Makes the journal durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync_journal(&self) -> io::Result<()> {
        let to_sync = self.cores().dir.to_sync();
        self.gate.sync(&to_sync)
    }

    /// Makes syncs and tells the cores, until none is left.
    pub(super) fn sync_all(&self, mut syncs: Vec<PendingSync>) {
        while let Some(last) = syncs.pop() {
            // What comes earlier is durable with it: the journal was synced before it went on to this file.
            let good = last.good && syncs.iter().all(|sync| sync.good);
            syncs = self.finish_sync(PendingSync { good, ..last });
        }
    }

    fn finish_sync(&self, sync: PendingSync) -> Vec<PendingSync> {
        let synced = self.gate.sync(&sync.to_sync);
        if let Err(error) = &synced {
            self.report(&format!("the keeper's journal cannot be made durable: {error}"));
        }
        let mut core = self.cores();
        self.step(&mut core, Event::Synced(sync.id, sync.good && synced.is_ok()))
    }

    /// Makes a sync that was handed on.
    pub fn make_sync(&self, sync: PendingSync) {
        self.sync_all(vec![sync]);
    }
}

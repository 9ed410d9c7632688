//! What a host guards by its lock: the node, its directory, and the payloads that belong to entries.

use crate::clock::now;
use crate::coding::{Malformed, malformed};
use crate::journal::RecordOnDisk;
use crate::keeper_dir::KeeperDir;
use crate::packet::{self, BATCH_BYTES, Packet, entries, hash_of};
use crate::ring::Ring;
use crate::stopwatch::{Shares, Stopwatch};
use bytes::Bytes;
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::entry::{Body, Entry};
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::node::Node;
use nuthatch_quorum::types::{Epoch, Lsn, Member, Promise};
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::io;

/// How far an epoch may lie beyond the greatest that this keeper has promised: more than the takeovers that a
/// keeper can have missed, and few enough that one lie does not use epochs up.
const EPOCHS_AHEAD_MAX: u32 = 1 << 24;

/// Entries that are read at once to be applied.
const ENTRIES_MAX: usize = 4096;

/// Where the payload of an entry is.
pub(super) enum Payload {
    /// In memory, or there is none.
    Here(Bytes),
    /// In the journal.
    OnDisk(RecordOnDisk),
}

impl Payload {
    /// The payload.
    pub(super) fn read(self) -> io::Result<Bytes> {
        match self {
            Self::Here(payload) => Ok(payload),
            Self::OnDisk(record) => record.payload(),
        }
    }
}

pub(super) struct Core {
    pub(super) node: Node,
    pub(super) dir: KeeperDir,
    pub(super) ring: Ring,
    /// Payloads of what is being handled, and of what was fetched for a takeover.
    pub(super) held: HashMap<u64, Bytes>,
    /// What is committed, as far as this node was told by an owner.
    pub(super) commit: Lsn,
    pub(super) next_request: u64,
    pub(super) dir_failed: bool,
    /// The directory began anew: what was made of it is gone.
    pub(super) renewed: bool,
    /// The epoch and the disks that people were last told of, as its owner.
    pub(super) told: Option<(Epoch, Vec<Member>)>,
    /// An entry that a peer needs and that turned out damaged when it was read for it.
    pub(super) suspect: Option<Lsn>,
    /// A step is under way; found by another one, the thread that made it has ended in the middle.
    pub(super) in_step: bool,
    /// How long what it is doing takes.
    pub(super) watch: Stopwatch,
    /// The parts of the last takeover, until they are told.
    pub(super) shares: Option<Shares>,
    /// What the last step asks for, and whoever takes the next one does before.
    pub(super) deferred: Vec<Effect>,
    /// Requests were answered: whoever lets go of the cores wakes those who wait for that.
    pub(super) has_answered: bool,
}

impl Core {
    /// Notes what the node is doing after a step.
    pub(super) fn watch(&mut self) {
        let owned = self.node.owner().map(|owner| owner.epoch());
        let ended = self.watch.note(self.node.activity(), owned, now());
        self.shares = ended.or(self.shares.take());
    }

    /// Refuses an epoch that is further ahead than takeovers can have come: a keeper that promised it would
    /// never promise one that the catalog gives out.
    pub(super) fn check(&self, message: &Message) -> Result<(), Malformed> {
        let known = self.node.keeper().promise().epoch.0;
        match packet::epoch(message) {
            Some(epoch) if epoch.0 > known.saturating_add(EPOCHS_AHEAD_MAX) => {
                Err(malformed("it names an epoch that no takeover can have reached"))
            }
            _ => Ok(()),
        }
    }

    /// True if a message announces files that are of use here.
    pub(super) fn wants_files(&self, envelope: &Envelope) -> bool {
        let Message::Install { epoch, base, replaces } = &envelope.message else { return false };
        let keeper = self.node.keeper();
        let promise = Promise { epoch: *epoch, owner: envelope.sender };
        keeper.promise() == promise
            && !keeper.is_poisoned()
            && keeper.wants(*epoch, base, *replaces)
    }

    /// Payloads that came with a packet are there until it is handled; those that were fetched for a
    /// takeover until that is over. Gives those that were not there before.
    pub(super) fn hold(&mut self, packet: &Packet) -> Vec<u64> {
        let hashes = entries(&packet.envelope.message).filter_map(hash_of);
        let mut came = vec![];
        for (hash, payload) in hashes.zip(&packet.payloads) {
            if let MapEntry::Vacant(place) = self.held.entry(hash) {
                place.insert(payload.clone());
                came.push(hash);
            }
        }
        came
    }

    /// Forgets what came with a packet. What an owner has published itself waits for its turn.
    pub(super) fn let_go(&mut self, came: &[u64]) {
        if self.node.is_taking_over() {
            return;
        }
        if self.node.owner().is_none() {
            self.held.clear();
        }
        for hash in came {
            self.held.remove(hash);
        }
    }

    /// The entry that lies where this one should, and not at its own place.
    pub(super) fn stray_at(&self, lsn: Lsn) -> Option<Lsn> {
        let entry = self.node.keeper().log().get(lsn)?;
        let is_in_place = |lsn: &Lsn| self.record(*lsn).is_some_and(|record| record.is_good());
        self.dir.record(entry)?.stray().filter(|lsn| !is_in_place(lsn))
    }

    /// Where an entry's record should be.
    pub(super) fn record(&self, lsn: Lsn) -> Option<RecordOnDisk> {
        self.node.keeper().log().get(lsn).and_then(|entry| self.dir.record(entry))
    }

    /// Where the payloads of committed entries behind `after` are, in their order, as many as one may hold.
    pub(super) fn committed(&self, after: Lsn) -> Vec<(Lsn, Payload)> {
        let (mut found, mut bytes, mut lsn) = (vec![], 0, after.next());
        if self.renewed {
            // Whoever has files of what the log was opens them anew before anything else is applied to them.
            return found;
        }
        while lsn <= self.commit && bytes < BATCH_BYTES && found.len() < ENTRIES_MAX {
            let entry = self.node.keeper().log().get(lsn).copied();
            let Some((payload, len)) = entry.and_then(|entry| self.place(&entry)) else { break };
            bytes += len;
            found.push((lsn, payload));
            lsn = lsn.next();
        }
        found
    }

    /// Where an entry's payload is, and how long it is.
    pub(super) fn place(&self, entry: &Entry) -> Option<(Payload, usize)> {
        let Body::Frame { payload: hash, len } = entry.body else {
            return Some((Payload::Here(Bytes::new()), 0));
        };
        let held = self.held.get(&hash).or_else(|| self.ring.get(entry.lsn));
        let payload = match held {
            Some(payload) => Payload::Here(payload.clone()),
            None => Payload::OnDisk(self.dir.record(entry)?),
        };
        Some((payload, len as usize))
    }

    /// What the sender of a message says is committed, and the epoch in which that holds.
    pub(super) fn told_commit(&self, envelope: &Envelope) -> Option<(Promise, Lsn)> {
        match &envelope.message {
            Message::Append { epoch, commit, .. } | Message::Beat { epoch, commit, .. } => {
                Some((Promise { epoch: *epoch, owner: envelope.sender }, *commit))
            }
            _ => None,
        }
    }

    /// What the owner of the epoch that this keeper has accepted says is committed, is: as far as the
    /// keeper has it, its log is the owner's. True if that is more than was known.
    pub(super) fn take_commit(&mut self, promise: Promise, commit: Lsn) -> bool {
        let (keeper, known) = (self.node.keeper(), self.commit);
        let at = keeper.position();
        if keeper.promise() == promise && at.accepted == promise.epoch {
            self.commit = known.max(commit.min(keeper.log().readable_to()));
        }
        self.commit > known
    }
}

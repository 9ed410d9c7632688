//! One machine: a disk that forgets, the directory on it, and the cores that run on that while they do. What is done
//! here for the cores is what `nuthatch_cluster::host` does, in virtual time.

use crate::clock::{Clock, WallClock};
use crate::rng::Rng;
use bytes::Bytes;
use nuthatch_cluster::LogNumber;
use nuthatch_cluster::journal::{OPS_DIR, Sizes};
use nuthatch_cluster::keeper_dir::{Chore, KeeperDir};
use nuthatch_cluster::packet::{Packet, entries, hash_of};
use nuthatch_cluster::replica::{Mark, Replica};
use nuthatch_cluster::sub_disk::{log_dir, log_disk};
use nuthatch_cluster::sync_gate::ToSync;
use nuthatch_log::env::{Disk, MemDisk};
use nuthatch_quorum::effect::Effect;
use nuthatch_quorum::entry::Entry;
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::node::{Config, Node, Reads};
use nuthatch_quorum::store::{Identity, Image, StoreOp};
use nuthatch_quorum::types::{
    BootCount, Incarnation, Lsn, NodeId, Promise, Revision, SyncId, Time,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Files of a journal that come to their end after a few entries.
const SIZES: Sizes = Sizes { file: 48 << 10, zero_ahead: 8 << 10, large_record: 12 << 10 };

/// Between two parts of a scrub, in microseconds.
const SCRUB_EVERY: u64 = 1_000_000;

/// What a machine has of one log. Its logs share the machine's disk, clocks and power, and one process has all of them.
pub(super) struct Machine {
    pub(super) id: NodeId,
    pub(super) log: LogNumber,
    /// The whole disk.
    pub(super) disk: MemDisk,
    pub(super) clock: Clock,
    pub(super) wall: WallClock,
    /// Raised at each start and stop: what was for an earlier life is dropped.
    pub(super) life: u64,
    /// The operation of the disk at which the power goes.
    pub(super) cut_at: Option<u64>,
    /// The most that a sync takes, in microseconds.
    pub(super) sync_max: u64,
    /// The last entry that may have left something in the files.
    pub(super) touched: Lsn,
    /// The disk that its last process had, and how often the catalog knew that it was begun with.
    pub(super) known: Option<(Incarnation, BootCount)>,
    pub(super) running: Option<Running>,
}

/// A process.
pub(super) struct Running {
    pub(super) node: Node,
    pub(super) dir: KeeperDir,
    pub(super) replica: Replica,
    /// Payloads of what is being handled, published or fetched.
    pub(super) held: BTreeMap<u64, Bytes>,
    /// What is committed, as far as this node was told.
    pub(super) commit: Lsn,
    /// The process cannot go on.
    pub(super) failed: bool,
    /// The directory began anew: what was made of it is gone.
    pub(super) renewed: bool,
    pub(super) syncs: BTreeMap<SyncId, (ToSync, bool)>,
    pub(super) mark: Option<Mark>,
    pub(super) chores: BTreeMap<u64, Chore>,
}

/// The directory of a log on a machine's disk, and its journal of small files.
pub(super) fn open(disk: &MemDisk, log: LogNumber) -> io::Result<(KeeperDir, Image)> {
    KeeperDir::open_with(keeper_disk(disk, log)?, SIZES)
}

/// Where the keeper of a log lies on a machine's disk.
pub(super) fn keeper_disk(disk: &MemDisk, log: LogNumber) -> io::Result<Arc<dyn Disk>> {
    let whole: Arc<dyn Disk> = Arc::new(disk.clone());
    log_disk(&whole, log)
}

impl Machine {
    /// A machine and the directory of its first log, which was founded.
    pub(super) fn founded(
        id: NodeId,
        clocks: (Clock, WallClock),
        incarnation: Incarnation,
    ) -> Self {
        let disk = MemDisk::default();
        let (mut dir, _) = open(&disk, LogNumber::FIRST).expect("an empty disk");
        let identity = Identity { node: id, incarnation, boots: BootCount(0), seen: Revision(0) };
        let promise = Promise::default();
        let slot = |slot| StoreOp::Promise { slot, promise };
        let ops = [slot(0), slot(1), StoreOp::Identity(identity)];
        dir.store(&ops, |_| Bytes::new()).expect("nothing fails yet");
        Self::new((id, LogNumber::FIRST), disk, clocks)
    }

    /// A further log of the same machine, of which there is nothing yet.
    pub(super) fn with_log(&self, log: LogNumber) -> Self {
        Self::new((self.id, log), self.disk.clone(), (self.clock, self.wall))
    }

    fn new(
        (id, log): (NodeId, LogNumber),
        disk: MemDisk,
        (clock, wall): (Clock, WallClock),
    ) -> Self {
        Self {
            id,
            log,
            disk,
            clock,
            wall,
            life: 0,
            cut_at: None,
            sync_max: 2_000,
            touched: Lsn(0),
            known: None,
            running: None,
        }
    }

    pub(super) fn time(&self, now: u64) -> Time {
        Time(self.clock.at(now))
    }

    /// True if the power went at one of the last operations.
    pub(super) fn has_lost_power(&self) -> bool {
        self.cut_at.is_some_and(|at| self.disk.operations() >= at)
    }

    /// True if the process must end.
    pub(super) fn must_end(&self) -> bool {
        let ends = |running: &Running| running.failed || running.node.needs_restart();
        self.running.as_ref().is_some_and(ends)
    }

    /// Begins a process.
    pub(super) fn boot(
        &mut self,
        peers: Vec<NodeId>,
        now: u64,
        rng: &mut Rng,
    ) -> io::Result<Vec<Effect>> {
        let fresh = [incarnation(rng), incarnation(rng)];
        let (dir, image) = open(&self.disk, self.log)?;
        let config = Config {
            id: self.id,
            peers,
            fresh,
            former: Incarnation(0),
            reads: Reads::Lease,
            scrub_every: SCRUB_EVERY,
        };
        let (node, effects) = Node::boot(config, &image, self.time(now));
        let replica = Replica::open(keeper_disk(&self.disk, self.log)?)?;
        self.life += 1;
        self.running = Some(Running {
            commit: node.keeper().log().known_commit(),
            node,
            dir,
            replica,
            held: BTreeMap::new(),
            failed: false,
            renewed: false,
            syncs: BTreeMap::new(),
            mark: None,
            chores: BTreeMap::new(),
        });
        Ok(effects)
    }

    /// The disk is replaced by an empty one.
    pub(super) fn wipe(&mut self, disk: MemDisk) {
        self.end(disk);
        (self.touched, self.known) = (Lsn(0), None);
    }

    /// The process ends, and the disk is this one then.
    pub(super) fn end(&mut self, disk: MemDisk) {
        disk.heal();
        self.disk = disk;
        self.cut_at = None;
        self.running = None;
        self.life += 1;
    }

    /// A bit of what the journal ends with flips on the medium; false if there is nothing.
    pub(super) fn rot_tail(&mut self, rng: &mut Rng) -> bool {
        let dir = log_dir(self.log);
        let ops = if dir.is_empty() { OPS_DIR.to_owned() } else { format!("{dir}/{OPS_DIR}") };
        let names = self.disk.list(&ops).unwrap_or_default();
        let mut paths: Vec<String> = names.iter().map(|name| format!("{ops}/{name}")).collect();
        paths.sort_unstable();
        for path in paths.iter().rev() {
            let Some(bytes) = self.bytes_of(path) else { continue };
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                self.disk.flip_bit(path, last, rng.below(8) as u8);
                return true;
            }
        }
        false
    }

    fn bytes_of(&self, path: &str) -> Option<Vec<u8>> {
        let file = self.disk.open(path).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        let read = file.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(read);
        Some(bytes)
    }
}

impl Running {
    /// Payloads that came with a packet are there until it is handled. Gives those that were not before.
    pub(super) fn hold(&mut self, packet: &Packet) -> Vec<u64> {
        let hashes = entries(&packet.envelope.message).filter_map(hash_of);
        let mut came = vec![];
        for (hash, payload) in hashes.zip(&packet.payloads) {
            if self.held.insert(hash, payload.clone()).is_none() {
                came.push(hash);
            }
        }
        came
    }

    /// Forgets what came with a packet; what a candidate has fetched stays until it is none any more.
    pub(super) fn let_go(&mut self, came: &[u64]) {
        if self.node.is_taking_over() {
            return;
        }
        if self.node.owner().is_none() {
            self.held.clear();
        }
        came.iter().for_each(|hash| drop(self.held.remove(hash)));
    }

    /// What belongs to an entry, from memory or the journal.
    pub(super) fn payload(&self, entry: &Entry) -> io::Result<Bytes> {
        let Some(hash) = hash_of(entry) else { return Ok(Bytes::new()) };
        self.held.get(&hash).map_or_else(|| self.dir.payload(entry), |held| Ok(held.clone()))
    }

    /// Does operations of the keeper on its directory.
    pub(super) fn store(&mut self, ops: &[StoreOp]) {
        if self.failed {
            return;
        }
        let renews = |op: &StoreOp| matches!(op, StoreOp::BeginAnew | StoreOp::Install { .. });
        let Self { dir, held, .. } = self;
        let stored = dir.store(ops, |entry| {
            let Some(hash) = hash_of(entry) else { return Bytes::new() };
            held.get(&hash).cloned().expect("what is stored came, was published or fetched")
        });
        for op in ops {
            if let StoreOp::Append(entry) | StoreOp::Heal(entry) = op {
                drop(hash_of(entry).and_then(|hash| self.held.remove(&hash)));
            }
        }
        self.renewed |= stored.is_ok() && ops.iter().any(renews);
        self.failed |= stored.is_err();
    }

    /// True if a message announces files that are of use here.
    pub(super) fn wants_files(&self, envelope: &Envelope) -> bool {
        let Message::Install { epoch, base, replaces } = &envelope.message else { return false };
        let keeper = self.node.keeper();
        keeper.promise() == Promise { epoch: *epoch, owner: envelope.sender }
            && !keeper.is_poisoned()
            && keeper.wants(*epoch, base, *replaces)
    }

    /// What the owner of the epoch that this keeper has accepted says is committed, is.
    pub(super) fn take_commit(&mut self, promise: Promise, commit: Lsn) {
        let keeper = self.node.keeper();
        if keeper.promise() == promise && keeper.position().accepted == promise.epoch {
            self.commit = self.commit.max(commit.min(keeper.log().readable_to()));
        }
    }

    /// True while files are made durable or the journal is tended: one thread does that, one thing at a time.
    pub(super) fn is_tending(&self) -> bool {
        self.mark.is_some() || !self.chores.is_empty()
    }

    /// Opens the files anew after they were replaced.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.renewed = false;
        let disk: Arc<dyn Disk> = Arc::clone(self.replica.disk());
        self.replica = Replica::open(disk)?;
        Ok(())
    }

    /// Applies what is committed, as far as it is here.
    pub(super) fn apply(&mut self) -> io::Result<()> {
        if self.renewed {
            self.reopen()?;
        }
        while self.replica.applied() < self.commit {
            let lsn = self.replica.applied().next();
            let Some(entry) = self.node.keeper().log().get(lsn).copied() else { break };
            let payload = self.payload(&entry)?;
            self.replica.apply(lsn, &payload)?;
        }
        Ok(())
    }
}

pub(super) fn incarnation(rng: &mut Rng) -> Incarnation {
    Incarnation((u128::from(rng.bits()) << 64) | u128::from(rng.bits()))
}

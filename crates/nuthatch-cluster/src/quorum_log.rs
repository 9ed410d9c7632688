//! One quorum log of a node: what is owned, waited for and handed over by itself.

mod sight;

pub use sight::{KeeperSight, LogSight, NodeName};

use crate::catalog::CatalogError;
use crate::clock::now;
use crate::directory::{QuorumDirectory, apply};
use crate::files::Files;
use crate::home::Home;
use crate::host::{Host, Status};
use crate::in_bucket::{Binding, QuorumTenure};
use crate::in_memory::{MEMORY_LOG, MemoryUsage};
use crate::life::Life;
use crate::owners::Owners;
use crate::replica_view::ReplicaView;
use crate::roll::Roll;
use crate::stopwatch::Takeover;
use nuthatch_catalog_group::{LogNumber, Protocol};
use nuthatch_log::env::Disk;
use nuthatch_quorum::node::{Event, Sight};
use nuthatch_quorum::timing::TICK;
use nuthatch_quorum::types::{Epoch, Lsn, NodeId, WallTime};
use parking_lot::Mutex;
use sight::SUCCESSOR_LAG_MAX;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a handover is waited for.
const HANDOVER: Duration = Duration::from_millis(1_500);

/// How long it may take then until other nodes' sockets have what they are told.
const FLUSH: Duration = Duration::from_millis(200);

/// Hears why a node cannot go on with a log.
pub type OnLost = Box<dyn Fn(&str) + Send + Sync>;

/// How this node follows a log that another one owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// The log's last position that was read.
    pub position: u64,
    /// Memory that it takes, about.
    pub bytes: u64,
}

/// A log of a node that runs.
pub struct QuorumLog {
    number: LogNumber,
    host: Arc<Host>,
    files: Arc<Files>,
    disk: Arc<dyn Disk>,
    roll: Arc<Roll>,
    life: Life,
    home: Home,
    unopened: AtomicBool,
    followed: Mutex<Option<Followed>>,
    /// The epoch that was last waited for, 0 before the first.
    waited: AtomicU32,
    /// How long it took to apply the log then, in microseconds.
    apply_micros: AtomicU64,
}

impl QuorumLog {
    pub(crate) fn new(
        number: LogNumber,
        files: Arc<Files>,
        disk: Arc<dyn Disk>,
        (roll, life): (Arc<Roll>, Life),
        home: Home,
    ) -> Self {
        let (waited, apply_micros) = (AtomicU32::new(0), AtomicU64::new(0));
        let unopened = AtomicBool::new(false);
        let host = Arc::clone(&files.host);
        let followed = Mutex::default();
        Self {
            number,
            host,
            files,
            disk,
            roll,
            life,
            home,
            unopened,
            followed,
            waited,
            apply_micros,
        }
    }

    /// Which log of the cluster it is.
    #[must_use]
    pub fn number(&self) -> LogNumber {
        self.number
    }

    /// The name of the log, by which a stream's placement tag chooses it: `default`, `default-N`, [`MEMORY_LOG`].
    #[must_use]
    pub fn name(&self) -> String {
        match self.number {
            _ if self.is_in_memory() => MEMORY_LOG.to_owned(),
            LogNumber::FIRST => "default".to_owned(),
            number => format!("default-{number}"),
        }
    }

    /// True if the log is in its nodes' memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.home, Home::Memory(_))
    }

    /// True if the log is in a bucket: its nodes keep who owns it.
    #[must_use]
    pub fn is_in_bucket(&self) -> bool {
        matches!(self.home, Home::Bucket(_))
    }

    /// True if the log begins anew where no majority of its copies is left: they are its nodes' memory, or only say who owns what
    /// is in a bucket.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        self.home.begins_anew()
    }

    /// Notes how this node follows the log, for whoever asks.
    pub fn set_followed(&self, followed: Option<Followed>) {
        *self.followed.lock() = followed;
    }

    /// How this node follows the log, to take it over from there; `None`: it would read all of it then.
    #[must_use]
    pub fn followed(&self) -> Option<Followed> {
        *self.followed.lock()
    }

    /// Whether this node is about to follow the log, and would take long to open it before: it gets the log behind others then,
    /// which hear of that where all of them can read it.
    pub fn set_cold(&self, cold: bool) {
        self.host.set_cold(cold && self.roll.roster().active >= Protocol::COLD_SAID);
    }

    /// Notes whether a log that this node owns cannot be opened here, for whoever asks for its health.
    pub fn set_unopened(&self, unopened: bool) {
        self.unopened.store(unopened, Ordering::Release);
    }

    /// True if this node could not open the log when it last owned it.
    #[must_use]
    pub fn is_unopened(&self) -> bool {
        self.unopened.load(Ordering::Acquire)
    }

    /// True if this node's keeper is one of those of which a majority decides, as far as it knows, or is to be none. A
    /// disk that is new is not until the owner has taken it in, which takes a second or two.
    #[must_use]
    pub fn counts_here(&self) -> bool {
        self.host.counts()
    }

    /// What this node's keeper of a log in memory takes of that; `None`: the log is elsewhere.
    #[must_use]
    pub fn memory(&self) -> Option<MemoryUsage> {
        match &self.home {
            Home::Memory(memory) => memory.usage().ok(),
            Home::Disks | Home::Bucket(_) => None,
        }
    }

    /// How often this process has begun the log anew because too few of its disks were left.
    #[must_use]
    pub fn began_anew(&self) -> u64 {
        self.host.began_anew()
    }

    /// Waits until this node owns the log. After a loss that can be waited for again, as often as one likes.
    ///
    /// # Errors
    /// Its disk has failed, or the node has ended.
    pub fn wait_owned(&self) -> io::Result<Epoch> {
        loop {
            let owns = |status: &Status| status.owner.is_some() || status.broken || status.ended;
            let status = self.host.wait_until(Duration::from_secs(3600), owns);
            if status.ended {
                return Err(io::Error::other("the node has ended"));
            }
            if status.broken {
                return Err(io::Error::other("the keeper's disk has failed"));
            }
            if let Some(epoch) = status.owner {
                self.waited.store(epoch.0, Ordering::Release);
                return Ok(epoch);
            }
        }
    }

    /// Waits until the node has ended.
    pub fn wait_ended(&self) {
        let ended = |status: &Status| status.ended;
        while !self.host.wait_until(Duration::from_secs(3600), ended).ended {}
    }

    /// True if a majority of the nodes agrees with this one's wall clock (2 s).
    #[must_use]
    pub fn clock_is_agreed(&self) -> bool {
        self.host.clock_is_agreed()
    }

    /// Waits until that is so, or for so long.
    pub fn wait_for_clock(&self, limit: Duration) {
        self.host.wait_until(limit, |status| status.clock_agreed || status.broken || status.ended);
    }

    /// The stamp of the log's last entry here.
    #[must_use]
    pub fn last_stamp(&self) -> WallTime {
        self.host.last_stamp()
    }

    /// Waits until this node owns the log and has applied all of it; gives the directory to open it in.
    ///
    /// # Errors
    /// The disk's, and the loss of the ownership meanwhile.
    pub fn wait_until_owner(&self) -> io::Result<QuorumDirectory> {
        let epoch = self.wait_owned()?;
        let began = now();
        self.files.settle()?;
        let commit = self.host.status().commit;
        apply(&self.host, &mut self.files.replica.lock(), commit)?;
        self.apply_micros.store(now().since(began), Ordering::Release);
        let (host, replica) = (Arc::clone(&self.host), Arc::clone(&self.files.replica));
        let label = format!("the quorum log in {}, epoch {}", self.disk.label(), epoch.0);
        QuorumDirectory::new(host, epoch, replica, Arc::clone(&self.disk), label)
    }

    /// The files of this node's keeper, for who follows a log that another node owns.
    ///
    /// # Errors
    /// A change of them was made in part.
    pub fn view(&self) -> io::Result<ReplicaView> {
        self.files.replica.lock().view()
    }

    /// The same, to be read as long as this node does not own the log, and has not ended: then reading fails.
    ///
    /// # Errors
    /// As for [`QuorumLog::view`].
    pub fn view_of_other(&self) -> io::Result<ReplicaView> {
        let host = Arc::clone(&self.host);
        Ok(self.view()?.until(move || {
            let status = host.status();
            status.owner.is_some() || status.ended
        }))
    }

    /// Waits until another entry than `seen` is the last one that this node has applied, or for so long; which one it is then.
    /// None: the node has ended.
    #[must_use]
    pub fn wait_applied(&self, seen: Lsn, limit: Duration) -> Option<Lsn> {
        self.files.applied.wait(seen, limit)
    }

    /// Waits until this node owns a log that is in a bucket, to be opened there.
    ///
    /// # Errors
    /// As [`QuorumLog::wait_owned`].
    pub fn wait_tenure(&self) -> io::Result<QuorumTenure> {
        let epoch = self.wait_owned()?;
        self.apply_micros.store(0, Ordering::Release);
        Ok(QuorumTenure::new(Arc::clone(&self.host), epoch))
    }

    /// Identity of the log in a bucket that this one is; none before it was first opened.
    ///
    /// # Errors
    /// Of the catalog, which says so.
    pub fn bound_to(&self) -> Result<Option<u64>, CatalogError> {
        self.binding().get()
    }

    /// Has the catalog say that this log is the one of this identity in a bucket, if it does not say one yet; gives the
    /// identity that counts.
    ///
    /// # Errors
    /// Of the catalog.
    pub fn bind_to(&self, identity: u64) -> Result<u64, CatalogError> {
        self.binding().set(identity)
    }

    fn binding(&self) -> &Binding {
        match &self.home {
            Home::Bucket(binding) => binding,
            Home::Disks | Home::Memory(_) => panic!("only a log in a bucket is bound to one"),
        }
    }

    /// Calls `lost` once, when this node does not own `epoch` any more, its disk fails, or it ends. Otherwise the node
    /// keeps the log for whoever owns it then.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub fn watch(&self, epoch: Epoch, lost: OnLost) -> io::Result<()> {
        let host = Arc::clone(&self.host);
        self.life.spawn_for_one("node-watch", move || {
            let over = |status: &Status| status.broken || status.owner != Some(epoch);
            let mut status = host.status();
            while !over(&status) {
                status = host.wait_until(Duration::from_secs(3600), over);
            }
            let epoch = epoch.0;
            let why = match (status.ended, status.broken) {
                (true, _) => "the node has ended".to_owned(),
                (false, true) => "the keeper's disk has failed".to_owned(),
                (false, false) => {
                    format!("this node owns the quorum log no more (its epoch was {epoch})")
                }
            };
            lost(&why);
        })
    }

    /// Tells another keeper, that of `to` if it is named, that it is to own the log soon, so that it makes ready: it claims
    /// the next epoch while this node serves. A handover has to follow within two seconds, or that keeper takes over. One
    /// that is drained is told nothing.
    pub fn prepare_handover(&self, to: Option<NodeId>) {
        if self.host.status().owner.is_some() && to.is_none_or(|node| !self.is_drained(node)) {
            let to = to.or_else(|| self.successor());
            self.host.handle(to.map_or(Event::Prepare, Event::PrepareFor));
        }
    }

    fn is_drained(&self, node: NodeId) -> bool {
        self.roll.drained().contains(&node)
    }

    /// Who follows this node at its end: the one that people want to own the log, or where some nodes are drained another one,
    /// if it has everything. Otherwise the cores choose. One that is about to follow the log comes behind those that do.
    fn successor(&self) -> Option<NodeId> {
        let (sight, (_, asked)) = (self.sight(), self.host.wished());
        let other = |node: &NodeId| Some(*node) != sight.owner.as_ref().map(|owner| owner.id);
        let others = sight.keepers.iter().map(|keeper| keeper.node.id).filter(other);
        let able = others.filter(|node| !sight.drained.contains(node));
        let mut whole = able.filter(|node| sight.has_everything(*node, SUCCESSOR_LAG_MAX));
        let mut ready = whole.clone().filter(|node| sight.is_ready(*node, SUCCESSOR_LAG_MAX));
        let asked = asked.filter(|node| ready.clone().any(|one| one == *node));
        let is_any_drained = !sight.drained.is_empty();
        let first = || ready.find(|_| is_any_drained).or_else(|| whole.find(|_| is_any_drained));
        asked.or_else(first)
    }

    /// Has this node, as the owner, answer reads no longer than that after it was last heard by a majority, from now on.
    pub(crate) fn shorten_lease(&self, lease: Duration) {
        self.host
            .shorten_lease(u64::try_from(lease.as_micros()).expect("checked: a part of a second"));
    }

    /// Whether this node is to own the log only where nobody else can, from now on.
    pub(crate) fn set_drained(&self, drained: bool) {
        self.host.set_drained(drained);
    }

    /// True if this node owns the log and another keeper could own it now.
    #[must_use]
    pub fn can_hand_over(&self) -> bool {
        let (_, owner, keepers) = self.host.sight();
        let others =
            keepers.iter().filter(|keeper| owner.is_some_and(|own| own != keeper.member.node));
        let able = |keeper: &Sight| keeper.near && keeper.counts && keeper.fit;
        self.owned().is_some()
            && others.into_iter().any(|keeper| able(keeper) && keeper.lag.is_some())
    }

    /// Hands the log over to another keeper that has everything, and waits until that was told or nobody could take
    /// it. For a clean stop, after the log was closed.
    pub fn hand_over(&self) {
        if self.host.status().owner.is_some() {
            let (began, to) = (Instant::now(), self.successor());
            self.leave(|| match to.filter(|_| began.elapsed() < HANDOVER / 2) {
                Some(to) => Event::HandOverTo(to),
                None => Event::HandOver,
            });
            // The process is about to end, and what it has not sent by then nobody hears.
            self.host.flush(FLUSH);
        }
    }

    /// Hands the log over to the keeper of this node, if it has everything, and goes on as a keeper itself. What was
    /// published and is not acknowledged has an unknown fate: whoever has the log open closes it first. True if this node
    /// owns the log no more; false if that keeper could not take it within a second and a half, or is drained.
    pub fn hand_over_to(&self, node: NodeId) -> bool {
        if self.is_drained(node) {
            return self.host.status().owner.is_none();
        }
        self.leave(|| Event::HandOverTo(node))
    }

    /// Has this node take the log over from itself with the nodes that are to keep it, where these have everything. What was
    /// published and is not acknowledged has an unknown fate: whoever has the log open closes it first. True if the epoch has
    /// ended; who owns the next one is waited for by [`QuorumLog::wait_owned`]. False if the set did not change within a
    /// second and a half, or cannot change any more.
    pub fn change_set(&self) -> bool {
        self.leave_while(|| Event::ChangeSet, || self.host.set_can_change())
    }

    /// Has the cores told to leave the log until they have, or for so long. At some moment there may be nobody who could
    /// take it.
    fn leave(&self, event: impl Fn() -> Event) -> bool {
        self.leave_while(event, || true)
    }

    /// The same for as long as that is so.
    fn leave_while(&self, event: impl Fn() -> Event, may: impl Fn() -> bool) -> bool {
        let Some(epoch) = self.host.status().owner else { return true };
        let (began, pause) = (Instant::now(), Duration::from_micros(TICK));
        let left = |status: &Status| status.owner != Some(epoch);
        while !left(&self.host.status()) && began.elapsed() < HANDOVER && may() {
            self.host.handle(event());
            self.host.wait_until(pause, left);
        }
        left(&self.host.status())
    }

    /// Tells people how long the parts of this node's takeover took, when it takes clients; gives it, if there was one.
    pub fn tell_takeover(&self) -> Option<Takeover> {
        let shares = self.host.take_shares()?;
        let (apply, now) = (self.apply_micros.load(Ordering::Acquire), now());
        self.host.note_down(&shares.line(apply, now));
        Some(shares.takeover(apply, now))
    }

    /// How often each thing was noticed of the log here since the process began, by names that do not change.
    pub fn noticed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.host.counts.noticed()
    }

    /// For how long the catalog has answered nothing that was asked for this log (every 200 ms), and how many calls had no
    /// success.
    #[must_use]
    pub fn catalog(&self) -> (Duration, u64) {
        self.host.counts.catalog()
    }

    /// True if the epoch that was last waited for has ended, or the disk has failed.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        let (status, waited) = (self.host.settled_status(), self.waited.load(Ordering::Acquire));
        status.broken || status.owner != Some(Epoch(waited))
    }

    /// True if this node owned an epoch and does not any more, though its disk is well.
    #[must_use]
    pub fn was_replaced(&self) -> bool {
        let waited = self.waited.load(Ordering::Acquire);
        let status = self.host.settled_status();
        let is_well = !status.broken && !status.ended;
        waited != 0 && is_well && status.owner != Some(Epoch(waited))
    }

    /// The epoch that this node owns now.
    #[must_use]
    pub fn owned(&self) -> Option<Epoch> {
        self.host.status().owner
    }

    /// What this node knows of the log and its keepers.
    #[must_use]
    pub fn sight(&self) -> LogSight {
        let (epoch, owner, keepers) = self.host.sight();
        let keeper = |sight: Sight| KeeperSight {
            node: self.named(sight.member.node),
            connected: sight.near,
            counts: sight.counts,
            silent: sight.silent.map(Duration::from_micros),
            lag: sight.lag,
            fit: sight.fit,
            cold: sight.cold,
        };
        let (wished, asked) = self.host.wished();
        let owners = Owners {
            wished,
            asked,
            keepers: self.roll.keepers(),
            drained: self.roll.drained(),
            favoured: self.favoured(&keepers),
        };
        let preferred = owners.preferred(self.number);
        let is_inside = |node: NodeId| self.roll.is_in_owner_zone(node);
        LogSight {
            number: self.number,
            name: self.name(),
            epoch,
            owner: owner.map(|owner| self.named(owner)),
            owner_is_outside: is_inside(preferred) && owner.is_some_and(|owner| !is_inside(owner)),
            preferred: self.named(preferred),
            keepers: keepers.into_iter().map(keeper).collect(),
            may_own: owners.may_own(),
            asked_owner: owners.asked.map(|asked| self.named(asked)),
            wished: owners.wished,
            drained: owners.drained,
            set_can_change: self.host.set_can_change(),
        }
    }

    /// True if another node was heard within a lease (200 ms), and for how long it was not; none: never.
    pub(crate) fn hears(&self, node: NodeId) -> (bool, Option<Duration>) {
        self.host.hears(node)
    }

    /// The keepers in zones in which logs are to be owned that are there, and could own it once they have everything.
    fn favoured(&self, keepers: &[Sight]) -> BTreeSet<NodeId> {
        let able = keepers.iter().filter(|keeper| keeper.near && keeper.counts && keeper.fit);
        let nodes = able.map(|keeper| keeper.member.node);
        nodes.filter(|node| self.roll.is_in_owner_zone(*node)).collect()
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Has the cores tell other nodes that this one is alive, as there are now.
    pub(crate) fn meet(&self, peers: Vec<NodeId>) {
        self.host.meet(peers);
    }

    fn named(&self, id: NodeId) -> NodeName {
        NodeName { id, name: self.roll.name(id) }
    }

    pub(crate) fn report(&self, text: &str) {
        self.host.report(text);
    }

    /// As [`QuorumLog::report`], of what belongs to normal operation.
    pub(crate) fn note(&self, text: &str) {
        self.host.note_down(text);
    }
}

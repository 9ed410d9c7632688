//! The cores of one node with their disk: takes events from any thread, does what the cores ask for.
//!
//! Steps are taken under one lock, and so are writes to the journal, whose order counts. Syncs are made
//! without it, by the thread that brought the event: a keeper's answer then costs no change of threads. The owner's
//! own sync is made by a thread of its own, because two others can commit without it.

mod agreed_wall;
mod beats;
mod core;
mod cores;
mod ending;
mod reading;
mod room;
mod sending;
mod status;
mod steps;
mod syncs;
mod this_node;
mod wishing;
mod work_signal;

use self::agreed_wall::AgreedWall;
use self::beats::Late;
use self::core::Core;
pub use self::ending::Way;
pub use self::sending::ColdPacket;
pub use self::status::{NotOwner, Status};
use self::steps::Who;
pub use self::syncs::PendingSync;
pub use self::wishing::NotWished;
use self::work_signal::WorkSignal;
use crate::alarms::{self, Named};
use crate::clock::now;
use crate::coding::Malformed;
use crate::counts::Counts;
use crate::keeper_dir::KeeperDir;
use crate::lease::Lease;
use crate::packet::{Packet, hash_of};
use crate::replica::FileRange;
use crate::ring::Ring;
use crate::space::{Space, SpaceKept};
use crate::stopwatch::{Shares, Stopwatch};
use crate::sync_gate::SyncGate;
use bytes::Bytes;
use nuthatch_log::Reporter;
use nuthatch_log::env::Standing;
use nuthatch_quorum::catalog::Call;
use nuthatch_quorum::effect::{Alarm, Effect};
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::message::{Answer, Envelope, Message, Reply};
use nuthatch_quorum::node::{Event, Node, Sight};
use nuthatch_quorum::owner::Publish;
use nuthatch_quorum::store::{StoreError, StoreOp};
use nuthatch_quorum::types::{Epoch, Lsn, Member, NodeId, RequestId, Time, WallTime};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::time::{Duration, Instant};

/// Files of another node are coming while a part came within so many microseconds.
const PARTS_WITHIN: u64 = 2_000_000;

/// Where packets for other nodes go. Whatever does not go out is as good as lost on the way: what was not
/// answered is sent again.
pub trait Outbound: Send + Sync {
    /// Sends a packet, without waiting.
    fn send(&self, packet: Packet);
    /// A node has ended a connection that it had made: whether it is there is looked at.
    fn doubt(&self, node: NodeId);
    /// Waits until what was sent is with the operating system, or for so long.
    fn flush(&self, limit: Duration);
}

/// What a host asks other threads for.
pub struct Helpers {
    /// Where packets go.
    pub outbound: Arc<dyn Outbound>,
    /// Takes questions to the catalog.
    pub catalog: Way<Sender<Call>>,
    /// Takes syncs that the thread with the event is not to wait for; `None`: no more come.
    pub syncs: Sender<Option<PendingSync>>,
    /// Takes the message that announces files of another node, one at a time; the driver of the node brings them
    /// and has [`Host::install`] put them in place.
    pub installs: Way<SyncSender<Envelope>>,
    /// Takes entries to be read again, from the first to the last, one such part at a time.
    pub scrubs: Way<SyncSender<(Lsn, Lsn)>>,
    /// Has a thread of the log do what the threads that all logs share leave to be done.
    pub deferred: Way<SyncSender<()>>,
    /// Takes parts of files that are not what was written, a few at a time; the driver of the node brings them again.
    pub doubts: Way<SyncSender<FileRange>>,
    /// Takes messages whose payloads are read first, a few at a time.
    pub reads: Way<SyncSender<ColdPacket>>,
    /// Tells people.
    pub report: Reporter,
    /// What they are told of an alarm of such a log, where that is not what it is of any.
    pub words: fn(&Alarm) -> Option<String>,
    /// Names nodes.
    pub named: Named,
    /// How many logs the node keeps: what it has memory for is shared.
    pub logs: usize,
    /// What is kept free on the disk.
    pub space: SpaceKept,
}

/// The cores of a node, and what they work on.
pub struct Host {
    core: Mutex<Core>,
    status: Mutex<Status>,
    /// The status has changed otherwise than by what is committed, of which nobody is told who does not wait for it:
    /// that changes with each entry.
    changed: Condvar,
    /// Requests were answered, or the status has changed.
    answered: Condvar,
    gate: Arc<SyncGate>,
    lease: Lease,
    late: Late,
    space: Space,
    /// No new messages are to be taken, for the sake of this node's disk or of others.
    takes_none: AtomicBool,
    helpers: Helpers,
    /// When a part of another node's files came last, by the clock of the cores.
    part_at: AtomicU64,
    began_anew: AtomicU64,
    pub(crate) counts: Counts,
    agreed_wall: AgreedWall,
    /// The node has ended: no step is taken any more, and nothing answered.
    has_ended: AtomicBool,
    /// For the thread that tends the files.
    work: WorkSignal,
}

impl Host {
    /// A node that has just been booted, whose first effects are done here.
    #[must_use]
    pub fn new(node: Node, effects: Vec<Effect>, dir: KeeperDir, helpers: Helpers) -> Arc<Self> {
        let commit = last_commit(&node);
        let gate = Arc::clone(dir.gate());
        let core = Core {
            node,
            dir,
            ring: Ring::of(helpers.logs),
            held: HashMap::new(),
            commit,
            next_request: 1,
            dir_failed: false,
            renewed: false,
            told: None,
            suspect: None,
            in_step: false,
            watch: Stopwatch::default(),
            shares: None,
            deferred: vec![],
            has_answered: false,
        };
        let host = Arc::new(Self {
            core: Mutex::new(core),
            status: Mutex::new(Status::default()),
            changed: Condvar::new(),
            answered: Condvar::new(),
            gate,
            lease: Lease::default(),
            late: Late::default(),
            space: Space::new(helpers.space),
            takes_none: AtomicBool::new(false),
            helpers,
            part_at: AtomicU64::new(0),
            began_anew: AtomicU64::new(0),
            counts: Counts::default(),
            agreed_wall: AgreedWall::default(),
            has_ended: AtomicBool::new(false),
            work: WorkSignal::default(),
        });
        let syncs = {
            let mut core = host.cores();
            let syncs = host.perform(&mut core, effects);
            host.note(&mut core);
            syncs
        };
        host.sync_all(syncs);
        host
    }

    /// Handles an event; the calling thread makes the syncs that it leads to.
    pub fn handle(&self, event: Event) {
        let syncs = {
            let mut core = self.cores();
            self.step(&mut core, event)
        };
        self.sync_all(syncs);
    }

    /// Has files of another node brought. While that goes on the node hears that they are coming.
    fn bring_files(&self, announced: Envelope) {
        let Message::Install { epoch, .. } = announced.message else { unreachable!("as asked") };
        let answer = Envelope {
            from: announced.to,
            sender: self.status().incarnation,
            to: announced.from,
            disk: Some(announced.sender),
            message: Message::Receiving { epoch },
        };
        // Whoever brings them is at it where the place is taken.
        let begins = self.helpers.installs.offer(announced);
        let part_at = Time(self.part_at.load(Ordering::Acquire));
        if begins || now().since(part_at) < PARTS_WITHIN {
            self.helpers.outbound.send(Packet { envelope: answer, payloads: vec![] });
        }
    }

    /// A node has ended its connection to this one: if it cannot be reached either, the cores hear of that soon.
    pub fn hung_up(&self, node: NodeId) {
        {
            let mut core = self.cores();
            // What it said before tells nothing any more.
            self.late.forget(node);
            core.node.lose_sight(node);
        }
        self.helpers.outbound.doubt(node);
    }

    /// A part of another node's files has come.
    pub fn part_came(&self) {
        self.part_at.store(now().0, Ordering::Release);
    }

    /// Files of another node have come as `announced`: they are put in place if they are still wanted. The caller
    /// keeps everybody from the files that are there until it has opened them anew.
    pub fn install(&self, announced: Envelope) {
        self.handle(Event::Deliver(announced));
    }

    /// Where the log's entries go on behind one that was applied; none where it cannot be read now.
    #[must_use]
    pub fn base_at(&self, lsn: Lsn) -> Option<Base> {
        self.cores().node.keeper().log().base_at(lsn)
    }

    /// A part of a file cannot be read, or is not what was written. Where too many wait it is said again by whoever
    /// reads it again.
    pub fn doubt_file(&self, range: FileRange) {
        let _ = self.helpers.doubts.offer(range);
    }

    /// Handles a packet of a peer.
    ///
    /// # Errors
    /// It names an epoch that cannot be: whoever sent it is not listened to any more.
    pub fn deliver(&self, packet: Packet) -> Result<(), Malformed> {
        let syncs = {
            let mut core = self.cores();
            self.catch_up(&mut core);
            core.check(&packet.envelope.message)?;
            if core.wants_files(&packet.envelope) {
                self.bring_files(packet.envelope);
                return Ok(());
            }
            self.take(&mut core, packet)
        };
        self.sync_all(syncs);
        Ok(())
    }

    /// Before anything leaves: a successor that is told to take over may answer at once.
    fn set_lease(&self, core: &Core) {
        let owner = core.node.owner();
        let ends = owner.and_then(|owner| owner.lease_ends(now()));
        self.lease.set(owner.map(|owner| owner.epoch()), ends);
    }

    /// Publishes a payload as the owner of `epoch`. Requests are numbered in the order of these calls and
    /// committed in it.
    ///
    /// # Errors
    /// [`NotOwner`].
    pub fn publish(&self, epoch: Epoch, payload: Bytes) -> Result<u64, NotOwner> {
        let (request, syncs) = {
            let mut core = self.cores();
            self.catch_up(&mut core);
            if self.has_ended() || core.node.owner().map(|owner| owner.epoch()) != Some(epoch) {
                return Err(NotOwner { epoch });
            }
            let request = core.next_request;
            core.next_request += 1;
            let hash = crate::coding::payload_hash(&payload);
            let payload_len = payload.len();
            self.space.published(payload_len as u64);
            core.held.insert(hash, payload);
            let len = u32::try_from(payload_len).expect("a frame is shorter than 4 GiB");
            self.status.lock().published = epoch;
            let request_id = RequestId(request);
            let event = Event::Publish(Publish { request: request_id, payload: hash, len });
            (request, self.step_as(&mut core, event, Who::Own))
        };
        self.hand_on(syncs);
        Ok(request)
    }

    /// Waits until a request is committed; gives its entry, or a later one that is.
    ///
    /// # Errors
    /// [`NotOwner`]: it is not known whether it was or will be committed.
    pub fn wait_committed(&self, epoch: Epoch, request: u64) -> Result<Lsn, NotOwner> {
        let mut status = self.status.lock();
        loop {
            if let Some(fate) = status.fate(epoch, request) {
                return fate;
            }
            self.answered.wait(&mut status);
        }
    }

    /// Waits until `is_so` of the status, or for so long. Gives the status then. For what is committed and answered
    /// nobody is woken here: [`Host::wait_committed`] waits for that.
    pub fn wait_until(&self, limit: Duration, is_so: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + limit;
        let mut status = self.status.lock();
        while !is_so(&status) && !self.changed.wait_until(&mut status, deadline).timed_out() {}
        *status
    }

    /// What is known of this node now.
    #[must_use]
    pub fn status(&self) -> Status {
        *self.status.lock()
    }

    /// The status after the step that is under way: whoever was told that a request failed finds what made it fail.
    #[must_use]
    pub fn settled_status(&self) -> Status {
        let mut core = self.cores();
        self.catch_up(&mut core);
        self.status()
    }

    /// What the owner of an epoch can say of the log at this moment.
    #[must_use]
    pub fn standing(&self, epoch: Epoch) -> Standing {
        match self.has_ended() {
            true => Standing::Lost,
            false => self.lease.standing(epoch),
        }
    }

    /// The newest epoch of the log, who owns it, and the keepers, as far as is known now.
    #[must_use]
    pub fn sight(&self) -> (Epoch, Option<NodeId>, Vec<Sight>) {
        let (core, now) = (self.cores(), now());
        let (epoch, owner) = core.node.heard_owner(now);
        (epoch, owner, core.node.keepers(now))
    }

    /// True if another node was heard within a lease, and for how long it was not; none: never.
    pub(crate) fn hears(&self, node: NodeId) -> (bool, Option<Duration>) {
        let (near, silent) = self.cores().node.hears(node, now());
        (near, silent.map(Duration::from_micros))
    }

    /// True if this node owns the log, and its set can become the one that is wished.
    pub(crate) fn set_can_change(&self) -> bool {
        self.cores().node.set_can_change(now())
    }

    /// True if this node's keeper is one of those that make the majority, or is to be none.
    pub(crate) fn counts(&self) -> bool {
        self.cores().node.counts()
    }

    /// True if a majority agrees with this node's wall clock as it is now: it may have been set since the cores looked at it.
    pub(crate) fn clock_is_agreed(&self) -> bool {
        self.agreed_wall.is_agreed()
    }

    /// The nodes that are wished to keep the log, as far as is known, first the one in its place; and the one that people want
    /// to own it.
    pub(crate) fn wished(&self) -> (Vec<NodeId>, Option<NodeId>) {
        let core = self.cores();
        core.node.wish().map_or_else(Default::default, |wish| (wish.keepers.clone(), wish.owner))
    }

    /// The stamp of the last entry.
    pub(crate) fn last_stamp(&self) -> WallTime {
        self.cores().node.last_stamp()
    }

    /// The parts of the last takeover by this node, once.
    pub(crate) fn take_shares(&self) -> Option<Shares> {
        self.cores().shares.take()
    }

    /// Waits until what was sent is on its way, or for so long.
    pub fn flush(&self, limit: Duration) {
        self.helpers.outbound.flush(limit);
    }

    /// Tells people.
    pub fn report(&self, text: &str) {
        self.helpers.report.say(text);
    }

    /// Tells people what belongs to normal operation.
    pub(crate) fn note_down(&self, text: &str) {
        self.helpers.report.note(text);
    }

    /// True if the directory began anew and [`Host::take_renewed`] has not been asked since.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        self.cores().renewed
    }

    /// True once after the directory began anew.
    pub fn take_renewed(&self) -> bool {
        std::mem::take(&mut self.cores().renewed)
    }

    /// The disk has failed elsewhere than in a step of the cores: nothing is answered any more, as after a
    /// failed sync of the journal.
    pub fn fail(&self, what: &str) {
        self.report(what);
        let mut core = self.cores();
        core.dir_failed = true;
        let syncs = self.step(&mut core, Event::StoreFailed(StoreError::Io));
        drop(core);
        self.sync_all(syncs);
    }

    fn perform(&self, core: &mut Core, effects: Vec<Effect>) -> Vec<PendingSync> {
        let mut syncs = vec![];
        for effect in effects {
            match effect {
                Effect::Send(envelope) => self.send(core, envelope),
                Effect::Store(ops) => self.store(core, &ops),
                Effect::Sync(id) => {
                    let (to_sync, good) = (core.dir.to_sync(), !core.dir_failed);
                    syncs.push(PendingSync { id, to_sync, good });
                }
                // While the part before is still being read this one is left for the next time round.
                Effect::Verify { from, upto } => {
                    let _ = self.helpers.scrubs.offer((from, upto));
                }
                Effect::Catalog(call) => self.helpers.catalog.hand(call),
                Effect::Reply(reply) => self.reply(core, reply),
                Effect::Alarm(alarm) => self.alarm(core, &alarm),
            }
        }
        syncs
    }

    fn alarm(&self, core: &Core, alarm: &Alarm) {
        if let Alarm::Away { node, .. } = alarm
            && core.node.hears(*node, now()).0
        {
            // It was started again: what is away is the disk that it had.
            let node = (self.helpers.named)(*node);
            self.helpers.report.note(&alarms::is_new(&node));
            return;
        }
        self.counts.note_alarm(alarm);
        if let Alarm::BeganAnew { .. } = alarm {
            self.began_anew.fetch_add(1, Ordering::Relaxed);
        }
        match (self.helpers.words)(alarm) {
            Some(text) => self.report(&text),
            None => alarms::tell(alarm, &*self.helpers.named, &self.helpers.report),
        }
    }

    /// How often this node has begun the log anew.
    pub(crate) fn began_anew(&self) -> u64 {
        self.began_anew.load(Ordering::Relaxed)
    }

    fn store(&self, core: &mut Core, ops: &[StoreOp]) {
        if core.dir_failed {
            return;
        }
        self.work.raise();
        let renews = |op: &StoreOp| matches!(op, StoreOp::BeginAnew | StoreOp::Install { .. });
        let Core { dir, ring, held, .. } = core;
        let stored = dir.store(ops, |entry| {
            let Some(hash) = hash_of(entry) else { return Bytes::new() };
            let payload = held.get(&hash).cloned();
            payload.expect("what is stored came with its message, was published or fetched")
        });
        for op in ops {
            if let StoreOp::Append(entry) = op {
                // Of an entry with a hash there is always its payload: without it, nothing is noted.
                let payload = match hash_of(entry) {
                    None => Some(Bytes::new()),
                    Some(hash) => held.get(&hash).cloned(),
                };
                if let Some(payload) = payload {
                    ring.push(entry.lsn, payload);
                }
            }
        }
        // Two entries may have the same payload: none goes before all have it.
        for op in ops {
            if let StoreOp::Append(entry) | StoreOp::Heal(entry) = op {
                drop(hash_of(entry).and_then(|hash| held.remove(&hash)));
            }
        }
        // One that failed half-way is finished by the next start, and by nobody before.
        core.renewed |= stored.is_ok() && ops.iter().any(renews);
        if ops.contains(&StoreOp::BeginAnew) {
            // Of what there was nothing is known any more.
            core.commit = Lsn(0);
        }
        if let Err(error) = stored {
            core.dir_failed = true;
            self.report(&format!("the keeper's directory cannot be written: {error}"));
        }
    }

    fn reply(&self, core: &mut Core, reply: Reply) {
        let mut status = self.status.lock();
        match reply.answer {
            Answer::Acked { lsn } => status.acked = (reply.request.0, lsn),
            Answer::Unknown | Answer::Refused => {
                status.failed = status.failed.max(reply.request.0);
            }
            Answer::Read { .. } => {}
        }
        core.has_answered = true;
    }

    /// As the owner, tells people which disks make up the set, once for each set.
    fn tell_set(&self, core: &mut Core) {
        let Some(owner) = core.node.owner() else { return };
        let known = core.told.as_ref();
        if known.is_some_and(|(epoch, set)| {
            *epoch == owner.epoch() && owner.members().eq(set.iter().copied())
        }) {
            return;
        }
        let set: Vec<Member> = owner.members().collect();
        let disk =
            |member: &Member| format!("{} (disk {:032x})", member.node.0, member.incarnation.0);
        let disks: Vec<String> = set.iter().map(disk).collect();
        let epoch = owner.epoch();
        self.helpers.report.note(&format!(
            "epoch {} of the quorum log is kept by the nodes {}",
            epoch.0,
            disks.join(", ")
        ));
        core.told = Some((epoch, set));
    }

    /// Takes over into the status what a step has changed.
    fn note(&self, core: &mut Core) {
        self.tell_set(core);
        let at = now();
        let agreed = core.node.expiry_clock(at);
        self.agreed_wall.note(agreed, at);
        let owner = core.node.owner();
        let mut status = self.status.lock();
        let next = Status {
            owner: owner.map(|owner| owner.epoch()),
            commit: core.commit,
            promised: core.node.keeper().promise().epoch,
            incarnation: core.node.keeper().identity().incarnation,
            clock_agreed: agreed.is_some(),
            broken: core.node.needs_restart() || core.dir_failed,
            ..*status
        };
        let next = if status.ended { next.ended() } else { next };
        if next.commit != status.commit {
            self.work.raise();
        }
        let only_commit = Status { commit: next.commit, ..*status } == next;
        *status = next;
        if !only_commit {
            self.changed.notify_all();
            self.answered.notify_all();
        }
    }
}

/// What the entries on the disk say was committed.
fn last_commit(node: &Node) -> Lsn {
    node.keeper().log().known_commit()
}

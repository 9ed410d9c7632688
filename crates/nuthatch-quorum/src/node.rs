//! One node: its keeper, what it has heard of the others, and what it owns or is taking over.

use crate::catalog::{Call, CatalogReply, Key, LogRow, Snapshot, Txn, Value};
use crate::detector::Detector;
use crate::effect::Effect;
use crate::keeper::Keeper;
use crate::message::{Envelope, Message};
use crate::out::Out;
use crate::owner::{Here, Owner, Publish};
use crate::rules::Rule;
use crate::store::{Image, Names, StoreError};
use crate::takeover::{Candidate, Lacking, Next};
use crate::timing::{ASK, BEAT, CATALOG_POLL, LEASE, RESEND, passed};
use crate::types::{
    Epoch, Incarnation, Lsn, Member, NodeId, RequestId, SyncId, Time, WallTime, majority,
};
use crate::wall::Walls;
use std::collections::BTreeSet;

mod anew;
mod beats;
mod claims;
mod clients;
mod doing;
mod register;
mod sight;
mod wish;

use anew::Memory;
pub use sight::Sight;
use wish::Handed;

/// What a linearizable read rests on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reads {
    /// A lease: clocks that run at about the same rate.
    Lease,
    /// A round of beats for each batch of reads: no clock.
    Quorum,
}

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node.
    pub id: NodeId,
    /// The other nodes.
    pub peers: Vec<NodeId>,
    /// Two random numbers, for a directory that has to begin anew; the first names this start, too.
    pub fresh: [Incarnation; 2],
    /// The incarnation that the node's first disk had; only mutation runs use it.
    pub former: Incarnation,
    /// What linearizable reads rest on.
    pub reads: Reads,
    /// Between two parts of a scrub ([`crate::timing::SCRUB_MAX`] entries), in microseconds.
    pub scrub_every: u64,
}

/// Something that happens to a node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// Time has passed; comes every [`crate::timing::TICK`].
    Tick,
    /// A message has come.
    Deliver(Envelope),
    /// A sync has ended, well or not.
    Synced(SyncId, bool),
    /// A change of the directory was not made, nor are any others of this step behind it, nor their syncs.
    StoreFailed(StoreError),
    /// Whether the disk has more room than what is kept for promises and the starts of epochs; told at the start
    /// and when it changes.
    Room(bool),
    /// What the wall clock shows; comes before each tick.
    Wall(WallTime),
    /// Entries were read again: those from `from` to `upto`, or by somebody who came upon damage.
    Verified {
        /// The first.
        from: Lsn,
        /// The last.
        upto: Lsn,
        /// Those that cannot be read, or are not what was written.
        damaged: Vec<Lsn>,
        /// Entries that lie at the place of one of these and not at their own: their writes went astray, and
        /// healing that place takes away what shows it.
        strays: Vec<Lsn>,
    },
    /// The catalog has answered.
    Catalog(CatalogReply),
    /// A client publishes.
    Publish(Publish),
    /// A client reads and wants all that was acknowledged before.
    Read {
        /// The request.
        request: RequestId,
    },
    /// The files that the log's entries make are durable up to an entry; those before may be trimmed.
    Trim {
        /// That entry.
        upto: Lsn,
    },
    /// The connection to a node was reset.
    Reset(NodeId),
    /// This node is to own the log now: nobody is asked whether there is a healthy owner.
    TakeOver,
    /// This node is about to hand the log over, and still serves: another whole keeper makes ready to follow it.
    Prepare,
    /// As [`Event::Prepare`], this node and no other one.
    PrepareFor(NodeId),
    /// This node is not to own the log any more, because it is about to end, say. Another whole keeper
    /// follows it.
    HandOver,
    /// As [`Event::HandOver`], to this node and no other one, unless that goes meanwhile.
    HandOverTo(NodeId),
    /// The log is closed at this owner, which is to take over from itself with the set that is wished. Where it cannot
    /// ([`Node::set_can_change`]) nothing happens.
    ChangeSet,
}

/// Why a transaction was proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Register,
    Claim,
    /// A claim with which the log begins anew; so many disks were left of so many.
    ClaimAnew {
        left: usize,
        of: usize,
    },
    Serve,
}

#[derive(Debug)]
struct Proposal {
    txn: Txn,
    purpose: Purpose,
    sent_at: Time,
}

#[derive(Debug)]
enum Role {
    Follower,
    /// Asks the others whether there is a healthy owner.
    Asking {
        attempt: u64,
        since: Time,
        quiet: BTreeSet<NodeId>,
    },
    Candidate(Box<Candidate>),
    Owner(Box<Owner>),
}

/// What an owner sees of its own node.
fn here(keeper: &Keeper, wall: Option<WallTime>) -> Here<'_> {
    Here { log: keeper.log(), room: keeper.has_room(), wall }
}

/// The owner that a node prepares to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prepares {
    /// Where it is.
    owner: NodeId,
    /// When a beat of it was heard last.
    heard: Time,
    /// It has gone without a word.
    gone: bool,
}

/// The cores of one node.
#[derive(Debug)]
pub struct Node {
    config: Config,
    keeper: Keeper,
    detector: Detector,
    role: Role,
    row: Option<Snapshot>,
    registered: bool,
    proposal: Option<Proposal>,
    number: u64,
    renewed: bool,
    beat_at: Time,
    polled_at: Time,
    admit_at: Time,
    /// Since when this node has owned a log that it is to keep no more.
    unwished_since: Option<Time>,
    /// Since when the set of the log that this node owns could change.
    changeable_since: Option<Time>,
    walls: Walls,
    told_clock: bool,
    /// Since when the catalog has given nothing but old answers, and whether that was said.
    behind: Option<(Time, bool)>,
    /// The last round of beats.
    round: u64,
    /// An entry that this node lacked as a candidate, and others had trimmed.
    lacking: Option<Lacking>,
    /// It is to own the log only where nobody else can.
    drained: bool,
    /// Its disk is to take no new messages.
    short: bool,
    /// How long it answers reads as an owner after a beat that a majority answered.
    lease: u64,
    /// The claim under way, or the candidate, is to follow an owner that still serves.
    prepares: Option<Prepares>,
    /// The epoch that this node was told to follow, until it has claimed the next one.
    follows: Option<Epoch>,
    /// Set when this node has left an epoch, until it claims one.
    handed: Option<Handed>,
    memory: Memory,
}

impl Node {
    /// A node that starts on a directory.
    #[must_use]
    pub fn boot(config: Config, image: &Image, now: Time) -> (Self, Vec<Effect>) {
        let mut out = Out::new(config.id, Incarnation(0));
        let names = Names { node: config.id, fresh: config.fresh[0], former: config.former };
        let keeper = Keeper::open(config.id, image, names, config.scrub_every, now, &mut out);
        let node = Self {
            keeper,
            detector: Detector::new(config.id, now),
            role: Role::Follower,
            row: None,
            registered: false,
            proposal: None,
            number: 0,
            renewed: false,
            beat_at: Time(0),
            polled_at: Time(0),
            admit_at: now,
            unwished_since: None,
            changeable_since: None,
            walls: Walls::default(),
            told_clock: false,
            behind: None,
            round: 0,
            lacking: None,
            drained: false,
            short: false,
            lease: LEASE,
            prepares: None,
            handed: None,
            follows: None,
            memory: Memory::default(),
            config,
        };
        (node, out.effects)
    }

    /// The keeper.
    #[must_use]
    pub fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// The owner, if this node is one.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        if let Role::Owner(owner) = &self.role { Some(owner) } else { None }
    }

    /// True if this node is taking the log over.
    #[must_use]
    pub fn is_taking_over(&self) -> bool {
        matches!(self.role, Role::Candidate(_))
    }

    /// True if this node would answer a linearizable read now.
    #[must_use]
    pub fn has_lease(&self, now: Time) -> bool {
        self.owner().is_some_and(|owner| owner.has_lease(now))
    }

    /// True if the node must be started again on what its directory holds: a sync or a write has failed, or what
    /// ends the log cannot be read.
    #[must_use]
    pub fn needs_restart(&self) -> bool {
        self.keeper.is_stale()
    }

    fn me(&self) -> Member {
        Member { node: self.config.id, incarnation: self.keeper.identity().incarnation }
    }

    /// Handles one event.
    pub fn step(&mut self, event: Event, now: Time) -> Vec<Effect> {
        let mut out = Out::new(self.config.id, self.me().incarnation);
        match event {
            Event::Tick => self.tick(now, &mut out),
            Event::Deliver(envelope) => self.deliver(&envelope, now, &mut out),
            Event::Synced(sync, good) => {
                self.keeper.synced(sync, good, &mut out);
                self.try_register(now, &mut out);
            }
            Event::StoreFailed(why) => self.keeper.write_failed(why, &mut out),
            Event::Room(room) => self.keeper.set_room(room),
            Event::Wall(wall) => self.walls.set(wall, now),
            Event::Verified { mut damaged, strays, .. } => {
                if Rule::StraysAreMissed.holds() {
                    damaged.extend(strays);
                }
                self.keeper.verified(&damaged, &mut out);
            }
            Event::Catalog(reply) => self.catalog_answered(reply, now, &mut out),
            Event::Publish(publish) => self.publish(publish, now, &mut out),
            Event::Read { request } => self.read(request, now, &mut out),
            Event::Trim { upto } => self.keeper.trim(upto, &mut out),
            Event::Reset(peer) => self.reset(peer, now, &mut out),
            Event::TakeOver => self.take_over(now, &mut out),
            Event::Prepare => self.prepare(|_| true, now, &mut out),
            Event::PrepareFor(node) => self.prepare(|member| member.node == node, now, &mut out),
            Event::HandOver => self.hand_over(|_| true, now),
            Event::HandOverTo(node) => self.hand_over(|member| member.node == node, now),
            Event::ChangeSet => self.change_set(now, &mut out),
        }
        while let Some(envelope) = out.local.pop_front() {
            self.deliver(&envelope, now, &mut out);
        }
        self.check_role(now, &mut out);
        self.release(now, &mut out);
        out.effects
    }

    fn tick(&mut self, now: Time, out: &mut Out) {
        if self.keeper.is_poisoned() {
            return;
        }
        if passed(BEAT, self.beat_at, now) {
            self.beat_at = now;
            self.beat(now, out);
        }
        self.keeper.scrub(now, out);
        self.look_at_clock(now, out);
        if passed(CATALOG_POLL, self.polled_at, now) {
            self.polled_at = now;
            out.effects.push(Effect::Catalog(Call::Read));
        }
        if let Some(proposal) = &mut self.proposal
            && now.since(proposal.sent_at) >= RESEND
        {
            proposal.sent_at = now;
            // More may have been seen meanwhile.
            proposal.txn.seen = self.keeper.identity().seen;
            out.effects.push(Effect::Catalog(Call::Propose(proposal.txn.clone())));
        }
        self.look_at_prepared(now, out);
        self.tick_role(now, out);
    }

    fn tick_role(&mut self, now: Time, out: &mut Out) {
        let wall = self.expiry_clock(now);
        match &mut self.role {
            Role::Follower => {
                if !self.begins_anew(now, out) {
                    self.look_for_owner(now, out);
                }
            }
            Role::Asking { since, .. } => {
                if now.since(*since) >= ASK {
                    self.fall_back(now, out);
                }
            }
            Role::Candidate(candidate) => {
                let next = candidate.tick(self.keeper.log(), now, out);
                self.next(next, now, out);
            }
            Role::Owner(owner) => {
                owner.tick(here(&self.keeper, wall), now, out);
                self.look_at_wish(now, out);
                self.look_at_disk(now);
            }
        }
    }

    fn log_row(&self) -> Option<&LogRow> {
        self.row.as_ref().map(|row| &row.log.value)
    }

    fn known_epoch(&self) -> Epoch {
        self.log_row().map_or(Epoch(0), |row| row.epoch)
    }

    fn has_quorum(&self, now: Time) -> bool {
        self.log_row().is_some_and(|row| self.detector.has_quorum(row, now))
    }

    fn deliver(&mut self, envelope: &Envelope, now: Time, out: &mut Out) {
        let other_disk = envelope.disk.is_some_and(|disk| disk != self.me().incarnation);
        if !self.registered || self.keeper.is_poisoned() {
            return;
        }
        if other_disk && Rule::CheckIncarnation.holds() {
            return;
        }
        let from = Member { node: envelope.from, incarnation: envelope.sender };
        match &envelope.message {
            Message::Seal { .. }
            | Message::Fetch { .. }
            | Message::Bring { .. }
            | Message::Install { .. }
            | Message::Start { .. }
            | Message::Append { .. } => self.keeper.receive(envelope, now, out),
            Message::Beat { .. } => self.beaten(envelope, now, out),
            Message::BeatAnswer(answer) => self.beat_answered(from, answer, now, out),
            Message::Release { epoch } => {
                self.keeper.release(envelope.sender, *epoch, now);
                self.begin_prepared(*epoch, now, out);
            }
            Message::Prepare { epoch } => self.make_ready(from.node, *epoch, now, out),
            Message::Succeed { epoch } => self.succeed(*epoch, now, out),
            Message::Would { attempt, epoch } => {
                let healthy = *epoch < self.known_epoch() || self.knows_healthy(now);
                let answer = Message::WouldAnswer { attempt: *attempt, healthy };
                out.send(envelope.from, Some(envelope.sender), answer);
            }
            Message::WouldAnswer { attempt, healthy } => {
                self.would_answered(envelope.from, *attempt, *healthy, now, out);
            }
            Message::Refused { epoch, why } => self.refused(from, *epoch, *why, now, out),
            answer => self.keeper_answered(from, answer, now, out),
        }
    }

    fn knows_healthy(&self, now: Time) -> bool {
        let own = match &self.role {
            Role::Candidate(_) | Role::Owner(_) => self.has_quorum(now),
            Role::Follower | Role::Asking { .. } => false,
        };
        own || self.detector.has_healthy(now)
    }

    fn keeper_answered(&mut self, from: Member, message: &Message, now: Time, out: &mut Out) {
        let wall = self.expiry_clock(now);
        match &mut self.role {
            Role::Candidate(candidate) => {
                let next = candidate.answered(from, message, self.keeper.log(), now, out);
                self.next(next, now, out);
            }
            Role::Owner(owner) => {
                owner.answered(from, message, here(&self.keeper, wall), now, out);
            }
            Role::Follower | Role::Asking { .. } => {}
        }
    }

    fn refused(
        &mut self,
        from: Member,
        epoch: Epoch,
        why: crate::message::Refusal,
        now: Time,
        out: &mut Out,
    ) {
        let over = match &mut self.role {
            Role::Candidate(candidate) => candidate.refused(from, epoch, why, now),
            Role::Owner(owner) => owner.refused(from, epoch, why, now),
            Role::Follower | Role::Asking { .. } => false,
        };
        if over {
            self.fall_back(now, out);
        }
    }

    /// Ends whatever role this node has.
    fn fall_back(&mut self, now: Time, out: &mut Out) {
        if let Role::Owner(owner) = std::mem::replace(&mut self.role, Role::Follower) {
            owner.end(out);
        }
        if self.proposal.as_ref().is_some_and(|proposal| proposal.purpose != Purpose::Register) {
            self.proposal = None;
        }
        (self.prepares, self.follows, self.handed) = (None, None, None);
        (self.unwished_since, self.changeable_since) = (None, None);
        self.detector.begin_anew(now);
    }

    /// An owner or candidate whose own keeper failed, or promised a later epoch, is none any more; nor
    /// is an owner that no majority answers (F4).
    fn check_role(&mut self, now: Time, out: &mut Out) {
        let epoch = match &self.role {
            Role::Candidate(candidate) => candidate.epoch(),
            Role::Owner(owner) => owner.epoch(),
            Role::Follower | Role::Asking { .. } => return,
        };
        let promised = self.keeper.promise().epoch > epoch && Rule::OwnPromiseEndsLease.holds();
        if promised || self.keeper.is_poisoned() || !self.has_quorum(now) {
            self.fall_back(now, out);
        }
    }

    /// True if this node may try to become the owner of the epoch after this row's.
    fn may_claim(&self, row: &LogRow) -> bool {
        let free = matches!(self.role, Role::Follower | Role::Asking { .. });
        let able = self.registered && self.proposal.is_none() && !self.keeper.is_poisoned();
        free && able && row.set.contains(&self.me())
    }

    fn look_for_owner(&mut self, now: Time, out: &mut Out) {
        let Some(row) = self.log_row() else { return };
        if !self.may_claim(row)
            || self.detector.has_healthy(now)
            || !self.detector.suspects(row, self.is_unfit(row, now), now)
        {
            return;
        }
        if !Rule::AskOthers.holds() {
            self.claim(now, out);
            return;
        }
        let nodes: Vec<NodeId> = row.set.iter().map(|member| member.node).collect();
        let epoch = row.epoch;
        self.number += 1;
        let attempt = self.number;
        let quiet = BTreeSet::from([self.config.id]);
        self.role = Role::Asking { attempt, since: now, quiet };
        for node in nodes.into_iter().filter(|node| *node != self.config.id) {
            out.send(node, None, Message::Would { attempt, epoch });
        }
    }

    fn would_answered(
        &mut self,
        from: NodeId,
        number: u64,
        healthy: bool,
        now: Time,
        out: &mut Out,
    ) {
        let Some(row) = self.row.as_ref().map(|row| &row.log.value) else { return };
        let Role::Asking { attempt, quiet, .. } = &mut self.role else { return };
        if *attempt != number {
            return;
        }
        if healthy {
            self.role = Role::Follower;
            self.detector.denied(now);
            return;
        }
        quiet.insert(from);
        if quiet.len() >= majority(row.set.len()) {
            self.role = Role::Follower;
            self.claim(now, out);
        }
    }

    fn catalog_answered(&mut self, reply: CatalogReply, now: Time, out: &mut Out) {
        if self.keeper.is_poisoned() {
            return;
        }
        if self.went_back(&reply.snapshot, now, out) {
            return;
        }
        let known = self.row.as_ref().map(|row| row.revision);
        let never = !Rule::CatalogNeverGoesBack.holds();
        if never || known.is_none_or(|known| reply.snapshot.revision >= known) {
            self.keeper.note_seen(reply.snapshot.revision, out);
            let log = self.row.as_ref().map(|row| row.log.revision);
            let is_other = log != Some(reply.snapshot.log.revision);
            self.row = Some(reply.snapshot);
            if is_other {
                self.detector.begin_anew(now);
                self.miss_gone_owner();
            }
        }
        if let Some((id, outcome)) = reply.outcome {
            self.decided(id, outcome.ok(), now, out);
        }
        self.look_at_seat(now, out);
        self.try_register(now, out);
    }

    fn next(&mut self, next: Next, now: Time, out: &mut Out) {
        match next {
            Next::Wait => {}
            Next::GiveUp => self.fall_back(now, out),
            Next::Leave { to, lacks } => self.leave(to, lacks, now, out),
            Next::Propose(row) => {
                let Role::Candidate(candidate) = &self.role else { unreachable!("it asked") };
                let revision = candidate.revision();
                self.propose(Key::Log, revision, Value::Log(row), Purpose::Serve, now, out);
            }
            Next::Serve { set, start, sum, started } => {
                let Role::Candidate(candidate) = &self.role else { unreachable!("it asked") };
                let epoch = candidate.epoch();
                let owner =
                    Owner::new(self.me(), epoch, (start, sum), &set, &started, self.lease, now);
                self.detector.begin_role(now);
                self.admit_at = now;
                self.unwished_since = None;
                self.role = Role::Owner(Box::new(owner));
                // Its lease begins with the answers.
                self.beat_at = now;
                self.beat(now, out);
            }
        }
    }
}

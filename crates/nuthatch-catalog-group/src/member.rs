//! The core of one member of the group.

mod absence;
mod calls;
mod draining;
mod nodes;
mod setup;
mod sight;

use self::absence::Absences;
use self::nodes::Wanted;
use self::setup::{config, encode_state, founded, names, state};
use crate::asked::{Calls, Origin, Waiting};
use crate::catalog_codec::log_txn;
use crate::coding::{Malformed, Reader, malformed};
use crate::founding::Founding;
use crate::identity::{self, Identity, PEERS_MAX, Peers};
use crate::log_catalog::LogCatalog;
use crate::packet::{Body, Envelope};
use crate::raft_codec::is_sent;
use crate::roster::{Change, Roster};
use crate::rules::Rule;
use crate::store::Store;
use crate::taking_part::TakingPart;
use crate::types::{Boot, LogNumber, MemberId};
use crate::zones::Zones;
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::{Call, CatalogReply};
use nuthatch_quorum::types::NodeId;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};
use raft::{RawNode, SnapshotStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Ticks between two attempts to join.
const JOIN_TICKS: u64 = 10;

/// Members at a time to which there are connections.
const MET_MAX: usize = 16;

/// Bounds of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Entries after which a snapshot takes their place.
    pub snapshot_entries: u64,
    /// Ticks for which the leader must not have heard a node that keeps logs before a spare takes its place; none: only
    /// people replace nodes.
    pub replace_after_ticks: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { snapshot_entries: 1000, replace_after_ticks: None }
    }
}

/// What happens to a member.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// Time passes.
    Tick,
    /// Another member says something.
    Deliver(Box<Envelope>),
    /// Its node asks the catalog. The number names the call until it is answered or given up.
    Call {
        /// The number.
        number: u64,
        /// The log that it is of.
        log: LogNumber,
        /// The call.
        call: Call,
    },
    /// The nodes are to change. The number names that until it is decided or given up.
    Change {
        /// The number.
        number: u64,
        /// The change.
        change: Change,
    },
    /// There is a connection to a member, which may be one that this one knows nothing of.
    Met(MemberId),
    /// A member cannot be reached any more, as its connection says.
    Lost(MemberId),
    /// What its node knows of the zones of nodes, instead of what it knew before.
    Zones(Zones),
}

/// What a member asks of its driver.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Something is to be sent; it may be lost.
    Send(Box<Envelope>),
    /// A call is answered.
    Answer {
        /// Its number.
        number: u64,
        /// The answer.
        reply: Box<CatalogReply>,
    },
    /// A change of the nodes was made or refused.
    Decided {
        /// Its number.
        number: u64,
        /// Why it is refused; none: it was made.
        refused: Option<String>,
    },
    /// This disk's node was removed: it takes no part any more.
    Removed {
        /// The name of the node that took its place, if one did.
        by: Option<String>,
    },
    /// The leader has not heard a node for longer than it may be away.
    Absent {
        /// The node.
        old: NodeId,
        /// The spare that is to take its place; none: there is none that could.
        new: Option<NodeId>,
        /// Ticks for which it may be away.
        ticks: u64,
    },
    /// Nobody knows what became of a call, or of a change.
    GaveUp {
        /// Its number.
        number: u64,
    },
    /// People are to know this.
    Report(String),
}

/// A member of the group.
pub struct Member {
    founding: Founding,
    node: NodeId,
    identity: Identity,
    disk: Arc<dyn Disk>,
    raw: RawNode<Store>,
    taking_part: TakingPart,
    /// Those of the logs, in the order of their numbers.
    catalogs: Vec<LogCatalog>,
    roster: Roster,
    peers: Peers,
    calls: Calls,
    wanted: Wanted,
    waiting: Waiting,
    /// Members to which there is a connection.
    met: BTreeSet<MemberId>,
    /// When each member was heard last.
    heard: BTreeMap<MemberId, u64>,
    absences: Absences,
    zones: Zones,
    applied: u64,
    ticks: u64,
    leader: u64,
    led_since: u64,
    /// Ticks for which it has not stood for the lead although its time had come, because it is drained.
    stood_back: usize,
    /// Number of the confirmation that reads which come now wait for.
    reads: u64,
    /// Reads wait for it.
    reads_due: bool,
    limits: Limits,
    /// A member was to be sent a snapshot that does not name it.
    snapshot_due: bool,
    /// That it takes part was said.
    said: bool,
    /// Effects of the step that is under way.
    out: Vec<Effect>,
}

impl Member {
    /// Begins with a disk that was founded, under a number that was drawn for this beginning.
    ///
    /// # Errors
    /// The disk's; `InvalidData` if it is damaged.
    pub fn open(
        disk: Arc<dyn Disk>,
        founding: Founding,
        node: NodeId,
        nonce: u64,
        limits: Limits,
    ) -> io::Result<Self> {
        let mut identity = identity::identify(&*disk, MemberId(nonce))?;
        if identity.held || !Rule::BeginOnceHeld.holds() {
            identity.boot = Boot { count: identity.boot.count + 1, nonce };
            identity.held = false;
            identity::store_identity(&*disk, identity)?;
        }
        let peers = identity::load_peers(&*disk)?;
        let store = Store::open(Arc::clone(&disk), || founded(&founding))?;
        let held = state(store.snapshot(), &founding).map_err(io::Error::from)?;
        let applied = store.index();
        let raw = RawNode::new(
            &config(identity.member, node, applied),
            store,
            &slog::Logger::root(slog::Discard, slog::o!()),
        );
        let raw = raw.map_err(io::Error::other)?;
        let mut member = Self {
            founding,
            node,
            taking_part: TakingPart::new(identity.member, identity.boot),
            identity,
            disk,
            raw,
            catalogs: held.0,
            roster: held.1,
            peers,
            calls: Calls::default(),
            wanted: Wanted::default(),
            waiting: Waiting::default(),
            met: BTreeSet::new(),
            heard: BTreeMap::new(),
            absences: Absences::default(),
            zones: Zones::default(),
            applied,
            ticks: 0,
            leader: 0,
            led_since: 0,
            stood_back: 0,
            reads: 0,
            reads_due: false,
            limits,
            snapshot_due: false,
            said: false,
            out: vec![],
        };
        let conf = member.conf();
        member.taking_part.look((applied, conf));
        member.note_held()?;
        Ok(member)
    }

    /// Handles one event: [`Member::take`], then [`Member::settle`].
    ///
    /// # Errors
    /// As those.
    pub fn step(&mut self, event: Event) -> io::Result<Vec<Effect>> {
        self.take(event)?;
        self.settle()
    }

    /// Takes in what happens. What follows from it waits for [`Member::settle`], but for what must come before the next
    /// event: what several ask for that came while the disk was busy becomes durable together. After an error the disk must
    /// be read anew: the member is not to be used any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn take(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Tick => self.tick(),
            Event::Deliver(envelope) => self.deliver(*envelope)?,
            Event::Call { number, log, call } => {
                if !self.calls.add(number, (log, call), self.ticks) {
                    self.out.push(Effect::GaveUp { number });
                }
            }
            Event::Change { number, change } => {
                if !self.wanted.add(number, change, self.ticks) {
                    self.out.push(Effect::GaveUp { number });
                }
            }
            Event::Met(member) => {
                if self.met.len() < MET_MAX {
                    self.met.insert(member);
                }
            }
            Event::Lost(member) => {
                // Over a change of the members that is committed and not applied nobody stands for the lead.
                self.go_on()?;
                self.lost(member);
            }
            Event::Zones(zones) => self.zones = zones,
        }
        self.note_leader();
        Ok(())
    }

    /// Does what follows from the events that were taken in.
    ///
    /// # Errors
    /// As of [`Member::take`].
    pub fn settle(&mut self) -> io::Result<Vec<Effect>> {
        self.go_on()?;
        self.send_calls();
        self.send_wanted();
        self.confirm_reads();
        self.go_on()?;
        self.look_at_removal();
        if self.taking_part.is_on() && !std::mem::replace(&mut self.said, true) {
            self.out.push(Effect::Report("this node takes part in the catalog".to_owned()));
        }
        Ok(std::mem::take(&mut self.out))
    }

    fn conf(&self) -> ConfState {
        self.raw.raft.prs().conf().to_conf_state()
    }

    fn tick(&mut self) {
        self.ticks += 1;
        if self.taking_part.is_on() {
            self.tick_library();
        } else if self.taking_part.is_asking() {
            // Those that hold it, too: they say who the members are now, which may have changed.
            self.others().into_iter().for_each(|to| self.send(to, Body::Begun));
        }
        self.go_on_replacing();
        self.go_on_resizing();
        self.go_on_draining();
        self.replace_absent();
        let held = self.roster.nodes.get(&self.node).map(|enrolled| enrolled.member);
        let joins = held != Some(self.id());
        if joins && self.ticks % JOIN_TICKS == 1 {
            self.others().into_iter().for_each(|to| self.send(to, Body::Join(self.node)));
        }
        let wanted = self.wanted.given_up(self.ticks);
        for number in self.calls.given_up(self.ticks).into_iter().chain(wanted) {
            self.out.push(Effect::GaveUp { number });
        }
    }

    /// The other members, as far as this one knows.
    fn others(&self) -> Vec<MemberId> {
        let conf = self.conf();
        let ids = conf.voters.iter().chain(&conf.voters_outgoing).chain(&conf.learners);
        let mut others: Vec<MemberId> = ids.map(|id| MemberId(*id)).collect();
        others.extend(self.roster.members().values().chain(&self.met));
        others.sort_unstable();
        others.dedup();
        others.retain(|member| *member != self.id());
        others
    }

    fn send(&mut self, to: MemberId, body: Body) {
        let (from, boot) = (self.identity.member, self.identity.boot);
        let cluster = self.founding.cluster;
        self.out.push(Effect::Send(Box::new(Envelope { cluster, from, boot, to, body })));
    }

    fn deliver(&mut self, envelope: Envelope) -> io::Result<()> {
        let mine = envelope.cluster == self.founding.cluster && envelope.to == self.id();
        if !mine || self.taking_part.why_never().is_some() {
            return Ok(());
        }
        if let Body::Removed(by) = envelope.body {
            self.was_removed(by);
            return Ok(());
        }
        if self.is_of_removed(&envelope) || !self.hold(&envelope)? {
            return Ok(());
        }
        let from = envelope.from;
        self.heard.insert(from, self.ticks);
        self.absences.heard(from);
        match envelope.body {
            Body::Begun => {
                let at = (self.applied, self.conf());
                self.send(from, Body::Held { boot: envelope.boot, at });
            }
            Body::Held { boot, at } => {
                self.taking_part.held(from, boot);
                self.taking_part.look((self.applied, self.conf()));
                self.taking_part.look(at);
                self.note_held()?;
            }
            Body::Outdated(by) if by.outdates(self.identity.boot) => {
                self.refuse("the disk was set back to an earlier image");
            }
            Body::Outdated(_) => {}
            Body::Raft(message) => {
                if message.msg_type == MessageType::MsgTimeoutNow {
                    // As where a member is lost.
                    self.go_on()?;
                }
                self.hear(from, *message);
            }
            Body::Ask { number, log, call } => {
                self.lead(Origin { member: from, number }, log, &call);
            }
            Body::Answer { number, reply } => self.answer(number, reply),
            Body::Join(node) => self.let_join(node, from),
            Body::Change { number, change } => {
                self.lead_change(Origin { member: from, number }, &change);
            }
            Body::Decided { number, refused } => self.decided(number, refused),
            Body::Removed(_) => unreachable!("as above"),
        }
        Ok(())
    }

    /// Notes that a majority holds this boot counter, before anything is done that others rely on.
    fn note_held(&mut self) -> io::Result<()> {
        if self.taking_part.is_on() && !self.identity.held {
            self.identity.held = true;
            identity::store_identity(&*self.disk, self.identity)?;
        }
        Ok(())
    }

    /// Holds the sender's boot counter; false if it began as one that is outdated, which it is told.
    fn hold(&mut self, envelope: &Envelope) -> io::Result<bool> {
        let (from, boot) = (envelope.from, envelope.boot);
        match self.peers.get(&from) {
            Some(held) if *held == boot => return Ok(true),
            Some(held) if held.outdates(boot) && Rule::LowerBootRefused.holds() => {
                let held = *held;
                self.send(from, Body::Outdated(held));
                return Ok(false);
            }
            Some(held) if held.outdates(boot) => return Ok(true),
            None if self.peers.len() >= PEERS_MAX => return Ok(false),
            _ => {}
        }
        self.peers.insert(from, boot);
        if Rule::PeerBootDurable.holds() {
            identity::store_peers(&*self.disk, &self.peers)?;
        }
        Ok(true)
    }

    /// This disk is not what it was: it takes no part any more.
    fn refuse(&mut self, why: &'static str) {
        if self.taking_part.refuse(why) {
            let label = self.disk.label();
            self.out.push(Effect::Report(format!(
                "this node takes no part in the catalog: {why}. Move {label}/{} away and start it again: it then \
                 joins with a new disk",
                identity::DIR
            )));
        }
    }

    /// A message of the library.
    fn hear(&mut self, from: MemberId, message: Message) {
        if !self.taking_part.is_on() || message.from != from.0 || message.to != self.id().0 {
            return;
        }
        // What is committed was here once, says the leader, which knows how far this disk had said it was.
        let beyond = message.msg_type == MessageType::MsgHeartbeat
            && message.term >= self.raw.raft.term
            && message.commit > self.raw.raft.raft_log.last_index();
        if beyond {
            self.refuse("the disk lacks what it had said was durable");
            return;
        }
        // What the library does not want it says so by an error, as for messages of members that are gone.
        let _ = self.raw.step(message);
    }

    /// The connection to a member was lost: if it led, those that are left need not wait for its silence to be long.
    fn lost(&mut self, member: MemberId) {
        self.heard.remove(&member);
        self.met.remove(&member);
        if !self.taking_part.is_on() || self.raw.raft.leader_id != member.0 {
            return;
        }
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, raft::INVALID_ID);
        if self.first_but(member) == Some(self.id()) {
            // It only asks whether the others would vote: harmless if they still hear the leader.
            let _ = self.raw.campaign();
        }
    }

    /// Does what the library wants done, in its order: what it says in messages is durable before they go out.
    fn go_on(&mut self) -> io::Result<()> {
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            self.send_all(ready.take_messages());
            for read in ready.take_read_states() {
                self.waiting.confirmed(&read.request_ctx, read.index);
            }
            let hard = ready.hs().cloned();
            if !ready.snapshot().is_empty() {
                let snapshot = ready.snapshot().clone();
                self.restore(&snapshot)?;
                self.raw.mut_store().restore(snapshot, hard.as_ref())?;
            }
            let entries = ready.take_entries();
            self.raw.mut_store().append(hard.as_ref(), entries)?;
            self.send_all(ready.take_persisted_messages());
            let committed = ready.take_committed_entries();
            // That they are persisted is noted before a change of the members is applied: a leader that this leaves out has
            // no progress of its own to note it in, and the library panics.
            let mut light = self.raw.advance_append(ready);
            if let Some(commit) = light.commit_index() {
                self.raw.mut_store().committed(commit);
            }
            self.apply(committed)?;
            self.send_all(light.take_messages());
            self.apply(light.take_committed_entries())?;
            self.raw.advance_apply();
        }
        self.answer_reads();
        self.compact()
    }

    fn send_all(&mut self, messages: Vec<Message>) {
        for message in messages.into_iter().filter(is_sent) {
            let to = message.to;
            if message.msg_type == MessageType::MsgSnapshot {
                // One of before a member joined is of no use to it, and the next might be long in coming.
                let of_use =
                    names(message.get_snapshot(), to) || !Rule::SnapshotNamesReader.holds();
                self.snapshot_due |= !of_use;
                // Whether it comes shows when what follows it is asked for.
                self.raw.report_snapshot(to, SnapshotStatus::Finish);
            }
            self.send(MemberId(to), Body::Raft(Box::new(message)));
        }
    }

    fn restore(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let held = state(snapshot, &self.founding).map_err(io::Error::from)?;
        (self.catalogs, self.roster) = held;
        self.applied = snapshot.get_metadata().index;
        Ok(())
    }

    fn apply(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        for entry in entries {
            let applied = match entry.entry_type {
                EntryType::EntryNormal if entry.data.is_empty() => Ok(()),
                EntryType::EntryNormal if !entry.context.is_empty() => self.apply_change(&entry),
                EntryType::EntryNormal => self.apply_txn(&entry),
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    self.apply_change(&entry)
                }
            };
            applied.map_err(io::Error::from)?;
            self.applied = entry.index;
            if entry.entry_type != EntryType::EntryNormal {
                self.raw.mut_store().keep_committed(entry.index)?;
            }
        }
        Ok(())
    }

    fn apply_txn(&mut self, entry: &Entry) -> Result<(), Malformed> {
        let mut from = Reader(&entry.data);
        let (log, txn) = log_txn(&mut from)?;
        let catalog = self.catalogs.get_mut(log.index());
        let catalog = catalog.ok_or(malformed("a transaction of a log that there is not"))?;
        let reply = catalog.call(&Call::Propose(txn.clone()));
        let origins = self.waiting.applied(txn.id);
        self.answer_all(self.id(), origins, &reply);
        Ok(())
    }

    /// A snapshot takes the place of entries when there are many, or when a member needs a newer one.
    fn compact(&mut self) -> io::Result<()> {
        let (behind, due) = (self.raw.store().index(), std::mem::take(&mut self.snapshot_due));
        let is_due = due && self.applied > behind;
        if !is_due && self.applied < behind + self.limits.snapshot_entries {
            return Ok(());
        }
        let data = encode_state(&self.catalogs, &self.roster).into();
        let mut snapshot = Snapshot { data, ..Snapshot::default() };
        let conf = self.conf();
        let term = self.raw.raft.raft_log.term(self.applied).map_err(io::Error::other)?;
        let about = snapshot.mut_metadata();
        (about.index, about.term) = (self.applied, term);
        about.set_conf_state(conf);
        self.raw.mut_store().compact(snapshot)
    }
}

#[cfg(test)]
mod tests;

//! The thread that drives the member of a node.

use super::connections::Connections;
use super::{Answering, Deciding, Input, was_removed};
use crate::change_nodes::absent_text;
use crate::life::Life;
use crate::roll::Roll;
use crate::start_error::too_old_text;
use nuthatch_catalog_group::coding::{LATER, is_later};
use nuthatch_catalog_group::{Effect, Event, Member, Protocol, Roster, TICK, identity};
use nuthatch_log::Reporter;
use nuthatch_log::env::Disk;
use nuthatch_quorum::catalog::CatalogReply;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// After its disk failed the member begins anew so much later.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);

/// Inputs that are taken in before what they ask for is made durable.
const TOGETHER_MAX: usize = 256;

/// Who the nodes are, unless a change of the members is under way: until that is over a vote of the node that goes may be
/// needed, so it stays connected and is not told that it was removed.
pub(super) fn settled(member: &Member) -> Option<&Roster> {
    member.is_settled().then(|| member.roster())
}

/// Drives a member.
pub(super) struct Driver {
    pub life: Life,
    pub inputs: Receiver<Input>,
    pub connections: Arc<Connections>,
    pub roll: Arc<Roll>,
    /// The node's name and number.
    pub name: String,
    pub number: NodeId,
    /// The newest protocol that the node may speak.
    pub newest: Protocol,
    /// How many changes of the nodes are noted on the disk.
    pub noted: u64,
    pub disk: Arc<dyn Disk>,
    pub report: Reporter,
    /// Who waits for the answers to calls.
    pub answering: BTreeMap<u64, Answering>,
    /// Who waits for what becomes of changes of the nodes.
    pub deciding: BTreeMap<u64, Deciding>,
    pub numbered: u64,
    /// What was said last: whether somebody leads, and whether this node does.
    pub told: (bool, bool),
}

impl Driver {
    pub fn run(mut self, first: Member, open: impl Fn() -> io::Result<Member>) {
        let mut member = Some(first);
        let mut told = String::new();
        loop {
            let opened = member.take().map_or_else(&open, Ok);
            let ended = opened.and_then(|member| {
                // The library ends loudly where a disk contradicts itself.
                let driven = catch_unwind(AssertUnwindSafe(|| self.drive(member)));
                driven.unwrap_or_else(|_| Err(io::Error::other("its log contradicts itself")))
            });
            let Err(error) = ended else { return };
            self.answering.clear();
            self.deciding.clear();
            if is_later(&error) {
                self.roll.remove_me(LATER);
                return;
            }
            if told != error.to_string() {
                told = error.to_string();
                self.report.say(&format!("this node's part of the catalog has failed: {told}"));
            }
            if self.life.pause(BEGIN_AGAIN) {
                return;
            }
        }
    }

    /// Drives a member until its disk fails, or the node ends.
    fn drive(&mut self, mut member: Member) -> io::Result<()> {
        let tick = Duration::from_micros(TICK);
        let mut next = Instant::now() + tick;
        while !self.life.is_ending() {
            let left = next.saturating_duration_since(Instant::now());
            let input = match left.is_zero() {
                true => Err(RecvTimeoutError::Timeout),
                false => self.inputs.recv_timeout(left),
            };
            match input {
                Ok(first) => self.take_all(&mut member, first)?,
                Err(RecvTimeoutError::Timeout) => {
                    // A thread that was held up does not make up for it: nobody is suspected for that.
                    next = Instant::now() + tick;
                    member.take(Event::Zones(self.roll.zones()))?;
                    member.take(Event::Tick)?;
                    self.connections.look();
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let performed = member.settle()?.into_iter().try_for_each(|one| self.perform(one));
            self.connections.write_gathered();
            performed?;
            self.note(&member)?;
            self.tell(&member);
        }
        Ok(())
    }

    /// Takes in together what came while the disk was busy. With a sync for each, calls that come in within one sync
    /// would take longer than it takes until they are sent again, and on a slow disk the queue would never be empty.
    fn take_all(&mut self, member: &mut Member, first: Input) -> io::Result<()> {
        member.take(self.event(first))?;
        for _ in 1..TOGETHER_MAX {
            let Ok(input) = self.inputs.try_recv() else { break };
            member.take(self.event(input))?;
        }
        Ok(())
    }

    fn event(&mut self, input: Input) -> Event {
        match input {
            Input::Packet(envelope) => Event::Deliver(envelope),
            Input::Met(member) => Event::Met(member),
            Input::Lost(member) => Event::Lost(member),
            Input::Call(log, call, answering) => {
                self.numbered += 1;
                self.answering.insert(self.numbered, answering);
                Event::Call { number: self.numbered, log, call }
            }
            Input::Change(change, deciding) => {
                self.numbered += 1;
                self.deciding.insert(self.numbered, deciding);
                Event::Change { number: self.numbered, change }
            }
        }
    }

    fn perform(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::Send(envelope) => self.connections.send(&envelope),
            Effect::Answer { number, reply } => self.answer(number, Some(*reply)),
            Effect::Decided { number, refused } => self.decide(number, Some(refused)),
            Effect::GaveUp { number } => {
                self.answer(number, None);
                self.decide(number, None);
            }
            Effect::Absent { old, new, ticks } => self.tell_absent((old, new), ticks),
            Effect::Report(text) => self.report.say(&text),
            Effect::Removed { by } => {
                let me = (&*self.disk, self.name.as_str());
                was_removed(me, by.as_deref(), &self.report, &self.roll)?;
            }
        }
        Ok(())
    }

    /// Notes who the nodes are. On the disk too: after a start others must be found before the catalog tells anything.
    fn note(&mut self, member: &Member) -> io::Result<()> {
        // A node that was removed hears of no leader, and does not look for one either: it asks whether that is over.
        let nodes = &member.roster().nodes;
        let leader = member.leader().filter(|_| nodes.contains_key(&self.number));
        let mut leads = nodes.iter().filter(|(_, one)| Some(one.member) == leader);
        self.roll.note_leader(leads.next().map(|(node, _)| *node));
        let Some(roster) = settled(member) else { return Ok(()) };
        if roster.changes > self.noted {
            identity::store_joined(&*self.disk, self.number, roster)?;
            self.noted = roster.changes;
        }
        self.roll.note(roster);
        if roster.active > self.newest {
            self.roll.remove_me(&too_old_text(roster.active, self.newest));
        }
        Ok(())
    }

    /// Says that a node is away for longer than it may be, and what follows.
    fn tell_absent(&self, nodes: (NodeId, Option<NodeId>), ticks: u64) {
        let after = Duration::from_micros(ticks * TICK);
        self.report.say(&absent_text(&self.roll.roster(), nodes, after));
    }

    fn decide(&mut self, number: u64, decided: Option<Option<String>>) {
        if let Some(deciding) = self.deciding.remove(&number) {
            // Who asked may have given up.
            let _ = deciding.try_send(decided);
        }
    }

    fn answer(&mut self, number: u64, reply: Option<CatalogReply>) {
        if let Some(answering) = self.answering.remove(&number) {
            // Who asked may have given up.
            let _ = answering.try_send(reply);
        }
    }

    /// Says whether this node leads, and that nobody does, when that changes.
    fn tell(&mut self, member: &Member) {
        let now = (member.leader().is_some(), member.is_leader());
        if self.told == now {
            return;
        }
        let (_, led) = std::mem::replace(&mut self.told, now);
        match now {
            (_, true) => self.report.note("this node leads the catalog"),
            (false, _) => self.report.say("the catalog has no leader that this node knows"),
            _ if led => self.report.note("this node leads the catalog no more"),
            _ => {}
        }
    }
}

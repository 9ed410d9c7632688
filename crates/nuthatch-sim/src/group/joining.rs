//! Nodes that join the cluster, and take the places of others.

use super::check::Violation;
use super::world::{Happening, Life, World};
use nuthatch_catalog_group::founding::Answer;
use nuthatch_catalog_group::seeking::Seeking;
use nuthatch_catalog_group::{
    Change, Draining, Event, Founding, Member, MemberId, Replacing, Resizing, Roster, identity,
};
use nuthatch_log::env::MemDisk;
use nuthatch_quorum::types::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// A process of a node that was removed has been told so after this long, in microseconds.
const TOLD_WITHIN: u64 = 5_000_000;

/// Entries that a member may lack at any time.
const ON_THE_WAY: u64 = 20;

/// What is known of nodes that join and are replaced.
#[derive(Debug, Default)]
pub struct Joins {
    /// Who waits for the answer to a call of that number.
    asking: BTreeMap<u64, usize>,
    /// Replacements that somebody waits for.
    wanted: BTreeMap<u64, Replacing>,
    /// Replacements that have begun, and from which entry of the log at least.
    begun: BTreeMap<(NodeId, NodeId), u64>,
    /// Nodes that were replaced, and that was looked at.
    pub replaced: BTreeSet<NodeId>,
    /// Replacements that were accepted.
    accepted: Vec<Replacing>,
    /// Those that somebody wanted to take back, of which nobody may hear whether they were.
    cancelled: Vec<Replacing>,
    /// Somebody has asked that nodes leave the logs to the others.
    pub(super) may_be_three: bool,
    /// How many nodes kept the logs after so many changes.
    sizes: BTreeMap<u64, usize>,
    /// The nodes that were drained after so many changes.
    drained: BTreeMap<u64, BTreeSet<NodeId>>,
    /// Nodes that joined.
    pub joined: u64,
}

/// The number of a node that belongs to a cluster; what it belongs to is on its disk then.
pub fn numbered(
    disk: &MemDisk,
    name: &str,
    founding: &Founding,
    roster: Option<&Roster>,
) -> io::Result<NodeId> {
    let founded = founding.roster().number(name);
    let node = match (roster, founded) {
        (Some(roster), None) => {
            let node = roster.number(name).expect("one of them");
            identity::store_joined(disk, node, roster)?;
            node
        }
        (_, Some(node)) => node,
        (None, None) => identity::load_joined(disk)?.expect("it has joined").0,
    };
    identity::take_founding(disk, founding)?;
    Ok(node)
}

impl Joins {
    /// How often the number of nodes that keep the logs was another one.
    pub(super) fn resized(&self) -> u64 {
        let sizes: Vec<&usize> = self.sizes.values().collect();
        sizes.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64
    }

    /// How often other nodes were drained.
    pub(super) fn drained(&self) -> u64 {
        let drained: Vec<_> = self.drained.values().collect();
        drained.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64
    }
}

/// Every fourth time two nodes come, if there are as many spares, or go, or this is taken back.
fn resizing(roster: &Roster, number: u64) -> Option<Resizing> {
    if !number.is_multiple_of(4) {
        return None;
    }
    if let Some(under_way) = &roster.resizing {
        return number.is_multiple_of(8).then(|| under_way.inverse());
    }
    let keepers = roster.nodes.iter().filter(|(_, one)| one.keeps);
    let keepers: Vec<NodeId> = keepers.map(|(node, _)| *node).collect();
    let spares: Vec<NodeId> = roster.spares().map(|(node, _)| *node).collect();
    match (keepers.len(), spares.len()) {
        (3, 2..) => Some(Resizing { nodes: spares[..2].to_vec(), keep: true }),
        (5.., _) => Some(Resizing { nodes: keepers[..2].to_vec(), keep: false }),
        _ => None,
    }
}

impl World {
    /// A node begins to look for its cluster. The time is the number of its first round: no answer to a former life is
    /// taken for one of this.
    pub(super) fn look_for_cluster(&mut self, at: usize) {
        let (round, answers) = (self.queue.now(), vec![None; self.nodes.len() - 1]);
        self.nodes[at].life = Life::Seeks { round, answers, seeking: Seeking::default() };
    }

    /// What the nodes have answered that a node lists: those that found a cluster list each other, and find others only
    /// when these belong to it.
    pub(super) fn listed(&self, at: usize, answers: Vec<Option<Answer>>) -> Vec<Option<Answer>> {
        let holds =
            |answer: &Option<Answer>| answer.as_ref().is_some_and(|one| one.founding.is_some());
        let others = (0..self.nodes.len()).filter(|other| *other != at).zip(answers);
        let listed = others.filter(|(other, answer)| {
            *other < self.founders || at >= self.founders || holds(answer)
        });
        listed.map(|(_, answer)| answer).collect()
    }

    /// A node that has found a cluster asks any other one.
    pub(super) fn ask_to_join(&mut self, by: usize) {
        let of = self.queue.rng.below(self.nodes.len() as u64) as usize;
        for after in self.net.send(by, of, &mut self.queue.rng) {
            self.queue.after(after, Happening::AsksToJoin { by, of });
        }
    }

    /// Whoever is asked asks the group.
    pub(super) fn is_asked_to_join(&mut self, by: usize, of: usize) -> Result<(), Violation> {
        if !matches!(self.nodes[by].life, Life::Joins) || by == of {
            return Ok(());
        }
        self.calls += 1;
        let number = self.calls;
        self.joins.asking.insert(number, by);
        let named = &self.nodes[by].named;
        let (name, member) = (named.name.clone(), named.member);
        let change = Change::Join { name, member, address: None };
        self.step(of, Event::Change { number, change })
    }

    /// A change was made or refused, as a node hears.
    pub(super) fn decided(&mut self, at: usize, number: u64, made: bool) {
        if let Some(replacing) = self.joins.wanted.remove(&number).filter(|_| made) {
            self.joins.accepted.push(replacing);
        }
        let Some(to) = self.joins.asking.remove(&number) else { return };
        let Life::Runs(member) = &self.nodes[at].life else { return };
        let Some(founding) = identity::load_founding(&self.nodes[at].disk).ok().flatten() else {
            return;
        };
        let named = &self.nodes[to].named;
        let (name, its) = (named.name.clone(), named.member);
        let enrolled = |roster: &Roster| {
            roster.nodes.values().any(|one| one.name == name && one.member == its)
        };
        let roster = Some(member.roster()).filter(|roster| made && enrolled(roster));
        if made && roster.is_none() {
            // This one does not know it yet: it is asked again.
            return;
        }
        let roster = roster.cloned().map(Box::new);
        for after in self.net.send(at, to, &mut self.queue.rng) {
            let (founding, roster) = (Box::new(founding.clone()), roster.clone());
            self.queue.after(after, Happening::Joined { to, founding, roster });
        }
    }

    /// A node hears what became of its asking.
    pub(super) fn joined(
        &mut self,
        to: usize,
        founding: Founding,
        roster: Option<Box<Roster>>,
    ) -> Result<(), Violation> {
        if !matches!(self.nodes[to].life, Life::Joins) {
            return Ok(());
        }
        let named = &self.nodes[to].named;
        let held = |roster: &Roster| {
            let number = roster.number(&named.name);
            number.is_some_and(|number| roster.nodes[&number].member == named.member)
        };
        match roster.filter(|roster| held(roster)) {
            Some(roster) => {
                self.joins.joined += 1;
                self.begin(to, founding, Some(&roster))
            }
            None => {
                self.look_for_cluster(to);
                Ok(())
            }
        }
    }

    /// Somebody asks at any node that a spare takes the place of this one, or that this is taken back.
    pub(super) fn replace(&mut self, at: usize) -> Result<(), Violation> {
        let through = self.queue.rng.below(self.nodes.len() as u64) as usize;
        let name = &self.nodes[at].named.name;
        let Life::Runs(member) = &self.nodes[through].life else { return Ok(()) };
        let roster = member.roster();
        let resizing = resizing(roster, self.calls + 1);
        // Three that vote bear one disk that is harmed.
        if let Some(resizing) = resizing.filter(|one| one.keep || self.harmed.len() <= 1) {
            self.joins.may_be_three |= !resizing.keep;
            self.calls += 1;
            let change = Change::Resize(resizing);
            return self.step(through, Event::Change { number: self.calls, change });
        }
        let old = roster.number(name).filter(|number| roster.nodes[number].keeps);
        let spares: Vec<NodeId> = roster.spares().map(|(node, _)| *node).collect();
        let Some(old) = old.filter(|_| !spares.is_empty()) else { return Ok(()) };
        let new = spares[self.queue.rng.below(spares.len() as u64) as usize];
        self.calls += 1;
        let (number, replacing) = (self.calls, Replacing { old, new });
        // Without chance: schedules of earlier versions stay what they were for longer.
        if let Some(under_way) = roster.replacing.filter(|_| number.is_multiple_of(3)) {
            self.joins.cancelled.push(under_way);
            let change = Change::Cancel(under_way);
            return self.step(through, Event::Change { number, change });
        }
        self.joins.wanted.insert(number, replacing);
        self.step(through, Event::Change { number, change: Change::Begin(replacing) })
    }

    /// Somebody asks at a node that this one is drained, or is no more. Without chance: schedules of earlier versions stay what
    /// they were for longer.
    pub(super) fn drain(&mut self, at: usize) -> Result<(), Violation> {
        let through = (at + self.faults as usize) % self.nodes.len();
        let Life::Runs(member) = &self.nodes[through].life else { return Ok(()) };
        let roster = member.roster();
        let Some(node) = roster.number(&self.nodes[at].named.name) else { return Ok(()) };
        let drain = !roster.drained.contains(&node);
        self.calls += 1;
        let change = Change::Drain(Draining { node, drain });
        self.step(through, Event::Change { number: self.calls, change })
    }

    /// Looks at what a member knows of the nodes after a step, before which it had applied so much.
    pub(super) fn look_at_roster(&mut self, at: usize, applied: u64) -> Result<(), Violation> {
        let Life::Runs(member) = &self.nodes[at].life else { return Ok(()) };
        let roster = member.roster();
        if let Some(Replacing { old, new }) = roster.replacing {
            self.joins.begun.entry((old, new)).or_insert(applied);
        }
        let keepers = roster.nodes.values().filter(|one| one.keeps).count();
        self.joins.sizes.insert(roster.changes, keepers);
        if !roster.drained.is_empty() || !self.joins.drained.is_empty() {
            self.joins.drained.insert(roster.changes, roster.drained.clone());
        }
        let set = &member.catalog().state().log.value.set;
        let keeps = |node: NodeId| set.iter().any(|disk| disk.node == node);
        if let Some(gone) = roster.removed.iter().find(|gone| keeps(gone.node)) {
            return Err(Violation::RemovedKeeps(gone.node));
        }
        if !member.is_leader() || !member.is_settled() {
            return Ok(());
        }
        let mut looked = vec![];
        for gone in &roster.removed {
            let new = gone.by.as_ref().and_then(|by| roster.number(by));
            let Some(new) = new.filter(|_| !self.joins.replaced.contains(&gone.node)) else {
                continue;
            };
            looked.push(gone.node);
            let disk = roster.nodes[&new].member;
            let behind = self.joins.begun.get(&(gone.node, new)).copied().unwrap_or_default();
            let running = self.running(disk).filter(|(at, _)| !self.harmed.contains(at));
            if running.is_some_and(|(_, member)| member.last() < behind) {
                return Err(Violation::NotCaughtUp(disk));
            }
        }
        self.joins.replaced.extend(looked);
        Ok(())
    }

    /// A drained node leads only where no other one can; somebody is to.
    fn look_at_drained(&self, leader: &Member) -> Result<(), Violation> {
        let roster = leader.roster();
        let is_drained = |one: &MemberId| roster.drained_members().contains(one);
        let votes = |one: &MemberId| leader.voters().contains(one) && !is_drained(one);
        // One that lacks something cannot lead.
        let (_, applied) = leader.position();
        let is_able = |id: MemberId| {
            let found = self.running(id);
            found.is_some_and(|(_, member)| member.takes_part() && member.last() >= applied)
        };
        let other = roster.members().into_values().filter(votes).any(is_able);
        match other && is_drained(&leader.id()) {
            true => Err(Violation::DrainedLeads(leader.id())),
            false => Ok(()),
        }
    }

    fn running(&self, disk: MemberId) -> Option<(usize, &Member)> {
        self.nodes.iter().enumerate().find_map(|(at, node)| match &node.life {
            Life::Runs(member) if member.id() == disk => Some((at, &**member)),
            _ => None,
        })
    }

    /// When all has been well for long: what was begun has ended, and who was removed takes no part.
    pub(super) fn look_at_nodes(&self) -> Result<(), Violation> {
        let leads = |life: &Life| matches!(life, Life::Runs(member) if member.is_leader() && member.takes_part());
        let leader = self.nodes.iter().find(|node| leads(&node.life));
        let Some(Life::Runs(leader)) = leader.map(|node| &node.life) else { return Ok(()) };
        let roster = leader.roster();
        if !leader.voters().contains(&leader.id()) {
            return Err(Violation::LeadsWithoutVote(leader.id()));
        }
        if let Some(resizing) = &roster.resizing {
            return Err(Violation::Unfinished(resizing.nodes[0]));
        }
        let over = |node: NodeId| roster.removed.iter().any(|gone| gone.node == node);
        let taken_back = |node: NodeId| self.joins.cancelled.iter().any(|one| one.old == node);
        let late = |one: &&Replacing| !over(one.old) && !taken_back(one.old);
        if let Some(late) = self.joins.accepted.iter().find(late) {
            return Err(Violation::Unfinished(late.old));
        }
        // What was committed a moment ago may be on its way.
        let (_, applied) = leader.position();
        let all = leader.members();
        for node in &self.nodes {
            let Life::Runs(member) = &node.life else { continue };
            let is_one = all.values().any(|id| *id == member.id()) && member.takes_part();
            if is_one && member.position().1 + ON_THE_WAY < applied {
                return Err(Violation::LeftBehind(member.id()));
            }
            let old = self.queue.now() >= node.began + TOLD_WITHIN;
            if old && member.takes_part() && roster.gone_member(member.id()).is_some() {
                return Err(Violation::RemovedTakesPart(member.id()));
            }
        }
        self.look_at_drained(leader)
    }
}

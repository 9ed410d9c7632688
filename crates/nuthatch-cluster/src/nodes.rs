//! Which nodes a cluster has, and how people change that: a spare takes the place of a node.

use crate::about::Versions;
use crate::change_nodes::{ChangeError, ChangeNodes};
use crate::group::Door;
use crate::links::{Links, Local};
use crate::myself::Myself;
use crate::quorum_log::{LogSight, QuorumLog};
use crate::roll::Roll;
use crate::zones::{ZoneWatch, ZonesSight};
use nuthatch_catalog_group::roster::Enrolled;
use nuthatch_catalog_group::{
    Change, Draining, Protocol, Refusal, Replacing, Resizing, Roster, Zone,
};
use nuthatch_log::Reporter;
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

mod error;
mod finalizing;
mod giving_up;
mod moving;
mod spare;

pub use error::NodesError;
pub use finalizing::{Finalize, Finalizing};
pub use moving::MovedLog;
use spare::Choice;

/// Between two looks whether the others know where this node is.
const LOOK: Duration = Duration::from_secs(1);

/// Between two times at which a node says where it is, at most.
const SAID_EVERY_MAX: Duration = Duration::from_secs(600);

/// A node may hear of a change so much later than the one that was asked for it.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// Between two looks whether it has.
const KNOWN_LOOK: Duration = Duration::from_millis(20);

/// A node that has seen nobody lead the catalog for so many looks asks the others whether it was removed.
const LEADERLESS_LOOKS: u32 = 2;

/// So does one that has heard no other member for so many looks, whoever leads as it knows: leaders are heard all the time.
const UNHEARD_LOOKS: u32 = 5;

/// A node of the cluster, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSight {
    /// Its name.
    pub name: String,
    /// Where its node port is; none: it has not said so, and is found by what the others were told.
    pub address: Option<SocketAddr>,
    /// It keeps the logs, and votes in the catalog; otherwise it is a spare.
    pub keeps: bool,
    /// The numbers of the logs that are on it, as far as this node knows.
    pub logs: Vec<u8>,
    /// Those of them that it owns, as far as that was heard lately.
    pub owns: Vec<u8>,
    /// Those of the logs on it, or to be on it, for whose majority it does not count yet, as far as this node knows: its disk or
    /// memory is new.
    pub uncounted: Vec<u8>,
    /// It was heard within a lease (200 ms), or is this node.
    pub connected: bool,
    /// For how long it was not heard; none: never since this node began. Zero for this node.
    pub silent: Option<Duration>,
    /// Whether it is drained; none: it is not to be.
    pub drain: Option<Drain>,
    /// What it speaks; none: this node has not heard that since it began.
    pub speaks: Option<Versions>,
    /// The version of its program; none: it has not said so, or only an older program is.
    pub program: Option<String>,
    /// Where it is; none: it has not said so since this node began.
    pub zone: Option<Zone>,
    /// Why this node does not listen to it, if it has come and was turned away.
    pub turned_away: Option<String>,
}

/// How far a node is that is to own no log and not to lead the catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// It owns logs or leads the catalog still, or it is not known that it does not.
    Draining,
    /// It does neither.
    Drained,
}

/// The nodes of the cluster, as one of them knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodesSight {
    /// Those that there are, in the order of their names.
    pub nodes: Vec<NodeSight>,
    /// Those that were removed, and the nodes that took their places.
    pub removed: Vec<(String, Option<String>)>,
    /// The replacement that is under way: who goes, and who takes its place.
    pub replacing: Option<(String, String)>,
    /// The nodes that are coming to those that keep the logs, or going from them, and whether they come.
    pub resizing: Option<(Vec<String>, bool)>,
    /// Who leads the catalog, as far as this node knows.
    pub leader: Option<String>,
    /// The names of the logs ([`QuorumLog::name`]), by their numbers.
    pub log_names: Vec<String>,
    /// What the nodes speak, where that can be raised.
    pub active: Option<Protocol>,
    /// The nodes by their zones.
    pub zones: ZonesSight,
    /// Which nodes each log is on is known. A node that has just begun does not know it yet.
    pub knows_logs: bool,
}

/// How the nodes that keep the logs change: who goes, and who takes its place; which nodes are coming or going, and whether they
/// come. One of both at most.
pub type NodesChange = (Option<(String, String)>, Option<(Vec<String>, bool)>);

impl NodesSight {
    /// What is under way.
    #[must_use]
    pub fn change(&self) -> NodesChange {
        (self.replacing.clone(), self.resizing.clone())
    }
}

/// What has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replacement {
    /// A node takes the place of another one, or has it already.
    Begun {
        /// The one that goes.
        old: String,
        /// The one that takes its place.
        new: String,
    },
    /// A spare was removed.
    SpareRemoved {
        /// The spare.
        name: String,
    },
}

impl NodesError {
    /// True if the node that was named does not belong to the cluster.
    #[must_use]
    pub fn is_unknown_node(&self) -> bool {
        matches!(self, Self::NoSuchNode { .. })
    }

    /// True if it may be possible when something else is over.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

/// A node among the others, for those that ask it about them.
pub(crate) struct Nodes {
    roll: Arc<Roll>,
    changes: Arc<dyn ChangeNodes>,
    node: Arc<Myself>,
    /// When this node began.
    began: Instant,
}

impl Nodes {
    pub(crate) fn new(node: Arc<Myself>, changes: Arc<dyn ChangeNodes>) -> Self {
        Self { roll: Arc::clone(&node.roll), changes, node, began: Instant::now() }
    }

    pub(crate) fn roll(&self) -> &Roll {
        &self.roll
    }

    /// What is under way, without a look at the logs.
    pub(crate) fn change(&self) -> NodesChange {
        change_of(&self.roll.roster())
    }

    pub(crate) fn sight(&self, logs: &[Arc<QuorumLog>]) -> NodesSight {
        let (roster, zones) = (self.roll.roster(), self.roll.zones());
        let leader = self.roll.leader();
        let sights: Vec<LogSight> = logs.iter().map(|log| log.sight()).collect();
        let is_led = self.changes.is_led();
        let kept = Kept { logs: &sights, leader: (leader, is_led), drained: &roster.drained };
        let heard = |id: &NodeId| match (*id == self.roll.me(), logs.first()) {
            (false, Some(log)) => log.hears(*id),
            (is_here, _) => (is_here, is_here.then_some(Duration::ZERO)),
        };
        let node = |(id, enrolled): (&NodeId, &Enrolled)| {
            let met = self.node.met(*id);
            let speaks = met.as_ref().map(|met| met.speaks);
            let program = met.and_then(|met| met.program);
            let seen = kept.by(*id, enrolled, heard(id));
            // Somebody else may have come under its name.
            let turned_away = self.node.turned_away(*id).filter(|_| !seen.connected);
            NodeSight { speaks, program, zone: zones.of(*id).cloned(), turned_away, ..seen }
        };
        let (replacing, resizing) = change_of(&roster);
        let mut nodes: Vec<NodeSight> = roster.nodes.iter().map(node).collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        NodesSight {
            nodes,
            removed: roster
                .removed
                .iter()
                .map(|gone| (gone.name.clone(), gone.by.clone()))
                .collect(),
            replacing,
            resizing,
            leader: leader.map(|node| roster.name(node)),
            log_names: sights.iter().map(|log| log.name.clone()).collect(),
            active: Some(roster.active),
            zones: ZonesSight::of(&roster, &zones),
            knows_logs: sights.iter().all(|log| !log.keepers.is_empty()),
        }
    }

    pub(crate) fn replace(
        &self,
        (old, new): (&str, Option<&str>),
        logs: &[Arc<QuorumLog>],
    ) -> Result<Replacement, NodesError> {
        let roster = self.asked();
        let (change, replacement) = self.wanted(&roster, (old, new), logs)?;
        if let Some(change) = change {
            self.changes.change(change)?;
        }
        Ok(replacement)
    }

    /// Takes the replacement of a node back; the name of the node that was to take its place.
    pub(crate) fn keep(&self, old: &str) -> Result<String, NodesError> {
        let deadline = Instant::now() + KNOWN_WITHIN;
        loop {
            let roster = self.asked();
            let name = old.to_owned();
            if roster.gone(old).is_some() {
                return Err(NodesError::Removed { name });
            }
            let goes = number(&roster, old)?;
            if let Some(replacing) = roster.replacing.filter(|one| one.old == goes) {
                self.changes.change(Change::Cancel(replacing))?;
                return Ok(roster.name(replacing.new));
            }
            if Instant::now() >= deadline {
                return Err(NodesError::NotReplaced { name });
            }
            thread::sleep(KNOWN_LOOK);
        }
    }

    /// What [`Nodes::replace`] would do, as far as this node knows.
    pub(crate) fn would_replace(
        &self,
        (old, new): (&str, Option<&str>),
        logs: &[Arc<QuorumLog>],
    ) -> Result<Replacement, NodesError> {
        let roster = self.asked();
        let (change, replacement) = self.wanted(&roster, (old, new), logs)?;
        if let Some(change) = change {
            self.changes.check(&roster, &change)?;
        }
        Ok(replacement)
    }

    /// Has nodes keep the logs beside those that do, or leave that to the others; with `only_look` it says only whether
    /// that can be.
    pub(crate) fn resize(
        &self,
        names: &[String],
        keep: bool,
        only_look: bool,
    ) -> Result<(), NodesError> {
        let roster = self.asked();
        if names.is_empty() || names.len() > roster.nodes.len() {
            return Err(ChangeError::Refused(Refusal::NotOnce.to_string()).into());
        }
        let nodes = names.iter().map(|name| number(&roster, name));
        let mut nodes = nodes.collect::<Result<Vec<NodeId>, NodesError>>()?;
        // In one order: what takes it back may name them in another one.
        nodes.sort_unstable();
        let change = Change::Resize(Resizing { nodes, keep });
        if only_look {
            return Ok(self.changes.check(&roster, &change)?);
        }
        Ok(self.changes.change(change)?)
    }

    /// Has a node own no log and not lead the catalog while others can, or takes that back (`drain`: false); with `only_look`
    /// it says only whether that can be. True if it was so already, as far as this node knows.
    pub(crate) fn drain(
        &self,
        name: &str,
        drain: bool,
        only_look: bool,
    ) -> Result<bool, NodesError> {
        let roster = self.asked();
        if roster.gone(name).is_some() {
            return Err(NodesError::Gone { name: name.to_owned() });
        }
        let change = Change::Drain(Draining { node: number(&roster, name)?, drain });
        let is_so = roster.has(&change);
        match only_look {
            true => self.changes.check(&roster, &change)?,
            // Also where it seems to be so: others may know of a later change.
            false => self.changes.change(change)?,
        }
        Ok(is_so)
    }

    /// Has this node know who the nodes are now.
    pub(crate) fn refresh(&self) {
        self.changes.refresh();
    }

    /// The nodes as they are now, as far as this one can know.
    fn asked(&self) -> Roster {
        self.refresh();
        self.roll.roster()
    }
}

fn change_of(roster: &Roster) -> NodesChange {
    let name = |node| roster.name(node);
    let replacing = roster.replacing.map(|Replacing { old, new }| (name(old), name(new)));
    let resizing = roster
        .resizing
        .as_ref()
        .map(|Resizing { nodes, keep }| (nodes.iter().map(|node| name(*node)).collect(), *keep));
    (replacing, resizing)
}

/// What is known of the logs, and who leads the catalog.
struct Kept<'a> {
    logs: &'a [LogSight],
    /// Who leads the catalog, and whether anybody ever does.
    leader: (Option<NodeId>, bool),
    drained: &'a BTreeSet<NodeId>,
}

impl Kept<'_> {
    /// A node, and what is on it.
    fn by(
        &self,
        id: NodeId,
        enrolled: &Enrolled,
        (connected, silent): (bool, Option<Duration>),
    ) -> NodeSight {
        let owner = |log: &LogSight| log.owner.as_ref().map(|owner| owner.id);
        let keeps = |log: &&LogSight| log.keepers.iter().any(|keeper| keeper.node.id == id);
        let logs = self.logs.iter().filter(keeps).map(|log| log.number.0);
        let owns = self.logs.iter().filter(|log| owner(log) == Some(id)).map(|log| log.number.0);
        // Also where its disk is not in the set at all, as after a log began anew on others.
        let is_new = |log: &&LogSight| {
            let mut here = log.keepers.iter().filter(|keeper| keeper.node.id == id);
            here.next().map_or(log.wished.contains(&id), |keeper| !keeper.counts)
        };
        let uncounted = self.logs.iter().filter(is_new).map(|log| log.number.0);
        let is_other = |one: Option<NodeId>| one.is_some_and(|one| one != id);
        let (leader, is_led) = self.leader;
        let over =
            (is_other(leader) || !is_led) && self.logs.iter().all(|log| is_other(owner(log)));
        let drain = if over { Drain::Drained } else { Drain::Draining };
        NodeSight {
            name: enrolled.name.clone(),
            address: enrolled.address,
            keeps: enrolled.keeps,
            logs: logs.collect(),
            owns: owns.collect(),
            uncounted: uncounted.collect(),
            connected,
            silent,
            drain: self.drained.contains(&id).then_some(drain),
            speaks: None,
            program: None,
            zone: None,
            turned_away: None,
        }
    }
}

/// What is to be changed where a node is to be replaced, and what that comes to; no change where it has been made.
fn wanted(
    roster: &Roster,
    (old, new): (&str, Option<&str>),
    choice: &Choice<'_>,
) -> Result<(Option<Change>, Replacement), NodesError> {
    // Whoever asks again did not hear the answer: the node that was asked may be the one that was removed.
    match roster.gone(old).map(|gone| gone.by.clone()) {
        Some(Some(by)) if new.is_none_or(|new| new == by) => {
            return Ok((None, Replacement::Begun { old: old.to_owned(), new: by }));
        }
        Some(None) if new.is_none() => {
            return Ok((None, Replacement::SpareRemoved { name: old.to_owned() }));
        }
        _ => {}
    }
    let goes = number(roster, old)?;
    if let Some(Replacing { old, new }) = roster.replacing.filter(|one| one.old != goes) {
        return Err(NodesError::Busy { old: roster.name(old), new: roster.name(new) });
    }
    let comes = match new {
        Some(new) => number(roster, new)?,
        None if !roster.nodes[&goes].keeps => {
            let removed = Replacement::SpareRemoved { name: old.to_owned() };
            return Ok((Some(Change::Leave(goes)), removed));
        }
        None => choice.spare(roster, goes, old)?,
    };
    let begun = Replacement::Begun { old: old.to_owned(), new: roster.name(comes) };
    Ok((Some(Change::Begin(Replacing { old: goes, new: comes })), begun))
}

fn number(roster: &Roster, name: &str) -> Result<NodeId, NodesError> {
    roster.number(name).ok_or_else(|| {
        let nodes: Vec<&str> = roster.nodes.values().map(|one| one.name.as_str()).collect();
        NodesError::NoSuchNode { name: name.to_owned(), nodes: nodes.join(", ") }
    })
}

/// Has the cores know whether this node is drained, and how long it answers reads as an owner once the others can be told.
fn tell_cores(roll: &Roll, logs: &[Arc<QuorumLog>], lease: Duration) {
    let roster = roll.roster();
    let drained = roster.drained.contains(&roll.me());
    for log in logs {
        log.set_drained(drained);
        if roster.active >= Protocol::LEASES_SAID {
            log.shorten_lease(lease);
        }
    }
}

/// Has what connects to other nodes, and tells them that this one is alive, follow the roll; says where this node is, and
/// tells people what zones mean.
pub(crate) fn follow(
    roll: Arc<Roll>,
    (changes, door): (Arc<dyn ChangeNodes>, Option<Arc<Door>>),
    (logs, links): (Vec<Arc<QuorumLog>>, Vec<Arc<Links>>),
    (local, report, lease): (Arc<dyn Local>, Reporter, Duration),
) -> io::Result<()> {
    let (life, waking) = (local.life().clone(), Arc::clone(&roll));
    life.at_end(move || waking.end_waits());
    // Before anything is heard of the others, too: they may only be later.
    tell_cores(&roll, &logs, lease);
    life.clone().spawn("node-roll", move || {
        let (mut version, mut silence) = (0, Silence::default());
        let (mut zones, mut saying) = (ZoneWatch::new(report, Instant::now()), Saying::default());
        loop {
            version = roll.wait(version, LOOK);
            if life.is_ending() {
                return;
            }
            zones.look(&roll, Instant::now());
            let addresses = roll.addresses();
            for links in &links {
                // Without a thread to give for a connection it is tried again.
                let _ = links.aim(&addresses);
            }
            logs.iter().for_each(|log| log.meet(roll.peers()));
            tell_cores(&roll, &logs, lease);
            if let Some(door) = &door {
                let _ = door.aim(&addresses);
                silence.look((&roll, door), &addresses, &local);
            }
            if let Some(address) = saying.due(roll.to_say(), Instant::now()) {
                // What does not arrive is said again.
                let said = changes.change(Change::Address { node: roll.me(), address });
                saying.took(said.is_ok());
            }
        }
    })
}

/// When this node says next where it is. Two servers under one name would say it in turn for ever, each time by a change of the
/// catalog: so what was taken is said again later each time. What was not taken is said again at the next look.
#[derive(Default)]
struct Saying {
    said: Option<Instant>,
    pause: Duration,
}

impl Saying {
    /// What is to be said now of what is to be said.
    fn due(&mut self, to_say: Option<SocketAddr>, now: Instant) -> Option<SocketAddr> {
        let address = to_say?;
        if self.said.is_some_and(|said| now.duration_since(said) < self.pause) {
            return None;
        }
        self.said = Some(now);
        Some(address)
    }

    /// Notes whether the catalog has taken what was said last.
    fn took(&mut self, is_taken: bool) {
        if is_taken {
            self.pause = (2 * self.pause).clamp(LOOK, SAID_EVERY_MAX);
        }
    }
}

/// For how many looks nobody led the catalog, and no other member was heard. A spare that was removed may know a leader for
/// ever: it does not vote, so that it never looks for another one, and nobody tells it of its own end.
#[derive(Default)]
struct Silence {
    leaderless: u32,
    unheard: u32,
}

impl Silence {
    /// Notes what one look saw: whether somebody leads, and whether another member was heard since the last one.
    fn note(&mut self, leads: bool, heard: bool) {
        self.leaderless = if leads { 0 } else { self.leaderless.saturating_add(1) };
        self.unheard = if heard { 0 } else { self.unheard.saturating_add(1) };
    }

    /// True if this node is to ask whether it was removed.
    const fn asks(&self) -> bool {
        self.leaderless >= LEADERLESS_LOOKS || self.unheard >= UNHEARD_LOOKS
    }

    /// True if this node is to say where it is.
    const fn says_where(&self) -> bool {
        self.leaderless >= LEADERLESS_LOOKS && self.unheard >= LEADERLESS_LOOKS
    }

    /// Asks, where nobody leads or nobody is heard, whether this node was removed; says where it is, where both is so.
    fn look(
        &mut self,
        (roll, door): (&Roll, &Door),
        addresses: &[SocketAddr],
        local: &Arc<dyn Local>,
    ) {
        self.note(roll.leader().is_some(), door.has_heard());
        if self.asks()
            && let Err(error) = door.ask_if_removed(addresses, local)
        {
            local.report(&format!("it is not noted that this node was removed: {error}"));
        }
        if self.says_where() {
            door.say_where(roll.listen(), addresses, &**local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that neither votes nor is told that it was removed.
    #[test]
    fn a_node_asks_for_its_end_also_where_it_knows_a_leader() {
        let mut silence = Silence::default();
        for look in 0..2 * UNHEARD_LOOKS {
            assert_eq!(silence.asks(), look >= UNHEARD_LOOKS, "{look}");
            assert!(!silence.says_where(), "{look}");
            silence.note(true, false);
        }
        silence.note(true, true);
        assert!(!silence.asks());
    }

    #[test]
    fn where_a_node_is_is_said_more_and_more_seldom() {
        let (mut saying, begin) = (Saying::default(), Instant::now());
        let here = Some(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!(saying.due(None, begin), None);
        let mut said_in = |seconds: std::ops::Range<u64>, is_taken| -> Vec<u64> {
            let mut is_said = |at: &u64| {
                let due = saying.due(here, begin + Duration::from_secs(*at)).is_some();
                if due {
                    saying.took(is_taken);
                }
                due
            };
            seconds.filter(|at| is_said(at)).collect()
        };
        assert_eq!(said_in(0..20, false), (0..20).collect::<Vec<_>>(), "the catalog is away");
        let said = said_in(20..2000, true);
        assert_eq!(said[..5], [20, 21, 23, 27, 35]);
        assert!(said.len() < 15 && said.windows(2).all(|two| two[1] - two[0] <= 600), "{said:?}");
    }

    #[test]
    fn a_node_that_hears_others_and_no_leader_only_asks() {
        let mut silence = Silence::default();
        (0..LEADERLESS_LOOKS).for_each(|_| silence.note(false, true));
        assert!(silence.asks() && !silence.says_where());
    }
}

//! Spreads the logs over the nodes: each log is given back to the node that is to own it, once that is there again and
//! has everything.
//!
//! Log `i` is to be owned by the node in place `i` of all nodes, counted round; where that is drained, or not in a zone in which
//! logs are to be owned, by another one (`owners`). Others take it over while that one is away; whoever owns it gives it back.
//! Each node decides that of its own logs by what it sees itself, so nothing is agreed upon: a log has one owner. A log that
//! changed its owner lately stays where it is, and a node gives few away at a time, so that what is unwell moves nothing to
//! and fro. A log that is to be kept by other nodes only goes to one of them at once,
//! before its core gives it away without closing it, and one whose set of keepers can change begins anew where it is, likewise.
//! A drained node gives what it owns to others at once, too, one log
//! after the other, and is given nothing. Only when this node has just started, and the logs lie unevenly, is
//! nothing waited for: nodes start one after the other, and the first ones have taken over what the last one is to own.
//! Where clients ask something of a log, that counts for more than its place (`loads`): it goes to where it has less beside it, or
//! its clients are.

pub mod loads;

use crate::life::Life;
use crate::quorum_log::{LogSight, QuorumLog};
use crate::roll::Roll;
use loads::{Figures, Goal, KnownLoads, Loads};
use nuthatch_catalog_group::{LogNumber, Zone};
use nuthatch_quorum::timing::UNWISHED_WAIT;
use nuthatch_quorum::types::{Epoch, NodeId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Between two looks.
const POLL: Duration = Duration::from_millis(500);

/// A log that came to its owner less than this ago stays there.
const REST: Duration = Duration::from_secs(300);

/// Between two logs that a node gives away.
const MOVE_EVERY: Duration = Duration::from_secs(60);

/// How long a node must have had everything of a log that it is given.
const WHOLE: Duration = Duration::from_secs(10);

/// A node that runs for less than this has just started.
const STARTED: Duration = Duration::from_secs(30);

/// The same as [`MOVE_EVERY`] and [`WHOLE`] for a node that has just started, where the logs lie unevenly.
const WHOLE_AT_START: Duration = Duration::from_secs(1);

/// Between two attempts to give away a log that this node is to keep no more.
const AGAIN: Duration = Duration::from_secs(10);

/// For so long a log goes at once to a node that people have just named, and as long as that is about to follow it; afterwards, and
/// after each takeover, as to any place.
const ASKED_FOR: Duration = Duration::from_secs(60);

/// Between two attempts to have a log begin anew with other keepers: less than its core waits, which closes nothing.
const CHANGE_AGAIN: Duration = Duration::from_secs(3);

const _: () = assert!(CHANGE_AGAIN.as_micros() + POLL.as_micros() < UNWISHED_WAIT as u128);

/// A node has everything that lacks no more entries than that: under load some are always on their way.
const LAG_MAX: u64 = 8;

/// What balance wants of a log that this node owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It goes to another node: [`QuorumLog::hand_over_to`].
    To(NodeId),
    /// It begins anew at this node, with the keepers that it is to have: [`QuorumLog::change_set`].
    ChangeSet,
}

/// Carries out a move of a log.
pub type OnMove = Box<dyn Fn(&Arc<QuorumLog>, Move) + Send + Sync>;

/// The times of balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BalanceTimes {
    /// Between two looks.
    pub poll: Duration,
    /// How long a log stays at least.
    pub rest: Duration,
    /// Between two moves of a node.
    pub move_every: Duration,
    /// How long a node must have had everything.
    pub whole: Duration,
    /// For how long a node has just started.
    pub started: Duration,
    /// Between two moves, and how long a node must have had everything, at a start.
    pub whole_at_start: Duration,
}

impl Default for BalanceTimes {
    fn default() -> Self {
        Self {
            poll: POLL,
            rest: REST,
            move_every: MOVE_EVERY,
            whole: WHOLE,
            started: STARTED,
            whole_at_start: WHOLE_AT_START,
        }
    }
}

/// Who carries moves out, once that was said, and what is known of what clients ask of the logs.
#[derive(Default)]
pub(crate) struct Moving {
    mover: OnceLock<OnMove>,
    loads: Mutex<KnownLoads>,
}

impl Moving {
    pub(crate) fn set(&self, mover: OnMove) {
        let _ = self.mover.set(mover);
    }

    pub(crate) fn set_loads(&self, loads: Loads) {
        self.loads.lock().set(loads, Instant::now());
    }

    fn carry_out(&self, log: &Arc<QuorumLog>, moves: Move) {
        // What was not done is looked at again.
        match (self.mover.get(), moves) {
            (Some(mover), moves) => mover(log, moves),
            (None, Move::To(node)) => drop(log.hand_over_to(node)),
            (None, Move::ChangeSet) => drop(log.change_set()),
        }
    }
}

/// Begins to look after the balance of a node's logs.
pub(crate) fn start(
    life: &Life,
    roll: Arc<Roll>,
    logs: Vec<Arc<QuorumLog>>,
    moving: Arc<Moving>,
    times: BalanceTimes,
) -> io::Result<()> {
    let (lives, me) = (life.clone(), roll.me());
    life.spawn("node-balance", move || {
        let mut balance = Balance::new(me, times, Instant::now());
        while !lives.pause(times.poll) {
            let now = Instant::now();
            let sights: Vec<LogSight> = logs.iter().map(|log| log.sight()).collect();
            let mut loads = moving.loads.lock().at(now);
            if let Some(loads) = &mut loads {
                // What has left since is no load of this node.
                loads.own.retain(|log, _| owner_of(&sights[log.index()]) == Some(me));
            }
            let zones = loads.as_ref().map(|_| named_zones(&roll)).unwrap_or_default();
            let figures = loads.as_ref().map(|loads| Figures { loads, zones: &zones, me });
            let seen = sights.iter().zip(&logs);
            let seen: Vec<Seen> = seen
                .map(|(sight, log)| Seen::of(sight, log.is_in_memory(), figures.as_ref()))
                .collect();
            for (number, moves) in balance.look_at_all(&seen, now) {
                let at = number.index();
                logs[at].note(&told(&sights[at], me, moves, seen[at].goal));
                moving.carry_out(&logs[at], moves);
            }
        }
    })
}

fn owner_of(sight: &LogSight) -> Option<NodeId> {
    sight.owner.as_ref().map(|owner| owner.id)
}

/// Where nodes are, by their names.
fn named_zones(roll: &Roll) -> BTreeMap<String, Zone> {
    let (roster, zones) = (roll.roster(), roll.zones());
    let zone = |id: &NodeId| Some((roster.name(*id), zones.of(*id)?.clone()));
    roster.nodes.keys().filter_map(zone).collect()
}

/// What people are told of a move.
fn told(sight: &LogSight, me: NodeId, moves: Move, goal: Goal) -> String {
    let Move::To(to) = moves else {
        return "begins anew here with the nodes that are to keep it, which have everything"
            .to_owned();
    };
    let mut keepers = sight.keepers.iter().filter(|keeper| keeper.node.id == to);
    let name = keepers.next().map_or("another", |keeper| &keeper.node.name);
    match (sight.wished.contains(&me), sight.drained.contains(&me), goal) {
        (false, ..) => format!("goes to node {name}: this one is to keep it no more"),
        (true, true, _) => format!("goes to node {name}: this one is drained"),
        (true, false, _) if sight.asked_owner.as_ref().is_some_and(|asked| asked.id == to) => {
            format!("goes to node {name}, which is to own it by `move-log`")
        }
        (true, false, Goal::LessBusy(_)) => format!(
            "goes to node {name}, whose other logs are asked for less than those of this one"
        ),
        (true, false, Goal::ToClients(_)) => {
            format!("goes to node {name}, in whose zone the clients are that use it")
        }
        _ => format!("goes to node {name}, which is to own it and has everything"),
    }
}

/// What is seen of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    epoch: Epoch,
    owner: Option<NodeId>,
    /// The node in its place.
    preferred: NodeId,
    /// Where it goes by what is asked of it.
    goal: Goal,
    /// The node to which it goes is there and has everything, as the owner sees it.
    ready: bool,
    /// All that is in the way is that this node is about to follow it first.
    cold: bool,
    in_memory: bool,
    /// Its owner is in no zone in which it is to be owned.
    is_outside: bool,
    /// The node that people want to own it.
    asked: Option<NodeId>,
    /// What is to be done with it at once.
    leaves: Option<Leaves>,
}

/// What is to be done with a log at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    /// It is to be kept by others only: one of them that has everything gets it.
    For(NodeId),
    /// It is to be owned by others only, and its owner goes on keeping it: one of them gets it. Nothing hurries, so no other
    /// log leaves meanwhile.
    Kept(NodeId),
    /// It stays, with other keepers.
    Changes,
}

impl Leaves {
    fn hurries(self) -> bool {
        !matches!(self, Leaves::Kept(_))
    }

    fn carried_out(self) -> Move {
        match self {
            Leaves::For(node) | Leaves::Kept(node) => Move::To(node),
            Leaves::Changes => Move::ChangeSet,
        }
    }

    /// How long it rests before the next attempt.
    fn again(self) -> Duration {
        match self {
            Leaves::For(_) | Leaves::Kept(_) => AGAIN,
            Leaves::Changes => CHANGE_AGAIN,
        }
    }
}

impl Seen {
    fn of(sight: &LogSight, in_memory: bool, figures: Option<&Figures<'_>>) -> Self {
        let is_ready = |node: &NodeId| sight.is_ready(*node, LAG_MAX);
        let owner = owner_of(sight);
        let goal = figures.filter(|figures| owner == Some(figures.me)).map(|figures| {
            let others = sight.may_own.iter().copied().filter(|node| *node != figures.me);
            figures.goal(sight, &others.filter(is_ready).collect::<BTreeSet<_>>())
        });
        let seen = Self {
            epoch: sight.epoch,
            owner,
            preferred: sight.preferred.id,
            goal: goal.unwrap_or(Goal::Place),
            ready: false,
            cold: false,
            in_memory,
            is_outside: sight.owner_is_outside,
            asked: sight.asked_owner.as_ref().map(|asked| asked.id),
            leaves: leaves(sight),
        };
        let ready = seen.to().is_some_and(|to| is_ready(&to));
        let cold = !ready && seen.to().is_some_and(|to| sight.has_everything(to, LAG_MAX));
        Self { ready, cold, ..seen }
    }

    /// The node to which it goes; none: it stays.
    fn to(&self) -> Option<NodeId> {
        match self.goal {
            Goal::Place => Some(self.preferred),
            Goal::LessBusy(node) | Goal::ToClients(node) => Some(node),
            Goal::Stays => None,
        }
    }
}

/// What is to be done with a log at once, where anything is.
fn leaves(sight: &LogSight) -> Option<Leaves> {
    // Whoever follows has the other keepers, too.
    leaves_to(sight).or_else(|| sight.set_can_change.then_some(Leaves::Changes))
}

/// Who of those that are to keep a log, and are not drained, gets it from an owner that is not to keep or to own it. Where it is
/// not to keep it a core waits for seconds only: then rather one that is about to follow the log than one that closes nothing.
fn leaves_to(sight: &LogSight) -> Option<Leaves> {
    let owner = sight.owner.as_ref()?.id;
    let is_kept = sight.wished.contains(&owner);
    if sight.wished.is_empty() || (is_kept && !sight.drained.contains(&owner)) {
        return None;
    }
    let first = std::iter::once(sight.preferred.id);
    let may = first.chain(sight.wished.iter().copied()).filter(|node| *node != owner);
    let mut may = may.filter(|node| !sight.drained.contains(node));
    let ready = may.clone().find(|node| sight.is_ready(*node, LAG_MAX));
    let cold = || may.find(|node| !is_kept && sight.has_everything(*node, LAG_MAX));
    let to = ready.or_else(cold)?;
    Some(if is_kept { Leaves::Kept(to) } else { Leaves::For(to) })
}

/// A log that this node owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    epoch: Epoch,
    since: Instant,
    /// The node to which it goes, where that has everything, and since when.
    ready_since: Option<(NodeId, Instant)>,
    /// Until then what was to be done with it at once is not tried again.
    tried_until: Option<Instant>,
    /// The node that people want to own it, as was seen last.
    asked: Option<NodeId>,
    /// Until then it goes there at once: that was said while this node has owned it.
    asked_until: Option<Instant>,
}

impl Held {
    fn new(seen: &Seen, now: Instant) -> Self {
        let (ready_since, tried_until, asked_until) = (None, None, None);
        let (epoch, asked) = (seen.epoch, seen.asked);
        Self { epoch, since: now, ready_since, tried_until, asked, asked_until }
    }

    /// It goes at once to the node that people have just named, if that can own it: then it is in that place.
    fn is_asked_for(&self, seen: &Seen, now: Instant) -> Option<Leaves> {
        let is_new = self.asked_until.is_some_and(|until| now < until);
        let to = seen.to().filter(|to| is_new && seen.ready && seen.asked == Some(*to))?;
        (seen.owner != Some(to)).then_some(Leaves::Kept(to))
    }
}

/// Decides what a node gives away.
struct Balance {
    me: NodeId,
    times: BalanceTimes,
    began: Instant,
    moved: Option<Instant>,
    held: BTreeMap<LogNumber, Held>,
}

impl Balance {
    fn new(me: NodeId, times: BalanceTimes, now: Instant) -> Self {
        Self { me, times, began: now, moved: None, held: BTreeMap::new() }
    }

    /// As [`Balance::look`], for all logs with which something is to be done now: of what hurries each waits no longer than a core
    /// does, however many there are.
    fn look_at_all(&mut self, seen: &[Seen], now: Instant) -> Vec<(LogNumber, Move)> {
        std::iter::from_fn(|| self.look(seen, now)).take(seen.len()).collect()
    }

    /// Takes in what is seen of all logs, in their order; gives one with which something is to be done now.
    fn look(&mut self, seen: &[Seen], now: Instant) -> Option<(LogNumber, Move)> {
        for (log, seen) in (0..).map(LogNumber).zip(seen) {
            self.note(log, seen, now);
        }
        if let Some(leaving) = self.leaving(seen, now) {
            return Some(leaving);
        }
        if seen.len() == 1 {
            // One log has no balance.
            return None;
        }
        let hurries = is_uneven(seen) || seen.iter().any(|log| log.is_outside);
        let starts = now.duration_since(self.began) < self.times.started && hurries;
        let (rest, whole, every) = match starts {
            true => (Duration::ZERO, self.times.whole_at_start, self.times.whole_at_start),
            false => (self.times.rest, self.times.whole, self.times.move_every),
        };
        if self.moved.is_some_and(|moved| now.duration_since(moved) < every) {
            return None;
        }
        let due = |(log, held): &(&LogNumber, &Held)| {
            // At a start nothing is known of what is asked.
            let is_known = !starts || seen[log.index()].goal == Goal::Place;
            let ready =
                held.ready_since.is_some_and(|(_, since)| now.duration_since(since) >= whole);
            is_known && ready && now.duration_since(held.since) >= rest
        };
        let (log, held) = self.held.iter().find(due)?;
        let (to, _) = held.ready_since.expect("it is due");
        let log = *log;
        self.moved = Some(now);
        Some((log, Move::To(to)))
    }

    fn leaving(&mut self, seen: &[Seen], now: Instant) -> Option<(LogNumber, Move)> {
        let due = |held: &Held| held.tried_until.is_none_or(|until| now >= until);
        let is_leaving = self.held.values().any(|held| !due(held));
        let (log, held, leaves) = self.held.iter_mut().find_map(|(log, held)| {
            let seen = &seen[log.index()];
            let leaves =
                seen.leaves.or_else(|| held.is_asked_for(seen, now)).filter(|_| due(held))?;
            (!is_leaving || leaves.hurries()).then_some((*log, held, leaves))
        })?;
        held.tried_until = Some(now + leaves.again());
        Some((log, leaves.carried_out()))
    }

    fn note(&mut self, log: LogNumber, seen: &Seen, now: Instant) {
        if seen.owner != Some(self.me) {
            self.held.remove(&log);
            return;
        }
        let new = Held::new(seen, now);
        let held = self.held.entry(log).or_insert(new);
        if held.epoch != seen.epoch {
            *held = new;
        }
        if held.asked != seen.asked {
            (held.asked, held.asked_until) = (seen.asked, Some(now + ASKED_FOR));
        }
        if let Some(until) = &mut held.asked_until
            && seen.cold
            && now < *until
        {
            *until = now + ASKED_FOR;
        }
        let to = seen.to().filter(|to| seen.ready && *to != self.me);
        let same = held.ready_since.filter(|(node, _)| Some(*node) == to);
        held.ready_since = to.map(|to| same.unwrap_or((to, now)));
    }
}

/// True if one node owns two logs more than another one: whichever of these is to own something would do. The log in
/// memory is one beside as many as there are nodes, which it must not keep from being one at each.
fn is_uneven(seen: &[Seen]) -> bool {
    let mut owned: BTreeMap<NodeId, usize> = BTreeMap::new();
    for log in seen.iter().filter(|log| !log.in_memory) {
        owned.entry(log.preferred).or_default();
        if let Some(owner) = log.owner {
            *owned.entry(owner).or_default() += 1;
        }
    }
    let (most, fewest) = (owned.values().max(), owned.values().min());
    most.zip(fewest).is_some_and(|(most, fewest)| *most >= fewest + 2)
}

#[cfg(test)]
mod tests;

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

use crate::life::Life;
use crate::quorum_log::{LogSight, QuorumLog};
use nuthatch_catalog_group::LogNumber;
use nuthatch_quorum::timing::UNWISHED_WAIT;
use nuthatch_quorum::types::{Epoch, NodeId};
use std::collections::BTreeMap;
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

/// Who carries moves out, once that was said.
#[derive(Default)]
pub(crate) struct Moving(OnceLock<OnMove>);

impl Moving {
    pub(crate) fn set(&self, mover: OnMove) {
        let _ = self.0.set(mover);
    }

    fn carry_out(&self, log: &Arc<QuorumLog>, moves: Move) {
        // What was not done is looked at again.
        match (self.0.get(), moves) {
            (Some(mover), moves) => mover(log, moves),
            (None, Move::To(node)) => drop(log.hand_over_to(node)),
            (None, Move::ChangeSet) => drop(log.change_set()),
        }
    }
}

/// Begins to look after the balance of a node's logs.
pub(crate) fn start(
    life: &Life,
    me: NodeId,
    logs: Vec<Arc<QuorumLog>>,
    moving: Arc<Moving>,
    times: BalanceTimes,
) -> io::Result<()> {
    let lives = life.clone();
    life.spawn("node-balance", move || {
        let mut balance = Balance::new(me, times, Instant::now());
        while !lives.pause(times.poll) {
            let seen = logs.iter().map(|log| Seen::of(&log.sight(), log.is_in_memory()));
            let seen: Vec<Seen> = seen.collect();
            for (number, moves) in balance.look_at_all(&seen, Instant::now()) {
                let log = &logs[number.index()];
                log.note(&told(&log.sight(), me, moves));
                moving.carry_out(log, moves);
            }
        }
    })
}

/// What people are told of a move.
fn told(sight: &LogSight, me: NodeId, moves: Move) -> String {
    let Move::To(to) = moves else {
        return "begins anew here with the nodes that are to keep it, which have everything"
            .to_owned();
    };
    let mut keepers = sight.keepers.iter().filter(|keeper| keeper.node.id == to);
    let name = keepers.next().map_or("another", |keeper| &keeper.node.name);
    match (sight.wished.contains(&me), sight.drained.contains(&me)) {
        (false, _) => format!("goes to node {name}: this one is to keep it no more"),
        (true, true) => format!("goes to node {name}: this one is drained"),
        (true, false) => format!("goes to node {name}, which is to own it and has everything"),
    }
}

/// What is seen of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    epoch: Epoch,
    owner: Option<NodeId>,
    preferred: NodeId,
    /// The preferred node is there and has everything, as the owner sees it.
    ready: bool,
    in_memory: bool,
    /// Its owner is in no zone in which it is to be owned.
    is_outside: bool,
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
    fn of(sight: &LogSight, in_memory: bool) -> Self {
        let preferred = sight.preferred.id;
        Self {
            epoch: sight.epoch,
            owner: sight.owner.as_ref().map(|owner| owner.id),
            preferred,
            ready: sight.is_ready(preferred, LAG_MAX),
            in_memory,
            is_outside: sight.owner_is_outside,
            leaves: leaves(sight),
        }
    }
}

/// What is to be done with a log at once, where anything is.
fn leaves(sight: &LogSight) -> Option<Leaves> {
    // Whoever follows has the other keepers, too.
    leaves_to(sight).or_else(|| sight.set_can_change.then_some(Leaves::Changes))
}

/// Who of those that are to keep a log, and are not drained, gets it from an owner that is not to keep or to own it.
fn leaves_to(sight: &LogSight) -> Option<Leaves> {
    let owner = sight.owner.as_ref()?.id;
    let is_kept = sight.wished.contains(&owner);
    if sight.wished.is_empty() || (is_kept && !sight.drained.contains(&owner)) {
        return None;
    }
    let first = std::iter::once(sight.preferred.id);
    let mut may = first.chain(sight.wished.iter().copied()).filter(|node| *node != owner);
    let to = may.find(|node| !sight.drained.contains(node) && sight.is_ready(*node, LAG_MAX))?;
    Some(if is_kept { Leaves::Kept(to) } else { Leaves::For(to) })
}

/// A log that this node owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    epoch: Epoch,
    since: Instant,
    /// The preferred node, where it has everything, and since when.
    ready_since: Option<(NodeId, Instant)>,
    /// Until then what was to be done with it at once is not tried again.
    tried_until: Option<Instant>,
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
        let due = |held: &Held| {
            let ready =
                held.ready_since.is_some_and(|(_, since)| now.duration_since(since) >= whole);
            ready && now.duration_since(held.since) >= rest
        };
        let log = *self.held.iter().find(|(_, held)| due(held))?.0;
        self.moved = Some(now);
        Some((log, Move::To(seen[log.index()].preferred)))
    }

    fn leaving(&mut self, seen: &[Seen], now: Instant) -> Option<(LogNumber, Move)> {
        let due = |held: &Held| held.tried_until.is_none_or(|until| now >= until);
        let is_leaving = self.held.values().any(|held| !due(held));
        let (log, held, leaves) = self.held.iter_mut().find_map(|(log, held)| {
            let leaves = seen[log.index()].leaves.filter(|_| due(held))?;
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
        let new = Held { epoch: seen.epoch, since: now, ready_since: None, tried_until: None };
        let held = self.held.entry(log).or_insert(new);
        if held.epoch != seen.epoch {
            *held = new;
        }
        let wanted = seen.ready && seen.preferred != self.me;
        let same = held.ready_since.filter(|(node, _)| *node == seen.preferred);
        held.ready_since = wanted.then_some(same.unwrap_or((seen.preferred, now)));
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
mod tests {
    use super::*;
    use crate::owners::preferred;
    use crate::quorum_log::{KeeperSight, NodeName};
    use std::collections::BTreeSet;

    const ME: NodeId = NodeId(1);

    /// Logs with their owners (0: none) and preferred nodes, of which some are ready.
    fn logs(of: &[(u8, u8, bool)]) -> Vec<Seen> {
        let seen = |(owner, preferred, ready): &(u8, u8, bool)| Seen {
            epoch: Epoch(7),
            owner: (*owner > 0).then_some(NodeId(*owner)),
            preferred: NodeId(*preferred),
            ready: *ready,
            in_memory: false,
            is_outside: false,
            leaves: None,
        };
        of.iter().map(seen).collect()
    }

    /// Looks every half a second from then to then, in seconds; gives the moves and when they were made.
    fn moves(
        balance: &mut Balance,
        began: Instant,
        (from, to): (u64, u64),
        seen: &[Seen],
    ) -> Vec<(u64, u8, u8)> {
        let at = |half: u64| began + Duration::from_millis(half * 500);
        let look = |half: u64| {
            let (log, moves) = balance.look(seen, at(half))?;
            let Move::To(to) = moves else { return Some((half / 2, log.0, ME.0)) };
            Some((half / 2, log.0, to.0))
        };
        (from * 2..to * 2).filter_map(look).collect()
    }

    #[test]
    fn a_log_is_given_back_when_it_has_rested_and_its_node_is_whole() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let waits = logs(&[(1, 1, true), (1, 2, false), (3, 3, true)]);
        assert_eq!(moves(&mut balance, began, (0, 400), &waits), [], "its node is not ready");
        let ready = logs(&[(1, 1, true), (1, 2, true), (3, 3, true)]);
        assert_eq!(moves(&mut balance, began, (400, 440), &ready), [(410, 1, 2)]);
    }

    #[test]
    fn a_log_that_came_lately_stays_and_one_goes_at_a_time() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        // All of it is another node's at first.
        let others = logs(&[(2, 1, false), (2, 2, true), (2, 3, true)]);
        assert_eq!(moves(&mut balance, began, (0, 100), &others), []);
        let mine = logs(&[(1, 1, true), (1, 2, true), (1, 3, true)]);
        assert_eq!(moves(&mut balance, began, (100, 461), &mine), [(400, 1, 2), (460, 1, 2)]);
        // A new epoch begins it anew.
        let newer: Vec<Seen> = mine.iter().map(|log| Seen { epoch: Epoch(8), ..*log }).collect();
        assert_eq!(moves(&mut balance, began, (461, 762), &newer), [(761, 1, 2)]);
    }

    #[test]
    fn whoever_was_ready_for_a_moment_only_gets_nothing() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let mut found = vec![];
        for half in 100..2000 {
            let seen = logs(&[(1, 1, true), (1, 2, half % 19 != 0), (3, 3, true)]);
            found.extend(balance.look(&seen, began + Duration::from_millis(half * 500)));
        }
        assert_eq!(found, []);
    }

    #[test]
    fn whoever_is_preferred_only_now_must_have_had_everything_for_as_long() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let to_two = logs(&[(1, 1, true), (1, 2, true), (3, 3, true)]);
        let to_three = logs(&[(1, 1, true), (1, 3, true), (3, 3, true)]);
        assert_eq!(moves(&mut balance, began, (0, 295), &to_three), []);
        assert_eq!(moves(&mut balance, began, (295, 330), &to_two), [(305, 1, 2)]);
    }

    #[test]
    fn a_log_that_others_are_to_keep_goes_at_once() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let mut alone = logs(&[(1, 2, true)]);
        assert_eq!(moves(&mut balance, began, (0, 700), &alone), [], "one log has no balance");
        alone[0].leaves = Some(Leaves::For(NodeId(2)));
        assert_eq!(moves(&mut balance, began, (700, 701), &alone), [(700, 0, 2)]);
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let mut seen = logs(&[(1, 2, false), (2, 2, true), (1, 3, false)]);
        for log in &mut seen {
            log.leaves = Some(Leaves::For(NodeId(3)));
        }
        let found = moves(&mut balance, began, (100, 111), &seen);
        assert_eq!(found, [(100, 0, 3), (100, 2, 3), (110, 0, 3), (110, 2, 3)]);
    }

    #[test]
    fn a_drained_node_gives_away_one_log_after_the_other() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let mut seen = logs(&[(1, 2, true), (2, 2, true), (1, 3, true)]);
        for log in &mut seen {
            log.leaves = Some(Leaves::Kept(log.preferred));
        }
        assert_eq!(moves(&mut balance, began, (100, 105), &seen), [(100, 0, 2)]);
        (seen[0].owner, seen[0].leaves) = (Some(NodeId(2)), None);
        assert_eq!(moves(&mut balance, began, (105, 110), &seen), [(105, 2, 3)]);
        // What nobody took is tried again.
        assert_eq!(moves(&mut balance, began, (110, 116), &seen), [(115, 2, 3)]);
    }

    #[test]
    fn a_log_that_others_can_keep_begins_anew_at_once() {
        let began = Instant::now();
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        let mut seen = logs(&[(1, 1, true), (2, 2, true), (1, 3, true)]);
        for log in &mut seen {
            log.leaves = Some(Leaves::Changes);
        }
        let both = [(LogNumber(0), Move::ChangeSet), (LogNumber(2), Move::ChangeSet)];
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(balance.look_at_all(&seen, at(100)), both);
        // Before the core does it by itself it is tried again.
        assert_eq!(moves(&mut balance, began, (101, 104), &seen), [(103, 0, 1), (103, 2, 1)]);
        // It has other keepers now.
        (seen[0].leaves, seen[0].epoch) = (None, Epoch(8));
        assert_eq!(moves(&mut balance, began, (104, 109), &seen), [(106, 2, 1)]);
    }

    /// What the owner, the first of three nodes, sees of its log.
    fn sight(wished: &[u8], drained: &[u8], ready: &[u8]) -> LogSight {
        let named = |id: u8| NodeName { id: NodeId(id), name: format!("n{id}") };
        let keeper = |id: u8| KeeperSight {
            node: named(id),
            connected: true,
            counts: true,
            silent: None,
            lag: ready.contains(&id).then_some(0),
            fit: true,
        };
        let wished: Vec<NodeId> = wished.iter().copied().map(NodeId).collect();
        let drained = drained.iter().copied().map(NodeId).collect();
        let preferred =
            preferred(LogNumber::FIRST, &wished, &drained, &BTreeSet::new()).expect("somebody");
        LogSight {
            number: LogNumber::FIRST,
            name: "default".to_owned(),
            epoch: Epoch(7),
            owner: Some(named(1)),
            preferred: named(preferred.0),
            keepers: (1..=4).map(keeper).collect(),
            wished,
            drained,
            owner_is_outside: false,
            set_can_change: false,
        }
    }

    #[test]
    fn who_is_to_own_nothing_leaves_its_logs_to_who_is() {
        let leaves = |wished: &[u8], drained: &[u8], ready: &[u8]| match super::leaves(&sight(
            wished, drained, ready,
        ))? {
            Leaves::For(to) => Some((to.0, false)),
            Leaves::Kept(to) => Some((to.0, true)),
            Leaves::Changes => panic!("its set cannot change"),
        };
        assert_eq!(leaves(&[1, 2, 3], &[], &[1, 2, 3]), None);
        assert_eq!(leaves(&[1, 2, 3], &[2], &[1, 2, 3]), None, "another one is drained");
        assert_eq!(leaves(&[1, 2, 3], &[1], &[1, 2, 3]), Some((2, true)));
        assert_eq!(leaves(&[1, 2, 3], &[1, 2], &[1, 2, 3]), Some((3, true)));
        assert_eq!(leaves(&[1, 2, 3], &[1], &[1, 3]), Some((3, true)), "the other is behind");
        assert_eq!(leaves(&[1, 2, 3], &[1], &[1]), None, "nobody else can");
        assert_eq!(leaves(&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]), None, "nobody is to");
        assert_eq!(leaves(&[4, 2, 3], &[4], &[1, 2, 3, 4]), Some((2, false)));
        let changes = |drained: &[u8], ready: &[u8]| {
            super::leaves(&LogSight { set_can_change: true, ..sight(&[1, 2, 4], drained, ready) })
        };
        assert_eq!(changes(&[], &[1, 2, 3]), Some(Leaves::Changes));
        assert_eq!(changes(&[1], &[1, 2, 3]), Some(Leaves::Kept(NodeId(2))));
        assert_eq!(changes(&[1], &[1]), Some(Leaves::Changes), "nobody else can own it");
    }

    #[test]
    fn at_a_start_logs_that_lie_unevenly_go_at_once() {
        let began = Instant::now();
        let uneven = logs(&[(1, 1, true), (2, 2, false), (1, 3, true)]);
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        assert_eq!(moves(&mut balance, began, (5, 7), &uneven), [(6, 2, 3)]);
        // One node has two on disks, whatever the one in memory makes of that.
        let mut uneven = logs(&[(1, 1, true), (2, 2, false), (1, 3, true), (3, 1, false)]);
        uneven[3].in_memory = true;
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        assert_eq!(moves(&mut balance, began, (5, 7), &uneven), [(6, 2, 3)]);
        // Each has one, though not its own: that can wait.
        let even = logs(&[(2, 1, false), (3, 2, false), (1, 3, true)]);
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        assert_eq!(moves(&mut balance, began, (0, 310), &even), [(300, 2, 3)]);
        // So does one whose owner is in none of the zones in which it is to be owned.
        let mut outside = even.clone();
        outside[2].is_outside = true;
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        assert_eq!(moves(&mut balance, began, (5, 7), &outside), [(6, 2, 3)]);
        // Later nothing is hurried.
        let mut balance = Balance::new(ME, BalanceTimes::default(), began);
        assert_eq!(moves(&mut balance, began, (31, 340), &uneven), [(331, 2, 3)]);
    }
}

use super::*;
use crate::quorum_log::{KeeperSight, NodeName};
use nuthatch_log::env::SeededEntropy;
use nuthatch_quorum::types::Epoch;

const MIB: u64 = 1 << 20;

fn name(node: u8) -> String {
    format!("n{node}")
}

/// A log at one of so many nodes, in whose places the logs stand in turn.
fn sight(number: u8, owner: u8, nodes: u8) -> LogSight {
    let named = |id: u8| NodeName { id: NodeId(id), name: name(id) };
    let keeper = |id: u8| KeeperSight {
        node: named(id),
        connected: true,
        counts: true,
        silent: None,
        lag: Some(0),
        fit: true,
        cold: false,
    };
    LogSight {
        number: LogNumber(number),
        name: "default".to_owned(),
        epoch: Epoch(7),
        owner: Some(named(owner)),
        preferred: named(number % nodes + 1),
        keepers: (1..=nodes).map(keeper).collect(),
        wished: (1..=nodes).map(NodeId).collect(),
        drained: BTreeSet::new(),
        may_own: (1..=nodes).map(NodeId).collect(),
        asked_owner: None,
        owner_is_outside: false,
        set_can_change: false,
    }
}

/// A cluster whose logs are asked for.
struct Played {
    nodes: u8,
    /// Where the nodes are; without zones it does not matter where clients are.
    zones: BTreeMap<String, Zone>,
    owners: Vec<u8>,
    asked: Vec<LogLoad>,
    /// When each log came to where it is, in minutes.
    since: Vec<i64>,
    moves: Vec<(i64, u8, u8)>,
}

impl Played {
    fn new(nodes: u8, zones: &[&str], asked: &[&[u64]]) -> Self {
        let zone = |(node, zone): (u8, &&str)| (name(node), zone.parse().expect("a zone"));
        let load = |from: &&[u64]| LogLoad {
            rate: from.iter().sum(),
            from: (1..).zip(from.iter()).map(|(node, rate)| (name(node), *rate)).collect(),
        };
        Self {
            nodes,
            zones: (1..).zip(zones).map(zone).collect(),
            owners: (0..asked.len()).map(|log| log as u8 % nodes + 1).collect(),
            asked: asked.iter().map(load).collect(),
            since: vec![-5; asked.len()],
            moves: vec![],
        }
    }

    fn total(&self, node: u8) -> u64 {
        let its = self.owners.iter().zip(&self.asked).filter(|(owner, _)| **owner == node);
        its.map(|(_, load)| load.rate).sum()
    }

    fn most(&self) -> u64 {
        (1..=self.nodes).map(|node| self.total(node)).max().expect("there are nodes")
    }

    /// The goal of a log at its owner, which hears of the others what they had by the percentage that `varied` gives.
    fn goal(&self, log: usize, varied: &mut impl FnMut() -> u64) -> Goal {
        let me = self.owners[log];
        let own = (0..self.owners.len()).filter(|log| self.owners[*log] == me);
        let of = |log: usize, percent: u64| LogLoad {
            rate: self.asked[log].rate * percent / 100,
            from: self.asked[log]
                .from
                .iter()
                .map(|(node, rate)| (node.clone(), rate * percent / 100))
                .collect(),
        };
        let own = own.map(|log| (LogNumber(log as u8), of(log, varied()))).collect();
        let others = (1..=self.nodes).filter(|node| *node != me);
        let others = others.map(|node| (name(node), self.total(node) * varied() / 100)).collect();
        let loads = Loads { own, others };
        let figures = Figures { loads: &loads, zones: &self.zones, me: NodeId(me) };
        let ready = (1..=self.nodes).filter(|node| *node != me).map(NodeId).collect();
        figures.goal(&sight(log as u8, me, self.nodes), &ready)
    }

    /// One minute: each node gives away one log at most, none that came within five.
    fn minute(&mut self, now: i64, varied: &mut impl FnMut() -> u64) {
        let before = self.owners.clone();
        for node in 1..=self.nodes {
            let place = |log: usize| log as u8 % self.nodes + 1;
            let rested = |log: &usize| before[*log] == node && now - self.since[*log] >= 5;
            let moved = (0..before.len()).filter(rested).find_map(|log| {
                let to = match self.goal(log, varied) {
                    Goal::Place => place(log),
                    Goal::LessBusy(to) | Goal::ToClients(to) => to.0,
                    Goal::Stays => node,
                };
                (to != node).then_some((log, to))
            });
            if let Some((log, to)) = moved {
                (self.owners[log], self.since[log]) = (to, now);
                self.moves.push((now, log as u8, to));
            }
        }
    }

    /// As many minutes with figures that do not vary.
    fn play(&mut self, minutes: i64) -> &[(i64, u8, u8)] {
        let from = self.moves.len();
        (0..minutes).for_each(|now| self.minute(now, &mut || 100));
        &self.moves[from..]
    }
}

#[test]
fn a_busy_log_leaves_the_other_one_of_its_node() {
    // Logs 0 and 3 are both in the place of the first node.
    let mut played = Played::new(3, &[], &[&[8 * MIB], &[0], &[MIB], &[6 * MIB]]);
    assert_eq!(played.play(60), [(0, 0, 2)], "to the one that has nothing");
    assert_eq!(played.most(), 8 * MIB);
    // It goes back once nobody asks for it.
    played.asked[0] = LogLoad::default();
    assert_eq!(played.play(60), [(5, 0, 1)]);
}

#[test]
fn one_log_is_not_passed_on() {
    assert_eq!(Played::new(3, &[], &[&[90 * MIB], &[0], &[0]]).play(60), []);
    // Nor is what is little, or gains little.
    assert_eq!(Played::new(3, &[], &[&[BUSY / 2], &[0], &[0], &[BUSY / 2]]).play(60), []);
    let gains_little = [&[10 * MIB][..], &[9 * MIB], &[9 * MIB], &[MIB]];
    assert_eq!(Played::new(3, &[], &gains_little).play(60), []);
}

#[test]
fn a_log_goes_to_where_its_clients_are() {
    let zones = ["a", "b", "c"];
    let of_b = [0, 2 * ASKED, 0];
    let mut played = Played::new(3, &zones, &[&of_b, &[0], &[0]]);
    assert_eq!(played.play(60), [(0, 0, 2)]);
    // It stays there for as long as most of them are: half of them, and a few more.
    played.asked = Played::new(3, &zones, &[&[4 * ASKED, 5 * ASKED, 0], &[0], &[0]]).asked;
    assert_eq!(played.play(60), []);
    played.asked = Played::new(3, &zones, &[&[5 * ASKED, 4 * ASKED, 0], &[0], &[0]]).asked;
    assert_eq!(played.play(60), [(5, 0, 1)]);
    // Without zones, or where all are in one, it does not matter.
    assert_eq!(Played::new(3, &[], &[&of_b, &[0], &[0]]).play(60), []);
    assert_eq!(Played::new(3, &["a", "a", "a"], &[&of_b, &[0], &[0]]).play(60), []);
    // Nor does what is asked so rarely.
    assert_eq!(Played::new(3, &zones, &[&[0, ASKED / 2, 0], &[0], &[0]]).play(60), []);
}

#[test]
fn load_counts_for_more_than_where_clients_are() {
    // All clients are in one zone, whose node would have everything.
    let here = [9 * MIB, 0, 0];
    let mut played = Played::new(3, &["a", "b", "c"], &[&here, &here, &here]);
    assert_eq!(played.play(600), []);
    assert_eq!(played.most(), 9 * MIB);
}

#[test]
fn a_node_that_says_nothing_is_given_no_busy_log() {
    let loads = Loads {
        own: BTreeMap::from([
            (LogNumber(0), LogLoad { rate: 8 * MIB, from: BTreeMap::new() }),
            (LogNumber(3), LogLoad { rate: 8 * MIB, from: BTreeMap::new() }),
            (LogNumber(1), LogLoad { rate: 8 * MIB, from: BTreeMap::new() }),
        ]),
        others: BTreeMap::from([(name(3), 20 * MIB)]),
    };
    let figures = Figures { loads: &loads, zones: &BTreeMap::new(), me: NodeId(1) };
    let ready = [NodeId(2), NodeId(3)].into();
    // Somebody has more; and the second node, in whose place log 1 stands, may have as much.
    assert_eq!(figures.goal(&sight(0, 1, 3), &ready), Goal::Place);
    assert_eq!(figures.goal(&sight(1, 1, 3), &ready), Goal::Stays);
}

#[test]
fn figures_that_are_old_count_for_nothing() {
    let (mut known, began) = (KnownLoads::default(), Instant::now());
    assert_eq!(known.at(began), None);
    known.set(Loads::default(), began);
    assert_eq!(known.at(began + LOADS_HOLD / 2), Some(Loads::default()));
    assert_eq!(known.at(began + LOADS_HOLD), None);
}

/// Whatever is asked, and although what nodes hear of each other varies, nothing goes to and fro, and no node has much more than
/// it must.
#[test]
fn whatever_is_asked_logs_come_to_rest() {
    for seed in 0..150 {
        let mut random = SeededEntropy::new(seed);
        let nodes = if random.below(2) == 0 { 3 } else { 5 };
        let with_zones = random.below(2) == 0;
        let zones = ["a", "b", "c", "b", "a"];
        let logs = usize::from(nodes) * (1 + random.below(3) as usize);
        let asked: Vec<Vec<u64>> = (0..logs).map(|_| asked(&mut random, nodes)).collect();
        let asked: Vec<&[u64]> = asked.iter().map(Vec::as_slice).collect();
        let zones = if with_zones { &zones[..usize::from(nodes)] } else { &[] };
        let mut played = Played::new(nodes, zones, &asked);
        for now in 0..400 {
            played.minute(now, &mut || 98 + random.below(5));
        }
        let late: Vec<_> = played.moves.iter().filter(|(at, ..)| *at > 200).collect();
        assert!(late.is_empty(), "seed {seed}: logs go to and fro: {late:?}");
        if !with_zones {
            assert_rests(&played, seed);
        }
    }
}

/// What clients of each node ask of a log: of many little, of some much, and mostly from one zone.
fn asked(random: &mut SeededEntropy, nodes: u8) -> Vec<u64> {
    let rate = match random.below(6) {
        0 => 0,
        1 => random.below(BUSY),
        // About where a rule begins.
        2 => ASKED * (95 + random.below(10)) / 100,
        3 => BUSY * (95 + random.below(10)) / 100,
        _ => BUSY + random.below(64 * MIB - BUSY),
    };
    let main = random.below(nodes.into()) as u8;
    let mut share = |node: u8| if node == main { 6 } else { random.below(3) };
    let shares: Vec<u64> = (0..nodes).map(&mut share).collect();
    let all: u64 = shares.iter().sum();
    shares.iter().map(|share| rate * share / all).collect()
}

/// No log could leave the busiest node for much gain.
fn assert_rests(played: &Played, seed: u64) {
    let most = played.most();
    for (log, owner) in played.owners.iter().enumerate() {
        let here = played.total(*owner);
        for to in (1..=played.nodes).filter(|to| to != owner && here == most && most > BUSY) {
            let rate = played.asked[log].rate;
            let after = (here - rate).max(played.total(to) + rate);
            let gains = here.saturating_sub(after) * 100 / here;
            assert!(
                rate < BUSY * 9 / 10 || gains < 30,
                "seed {seed}: log {log} at {owner} gains {gains} %"
            );
        }
    }
}

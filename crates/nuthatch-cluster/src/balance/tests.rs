use super::*;
use crate::owners::preferred;
use crate::quorum_log::{KeeperSight, NodeName};

const ME: NodeId = NodeId(1);

/// Logs with their owners (0: none) and preferred nodes, of which some are ready.
fn logs(of: &[(u8, u8, bool)]) -> Vec<Seen> {
    let seen = |(owner, preferred, ready): &(u8, u8, bool)| Seen {
        epoch: Epoch(7),
        owner: (*owner > 0).then_some(NodeId(*owner)),
        preferred: NodeId(*preferred),
        goal: Goal::Place,
        ready: *ready,
        cold: false,
        in_memory: false,
        is_outside: false,
        asked: None,
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
        cold: false,
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
        may_own: wished.iter().copied().collect(),
        wished,
        drained,
        asked_owner: None,
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
    // Somebody's word for a node that is not there keeps nobody from being drained.
    let asked_owner = Some(NodeName { id: NodeId(3), name: "n3".to_owned() });
    let away = LogSight { asked_owner, ..sight(&[1, 2, 3], &[1], &[1, 2]) };
    assert_eq!(super::leaves(&away), Some(Leaves::Kept(NodeId(2))));
    // One that is about to follow the log would open it slowly until then.
    let mut cold = sight(&[1, 2, 3], &[1], &[1, 2, 3]);
    cold.keepers
        .iter_mut()
        .filter(|keeper| keeper.node.id == NodeId(2))
        .for_each(|k| k.cold = true);
    assert_eq!(super::leaves(&cold), Some(Leaves::Kept(NodeId(3))));
    let seen = Seen::of(&LogSight { preferred: cold.keepers[1].node.clone(), ..cold }, false, None);
    assert_eq!((seen.to(), seen.ready, seen.cold), (Some(NodeId(2)), false, true));
    let mut for_others = sight(&[4, 2, 3], &[3], &[1, 2, 3, 4]);
    for_others.keepers.iter_mut().for_each(|keeper| keeper.cold = true);
    assert_eq!(super::leaves(&for_others), Some(Leaves::For(NodeId(4))), "all are, and it hurries");
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

#[test]
fn a_log_goes_at_once_to_the_node_that_is_named_and_later_as_to_its_place() {
    let began = Instant::now();
    let mut balance = Balance::new(ME, BalanceTimes::default(), began);
    let mut seen = logs(&[(1, 1, true), (2, 2, true), (3, 3, true)]);
    assert_eq!(moves(&mut balance, began, (100, 110), &seen), []);
    (seen[0].asked, seen[0].preferred) = (Some(NodeId(3)), NodeId(3));
    assert_eq!(moves(&mut balance, began, (110, 115), &seen), [(110, 0, 3)]);
    // It is back after a takeover, and rests.
    seen[0].epoch = Epoch(9);
    assert_eq!(moves(&mut balance, began, (115, 420), &seen), [(415, 0, 3)]);
    // Another word, while that node is not ready.
    (seen[0].asked, seen[0].preferred, seen[0].ready) = (Some(NodeId(2)), NodeId(2), false);
    assert_eq!(moves(&mut balance, began, (420, 430), &seen), []);
    seen[0].ready = true;
    assert_eq!(moves(&mut balance, began, (430, 431), &seen), [(430, 0, 2)]);
}

#[test]
fn at_a_start_no_log_goes_by_what_is_asked_of_it() {
    let began = Instant::now();
    let mut balance = Balance::new(ME, BalanceTimes::default(), began);
    let mut uneven = logs(&[(1, 1, true), (2, 2, false), (1, 1, true), (3, 3, true)]);
    uneven[0].goal = Goal::LessBusy(NodeId(2));
    uneven[3].preferred = NodeId(1);
    assert_eq!(moves(&mut balance, began, (5, 29), &uneven), []);
}

//! Changes of a roster, one after the other.

use super::*;

fn three() -> Roster {
    let enrolled = |id: u8| {
        let (name, member) = (format!("n{id}"), MemberId(id.into()));
        (NodeId(id), Enrolled { name, member, address: None, keeps: true })
    };
    Roster { nodes: (1..=3).map(enrolled).collect(), ..Roster::default() }
}

fn join(name: &str, member: u64) -> Change {
    let address = Some("127.0.0.1:6224".parse().expect("an address"));
    Change::Join { name: name.to_owned(), member: MemberId(member), address }
}

fn replace(old: u8, new: u8) -> Replacing {
    Replacing { old: NodeId(old), new: NodeId(new) }
}

fn resize(nodes: &[u8], keep: bool) -> Resizing {
    Resizing { nodes: nodes.iter().map(|node| NodeId(*node)).collect(), keep }
}

#[test]
fn three_nodes_become_five_and_three_again() {
    let mut roster = three();
    roster.make(&join("n4", 40)).expect("a spare");
    let refused = |roster: &Roster, wanted| roster.check(&Change::Resize(wanted));
    assert_eq!(refused(&roster, resize(&[4], true)), Err(Refusal::Size(4)));
    assert_eq!(refused(&roster, resize(&[], true)), Err(Refusal::NotOnce));
    assert!(!roster.has(&Change::Resize(resize(&[], true))));
    assert!(!roster.has(&Change::Resize(resize(&[1, 1], true))));
    assert!(roster.has(&Change::Resize(resize(&[1, 2], true))));
    assert_eq!(refused(&roster, resize(&[4, 4], true)), Err(Refusal::NotOnce));
    assert_eq!(refused(&roster, resize(&[4, 9], true)), Err(Refusal::NoSuchNode(NodeId(9))));
    assert_eq!(refused(&roster, resize(&[2, 3], false)), Err(Refusal::Size(1)));
    roster.make(&join("n5", 50)).expect("another one");
    assert_eq!(refused(&roster, resize(&[3, 4], true)), Err(Refusal::Keeps("n3".to_owned())));
    let wanted = resize(&[4, 5], true);
    assert_eq!(roster.check(&Change::Resized(wanted.clone())), Err(Refusal::Late));
    roster.make(&Change::Resize(wanted.clone())).expect("it begins");
    let busy = |found: Result<(), Refusal>| matches!(found, Err(Refusal::Resizing(_)));
    assert!(busy(roster.check(&Change::Begin(replace(3, 4)))));
    assert!(busy(roster.check(&Change::Leave(NodeId(4)))));
    assert!(busy(refused(&roster, resize(&[2, 3], false))));
    let members = roster.members_change(&Change::Resized(wanted.clone())).expect("two votes");
    assert_eq!(members.changes.len(), 2);
    roster.make(&Change::Resized(wanted.clone())).expect("they do");
    assert!(roster.has(&Change::Resize(wanted)) && roster.spares().count() == 0);
    let wanted = resize(&[1, 3], false);
    roster.make(&Change::Resize(wanted.clone())).expect("others may go");
    assert!(!roster.has(&Change::Resized(wanted.clone())));
    roster.make(&join("n6", 60)).expect("a spare beside those that go");
    assert_eq!(roster.make(&join("n7", 70)), Err(Refusal::Full));
    let sixth = roster.number("n6").expect("it is there");
    roster.make(&Change::Leave(sixth)).expect("it goes");
    roster.make(&Change::Resize(wanted.inverse())).expect("it is taken back");
    roster.make(&Change::Resized(wanted.inverse())).expect("they stay");
    roster.make(&Change::Resize(wanted.clone())).expect("again");
    roster.make(&Change::Resized(wanted)).expect("they go");
    let spares: Vec<u8> = roster.spares().map(|(node, _)| node.0).collect();
    assert_eq!(spares, [1, 3]);
}

fn drain(node: u8, drain: bool) -> Change {
    Change::Drain(Draining { node: NodeId(node), drain })
}

#[test]
fn a_node_is_drained_and_drained_no_more_but_somebody_is_left() {
    let mut roster = three();
    assert!(roster.has(&drain(1, false)) && !roster.has(&drain(1, true)));
    roster.make(&drain(1, true)).expect("others are left");
    assert!(roster.has(&drain(1, true)) && !roster.has(&drain(1, false)));
    assert_eq!(roster.make(&drain(9, true)), Err(Refusal::NoSuchNode(NodeId(9))));
    assert!(!roster.has(&drain(9, false)), "there is no such node");
    assert_eq!((roster.ranks_behind(NodeId(1)), roster.ranks_behind(NodeId(2))), (3, 0));
    assert_eq!(roster.drained_members(), [MemberId(1)]);
    roster.make(&join("n4", 40)).expect("a spare");
    assert_eq!(roster.make(&drain(4, true)), Err(Refusal::OwnsNothing("n4".to_owned())));
    roster.make(&drain(3, true)).expect("one is left");
    assert_eq!(roster.make(&drain(2, true)), Err(Refusal::AllDrained), "nobody could own a log");
    assert!(roster.members_change(&drain(2, false)).is_none(), "each keeps its vote");
    // Who goes takes it along.
    roster.make(&Change::Begin(replace(2, 4))).expect("it begins");
    roster.make(&drain(1, false)).expect("taken back");
    roster.make(&Change::Cancel(replace(2, 4))).expect("taken back");
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins");
    assert_eq!(roster.make(&drain(4, true)), Err(Refusal::OwnsNothing("n4".to_owned())));
    roster.make(&Change::Swap(replace(3, 4))).expect("it ends");
    assert_eq!(roster.drained, BTreeSet::new());
}

/// Also those count that come or go: what is under way may end, or be taken back.
#[test]
fn somebody_is_left_to_own_the_logs_however_many_nodes_keep_them() {
    let mut roster = three();
    roster.make(&join("n4", 40)).expect("a spare");
    roster.make(&join("n5", 50)).expect("another one");
    roster.make(&Change::Resize(resize(&[4, 5], true))).expect("it begins");
    roster.make(&drain(1, true)).expect("possible");
    roster.make(&drain(2, true)).expect("possible");
    assert_eq!(roster.make(&drain(3, true)), Err(Refusal::AllDrained), "it may be taken back");
    roster.make(&Change::Resized(resize(&[4, 5], true))).expect("it ends");
    roster.make(&drain(3, true)).expect("others are there");
    let shrinks = Change::Resize(resize(&[4, 5], false));
    assert_eq!(roster.make(&shrinks), Err(Refusal::AllDrained));
    roster.make(&drain(2, false)).expect("taken back");
    roster.make(&shrinks).expect("one is left");
    assert_eq!(roster.make(&drain(2, true)), Err(Refusal::AllDrained), "the others go");
    roster.make(&drain(4, true)).expect("it goes");
    roster.make(&Change::Resized(resize(&[4, 5], false))).expect("it ends");
    assert_eq!(roster.drained, [NodeId(1), NodeId(3)].into(), "a spare owns nothing anyway");
}

#[test]
fn a_node_joins_takes_a_place_and_the_other_one_is_gone_for_ever() {
    let mut roster = three();
    roster.make(&join("n4", 40)).expect("a spare");
    assert!(roster.has(&join("n4", 40)) && !roster.has(&join("n4", 41)));
    assert_eq!(roster.make(&join("n4", 41)), Err(Refusal::NameTaken("n4".to_owned())));
    let wanted = replace(3, 4);
    assert_eq!(roster.make(&Change::Swap(wanted)), Err(Refusal::Late), "it has not begun");
    roster.make(&Change::Begin(wanted)).expect("it begins");
    roster.make(&Change::Swap(wanted)).expect("it has the place");
    assert!(roster.has(&Change::Begin(wanted)) && roster.has(&Change::Swap(wanted)));
    assert_eq!(roster.gone("n3").map(|gone| gone.by.as_deref()), Some(Some("n4")));
    assert_eq!(roster.gone_member(MemberId(3)).map(|gone| gone.node), Some(NodeId(3)));
    assert_eq!(roster.make(&join("n3", 30)), Err(Refusal::NameGone("n3".to_owned())));
    roster.make(&join("n5", 50)).expect("another one");
    assert_eq!(roster.number("n5"), Some(NodeId(19)));
    roster.make(&Change::Leave(NodeId(19))).expect("a spare may go");
    roster.make(&join("n6", 60)).expect("another one");
    assert_eq!(roster.number("n6"), Some(NodeId(35)), "numbers do not come back");
}

#[test]
fn one_replacement_at_a_time_but_another_spare_may_take_the_place() {
    let mut roster = three();
    for (name, member) in [("n4", 40), ("n5", 50), ("n6", 60)] {
        roster.make(&join(name, member)).expect("a spare");
    }
    assert_eq!(roster.make(&join("n7", 70)), Err(Refusal::Full));
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins");
    let busy = Refusal::Busy { old: "n3".to_owned(), new: "n4".to_owned() };
    assert_eq!(roster.make(&Change::Begin(replace(2, 5))), Err(busy.clone()));
    assert_eq!(roster.make(&Change::Leave(NodeId(4))), Err(busy));
    roster.make(&Change::Begin(replace(3, 5))).expect("the first spare may be gone");
    assert_eq!(roster.replacing, Some(replace(3, 5)));
    for (old, new, why) in [
        (4, 5, Refusal::IsSpare("n4".to_owned())),
        (3, 2, Refusal::Keeps("n2".to_owned())),
        (3, 9, Refusal::NoSuchNode(NodeId(9))),
    ] {
        assert_eq!(roster.make(&Change::Begin(replace(old, new))), Err(why));
    }
    assert_eq!(roster.make(&Change::Leave(NodeId(1))), Err(Refusal::Keeps("n1".to_owned())));
}

#[test]
fn a_replacement_is_taken_back_until_it_is_over() {
    let mut roster = three();
    let cancel = |old, new| Change::Cancel(replace(old, new));
    roster.make(&join("n4", 40)).expect("a spare");
    assert!(roster.has(&cancel(3, 4)), "nothing is under way");
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins");
    assert_eq!(roster.make(&cancel(2, 4)), Err(Refusal::Late));
    // Another spare goes on with it: it is not over.
    assert!(!roster.has(&cancel(3, 5)));
    assert_eq!(roster.make(&cancel(3, 5)), Err(Refusal::Late));
    roster.make(&cancel(3, 4)).expect("taken back");
    assert!(roster.has(&cancel(3, 4)) && roster.replacing.is_none());
    assert_eq!(roster.make(&Change::Swap(replace(3, 4))), Err(Refusal::Late));
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins again");
    roster.make(&Change::Swap(replace(3, 4))).expect("it ends");
    let (old, new) = ("n3".to_owned(), "n4".to_owned());
    assert!(!roster.has(&cancel(3, 4)));
    assert_eq!(roster.make(&cancel(3, 4)), Err(Refusal::Replaced { old, new }));
}

#[test]
fn a_disk_has_one_place() {
    let mut roster = three();
    assert_eq!(roster.make(&join("n4", 1)), Err(Refusal::DiskTaken), "it would lose its vote");
    let disk = |new| Change::Disk { node: NodeId(1), new: MemberId(new), former: MemberId(1) };
    assert_eq!(roster.make(&disk(2)), Err(Refusal::DiskTaken));
    roster.make(&join("n4", 40)).expect("a spare");
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins");
    roster.make(&Change::Swap(replace(3, 4))).expect("it ends");
    assert_eq!(roster.make(&disk(3)), Err(Refusal::DiskTaken), "of a node that was removed");
    assert_eq!(roster.make(&join("n5", 3)), Err(Refusal::DiskTaken));
}

#[test]
fn no_two_nodes_have_one_rank_however_often_nodes_are_replaced() {
    let mut roster = three();
    let (mut last, mut replaced) = (3, 0);
    loop {
        let name = format!("{replaced:a>NAME_MAX$}");
        if let Err(why) = roster.make(&join(&name, 1000 + replaced)) {
            assert_eq!(why, Refusal::NoNumber);
            break;
        }
        let new = roster.number(&name).expect("it has joined").0;
        roster.make(&Change::Begin(replace(last, new))).expect("it begins");
        let ranks: std::collections::BTreeSet<u8> =
            roster.nodes.keys().map(|node| rank(*node)).collect();
        assert_eq!(ranks.len(), roster.nodes.len(), "{roster:?}");
        // Elections wait for ranks.
        assert!(replaced >= 30 || ranks.last() <= Some(&3), "after {replaced}: {ranks:?}");
        roster.make(&Change::Swap(replace(last, new))).expect("it ends");
        (last, replaced) = (new, replaced + 1);
    }
    assert!(replaced > 200, "{replaced}");
    let mut to = Writer::default();
    roster.put(&mut to);
    assert!(to.0.len() < 60_000, "it is kept in a small file: {}", to.0.len());
}

#[test]
fn rosters_and_changes_have_one_form() {
    let mut roster = three();
    let address = "127.0.0.1:6221".parse().expect("an address");
    let changes = [
        join("n4", 40),
        Change::Address { node: NodeId(1), address },
        Change::Begin(replace(3, 4)),
        Change::Cancel(replace(3, 4)),
        Change::Begin(replace(3, 4)),
        Change::Swap(replace(3, 4)),
        join("n5", 50),
        Change::Leave(NodeId(19)),
        join("n6", 60),
        join("n7", 70),
        Change::Resize(resize(&[35, 5], true)),
        Change::Resize(resize(&[35, 5], false)),
        Change::Resize(resize(&[35, 5], true)),
        Change::Resized(resize(&[35, 5], true)),
        Change::Disk { node: NodeId(1), new: MemberId(11), former: MemberId(1) },
        drain(1, true),
        drain(35, true),
        Change::Resize(resize(&[2, 5], false)),
        drain(35, false),
        drain(1, false),
        Change::Finalize { active: Protocol(5), changes: 19 },
        drain(2, true),
        drain(2, false),
    ];
    for change in &changes {
        assert_eq!(Change::decode(&change.encode()).as_ref(), Ok(change));
        roster.make(change).expect("possible");
        assert!(roster.has(change));
        let mut to = Writer::default();
        roster.put(&mut to);
        assert_eq!(Roster::read(&mut Reader(&to.0)), Ok(roster.clone()));
    }
    assert_eq!(roster.changes, 22, "a disk is no other node");
    assert!(Change::decode(&join("n 4", 40).encode()).is_err(), "no name");
    assert!(Change::decode(&join("n4", 0).encode()).is_err(), "no disk");
    let none = Roster { nodes: BTreeMap::new(), ..roster.clone() };
    let nobody_comes = Roster { resizing: Some(resize(&[9], true)), ..roster.clone() };
    let drained = [NodeId(9)].into();
    let nobody_drained = Roster { drained, resizing: None, ..roster.clone() };
    let nobody = Roster { replacing: Some(replace(1, 9)), resizing: None, ..roster };
    for bad in [none, nobody, nobody_comes, nobody_drained] {
        let mut to = Writer::default();
        bad.put(&mut to);
        assert!(Roster::read(&mut Reader(&to.0)).is_err(), "{bad:?}");
    }
    for bad in
        [&[0][..], &[0, 10], &[0, 9, 1], &[0, 9, 1, 2], &[0, 3, 1], &[1, 2], &[0, 3, 1, 2, 3]]
    {
        assert!(Change::decode(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn rosters_without_drained_nodes_are_as_earlier_versions_wrote_them() {
    let mut roster = three();
    roster.make(&join("n4", 40)).expect("a spare");
    roster.make(&Change::Begin(replace(3, 4))).expect("it begins");
    let bytes = |roster: &Roster| {
        let mut to = Writer::default();
        roster.put(&mut to);
        to.0
    };
    let (mut before, mut drained) = (bytes(&roster), roster.clone());
    assert!(before.ends_with(&[0, 0, 0, 0, 1, 3, 4]), "nobody was removed, and one is replaced");
    drained.make(&drain(1, true)).expect("others are left");
    drained.make(&drain(1, false)).expect("taken back");
    // But for the number of changes.
    before[..8].copy_from_slice(&4_u64.to_le_bytes());
    assert_eq!(bytes(&drained), before);
}

#[test]
fn what_the_nodes_speak_only_rises() {
    let mut roster = three();
    let finalize = |active, changes| Change::Finalize { active: Protocol(active), changes };
    assert_eq!((roster.active, roster.has(&finalize(4, 0))), (Protocol::FIRST, true));
    // A node that nobody has asked may have joined since.
    assert_eq!(roster.make(&finalize(5, 1)), Err(Refusal::Late));
    roster.make(&finalize(5, 0)).expect("later");
    for earlier in [finalize(4, 1), finalize(5, 1)] {
        assert!(roster.has(&earlier));
        assert_eq!(roster.make(&earlier), Err(Refusal::Late));
    }
    assert_eq!((roster.active, roster.changes), (Protocol(5), 1));
    let mut to = Writer::default();
    roster.put(&mut to);
    let at = to.0.len() - 3;
    assert_eq!(to.0[at..], [4, 5, 0]);
    to.0[at + 1] = 4;
    assert!(Roster::read(&mut Reader(&to.0)).is_err(), "the first one has one form");
    // Of a later program, whatever follows.
    to.0.truncate(at + 1);
    to.0.extend([Protocol::NEWEST.0 + 1, 77, 78]);
    let told = Roster::read(&mut Reader(&to.0)).expect_err("unknown");
    assert!(told.what.contains("start a newer one"), "{told}");
}

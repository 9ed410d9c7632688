//! Single members, told what others would say.

mod calls;

use super::*;
use crate::founding::{Founder, Named};
use crate::types::{LogCount, Protocol};
use nuthatch_log::env::MemDisk;
use nuthatch_quorum::catalog::{Key, NodeRow, Txn, TxnId, Value};
use nuthatch_quorum::types::{BootCount, Incarnation, Revision};

const CLUSTER: u128 = 7;

fn founding() -> Founding {
    let founder = |id: u8| Founder {
        id: NodeId(id),
        node: Named {
            name: format!("n{id}"),
            keeper: Incarnation(id.into()),
            member: MemberId(id.into()),
        },
    };
    Founding {
        cluster: CLUSTER,
        founders: (1..=3).map(founder).collect(),
        logs: LogCount::ONE,
        active: Protocol::FIRST,
    }
}

fn member(disk: &MemDisk, nonce: u64) -> Member {
    member_of(1, disk, nonce)
}

fn member_of(id: u8, disk: &MemDisk, nonce: u64) -> Member {
    identity::prepare(disk).expect("an empty disk");
    identity::identify(disk, MemberId(id.into())).expect("identified");
    let disk = Arc::new(disk.clone());
    Member::open(disk, founding(), NodeId(id), nonce, Limits::default()).expect("opens")
}

/// Brings what members say to those that it is for, until nobody says anything; what else they ask for.
fn exchange(members: &mut [Member], mut effects: Vec<Effect>) -> Vec<Effect> {
    let mut others = vec![];
    while let Some(effect) = effects.pop() {
        let Effect::Send(envelope) = effect else {
            others.push(effect);
            continue;
        };
        let to = members.iter_mut().find(|member| member.id() == envelope.to).expect("a member");
        effects.extend(to.step(Event::Deliver(envelope)).expect("the disk works"));
    }
    others
}

/// Three members, the first of which leads.
fn led(disks: &[MemDisk; 3]) -> [Member; 3] {
    let mut members = [1, 2, 3].map(|id| member_of(id, &disks[usize::from(id) - 1], id.into()));
    while !members[0].is_leader() {
        // The others stand later.
        let effects = members[0].step(Event::Tick).expect("the disk works");
        exchange(&mut members, effects);
        for at in [1, 2] {
            if !members[at].takes_part() {
                let effects = members[at].step(Event::Tick).expect("the disk works");
                exchange(&mut members, effects);
            }
        }
    }
    members
}

/// A call that changes the row of a node that nobody else changes.
fn change_of(number: u64) -> Call {
    let row = NodeRow { incarnation: Incarnation(1), boots: BootCount(1), former: vec![] };
    let (id, key) = (TxnId { proposer: Incarnation(9), number }, Key::Node(NodeId(9)));
    let (revision, seen, value) = (Revision(0), Revision(0), Value::Node(row));
    Call::Propose(Txn { id, key, revision, seen, value })
}

fn say(to: &mut Member, from: u64, boot: Boot, body: Body) -> Vec<Effect> {
    let (from, to_id) = (MemberId(from), to.id());
    let envelope = Envelope { cluster: CLUSTER, from, boot, to: to_id, body };
    let coded = Envelope::decode(&envelope.encode()).expect("one form");
    assert_eq!(coded, envelope);
    to.step(Event::Deliver(Box::new(envelope))).expect("the disk works")
}

fn boot(count: u32, nonce: u64) -> Boot {
    Boot { count, nonce }
}

/// What a member says that has applied nothing.
fn held(boot: Boot) -> Body {
    Body::Held { boot, at: (0, ConfState { voters: vec![1, 2, 3], ..ConfState::default() }) }
}

fn bodies(effects: &[Effect]) -> Vec<&Body> {
    let mut bodies = vec![];
    for effect in effects {
        if let Effect::Send(envelope) = effect {
            bodies.push(&envelope.body);
        }
    }
    bodies
}

#[test]
fn it_neither_votes_nor_campaigns_before_a_majority_holds_its_boot_counter() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    for _ in 0..100 {
        let effects = one.step(Event::Tick).expect("the disk works");
        assert!(bodies(&effects).iter().all(|body| **body == Body::Begun), "{effects:?}");
    }
    say(&mut one, 2, boot(1, 22), held(boot(1, 10)));
    assert!(!one.takes_part(), "another beginning is held");
    say(&mut one, 2, boot(1, 22), held(boot(1, 11)));
    assert!(one.takes_part());
}

/// Otherwise an old image that starts often enough would count further than the true disk.
#[test]
fn a_start_is_another_beginning_only_after_the_last_one_was_held() {
    let disk = MemDisk::default();
    for nonce in [11, 12, 13] {
        assert_eq!(member(&disk, nonce).identity.boot, boot(1, 11));
    }
    let mut one = member(&disk, 14);
    say(&mut one, 2, boot(1, 22), held(boot(1, 11)));
    assert_eq!(member(&disk, 15).identity.boot, boot(2, 15));
}

#[test]
fn whoever_began_earlier_than_was_seen_is_told_so_also_after_a_new_start() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    say(&mut one, 2, boot(5, 22), Body::Begun);
    let mut one = member(&disk.crash(3), 12);
    for earlier in [boot(4, 22), boot(5, 23)] {
        let effects = say(&mut one, 2, earlier, Body::Begun);
        assert_eq!(bodies(&effects), [&Body::Outdated(boot(5, 22))]);
    }
    let effects = say(&mut one, 2, boot(6, 24), Body::Begun);
    assert_eq!(bodies(&effects), [&held(boot(6, 24))]);
}

#[test]
fn a_disk_that_was_set_back_takes_no_part_and_says_what_to_do() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    let effects = say(&mut one, 2, boot(1, 22), Body::Outdated(boot(1, 10)));
    let Some(Effect::Report(text)) = effects.first() else { panic!("{effects:?}") };
    assert!(text.contains("set back to an earlier image") && text.contains("Move"), "{text}");
    say(&mut one, 3, boot(1, 33), held(boot(1, 11)));
    assert!(!one.takes_part());
}

/// The library would end the process.
#[test]
fn a_disk_that_lacks_what_it_had_said_was_durable_takes_no_part() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    say(&mut one, 2, boot(1, 22), held(boot(1, 11)));
    let beat = Message {
        msg_type: MessageType::MsgHeartbeat,
        from: 2,
        to: 1,
        term: 1,
        commit: 9,
        ..Message::default()
    };
    say(&mut one, 2, boot(1, 22), Body::Raft(Box::new(beat)));
    assert_eq!(one.is_refused(), Some("the disk lacks what it had said was durable"));
}

#[test]
fn nothing_of_another_cluster_or_for_another_member_is_heard() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    let (from, boot) = (MemberId(2), boot(1, 22));
    for (cluster, to) in [(8, MemberId(1)), (CLUSTER, MemberId(3))] {
        let envelope = Envelope { cluster, from, boot, to, body: Body::Begun };
        let effects = one.step(Event::Deliver(Box::new(envelope))).expect("the disk works");
        assert_eq!(effects, []);
    }
    assert_eq!(one.holds(from), None);
}

/// All others that it knew have other disks now.
#[test]
fn a_member_that_was_away_asks_whoever_it_meets_and_learns_who_the_members_are() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    one.step(Event::Met(MemberId(22))).expect("the disk works");
    let effects = one.step(Event::Tick).expect("the disk works");
    let asks = |effect: &Effect| matches!(effect, Effect::Send(e) if e.to == MemberId(22));
    assert!(effects.iter().any(asks), "{effects:?}");
    let conf = ConfState { voters: vec![1, 22, 33], ..ConfState::default() };
    let held = Body::Held { boot: boot(1, 11), at: (9, conf) };
    say(&mut one, 22, boot(1, 5), held);
    assert!(one.takes_part());
}

/// It is no member yet and only one of the others can speak to it: that one is asked again, until it says that it is.
#[test]
fn a_new_disk_learns_from_one_that_holds_its_counter_that_it_is_a_member_now() {
    let disk = MemDisk::default();
    identity::prepare(&disk).expect("an empty disk");
    identity::identify(&disk, MemberId(44)).expect("identified");
    let mut four = member(&disk, 11);
    say(&mut four, 1, boot(1, 5), held(boot(1, 11)));
    assert!(!four.takes_part(), "one of three members holds it, and it is none");
    let effects = four.step(Event::Tick).expect("the disk works");
    let asks = |effect: &Effect| matches!(effect, Effect::Send(e) if e.to == MemberId(1) && e.body == Body::Begun);
    assert!(effects.iter().any(asks), "{effects:?}");
    let conf = ConfState { voters: vec![1, 44, 3], ..ConfState::default() };
    say(&mut four, 1, boot(1, 5), Body::Held { boot: boot(1, 11), at: (9, conf) });
    assert!(four.takes_part());
}

/// Until then its vote may be needed: a node that asks under its number is told nothing.
#[test]
fn a_removed_node_is_told_so_when_the_change_of_the_members_is_over() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    let by = Some("n4".to_owned());
    let gone = crate::roster::Gone {
        node: NodeId(3),
        name: "n3".to_owned(),
        member: MemberId(3),
        address: None,
        by: by.clone(),
    };
    one.roster.nodes.remove(&NodeId(3));
    one.roster.removed.push(gone);
    // This member still has it in the group.
    let effects = say(&mut one, 3, boot(1, 33), Body::Join(NodeId(3)));
    assert_eq!(bodies(&effects), [] as [&Body; 0]);
    let effects = say(&mut one, 33, boot(1, 34), Body::Join(NodeId(3)));
    assert_eq!(bodies(&effects), [&Body::Removed(by)], "it is in no group");
}

/// A member for which another one has voted.
fn leader(disk: &MemDisk) -> Member {
    let mut one = member(disk, 11);
    say(&mut one, 2, boot(1, 22), held(boot(1, 11)));
    let asks = |effects: &[Effect]| {
        bodies(effects).iter().any(|body| matches!(body, Body::Raft(message) if message.msg_type == MessageType::MsgRequestPreVote))
    };
    while !asks(&one.step(Event::Tick).expect("the disk works")) {}
    for msg_type in [MessageType::MsgRequestPreVoteResponse, MessageType::MsgRequestVoteResponse] {
        let vote = Message { msg_type, from: 2, to: 1, term: 1, ..Message::default() };
        say(&mut one, 2, boot(1, 22), Body::Raft(Box::new(vote)));
    }
    assert!(one.is_leader());
    one
}

/// A node that asked for them would be given a vote, or take one, before its time.
#[test]
fn steps_of_a_replacement_are_the_leaders_own() {
    let mut one = leader(&MemDisk::default());
    let replacing = crate::Replacing { old: NodeId(3), new: NodeId(4) };
    let disk = Change::Disk { node: NodeId(3), new: MemberId(33), former: MemberId(3) };
    let mut ask = |change| {
        let before = one.last();
        say(&mut one, 2, boot(1, 22), Body::Change { number: 1, change });
        one.last() - before
    };
    assert_eq!((ask(disk), ask(Change::Swap(replacing))), (0, 0));
    let (name, member) = ("n4".to_owned(), MemberId(4));
    assert_eq!(ask(Change::Join { name, member, address: None }), 1);
}

/// What was so when it was proposed may not be any more.
#[test]
fn a_node_is_not_removed_while_a_log_is_on_it() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    let (name, member) = ("n4".to_owned(), MemberId(4));
    let replacing = crate::Replacing { old: NodeId(3), new: NodeId(4) };
    let entry = |change: Change| Entry {
        entry_type: EntryType::EntryConfChangeV2,
        context: change.encode().into(),
        data: vec![0].into(),
        ..Entry::default()
    };
    for change in [
        Change::Join { name, member, address: None },
        Change::Begin(replacing),
        Change::Swap(replacing),
    ] {
        one.apply_change(&entry(change)).expect("a change");
    }
    assert_eq!(one.roster.replacing, Some(replacing), "its disk is in the log's set");
    assert!(one.voters().contains(&MemberId(3)));
    // Taken back: the logs are to be on the old node again, and the spare goes when they are.
    assert!(one.catalogs.iter().all(|log| log.is_on(NodeId(4))));
    one.apply_change(&entry(Change::Cancel(replacing))).expect("a change");
    assert_eq!(one.roster.replacing, None);
    let wish = one.catalogs[0].catalog().state().wish.value.keepers.clone();
    assert_eq!(wish, [1, 2, 3].map(NodeId), "as it was");
    one.apply_change(&entry(Change::Leave(NodeId(4)))).expect("a change");
    assert!(!one.roster.nodes.contains_key(&NodeId(4)), "no log was moved to it yet");
}

/// Its copy would go with it.
#[test]
fn a_spare_is_not_removed_while_a_log_is_on_it() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    let entry = |change: Change| Entry {
        entry_type: EntryType::EntryConfChangeV2,
        context: change.encode().into(),
        data: vec![0].into(),
        ..Entry::default()
    };
    let (name, member) = ("n4".to_owned(), MemberId(4));
    let replacing = crate::Replacing { old: NodeId(3), new: NodeId(4) };
    one.apply_change(&entry(Change::Join { name, member, address: None })).expect("a change");
    one.catalogs[0].wish_instead(&[NodeId(3)], NodeId(4));
    one.apply_change(&entry(Change::Leave(NodeId(4)))).expect("a change");
    assert!(one.roster.nodes.contains_key(&NodeId(4)));
    one.apply_change(&entry(Change::Begin(replacing))).expect("a change");
    one.apply_change(&entry(Change::Cancel(replacing))).expect("a change");
    one.apply_change(&entry(Change::Leave(NodeId(4)))).expect("a change");
    assert!(!one.roster.nodes.contains_key(&NodeId(4)));
}

/// After a shrink those that stay decide alone: two of them that lack what is committed could not.
#[test]
fn votes_go_only_while_a_majority_of_those_that_stay_has_everything() {
    let mut one = leader(&MemDisk::default());
    let going = [MemberId(3)];
    let all = one.raw.raft.raft_log.committed;
    let mut set = |member: u64, matched: u64| {
        let progress = one.raw.raft.mut_prs().get_mut(member).expect("a voter");
        (progress.matched, progress.recent_active) = (matched, true);
    };
    set(2, all);
    assert!(one.go_on_without(&going));
    let progress = one.raw.raft.mut_prs().get_mut(2).expect("a voter");
    progress.recent_active = false;
    assert!(!one.go_on_without(&going), "one of the two that stay was not heard");
    let progress = one.raw.raft.mut_prs().get_mut(2).expect("a voter");
    (progress.matched, progress.recent_active) = (0, true);
    one.raw.raft.raft_log.committed = all.max(1);
    assert!(!one.go_on_without(&going), "it lacks something");
}

/// Names of nodes in the wish of each log, in an order of its own.
#[test]
fn more_nodes_are_wished_for_and_fewer_again() {
    let mut one = member(&MemDisk::default(), 11);
    let keepers = |one: &Member| one.catalogs[0].catalog().state().wish.value.keepers.clone();
    one.catalogs[0].wish_with(&[NodeId(4), NodeId(5)], true);
    assert_eq!(keepers(&one), [1, 2, 3, 4, 5].map(NodeId));
    assert!(!one.catalogs[0].is_as_wished());
    one.catalogs[0].wish_with(&[NodeId(1), NodeId(3)], false);
    assert_eq!(keepers(&one), [2, 4, 5].map(NodeId));
    one.catalogs[0].wish_with(&[NodeId(1), NodeId(3)], true);
    one.catalogs[0].wish_with(&[NodeId(4), NodeId(5)], false);
    assert_eq!(keepers(&one), [1, 2, 3].map(NodeId));
    assert!(one.catalogs[0].is_as_wished());
}

/// Ticks after which a member asks for votes, which has heard of no leader.
fn stands_after(one: &mut Member) -> usize {
    let asks = |effects: &[Effect]| {
        let is_vote = |body: &&Body| matches!(body, Body::Raft(message) if message.msg_type == MessageType::MsgRequestPreVote);
        bodies(effects).iter().any(is_vote)
    };
    (1..200).find(|_| asks(&one.step(Event::Tick).expect("the disk works"))).expect("in the end")
}

#[test]
fn a_drained_member_stands_for_the_lead_after_all_others() {
    let disk = MemDisk::default();
    let mut one = member(&disk, 11);
    say(&mut one, 2, boot(1, 22), held(boot(1, 11)));
    let others = (2..=3).map(|node| setup::election_ticks(NodeId(node)));
    let last = others.max().expect("two");
    assert_eq!(stands_after(&mut one), setup::election_ticks(NodeId(1)));
    one.roster.drained.insert(NodeId(1));
    assert!(stands_after(&mut one) > last);
    // Who is drained with it does so at another time.
    let both = setup::election_ticks(NodeId(1)) + setup::RANK_TICKS * 3;
    assert_eq!(stands_after(&mut one), both, "each time anew");
    assert_eq!(one.first_but(MemberId(3)), Some(MemberId(2)));
    one.roster.drained.insert(NodeId(2));
    assert_eq!(one.first_but(MemberId(3)), Some(MemberId(1)), "none of them is drained less");
    one.roster.drained.clear();
    assert_eq!(stands_after(&mut one), setup::election_ticks(NodeId(1)));
}

/// Ticks of a leader that hears one of the two others only; what it says of nodes that are away, and at which tick.
fn alone_with_two(one: &mut Member, ticks: u64) -> Vec<(u64, NodeId, Option<NodeId>)> {
    let mut said = vec![];
    for tick in 1..=ticks {
        let effects = one.step(Event::Tick).expect("the disk works");
        for effect in effects {
            if let Effect::Absent { old, new, .. } = effect {
                said.push((tick, old, new));
            }
        }
        let msg_type = MessageType::MsgHeartbeatResponse;
        let beat = Message { msg_type, from: 2, to: 1, term: 1, ..Message::default() };
        say(one, 2, boot(1, 22), Body::Raft(Box::new(beat)));
    }
    said
}

/// A spare joins.
fn joins(one: &mut Member, node: u8) {
    let (name, member) = (format!("n{node}"), MemberId(node.into()));
    let context = Change::Join { name, member, address: None }.encode().into();
    let entry_type = EntryType::EntryConfChangeV2;
    let entry = Entry { entry_type, context, data: vec![0].into(), ..Entry::default() };
    one.apply_change(&entry).expect("a change");
}

#[test]
fn the_place_of_a_node_that_is_away_for_long_is_taken_by_a_spare() {
    let (two, three, four) = (NodeId(2), NodeId(3), NodeId(4));
    let mut one = leader(&MemDisk::default());
    assert_eq!(alone_with_two(&mut one, 200), [], "people do that");
    one.limits.replace_after_ticks = Some(40);
    assert_eq!(alone_with_two(&mut one, 39), []);
    let said = alone_with_two(&mut one, 100);
    assert!(matches!(said[..], [(1..=8, of, None)] if of == three), "said once: {said:?}");
    // One that only starts again is not away.
    say(&mut one, 3, boot(1, 33), Body::Begun);
    assert_eq!(alone_with_two(&mut one, 39), []);
    joins(&mut one, 4);
    say(&mut one, 4, boot(1, 44), Body::Begun);
    let last = one.last();
    one.roster.drained.insert(three);
    assert_eq!(alone_with_two(&mut one, 8), [], "it is away because somebody wants that");
    one.roster.drained.clear();
    let said = alone_with_two(&mut one, 4);
    assert!(matches!(said[..], [(_, of, Some(new))] if (of, new) == (three, four)), "{said:?}");
    let change = Change::decode(
        &one.raw
            .raft
            .raft_log
            .entries(last + 1, None, raft::GetEntriesContext::empty(false))
            .expect("there")[0]
            .context,
    );
    assert_eq!(change, Ok(Change::Begin(crate::Replacing { old: three, new: four })));
    // Whoever follows another leader knows nothing of who is away.
    one.raw.raft.become_follower(2, two.0.into());
    alone_with_two(&mut one, 1);
    assert!(!one.absences.is_over(MemberId(3), (one.ticks, 0)));
}

#[test]
fn whoever_leads_chooses_the_spare_by_the_zones_that_its_node_knows() {
    let zones = |of: &[(u8, &str)]| {
        let mut zones = crate::Zones::default();
        of.iter().for_each(|(node, zone)| zones.note(NodeId(*node), zone.parse().ok()));
        Event::Zones(zones)
    };
    let chosen = |known: Event, heard: &[u8]| {
        let mut one = leader(&MemDisk::default());
        (4..=6).for_each(|node| joins(&mut one, node));
        for node in heard {
            say(&mut one, (*node).into(), boot(1, 40 + u64::from(*node)), Body::Begun);
        }
        one.step(known).expect("the disk works");
        one.limits.replace_after_ticks = Some(20);
        let said = alone_with_two(&mut one, 30);
        let [(_, NodeId(3), chosen)] = said[..] else { panic!("one is away: {said:?}") };
        chosen.map(|node| node.0)
    };
    let all = || zones(&[(1, "a"), (2, "b"), (3, "c"), (4, "a"), (5, "b"), (6, "c")]);
    assert_eq!(chosen(zones(&[]), &[4, 5, 6]), Some(4));
    assert_eq!(chosen(all(), &[4, 5, 6]), Some(6));
    assert_eq!(chosen(all(), &[4, 5]), Some(4), "one that is not heard is not chosen");
    assert_eq!(chosen(zones(&[(1, "a"), (2, "b"), (4, "a"), (5, "d")]), &[4, 5]), Some(5));
}

/// Seed 505309. The library of one that it does not name takes no notice of it, and the next one may be long in coming.
#[test]
fn a_member_that_the_snapshot_does_not_name_gets_a_newer_one() {
    let mut one = leader(&MemDisk::default());
    let msg_type = MessageType::MsgAppendResponse;
    let has =
        Message { msg_type, from: 2, to: 1, term: 1, index: one.last(), ..Message::default() };
    say(&mut one, 2, boot(1, 22), Body::Raft(Box::new(has)));
    assert_eq!(one.position().1, one.last(), "it is committed and applied");
    joins(&mut one, 4);
    let send = |one: &mut Member, to: u64| {
        let mut snapshot =
            Message { msg_type: MessageType::MsgSnapshot, from: 1, to, ..Message::default() };
        snapshot.set_snapshot(one.raw.store().snapshot().clone());
        one.send_all(vec![snapshot]);
        one.compact().expect("the disk works");
        names(one.raw.store().snapshot(), 4)
    };
    assert!(!send(&mut one, 2), "that one is named");
    assert!(send(&mut one, 4));
}

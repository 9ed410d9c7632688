//! Calls: together, sent again, forgotten, and where the leader is left out.

use super::*;

/// On a slow disk a sync for each would take longer than it takes until calls are sent again.
#[test]
fn calls_that_come_while_the_disk_is_busy_are_durable_together() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    let before = disks[0].operations();
    for number in 1..=40 {
        let call = Event::Call { number, log: LogNumber::FIRST, call: change_of(number) };
        members[0].take(call).expect("the disk works");
    }
    let effects = members[0].settle().expect("the disk works");
    assert_eq!(disks[0].operations() - before, 2, "one write, one sync");
    let others = exchange(&mut members, effects);
    let answered = others.iter().filter(|one| matches!(one, Effect::Answer { .. })).count();
    assert_eq!(answered, 40, "{others:?}");
}

/// Whoever waits for long sends a call again; on its way it may be behind its own answer.
#[test]
fn a_transaction_that_was_applied_is_answered_again_without_another_entry() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    let mut answers = vec![];
    for number in [1, 2] {
        let call = Event::Call { number, log: LogNumber::FIRST, call: change_of(7) };
        let effects = members[0].step(call).expect("the disk works");
        let others = exchange(&mut members, effects);
        let [Effect::Answer { reply, .. }] = &others[..] else { panic!("{others:?}") };
        answers.push((reply.clone(), members[0].position().1));
    }
    assert!(answers[0].0.outcome.is_some_and(|(_, applied)| applied.is_ok()), "{answers:?}");
    assert_eq!(answers[0], answers[1]);
    // That it leads is confirmed before it is answered.
    let call = Event::Call { number: 3, log: LogNumber::FIRST, call: change_of(7) };
    let effects = members[0].step(call).expect("the disk works");
    assert!(!effects.iter().any(|one| matches!(one, Effect::Answer { .. })), "{effects:?}");
}

/// On a slow disk the answers come after the call was sent again, and both are taken in together.
#[test]
fn a_read_that_is_sent_again_keeps_the_confirmation_that_it_waits_for() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    // A transaction of now, so that it may confirm reads.
    let first = Event::Call { number: 1, log: LogNumber::FIRST, call: change_of(7) };
    let effects = members[0].step(first).expect("the disk works");
    exchange(&mut members, effects);
    for call in [Call::Read, change_of(7)] {
        let ask = ask_of(&members[1], 5, call);
        let mut answers = vec![];
        for effect in members[0].step(ask.clone()).expect("the disk works") {
            let Effect::Send(envelope) = effect else { panic!("{effect:?}") };
            let to = members.iter_mut().find(|one| one.id() == envelope.to).expect("a member");
            answers.extend(to.step(Event::Deliver(envelope)).expect("the disk works"));
        }
        members[0].take(ask).expect("the disk works");
        for effect in answers {
            let Effect::Send(envelope) = effect else { panic!("{effect:?}") };
            members[0].take(Event::Deliver(envelope)).expect("the disk works");
        }
        let effects = members[0].settle().expect("the disk works");
        let answer = |body: &&&Body| matches!(body, Body::Answer { number: 5, .. });
        assert_eq!(bodies(&effects).iter().filter(answer).count(), 1, "{effects:?}");
    }
}

/// Each log of each node looks at the catalog several times a second.
#[test]
fn reads_that_come_together_are_confirmed_together_and_later_ones_anew() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    transact(&mut members, 1..=1);
    for round in 0..2 {
        for number in 1..=5 {
            let call = Event::Call {
                number: 10 * (round + 1) + number,
                log: LogNumber::FIRST,
                call: Call::Read,
            };
            members[0].take(call).expect("the disk works");
        }
        let effects = members[0].settle().expect("the disk works");
        let sent = bodies(&effects).len();
        assert_eq!((effects.len(), sent), (2, 2), "each of the others is asked once: {effects:?}");
        let others = exchange(&mut members, effects);
        let answered = others.iter().filter(|one| matches!(one, Effect::Answer { .. })).count();
        assert_eq!(answered, 5, "{others:?}");
    }
}

/// What is asked of a leader by another member, in one event.
fn ask_of(asks: &Member, number: u64, call: Call) -> Event {
    let (from, boot) = (asks.id(), asks.identity.boot);
    let body = Body::Ask { number, log: LogNumber::FIRST, call };
    Event::Deliver(Box::new(Envelope { cluster: CLUSTER, from, boot, to: MemberId(1), body }))
}

/// Transactions of these numbers, one after the other; how each ended.
fn transact(members: &mut [Member], numbers: std::ops::RangeInclusive<u64>) -> Vec<bool> {
    let mut applied = vec![];
    for number in numbers {
        let call = Event::Call { number, log: LogNumber::FIRST, call: change_of(number) };
        let effects = members[0].step(call).expect("the disk works");
        let others = exchange(members, effects);
        let [Effect::Answer { reply, .. }] = &others[..] else { panic!("{others:?}") };
        applied.push(reply.outcome.expect("of a transaction").1.is_ok());
    }
    applied
}

/// It compares a revision: what it has changed itself is in its way.
#[test]
fn a_transaction_whose_outcome_was_forgotten_is_not_applied_again() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    assert_eq!(transact(&mut members, 1..=1), [true]);
    let revision = members[0].catalog().state().revision;
    transact(&mut members, 2..=65);
    assert_eq!(members[0].catalogs[0].outcome(TxnId { proposer: Incarnation(9), number: 1 }), None);
    let before = members[0].position().1;
    assert_eq!(transact(&mut members, 1..=1), [false]);
    assert_eq!(members[0].position().1, before + 1, "another entry: nobody knows the first one");
    assert_eq!(members[0].catalog().state().revision, revision);
}

/// Its outcome was known when it was sent again, and is not when the leader is confirmed: no answer, rather than one without
/// an outcome. It comes again.
#[test]
fn a_transaction_that_is_forgotten_before_the_leader_is_confirmed_is_proposed_anew() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    transact(&mut members, 1..=1);
    let again = Event::Call { number: 100, log: LogNumber::FIRST, call: change_of(1) };
    let confirms = members[0].step(again).expect("the disk works");
    transact(&mut members, 2..=65);
    let others = exchange(&mut members, confirms);
    assert_eq!(others, [], "it has no answer yet");
    let mut answers = vec![];
    for _ in 0..4 {
        let effects = members[0].step(Event::Tick).expect("the disk works");
        answers.extend(exchange(&mut members, effects));
    }
    let [Effect::Answer { number: 100, reply }] = &answers[..] else { panic!("{answers:?}") };
    let (id, outcome) = reply.outcome.expect("of a transaction");
    assert!(id.number == 1 && outcome.is_err(), "{outcome:?}");
}

/// Seed 802368: the library ended, since a leader that it left out has no progress in which to note what was persisted.
#[test]
fn a_leader_is_left_out_of_the_members_in_the_step_in_which_it_writes_entries() {
    let disks = [(); 3].map(|()| MemDisk::default());
    let mut members = led(&disks);
    transact(&mut members, 1..=1);
    let end = members[0].last() + 2;
    let (node, new, former) = (NodeId(1), MemberId(4), MemberId(1));
    members[0].propose_change(&Change::Disk { node, new, former });
    let mut effects = members[0].settle().expect("the disk works");
    // That the end of the change is held comes later.
    let mut held = vec![];
    let mut ticks = 0;
    while held.len() < 2 {
        if effects.is_empty() {
            // A beat brings the end to whoever was the first to hold the beginning.
            effects = members[0].step(Event::Tick).expect("the disk works");
            ticks += 1;
            assert!(ticks < 10, "the end of the change is not sent");
            continue;
        }
        let Effect::Send(envelope) = effects.remove(0) else { continue };
        let is_held = |message: &Message| {
            message.msg_type == MessageType::MsgAppendResponse && message.index >= end
        };
        if matches!(&envelope.body, Body::Raft(message) if is_held(message)) {
            held.push(envelope);
        } else if let Some(to) = members.iter_mut().find(|one| one.id() == envelope.to) {
            effects.extend(to.step(Event::Deliver(envelope)).expect("the disk works"));
        }
    }
    assert_eq!((members[0].last(), members[0].is_settled()), (end, false));
    let ask = ask_of(&members[1], 5, change_of(2));
    members[0].take(ask).expect("the disk works");
    for envelope in held {
        members[0].take(Event::Deliver(envelope)).expect("the disk works");
    }
    members[0].settle().expect("the disk works");
    assert!(members[0].is_settled() && !members[0].voters().contains(&former));
    assert_eq!((members[0].is_leader(), members[0].last()), (false, end + 1));
}

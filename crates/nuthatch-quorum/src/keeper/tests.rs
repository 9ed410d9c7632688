//! One keeper on a directory in memory: named schedules of a few messages, most of which a random schedule has
//! found to go wrong once.

use super::*;
use crate::message::Reach;
use crate::store::{Record, Slot};
use crate::types::{Sum, WallTime};

const MINE: Incarnation = Incarnation(7);
const OWNER: Incarnation = Incarnation(9);
const NODE: NodeId = NodeId(1);

fn promise(epoch: u32) -> Promise {
    Promise { epoch: Epoch(epoch), owner: OWNER }
}

/// The entries of a log of epoch 1.
fn entries(count: u64) -> Vec<Entry> {
    let mut all: Vec<Entry> = vec![];
    for lsn in (1..=count).map(Lsn) {
        let start = Body::Start { owner: OWNER };
        let frame = Body::Frame { payload: lsn.0, len: 10 };
        let body = if lsn == Lsn(1) { start } else { frame };
        let prev = all.last().map_or(Sum(0), |entry| entry.sum);
        all.push(Entry::new(lsn, Epoch(1), prev, lsn.before(), WallTime(0), body));
    }
    all
}

/// A directory with `count` entries of epoch 1, whose owner has the promise.
fn image(count: u64) -> Image {
    let identity =
        Identity { node: NODE, incarnation: MINE, boots: BootCount(4), seen: Revision(3) };
    let promises = [Record::Good(promise(1)); 2];
    let mut image = Image { identity: Record::Good(identity), promises, ..Image::default() };
    entries(count).iter().for_each(|entry| image.write(entry.lsn, Slot::Bytes(*entry)));
    image
}

/// A keeper that has started on a directory long ago, and what it does from then on.
fn keeper(image: &Image) -> (Keeper, Out) {
    let mut out = Out::new(NODE, MINE);
    let names = Names { node: NODE, fresh: Incarnation(8), former: MINE };
    let mut keeper = Keeper::open(NODE, image, names, u64::MAX, Time(0), &mut out);
    keeper.synced(SyncId(1), true, &mut out);
    (keeper, Out::new(NODE, MINE))
}

fn later() -> Time {
    Time(LEASE_GRANTED)
}

fn tell(keeper: &mut Keeper, message: Message, out: &mut Out) {
    let envelope = Envelope { from: NodeId(0), sender: OWNER, to: NODE, disk: Some(MINE), message };
    keeper.receive(&envelope, later(), out);
}

/// All syncs end well; what the keeper says then.
fn said(keeper: &mut Keeper, out: &mut Out) -> Vec<Message> {
    for sync in (1..100).map(SyncId) {
        keeper.synced(sync, true, out);
    }
    let sent = out.effects.iter().filter_map(|effect| match effect {
        Effect::Send(envelope) => Some(envelope.message.clone()),
        _ => None,
    });
    sent.collect()
}

fn ops(out: &Out) -> Vec<StoreOp> {
    let stored = out.effects.iter().filter_map(|effect| match effect {
        Effect::Store(ops) => Some(ops.clone()),
        _ => None,
    });
    stored.flatten().collect()
}

fn append(after: u64, entries: &[Entry], reach: Reach) -> Message {
    let prev = self::entries(after).last().map_or(Sum(0), |entry| entry.sum);
    Message::Append {
        epoch: Epoch(1),
        after: Lsn(after),
        prev,
        entries: entries.to_vec(),
        commit: Lsn(after),
        reach,
    }
}

fn wholeness_of(keeper: &mut Keeper, out: &mut Out) -> Wholeness {
    tell(keeper, Message::Seal { epoch: Epoch(2) }, out);
    let sealed = said(keeper, out).into_iter().find_map(|message| match message {
        Message::Sealed(sealed) => Some(sealed.wholeness),
        _ => None,
    });
    sealed.expect("it is sealed")
}

/// Two promises in quick succession: at no moment can a power cut tear both slots.
#[test]
fn a_power_cut_between_two_promises_leaves_one_slot() {
    let mut on_disk = image(3);
    let (mut keeper, mut out) = keeper(&on_disk);
    tell(&mut keeper, Message::Seal { epoch: Epoch(2) }, &mut out);
    tell(&mut keeper, Message::Seal { epoch: Epoch(3) }, &mut out);
    let ops = ops(&out);
    for stretch in ops.split(|op| *op == StoreOp::Barrier) {
        let mut torn = on_disk.clone();
        for op in stretch {
            if let StoreOp::Promise { slot, .. } = op {
                torn.promises[*slot] = Record::Damaged;
            }
        }
        assert!(torn.promises.iter().any(|slot| slot.good().is_some()), "{stretch:?}");
        stretch.iter().for_each(|op| on_disk.apply(op));
    }
    assert_eq!(on_disk.promises, [Record::Good(promise(3)); 2]);
}

/// The start of an epoch vouches for the entry before it, which nobody else may have yet.
#[test]
fn the_start_of_an_epoch_never_survives_without_the_entry_before_it() {
    let (mut keeper, mut out) = keeper(&image(3));
    let all = entries(4);
    let reach = Reach { boots: BootCount(4), last: Lsn(4) };
    tell(&mut keeper, append(3, &all[3..], reach), &mut out);
    tell(&mut keeper, Message::Seal { epoch: Epoch(2) }, &mut out);
    let start = Message::Start { epoch: Epoch(2), from: Lsn(4), sum: all[3].sum };
    tell(&mut keeper, start, &mut out);
    let ops = ops(&out);
    let starts = |op: &StoreOp| matches!(op, StoreOp::Append(e) if e.epoch == Epoch(2));
    let at = ops.iter().position(starts).expect("it starts");
    assert_eq!(ops[at - 1], StoreOp::Barrier);
}

/// A part of what was lost does not make a disk that was cut look whole.
#[test]
fn a_disk_that_was_cut_stays_cut_until_all_of_the_epoch_is_there() {
    let mut on_disk = image(5);
    on_disk.write(Lsn(5), Slot::Garbage);
    let all = entries(7);
    for (boots, last, upto, expected) in [
        (4, 7, 5, Wholeness::Cut),
        (3, 5, 5, Wholeness::Cut),
        (4, 5, 5, Wholeness::Whole),
        (4, 7, 7, Wholeness::Whole),
    ] {
        let (mut keeper, mut out) = keeper(&on_disk);
        let reach = Reach { boots: BootCount(boots), last: Lsn(last) };
        tell(&mut keeper, append(4, &all[4..upto], reach), &mut out);
        assert_eq!(wholeness_of(&mut keeper, &mut out), expected, "{boots} {last} {upto}");
    }
}

/// What a cut has cost is told also where entries before it are damaged.
#[test]
fn a_disk_that_was_cut_and_damaged_says_both() {
    let mut on_disk = image(5);
    on_disk.write(Lsn(5), Slot::Garbage);
    on_disk.write(Lsn(2), Slot::Garbage);
    let (mut keeper, mut out) = keeper(&on_disk);
    let expected = Wholeness::Partial { first: Lsn(2), cut: true };
    assert_eq!(wholeness_of(&mut keeper, &mut out), expected);
}

/// A log that is longer than the donor's is not cut back to an entry that is damaged: it would end in that.
#[test]
fn a_cut_back_waits_until_the_new_end_can_be_read() {
    let mut on_disk = image(5);
    on_disk.write(Lsn(3), Slot::Garbage);
    let (mut keeper, mut out) = keeper(&on_disk);
    tell(&mut keeper, Message::Seal { epoch: Epoch(2) }, &mut out);
    let all = entries(5);
    let bring = |after: u64, entries: &[Entry]| Message::Bring {
        epoch: Epoch(2),
        after: Lsn(after),
        prev: if after == 0 { Sum(0) } else { all[after as usize - 1].sum },
        entries: entries.to_vec(),
        end: Lsn(3),
    };
    tell(&mut keeper, bring(0, &all[..2]), &mut out);
    assert_eq!(keeper.log().last(), Lsn(5), "nothing is cut yet");
    tell(&mut keeper, bring(2, &all[2..3]), &mut out);
    assert_eq!((keeper.log().last(), keeper.log().first_damaged()), (Lsn(3), None));
}

/// That an epoch has started here is no answer while what it started with is damaged.
#[test]
fn a_keeper_that_was_damaged_since_its_start_does_not_say_again_that_it_has_started() {
    let mut on_disk = image(3);
    on_disk.write(Lsn(1), Slot::Garbage);
    let (mut keeper, mut out) = keeper(&on_disk);
    let start = Message::Start { epoch: Epoch(1), from: Lsn(1), sum: entries(1)[0].sum };
    tell(&mut keeper, start, &mut out);
    let said = said(&mut keeper, &mut out);
    let refused = |message: &Message| {
        matches!(message, Message::Refused { why: Refusal::NotAtStart { .. }, .. })
    };
    assert!(said.iter().any(refused), "{said:?}");
    assert!(!said.contains(&Message::Started { epoch: Epoch(1) }), "{said:?}");
}

#[test]
fn a_keeper_without_room_heals_and_promises_and_takes_nothing_longer() {
    let mut on_disk = image(4);
    on_disk.write(Lsn(2), Slot::Garbage);
    let (mut keeper, mut out) = keeper(&on_disk);
    keeper.set_room(false);
    let all = entries(6);
    let reach = Reach { boots: BootCount(4), last: Lsn(6) };
    tell(&mut keeper, append(1, &all[1..], reach), &mut out);
    assert_eq!((keeper.log().last(), keeper.log().first_damaged()), (Lsn(4), None));
    let said = said(&mut keeper, &mut out);
    assert_eq!(said, [Message::Refused { epoch: Epoch(1), why: Refusal::Full }]);
    assert_eq!(wholeness_of(&mut keeper, &mut out), Wholeness::Whole);
}

#[test]
fn after_a_write_that_failed_a_keeper_says_nothing_until_it_was_started_again() {
    let (mut keeper, mut out) = keeper(&image(3));
    let reach = Reach { boots: BootCount(4), last: Lsn(4) };
    tell(&mut keeper, append(3, &entries(4)[3..], reach), &mut out);
    keeper.write_failed(StoreError::Full, &mut out);
    assert!(keeper.is_stale());
    assert_eq!(said(&mut keeper, &mut out), []);
}

#[test]
fn what_cannot_be_read_any_more_is_told_and_healed_by_what_belongs_there() {
    let (mut keeper, mut out) = keeper(&image(5));
    keeper.verified(&[Lsn(3)], &mut out);
    assert_eq!(keeper.damaged(), Some(Lsn(3)));
    let all = entries(5);
    let reach = Reach { boots: BootCount(4), last: Lsn(5) };
    let stray = Entry::new(Lsn(3), Epoch(1), all[1].sum, Lsn(2), WallTime(0), all[4].body);
    tell(&mut keeper, append(2, &[stray], reach), &mut out);
    assert_eq!(keeper.damaged(), Some(Lsn(3)), "the entry behind it names another one");
    tell(&mut keeper, append(2, &all[2..3], reach), &mut out);
    assert_eq!(keeper.damaged(), None);
    out.effects.clear();
    keeper.verified(&[Lsn(5)], &mut out);
    let note = CutNote {
        at: Position { accepted: Epoch(1), lsn: Lsn(4) },
        promised: keeper.promise().epoch,
    };
    let noted = Effect::Store(vec![StoreOp::NoteCut(note), StoreOp::Barrier]);
    assert!(out.effects.contains(&noted) && !keeper.is_stale(), "first it is noted");
    let sync = out.effects.iter().find_map(|effect| match effect {
        Effect::Sync(sync) => Some(*sync),
        _ => None,
    });
    keeper.synced(sync.expect("durably"), true, &mut out);
    assert!(keeper.is_stale(), "the last entry says how far the log goes");
}

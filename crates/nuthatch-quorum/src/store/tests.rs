//! What is read from directories that were torn, damaged, emptied.

use super::*;
use crate::entry::Body;
use crate::types::{Epoch, NodeId, Revision, Sum, WallTime};

const MINE: Incarnation = Incarnation(7);
const FRESH: Incarnation = Incarnation(8);

/// A directory with `entries` entries of epoch 1.
fn image(entries: u64) -> Image {
    let promise = Promise { epoch: Epoch(1), owner: MINE };
    let mut image = Image {
        identity: Record::Good(Identity {
            node: NodeId(0),
            incarnation: MINE,
            boots: BootCount(4),
            seen: Revision(3),
        }),
        promises: [Record::Good(promise); 2],
        ..Image::default()
    };
    let mut prev = Sum(0);
    for lsn in (1..=entries).map(Lsn) {
        let body = if lsn == Lsn(1) {
            Body::Start { owner: MINE }
        } else {
            Body::Frame { payload: lsn.0, len: 10 }
        };
        let entry = Entry::new(lsn, Epoch(1), prev, lsn.before(), WallTime(0), body);
        image.write(lsn, Slot::Bytes(entry));
        prev = entry.sum;
    }
    image
}

fn opened(image: &Image) -> Opened {
    open(image, Names { node: NodeId(0), fresh: FRESH, former: MINE }).expect("a disk of this node")
}

#[test]
fn a_torn_tail_is_cut_and_stays_known_as_cut() {
    let mut image = image(5);
    image.write(Lsn(5), Slot::Garbage);
    let first = opened(&image);
    assert_eq!((first.log.last(), first.log.first_damaged()), (Lsn(4), None));
    let note = CutNote { at: first.log.position(), promised: Epoch(1) };
    assert_eq!(first.cut, Some(note), "told at the first start");
    first.ops.iter().for_each(|op| image.apply(op));
    let second = opened(&image);
    assert_eq!(second.cut, Some(note), "a second start finds no torn bytes, and still knows");
    assert_eq!(second.identity.boots, BootCount(4), "raised only beside the catalog");
}

#[test]
fn what_a_later_entry_vouches_for_is_damaged_and_not_absent() {
    let mut image = image(5);
    let misplaced = image.slot(Lsn(5));
    image.write(Lsn(2), Slot::Garbage);
    image.write(Lsn(4), misplaced);
    let opened = opened(&image);
    assert_eq!((opened.log.last(), opened.log.first_damaged()), (Lsn(5), Some(Lsn(2))));
    assert!(opened.log.get(Lsn(3)).is_some() && opened.log.get(Lsn(4)).is_none());
    assert_eq!(opened.log.position().accepted, Epoch(1));
    assert_eq!(opened.cut, None);
}

#[test]
fn one_slot_of_a_promise_suffices_and_the_other_is_mended() {
    for slot in 0..2 {
        let mut image = image(3);
        image.promises[slot] = Record::Damaged;
        let opened = opened(&image);
        assert_eq!((opened.identity.incarnation, opened.promise.epoch), (MINE, Epoch(1)));
        opened.ops.iter().for_each(|op| image.apply(op));
        assert_eq!(image.promises[slot], Record::Good(opened.promise));
    }
}

#[test]
fn without_promise_or_identity_a_directory_begins_anew_and_keeps_what_it_held() {
    let empty = Image::default();
    let mut forgot = image(3);
    forgot.promises = [Record::Damaged; 2];
    let mut unnamed = image(3);
    unnamed.identity = Record::Damaged;
    for (mut image, kept) in [(empty, 0), (forgot, 3), (unnamed, 3)] {
        let opened = opened(&image);
        assert_eq!((opened.identity.incarnation, opened.log.last()), (FRESH, Lsn(0)));
        opened.ops.iter().for_each(|op| image.apply(op));
        assert_eq!((image.aside.len(), image.log.len()), (kept, 0));
    }
}

#[test]
fn a_rotten_note_of_a_cut_still_says_that_something_was_cut() {
    let mut image = image(5);
    image.cut = Record::Damaged;
    let opened = opened(&image);
    assert_eq!(opened.cut, Some(CutNote { at: opened.log.position(), promised: Epoch(1) }));
}

#[test]
fn a_directory_of_another_node_is_not_touched() {
    let names = Names { node: NodeId(1), fresh: FRESH, former: MINE };
    assert_eq!(open(&image(5), names).err(), Some(ForeignDisk { node: NodeId(0) }));
}

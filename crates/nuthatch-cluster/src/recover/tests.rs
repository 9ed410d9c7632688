//! Keepers on disks in memory, of which some entries cannot be read.

use super::*;
use crate::coding::payload_hash;
use crate::journal::Sizes;
use crate::operation::{FileId, Operation, begin_payload};
use nuthatch_log::env::MemDisk;
use nuthatch_quorum::entry::Base;
use nuthatch_quorum::store::{BaseNote, Identity, StoreOp};
use nuthatch_quorum::types::{BootCount, Epoch, Promise, Revision};

/// An entry of a log and its payload.
type Written = (Entry, Vec<u8>);

/// A log that writes its numbers to a file, each entry one; of these epochs.
fn history(epochs: &[u32]) -> Vec<Written> {
    let mut all: Vec<Written> = vec![];
    for (lsn, epoch) in (1..).zip(epochs.iter().copied().map(Epoch)) {
        let mut to = begin_payload(epoch, lsn);
        if lsn == 1 {
            Operation::Create { path: "a".to_owned(), file: FileId(1) }.encode(&mut to);
        }
        let bytes = lsn.to_le_bytes();
        Operation::Write { file: FileId(1), at: 8 * lsn, bytes: &bytes }.encode(&mut to);
        let prev = all.last().map_or(Sum(0), |(entry, _)| entry.sum);
        let len = u32::try_from(to.0.len()).expect("small");
        let body = Body::Frame { payload: payload_hash(&to.0), len };
        let stamp = WallTime(1000 + lsn);
        all.push((Entry::new(Lsn(lsn), epoch, prev, Lsn(lsn - 1), stamp, body), to.0));
    }
    all
}

/// A keeper of these entries, of which the first `applied` are in its files durably.
fn keeper(node: u8, all: &[Written], applied: usize) -> Source {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::default());
    let sizes = Sizes { file: 256 << 10, zero_ahead: 64 << 10, large_record: 32 << 10 };
    let (mut dir, _) = KeeperDir::open_with(Arc::clone(&disk), sizes).expect("opens");
    let incarnation = Incarnation(node.into());
    let identity =
        Identity { node: NodeId(node), incarnation, boots: BootCount(1), seen: Revision(0) };
    let promise = Promise { epoch: Epoch(1), owner: incarnation };
    let mut ops = vec![StoreOp::Promise { slot: 0, promise }, StoreOp::Identity(identity)];
    ops.extend(all.iter().map(|(entry, _)| StoreOp::Append(*entry)));
    ops.push(StoreOp::Barrier);
    let payload = |entry: &Entry| {
        let written = all.iter().find(|(of, _)| of == entry).expect("one of them");
        Bytes::from(written.1.clone())
    };
    dir.store(&ops, payload).expect("stored");
    let mut replica = Replica::open(Arc::clone(&disk)).expect("opens");
    for (entry, payload) in &all[..applied] {
        replica.apply(entry.lsn, payload).expect("applied");
    }
    replica.mark().expect("marked");
    drop(dir);
    of_disk(LogNumber::FIRST, Path::new(&format!("n{node}")), disk).expect("it can be read")
}

fn lose(source: &mut Source, lsn: u64) {
    source.image.write(Lsn(lsn), Slot::Garbage);
    (source.end, source.was_cut) = end(&source.image);
}

/// The keeper that is copied, the last entry that can be read, and whether the log is short then.
fn found(sources: &[Source]) -> (u8, u64, bool) {
    let best = best(sources).expect("one");
    let reach = reach(best, sources);
    assert!([0, 1000 + reach.last.0].contains(&reach.written.0), "{reach:?}");
    (best.identity.0.0, reach.last.0, reach.is_short())
}

#[test]
fn a_log_goes_to_its_last_entry_whatever_is_lost_before() {
    let whole = history(&[1, 1, 2, 2]);
    let at = |source: &Source| (source.end.accepted.0, source.end.lsn.0, source.was_cut);
    assert_eq!(at(&keeper(1, &whole, 0)), (2, 4, false));
    assert_eq!(at(&keeper(1, &[], 0)), (0, 0, false));
    let mut gap = keeper(1, &whole, 0);
    lose(&mut gap, 2);
    assert_eq!(at(&gap), (2, 4, false));
    let mut torn = keeper(1, &whole, 0);
    lose(&mut torn, 4);
    assert_eq!(at(&torn), (2, 3, true), "it may have been acknowledged");
    // It was trimmed, and has gone further since.
    let mut trimmed = keeper(1, &whole, 3);
    let (third, _) = whole[2];
    let start = Lsn(3);
    let base = Base { lsn: Lsn(3), sum: third.sum, epoch: Epoch(2), stamp: third.stamp, start };
    let reach = Position { accepted: Epoch(2), lsn: Lsn(5) };
    trimmed.image.base = Record::Good(BaseNote { base, reach });
    (trimmed.end, trimmed.was_cut) = end(&trimmed.image);
    assert_eq!(at(&trimmed), (2, 5, false));
    assert_eq!(found(&[trimmed]), (1, 4, true), "entry 5 is nowhere");
}

#[test]
fn the_newest_epoch_counts_and_then_the_longest_log() {
    let (old, new) = (history(&[1, 1, 1, 1, 1, 1]), history(&[1, 1, 3]));
    assert_eq!(found(&[keeper(1, &old, 0), keeper(2, &new, 0)]), (2, 3, false));
    assert_eq!(found(&[keeper(1, &old, 0), keeper(2, &old[..5], 5)]), (1, 6, false));
    assert_eq!(found(&[keeper(1, &new, 1), keeper(2, &new, 2)]), (2, 3, false));
    assert!(best(&[]).is_none());
}

#[test]
fn what_one_keeper_cannot_read_others_have() {
    let whole = history(&[1, 1, 1, 1, 1, 1]);
    let (mut one, mut other) = (keeper(1, &whole, 0), keeper(2, &whole[..5], 0));
    lose(&mut one, 2);
    lose(&mut other, 4);
    assert_eq!(found(&[one, other]), (1, 6, false));
    let (mut one, mut other) = (keeper(1, &whole, 0), keeper(2, &whole[..5], 0));
    lose(&mut one, 4);
    lose(&mut other, 4);
    assert_eq!(found(&[one, other]), (1, 3, true));
    // Another branch of before the newest epoch: nothing of it is taken.
    let branch = history(&[1, 1, 2, 2]);
    let mut newest = keeper(1, &history(&[1, 1, 1, 3]), 0);
    lose(&mut newest, 3);
    assert_eq!(found(&[keeper(2, &branch, 0), newest]), (1, 2, true));
    // The last one, of which it is only known that it was there.
    let (mut noted, longer) = (keeper(1, &whole[..4], 4), keeper(2, &whole[..5], 0));
    noted.end = Position { accepted: Epoch(1), lsn: Lsn(5) };
    assert_eq!(found(&[noted, longer]), (1, 5, false));
}

#[test]
fn what_the_files_have_need_not_be_read_again() {
    let whole = history(&[1, 1, 1, 1, 1, 1]);
    let mut one = keeper(1, &whole, 4);
    lose(&mut one, 2);
    assert_eq!(found(std::slice::from_ref(&one)), (1, 6, false));
    lose(&mut one, 4);
    assert_eq!(found(std::slice::from_ref(&one)), (1, 6, false));
    lose(&mut one, 5);
    assert_eq!(found(&[one]), (1, 4, true));
}

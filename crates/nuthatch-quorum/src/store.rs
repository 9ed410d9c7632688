//! What a keeper has on its disk, and how it is read again after a stop.
//!
//! The store is abstract: a keeper says what to write ([`StoreOp`]) and asks for syncs; a driver
//! applies that to files, the simulator to an [`Image`]. Whatever is synced is a prefix of the
//! operations between two barriers; of what is not synced any part may survive, torn.

use crate::entry::{Base, Chain, Entry};
use crate::rules::Rule;
use crate::types::{BootCount, Epoch, Incarnation, Lsn, NodeId, Position, Promise, Revision};
use thiserror::Error;

/// Which disk this is and how often it was begun with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The node that made the directory: no other one uses it.
    pub node: NodeId,
    /// Identity of the disk.
    pub incarnation: Incarnation,
    /// Raised at each start, from what the catalog says and before anything is answered.
    pub boots: BootCount,
    /// The greatest revision of the catalog that this node has seen.
    pub seen: Revision,
}

/// That a torn tail was cut off, and where. Kept until a later epoch starts here, or the owner shows that all of
/// the epoch is here: neither a second stop nor a part of what was lost must make a disk that was cut look
/// whole (R2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CutNote {
    /// Position of the log after the cut.
    pub at: Position,
    /// The promised epoch then: what was cut may have been said done in it, even if it began behind the cut.
    pub promised: Epoch,
}

/// What was trimmed, and how far the log reached then. Whoever finds less later has lost the rest: what would have
/// shown that, an entry at the wrong place, may be among what was trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BaseNote {
    /// Where the entries begin.
    pub base: Base,
    /// How far the log was durable when this was noted. A log of a later epoch goes further, whatever its length.
    pub reach: Position,
}

impl BaseNote {
    /// A log that is trimmed as a whole.
    #[must_use]
    pub fn all(base: Base) -> Self {
        Self { base, reach: Position { accepted: base.epoch, lsn: base.lsn } }
    }
}

/// One change of the directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreOp {
    /// Writes an entry behind the last one.
    Append(Entry),
    /// Writes an entry anew whose bytes were damaged.
    Heal(Entry),
    /// Copies everything behind an entry to `torn/`.
    SetAside {
        /// The last entry that is not copied.
        after: Lsn,
    },
    /// Removes everything behind an entry.
    Cut {
        /// The last entry that stays.
        after: Lsn,
    },
    /// Notes that entries up to here are trimmed: the files that they made are durable.
    NoteBase(BaseNote),
    /// Removes entries that are trimmed.
    Drop {
        /// The last one.
        upto: Lsn,
    },
    /// Takes what another directory holds up to `base` in place of what this one does, all of it or nothing.
    Install {
        /// The last entry that made it, and how far the log reaches with the entries that stay.
        note: BaseNote,
        /// True if the entries behind it stay.
        keep: bool,
    },
    /// Notes that an unclean stop left bytes that were cut off.
    NoteCut(CutNote),
    /// Takes that note back.
    ForgetCut,
    /// Writes one of the two slots of the promise.
    Promise {
        /// 0 or 1.
        slot: usize,
        /// What is promised.
        promise: Promise,
    },
    /// Writes the identity of the directory.
    Identity(Identity),
    /// Moves everything that the directory holds to `torn/`: it begins anew.
    BeginAnew,
    /// What comes before is synced before anything behind it is written.
    Barrier,
}

/// A small file with a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Record<T> {
    /// There is none.
    #[default]
    Absent,
    /// It can be read.
    Good(T),
    /// There is one, and its checksum is wrong.
    Damaged,
}

impl<T: Copy> Record<T> {
    /// The value of one that can be read.
    #[must_use]
    pub fn good(&self) -> Option<T> {
        if let Self::Good(value) = self { Some(*value) } else { None }
    }
}

/// The bytes at the place of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// Zeros.
    Empty,
    /// An entry; not necessarily the one that belongs here.
    Bytes(Entry),
    /// Something that is no entry.
    Garbage,
}

/// A directory as it can be read.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The identity.
    pub identity: Record<Identity>,
    /// Both slots of the promise.
    pub promises: [Record<Promise>; 2],
    /// What was trimmed.
    pub base: Record<BaseNote>,
    /// How many places were removed from the beginning on.
    pub dropped: u64,
    /// The places behind those; those of trimmed entries count for nothing.
    pub log: Vec<Slot>,
    /// The note of a cut.
    pub cut: Record<CutNote>,
    /// What lies in `torn/`.
    pub aside: Vec<Entry>,
}

impl Image {
    /// The bytes at the place of an entry.
    #[must_use]
    pub fn slot(&self, lsn: Lsn) -> Slot {
        self.index(lsn).and_then(|index| self.log.get(index)).copied().unwrap_or(Slot::Empty)
    }

    fn index(&self, lsn: Lsn) -> Option<usize> {
        usize::try_from(lsn.0.checked_sub(self.dropped + 1)?).ok()
    }

    /// The last place that there is.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.dropped + self.log.len() as u64)
    }

    /// What lies behind the place of an entry.
    #[must_use]
    pub fn behind(&self, lsn: Lsn) -> &[Slot] {
        let from = usize::try_from(lsn.0.saturating_sub(self.dropped)).expect("an index");
        &self.log[from.min(self.log.len())..]
    }

    /// Where the entries begin, as far as that can be read.
    #[must_use]
    pub fn begins(&self) -> Base {
        self.base.good().unwrap_or_default().base
    }

    /// True if the entry that belongs here can be read.
    #[must_use]
    pub fn is_good(&self, lsn: Lsn) -> bool {
        matches!(self.slot(lsn), Slot::Bytes(entry) if entry.lsn == lsn && entry.is_intact())
    }

    /// Writes to the place of an entry, if that was not removed.
    pub fn write(&mut self, lsn: Lsn, slot: Slot) {
        let Some(index) = self.index(lsn) else { return };
        if self.log.len() <= index {
            self.log.resize(index + 1, Slot::Empty);
        }
        self.log[index] = slot;
    }

    /// Does one operation.
    pub fn apply(&mut self, op: &StoreOp) {
        match *op {
            StoreOp::Append(entry) | StoreOp::Heal(entry) => {
                self.write(entry.lsn, Slot::Bytes(entry));
            }
            StoreOp::SetAside { after } => self.set_aside(after),
            StoreOp::Cut { after } => {
                let kept = self.log.len() - self.behind(after).len();
                self.log.truncate(kept);
            }
            StoreOp::NoteBase(note) => self.base = Record::Good(note),
            StoreOp::Drop { upto } => self.drop_to(upto),
            StoreOp::Install { note, keep } => {
                let upto = note.base.lsn;
                if !keep {
                    (self.dropped, self.log) = (upto.0, vec![]);
                }
                self.drop_to(upto);
                self.base = Record::Good(note);
            }
            StoreOp::NoteCut(note) => self.cut = Record::Good(note),
            StoreOp::ForgetCut => self.cut = Record::Absent,
            StoreOp::Promise { slot, promise } => self.promises[slot] = Record::Good(promise),
            StoreOp::Identity(identity) => self.identity = Record::Good(identity),
            StoreOp::BeginAnew => {
                self.set_aside(Lsn(0));
                *self = Self { aside: std::mem::take(&mut self.aside), ..Self::default() };
            }
            StoreOp::Barrier => {}
        }
    }

    /// Removes entries from the beginning on.
    pub fn drop_to(&mut self, upto: Lsn) {
        let count = self.log.len() - self.behind(upto).len();
        self.log.drain(..count);
        self.dropped = self.dropped.max(upto.0);
    }

    fn set_aside(&mut self, after: Lsn) {
        let tail = self.behind(after).iter().filter_map(|slot| match slot {
            Slot::Bytes(entry) => Some(*entry),
            Slot::Empty | Slot::Garbage => None,
        });
        let tail: Vec<Entry> = tail.collect();
        self.aside.extend(tail);
    }
}

/// Why a change of the directory was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// The disk gave an error.
    #[error("the disk gave an error")]
    Io,
}

/// The directory was made by another node: somebody has put its disk, or a copy of it, into this one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[error("the directory belongs to {node:?}")]
pub struct ForeignDisk {
    /// The node that it belongs to.
    pub node: NodeId,
}

/// What reading a directory gives.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    pub(crate) promise: Promise,
    pub(crate) log: Chain,
    pub(crate) cut: Option<CutNote>,
    /// To be written and synced before anything is answered.
    pub(crate) ops: Vec<StoreOp>,
}

/// The names that a directory can get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) node: NodeId,
    /// The incarnation to take if the directory cannot go on with its own.
    pub(crate) fresh: Incarnation,
    /// The one that a mutation run takes instead.
    pub(crate) former: Incarnation,
}

/// Reads a directory. One of another node is not touched.
pub(crate) fn open(image: &Image, names: Names) -> Result<Opened, ForeignDisk> {
    let promise = image.promises.iter().filter_map(Record::good).max();
    let identity = image.identity.good();
    let owner = identity.map_or(names.node, |identity| identity.node);
    if owner != names.node && Rule::ForeignDiskRefused.holds() {
        return Err(ForeignDisk { node: owner });
    }
    Ok(match (identity, promise) {
        // What was trimmed and up to where nobody can tell any more, so nothing of it counts.
        (Some(_), Some(_))
            if image.base == Record::Damaged && Rule::RottenBaseIsNothing.holds() =>
        {
            begin_anew(names.node, names.fresh)
        }
        (Some(identity), Some(promise)) => go_on(image, identity, promise),
        (Some(identity), None) if !Rule::AmnesiaIsNothing.holds() => {
            go_on(image, identity, Promise::default())
        }
        _ => {
            let kept = !Rule::NewDiskNewIncarnation.holds();
            let damaged = identity.map_or(names.former, |identity| identity.incarnation);
            begin_anew(names.node, if kept { damaged } else { names.fresh })
        }
    })
}

/// An empty directory under a new identity; whatever it held goes aside.
pub(crate) fn begin_anew(node: NodeId, incarnation: Incarnation) -> Opened {
    // The counter starts high under a mutated identity: it must pass for the old disk.
    let boots = BootCount(if Rule::NewDiskNewIncarnation.holds() { 1 } else { 1 << 20 });
    let identity = Identity { node, incarnation, boots, seen: Revision(0) };
    let none = Promise::default();
    let ops = vec![
        StoreOp::BeginAnew,
        StoreOp::Barrier,
        StoreOp::Promise { slot: 0, promise: none },
        StoreOp::Promise { slot: 1, promise: none },
        StoreOp::Barrier,
        StoreOp::Identity(identity),
    ];
    Opened { identity, promise: none, log: Chain::default(), cut: None, ops }
}

fn go_on(image: &Image, identity: Identity, promise: Promise) -> Opened {
    let (log, torn) = scan(image);
    let mut ops = vec![];
    // A slot that is behind or unreadable is written again while the other one holds.
    for (slot, record) in image.promises.iter().enumerate() {
        if record.good() != Some(promise) && Rule::PromiseTwice.holds() {
            ops.extend([StoreOp::Promise { slot, promise }, StoreOp::Barrier]);
        }
    }
    let at = log.position();
    let torn =
        torn || Rule::TrimNotesReach.holds() && at < image.base.good().unwrap_or_default().reach;
    let here = CutNote { at, promised: promise.epoch };
    let mut cut = match image.cut {
        Record::Good(note) => Some(note),
        // Something was cut, and nothing tells what.
        Record::Damaged if Rule::RottenNoteIsACut.holds() => Some(here),
        Record::Damaged | Record::Absent => None,
    };
    if torn {
        cut = Some(here);
        let after = at.lsn;
        if Rule::KeepAside.holds() {
            ops.extend([StoreOp::SetAside { after }, StoreOp::Barrier]);
        }
        ops.extend([StoreOp::NoteCut(here), StoreOp::Barrier]);
        ops.extend([StoreOp::Cut { after }, StoreOp::Barrier]);
    }
    Opened { identity, promise, log, cut, ops }
}

/// Reads the entries. The last one that is intact and in its place ends the log: it vouches for all
/// before it, so what cannot be read below is damage, and what lies behind is a torn tail. So does an entry of
/// a greater number that lies at the wrong place: its write went astray, and its own place shows nothing.
fn scan(image: &Image) -> (Chain, bool) {
    let base = image.begins();
    let places = base.lsn.next().0..=image.end().0;
    let mut good = places.clone().map(Lsn);
    let mut last = good.rfind(|lsn| image.is_good(*lsn)).unwrap_or(base.lsn);
    if !Rule::DamageIsNotATail.holds() {
        let mut good = places.map(Lsn).take_while(|lsn| image.is_good(*lsn));
        last = good.by_ref().last().unwrap_or(base.lsn);
    }
    let torn = image.behind(last).iter().any(|slot| *slot != Slot::Empty);
    let torn =
        torn || Rule::StrayShowsLoss.holds() && image.log.iter().any(|slot| strays(slot, last));
    let mut chain = Chain::behind(base);
    for lsn in (base.lsn.next().0..=last.0).map(Lsn) {
        match readable(image, lsn, last) {
            Some(entry) => chain.push(entry),
            None => chain.push_damaged(),
        }
    }
    (chain, torn)
}

/// True for an entry behind the end of the log, wherever it lies.
fn strays(slot: &Slot, last: Lsn) -> bool {
    matches!(slot, Slot::Bytes(entry) if entry.lsn > last && entry.is_intact())
}

/// The entry at its place, if it is intact and the one behind it, where that can be read, names it.
fn readable(image: &Image, lsn: Lsn, last: Lsn) -> Option<Entry> {
    let Slot::Bytes(entry) = image.slot(lsn) else { return None };
    if !image.is_good(lsn) {
        return None;
    }
    let named = match image.slot(lsn.next()) {
        Slot::Bytes(next) if lsn < last && image.is_good(lsn.next()) => next.prev == entry.sum,
        _ => true,
    };
    named.then_some(entry)
}

#[cfg(test)]
mod tests;

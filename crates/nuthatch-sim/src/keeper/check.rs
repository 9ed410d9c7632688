//! The observer: what a keeper has said must be on its disk whatever stops it, and files are what committed entries
//! make.

use super::machine::{Machine, Running, open};
use super::model::Model;
use bytes::Bytes;
use nuthatch_cluster::packet::hash_of;
use nuthatch_cluster::replica::Replica;
use nuthatch_log::env::{Disk, MemDisk};
use nuthatch_quorum::entry::{Chain, Entry};
use nuthatch_quorum::message::{Envelope, Message};
use nuthatch_quorum::store::{Identity, Image, Record, Slot};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, Lsn, Member, Position, Promise, Sum};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// What does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum ViolationKind {
    /// A directory cannot be read as one.
    #[error("a directory does not open")]
    DoesNotOpen,
    /// A disk that nobody harmed is another one.
    #[error("a disk has lost its identity")]
    OtherDisk,
    /// A promise fell.
    #[error("a promise fell that somebody was told of")]
    PromiseFell,
    /// What was said to be done is not there.
    #[error("an entry was said to be done and is not in the directory")]
    NotDurable,
    /// An entry is there without what belongs to it.
    #[error("an entry has no payload")]
    NoPayload,
    /// What was trimmed is not committed, or not in the files.
    #[error("what was trimmed is not in the files")]
    Trimmed,
    /// The files were noted to be durable further than the log goes.
    #[error("the files are ahead of the log")]
    Ahead,
    /// The files are not what entries make.
    #[error("the files are not what the committed entries make")]
    Files,
    /// A committed entry was lost, or has two contents.
    #[error("a committed entry was lost")]
    Lost,
    /// A disk hides that it has lost something.
    #[error("a disk that has lost what it said was done calls itself whole")]
    NotWhole,
    /// A process that was killed has left a torn end.
    #[error("the journal of a process that was killed ends torn")]
    Torn,
    /// Faults have stopped and writes have not begun.
    #[error("not everything has recovered after faults had stopped")]
    NoProgress,
}

/// A violation and where it was seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error)]
#[error("{kind} ({what})")]
pub struct Violation {
    /// What does not hold.
    pub kind: ViolationKind,
    /// Facts, for people.
    pub what: String,
}

pub(super) fn broken<T>(kind: ViolationKind, what: String) -> Result<T, Violation> {
    Err(Violation { kind, what })
}

struct Committed {
    sum: Sum,
    epoch: Epoch,
    payload: Bytes,
}

/// What the observer remembers.
#[derive(Default)]
pub(super) struct Checker {
    committed: Vec<Committed>,
    /// What a disk has promised and somebody was told.
    promises: BTreeMap<Incarnation, Promise>,
    /// What a disk said is durable.
    done: BTreeMap<Incarnation, Position>,
    /// Disks of which something rotted.
    harmed: BTreeSet<Incarnation>,
}

impl Checker {
    /// The last committed entry.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.committed.len() as u64)
    }

    /// True if a log has all that is committed: entries of the same numbers may be another epoch's.
    pub(super) fn is_all_in(&self, log: &Chain) -> bool {
        let committed = self.committed.last().map(|entry| entry.sum);
        committed.is_none() || log.sum_at(self.last()) == committed
    }

    /// Something of a disk that was durable rots.
    pub(super) fn harmed(&mut self, disk: Incarnation) {
        self.harmed.insert(disk);
    }

    fn model(&self, upto: Lsn) -> Model {
        Model::of(self.committed[..upto.0 as usize].iter().map(|entry| &entry.payload[..]))
    }

    /// A message leaves a node.
    pub(super) fn sent(&mut self, envelope: &Envelope, running: &Running) {
        let (epoch, upto) = match &envelope.message {
            Message::Sealed(sealed) => {
                let given = self.promises.entry(envelope.sender).or_default();
                *given = running.node.keeper().promise().max(*given);
                assert!(given.epoch >= sealed.epoch, "what was asked is promised");
                return;
            }
            Message::Done { epoch, upto, .. } => (*epoch, *upto),
            Message::Started { epoch } => {
                let starts = running.node.keeper().log().starts();
                let start = starts.iter().find(|start| start.epoch == *epoch);
                (*epoch, start.expect("it says that it has started").lsn)
            }
            _ => return,
        };
        self.said(envelope.sender, Position { accepted: epoch, lsn: upto });
    }

    /// A disk counts for somebody as durable to here.
    fn said(&mut self, disk: Incarnation, position: Position) {
        let done = self.done.entry(disk).or_default();
        *done = (*done).max(position);
    }

    /// An owner counts its own disk too, which leaves by no message.
    fn counts_itself(&mut self, running: &Running) {
        let Some(owner) = running.node.owner() else { return };
        let Identity { node, incarnation, .. } = running.node.keeper().identity();
        let given = self.promises.entry(incarnation).or_default();
        *given = (*given).max(Promise { epoch: owner.epoch(), owner: incarnation });
        if let Some(lsn) = owner.done_by(Member { node, incarnation }) {
            self.said(incarnation, Position { accepted: owner.epoch(), lsn });
        }
    }

    /// A node has done a step, of which its payloads are still held.
    pub(super) fn stepped(&mut self, running: &Running) -> Result<(), Violation> {
        self.counts_itself(running);
        let Some(owner) = running.node.owner() else { return Ok(()) };
        let (log, commit) = (running.node.keeper().log(), owner.commit());
        self.commits(running, owner.epoch(), commit)?;
        match log.sum_at(commit).filter(|_| commit > Lsn(0)) {
            Some(sum) if sum != self.committed[commit.0 as usize - 1].sum => {
                broken(ViolationKind::Lost, format!("{commit:?} has two contents"))
            }
            _ => Ok(()),
        }
    }

    /// All up to here is committed, in this epoch: an owner says so, perhaps in the step in which it ceases to be one.
    pub(super) fn commits(
        &mut self,
        running: &Running,
        epoch: Epoch,
        commit: Lsn,
    ) -> Result<(), Violation> {
        for lsn in (self.last().0 + 1..=commit.0).map(Lsn) {
            let Some(entry) = running.node.keeper().log().get(lsn) else {
                return broken(ViolationKind::Lost, format!("{lsn:?} of {epoch:?}"));
            };
            let Ok(payload) = running.payload(entry) else {
                return broken(ViolationKind::NoPayload, format!("{entry:?} at its owner"));
            };
            self.committed.push(Committed { sum: entry.sum, epoch, payload });
        }
        Ok(())
    }

    /// What a process leaves that is killed now, when it has written all that it began to: nothing is torn, or its disk would
    /// count as cut at each start.
    pub(super) fn killed(&self, machine: &Machine, copy: &MemDisk) -> Result<(), Violation> {
        match open(copy, machine.log) {
            Ok((_, image)) if is_torn(&image) => {
                broken(ViolationKind::Torn, format!("{:?}", machine.id))
            }
            _ => Ok(()),
        }
    }

    /// A process has ended: a copy of what it left is opened.
    pub(super) fn ended(&self, machine: &Machine, copy: &MemDisk) -> Result<(), Violation> {
        // A disk that has said nothing yet may be another one the next time.
        let spoke = |disk| self.promises.contains_key(&disk) || self.done.contains_key(&disk);
        let known = machine.known.filter(|(disk, _)| spoke(*disk));
        let Some((disk, boots)) = known else { return Ok(()) };
        let who = machine.id;
        let (dir, image) = match open(copy, machine.log) {
            Ok(opened) => opened,
            Err(error) => return broken(ViolationKind::DoesNotOpen, format!("{who:?}: {error}")),
        };
        self.identified(&image, disk, boots)?;
        let found = entries(&image);
        for entry in &found {
            if hash_of(entry).is_some() && dir.payload(entry).is_err() {
                return broken(ViolationKind::NoPayload, format!("{entry:?} of {who:?}"));
            }
        }
        if self.shows_loss(&image, &found, disk)? {
            return Ok(());
        }
        self.is_here(&image, &found, disk)?;
        self.files(dir.disk(), &image, machine.touched, |entry| dir.payload(entry).ok())
    }

    /// True of a disk that rot has taken something from and that shows that.
    fn shows_loss(
        &self,
        image: &Image,
        found: &[Entry],
        disk: Incarnation,
    ) -> Result<bool, Violation> {
        if !self.harmed.contains(&disk) {
            return Ok(false);
        }
        let begins = image.begins().lsn;
        let last = found.last().map_or(begins, |entry| entry.lsn);
        let has_gap = found.len() as u64 != last.0 - begins.0;
        if image.cut != Record::Absent || is_torn(image) || has_gap {
            return Ok(true);
        }
        match self.is_here(image, found, disk) {
            Err(Violation { kind: ViolationKind::NotDurable, what }) => {
                broken(ViolationKind::NotWhole, what)
            }
            other => other.map(|()| false),
        }
    }

    fn identified(
        &self,
        image: &Image,
        disk: Incarnation,
        boots: BootCount,
    ) -> Result<(), Violation> {
        match image.identity {
            Record::Good(identity) if identity.incarnation == disk && identity.boots >= boots => {}
            other => return broken(ViolationKind::OtherDisk, format!("{other:?} of {disk:?}")),
        }
        let told = self.promises.get(&disk).copied().unwrap_or_default();
        let best = image.promises.iter().filter_map(Record::good).max();
        if best.is_none_or(|best| best < told) {
            return broken(ViolationKind::PromiseFell, format!("{best:?} < {told:?}"));
        }
        Ok(())
    }

    /// What a disk said is done is there, unless a later promise has cut it back; what of that is committed always is.
    fn is_here(&self, image: &Image, found: &[Entry], disk: Incarnation) -> Result<(), Violation> {
        let begins = image.begins();
        let trimmed = begins.lsn > Lsn(0)
            && self.committed.get(begins.lsn.0 as usize - 1).is_none_or(|c| c.sum != begins.sum);
        if image.base == Record::Damaged || trimmed {
            return broken(ViolationKind::Trimmed, format!("{:?}", image.base));
        }
        let Some(done) = self.done.get(&disk) else { return Ok(()) };
        let promised = image.promises.iter().filter_map(Record::good).max().unwrap_or_default();
        let at =
            found.last().map_or(Position { accepted: begins.epoch, lsn: begins.lsn }, |last| {
                Position { accepted: last.epoch, lsn: last.lsn }
            });
        if promised.epoch == done.accepted && at < *done {
            return broken(ViolationKind::NotDurable, format!("{at:?} < {done:?}"));
        }
        let said = self.committed.iter().take(done.lsn.0 as usize).enumerate();
        for (index, committed) in said.filter(|(_, c)| c.epoch <= done.accepted) {
            let lsn = Lsn(index as u64 + 1);
            let same = matches!(image.slot(lsn), Slot::Bytes(e) if e.sum == committed.sum);
            if lsn > begins.lsn && !(same && image.is_good(lsn)) {
                let what = format!("{lsn:?} of {done:?}, there is {:?}", image.slot(lsn));
                return broken(ViolationKind::NotDurable, what);
            }
        }
        Ok(())
    }

    /// What the files and the entries behind them make is what committed entries make. `touched` is the last entry
    /// that may have left something in them.
    fn files(
        &self,
        disk: &Arc<dyn Disk>,
        image: &Image,
        touched: Lsn,
        payload: impl Fn(&Entry) -> Option<Bytes>,
    ) -> Result<(), Violation> {
        let unreadable = |error| broken(ViolationKind::Files, format!("{error}"));
        let mut replica = match Replica::open(Arc::clone(disk)) {
            Ok(replica) => replica,
            Err(error) => return unreadable(error),
        };
        let marked = replica.applied();
        if marked < image.begins().lsn {
            return broken(ViolationKind::Trimmed, format!("{marked:?} of {:?}", image.base));
        }
        let end = entries(image).last().map_or(image.begins().lsn, |last| last.lsn);
        if marked > end.min(self.last()) {
            return broken(ViolationKind::Ahead, format!("{marked:?}, the log ends at {end:?}"));
        }
        while replica.applied() < self.last() {
            let lsn = replica.applied().next();
            let Slot::Bytes(entry) = image.slot(lsn) else { break };
            if entry.sum != self.committed[lsn.0 as usize - 1].sum {
                break;
            }
            let payload = payload(&entry).expect("it was read before");
            if let Err(error) = replica.apply(lsn, &payload) {
                return unreadable(error);
            }
        }
        if replica.applied() < touched {
            // What entries behind that have left in the files is only right again with them.
            return Ok(());
        }
        match self.model(replica.applied()).differs(&replica) {
            Some(what) => broken(ViolationKind::Files, format!("{:?}: {what}", replica.applied())),
            None => Ok(()),
        }
    }

    /// How a process is not yet what all others are, when nothing fails any more.
    pub(super) fn behind(&self, running: &Running) -> Option<String> {
        let (applied, last) = (running.replica.applied(), running.node.keeper().log().last());
        if last < self.last() || applied < self.last() {
            return Some(format!("it has {last:?} and applied {applied:?} of {:?}", self.last()));
        }
        (applied == self.last()).then(|| self.model(applied).differs(&running.replica)).flatten()
    }
}

/// True if something lies behind the last entry that can be read.
fn is_torn(image: &Image) -> bool {
    let end = image.end();
    end > image.begins().lsn && !image.is_good(end) && image.slot(end) != Slot::Empty
}

/// The entries that can be read behind what is trimmed, without those behind a gap at their end.
fn entries(image: &Image) -> Vec<Entry> {
    let all = (image.begins().lsn.0 + 1..=image.end().0).map(Lsn);
    let good = all.filter(|lsn| image.is_good(*lsn));
    good.filter_map(|lsn| if let Slot::Bytes(entry) = image.slot(lsn) { Some(entry) } else { None })
        .collect()
}

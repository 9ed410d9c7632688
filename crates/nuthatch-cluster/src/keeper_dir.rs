//! A keeper's directory: what the keeper core asks to be stored, on a real disk.
//!
//! `identity` and `promise` (two slots) are durable before the next thing is done; entries and what is cut
//! off them go into the journal. Everything that is taken away is first kept in `torn/`, but for entries that are
//! trimmed. Files of another node come into `incoming/`, and are put in place from there ([`crate::incoming`]).

use crate::incoming::{self, INCOMING_DIR};
use crate::journal::{self, Journal, OPS_DIR, RecordOnDisk, Sizes};
use crate::replica::{self, FILES_DIR, STATE};
use crate::rules::{BARRIER_SYNC, TRIM_NOTED_FIRST};
use crate::small_files::{self, BASE, CUT, IDENTITY, INSTALLING, Installing, PROMISE};
use crate::sync_gate::{SyncGate, ToSync};
use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile};
use nuthatch_quorum::entry::Entry;
use nuthatch_quorum::store::{BaseNote, Identity, Image, Record, StoreOp};
use nuthatch_quorum::types::{Lsn, Revision};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Where a keeper puts what it takes out of its log.
pub const TORN_DIR: &str = "torn";

/// A keeper's directory that is open.
pub struct KeeperDir {
    disk: Arc<dyn Disk>,
    journal: Journal,
    /// The identity as it was last read or written.
    identity: Option<Identity>,
    /// Raised when the journal begins anew: what somebody does to its files beside is void then.
    turn: Arc<Mutex<u64>>,
    /// Up to where the log is trimmed, where that is not noted yet.
    noted: Option<BaseNote>,
    /// Files of the journal that go when it is.
    gone: Vec<u32>,
}

/// What is done to the journal's files while the node goes on: done by [`Chore::finish`], which waits for the disk.
pub struct Chore {
    disk: Arc<dyn Disk>,
    turn: Arc<Mutex<u64>>,
    /// The turn that it is of.
    of: u64,
    what: Kind,
}

enum Kind {
    Trim { note: BaseNote, files: Vec<u32> },
    Spare { number: u32, bytes: u64 },
}

/// The turn that a file was made in.
pub struct SpareTurn(u64);

impl Chore {
    /// The turn that it is of.
    #[must_use]
    pub fn turn(&self) -> SpareTurn {
        SpareTurn(self.of)
    }

    /// Does it, unless the journal has begun anew. Gives a file that was made for later.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(self) -> io::Result<Option<(u32, Arc<dyn DiskFile>)>> {
        let turn = self.turn.lock();
        if *turn != self.of {
            return Ok(None);
        }
        match self.what {
            Kind::Spare { number, bytes } => {
                let file = journal::make_file(&*self.disk, number, bytes)?;
                return Ok(Some((number, file)));
            }
            Kind::Trim { note, files } => {
                // Entries go when it is noted that they are trimmed.
                if TRIM_NOTED_FIRST.holds() {
                    small_files::store_base(&*self.disk, note)?;
                }
                journal::remove_files(&*self.disk, &files)?;
                if !TRIM_NOTED_FIRST.holds() {
                    small_files::store_base(&*self.disk, note)?;
                }
            }
        }
        Ok(None)
    }
}

impl KeeperDir {
    /// Opens a directory and reads all of it.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>) -> io::Result<(Self, Image)> {
        Self::open_with(disk, Sizes::default())
    }

    /// As [`KeeperDir::open`], with files of the journal of other sizes from now on.
    ///
    /// # Errors
    /// The disk's.
    pub fn open_with(disk: Arc<dyn Disk>, sizes: Sizes) -> io::Result<(Self, Image)> {
        for dir in ["tmp", TORN_DIR, FILES_DIR, INCOMING_DIR] {
            disk.create_dir(dir)?;
        }
        disk.sync_dir("")?;
        small_files::check_format(&*disk)?;
        incoming::finish(&*disk)?;
        let base = trimmed(&*disk)?;
        let (dropped, begins) = match base {
            Record::Good(BaseNote { base, .. }) => (base.lsn.0, base.lsn),
            Record::Absent => (0, Lsn(0)),
            // Nothing is told by entries of which nobody knows where they begin: none is looked at.
            Record::Damaged => (0, Lsn(u64::MAX)),
        };
        let (journal, log) =
            Journal::open_behind(Arc::clone(&disk), begins, Arc::default(), sizes)?;
        let identity = small_files::load_identity(&*disk)?;
        let image = Image {
            identity: with_seen(identity, small_files::seen(&*disk)?),
            promises: small_files::load_promises(&*disk)?,
            base,
            dropped,
            log,
            cut: small_files::load_cut(&*disk)?,
            aside: vec![],
        };
        Ok((
            Self {
                disk,
                journal,
                identity: identity.good(),
                turn: Arc::default(),
                noted: None,
                gone: vec![],
            },
            image,
        ))
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Does operations in their order. `payload` gives what belongs to an entry.
    ///
    /// # Errors
    /// The disk's: what is on it is unknown then, and nothing may be answered any more.
    pub fn store(
        &mut self,
        ops: &[StoreOp],
        mut payload: impl FnMut(&Entry) -> Bytes,
    ) -> io::Result<()> {
        let trims = ops.iter().any(|op| matches!(op, StoreOp::NoteBase(_)));
        for op in ops {
            match op {
                // What is trimmed was durable before, and goes later.
                StoreOp::Barrier if trims => {}
                StoreOp::Append(entry) => self.journal.append(entry, &payload(entry))?,
                StoreOp::Heal(entry) => self.journal.heal(entry, &payload(entry))?,
                StoreOp::SetAside { after } => self.set_aside(*after)?,
                StoreOp::Cut { after } => self.journal.cut(*after)?,
                StoreOp::NoteCut(note) => small_files::store_cut(&*self.disk, Some(*note))?,
                StoreOp::ForgetCut => small_files::store_cut(&*self.disk, None)?,
                StoreOp::Promise { slot, promise } => {
                    small_files::store_promise(&*self.disk, *slot, *promise)?;
                }
                StoreOp::Identity(identity) => self.store_identity(*identity)?,
                StoreOp::NoteBase(note) => self.noted = Some(*note),
                StoreOp::Drop { upto } => self.gone.extend(self.journal.forget_to(*upto)),
                StoreOp::Install { note, keep } => self.install(*note, *keep)?,
                StoreOp::BeginAnew => self.begin_anew()?,
                StoreOp::Barrier if BARRIER_SYNC.holds() => self.journal.sync()?,
                StoreOp::Barrier => {}
            }
        }
        Ok(())
    }

    /// Size of the files of the journal, in bytes.
    #[must_use]
    pub fn journal_file_bytes(&self) -> u64 {
        self.journal.sizes().file
    }

    /// A file of the journal could not be made for later: it is tried again.
    pub fn give_up_spare(&mut self, of: &SpareTurn) {
        if of.0 == *self.turn.lock() {
            self.journal.give_up_spare();
        }
    }

    /// The payload of an entry of the log.
    ///
    /// # Errors
    /// Those of [`Journal::payload`].
    pub fn payload(&self, entry: &Entry) -> io::Result<Bytes> {
        self.journal.payload(entry)
    }

    /// Where an entry's record is; none of one that is damaged.
    #[must_use]
    pub fn record(&self, entry: &Entry) -> Option<RecordOnDisk> {
        self.journal.record(entry)
    }

    /// What is to be synced so that the journal is durable.
    #[must_use]
    pub fn to_sync(&self) -> ToSync {
        self.journal.to_sync()
    }

    /// What is left to be done of a trim.
    pub fn take_trim(&mut self) -> Option<Chore> {
        let (note, files) = (self.noted.take()?, std::mem::take(&mut self.gone));
        Some(self.chore(Kind::Trim { note, files }))
    }

    /// A file of the journal that is to be made for later; [`KeeperDir::give_spare`] takes it.
    pub fn take_spare(&mut self) -> Option<Chore> {
        let number = self.journal.wants_spare()?;
        let bytes = self.journal.sizes().file;
        Some(self.chore(Kind::Spare { number, bytes }))
    }

    /// Takes a file of the journal that was made for later.
    pub fn give_spare(&mut self, of: &SpareTurn, number: u32, file: Arc<dyn DiskFile>) {
        if of.0 == *self.turn.lock() {
            self.journal.give_spare(number, file);
        }
    }

    fn chore(&self, what: Kind) -> Chore {
        let of = *self.turn.lock();
        Chore { disk: Arc::clone(&self.disk), turn: Arc::clone(&self.turn), of, what }
    }

    /// The journal begins anew. Whatever somebody does to its files is over, and nothing more is done of what was
    /// to be.
    fn take_turn(&mut self) {
        *self.turn.lock() += 1;
        (self.noted, self.gone) = (None, vec![]);
    }

    /// What all syncs of the journal go through.
    #[must_use]
    pub fn gate(&self) -> &Arc<SyncGate> {
        self.journal.gate()
    }

    /// Writes the identity. What of the catalog was seen is durable before that, where whoever reads the catalog notes
    /// it: for that alone nothing is written.
    fn store_identity(&mut self, identity: Identity) -> io::Result<()> {
        let same = self
            .identity
            .is_some_and(|known| Identity { seen: identity.seen, ..known } == identity);
        if same && small_files::seen(&*self.disk)?.is_some_and(|seen| seen >= identity.seen) {
            return Ok(());
        }
        small_files::store_identity(&*self.disk, identity)?;
        self.identity = Some(identity);
        Ok(())
    }

    /// A name in `torn/` that is not taken.
    fn torn_name(&self, what: &str) -> io::Result<String> {
        let taken = self.disk.list(TORN_DIR)?;
        let mut names = (0u64..).map(|number| format!("{number}-{}", what.replace('/', "-")));
        let free = names.find(|name| !taken.contains(name)).expect("numbers do not end");
        Ok(format!("{TORN_DIR}/{free}"))
    }

    fn set_aside(&self, after: Lsn) -> io::Result<()> {
        if self.disk.medium().in_memory {
            return Ok(());
        }
        let name = self.torn_name(&format!("behind-{}", after.0))?;
        let file = self.disk.create(&name)?;
        self.journal.copy_behind(after, &*file)?;
        self.disk.sync_dir(TORN_DIR)
    }

    /// Moves everything that the directory holds to `torn/`, unless that is in memory, too. The identity goes first: without it the
    /// directory counts for nothing, should this end half-way.
    fn begin_anew(&mut self) -> io::Result<()> {
        let small = [IDENTITY, PROMISE, CUT, STATE, BASE, INSTALLING];
        let mut paths: Vec<String> = small.map(str::to_owned).into();
        for dir in [OPS_DIR, FILES_DIR, INCOMING_DIR] {
            let names = self.disk.list(dir)?;
            paths.extend(names.into_iter().map(|name| format!("{dir}/{name}")));
        }
        self.identity = None;
        self.take_turn();
        let keeps = !self.disk.medium().in_memory;
        for path in paths {
            let gone = match keeps {
                true => self.disk.rename(&path, &self.torn_name(&path)?),
                false => self.disk.remove(&path),
            };
            match gone {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
            self.disk.sync_dir("")?;
        }
        for dir in [TORN_DIR, OPS_DIR, FILES_DIR, INCOMING_DIR, ""] {
            self.disk.sync_dir(dir)?;
        }
        self.journal = self.reopened(Lsn(0))?;
        Ok(())
    }

    /// Puts what lies in `incoming/` in the place of the files, and of the entries that made them.
    fn install(&mut self, note: BaseNote, keep: bool) -> io::Result<()> {
        self.take_turn();
        small_files::store_installing(&*self.disk, Installing { note, keep })?;
        incoming::finish(&*self.disk)?;
        self.journal = self.reopened(note.base.lsn)?;
        Ok(())
    }

    /// The journal as it is now on the disk, behind the gate that it has.
    fn reopened(&self, base: Lsn) -> io::Result<Journal> {
        let (gate, sizes) = (Arc::clone(self.journal.gate()), self.journal.sizes());
        Ok(Journal::open_behind(Arc::clone(&self.disk), base, gate, sizes)?.0)
    }

    /// The last entry that can be trimmed so that whole files of the journal go and so many stay.
    #[must_use]
    pub fn trim_point(&self, files: usize) -> Lsn {
        self.journal.trim_point(files)
    }
}

/// An identity with what of the catalog was seen, wherever that is noted.
fn with_seen(identity: Record<Identity>, seen: Option<Revision>) -> Record<Identity> {
    match (identity, seen) {
        (Record::Good(known), Some(seen)) => {
            Record::Good(Identity { seen: known.seen.max(seen), ..known })
        }
        (other, _) => other,
    }
}

/// Up to where the log is trimmed. That counts as damaged also where what the trimmed entries made is not there:
/// nobody can tell then what the directory was.
fn trimmed(disk: &dyn Disk) -> io::Result<Record<BaseNote>> {
    let note = small_files::load_base(disk)?;
    let first = Journal::first_file(disk)?;
    Ok(match note {
        Record::Good(note) if replica::is_durable_to(disk, note.base.lsn)? => Record::Good(note),
        Record::Absent if first.is_none_or(|first| first == 0) => Record::Absent,
        _ => Record::Damaged,
    })
}

#[cfg(test)]
mod tests;

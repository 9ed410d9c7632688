//! A keeper's directory: what the keeper core asks to be stored, on a real disk.
//!
//! `identity` and `promise` (two slots) are durable before the next thing is done; entries and what is cut
//! off them go into the journal. Everything that is taken away is first kept in `torn/`, but for entries that are
//! trimmed. Files of another node come into `incoming/`, and are put in place from there ([`crate::incoming`]).

use crate::incoming::{self, INCOMING_DIR};
use crate::journal::{Journal, OPS_DIR, RecordOnDisk, SyncGate};
use crate::replica::{self, FILES_DIR, STATE};
use crate::small_files::{self, BASE, CUT, IDENTITY, INSTALLING, Installing, PROMISE};
use bytes::Bytes;
use nuthatch_log::env::{Disk, DiskFile};
use nuthatch_quorum::entry::{Base, Entry};
use nuthatch_quorum::store::{Image, Record, StoreOp};
use nuthatch_quorum::types::Lsn;
use std::io;
use std::sync::Arc;

/// Where a keeper puts what it takes out of its log.
pub const TORN_DIR: &str = "torn";

/// A keeper's directory that is open.
pub struct KeeperDir {
    disk: Arc<dyn Disk>,
    journal: Journal,
}

impl KeeperDir {
    /// Opens a directory and reads all of it.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>) -> io::Result<(Self, Image)> {
        for dir in ["tmp", TORN_DIR, FILES_DIR, INCOMING_DIR] {
            disk.create_dir(dir)?;
        }
        disk.sync_dir("")?;
        small_files::check_format(&*disk)?;
        incoming::finish(&*disk)?;
        let base = trimmed(&*disk)?;
        let (dropped, begins) = match base {
            Record::Good(base) => (base.lsn.0, base.lsn),
            Record::Absent => (0, Lsn(0)),
            // Nothing is told by entries of which nobody knows where they begin: none is looked at.
            Record::Damaged => (0, Lsn(u64::MAX)),
        };
        let (journal, log) = Journal::open(Arc::clone(&disk), begins)?;
        let image = Image {
            identity: small_files::load_identity(&*disk)?,
            promises: small_files::load_promises(&*disk)?,
            base,
            dropped,
            log,
            cut: small_files::load_cut(&*disk)?,
            aside: vec![],
        };
        Ok((Self { disk, journal }, image))
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
        for op in ops {
            match op {
                StoreOp::Append(entry) => self.journal.append(entry, &payload(entry))?,
                StoreOp::Heal(entry) => self.journal.heal(entry, &payload(entry))?,
                StoreOp::SetAside { after } => self.set_aside(*after)?,
                StoreOp::Cut { after } => self.journal.cut(*after)?,
                StoreOp::NoteCut(note) => small_files::store_cut(&*self.disk, Some(*note))?,
                StoreOp::ForgetCut => small_files::store_cut(&*self.disk, None)?,
                StoreOp::Promise { slot, promise } => {
                    small_files::store_promise(&*self.disk, *slot, *promise)?;
                }
                StoreOp::Identity(identity) => small_files::store_identity(&*self.disk, *identity)?,
                StoreOp::NoteBase(base) => small_files::store_base(&*self.disk, *base)?,
                StoreOp::Drop { upto } => self.journal.drop_to(*upto)?,
                StoreOp::Install { base, keep } => self.install(*base, *keep)?,
                StoreOp::BeginAnew => self.begin_anew()?,
                StoreOp::Barrier => self.journal.sync()?,
            }
        }
        Ok(())
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

    /// The file whose sync makes the journal durable.
    #[must_use]
    pub fn journal_file(&self) -> Option<Arc<dyn DiskFile>> {
        self.journal.written_file()
    }

    /// What all syncs of the journal go through.
    #[must_use]
    pub fn gate(&self) -> &Arc<SyncGate> {
        self.journal.gate()
    }

    /// A name in `torn/` that is not taken.
    fn torn_name(&self, what: &str) -> io::Result<String> {
        let taken = self.disk.list(TORN_DIR)?;
        let mut names = (0u64..).map(|number| format!("{number}-{}", what.replace('/', "-")));
        let free = names.find(|name| !taken.contains(name)).expect("numbers do not end");
        Ok(format!("{TORN_DIR}/{free}"))
    }

    fn set_aside(&self, after: Lsn) -> io::Result<()> {
        let name = self.torn_name(&format!("behind-{}", after.0))?;
        let file = self.disk.create(&name)?;
        self.journal.copy_behind(after, &*file)?;
        self.disk.sync_dir(TORN_DIR)
    }

    /// Moves everything that the directory holds to `torn/`. The identity goes first: without it the
    /// directory counts for nothing, should this end half-way.
    fn begin_anew(&mut self) -> io::Result<()> {
        let small = [IDENTITY, PROMISE, CUT, STATE, BASE, INSTALLING];
        let mut paths: Vec<String> = small.map(str::to_owned).into();
        for dir in [OPS_DIR, FILES_DIR, INCOMING_DIR] {
            let names = self.disk.list(dir)?;
            paths.extend(names.into_iter().map(|name| format!("{dir}/{name}")));
        }
        for path in paths {
            let aside = self.torn_name(&path)?;
            match self.disk.rename(&path, &aside) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
            self.disk.sync_dir("")?;
        }
        for dir in [TORN_DIR, OPS_DIR, FILES_DIR, INCOMING_DIR, ""] {
            self.disk.sync_dir(dir)?;
        }
        let gate = Arc::clone(self.journal.gate());
        self.journal = Journal::open_behind(Arc::clone(&self.disk), Lsn(0), gate)?.0;
        Ok(())
    }

    /// Puts what lies in `incoming/` in the place of the files, and of the entries that made them.
    fn install(&mut self, base: Base, keep: bool) -> io::Result<()> {
        small_files::store_installing(&*self.disk, Installing { base, keep })?;
        incoming::finish(&*self.disk)?;
        let gate = Arc::clone(self.journal.gate());
        self.journal = Journal::open_behind(Arc::clone(&self.disk), base.lsn, gate)?.0;
        Ok(())
    }

    /// The last entry that can be trimmed so that whole files of the journal go and so many stay.
    #[must_use]
    pub fn trim_point(&self, files: usize) -> Lsn {
        self.journal.trim_point(files)
    }
}

/// Up to where the log is trimmed. That counts as damaged also where what the trimmed entries made is not there:
/// nobody can tell then what the directory was.
fn trimmed(disk: &dyn Disk) -> io::Result<Record<Base>> {
    let base = small_files::load_base(disk)?;
    let first = Journal::first_file(disk)?;
    Ok(match base {
        Record::Good(base) if replica::is_durable_to(disk, base.lsn)? => Record::Good(base),
        Record::Absent if first.is_none_or(|first| first == 0) => Record::Absent,
        _ => Record::Damaged,
    })
}

#[cfg(test)]
mod tests;

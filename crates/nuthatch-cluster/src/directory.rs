//! The replicated directory as a log sees it: the seam `Disk` over the quorum log.
//!
//! What a log does to files gathers in a batch. A sync of anything publishes the batch as one entry and waits
//! until a majority has it durably, so syncs make all earlier operations durable, in their order; that of a file with
//! a temporary name waits for the next one. Reads
//! are of this node's own files, which have what is committed; a read of what is not yet waits for that.

use crate::coding::Writer;
use crate::host::{Host, NotOwner};
use crate::operation::{EMPTY_PAYLOAD, FileId, OPERATION_OVERHEAD, Operation, begin_payload};
use crate::replica::{FileRange, Replica};
use crate::replica_view::{MEDIUM, names_in};
use bytes::Bytes;
use nuthatch_log::Epoch;
use nuthatch_log::env::{Dated, Disk, DiskFile, Medium, Ownership, Standing, Tenure};
use nuthatch_quorum::types::{self, Lsn};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// A batch that has so many bytes is published although nobody has asked for a sync.
const BATCH_BYTES: usize = 4 << 20;

/// Names that count for nothing after a stop. A file that has such a one is durable early enough when its next name
/// is: operations are made durable in their order.
const TEMPORARY: &str = "tmp/";

/// Batches that are published and not committed; who has more waits.
const UNDER_WAY_MAX: u64 = 4;

/// The directory of the log of an epoch that this node owns.
pub struct QuorumDirectory(Arc<Shared>);

struct Shared {
    host: Arc<Host>,
    epoch: types::Epoch,
    replica: Arc<Mutex<Replica>>,
    view: Mutex<View>,
    local: Arc<dyn Disk>,
    label: String,
    taken: AtomicBool,
}

/// The directory with all operations done that were asked for, committed or not.
struct View {
    names: BTreeMap<String, Arc<Meta>>,
    next_file: u64,
    batch: Writer,
    /// Serial number of the batch.
    serial: u64,
    /// The requests of the first and of the last batch that was published; 0 before the first.
    first: u64,
    published: u64,
}

/// What is known of a file.
struct Meta {
    file: FileId,
    /// True while its name is one of [`TEMPORARY`].
    is_temporary: AtomicBool,
    state: Mutex<MetaState>,
    /// The file on this node, once it was read or its name was taken away: as on any disk, whoever has it open reads
    /// it to its end.
    local: Mutex<Option<Arc<dyn DiskFile>>>,
}

#[derive(Clone, Copy)]
struct MetaState {
    len: u64,
    /// From here on there may be operations that are not applied.
    unapplied_from: u64,
    /// Serial number of the batch with the last of them.
    last_batch: u64,
}

impl QuorumDirectory {
    /// The directory as it is at the beginning of an epoch. `replica` has everything applied that was
    /// committed before, and nobody else applies anything while this lives.
    ///
    /// # Errors
    /// The disk's.
    pub fn new(
        host: Arc<Host>,
        epoch: types::Epoch,
        replica: Arc<Mutex<Replica>>,
        local: Arc<dyn Disk>,
        label: String,
    ) -> io::Result<Self> {
        let mut names = BTreeMap::new();
        let next_file = {
            let replica = replica.lock();
            for (name, file) in replica.names() {
                let open = replica.file(file).expect("a file with a name is open");
                names.insert(name.clone(), Meta::new(name, file, open.len()?));
            }
            replica.next_file()
        };
        let view = View {
            names,
            next_file,
            batch: begin_payload(epoch, 1),
            serial: 1,
            first: 0,
            published: 0,
        };
        let taken = AtomicBool::new(false);
        let view = Mutex::new(view);
        Ok(Self(Arc::new(Shared { host, epoch, replica, view, local, label, taken })))
    }

    /// The epoch that this directory is written in.
    #[must_use]
    pub fn epoch(&self) -> types::Epoch {
        self.0.epoch
    }
}

impl Meta {
    fn new(name: &str, file: FileId, len: u64) -> Arc<Self> {
        let state = MetaState { len, unapplied_from: u64::MAX, last_batch: 0 };
        let is_temporary = AtomicBool::new(name.starts_with(TEMPORARY));
        Arc::new(Self { file, is_temporary, state: Mutex::new(state), local: Mutex::default() })
    }

    /// The file on this node; none before its creation is applied, and after its removal.
    fn local(&self, replica: &Mutex<Replica>) -> Option<Arc<dyn DiskFile>> {
        let mut local = self.local.lock();
        if local.is_none() {
            *local = replica.lock().file(self.file).cloned();
        }
        local.clone()
    }
}

impl View {
    fn add(&mut self, operation: &Operation<'_>) {
        operation.encode(&mut self.batch);
    }

    /// The request that must be committed before the next batch is published. Those before the first are of other epochs
    /// that this node owned.
    fn waits_for(&self) -> Option<u64> {
        let earlier = self.published.checked_sub(UNDER_WAY_MAX);
        earlier.filter(|earlier| *earlier >= self.first)
    }

    fn is_empty(&self) -> bool {
        self.batch.0.len() == EMPTY_PAYLOAD
    }

    /// Notes that an operation of the batch changes a file from an offset on.
    fn touch(&self, meta: &Meta, from: u64, len: impl FnOnce(u64) -> u64) {
        let mut state = meta.state.lock();
        state.unapplied_from = state.unapplied_from.min(from);
        state.last_batch = self.serial;
        state.len = len(state.len);
    }
}

impl Shared {
    /// Publishes the batch, if there is something in it.
    fn publish(&self, view: &mut View) -> Result<(), NotOwner> {
        if view.is_empty() {
            return Ok(());
        }
        if let Some(earlier) = view.waits_for() {
            self.host.wait_committed(self.epoch, earlier)?;
        }
        view.serial += 1;
        let mut batch = std::mem::replace(&mut view.batch, begin_payload(self.epoch, view.serial));
        // It stays in memory for keepers that are behind, as one of so many bytes.
        batch.0.shrink_to_fit();
        view.published = self.host.publish(self.epoch, Bytes::from(batch.0))?;
        if view.first == 0 {
            view.first = view.published;
        }
        Ok(())
    }

    /// Makes everything durable that was done so far, and applies it.
    fn commit(&self) -> io::Result<()> {
        let request = {
            let mut view = self.view.lock();
            self.publish(&mut view)?;
            view.published
        };
        self.apply_to(request)
    }

    fn apply_to(&self, request: u64) -> io::Result<()> {
        if request == 0 {
            return Ok(());
        }
        let lsn = self.host.wait_committed(self.epoch, request)?;
        apply(&self.host, &mut self.replica.lock(), lsn)
    }

    fn meta(&self, path: &str) -> io::Result<Arc<Meta>> {
        let view = self.view.lock();
        view.names.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(self: &Arc<Self>, meta: Arc<Meta>) -> Arc<dyn DiskFile> {
        Arc::new(QuorumFile { shared: Arc::clone(self), meta })
    }

    /// A file loses its name: who has it open keeps it.
    fn unname(&self, meta: &Meta) {
        let _ = meta.local(&self.replica);
    }
}

/// Applies what is committed up to an entry. A disk on which that fails has failed: what it holds is as it was marked,
/// and the next start goes on from there.
///
/// # Errors
/// The disk's; an error if an entry cannot be read here, which may be healed meanwhile.
pub fn apply(host: &Host, replica: &mut Replica, upto: Lsn) -> io::Result<()> {
    while replica.applied() < upto {
        let entries = host.committed(replica.applied());
        if entries.is_empty() {
            let what = format!(
                "entry {} of the quorum log cannot be read here",
                replica.applied().next().0
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        for (lsn, payload) in entries {
            let had_failed = replica.has_failed();
            let applied = replica.apply(lsn, &payload);
            if let Err(error) = applied.as_ref()
                && !had_failed
            {
                host.fail(&format!(
                    "entry {} cannot be applied to the keeper's files: {error}",
                    lsn.0
                ));
            }
            applied?;
        }
    }
    Ok(())
}

impl Disk for QuorumDirectory {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut view = self.0.view.lock();
        let file = FileId(view.next_file);
        view.next_file += 1;
        view.add(&Operation::Create { path: path.to_owned(), file });
        let meta = Meta::new(path, file, 0);
        view.touch(&meta, 0, |len| len);
        view.names.insert(path.to_owned(), Arc::clone(&meta));
        Ok(self.0.file(meta))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.0.file(self.0.meta(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut view = self.0.view.lock();
        let meta = view.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        meta.is_temporary.store(to.starts_with(TEMPORARY), Ordering::Release);
        if let Some(replaced) = view.names.insert(to.to_owned(), meta) {
            self.0.unname(&replaced);
        }
        view.add(&Operation::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut view = self.0.view.lock();
        let removed = view.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.0.unname(&removed);
        view.add(&Operation::Remove { path: path.to_owned() });
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Ok(names_in(dir, self.0.view.lock().names.keys()))
    }

    /// A sub-directory is there as soon as a file is in it.
    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        self.0.commit()
    }

    /// This node's own: whether others have less is in [`Disk::is_short`].
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.local.free_bytes()
    }

    fn is_short(&self) -> bool {
        self.0.host.takes_no_messages()
    }

    fn medium(&self) -> Medium {
        MEDIUM
    }

    fn label(&self) -> String {
        self.0.label.clone()
    }
}

/// The log is this node's while it owns the epoch.
struct EpochTenure {
    epoch: Epoch,
    shared: Arc<Shared>,
}

impl Tenure for EpochTenure {
    fn epoch(&self) -> Option<Epoch> {
        Some(self.epoch)
    }

    fn standing(&self) -> Standing {
        self.shared.host.standing(self.shared.epoch)
    }
}

impl Drop for EpochTenure {
    fn drop(&mut self) {
        self.shared.taken.store(false, Ordering::Release);
    }
}

impl Ownership for QuorumDirectory {
    fn take(&self) -> io::Result<Option<Box<dyn Tenure>>> {
        if self.0.taken.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let tenure = EpochTenure { epoch: Epoch(self.0.epoch.0), shared: Arc::clone(&self.0) };
        if self.0.host.status().owner == Some(self.0.epoch) {
            Ok(Some(Box::new(tenure)))
        } else {
            Err(NotOwner { epoch: self.0.epoch }.into())
        }
    }
}

/// Nodes have no common times of their files: a segment's age counts from when its owner first sees it sealed.
impl Dated for QuorumDirectory {
    fn modified(&self, _path: &str) -> io::Result<Option<SystemTime>> {
        Ok(None)
    }
}

struct QuorumFile {
    shared: Arc<Shared>,
    meta: Arc<Meta>,
}

impl QuorumFile {
    /// Waits until what was done to the file before `end` is applied.
    fn settle(&self, end: u64) -> io::Result<()> {
        let before = *self.meta.state.lock();
        if end <= before.unapplied_from {
            return Ok(());
        }
        self.shared.commit()?;
        let mut state = self.meta.state.lock();
        // All batches up to the one that was open before this are applied.
        if state.last_batch == before.last_batch {
            state.unapplied_from = u64::MAX;
        }
        Ok(())
    }

    fn local(&self) -> io::Result<Arc<dyn DiskFile>> {
        self.meta.local(&self.shared.replica).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for QuorumFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut view = self.shared.view.lock();
        if view.batch.0.len() + bytes.len() + OPERATION_OVERHEAD > BATCH_BYTES {
            self.shared.publish(&mut view)?;
        }
        view.add(&Operation::Write { file: self.meta.file, at: offset, bytes });
        let end = offset + bytes.len() as u64;
        view.touch(&self.meta, offset, |len| len.max(end));
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.settle(offset.saturating_add(into.len() as u64))?;
        self.local()?.read_at(into, offset)
    }

    fn read_shared(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.settle(offset.saturating_add(len as u64))?;
        self.local()?.read_shared(offset, len)
    }

    fn sync(&self) -> io::Result<()> {
        match self.meta.is_temporary.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.shared.commit(),
        }
    }

    /// What was committed is durable, and nothing else is shown.
    fn reread(&self) -> io::Result<()> {
        Ok(())
    }

    /// Another node is asked for it.
    fn doubt(&self, offset: u64, len: u64) {
        self.shared.host.doubt_file(FileRange { file: self.meta.file, at: offset, len });
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.meta.state.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut view = self.shared.view.lock();
        view.add(&Operation::SetLen { file: self.meta.file, len });
        view.touch(&self.meta, len, |_| len);
        Ok(())
    }

    /// Space is not set aside: see [`Disk::medium`].
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_that_was_published_in_another_epoch() {
        let batch = begin_payload(types::Epoch(7), 1);
        let names = BTreeMap::new();
        let mut view = View { names, next_file: 1, batch, serial: 1, first: 0, published: 0 };
        assert_eq!(view.waits_for(), None);
        // The node's requests 97 to 100 were of an epoch that it lost.
        let waited = (101..=107).map(|request| {
            view.first = if view.first == 0 { request } else { view.first };
            view.published = request;
            view.waits_for()
        });
        let waited: Vec<Option<u64>> = waited.collect();
        assert_eq!(waited, [None, None, None, None, Some(101), Some(102), Some(103)]);
    }
}

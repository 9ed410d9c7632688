//! The log of a member: one file of frames. The first frame holds a snapshot; each later one what one step of the
//! library wants durable: term and vote, and entries, which take the place of those from the first of them on.
//! Nothing is overwritten. A new snapshot is a new file under the same name.
//!
//! A frame is `magic u32 | number u64 | length u32 | CRC-32 of all other bytes u32 | content`. It is synced before the
//! next one is written, so at most the last one can be torn. A frame that cannot be read with another one behind it
//! is damage.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::identity::damaged;
use crate::raft_codec::{entry, hard, put_entry, put_hard, put_snapshot, snapshot};
use crate::rules::Rule;
use nuthatch_log::env::{Disk, DiskFile, again, read_exact_at, replace_file};
use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{Error as RaftError, GetEntriesContext, RaftState, Storage, StorageError};
use std::io;
use std::sync::Arc;

/// The file of frames.
const LOG: &str = "catalog/log";

/// Bytes of a file of frames at most: far above what is written before a new one is begun.
const LOG_MAX: usize = 256 << 20;

const MAGIC: u32 = u32::from_le_bytes(*b"NCG1");
const HEADER_BYTES: usize = 20;

/// The log of a member, in memory and on its disk.
pub struct Store {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    /// Where the next frame goes, and its number.
    len: u64,
    number: u64,
    hard: HardState,
    /// The commit that is written.
    kept: u64,
    snapshot: Snapshot,
    /// Entries behind the snapshot, without a gap.
    entries: Vec<Entry>,
}

/// What a frame holds.
#[derive(Clone, PartialEq, Debug, Default)]
struct Frame {
    snapshot: Option<Snapshot>,
    hard: Option<HardState>,
    entries: Vec<Entry>,
}

impl Frame {
    fn encode(&self, number: u64) -> Vec<u8> {
        let mut body = Writer::default();
        body.option(self.snapshot.as_ref(), put_snapshot);
        body.option(self.hard.as_ref(), put_hard);
        body.all(&self.entries, put_entry);
        let mut to = Writer::default();
        to.u32(MAGIC);
        to.u64(number);
        to.u32(u32::try_from(body.0.len()).expect("bounded"));
        let sum = summed(&to.0, &body.0);
        to.u32(sum);
        to.0.extend_from_slice(&body.0);
        to.0
    }

    /// The frame of this number that bytes begin with, and how long it is.
    fn decode(bytes: &[u8], number: u64) -> Result<(Self, usize), Malformed> {
        let mut from = Reader(bytes);
        let head = from.take(HEADER_BYTES - 4)?;
        let mut said = Reader(head);
        if said.u32()? != MAGIC || said.u64()? != number {
            return Err(malformed("no frame of its number"));
        }
        let len = said.u32()? as usize;
        let sum = from.u32()?;
        let body = from.take(len)?;
        if sum != summed(head, body) {
            return Err(malformed("the checksum of a frame does not fit"));
        }
        let mut from = Reader(body);
        let frame = Self {
            snapshot: from.option(snapshot)?,
            hard: from.option(hard)?,
            entries: from.all(entry)?,
        };
        from.end()?;
        Ok((frame, HEADER_BYTES + len))
    }
}

fn summed(head: &[u8], body: &[u8]) -> u32 {
    crc(&[head, body].concat())
}

/// True if a frame of any later number begins somewhere in bytes.
fn holds_a_frame(bytes: &[u8], behind: u64) -> bool {
    let number = |at: usize| bytes.get(at + 4..at + 12)?.try_into().ok().map(u64::from_le_bytes);
    (0..bytes.len().saturating_sub(HEADER_BYTES)).any(|at| {
        bytes[at..at + 4] == MAGIC.to_le_bytes()
            && number(at).is_some_and(|number| {
                number > behind && Frame::decode(&bytes[at..], number).is_ok()
            })
    })
}

impl Store {
    /// Opens the log of a disk; one that has none begins with `founded`.
    ///
    /// # Errors
    /// The disk's; `InvalidData` if it is damaged.
    pub fn open(disk: Arc<dyn Disk>, founded: impl FnOnce() -> Snapshot) -> io::Result<Self> {
        let read = || {
            let file = disk.open(LOG)?;
            // After a sync that failed the cache shows what the medium does not have: a vote, an entry.
            file.reread()?;
            let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(LOG_MAX);
            let bytes = read_exact_at(&*file, 0, len)?;
            Ok((file, bytes))
        };
        let (file, bytes) = match again(read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let first = Frame { snapshot: Some(founded()), ..Frame::default() };
                replace_file(&*disk, LOG, &first.encode(0))?;
                read()?
            }
            read => read?,
        };
        let mut store = Self {
            disk,
            file,
            len: 0,
            number: 0,
            hard: HardState::default(),
            kept: 0,
            snapshot: Snapshot::default(),
            entries: vec![],
        };
        store.replay(&bytes)?;
        Ok(store)
    }

    fn replay(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            match Frame::decode(&bytes[at..], self.number) {
                Ok((frame, len)) => {
                    self.take(frame).map_err(|why| damaged(&*self.disk, LOG, why.what))?;
                    at += len;
                    self.number += 1;
                }
                Err(why) if self.number == 0 || holds_a_frame(&bytes[at..], self.number) => {
                    return Err(damaged(&*self.disk, LOG, why.what));
                }
                Err(_) => {
                    self.cut(&bytes[at..], at as u64)?;
                    break;
                }
            }
        }
        self.len = at as u64;
        // A commit is written with entries that came with it: nothing is committed that is not here.
        self.hard.commit = self.hard.commit.clamp(self.index(), self.last());
        Ok(())
    }

    /// Sets a torn frame aside: it was not synced, so nobody was told of it.
    fn cut(&self, torn: &[u8], at: u64) -> io::Result<()> {
        replace_file(&*self.disk, &format!("catalog/torn-{}", self.number), torn)?;
        self.file.set_len(at)?;
        self.file.sync()
    }

    /// What a frame changes in memory.
    fn take(&mut self, frame: Frame) -> Result<(), Malformed> {
        if let Some(snapshot) = frame.snapshot {
            self.snapshot = snapshot;
            self.entries.clear();
        }
        if let Some(hard) = frame.hard {
            self.kept = hard.commit;
            self.hard = hard;
        }
        if let Some(first) = frame.entries.first() {
            let follows = frame.entries.iter().zip(first.index..).all(|(e, at)| e.index == at);
            if !follows || first.index <= self.index() || first.index > self.last() + 1 {
                return Err(malformed("entries that do not follow those before them"));
            }
            self.entries.truncate(self.place(first.index));
            self.entries.extend(frame.entries);
        }
        Ok(())
    }

    /// Index of the snapshot.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.snapshot.get_metadata().index
    }

    /// Index of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.index() + self.entries.len() as u64
    }

    fn place(&self, index: u64) -> usize {
        usize::try_from(index - self.index() - 1).expect("in memory")
    }

    /// The snapshot.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Term and vote.
    #[must_use]
    pub fn hard(&self) -> &HardState {
        &self.hard
    }

    /// What is committed: in memory, since whoever forgets it is told again ([`Store::keep_committed`] for what must not be).
    pub fn committed(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    /// Writes term and vote if they changed, and entries, durably.
    ///
    /// # Errors
    /// The disk's: nobody knows what is durable.
    pub fn append(&mut self, hard: Option<&HardState>, entries: Vec<Entry>) -> io::Result<()> {
        let is_new = |hard: &&HardState| (hard.term, hard.vote) != (self.hard.term, self.hard.vote);
        if let Some(hard) = hard.filter(|hard| !is_new(hard)) {
            self.hard.commit = hard.commit;
        }
        let changed = hard.filter(is_new).cloned();
        if changed.is_none() && entries.is_empty() {
            return Ok(());
        }
        let written =
            if Rule::VoteDurable.holds() { Some(hard.unwrap_or(&self.hard)) } else { None };
        self.write(Frame { snapshot: None, hard: written.cloned(), entries })?;
        if let Some(hard) = changed {
            self.hard = hard;
        }
        Ok(())
    }

    /// Writes what is committed, durably, if a start would not know that it is up to here. A change of the members must
    /// be: while members begin with the former ones again, those that are gone are waited for, and nobody leads.
    ///
    /// # Errors
    /// The disk's: nobody knows what is durable.
    pub fn keep_committed(&mut self, upto: u64) -> io::Result<()> {
        if upto <= self.kept || !Rule::MembersKept.holds() || !Rule::VoteDurable.holds() {
            return Ok(());
        }
        let commit = upto.max(self.hard.commit);
        let hard = HardState { commit, ..self.hard.clone() };
        self.write(Frame { snapshot: None, hard: Some(hard), entries: vec![] })
    }

    fn write(&mut self, frame: Frame) -> io::Result<()> {
        let bytes = frame.encode(self.number);
        self.file.write_at(&bytes, self.len)?;
        if Rule::SyncBeforeMessages.holds() {
            self.file.sync()?;
        }
        self.len += bytes.len() as u64;
        self.number += 1;
        self.take(frame).map_err(|why| io::Error::other(why.what))
    }

    /// Begins a new file with a snapshot of what was applied here, durably: entries up to it are let go.
    ///
    /// # Errors
    /// The disk's.
    pub fn compact(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let index = snapshot.get_metadata().index;
        let behind = self.entries.iter().filter(|entry| entry.index > index);
        let entries = behind.cloned().collect();
        self.begin_with(snapshot, None, entries)
    }

    /// Begins a new file with a snapshot of the leader, durably: the library knows no entry any more, so none is kept. `hard`
    /// as the library has it.
    ///
    /// # Errors
    /// The disk's.
    pub fn restore(&mut self, snapshot: Snapshot, hard: Option<&HardState>) -> io::Result<()> {
        self.begin_with(snapshot, hard, vec![])
    }

    fn begin_with(
        &mut self,
        snapshot: Snapshot,
        hard: Option<&HardState>,
        entries: Vec<Entry>,
    ) -> io::Result<()> {
        let index = snapshot.get_metadata().index;
        let mut hard = hard.unwrap_or(&self.hard).clone();
        hard.commit = hard.commit.max(index);
        let frame = Frame { snapshot: Some(snapshot), hard: Some(hard), entries };
        let bytes = frame.encode(0);
        replace_file(&*self.disk, LOG, &bytes)?;
        self.file = self.disk.open(LOG)?;
        (self.len, self.number) = (bytes.len() as u64, 1);
        self.take(frame).map_err(|why| io::Error::other(why.what))
    }
}

impl Storage for Store {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let conf = self.snapshot.get_metadata().get_conf_state().clone();
        Ok(RaftState::new(self.hard.clone(), conf))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.index() {
            return Err(RaftError::Store(StorageError::Compacted));
        }
        let mut entries = self.entries[self.place(low)..self.place(high)].to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.index() {
            return Ok(self.snapshot.get_metadata().term);
        }
        if index < self.index() {
            return Err(RaftError::Store(StorageError::Compacted));
        }
        let entry = self.entries.get(self.place(index));
        entry.map(|entry| entry.term).ok_or(RaftError::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.index() + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        match self.index() >= request_index {
            true => Ok(self.snapshot.clone()),
            false => Err(RaftError::Store(StorageError::SnapshotTemporarilyUnavailable)),
        }
    }
}

#[cfg(test)]
mod tests;

//! The journal `ops/`: the entries of the quorum log with their payloads, in the order in which they were
//! written.
//!
//! A record begins at a multiple of 4,096 bytes with a header of 96 bytes that has a checksum; the payload
//! follows, which the entry's hash checks, and zeros up to the next multiple. Files are allocated ahead and
//! filled with zeros a little ahead of the records, so a sync has no metadata to write. There are three kinds: an
//! entry behind the last one; an entry written anew whose bytes were damaged; and that everything
//! behind an entry was cut back.
//!
//! Reading finds the records behind damage, because their beginnings can be recognised; what was between is
//! given to the keeper as damage. What lies behind the last record that can be read is a torn tail.

mod record;

use self::record::{BLOCK, Place, Record, decode_header, encode_header, padded, read_payload};
pub use self::record::{RECORD_HEADER, RecordOnDisk};
use crate::coding::payload_hash;
use crate::packet;
use crate::rules::{ENDED_SYNCED, JOURNAL_NAME_SYNC, NAMES_AT_START, REREAD, TAIL_CUT_OFF};
use crate::sync_gate::{SyncGate, ToSync, Written};
use bytes::Bytes;
use nuthatch_log::env::{AlignedBuf, DIRECT_ALIGN, Disk, DiskFile, again, read_exact_at};
use nuthatch_quorum::entry::Entry;
use nuthatch_quorum::store::Slot;
use nuthatch_quorum::types::Lsn;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// The directory of the journal.
pub const OPS_DIR: &str = "ops";

/// A file of the journal is ended when it has so many bytes.
const FILE_BYTES: u64 = 64 << 20;

/// Zeros are written so far ahead of small records.
const ZERO_AHEAD: usize = 1 << 20;

/// Records from this size on go to space that was only allocated.
const LARGE_RECORD: usize = 256 * 1024;

/// Sizes of a journal's files; tests have small ones, so that files end often. A journal is read whatever its files'
/// sizes were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// A file is ended when it has so many bytes.
    pub file: u64,
    /// Zeros are written so many bytes ahead of small records.
    pub zero_ahead: usize,
    /// Records of so many bytes go to space that was only allocated.
    pub large_record: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { file: FILE_BYTES, zero_ahead: ZERO_AHEAD, large_record: LARGE_RECORD }
    }
}

/// The file that is written to.
struct Open {
    number: u32,
    file: Arc<dyn DiskFile>,
    at: u64,
    zeroed: u64,
    allocated: u64,
}

/// The file behind the open one, made before it is needed: whoever writes does not wait for its syncs.
enum Spare {
    None,
    /// Somebody is making it.
    UnderWay(u32),
    Ready(u32, Arc<dyn DiskFile>),
}

/// Makes an empty file of a journal of so many bytes, durably. Waits for the disk.
///
/// # Errors
/// The disk's.
pub fn make_file(disk: &dyn Disk, number: u32, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(&path(number))?;
    if let Err(error) = file.allocate(0, bytes) {
        // Whoever tries again makes it anew.
        disk.remove(&path(number))?;
        return Err(error);
    }
    file.sync()?;
    if JOURNAL_NAME_SYNC.holds() {
        disk.sync_dir(OPS_DIR)?;
    }
    Ok(file)
}

/// Removes files of a journal, whose entries are trimmed and noted to be.
///
/// # Errors
/// The disk's.
pub fn remove_files(disk: &dyn Disk, numbers: &[u32]) -> io::Result<()> {
    for number in numbers {
        disk.remove(&path(*number))?;
    }
    if numbers.is_empty() { Ok(()) } else { disk.sync_dir(OPS_DIR) }
}

/// True if an error says that bytes of a medium cannot be read: that is damage, and no reason not to start.
fn is_unreadable(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, NotFound, OutOfMemory, PermissionDenied, UnexpectedEof};
    let other = [Interrupted, NotFound, OutOfMemory, PermissionDenied, UnexpectedEof];
    !other.contains(&error.kind())
}

/// Copies what can be read of a file behind `from`, but for blocks of zeros.
fn copy_torn(file: &dyn DiskFile, from: u64, into: &dyn DiskFile, at: u64) -> io::Result<()> {
    let len = file.len()?;
    for offset in (from..len).step_by(DIRECT_ALIGN) {
        let size = usize::try_from((len - offset).min(BLOCK)).expect("a block");
        match again(|| read_exact_at(file, offset, size)) {
            Err(error) if is_unreadable(&error) => {}
            bytes => {
                let bytes = bytes?;
                let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if used > 0 {
                    into.write_at(&bytes[..used], at + offset - from)?;
                }
            }
        }
    }
    Ok(())
}

/// A journal that is open.
pub struct Journal {
    disk: Arc<dyn Disk>,
    gate: Arc<SyncGate>,
    files: BTreeMap<u32, Arc<dyn DiskFile>>,
    /// Entries up to this one are trimmed.
    base: Lsn,
    /// Of the entries behind it; none where an entry is damaged.
    places: VecDeque<Option<Place>>,
    /// The greatest entry that has a record in each file.
    last_in: BTreeMap<u32, Lsn>,
    open: Option<Open>,
    /// Files before the open one, and how much was written when they were ended: they may not be synced yet.
    ended: Vec<(Arc<dyn DiskFile>, Written)>,
    spare: Spare,
    zeros: AlignedBuf,
    sizes: Sizes,
    /// True if there are bytes behind the last record.
    torn: bool,
    /// True if some of those in the open file cannot be read.
    unreadable: bool,
}

fn path(number: u32) -> String {
    format!("{OPS_DIR}/{number:08}")
}

/// Number of places from behind `base` up to an entry.
fn count(base: Lsn, lsn: Lsn) -> usize {
    usize::try_from(lsn.0.saturating_sub(base.0)).expect("a count")
}

impl Journal {
    /// Opens the journal of a keeper's directory, whose log is trimmed up to `base`, and reads all of it. Gives
    /// the places of the entries behind that, as they can be read.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>, base: Lsn) -> io::Result<(Self, Vec<Slot>)> {
        Self::open_behind(disk, base, Arc::default(), Sizes::default())
    }

    /// As [`Journal::open`], behind a gate that an earlier journal of this directory had, and with files of other sizes.
    ///
    /// # Errors
    /// The disk's.
    pub fn open_behind(
        disk: Arc<dyn Disk>,
        base: Lsn,
        gate: Arc<SyncGate>,
        sizes: Sizes,
    ) -> io::Result<(Self, Vec<Slot>)> {
        disk.create_dir(OPS_DIR)?;
        let mut journal = Self {
            files: BTreeMap::new(),
            base,
            places: VecDeque::new(),
            last_in: BTreeMap::new(),
            open: None,
            ended: Vec::new(),
            spare: Spare::None,
            zeros: AlignedBuf::zeroed(sizes.zero_ahead),
            sizes,
            torn: false,
            unreadable: false,
            gate,
            disk,
        };
        let mut slots = Vec::new();
        if NAMES_AT_START.holds() {
            // A process that ended while it made a file may have left a name that is not durable.
            journal.disk.sync_dir(OPS_DIR)?;
        }
        let names = journal.disk.list(OPS_DIR)?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        for number in &numbers {
            journal.read_file(*number, &mut slots)?;
        }
        if journal.torn {
            slots.push(Slot::Garbage);
        }
        Ok((journal, slots))
    }

    /// Number of the first file; none: there are none. Files before it were trimmed.
    ///
    /// # Errors
    /// The disk's.
    pub fn first_file(disk: &dyn Disk) -> io::Result<Option<u32>> {
        disk.create_dir(OPS_DIR)?;
        Ok(disk.list(OPS_DIR)?.iter().filter_map(|name| name.parse().ok()).min())
    }

    /// Reads one file; it becomes the one that is written to.
    fn read_file(&mut self, number: u32, slots: &mut Vec<Slot>) -> io::Result<()> {
        let file = again(|| self.disk.open(&path(number)))?;
        if REREAD.holds() {
            file.reread()?;
        }
        let len = file.len()?;
        self.files.insert(number, Arc::clone(&file));
        let (mut at, mut end, mut lost, mut unreadable) = (0, 0, false, false);
        while at + BLOCK <= len {
            let block = match again(|| read_exact_at(&*file, at, DIRECT_ALIGN)) {
                Err(error) if is_unreadable(&error) => {
                    // Damage as any other, which peers heal; the block stays where it is.
                    (lost, unreadable) = (true, true);
                    at += BLOCK;
                    continue;
                }
                block => block?,
            };
            let header = decode_header(&block);
            let Some((record, payload)) =
                header.filter(|(_, payload)| at + padded(*payload) <= len)
            else {
                lost |= block.iter().any(|byte| *byte != 0);
                at += BLOCK;
                continue;
            };
            let block = u32::try_from(at / BLOCK).expect("files are small");
            let place = Place { file: number, block, payload: payload as u32 };
            self.take_record(record, place, &*file, slots)?;
            // What could not be read before it is damage, and the keeper sees that by the numbers.
            (self.torn, lost, unreadable) = (false, false, false);
            at += padded(payload);
            end = at;
        }
        // Behind what an earlier file ends with there is a later record, or nothing at all.
        self.torn |= lost;
        self.unreadable = unreadable;
        // An earlier process may not have synced it.
        self.end_open();
        self.open = Some(Open { number, file, at: end, zeroed: end, allocated: len });
        Ok(())
    }

    fn take_record(
        &mut self,
        record: Record,
        place: Place,
        file: &dyn DiskFile,
        slots: &mut Vec<Slot>,
    ) -> io::Result<()> {
        let entry = match record {
            Record::CutBehind(lsn) => {
                let last = count(self.base, lsn);
                self.places.truncate(last);
                slots.truncate(last);
                return Ok(());
            }
            Record::Healed(entry) => entry,
            Record::Entry(entry) => {
                // An entry for a place that is taken stands behind a cut that cannot be read.
                let before = count(self.base, entry.lsn.before());
                slots.truncate(before);
                self.places.truncate(before);
                entry
            }
        };
        let last = self.last_in.entry(place.file).or_default();
        *last = (*last).max(entry.lsn);
        // Those that are trimmed are not looked at any more.
        let Some(at) = count(self.base, entry.lsn).checked_sub(1) else { return Ok(()) };
        let needed = at + 1;
        if slots.len() < needed {
            slots.resize(needed, Slot::Garbage);
            self.places.resize(needed, None);
        }
        let good = match read_payload(file, place) {
            Err(error) if is_unreadable(&error) => false,
            payload => {
                let payload = payload?;
                packet::hash_of(&entry).is_none_or(|hash| payload_hash(&payload) == hash)
            }
        };
        slots[at] = if good { Slot::Bytes(entry) } else { Slot::Garbage };
        self.places[at] = good.then_some(place);
        Ok(())
    }

    /// The payload of an entry; empty for one that has none.
    ///
    /// # Errors
    /// The disk's; `NotFound` for an entry that is not here or damaged, `InvalidData` for one that has become so.
    pub fn payload(&self, entry: &Entry) -> io::Result<Bytes> {
        if packet::hash_of(entry).is_none() {
            return Ok(Bytes::new());
        }
        self.record(entry).ok_or(io::ErrorKind::NotFound)?.payload()
    }

    /// Where an entry's record is, to be read again without the journal; none of one that is damaged.
    #[must_use]
    pub fn record(&self, entry: &Entry) -> Option<RecordOnDisk> {
        let place = self.place(entry.lsn)?;
        let file = Arc::clone(self.files.get(&place.file)?);
        Some(RecordOnDisk { entry: *entry, file, place })
    }

    /// Writes an entry behind the last one, not yet durably.
    ///
    /// # Errors
    /// The disk's: what is on it is unknown then.
    pub fn append(&mut self, entry: &Entry, payload: &[u8]) -> io::Result<()> {
        let place = self.write(Record::Entry(*entry), payload)?;
        let before = count(self.base, entry.lsn.before());
        self.places.resize(before, None);
        self.places.push_back(Some(place));
        let last = self.last_in.entry(place.file).or_default();
        *last = (*last).max(entry.lsn);
        Ok(())
    }

    fn place(&self, lsn: Lsn) -> Option<Place> {
        let at = count(self.base, lsn).checked_sub(1)?;
        self.places.get(at).copied().flatten()
    }

    /// The last entry that can be trimmed so that whole files go and `files` of them stay beside the open one.
    #[must_use]
    pub fn trim_point(&self, files: usize) -> Lsn {
        let ended = self.files.keys().filter(|number| Some(**number) != self.written()).count();
        let mut greatest = Lsn(0);
        for number in self.files.keys().take(ended.saturating_sub(files)) {
            // An entry that was cut may have had a greater number.
            greatest = greatest.max(self.last_in.get(number).copied().unwrap_or_default());
        }
        greatest
    }

    fn written(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.number)
    }

    /// Forgets the entries up to `base`, and gives the files that hold no others, from the first on: they are to be
    /// removed once it is noted durably what was trimmed.
    pub fn forget_to(&mut self, base: Lsn) -> Vec<u32> {
        let gone = count(self.base, base).min(self.places.len());
        self.places.drain(..gone);
        self.base = self.base.max(base);
        let whole = |number: &u32| match self.last_in.get(number) {
            Some(last) => *last <= base,
            // Where no record can be read, the next one that can tells.
            None => self.last_in.range(number..).next().is_some_and(|(_, last)| *last <= base),
        };
        let open = self.written();
        let numbers =
            self.files.keys().take_while(|number| Some(**number) != open && whole(number));
        let numbers: Vec<u32> = numbers.copied().collect();
        for number in &numbers {
            self.files.remove(number);
            self.last_in.remove(number);
        }
        numbers
    }

    /// Writes an entry anew whose bytes were damaged.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn heal(&mut self, entry: &Entry, payload: &[u8]) -> io::Result<()> {
        let place = self.write(Record::Healed(*entry), payload)?;
        let at = count(self.base, entry.lsn).checked_sub(1).expect("an entry that is not trimmed");
        self.places[at] = Some(place);
        let last = self.last_in.entry(place.file).or_default();
        *last = (*last).max(entry.lsn);
        Ok(())
    }

    /// Takes everything behind an entry out of the log, and whatever lies behind the last record off the
    /// disk.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn cut(&mut self, after: Lsn) -> io::Result<()> {
        if std::mem::take(&mut self.unreadable) {
            // What cannot be read was not copied, so it stays: another file goes on.
            self.end_open();
        } else if let Some(open) = self.open.as_mut().filter(|_| TAIL_CUT_OFF.holds()) {
            open.file.set_len(open.at)?;
            (open.zeroed, open.allocated) = (open.at, open.at);
        }
        self.torn = false;
        self.write(Record::CutBehind(after), &[])?;
        self.places.truncate(count(self.base, after));
        Ok(())
    }

    /// Copies everything behind an entry, and whatever lies behind the last record, into a file.
    ///
    /// # Errors
    /// The disk's.
    pub fn copy_behind(&self, after: Lsn, into: &dyn DiskFile) -> io::Result<()> {
        let mut at = 0;
        for place in self.places.iter().skip(count(self.base, after)).flatten() {
            let file = self.files.get(&place.file).ok_or(io::ErrorKind::NotFound)?;
            let len = usize::try_from(padded(place.payload as usize)).expect("a size");
            let bytes = read_exact_at(&**file, u64::from(place.block) * BLOCK, len)?;
            into.write_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        if let Some(open) = self.open.as_ref().filter(|_| self.torn) {
            copy_torn(&*open.file, open.at, into, at)?;
        }
        into.sync()
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> io::Result<()> {
        self.gate.sync(&self.to_sync())
    }

    /// What is to be synced so that everything written so far is durable.
    #[must_use]
    pub fn to_sync(&self) -> ToSync {
        let is_due = |written: &Written| ENDED_SYNCED.holds() && !self.gate.has_synced(*written);
        let ended = self.ended.iter().filter(|(_, written)| is_due(written));
        let open = self.open.iter().map(|open| &open.file);
        let files = ended.map(|(file, _)| file).chain(open).cloned().collect();
        ToSync { files, written: self.gate.written() }
    }

    /// Number of a file that is to be made for later; whoever asks makes it ([`make_file`]) and gives it.
    pub fn wants_spare(&mut self) -> Option<u32> {
        let open = self.open.as_ref().filter(|open| open.at >= self.sizes.file / 2)?;
        let number = open.number + 1;
        matches!(self.spare, Spare::None).then(|| {
            self.spare = Spare::UnderWay(number);
            number
        })
    }

    /// A file that was to be made for later was not.
    pub fn give_up_spare(&mut self) {
        self.spare = Spare::None;
    }

    /// Takes a file that was made for later.
    pub fn give_spare(&mut self, number: u32, file: Arc<dyn DiskFile>) {
        if self.written() == number.checked_sub(1) {
            self.spare = Spare::Ready(number, file);
        } else {
            // It came too late: it is empty, and goes with those before it.
            self.spare = Spare::None;
            self.files.insert(number, file);
        }
    }

    /// Sizes of its files.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// What all syncs of the journal go through.
    #[must_use]
    pub fn gate(&self) -> &Arc<SyncGate> {
        &self.gate
    }

    fn write(&mut self, record: Record, payload: &[u8]) -> io::Result<Place> {
        assert!(!self.torn, "nothing is written behind what was torn");
        let len = usize::try_from(padded(payload.len())).expect("a size");
        if self.open.as_ref().is_none_or(|open| open.at >= self.full_at()) {
            self.roll()?;
        }
        self.gate.wrote();
        let mut buf = AlignedBuf::with_capacity(len);
        buf.extend(&encode_header(record, payload.len()));
        buf.extend(payload);
        buf.extend_zeros(len - RECORD_HEADER - payload.len());
        let open = self.open.as_mut().expect("one was opened");
        let end = open.at + len as u64;
        if len < self.sizes.large_record && end > open.zeroed {
            let from = open.zeroed.max(open.at);
            open.file.write_at(&self.zeros, from)?;
            open.zeroed = from + self.sizes.zero_ahead as u64;
            open.allocated = open.allocated.max(open.zeroed);
        }
        open.file.write_at(&buf, open.at)?;
        let block = u32::try_from(open.at / BLOCK).expect("files are small");
        open.at = end;
        open.zeroed = open.zeroed.max(end);
        open.allocated = open.allocated.max(end);
        Ok(Place { file: open.number, block, payload: payload.len() as u32 })
    }

    /// How long the open file may become: the next one is waited for while it is being made.
    fn full_at(&self) -> u64 {
        let waits = matches!(self.spare, Spare::UnderWay(_));
        if waits { 2 * self.sizes.file } else { self.sizes.file }
    }

    /// Ends the open file and begins the next. The last records of the one are synced before those of the other.
    fn roll(&mut self) -> io::Result<()> {
        let next = match &self.open {
            // The first file of a log that is trimmed has another number than that of one that never was.
            None => self
                .files
                .last_key_value()
                .map_or(u32::from(self.base > Lsn(0)), |(number, _)| number + 1),
            Some(open) => {
                open.file.set_len(open.at)?;
                open.number + 1
            }
        };
        self.ended.retain(|(_, written)| !self.gate.has_synced(*written));
        if !self.ended.is_empty() {
            self.sync()?;
            self.ended.clear();
        }
        let (number, file) = match std::mem::replace(&mut self.spare, Spare::None) {
            Spare::Ready(number, file) => (number, file),
            // Whoever makes that one may be about to.
            Spare::UnderWay(number) => {
                (number + 1, make_file(&*self.disk, number + 1, self.sizes.file)?)
            }
            Spare::None => (next, make_file(&*self.disk, next, self.sizes.file)?),
        };
        self.files.insert(number, Arc::clone(&file));
        self.end_open();
        self.open = Some(Open { number, file, at: 0, zeroed: 0, allocated: self.sizes.file });
        Ok(())
    }

    /// Nothing more is written to the open file.
    fn end_open(&mut self) {
        if let Some(open) = self.open.take() {
            self.ended.push((open.file, self.gate.written()));
        }
    }
}

#[cfg(test)]
mod tests;

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

use crate::coding::{Reader, Writer, crc, payload_hash};
use crate::packet::{self, PAYLOAD_MAX};
use crate::records;
use bytes::Bytes;
use nuthatch_log::env::{AlignedBuf, DIRECT_ALIGN, Disk, DiskFile, again, read_exact_at};
use nuthatch_quorum::entry::Entry;
use nuthatch_quorum::store::Slot;
use nuthatch_quorum::types::Lsn;
use parking_lot::Mutex;
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

/// Bytes of a record before its payload.
pub const RECORD_HEADER: usize = 96;

const MAGIC: u64 = u64::from_le_bytes(*b"NUTHOPS1");
const BLOCK: u64 = DIRECT_ALIGN as u64;

/// What a record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Record {
    Entry(Entry),
    Healed(Entry),
    CutBehind(Lsn),
}

/// Where an entry's record is.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: u32,
    block: u32,
    payload: u32,
}

/// A record that is to be read again.
pub struct RecordOnDisk {
    entry: Entry,
    file: Arc<dyn DiskFile>,
    place: Place,
}

impl RecordOnDisk {
    /// Bytes that are read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        padded(self.place.payload as usize)
    }

    /// The number of another entry whose record begins here: its write went astray.
    #[must_use]
    pub fn stray(&self) -> Option<Lsn> {
        let at = u64::from(self.place.block) * BLOCK;
        let block = again(|| read_exact_at(&*self.file, at, DIRECT_ALIGN)).ok()?;
        match decode_header(&block) {
            Some((Record::Entry(entry) | Record::Healed(entry), _)) => Some(entry.lsn),
            _ => None,
        }
        .filter(|lsn| *lsn != self.entry.lsn)
    }

    /// True if it can be read and is what was written.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let len = usize::try_from(self.bytes()).expect("a size");
        let at = u64::from(self.place.block) * BLOCK;
        let Ok(bytes) = again(|| read_exact_at(&*self.file, at, len)) else { return false };
        let entry = match decode_header(&bytes) {
            Some((Record::Entry(entry) | Record::Healed(entry), _)) => entry,
            _ => return false,
        };
        let payload = &bytes[RECORD_HEADER..RECORD_HEADER + self.place.payload as usize];
        let is_whole = packet::hash_of(&entry).is_none_or(|hash| payload_hash(payload) == hash);
        entry == self.entry && is_whole
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

/// Makes files of a journal durable, one at a time. The system tells of a failure only once: whoever comes
/// after it, with whichever file, is told here.
#[derive(Default)]
pub struct SyncGate(Mutex<bool>);

impl SyncGate {
    /// Makes a file durable, if no sync has failed before.
    ///
    /// # Errors
    /// The disk's, or that an earlier sync had one.
    pub fn sync(&self, file: &dyn DiskFile) -> io::Result<()> {
        let mut failed = self.0.lock();
        if *failed {
            return Err(io::Error::other("an earlier sync of the journal has failed"));
        }
        let synced = file.sync();
        *failed = synced.is_err();
        synced
    }
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
    zeros: AlignedBuf,
    /// True if there are bytes behind the last record.
    torn: bool,
}

fn path(number: u32) -> String {
    format!("{OPS_DIR}/{number:08}")
}

fn encode_header(record: Record, payload: usize) -> [u8; RECORD_HEADER] {
    let mut body = Writer::default();
    body.u32(u32::try_from(payload).expect("bounded by the largest frame"));
    match record {
        Record::Entry(entry) => {
            body.u8(1);
            records::put_entry(&mut body, &entry);
        }
        Record::Healed(entry) => {
            body.u8(2);
            records::put_entry(&mut body, &entry);
        }
        Record::CutBehind(lsn) => {
            body.u8(3);
            body.u64(lsn.0);
        }
    }
    body.0.resize(RECORD_HEADER - 12, 0);
    let mut header = Writer::default();
    header.u64(MAGIC);
    header.u32(crc(&body.0));
    header.0.extend_from_slice(&body.0);
    header.0.try_into().expect("as long as a header")
}

/// The record that begins here, and the length of its payload.
fn decode_header(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut from = Reader(bytes);
    let known = from.u64().ok()? == MAGIC;
    let sum = from.u32().ok()?;
    let body = from.take(RECORD_HEADER - 12).ok().filter(|body| known && crc(body) == sum)?;
    let mut from = Reader(body);
    let payload = from.u32().ok()? as usize;
    let record = match from.u8().ok()? {
        1 => Record::Entry(records::entry(&mut from).ok()?),
        2 => Record::Healed(records::entry(&mut from).ok()?),
        3 => Record::CutBehind(Lsn(from.u64().ok()?)),
        _ => return None,
    };
    (payload <= PAYLOAD_MAX).then_some((record, payload))
}

fn padded(payload: usize) -> u64 {
    ((RECORD_HEADER + payload) as u64).next_multiple_of(BLOCK)
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
        Self::open_behind(disk, base, Arc::default())
    }

    /// As [`Journal::open`], behind a gate that an earlier journal of this directory had.
    ///
    /// # Errors
    /// The disk's.
    pub fn open_behind(
        disk: Arc<dyn Disk>,
        base: Lsn,
        gate: Arc<SyncGate>,
    ) -> io::Result<(Self, Vec<Slot>)> {
        disk.create_dir(OPS_DIR)?;
        let mut journal = Self {
            files: BTreeMap::new(),
            base,
            places: VecDeque::new(),
            last_in: BTreeMap::new(),
            open: None,
            zeros: AlignedBuf::zeroed(ZERO_AHEAD),
            torn: false,
            gate,
            disk,
        };
        let mut slots = Vec::new();
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
        let len = file.len()?;
        self.files.insert(number, Arc::clone(&file));
        let (mut at, mut end, mut lost) = (0, 0, false);
        while at + BLOCK <= len {
            let block = again(|| read_exact_at(&*file, at, DIRECT_ALIGN))?;
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
            (self.torn, lost) = (false, false);
            at += padded(payload);
            end = at;
        }
        // Behind what an earlier file ends with there is a later record, or nothing at all.
        self.torn |= lost;
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
        let payload = self.read_payload(file, place)?;
        let good = packet::hash_of(&entry).is_none_or(|hash| payload_hash(&payload) == hash);
        slots[at] = if good { Slot::Bytes(entry) } else { Slot::Garbage };
        self.places[at] = good.then_some(place);
        Ok(())
    }

    fn read_payload(&self, file: &dyn DiskFile, place: Place) -> io::Result<Bytes> {
        let offset = u64::from(place.block) * BLOCK + RECORD_HEADER as u64;
        again(|| file.read_shared(offset, place.payload as usize))
    }

    /// The payload of an entry; empty for one that has none.
    ///
    /// # Errors
    /// The disk's; `NotFound` for an entry that is not here or damaged, `InvalidData` for one that has become so.
    pub fn payload(&self, entry: &Entry) -> io::Result<Bytes> {
        let Some(hash) = packet::hash_of(entry) else { return Ok(Bytes::new()) };
        let place = self.place(entry.lsn).ok_or(io::ErrorKind::NotFound)?;
        let file = self.files.get(&place.file).ok_or(io::ErrorKind::NotFound)?;
        let payload = self.read_payload(&**file, place)?;
        if payload_hash(&payload) == hash {
            Ok(payload)
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
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

    /// Removes the files of which all entries are trimmed, from the first on, once that is noted durably.
    ///
    /// # Errors
    /// The disk's.
    pub fn drop_to(&mut self, base: Lsn) -> io::Result<()> {
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
            self.disk.remove(&path(*number))?;
            self.files.remove(number);
            self.last_in.remove(number);
        }
        if numbers.is_empty() { Ok(()) } else { self.disk.sync_dir(OPS_DIR) }
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
        if let Some(open) = &mut self.open {
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
            let len = usize::try_from(open.file.len()?.saturating_sub(open.at)).expect("a size");
            let bytes = read_exact_at(&*open.file, open.at, len)?;
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            into.write_at(&bytes[..used], at)?;
        }
        into.sync()
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| self.gate.sync(&*open.file))
    }

    /// The file whose sync makes everything written so far durable: files before it were synced when they
    /// were ended. None: nothing was written.
    #[must_use]
    pub fn written_file(&self) -> Option<Arc<dyn DiskFile>> {
        self.open.as_ref().map(|open| Arc::clone(&open.file))
    }

    /// What all syncs of the journal go through.
    #[must_use]
    pub fn gate(&self) -> &Arc<SyncGate> {
        &self.gate
    }

    fn write(&mut self, record: Record, payload: &[u8]) -> io::Result<Place> {
        assert!(!self.torn, "nothing is written behind what was torn");
        let len = usize::try_from(padded(payload.len())).expect("a size");
        if self.open.as_ref().is_none_or(|open| open.at >= FILE_BYTES) {
            self.roll()?;
        }
        let mut buf = AlignedBuf::with_capacity(len);
        buf.extend(&encode_header(record, payload.len()));
        buf.extend(payload);
        buf.extend_zeros(len - RECORD_HEADER - payload.len());
        let open = self.open.as_mut().expect("one was opened");
        let end = open.at + len as u64;
        if len < LARGE_RECORD && end > open.zeroed {
            let from = open.zeroed.max(open.at);
            open.file.write_at(&self.zeros, from)?;
            open.zeroed = from + ZERO_AHEAD as u64;
            open.allocated = open.allocated.max(open.zeroed);
        }
        open.file.write_at(&buf, open.at)?;
        let block = u32::try_from(open.at / BLOCK).expect("files are small");
        open.at = end;
        open.zeroed = open.zeroed.max(end);
        open.allocated = open.allocated.max(end);
        Ok(Place { file: open.number, block, payload: payload.len() as u32 })
    }

    /// Ends the open file durably and begins the next.
    fn roll(&mut self) -> io::Result<()> {
        let number = match &self.open {
            // The first file of a log that is trimmed has another number than that of one that never was.
            None => u32::from(self.base > Lsn(0)),
            Some(open) => {
                open.file.set_len(open.at)?;
                self.gate.sync(&*open.file)?;
                open.number + 1
            }
        };
        let file = self.disk.create(&path(number))?;
        file.allocate(0, FILE_BYTES)?;
        self.gate.sync(&*file)?;
        self.disk.sync_dir(OPS_DIR)?;
        self.files.insert(number, Arc::clone(&file));
        self.open = Some(Open { number, file, at: 0, zeroed: 0, allocated: FILE_BYTES });
        Ok(())
    }
}

#[cfg(test)]
mod tests;

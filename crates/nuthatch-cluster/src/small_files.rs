//! The small files of a keeper: `identity`, `promise`, `cut`, `base`, `installing`, and the greatest revision of the catalog
//! that this disk has seen.

use crate::coding::{Malformed, Reader, Writer, crc, malformed};
use crate::records;
use crate::rules::{PROMISE_SYNC, REREAD};
use nuthatch_log::env::{Disk, again, read_exact_at, replace_file};
use nuthatch_quorum::store::{BaseNote, CutNote, Identity, Record};
use nuthatch_quorum::types::{
    BootCount, Epoch, Incarnation, Lsn, NodeId, Position, Promise, Revision,
};
use std::io;

/// Version of everything in a keeper's directory.
pub const FORMAT: &str = "format";
/// Which disk this is.
pub const IDENTITY: &str = "identity";
/// The promise: two slots.
pub const PROMISE: &str = "promise";
/// That a torn tail was cut.
pub const CUT: &str = "cut";
/// Up to where the log is trimmed.
pub const BASE: &str = "base";
/// That files of another node are being put in place.
pub const INSTALLING: &str = "installing";
/// The greatest revision of the catalog that was seen.
pub const SEEN: &str = "catalog-seen";

/// Between the slots of the promise: no sector holds both.
const SLOT_BYTES: u64 = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"NQF1");

/// The version that this program writes.
const VERSION: u32 = 2;

/// The version of a node's directory with the keepers of several logs in it: a program that knows one log only must not
/// keep that one and leave the others out.
const SEVERAL_LOGS: u32 = 3;

/// A version that this program reads and goes on from: in it nothing is trimmed.
const UNTRIMMED: u32 = 1;

/// What stands before the version.
const FORMAT_TEXT: &str = "nuthatch quorum directory, format ";

fn read_format(disk: &dyn Disk) -> io::Result<Vec<u8>> {
    let file = disk.open(FORMAT)?;
    read_exact_at(&*file, 0, usize::try_from(file.len()?).unwrap_or(usize::MAX).min(4096))
}

/// Refuses a directory of a later version before anything in it is read, because what is not understood
/// would count as damage. One that says nothing yet gets this version.
///
/// # Errors
/// The disk's; `InvalidData`: it is of a later version, or that cannot be told. Nothing was changed.
pub fn check_format(disk: &dyn Disk) -> io::Result<()> {
    let bytes = match again(|| read_format(disk)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return replace_file(disk, FORMAT, format!("{FORMAT_TEXT}{VERSION}\n").as_bytes());
        }
        bytes => bytes?,
    };
    let version = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT_TEXT)?.strip_suffix('\n')?.parse::<u32>().ok());
    let label = disk.label();
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    match version {
        Some(VERSION | SEVERAL_LOGS) => Ok(()),
        Some(UNTRIMMED) => {
            replace_file(disk, FORMAT, format!("{FORMAT_TEXT}{VERSION}\n").as_bytes())
        }
        Some(other) => refused(format!(
            "{label}/{FORMAT} says version {other}, and this program knows up to {SEVERAL_LOGS}: start a newer one; nothing \
             was changed"
        )),
        None => refused(format!(
            "{label}/{FORMAT} cannot be read as a version; nothing was changed. If the other nodes have the log, \
             move the directory away: the node gets a new one from them"
        )),
    }
}

/// Notes that the directories of further logs lie in this one, before there are any.
///
/// # Errors
/// The disk's.
pub fn note_several_logs(disk: &dyn Disk) -> io::Result<()> {
    let text = format!("{FORMAT_TEXT}{SEVERAL_LOGS}\n");
    match again(|| read_format(disk))? == text.as_bytes() {
        true => Ok(()),
        false => replace_file(disk, FORMAT, text.as_bytes()),
    }
}

/// Content with a magic number and a checksum.
fn sealed(content: Writer) -> Vec<u8> {
    let mut to = Writer::default();
    to.u32(MAGIC);
    to.u32(crc(&content.0));
    to.bytes(&content.0);
    to.0
}

fn unsealed(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let mut from = Reader(bytes);
    let (magic, sum, content) = (from.u32()?, from.u32()?, from.bytes()?);
    if magic == MAGIC && sum == crc(content) {
        Ok(content)
    } else {
        Err(malformed("its checksum does not fit"))
    }
}

fn load<T>(
    disk: &dyn Disk,
    path: &str,
    decode: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
) -> io::Result<Record<T>> {
    let read = || {
        let file = disk.open(path)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(1 << 16);
        read_exact_at(&*file, 0, len)
    };
    match again(read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::Absent),
        Err(error) => Err(error),
        Ok(bytes) => {
            let value = unsealed(&bytes).and_then(|content| decode(&mut Reader(content)));
            Ok(value.map_or(Record::Damaged, Record::Good))
        }
    }
}

/// Reads the identity.
///
/// # Errors
/// The disk's.
pub fn load_identity(disk: &dyn Disk) -> io::Result<Record<Identity>> {
    load(disk, IDENTITY, |from| {
        Ok(Identity {
            incarnation: Incarnation(from.u128()?),
            boots: BootCount(from.u32()?),
            node: NodeId(from.u8()?),
            seen: Revision(from.u64()?),
        })
    })
}

/// Writes the identity, durably.
///
/// # Errors
/// The disk's.
pub fn store_identity(disk: &dyn Disk, identity: Identity) -> io::Result<()> {
    let mut to = Writer::default();
    to.u128(identity.incarnation.0);
    to.u32(identity.boots.0);
    to.u8(identity.node.0);
    to.u64(identity.seen.0);
    replace_file(disk, IDENTITY, &sealed(to))
}

/// Reads both slots of the promise.
///
/// # Errors
/// The disk's.
pub fn load_promises(disk: &dyn Disk) -> io::Result<[Record<Promise>; 2]> {
    let file = match again(|| disk.open(PROMISE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        file => file?,
    };
    if REREAD.holds() {
        file.reread()?;
    }
    let mut slots = [Record::Absent; 2];
    for (number, slot) in slots.iter_mut().enumerate() {
        let mut bytes = [0; 64];
        let at = number as u64 * SLOT_BYTES;
        let len = again(|| file.read_at(&mut bytes, at))?;
        let value =
            unsealed(&bytes[..len]).and_then(|content| records::promise(&mut Reader(content)));
        *slot = match value {
            Ok(promise) => Record::Good(promise),
            Err(_) if bytes.iter().all(|byte| *byte == 0) => Record::Absent,
            Err(_) => Record::Damaged,
        };
    }
    Ok(slots)
}

/// Writes one slot of the promise, durably.
///
/// # Errors
/// The disk's.
pub fn store_promise(disk: &dyn Disk, slot: usize, promise: Promise) -> io::Result<()> {
    let mut to = Writer::default();
    records::put_promise(&mut to, promise);
    let file = match disk.open(PROMISE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = disk.create(PROMISE)?;
            file.set_len(2 * SLOT_BYTES)?;
            file.sync()?;
            disk.sync_dir("")?;
            file
        }
        file => file?,
    };
    file.write_at(&sealed(to), slot as u64 * SLOT_BYTES)?;
    if PROMISE_SYNC.holds() { file.sync() } else { Ok(()) }
}

/// Reads the note of a cut. One that cannot be read says that there was a cut, of which nothing else is known.
///
/// # Errors
/// The disk's.
pub fn load_cut(disk: &dyn Disk) -> io::Result<Record<CutNote>> {
    let note = load(disk, CUT, |from| {
        from.option(|from| {
            let at = Position { accepted: Epoch(from.u32()?), lsn: Lsn(from.u64()?) };
            Ok(CutNote { at, promised: Epoch(from.u32()?) })
        })
    })?;
    Ok(match note {
        Record::Good(Some(note)) => Record::Good(note),
        Record::Absent | Record::Good(None) => Record::Absent,
        Record::Damaged => Record::Damaged,
    })
}

/// Writes the note of a cut, or that there is none, durably.
///
/// # Errors
/// The disk's.
pub fn store_cut(disk: &dyn Disk, note: Option<CutNote>) -> io::Result<()> {
    let mut to = Writer::default();
    to.option(note, |to, note| {
        to.u32(note.at.accepted.0);
        to.u64(note.at.lsn.0);
        to.u32(note.promised.0);
    });
    replace_file(disk, CUT, &sealed(to))
}

/// Reads up to where the log is trimmed.
///
/// # Errors
/// The disk's.
pub fn load_base(disk: &dyn Disk) -> io::Result<Record<BaseNote>> {
    load(disk, BASE, |from| {
        let base = records::base(from)?;
        reach(BaseNote::all(base), from)
    })
}

/// A note of what is trimmed with how far the log reached. Those of an earlier program end before that.
fn reach(whole: BaseNote, from: &mut Reader<'_>) -> Result<BaseNote, Malformed> {
    if from.0.is_empty() {
        return Ok(whole);
    }
    Ok(BaseNote { reach: records::position(from)?, ..whole })
}

/// Writes up to where the log is trimmed, durably.
///
/// # Errors
/// The disk's.
pub fn store_base(disk: &dyn Disk, note: BaseNote) -> io::Result<()> {
    let mut to = Writer::default();
    records::put_base(&mut to, &note.base);
    records::put_position(&mut to, note.reach);
    replace_file(disk, BASE, &sealed(to))
}

/// As programs before the reach wrote it.
#[cfg(test)]
pub(crate) fn store_base_without_reach(
    disk: &dyn Disk,
    base: &nuthatch_quorum::entry::Base,
) -> io::Result<()> {
    let mut to = Writer::default();
    records::put_base(&mut to, base);
    replace_file(disk, BASE, &sealed(to))
}

/// What is being put in place of a keeper's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Installing {
    /// The last entry that made the files, and how far the log reaches with the entries that stay.
    pub note: BaseNote,
    /// True if the entries behind it stay.
    pub keep: bool,
}

/// Reads what is being put in place.
///
/// # Errors
/// The disk's.
pub fn load_installing(disk: &dyn Disk) -> io::Result<Record<Installing>> {
    load(disk, INSTALLING, |from| {
        let (base, keep) = (records::base(from)?, from.bool()?);
        Ok(Installing { note: reach(BaseNote::all(base), from)?, keep })
    })
}

/// Notes what is being put in place, durably: from then on it is, whatever stops the process.
///
/// # Errors
/// The disk's.
pub fn store_installing(disk: &dyn Disk, installing: Installing) -> io::Result<()> {
    let mut to = Writer::default();
    records::put_base(&mut to, &installing.note.base);
    to.bool(installing.keep);
    records::put_position(&mut to, installing.note.reach);
    replace_file(disk, INSTALLING, &sealed(to))
}

/// Reads the cluster that this disk belongs to and the greatest revision of its catalog that was seen; none:
/// it has seen none.
///
/// # Errors
/// The disk's; `InvalidData` if it is damaged.
pub fn load_seen(disk: &dyn Disk) -> io::Result<Option<(u128, Revision)>> {
    match load(disk, SEEN, |from| Ok((from.u128()?, Revision(from.u64()?))))? {
        Record::Absent => Ok(None),
        Record::Good(seen) => Ok(Some(seen)),
        Record::Damaged => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{SEEN} is damaged: it cannot be told whether the catalog went back"),
        )),
    }
}

/// The greatest revision of the catalog that was noted, as far as that can be read.
///
/// # Errors
/// The disk's.
pub fn seen(disk: &dyn Disk) -> io::Result<Option<Revision>> {
    let noted = load(disk, SEEN, |from| Ok((from.u128()?, Revision(from.u64()?))))?;
    Ok(noted.good().map(|(_, revision)| revision))
}

/// Notes the cluster and a revision of its catalog, durably.
///
/// # Errors
/// The disk's.
pub fn store_seen(disk: &dyn Disk, cluster: u128, revision: Revision) -> io::Result<()> {
    let mut to = Writer::default();
    to.u128(cluster);
    to.u64(revision.0);
    replace_file(disk, SEEN, &sealed(to))
}

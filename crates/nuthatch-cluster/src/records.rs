//! Records of the protocol as bytes: what messages, the journal and the small files are made of.

use crate::coding::{Malformed, Reader, Writer, malformed};
use nuthatch_quorum::entry::{Base, Body, Entry, EpochStart};
use nuthatch_quorum::message::{Refusal, Sealed, Wholeness};
use nuthatch_quorum::types::{Epoch, Incarnation, Lsn, Position, Promise, Sum, WallTime};

/// Numbers of entries stay below this: nothing overflows that counts on from one.
const LSN_MAX: u64 = 1 << 60;

/// Appends an entry.
pub fn put_entry(to: &mut Writer, entry: &Entry) {
    to.u64(entry.lsn.0);
    to.u32(entry.epoch.0);
    to.u64(entry.prev.0);
    to.u64(entry.commit.0);
    to.u64(entry.stamp.0);
    match entry.body {
        Body::Start { owner } => {
            to.u8(1);
            to.u128(owner.0);
        }
        Body::Frame { payload, len } => {
            to.u8(2);
            to.u64(payload);
            to.u32(len);
        }
    }
    to.u64(entry.sum.0);
}

/// Reads an entry. Whether it is intact is for the keeper to see.
///
/// # Errors
/// It is none.
pub fn entry(from: &mut Reader<'_>) -> Result<Entry, Malformed> {
    Ok(Entry {
        lsn: Lsn(from.u64()?),
        epoch: Epoch(from.u32()?),
        prev: Sum(from.u64()?),
        commit: Lsn(from.u64()?),
        stamp: WallTime(from.u64()?),
        body: match from.u8()? {
            1 => Body::Start { owner: Incarnation(from.u128()?) },
            2 => Body::Frame { payload: from.u64()?, len: from.u32()? },
            _ => return Err(malformed("an entry of another kind")),
        },
        sum: Sum(from.u64()?),
    })
}

pub(crate) fn put_position(to: &mut Writer, at: Position) {
    to.u32(at.accepted.0);
    to.u64(at.lsn.0);
}

pub(crate) fn position(from: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position { accepted: Epoch(from.u32()?), lsn: Lsn(from.u64()?) })
}

pub(crate) fn put_wholeness(to: &mut Writer, wholeness: Wholeness) {
    match wholeness {
        Wholeness::Whole => to.u8(0),
        Wholeness::Cut => to.u8(1),
        Wholeness::Partial { first, cut } => {
            to.u8(2);
            to.u64(first.0);
            to.bool(cut);
        }
    }
}

pub(crate) fn wholeness(from: &mut Reader<'_>) -> Result<Wholeness, Malformed> {
    Ok(match from.u8()? {
        0 => Wholeness::Whole,
        1 => Wholeness::Cut,
        2 => Wholeness::Partial { first: Lsn(from.u64()?), cut: from.bool()? },
        _ => return Err(malformed("a wholeness of another kind")),
    })
}

pub(crate) fn put_refusal(to: &mut Writer, why: Refusal) {
    match why {
        Refusal::Promised { promised, accepted } => {
            to.u8(1);
            to.u32(promised.0);
            to.u32(accepted.0);
        }
        Refusal::Leased => to.u8(2),
        Refusal::Full => to.u8(6),
        Refusal::NotStarted { at } => {
            to.u8(3);
            put_position(to, at);
        }
        Refusal::NotAtStart { at } => {
            to.u8(4);
            put_position(to, at);
        }
        Refusal::Chain { after } => {
            to.u8(5);
            to.u64(after.0);
        }
        Refusal::Trimmed { base, sum } => {
            to.u8(7);
            to.u64(base.0);
            to.u64(sum.0);
        }
    }
}

pub(crate) fn refusal(from: &mut Reader<'_>) -> Result<Refusal, Malformed> {
    Ok(match from.u8()? {
        1 => Refusal::Promised { promised: Epoch(from.u32()?), accepted: Epoch(from.u32()?) },
        2 => Refusal::Leased,
        3 => Refusal::NotStarted { at: position(from)? },
        4 => Refusal::NotAtStart { at: position(from)? },
        5 => Refusal::Chain { after: Lsn(from.u64()?) },
        6 => Refusal::Full,
        7 => Refusal::Trimmed { base: Lsn(from.u64()?), sum: Sum(from.u64()?) },
        _ => return Err(malformed("a refusal of another kind")),
    })
}

pub(crate) fn put_sealed(to: &mut Writer, sealed: &Sealed) {
    to.u32(sealed.epoch.0);
    put_wholeness(to, sealed.wholeness);
    put_position(to, sealed.position);
    to.u64(sealed.last_sum.0);
    to.u64(sealed.base.0);
    to.all(&sealed.starts, |to, start| {
        to.u32(start.epoch.0);
        to.u64(start.lsn.0);
    });
}

pub(crate) fn sealed(from: &mut Reader<'_>) -> Result<Sealed, Malformed> {
    let start =
        |from: &mut Reader<'_>| Ok(EpochStart { epoch: Epoch(from.u32()?), lsn: Lsn(from.u64()?) });
    Ok(Sealed {
        epoch: Epoch(from.u32()?),
        wholeness: wholeness(from)?,
        position: position(from)?,
        last_sum: Sum(from.u64()?),
        base: Lsn(from.u64()?),
        starts: from.all(start)?,
    })
}

/// Appends the place where a log's entries begin.
pub fn put_base(to: &mut Writer, base: &Base) {
    to.u64(base.lsn.0);
    to.u64(base.sum.0);
    to.u32(base.epoch.0);
    to.u64(base.stamp.0);
    to.u64(base.start.0);
}

/// Reads the place where a log's entries begin.
///
/// # Errors
/// It is none.
pub fn base(from: &mut Reader<'_>) -> Result<Base, Malformed> {
    let base = Base {
        lsn: Lsn(from.u64()?),
        sum: Sum(from.u64()?),
        epoch: Epoch(from.u32()?),
        stamp: WallTime(from.u64()?),
        start: Lsn(from.u64()?),
    };
    if base.lsn.0 > LSN_MAX || base.start.0 > LSN_MAX {
        return Err(malformed("an entry has a number that none can have"));
    }
    Ok(base)
}

/// Appends a promise.
pub fn put_promise(to: &mut Writer, promise: Promise) {
    to.u32(promise.epoch.0);
    to.u128(promise.owner.0);
}

/// Reads a promise.
///
/// # Errors
/// It is none.
pub fn promise(from: &mut Reader<'_>) -> Result<Promise, Malformed> {
    Ok(Promise { epoch: Epoch(from.u32()?), owner: Incarnation(from.u128()?) })
}

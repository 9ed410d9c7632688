//! Messages between nodes as bytes.
//!
//! A packet is a header of 16 bytes, the message, and the payloads of the entries that it names, in
//! their order: length of the message u32, of the payloads u32, CRC-32 of header and message u32 (counted as zero),
//! version u8, the log's number u8, zero u8 × 2. A payload is checked by the hash that its entry has. What does not fit together
//! costs the sender its connection; nothing of it is acted upon.

use crate::coding::{Malformed, Reader, Writer, crc, malformed, payload_hash};
use crate::records::{base, entry, put_base, put_entry, put_refusal, put_sealed, refusal, sealed};
use bytes::Bytes;
use nuthatch_catalog_group::{LogCount, LogNumber};
use nuthatch_log::MAX_FRAME_BYTES;
use nuthatch_quorum::entry::{Body, Entry};
use nuthatch_quorum::message::{BeatAnswer, Envelope, Message, Reach};
use nuthatch_quorum::timing::{LEASE, LEASE_MIN};
use nuthatch_quorum::types::{BootCount, Epoch, Incarnation, Lsn, NodeId, Sum, Time, WallTime};

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 16;

/// The protocol in which packets are written as they are: the first one.
pub const PROTOCOL: u8 = 4;

/// Most bytes of a message without its payloads.
pub const MESSAGE_MAX: usize = 1 << 20;

/// Most bytes of one entry's payload: the largest frame, or what gathers beside it.
pub const PAYLOAD_MAX: usize = MAX_FRAME_BYTES + (1 << 20);

/// A message carries no second payload beyond this many bytes.
pub const BATCH_BYTES: usize = 8 << 20;

/// Most bytes of a packet's payloads together.
pub const PAYLOADS_MAX: usize = PAYLOAD_MAX + BATCH_BYTES;

/// A message with the payloads of its entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The message.
    pub envelope: Envelope,
    /// Payloads of those of its entries that have one, in their order.
    pub payloads: Vec<Bytes>,
}

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Bytes of the message.
    pub message: usize,
    /// Bytes of the payloads.
    pub payloads: usize,
    /// The log that the message is about.
    pub log: LogNumber,
    sum: u32,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// It is of another version, or announces more than a packet may have.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let (message, payloads) = (from.u32()? as usize, from.u32()? as usize);
        let (sum, version) = (from.u32()?, from.u8()?);
        if version != PROTOCOL {
            return Err(malformed("a packet of another version"));
        }
        let log = LogNumber(from.u8()?);
        if from.0 != [0; 2] {
            return Err(malformed("a packet with flags that nobody knows"));
        }
        if log.0 >= LogCount::MOST.all() {
            return Err(malformed("a packet of a log that no cluster has"));
        }
        if message > MESSAGE_MAX || payloads > PAYLOADS_MAX {
            return Err(malformed("a packet larger than any may be"));
        }
        Ok(Self { message, payloads, log, sum })
    }

    /// The header of a message with payloads of so many bytes.
    #[must_use]
    pub(crate) fn of(log: LogNumber, message: &[u8], payloads: usize) -> Self {
        let header = Self { message: message.len(), payloads, log, sum: 0 };
        Self { sum: header.summed(message), ..header }
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut to = Writer::default();
        to.u32(u32::try_from(self.message).expect("bounded"));
        to.u32(u32::try_from(self.payloads).expect("bounded"));
        to.u32(self.sum);
        to.u8(PROTOCOL);
        to.u8(self.log.0);
        to.0.resize(HEADER_BYTES, 0);
        to.0.try_into().expect("as long as a header")
    }

    fn summed(self, message: &[u8]) -> u32 {
        let mut all = Self { sum: 0, ..self }.encode().to_vec();
        all.extend_from_slice(message);
        crc(&all)
    }
}

/// Header and message of a packet of a log; the payloads follow as they are.
#[must_use]
pub fn encode(log: LogNumber, packet: &Packet) -> Vec<u8> {
    let mut to = Writer(vec![0; HEADER_BYTES]);
    put_envelope(&mut to, &packet.envelope);
    let lengths = packet.payloads.iter().map(Bytes::len).collect::<Vec<_>>();
    to.all(&lengths, |to, len| to.u32(u32::try_from(*len).expect("bounded")));
    let header = Header::of(log, &to.0[HEADER_BYTES..], lengths.iter().sum());
    to.0[..HEADER_BYTES].copy_from_slice(&header.encode());
    to.0
}

/// Reads a packet. `payloads` are those of the header, one behind the other.
///
/// # Errors
/// It is not what its sums say, or not a message.
pub fn decode(header: Header, message: &[u8], payloads: Bytes) -> Result<Packet, Malformed> {
    if header.summed(message) != header.sum {
        return Err(malformed("the checksum of a packet does not fit"));
    }
    let mut from = Reader(message);
    let envelope = envelope(&mut from)?;
    let lengths = from.all(Reader::u32)?;
    from.end()?;
    let payloads = split(payloads, &lengths)?;
    check_places(&envelope.message)?;
    check_payloads(&envelope.message, &payloads)?;
    Ok(Packet { envelope, payloads })
}

fn split(mut all: Bytes, lengths: &[u32]) -> Result<Vec<Bytes>, Malformed> {
    let sum: u64 = lengths.iter().map(|len| u64::from(*len)).sum();
    if sum != all.len() as u64 {
        return Err(malformed("payloads are not as long as they are said to be"));
    }
    Ok(lengths.iter().map(|len| all.split_to(*len as usize)).collect())
}

/// Entries stand at the places that the message says, one behind the other.
fn check_places(message: &Message) -> Result<(), Malformed> {
    let at = |from: Option<u64>, place: usize| from?.checked_add(place as u64);
    let dense = match message {
        Message::Bring { after, entries, .. } | Message::Append { after, entries, .. } => {
            let first = after.0.checked_add(1);
            entries.iter().enumerate().all(|(place, entry)| at(first, place) == Some(entry.lsn.0))
        }
        Message::Fetched { from, entries, .. } => {
            let places = entries.iter().enumerate();
            let mut filled = places.filter_map(|(place, entry)| Some((place, entry.as_ref()?)));
            filled.all(|(place, entry)| at(Some(from.0), place) == Some(entry.lsn.0))
        }
        _ => true,
    };
    if dense { Ok(()) } else { Err(malformed("an entry that is not at its place")) }
}

/// Each entry with content has one payload, and that is what the entry says.
fn check_payloads(message: &Message, payloads: &[Bytes]) -> Result<(), Malformed> {
    let mut left = payloads.iter();
    for hash in entries(message).filter_map(hash_of) {
        let payload = left.next().ok_or(malformed("an entry without its payload"))?;
        if payload_hash(payload) != hash {
            return Err(malformed("a payload is not the one that its entry names"));
        }
    }
    if left.next().is_some() { Err(malformed("a payload without an entry")) } else { Ok(()) }
}

/// Hash of an entry's payload; none: it has no payload.
#[must_use]
pub fn hash_of(entry: &Entry) -> Option<u64> {
    match entry.body {
        Body::Frame { payload, .. } => Some(payload),
        Body::Start { .. } => None,
    }
}

/// The entries of a message, in their order.
pub fn entries(message: &Message) -> impl Iterator<Item = &Entry> {
    let (plain, some): (&[Entry], &[Option<Entry>]) = match message {
        Message::Bring { entries, .. } | Message::Append { entries, .. } => (entries, &[]),
        Message::Fetched { entries, .. } => (&[], entries),
        _ => (&[], &[]),
    };
    plain.iter().chain(some.iter().flatten())
}

/// Leaves the first `count` entries in a message, which is then one that says less. Of a `Fetched`, whose places
/// may be empty, those before the next entry stay.
pub fn shorten(message: &mut Message, count: usize) {
    match message {
        Message::Bring { entries, .. } | Message::Append { entries, .. } => entries.truncate(count),
        Message::Fetched { entries, .. } => {
            let there = entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
            let next = there.map(|(place, _)| place).nth(count);
            entries.truncate(next.unwrap_or(entries.len()));
        }
        _ => {}
    }
}

fn put_envelope(to: &mut Writer, envelope: &Envelope) {
    to.u8(envelope.from.0);
    to.u128(envelope.sender.0);
    to.u8(envelope.to.0);
    to.option(envelope.disk, |to, disk| to.u128(disk.0));
    put_message(to, &envelope.message);
}

fn envelope(from: &mut Reader<'_>) -> Result<Envelope, Malformed> {
    Ok(Envelope {
        from: NodeId(from.u8()?),
        sender: Incarnation(from.u128()?),
        to: NodeId(from.u8()?),
        disk: from.option(Reader::u128)?.map(Incarnation),
        message: message(from)?,
    })
}

#[expect(
    clippy::too_many_lines,
    reason = "one arm for each kind of message, in the order of kinds"
)]
fn put_message(to: &mut Writer, message: &Message) {
    match message {
        Message::Seal { epoch } => {
            to.u8(1);
            to.u32(epoch.0);
        }
        Message::Sealed(sealed) => {
            to.u8(2);
            put_sealed(to, sealed);
        }
        Message::Refused { epoch, why } => {
            to.u8(3);
            to.u32(epoch.0);
            put_refusal(to, *why);
        }
        Message::Fetch { epoch, from } => {
            to.u8(4);
            to.u32(epoch.0);
            to.u64(from.0);
        }
        Message::Fetched { epoch, base, from, entries, last } => {
            to.u8(5);
            to.u32(epoch.0);
            to.u64(base.0);
            to.u64(from.0);
            to.u64(last.0);
            to.all(entries, |to, slot| to.option(slot.as_ref(), put_entry));
        }
        Message::Bring { epoch, after, prev, entries, end } => {
            to.u8(6);
            to.u32(epoch.0);
            to.u64(after.0);
            to.u64(prev.0);
            to.all(entries, put_entry);
            to.u64(end.0);
        }
        Message::Brought { epoch, equal_to } => {
            to.u8(7);
            to.u32(epoch.0);
            to.u64(equal_to.0);
        }
        Message::Start { epoch, from, sum } => {
            to.u8(8);
            to.u32(epoch.0);
            to.u64(from.0);
            to.u64(sum.0);
        }
        Message::Started { epoch } => {
            to.u8(9);
            to.u32(epoch.0);
        }
        Message::Append { epoch, after, prev, entries, commit, reach } => {
            to.u8(10);
            to.u32(epoch.0);
            to.u64(after.0);
            to.u64(prev.0);
            to.all(entries, put_entry);
            to.u64(commit.0);
            to.u32(reach.boots.0);
            to.u64(reach.last.0);
        }
        Message::Done { epoch, upto, boots } => {
            to.u8(11);
            to.u32(epoch.0);
            to.u64(upto.0);
            to.u32(boots.0);
        }
        Message::Release { epoch } => {
            to.u8(12);
            to.u32(epoch.0);
        }
        Message::Succeed { epoch } => {
            to.u8(13);
            to.u32(epoch.0);
        }
        Message::Prepare { epoch } => {
            to.u8(20);
            to.u32(epoch.0);
        }
        Message::Install { epoch, base, replaces } => {
            to.u8(18);
            to.u32(epoch.0);
            put_base(to, base);
            to.option(*replaces, |to, sum| to.u64(sum.0));
        }
        Message::Receiving { epoch } => {
            to.u8(19);
            to.u32(epoch.0);
        }
        other => put_beat(to, other),
    }
}

/// What is sent on the connection of beats.
fn put_beat(to: &mut Writer, message: &Message) {
    match message {
        Message::Beat { epoch, owner, quorum, commit, sent, round, room, short, cold, lease } => {
            // Nodes that do not know the other kind are sent none: no lease is shortened while there may be such.
            to.u8(if *lease == LEASE { 14 } else { 21 });
            to.u32(epoch.0);
            to.bool(*owner);
            to.bool(*quorum);
            to.u64(commit.0);
            to.u64(sent.0);
            to.u64(*round);
            // Nor are those told of a cold node that take nothing but the first two.
            to.u8(u8::from(*room) | u8::from(*short) << 1 | u8::from(*cold) << 2);
            if *lease != LEASE {
                to.u64(*lease);
            }
        }
        Message::BeatAnswer(answer) => {
            to.u8(15);
            to.option(answer.epoch, |to, epoch| to.u32(epoch.0));
            to.u64(answer.sent.0);
            to.u64(answer.round);
            to.option(answer.wall, |to, wall| to.u64(wall.0));
            to.option(answer.damaged, |to, lsn| to.u64(lsn.0));
        }
        Message::Would { attempt, epoch } => {
            to.u8(16);
            to.u64(*attempt);
            to.u32(epoch.0);
        }
        Message::WouldAnswer { attempt, healthy } => {
            to.u8(17);
            to.u64(*attempt);
            to.bool(*healthy);
        }
        other => unreachable!("{other:?} is no beat"),
    }
}

/// The epoch in whose name a message speaks, where it asks for something.
#[must_use]
pub fn epoch(message: &Message) -> Option<Epoch> {
    match message {
        Message::Seal { epoch }
        | Message::Fetch { epoch, .. }
        | Message::Bring { epoch, .. }
        | Message::Install { epoch, .. }
        | Message::Start { epoch, .. }
        | Message::Append { epoch, .. }
        | Message::Beat { epoch, .. }
        | Message::Would { epoch, .. }
        | Message::Release { epoch }
        | Message::Prepare { epoch }
        | Message::Succeed { epoch } => Some(*epoch),
        _ => None,
    }
}

/// True for what must not wait behind entries.
#[must_use]
pub fn is_beat(message: &Message) -> bool {
    matches!(
        message,
        Message::Beat { .. }
            | Message::BeatAnswer(_)
            | Message::Would { .. }
            | Message::WouldAnswer { .. }
    )
}

fn message(from: &mut Reader<'_>) -> Result<Message, Malformed> {
    Ok(match from.u8()? {
        1 => Message::Seal { epoch: Epoch(from.u32()?) },
        2 => Message::Sealed(sealed(from)?),
        3 => Message::Refused { epoch: Epoch(from.u32()?), why: refusal(from)? },
        4 => Message::Fetch { epoch: Epoch(from.u32()?), from: Lsn(from.u64()?) },
        5 => Message::Fetched {
            epoch: Epoch(from.u32()?),
            base: Lsn(from.u64()?),
            from: Lsn(from.u64()?),
            last: Lsn(from.u64()?),
            entries: from.all(|from| from.option(entry))?,
        },
        6 => Message::Bring {
            epoch: Epoch(from.u32()?),
            after: Lsn(from.u64()?),
            prev: Sum(from.u64()?),
            entries: from.all(entry)?,
            end: Lsn(from.u64()?),
        },
        7 => Message::Brought { epoch: Epoch(from.u32()?), equal_to: Lsn(from.u64()?) },
        8 => Message::Start {
            epoch: Epoch(from.u32()?),
            from: Lsn(from.u64()?),
            sum: Sum(from.u64()?),
        },
        9 => Message::Started { epoch: Epoch(from.u32()?) },
        10 => Message::Append {
            epoch: Epoch(from.u32()?),
            after: Lsn(from.u64()?),
            prev: Sum(from.u64()?),
            entries: from.all(entry)?,
            commit: Lsn(from.u64()?),
            reach: Reach { boots: BootCount(from.u32()?), last: Lsn(from.u64()?) },
        },
        11 => Message::Done {
            epoch: Epoch(from.u32()?),
            upto: Lsn(from.u64()?),
            boots: BootCount(from.u32()?),
        },
        12 => Message::Release { epoch: Epoch(from.u32()?) },
        13 => Message::Succeed { epoch: Epoch(from.u32()?) },
        20 => Message::Prepare { epoch: Epoch(from.u32()?) },
        18 => Message::Install {
            epoch: Epoch(from.u32()?),
            base: base(from)?,
            replaces: from.option(Reader::u64)?.map(Sum),
        },
        19 => Message::Receiving { epoch: Epoch(from.u32()?) },
        kind => beat(kind, from)?,
    })
}

/// A beat; `says_lease`: with how long its sender answers reads after it.
fn get_beat(from: &mut Reader<'_>, says_lease: bool) -> Result<Message, Malformed> {
    let (epoch, owner, quorum) = (Epoch(from.u32()?), from.bool()?, from.bool()?);
    let (commit, sent, round) = (Lsn(from.u64()?), Time(from.u64()?), from.u64()?);
    let room = from.u8()?;
    if room > 7 {
        return Err(malformed("what is said of a disk's room is not known"));
    }
    let (room, short, cold) = (room & 1 != 0, room & 2 != 0, room & 4 != 0);
    let lease = if says_lease { from.u64()? } else { LEASE };
    if !(LEASE_MIN..=LEASE).contains(&lease) {
        return Err(malformed("the lease of an owner is shorter or longer than it may be"));
    }
    Ok(Message::Beat { epoch, owner, quorum, commit, sent, round, room, short, cold, lease })
}

fn beat(kind: u8, from: &mut Reader<'_>) -> Result<Message, Malformed> {
    Ok(match kind {
        14 => get_beat(from, false)?,
        21 => get_beat(from, true)?,
        15 => Message::BeatAnswer(BeatAnswer {
            epoch: from.option(Reader::u32)?.map(Epoch),
            sent: Time(from.u64()?),
            round: from.u64()?,
            wall: from.option(Reader::u64)?.map(WallTime),
            damaged: from.option(Reader::u64)?.map(Lsn),
        }),
        16 => Message::Would { attempt: from.u64()?, epoch: Epoch(from.u32()?) },
        17 => Message::WouldAnswer { attempt: from.u64()?, healthy: from.bool()? },
        _ => return Err(malformed("a message of another kind")),
    })
}

//! Packets: what is written is read, and nothing else is.

use bytes::Bytes;
use nuthatch_cluster::LogNumber;
use nuthatch_cluster::coding::payload_hash;
use nuthatch_cluster::packet::{
    HEADER_BYTES, Header, MESSAGE_MAX, PAYLOADS_MAX, PROTOCOL, Packet, encode, shorten,
};
use nuthatch_cluster::port::read_packet;
use nuthatch_quorum::entry::{Base, Body, Entry, EpochStart};
use nuthatch_quorum::message::{BeatAnswer, Envelope, Message, Reach, Refusal, Sealed, Wholeness};
use nuthatch_quorum::timing::{LEASE, LEASE_MIN};
use nuthatch_quorum::types::{
    BootCount, Epoch, Incarnation, Lsn, NodeId, Position, Sum, Time, WallTime,
};
use proptest::prelude::*;

fn position() -> impl Strategy<Value = Position> {
    any::<(u32, u64)>().prop_map(|(e, l)| Position { accepted: Epoch(e), lsn: Lsn(l) })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(promised, accepted)| Refusal::Promised {
            promised: Epoch(promised),
            accepted: Epoch(accepted),
        }),
        Just(Refusal::Leased),
        Just(Refusal::Full),
        position().prop_map(|at| Refusal::NotStarted { at }),
        position().prop_map(|at| Refusal::NotAtStart { at }),
        any::<u64>().prop_map(|after| Refusal::Chain { after: Lsn(after) }),
        any::<(u64, u64)>()
            .prop_map(|(base, sum)| Refusal::Trimmed { base: Lsn(base), sum: Sum(sum) }),
    ]
}

fn wholeness() -> impl Strategy<Value = Wholeness> {
    prop_oneof![
        Just(Wholeness::Whole),
        Just(Wholeness::Cut),
        any::<(u64, bool)>().prop_map(|(first, cut)| Wholeness::Partial { first: Lsn(first), cut }),
    ]
}

fn sealed() -> impl Strategy<Value = Message> {
    let starts = prop::collection::vec(any::<(u32, u64)>(), 0..5);
    (any::<(u32, u64)>(), wholeness(), position(), starts).prop_map(
        |((epoch, sum), wholeness, position, starts)| {
            let start = |(epoch, lsn)| EpochStart { epoch: Epoch(epoch), lsn: Lsn(lsn) };
            Message::Sealed(Sealed {
                epoch: Epoch(epoch),
                wholeness,
                position,
                last_sum: Sum(sum),
                base: Lsn(sum),
                starts: starts.into_iter().map(start).collect(),
            })
        },
    )
}

/// Entries with their payloads; none has no payload, as a start.
fn entries() -> impl Strategy<Value = Vec<(Entry, Option<Bytes>)>> {
    let one = (
        any::<(u64, u32, u64, u64, u128)>(),
        prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
    );
    let entry = one.prop_map(|((lsn, epoch, prev, commit, owner), payload)| {
        let body = match &payload {
            Some(payload) => {
                Body::Frame { payload: payload_hash(payload), len: payload.len() as u32 }
            }
            None => Body::Start { owner: Incarnation(owner) },
        };
        let stamp = WallTime(lsn ^ prev);
        let entry = Entry::new(Lsn(lsn), Epoch(epoch), Sum(prev), Lsn(commit), stamp, body);
        (entry, payload.map(Bytes::from))
    });
    prop::collection::vec(entry, 0..6)
}

fn with_entries() -> impl Strategy<Value = (Message, Vec<Bytes>)> {
    (any::<(u32, u64, u64, u64, u32)>(), entries(), 0..3).prop_map(
        |((epoch, after, prev, commit, boots), all, kind)| {
            let payloads = all.iter().filter_map(|(_, payload)| payload.clone()).collect();
            let after = after >> 1;
            let first = if kind == 1 { after } else { after + 1 };
            let placed = |(lsn, (entry, _))| Entry { lsn: Lsn(lsn), ..entry };
            let entries: Vec<Entry> = (first..).zip(all).map(placed).collect();
            let (epoch, after, prev) = (Epoch(epoch), Lsn(after), Sum(prev));
            let message = match kind {
                0 => Message::Bring { epoch, after, prev, entries, end: Lsn(commit) },
                1 => {
                    let slots = entries.into_iter().map(Some).chain([None]).collect();
                    let (from, last) = (after, Lsn(commit));
                    Message::Fetched { epoch, base: last, from, entries: slots, last }
                }
                _ => {
                    let reach = Reach { boots: BootCount(boots), last: after };
                    Message::Append { epoch, after, prev, entries, commit: Lsn(commit), reach }
                }
            };
            (message, payloads)
        },
    )
}

fn small() -> impl Strategy<Value = Message> {
    let epoch = any::<u32>().prop_map(Epoch);
    prop_oneof![
        epoch.clone().prop_map(|epoch| Message::Seal { epoch }),
        sealed(),
        (epoch.clone(), refusal()).prop_map(|(epoch, why)| Message::Refused { epoch, why }),
        (epoch.clone(), any::<u64>())
            .prop_map(|(epoch, from)| Message::Fetch { epoch, from: Lsn(from) }),
        (epoch.clone(), any::<u64>())
            .prop_map(|(epoch, at)| Message::Brought { epoch, equal_to: Lsn(at) }),
        (epoch.clone(), any::<(u64, u64)>()).prop_map(|(epoch, (from, sum))| Message::Start {
            epoch,
            from: Lsn(from),
            sum: Sum(sum)
        }),
        epoch.clone().prop_map(|epoch| Message::Started { epoch }),
        (epoch.clone(), any::<(u64, u32)>()).prop_map(|(epoch, (upto, boots))| Message::Done {
            epoch,
            upto: Lsn(upto),
            boots: BootCount(boots),
        }),
        epoch.clone().prop_map(|epoch| Message::Release { epoch }),
        epoch.clone().prop_map(|epoch| Message::Succeed { epoch }),
        epoch.clone().prop_map(|epoch| Message::Prepare { epoch }),
        epoch.clone().prop_map(|epoch| Message::Receiving { epoch }),
        (epoch.clone(), any::<(u64, u64, u32, u64, u64, Option<u64>)>()).prop_map(
            |(epoch, (lsn, sum, of, stamp, start, replaces))| {
                // Numbers beyond those of entries are refused.
                let (lsn, sum, start) = (Lsn(lsn >> 4), Sum(sum), Lsn(start >> 4));
                let base = Base { lsn, sum, epoch: Epoch(of), stamp: WallTime(stamp), start };
                Message::Install { epoch, base, replaces: replaces.map(Sum) }
            }
        ),
        (epoch.clone(), any::<(bool, bool, u64, u64, u64, [bool; 3])>(), LEASE_MIN..=LEASE)
            .prop_map(
                |(epoch, (owner, quorum, commit, sent, round, [room, short, cold]), lease)| {
                    Message::Beat {
                        epoch,
                        owner,
                        quorum,
                        commit: Lsn(commit),
                        sent: Time(sent),
                        round,
                        room,
                        short,
                        cold,
                        lease,
                    }
                }
            ),
        (prop::option::of(epoch.clone()), any::<(u64, u64, Option<u64>, Option<u64>)>()).prop_map(
            |(epoch, (sent, round, wall, damaged))| Message::BeatAnswer(BeatAnswer {
                epoch,
                sent: Time(sent),
                round,
                wall: wall.map(WallTime),
                damaged: damaged.map(Lsn),
            })
        ),
        (epoch, any::<u64>()).prop_map(|(epoch, attempt)| Message::Would { attempt, epoch }),
        any::<(u64, bool)>()
            .prop_map(|(attempt, healthy)| Message::WouldAnswer { attempt, healthy }),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let message = prop_oneof![small().prop_map(|message| (message, vec![])), with_entries()];
    (any::<(u8, u128, u8, Option<u128>)>(), message).prop_map(
        |((from, sender, to, disk), (message, payloads))| {
            let envelope = Envelope {
                from: NodeId(from),
                sender: Incarnation(sender),
                to: NodeId(to),
                disk: disk.map(Incarnation),
                message,
            };
            Packet { envelope, payloads }
        },
    )
}

const LOG: LogNumber = LogNumber(7);

fn bytes_of(packet: &Packet) -> Vec<u8> {
    let mut bytes = encode(LOG, packet);
    for payload in &packet.payloads {
        bytes.extend_from_slice(payload);
    }
    bytes
}

proptest! {
    #[test]
    fn a_packet_comes_back(packet in packet()) {
        let bytes = bytes_of(&packet);
        let mut from = &bytes[..];
        prop_assert_eq!(read_packet(&mut from).expect("it is one"), (LOG, packet));
        prop_assert!(from.is_empty());
    }

    /// A flipped bit anywhere is noticed, that of a payload by its entry's hash.
    #[test]
    fn a_flipped_bit_is_noticed(packet in packet(), at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut bytes = bytes_of(&packet);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(read_packet(&mut &bytes[..]).is_err());
    }

    #[test]
    fn a_packet_that_ends_early_is_none(packet in packet(), at in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&packet);
        prop_assert!(read_packet(&mut &bytes[..at.index(bytes.len())]).is_err());
    }

    /// Bytes that are no packet neither panic nor take memory for what they announce.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_packet(&mut &bytes[..]);
    }
}

#[test]
fn what_announces_too_much_is_refused_by_its_header() {
    for (message, payloads) in [(MESSAGE_MAX + 1, 0), (0, PAYLOADS_MAX + 1), (usize::MAX, 0)] {
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&(message as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(payloads as u32).to_le_bytes());
        header[12] = PROTOCOL;
        assert!(Header::decode(&header).is_err(), "{message} and {payloads}");
    }
    let mut header = [0; HEADER_BYTES];
    header[12] = PROTOCOL;
    assert!(Header::decode(&header).is_ok());
    header[13] = 16;
    assert!(Header::decode(&header).is_err(), "no cluster has so many logs");
}

/// A keeper that took a longer one would hold back its promises for ever.
#[test]
fn a_lease_that_cannot_be_is_refused() {
    let with = |lease| {
        let (epoch, commit, sent) = (Epoch(2), Lsn(3), Time(4));
        let (owner, quorum, round, room, short, cold) = (true, true, 5, true, false, false);
        let message =
            Message::Beat { epoch, owner, quorum, commit, sent, round, room, short, cold, lease };
        let (from, sender, to) = (NodeId(1), Incarnation(7), NodeId(2));
        let envelope = Envelope { from, sender, to, disk: None, message };
        read_packet(&mut &bytes_of(&Packet { envelope, payloads: vec![] })[..]).is_ok()
    };
    let taken = [0, LEASE_MIN - 1, LEASE_MIN, LEASE, LEASE + 1, u64::MAX].map(with);
    assert_eq!(taken, [false, false, true, true, false, false]);
}

/// Places that are empty count for nothing: what is left has as many payloads as entries.
#[test]
fn a_fetched_window_with_holes_is_shortened_by_its_entries() {
    let payload = Bytes::from_static(b"payload");
    let frame = |lsn: u64| {
        let body = Body::Frame { payload: payload_hash(&payload), len: payload.len() as u32 };
        Some(Entry::new(Lsn(lsn), Epoch(1), Sum(7), Lsn(lsn - 1), WallTime(0), body))
    };
    for (kept, places) in [(1, 3), (2, 5), (3, 5)] {
        let entries = vec![None, frame(6), None, frame(8), frame(9)];
        let entries = if kept == 2 { entries[..4].to_vec() } else { entries };
        let (epoch, from, last) = (Epoch(1), Lsn(5), Lsn(9));
        let mut message = Message::Fetched { epoch, base: Lsn(0), from, entries, last };
        shorten(&mut message, kept);
        let Message::Fetched { entries, .. } = &message else { unreachable!("as made") };
        assert_eq!(entries.len(), places.min(if kept == 2 { 4 } else { 5 }), "{kept}");
        let (from, sender, to) = (NodeId(1), Incarnation(1), NodeId(2));
        let envelope = Envelope { from, sender, to, disk: None, message };
        let packet = Packet { envelope, payloads: vec![payload.clone(); kept] };
        assert_eq!(read_packet(&mut &bytes_of(&packet)[..]).expect("it is one"), (LOG, packet));
    }
}

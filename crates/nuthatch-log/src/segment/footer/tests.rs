//! Footers survive the round trip, and no damage to one goes unnoticed.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    stream: u32,
    seq: u64,
    time: i64,
    subject: u8,
    headers: bool,
    len: usize,
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let one = (1u32..5, 1u64..4, any::<i64>(), 0u8..9, any::<bool>(), 0usize..50);
    proptest::collection::vec(one, 0..60).prop_map(|rows| {
        let mut last = [0u64; 5];
        rows.into_iter()
            .map(|(stream, step, time, subject, headers, len)| {
                last[stream as usize] += step;
                Message { stream, seq: last[stream as usize], time, subject, headers, len }
            })
            .collect()
    })
}

fn build(messages: &[Message]) -> Vec<u8> {
    let mut builder = FooterBuilder::new(SegmentId(3), Lsn(1));
    for (i, m) in messages.iter().enumerate() {
        let subject = vec![b'a' + m.subject; usize::from(m.subject)];
        let body = vec![0; m.len];
        let record = RecordRef {
            kind: RecordKind::Message,
            stream: StreamId(m.stream),
            seq: Seq(m.seq),
            timestamp: Timestamp(m.time),
            subject: &subject,
            headers: if m.headers { b"h" } else { b"" },
            body: &body,
        };
        let at = Position { lsn: Lsn(1), record: i as u16 };
        builder.add(&record, at, 4096, 48 + i as u32 * 100);
    }
    builder.encode().0
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(messages in messages()) {
        let footer = Footer::parse(build(&messages), SegmentId(3), &Keyring::default()).expect("valid");
        let mut out = Vec::new();
        for stream in footer.streams() {
            let whole = footer.for_each_message(stream, |m| out.push(Message {
                stream: m.stream.0, seq: m.seq.0, time: m.timestamp.0,
                subject: m.subject.len() as u8, headers: m.has_headers,
                len: m.weight as usize - 32 - m.subject.len() - usize::from(m.has_headers),
            }));
            prop_assert!(whole);
        }
        let mut sorted = messages;
        sorted.sort_by_key(|m| m.stream);
        prop_assert_eq!(out, sorted);
    }

    #[test]
    fn flipped_bits_are_noticed(messages in messages(), at: usize, bit in 0u8..8) {
        let mut bytes = build(&messages);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert!(Footer::parse(bytes, SegmentId(3), &Keyring::default()).is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 80..300)) {
        bytes[0..8].copy_from_slice(&FOOTER_MAGIC);
        let len = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        bytes[16..20].copy_from_slice(&3u32.to_le_bytes());
        let body = bytes.len() - FOOTER_TRAILER_BYTES;
        let sum = crc(&bytes[..body]);
        bytes[body..body + 4].copy_from_slice(&len.to_le_bytes());
        bytes[body + 4..body + 8].copy_from_slice(&sum.to_le_bytes());
        bytes[body + 8..].copy_from_slice(&FOOTER_MAGIC);
        if let Ok(footer) = Footer::parse(bytes, SegmentId(3), &Keyring::default()) {
            for stream in footer.streams() {
                footer.for_each_message(stream, |_| {});
                footer.places(stream, SegmentId(3)).count();
            }
        }
    }
}

/// However many subjects there are and in whatever order they come, each is in the dictionary once,
/// or nearly so.
#[test]
fn the_dictionary_has_each_subject_once() {
    const SUBJECTS: u64 = 20_000;
    let mut builder = FooterBuilder::new(SegmentId(3), Lsn(1));
    for n in 0..3 * SUBJECTS {
        let subject = format!("sensors.{}.temperature", n % SUBJECTS).into_bytes();
        let record = RecordRef {
            kind: RecordKind::Message,
            stream: StreamId(1),
            seq: Seq(n + 1),
            timestamp: Timestamp(5),
            subject: &subject,
            headers: b"",
            body: b"",
        };
        builder.add(&record, Position { lsn: Lsn(1), record: 0 }, 4096, 48);
    }
    let again = builder.subjects.count - SUBJECTS;
    assert!(again < SUBJECTS / 100, "{again} entries too many");
    let footer =
        Footer::parse(builder.encode().0, SegmentId(3), &Keyring::default()).expect("valid");
    let stream = footer.streams().first().expect("one stream").clone();
    let mut n = 0;
    assert!(footer.for_each_message(&stream, |message| {
        let subject = format!("sensors.{}.temperature", n % SUBJECTS);
        assert_eq!(message.subject, subject.as_bytes());
        n += 1;
    }));
    assert_eq!(n, 3 * SUBJECTS);
}

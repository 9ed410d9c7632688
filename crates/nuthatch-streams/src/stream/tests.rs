//! A stream as its readers see it.

use super::*;
use crate::budget::Budget;
use crate::stream::info::SUBJECT_DETAILS_MAX;
use nuthatch_log::{AppendError, Appended, LogAccess, Lsn, Read, RecordRef, Seq, Space, Urgency};

/// A log that takes everything.
struct Taker;

impl LogAccess for Taker {
    fn now(&self) -> Timestamp {
        Timestamp(1)
    }

    fn entropy(&mut self) -> u64 {
        0
    }

    fn append(&mut self, _: &RecordRef<'_>, _: Urgency, _: bool) -> Result<Appended, AppendError> {
        Ok(Appended { lsn: Lsn(1) })
    }

    fn flush_soon(&mut self) {}

    fn committed(&self) -> Lsn {
        Lsn(0)
    }

    fn read(&mut self, _: StreamId, _: Seq) -> Read<'_> {
        Read::Missing
    }

    fn dead(&mut self, _: StreamId, _: Seq, _: usize) {}

    fn space(&self) -> Space {
        Space::Normal
    }
}

/// More than fit on a page are on the next one.
#[test]
fn subjects_come_in_pages() {
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    let mut stream = Stream::new(StreamId(1), AccountId::GLOBAL, Box::new(config), Timestamp(0), 0);
    let budget = Budget::new(usize::MAX, usize::MAX, u64::MAX, u64::MAX);
    let subjects = SUBJECT_DETAILS_MAX + 5;
    for at in 0..subjects {
        let subject = format!("s.{at:06}");
        let publish = Publish { subject: subject.as_bytes(), reply: b"", headers: b"", body: b"" };
        stream
            .publish(&publish, &super::NO_HEADERS, &mut Taker, &budget, |_| true)
            .expect("stored");
    }
    stream.contents.commit_all();
    let mut seen = std::collections::BTreeSet::new();
    for (offset, shown) in [(0, SUBJECT_DETAILS_MAX), (SUBJECT_DETAILS_MAX, 5), (subjects, 0)] {
        let mut walk = SubjectWalk::new("s.>".into(), offset);
        while !walk.go_on(stream.contents(), &mut 1000) {}
        assert_eq!((walk.total, walk.page.len()), (subjects, shown));
        seen.extend(walk.page.into_keys());
    }
    assert_eq!(seen.len(), subjects);
}

#[test]
fn states_of_earlier_versions_are_still_understood() {
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    let mut stream = Stream::new(StreamId(1), AccountId::GLOBAL, Box::new(config), Timestamp(0), 0);
    let budget = Budget::new(usize::MAX, usize::MAX, u64::MAX, u64::MAX);
    let publish = Publish { subject: b"s", reply: b"", headers: b"", body: b"" };
    stream.publish(&publish, &super::NO_HEADERS, &mut Taker, &budget, |_| true).expect("stored");
    let mut body = Vec::new();
    stream.encode_state(std::iter::empty(), &mut body);
    // The second version ended before the schedules, the first before the times to live, the markers
    // (an empty treemap) and the sources.
    for (version, empty) in [(2, 4), (1, 4 + (4 + 8) + 4)] {
        body.truncate(body.len() - empty);
        body[0] = version;
        let decoded = Stream::decode_state(stream.id(), &body, 0).expect("understood");
        let last = decoded.stream.contents().assigned_totals().last_seq;
        assert_eq!(last, stream.contents().assigned_totals().last_seq, "version {version}");
    }
}

/// Bytes that a stream which never moved has since version 4, and every stream since version 5.
const HOME_BYTES: usize = 1 + 2 * (4 + 4);
const LATER_BYTES: usize = 4 + 8 + 8;

#[test]
fn states_of_every_version_are_read_and_the_writers_term_stays() {
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    let mut stream = Stream::new(StreamId(1), AccountId::GLOBAL, Box::new(config), Timestamp(5), 0);
    stream.contents.assume_last(41);
    stream.writer_term = 7;
    let encode = |stream: &Stream| {
        let mut body = Vec::new();
        stream.encode_state(std::iter::empty(), &mut body);
        body
    };
    let body = encode(&stream);
    assert_eq!(body[0], 5);
    let read = |body: &[u8]| {
        let read = Stream::decode_state(StreamId(2), body, 0).expect("understood").stream;
        (read.contents.assigned_totals().last_seq, read.created, read.writer_term)
    };
    assert_eq!(read(&body), (41, Timestamp(5), 7));
    let again = Stream::decode_state(StreamId(1), &body, 0).expect("understood").stream;
    assert_eq!(read(&encode(&again)).2, 7);
    let mut older = body[..body.len() - LATER_BYTES].to_vec();
    older[0] = 4;
    assert_eq!(read(&older), (41, Timestamp(5), 0));
    older.truncate(older.len() - HOME_BYTES);
    older[0] = 3;
    assert_eq!(read(&older), (41, Timestamp(5), 0));
    let mut later = body;
    later[0] = 6;
    assert!(Stream::decode_state(StreamId(1), &later, 0).is_err());
}

#[test]
fn a_subject_that_several_patterns_match_is_visited_once() {
    use crate::index::MessageIndex as _;
    let config = StreamConfig { name: "S".into(), ..StreamConfig::default() };
    let mut stream = Stream::new(StreamId(1), AccountId::GLOBAL, Box::new(config), Timestamp(0), 0);
    let budget = Budget::new(usize::MAX, usize::MAX, u64::MAX, u64::MAX);
    for subject in ["a.deep.x", "a.deep.x", "a.deep.y", "a.q.x", "a.q.y"] {
        let publish = Publish { subject: subject.as_bytes(), reply: b"", headers: b"", body: b"" };
        let stored = stream.publish(&publish, &super::NO_HEADERS, &mut Taker, &budget, |_| true);
        stored.expect("stored");
    }
    stream.contents.commit_all();
    let patterns: [Box<[u8]>; 2] = [b"a.*.x".to_vec().into(), b"a.deep.*".to_vec().into()];
    let contents = stream.contents();
    let mut seen = vec![];
    contents.for_each_subject_of(&patterns, &mut |id, count, _, last| {
        seen.push((String::from_utf8_lossy(contents.subject(id)).into_owned(), count, last.0));
    });
    seen.sort();
    let expected = [("a.deep.x", 2, 2), ("a.deep.y", 1, 3), ("a.q.x", 1, 4)];
    assert_eq!(seen, expected.map(|(subject, count, last)| (subject.to_owned(), count, last)));
}

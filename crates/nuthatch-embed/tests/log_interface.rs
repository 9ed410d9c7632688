//! The log's own interface, over brokers of this process.

mod support;

use nuthatch_embed::Broker;
use nuthatch_embed::client::log::{
    ChannelOptions, Log, LogError, LogReader, Mode, Position, Record, Start,
};
use std::time::Instant;
use support::{Dir, WAIT, open};

fn writer(broker: &Broker, term: u64) -> Result<Log, LogError> {
    let client = broker.connect().expect("connect");
    Log::open(client, "ch.1", term, Mode::ReadWrite, &ChannelOptions::default(), WAIT)
}

fn reader(broker: &Broker, start: Start) -> LogReader {
    let client = broker.connect().expect("connect");
    LogReader::open(client, "ch.1", start, true, WAIT).expect("a reader")
}

fn next(reader: &mut LogReader) -> (u64, String) {
    let record = reader.next(Instant::now() + WAIT).expect("no error").expect("a record");
    let mark = if record.transient { "~" } else { "" };
    (record.position.0, format!("{mark}{}", String::from_utf8_lossy(&record.data)))
}

#[test]
fn records_are_appended_read_and_truncated() {
    let dir = Dir::new("log-append");
    let broker = open(&dir, "");
    let mut log = writer(&broker, 1).expect("a writer");
    assert_eq!(log.bounds().expect("bounds").last, Position(0));
    let record = Record {
        id: "one".into(),
        properties: vec![("kind".into(), "insert".into())],
        ..Record::new("a")
    };
    assert_eq!(log.append(&record).expect("appended"), Position(1));
    assert_eq!(log.append(&record).expect("again"), Position(1), "the same id is stored once");
    let many: Vec<Record> = ["b", "c", "d"].map(Record::new).into();
    assert_eq!(log.append_many(&many).expect("appended"), [2, 3, 4].map(Position));
    let mut all = reader(&broker, Start::Beginning);
    let first = all.next(Instant::now() + WAIT).expect("no error").expect("a record");
    assert_eq!((&*first.id, first.properties), ("one", record.properties));
    assert_eq!(next(&mut all), (2, "b".into()));
    assert_eq!(all.position(), Position(2));
    assert_eq!(next(&mut reader(&broker, Start::At(Position(3)))), (3, "c".into()));
    assert_eq!(next(&mut reader(&broker, Start::Behind(Position(3)))), (4, "d".into()));
    let mut end = reader(&broker, Start::End);
    log.truncate(Position(3)).expect("truncated");
    assert_eq!(log.bounds().expect("bounds").first, Position(4));
    assert_eq!(next(&mut reader(&broker, Start::At(Position(2)))), (4, "d".into()));
    assert_eq!(log.append(&Record::new("e")).expect("appended"), Position(5));
    assert_eq!(next(&mut end), (5, "e".into()));
    log.truncate(Position(1_000)).expect("truncated");
    assert_eq!(log.append(&Record::new("f")).expect("appended"), Position(6), "no gap");
    broker.close().expect("a clean close");
}

#[test]
fn a_later_writer_fences_the_earlier_one_for_good() {
    let dir = Dir::new("log-fence");
    let broker = open(&dir, "");
    let mut first = writer(&broker, 1).expect("a writer");
    first.append(&Record::new("a")).expect("appended");
    let mut second = writer(&broker, 2).expect("a writer");
    assert!(matches!(first.append(&Record::new("b")), Err(LogError::Fenced(_))));
    assert!(matches!(first.tell(&Record::new("b")), Err(LogError::Fenced(_))));
    assert!(matches!(first.truncate(Position(1)), Err(LogError::Fenced(_))));
    assert!(matches!(writer(&broker, 1), Err(LogError::Fenced(_))));
    assert_eq!(second.append(&Record::new("c")).expect("appended"), Position(2));
    broker.close().expect("a clean close");
    let broker = open(&dir, "");
    assert!(matches!(writer(&broker, 1), Err(LogError::Fenced(_))), "also after a restart");
    let mut third = writer(&broker, 3).expect("a writer");
    assert_eq!(third.append(&Record::new("d")).expect("appended"), Position(3));
    broker.close().expect("a clean close");
}

#[test]
fn a_log_for_reading_changes_nothing() {
    let dir = Dir::new("log-read");
    let broker = open(&dir, "");
    let read_only = |broker: &Broker| {
        let client = broker.connect().expect("connect");
        Log::open(client, "ch.1", 9, Mode::ReadOnly, &ChannelOptions::default(), WAIT)
    };
    assert!(matches!(read_only(&broker), Err(LogError::NoChannel(_))));
    let mut log = writer(&broker, 1).expect("a writer");
    let mut other = read_only(&broker).expect("a log");
    assert!(matches!(other.append(&Record::new("a")), Err(LogError::ReadOnly)));
    assert!(matches!(other.truncate(Position(1)), Err(LogError::ReadOnly)));
    assert_eq!(log.append(&Record::new("a")).expect("appended"), Position(1));
    assert_eq!(other.bounds().expect("bounds").last, Position(1));
    broker.close().expect("a clean close");
}

#[test]
fn transient_records_come_in_their_place_to_those_who_follow() {
    let dir = Dir::new("log-transient");
    let broker = open(&dir, "");
    let mut log = writer(&broker, 1).expect("a writer");
    log.append(&Record::new("a")).expect("appended");
    let mut follower = reader(&broker, Start::Beginning);
    assert_eq!(next(&mut follower), (1, "a".into()));
    assert_eq!(log.tell(&Record::new("tick 1")).expect("told"), Position(1));
    assert_eq!(log.append(&Record::new("b")).expect("appended"), Position(2));
    assert_eq!(log.tell(&Record::new("tick 2")).expect("told"), Position(2));
    assert_eq!(log.tell(&Record::new("tick 3")).expect("told"), Position(2));
    assert_eq!(log.append(&Record::new("c")).expect("appended"), Position(3));
    let expected = [(1, "~tick 1"), (2, "b"), (2, "~tick 2"), (2, "~tick 3"), (3, "c")];
    for (position, text) in expected {
        assert_eq!(next(&mut follower), (position, text.to_owned()));
    }
    // Whoever comes later sees none of them, and knows where the log ends.
    let mut late = reader(&broker, Start::Beginning);
    for (position, text) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(next(&mut late), (position, text.to_owned()));
    }
    assert_eq!(reader(&broker, Start::End).position(), Position(3));
    assert_eq!(log.bounds().expect("bounds").last, Position(3), "they are not counted");
    broker.close().expect("a clean close");
}

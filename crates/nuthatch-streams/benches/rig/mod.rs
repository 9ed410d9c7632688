//! An engine over a log that only copies, and events for it: shared by the benches.

use bytes::Bytes;
use nuthatch_log::{
    AppendError, Appended, LogAccess, Lsn, Machine, Read, RecordKind, RecordRef, Seq, Space,
    StoredMessage, StreamId, Timestamp, Urgency,
};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_streams::validate::{Limits, stream_config};
use nuthatch_streams::{
    AccountId, ClientBatch, Delivery, Engine, EngineConfig, Event, Item, Message, Op, PublishItem,
    Sink, Span,
};
use std::hint::black_box;

/// Messages in one read of a socket.
pub const BATCH: usize = 500;
pub const BODY_BYTES: usize = 128;
pub const STREAM: StreamId = StreamId(1);

/// Copies records as a frame would, and serves any read with the same body.
pub struct CopyLog {
    frame: Vec<u8>,
    lsn: u64,
    pub now: i64,
    body: Bytes,
}

impl LogAccess for CopyLog {
    fn now(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn entropy(&mut self) -> u64 {
        self.lsn
    }

    fn append(
        &mut self,
        record: &RecordRef<'_>,
        _: Urgency,
        _: bool,
    ) -> Result<Appended, AppendError> {
        let seq = record.seq.0.to_le_bytes();
        for part in [&seq[..], record.subject, record.headers, record.body] {
            self.frame.extend_from_slice(part);
        }
        Ok(Appended { lsn: Lsn(self.lsn) })
    }

    fn flush_soon(&mut self) {}

    fn committed(&self) -> Lsn {
        Lsn(self.lsn - 1)
    }

    fn read(&mut self, stream: StreamId, seq: Seq) -> Read<'_> {
        let record = RecordRef {
            kind: RecordKind::Message,
            stream,
            seq,
            timestamp: Timestamp(self.now),
            subject: b"bench.subject",
            headers: b"",
            body: &self.body,
        };
        Read::Ready(StoredMessage { record, owner: &self.body })
    }

    fn dead(&mut self, _: StreamId, _: Seq, _: usize) {}

    fn space(&self) -> Space {
        Space::Normal
    }
}

/// Copies what it is given, as connections' buffers would.
#[derive(Default)]
pub struct CopySink {
    out: Vec<u8>,
    pub delivered: usize,
}

impl Sink for CopySink {
    type Peer = u32;
    type Target = ();

    fn reply(&mut self, _: AccountId, _: &u32, _: u32, message: &Message<'_>) {
        self.out.extend_from_slice(message.subject);
        self.out.extend_from_slice(message.body);
    }

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        Some(())
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        true
    }

    fn ready(&mut self, (): &()) -> bool {
        true
    }

    fn deliver(&mut self, (): &mut (), delivery: &Delivery<'_>) -> bool {
        self.delivered += 1;
        for part in [delivery.subject, delivery.reply, delivery.body] {
            self.out.extend_from_slice(part);
        }
        true
    }

    fn flush(&mut self) {
        black_box(&self.out);
        self.out.clear();
    }
}

pub struct Rig {
    pub engine: Engine<CopySink>,
    pub log: CopyLog,
}

impl Rig {
    pub fn new() -> Self {
        let log = CopyLog {
            frame: Vec::with_capacity(4 << 20),
            lsn: 1,
            now: 1_700_000_000_000_000_000,
            body: Bytes::from(vec![b'x'; BODY_BYTES]),
        };
        let mut rig =
            Self { engine: Engine::new(EngineConfig::default(), CopySink::default()), log };
        let config = StreamConfig {
            name: "BENCH".into(),
            subjects: vec!["bench.>".into()],
            ..StreamConfig::default()
        };
        let config = Box::new(stream_config(config, &Limits::default()).expect("valid"));
        rig.op(Op::CreateStream { id: STREAM, account: AccountId::GLOBAL, config });
        rig
    }

    pub fn op(&mut self, op: Op) {
        let respond = Box::new(|result: Result<_, _>| {
            result.expect("accepted");
        });
        self.engine.step(Event::Op(op, respond), &mut self.log);
        self.commit();
    }

    pub fn commit(&mut self) {
        self.engine.before_seal(&mut self.log);
        self.log.frame.clear();
        self.log.lsn += 1;
        self.engine.committed(Lsn(self.log.lsn - 1), &mut self.log);
        self.engine.turn_end();
    }

    pub fn step(&mut self, batch: ClientBatch<u32>) {
        self.engine.step(Event::Batch(batch), &mut self.log);
    }
}

pub fn span(buf: &mut Vec<u8>, text: &[u8]) -> Span {
    let start = buf.len() as u32;
    buf.extend_from_slice(text);
    Span { start, end: buf.len() as u32 }
}

/// A read with publishes on `subjects` subjects in turn.
pub fn publishes(subjects: usize) -> (Bytes, Vec<Item>) {
    publishes_from(0, subjects)
}

/// A read with publishes on `subjects` subjects in turn, numbered from `first`.
pub fn publishes_from(first: usize, subjects: usize) -> (Bytes, Vec<Item>) {
    let mut buf = Vec::new();
    let mut items = Vec::with_capacity(BATCH);
    for at in 0..BATCH {
        let number = first + at % subjects;
        let subject = span(&mut buf, format!("bench.subject.{number}").as_bytes());
        let reply = span(&mut buf, format!("_INBOX.abcdefghijklmn.{at}").as_bytes());
        let body = span(&mut buf, &[b'x'; BODY_BYTES]);
        let headers = Span::default();
        let item = PublishItem { stream: STREAM, hint: 0, subject, reply, headers, body };
        items.push(Item::Publish(item));
    }
    (buf.into(), items)
}

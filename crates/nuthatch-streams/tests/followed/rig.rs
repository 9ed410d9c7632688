//! One log with an engine on a disk in memory, what follows it, and direct gets of both.

use bytes::Bytes;
use nuthatch_log::env::{ManualClock, MemDisk, SeededEntropy};
use nuthatch_log::{
    Compression, Disk, Keys, Log, LogCore, LogHandle, LogOptions, Lsn, Standby, StandbyReader,
    StreamId,
};
use nuthatch_streams::{
    AccountId, ClientBatch, Delivery, DirectGetItem, Engine, EngineConfig, Event, FollowedAnswer,
    FollowedGet, FollowedStep, Item, Message, Op, OpResult, PublishItem, Sink, Span, UnlessChanged,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Turns in which one event must be done.
const TURNS_MAX: usize = 20_000;

/// Under this subject a request is sent back.
const BACK: &[u8] = b"back";

/// What clients have got: answers to gets that ask the owner, to others, and how many were sent back.
#[derive(Default)]
pub struct Got {
    pub plain: Vec<FollowedAnswer>,
    pub asking: Vec<FollowedAnswer>,
    pub back: usize,
}

type Outside = Arc<Mutex<Got>>;

pub struct Recorder(Outside);

impl Sink for Recorder {
    type Peer = ();
    type Target = ();

    fn reply(&mut self, _: AccountId, (): &(), _: u32, message: &Message<'_>) {
        let mut got = self.0.lock().expect("lock");
        let (headers, body) = (message.headers.to_vec(), message.body.to_vec());
        match message.subject {
            b"plain" => got.plain.push(FollowedAnswer { headers, body }),
            b"asking" => got.asking.push(FollowedAnswer { headers, body }),
            _ => {}
        }
    }

    fn send_back(&mut self, (): &(), message: &Message<'_>) {
        assert_eq!((message.subject, message.reply), (BACK, &b"asking"[..]));
        self.0.lock().expect("lock").back += 1;
    }

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        None
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        false
    }

    fn ready(&mut self, (): &()) -> bool {
        false
    }

    fn deliver(&mut self, (): &mut (), _: &Delivery<'_>) -> bool {
        false
    }

    fn flush(&mut self) {}
}

/// A direct get: what follows the stream's name in its subject, and its body.
#[derive(Clone, Debug, Default)]
pub struct Get {
    pub subject: String,
    pub body: String,
}

/// A message to publish.
pub struct Outgoing {
    pub subject: String,
    pub headers: String,
    pub body: Vec<u8>,
}

pub struct Rig {
    core: LogCore<Engine<Recorder>>,
    handle: LogHandle<Event<()>>,
    clock: Arc<ManualClock>,
    outside: Outside,
}

fn options(is_cold: bool) -> LogOptions {
    let plain = LogOptions {
        segment_bytes: 16 * 1024,
        first_segment_bytes: 4 * 1024,
        block_bytes: 512,
        frame_bytes: 2 * 1024,
        tail_cache_bytes: 4 * 1024,
        block_cache_bytes: 8 * 1024,
        queue_bytes: 64 * 1024,
        reserve_bytes: Some(0),
        lazy_flush_ms: 20,
        checkpoint_bytes: 24 * 1024,
        ..LogOptions::default()
    };
    let cold = LogOptions {
        merge: true,
        compression: Compression::Zstd,
        cold_after_ms: 0,
        own_segment_bytes: 1500,
        segment_frames: 20,
        ..plain.clone()
    };
    if is_cold { cold } else { plain }
}

/// Parts of items, one after the other in a buffer.
#[derive(Default)]
struct Parts(Vec<u8>);

impl Parts {
    fn span(&mut self, bytes: &[u8]) -> Span {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(bytes);
        Span { start, end: self.0.len() as u32 }
    }

    fn get(&mut self, stream: StreamId, get: &Get, asks_from: Option<Lsn>) -> Item {
        let reply: &[u8] = if asks_from.is_some() { b"asking" } else { b"plain" };
        let back = self.span(BACK);
        Item::DirectGet(DirectGetItem {
            stream,
            for_origin: false,
            hint: 0,
            headers: Span::default(),
            subject: self.span(get.subject.as_bytes()),
            reply: self.span(reply),
            body: self.span(get.body.as_bytes()),
            unless_changed: asks_from.map(|position| UnlessChanged { position, back }),
        })
    }

    fn publish(&mut self, stream: StreamId, message: &Outgoing) -> Item {
        Item::Publish(PublishItem {
            stream,
            hint: 0,
            subject: self.span(message.subject.as_bytes()),
            reply: Span::default(),
            headers: self.span(message.headers.as_bytes()),
            body: self.span(&message.body),
        })
    }
}

fn engine(outside: &Outside) -> Engine<Recorder> {
    Engine::new(EngineConfig::default(), Recorder(outside.clone()))
}

impl Rig {
    /// Opens the log, from what has followed it if there is anything; whether that was of use.
    pub fn open(
        disk: &MemDisk,
        salt: u64,
        now_ns: i64,
        follower: Option<Follower>,
    ) -> (Self, bool) {
        let (standby, outside) = match follower {
            Some(Follower { standby, outside, .. }) => (Some(standby), outside),
            None => (None, Outside::default()),
        };
        let clock = Arc::new(ManualClock::at(now_ns));
        let entropy = Box::new(SeededEntropy::new(salt));
        let from = (standby, || engine(&outside));
        let disk = Arc::new(disk.clone());
        let opened = Log::open_from(options(salt % 2 == 1), disk, clock.clone(), entropy, from);
        let (core, report) = opened.expect("opens");
        let handle = core.handle();
        (Self { core, handle, clock, outside }, report.standby > Lsn(0))
    }

    pub fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.core.turn().progress {
                return;
            }
        }
        panic!("the log does not come to rest");
    }

    /// Time passes, and nothing is done.
    pub fn wait(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    pub fn send_op(&self, op: Op) -> Arc<Mutex<Option<OpResult>>> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let respond = Box::new(move |outcome| *slot.lock().expect("lock") = Some(outcome));
        assert!(self.handle.send_anyway(Event::Op(op, respond), 1).is_ok(), "it takes events");
        result
    }

    /// Publishes, and asks for this in the same go: what a standby at `position` answers if it is to, and what the owner does.
    pub fn ask(
        &mut self,
        stream: StreamId,
        messages: &[Outgoing],
        get: Option<(&Get, Lsn)>,
    ) -> Got {
        let mut parts = Parts::default();
        let mut items: Vec<Item> =
            messages.iter().map(|message| parts.publish(stream, message)).collect();
        if let Some((get, position)) = get {
            items.push(parts.get(stream, get, Some(position)));
            items.push(parts.get(stream, get, None));
        }
        let batch = ClientBatch { peer: (), buf: Bytes::from(parts.0), items };
        assert!(self.handle.send_anyway(Event::Batch(batch), 1).is_ok(), "it takes events");
        self.settle();
        std::mem::take(&mut self.outside.lock().expect("lock"))
    }
}

/// What follows a log that somebody else writes.
pub struct Follower {
    standby: Standby<Engine<Recorder>>,
    outside: Outside,
    disk: Arc<dyn Disk>,
}

impl Follower {
    /// Reads what there is now; `None`: nothing that can be gone on from.
    pub fn read(follower: Option<Self>, disk: &MemDisk) -> Option<Self> {
        let Some(mut follower) = follower else {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            let outside = Outside::default();
            let begun = Standby::begin(&Keys::default(), &disk, engine(&outside));
            let mut standby = begun.expect("reads")?;
            standby.machine_mut().name_streams();
            return Some(Self { standby, outside, disk });
        };
        while follower.standby.follow(&follower.disk).ok()? {}
        Some(follower)
    }

    pub const fn position(&self) -> Lsn {
        self.standby.last()
    }

    /// A get of the stream of this name as it is now.
    pub fn begin(&self, name: &str, get: &Get) -> Option<FollowedGet> {
        let stream = self.standby.machine().followed(AccountId::GLOBAL, name)?;
        let (subject, body) = (get.subject.clone().into(), get.body.clone().into());
        Some(FollowedGet::new((AccountId::GLOBAL, stream), subject, body))
    }

    /// What it answers; `None`: it does not.
    pub fn answer(&mut self, mut get: FollowedGet) -> Option<Vec<FollowedAnswer>> {
        let mut reader = StandbyReader::default();
        loop {
            let step =
                self.standby.read(&mut reader, |machine, log| machine.followed_get(&mut get, log));
            match step {
                FollowedStep::Answered(answers) => return Some(answers),
                FollowedStep::NotHere => return None,
                // A compaction may have removed what it was followed from.
                FollowedStep::Pending if reader.load(&self.disk) => {}
                FollowedStep::Pending => return None,
            }
        }
    }
}

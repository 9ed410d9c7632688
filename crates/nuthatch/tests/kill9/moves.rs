//! What moves while the server is killed: streams between two logs, and segments of the default log to
//! the bucket behind it.

use crate::STREAMS;
use crate::support::{
    Random, Server, TIMEOUT, TempDir, api, api_ok, create_stream, publish_ok, read_all,
    stream_state,
};
use nuthatch_bench::client::Client;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What the default log may have of the local disk before segments move.
const LOCAL_MAX_BYTES: u64 = 8_000_000;
/// Large messages of a round in which segments move, and their size.
const FILL_MESSAGES: u64 = 100;
const FILL_BYTES: usize = 200_000;
/// What is kept of them for the next rounds.
const FILL_KEPT: u64 = 60;
const FILL: &str = "FILL";

/// A server's place with two logs and a bucket, and what was promised of the large messages.
pub struct Place {
    machine: TempDir,
    bucket: TempDir,
    config: PathBuf,
    /// The round in which a large message was published, by its sequence.
    filled: RefCell<BTreeMap<u64, u64>>,
    random: RefCell<Random>,
    /// Kills with a stream on its way, and kills within 50 ms of a moment with segments to be moved.
    streams_killed: Cell<u64>,
    segments_killed: Cell<u64>,
}

impl Place {
    pub fn new() -> Self {
        let (machine, bucket) = (TempDir::new("kill9-moves"), TempDir::new("kill9-moves-bucket"));
        let config = machine.path().join("server.conf");
        let address = format!("file://{}", bucket.path().display());
        let other = machine.path().join("other").display().to_string();
        let text = format!(
            "jetstream {{ tier {{ store: '{address}', local_max: {LOCAL_MAX_BYTES} }}, \
             logs {{ other {{ dir: {other:?} }} }} }}"
        );
        std::fs::write(&config, text).expect("writes");
        let random = RefCell::new(Random(0x0dd_ba11));
        let (streams_killed, segments_killed) = (Cell::new(0), Cell::new(0));
        let filled = RefCell::default();
        Self { machine, bucket, config, filled, random, streams_killed, segments_killed }
    }

    pub fn start(&self) -> Server {
        let flags = ["-c", self.config.to_str().expect("a plain path")];
        let server = Server::start(&self.machine.path().join("data"), &flags);
        self.check(&server);
        server
    }

    /// Begins to move every stream to the other log, or back, and returns somewhere in the middle.
    pub fn move_streams(&self, server: &Server, round: u64) {
        let mut client = server.connect();
        let to = if (round / 3).is_multiple_of(2) { "other" } else { "default" };
        for stream in STREAMS {
            let bytes = stream_state(&mut client, stream)["bytes"].as_u64().expect("bytes");
            // The whole stream in a second, in a quarter of one, or as fast as it goes.
            let rate = [bytes, bytes * 4, 1 << 30][self.below(3) as usize];
            // A move that the last kill has interrupted may still be under way.
            api(
                &mut client,
                &format!("STREAM.MOVE.{stream}"),
                &json!({"log": to, "max_rate": rate}),
            );
        }
        thread::sleep(Duration::from_millis(self.below(300)));
        let moving = STREAMS.iter().any(|stream| is_moving(&mut client, stream));
        self.streams_killed.set(self.streams_killed.get() + u64::from(moving));
    }

    /// Stores more than the local disk may hold, and returns when segments have begun to move.
    pub fn fill(&self, server: &Server, round: u64) {
        let mut client = server.connect();
        let before = bytes_below(self.bucket.path());
        for n in 0..FILL_MESSAGES {
            let seq = publish_ok(&mut client, "FILL.x", &body(round, FILL_BYTES));
            self.filled.borrow_mut().insert(seq, round);
            if n > FILL_MESSAGES / 2 && bytes_below(self.bucket.path()) > before {
                break;
            }
        }
        let deadline = Instant::now() + TIMEOUT;
        while bytes_below(self.bucket.path()) <= before {
            assert!(Instant::now() < deadline, "no segment moves\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(5));
        }
        let log = self.machine.path().join("data/nuthatch/default");
        let to_move = bytes_below(&log) > LOCAL_MAX_BYTES;
        self.segments_killed.set(self.segments_killed.get() + u64::from(to_move));
        thread::sleep(Duration::from_millis(self.below(50)));
    }

    /// The large messages are all there; older ones are given up.
    fn check(&self, server: &Server) {
        let mut client = server.connect();
        let names = api_ok(&mut client, "STREAM.NAMES", &Value::Null);
        if !names["streams"].as_array().is_some_and(|all| all.contains(&json!(FILL))) {
            create_stream(&mut client, FILL, &json!({}));
            return;
        }
        let stored: BTreeMap<u64, Vec<u8>> = read_all(&mut client, FILL, 1)
            .into_iter()
            .map(|(seq, message)| (seq, message.payload))
            .collect();
        for (seq, round) in &*self.filled.borrow() {
            let found = stored.get(seq);
            assert!(found == Some(&body(*round, FILL_BYTES)), "{FILL} {seq} of round {round}");
        }
        api_ok(&mut client, &format!("STREAM.PURGE.{FILL}"), &json!({"keep": FILL_KEPT}));
        let last = stream_state(&mut client, FILL)["last_seq"].as_u64().expect("a sequence");
        self.filled.borrow_mut().retain(|seq, _| *seq + FILL_KEPT > last);
    }

    /// Every move comes to its end.
    pub fn finish(self) {
        let server = self.start();
        let mut client = server.connect();
        let deadline = Instant::now() + TIMEOUT;
        while STREAMS.iter().any(|stream| is_moving(&mut client, stream)) {
            assert!(Instant::now() < deadline, "a move does not end\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(20));
        }
        let log = self.machine.path().join("data/nuthatch/default");
        while bytes_below(&log) > LOCAL_MAX_BYTES {
            assert!(Instant::now() < deadline, "segments stay\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(20));
        }
        server.stop();
        let killed = (self.streams_killed.get(), self.segments_killed.get());
        println!("killed with streams on their way {} times, with segments {}", killed.0, killed.1);
        assert!(killed.0 > 0 && killed.1 > 0, "{killed:?}: the kills came beside the moves");
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }
}

fn is_moving(client: &mut Client, stream: &str) -> bool {
    api_ok(client, &format!("STREAM.MOVE.{stream}"), &json!({}))["moving"] == true
}

/// A body that says of which round it is, and does not compress.
fn body(round: u64, len: usize) -> Vec<u8> {
    let mut random = Random(round * 7919 + 1);
    (0..len / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Bytes of all files below a directory, of which some may vanish meanwhile.
fn bytes_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

//! What moves while the server is killed: streams between two logs, and segments of the default log to
//! the bucket behind it.

use crate::STREAMS;
use crate::support::{
    Random, Server, TIMEOUT, TempDir, api, api_ok, create_stream, publish_ok, read_all,
    stream_state,
};
use nuthatch_client::Client;
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
pub struct MovesRig {
    machine: TempDir,
    bucket: TempDir,
    config: PathBuf,
    /// The round in which a large message was published, by its sequence.
    filled: RefCell<BTreeMap<u64, u64>>,
    random: RefCell<Random>,
    /// How often streams were told to move, which gives the direction.
    turns: Cell<u64>,
    /// Kills with a stream on its way, and kills within 50 ms of a moment with segments to be moved.
    streams_killed: Cell<u64>,
    segments_killed: Cell<u64>,
}

impl MovesRig {
    pub fn new(seed: u64) -> Self {
        let (machine, bucket) = (TempDir::new("kill9-moves"), TempDir::new("kill9-moves-bucket"));
        let config = machine.path().join("server.conf");
        let address = format!("file://{}", bucket.path().display());
        let other = machine.path().join("other").display().to_string();
        let text = format!(
            "jetstream {{ tier {{ store: '{address}', local_max: {LOCAL_MAX_BYTES} }}, \
             logs {{ other {{ dir: {other:?} }} }} }}"
        );
        std::fs::write(&config, text).expect("writes");
        let random = RefCell::new(Random(0x0dd_ba11 ^ seed));
        let [turns, streams_killed, segments_killed] = [const { Cell::new(0) }; 3];
        let filled = RefCell::default();
        Self { machine, bucket, config, filled, random, turns, streams_killed, segments_killed }
    }

    pub fn start(&self) -> Server {
        let flags = ["-c", self.config.to_str().expect("a plain path")];
        let server = Server::start(&self.machine.path().join("data"), &flags);
        self.check(&server);
        server
    }

    /// Begins to move every stream to the other log, or back, and returns with one of them on its way.
    pub fn move_streams(&self, server: &Server) {
        let mut client = server.connect();
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.turns.set(self.turns.get() + 1);
            let to = if self.turns.get() % 2 == 1 { "other" } else { "default" };
            for stream in STREAMS {
                self.begin_move(&mut client, stream, to);
            }
            thread::sleep(Duration::from_millis(self.below(300)));
            if STREAMS.iter().any(|stream| is_moving(&mut client, stream)) {
                break;
            }
            assert!(Instant::now() < deadline, "every move was too quick\n{}", server.log_tail());
        }
        self.streams_killed.set(self.streams_killed.get() + 1);
    }

    /// The whole stream in a second, in a quarter of one, or as fast as it goes.
    fn begin_move(&self, client: &mut Client, stream: &str, to: &str) {
        let bytes = stream_state(client, stream)["bytes"].as_u64().expect("bytes");
        let rate = [bytes, bytes * 4, 1 << 30][self.below(3) as usize];
        // A move that the last kill has interrupted may still be under way.
        api(client, &format!("STREAM.MOVE.{stream}"), &json!({"log": to, "max_rate": rate}));
    }

    /// Stores more than the local disk may hold, and returns when segments have begun to move and more
    /// are to.
    pub fn fill(&self, server: &Server, round: u64) {
        let mut client = server.connect();
        let deadline = Instant::now() + TIMEOUT;
        let log = self.machine.path().join("data/nuthatch/default");
        loop {
            self.fill_once(&mut client, server, round, deadline);
            if sealed_bytes(&log) > LOCAL_MAX_BYTES {
                break;
            }
            assert!(Instant::now() < deadline, "all has moved already\n{}", server.log_tail());
        }
        self.segments_killed.set(self.segments_killed.get() + 1);
        thread::sleep(Duration::from_millis(self.below(50)));
    }

    fn fill_once(&self, client: &mut Client, server: &Server, round: u64, deadline: Instant) {
        let before = bytes_below(self.bucket.path());
        for n in 0..FILL_MESSAGES {
            let seq = publish_ok(client, "FILL.x", &body(round, FILL_BYTES));
            self.filled.borrow_mut().insert(seq, round);
            if n > FILL_MESSAGES / 2 && bytes_below(self.bucket.path()) > before {
                break;
            }
        }
        while bytes_below(self.bucket.path()) <= before {
            assert!(Instant::now() < deadline, "no segment moves\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(5));
        }
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

    /// Every move comes to its end. `asked` rounds were to be killed with streams on their way, and with
    /// segments.
    pub fn finish(self, asked: (u64, u64)) {
        let server = self.start();
        let mut client = server.connect();
        let deadline = Instant::now() + TIMEOUT;
        while STREAMS.iter().any(|stream| is_moving(&mut client, stream)) {
            assert!(Instant::now() < deadline, "a move does not end\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(20));
        }
        let log = self.machine.path().join("data/nuthatch/default");
        while sealed_bytes(&log) > LOCAL_MAX_BYTES {
            assert!(Instant::now() < deadline, "segments stay\n{}", server.log_tail());
            thread::sleep(Duration::from_millis(20));
        }
        server.stop();
        let killed = (self.streams_killed.get(), self.segments_killed.get());
        println!("killed with streams on their way {} times, with segments {}", killed.0, killed.1);
        assert_eq!(killed, asked, "the kills came beside the moves");
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

/// Bytes of a log's segments but the open one, which is the newest. Checkpoints do not move, and grow with
/// the streams.
fn sealed_bytes(log: &Path) -> u64 {
    let mut segments: Vec<(String, u64)> = [log.to_owned(), log.join("cold")]
        .iter()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "seg"))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            // Epoch and first position.
            let position = name.split('-').nth(1)?.to_owned();
            Some((position, entry.metadata().ok()?.len()))
        })
        .collect();
    segments.sort();
    segments.pop();
    segments.iter().map(|(_, len)| len).sum()
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

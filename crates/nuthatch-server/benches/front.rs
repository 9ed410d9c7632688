//! The hot paths of the front: parse, route, enqueue, deliver, acknowledge.
//!
//! `cargo bench -p nuthatch-server [-- NAME]` prints nanoseconds per message, the least of several
//! rounds. `cargo bench -p nuthatch-server -- --instructions [NAME]` prints instructions per
//! message instead, which do not depend on how busy the machine is: each loop runs under
//! `valgrind --tool=callgrind` with two numbers of rounds, and the difference is what they cost.

use bytes::Bytes;
use nuthatch_log::StreamId;
use nuthatch_protocol::transform::{Destination, Mapping};
use nuthatch_server::jetstream_port::{
    ApiRequest, JetStreamPort, JsView, LogId, LogSlot, NO_JETSTREAM, Peer, SendError, StreamRoute,
    Wanted,
};
use nuthatch_server::logging::Logger;
use nuthatch_server::options::{Account, Options};
use nuthatch_server::reader::Front;
use nuthatch_server::server::Server;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{AccountId, Delivery, Event, Item, Message, Sink};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Messages in one read or one turn of a sequencer: fewer than a turn handles before it looks at the clock, so
/// that no count depends on how busy the machine is.
const BATCH: usize = 60;
const BODY: [u8; 128] = [b'x'; 128];
const CONNECT: &str = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
/// How long one timed round lasts at least, and how many there are.
const ROUND: Duration = Duration::from_millis(40);
const ROUNDS: usize = 7;
/// Batches of the two runs whose instructions are subtracted.
const COUNTED: [u64; 2] = [150, 800];

/// Owns `own.>`, and `each.N` in stream N; keeps the last batch, whose hint the sink loops use.
#[derive(Default)]
struct Owner {
    last: Mutex<Option<(Peer, u32)>>,
}

impl JetStreamPort for Owner {
    fn enabled(&self, _account: AccountId) -> bool {
        true
    }
    fn version(&self) -> u64 {
        1
    }
    fn find(&self, _account: AccountId, wanted: Wanted<'_>) -> Option<StreamRoute> {
        let route = |number| StreamRoute { log: LogId(0), stream: StreamId(number) };
        let Wanted::Owner { subject, pattern } = wanted else { return Some(route(1)) };
        if let Some(number) = subject.strip_prefix(b"each.") {
            return Some(route(std::str::from_utf8(number).ok()?.parse().ok()?));
        }
        let is_own = subject.starts_with(b"own.");
        if let Some(pattern) = pattern.filter(|_| is_own) {
            pattern.extend_from_slice(b"own.>");
        }
        is_own.then(|| route(1))
    }
    fn stream_name(&self, _route: StreamRoute) -> Option<String> {
        None
    }
    fn domain(&self) -> Option<&str> {
        None
    }
    fn api_request(&self, _request: ApiRequest) -> Option<tokio::sync::oneshot::Receiver<()>> {
        None
    }
    fn send(
        &self,
        _log: LogId,
        event: Event<Peer>,
        _privileged: bool,
        _seen: u64,
    ) -> Result<(), SendError> {
        if let Event::Batch(batch) = event
            && let Some(Item::Publish(item)) = batch.items.first()
        {
            *self.last.lock().unwrap() = Some((batch.peer, item.hint));
        }
        Ok(())
    }
    fn slots(&self) -> Arc<[LogSlot]> {
        [LogSlot(0)].into()
    }
    fn notify(&self, _slot: LogSlot, _event: Event<Peer>) -> Result<(), SendError> {
        Ok(())
    }
    fn stop(&self) -> Result<(), String> {
        Ok(())
    }
    fn view(&self) -> &dyn JsView {
        &NO_JETSTREAM
    }
}

/// Accounts, mappings and subscriptions of a crowded server.
const ACCOUNTS: usize = 1_000;
const MAPPINGS: usize = 10_000;
const SUBSCRIPTIONS: usize = 100_000;

/// A server with one connection that has an inbox and a subscription to `core`.
struct Bench {
    server: Arc<Server>,
    owner: Arc<Owner>,
    front: Front,
}

impl Bench {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let server = Server::new(options, Logger::silent());
        let owner = Arc::new(Owner::default());
        server.set_jetstream(owner.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut front = runtime.block_on(Front::open(&server, CONNECT));
        front.handle(&Bytes::from_static(b"SUB _INBOX.a.* 1\r\nSUB core 2\r\n"));
        Self { server, owner, front }
    }

    /// The same with many accounts, many mappings and many subscriptions in the connection's own
    /// account: publishes must not cost more for it.
    fn crowded() -> Self {
        let mapping = |number: usize| {
            let (subject, weight, cluster) = (format!("own.{number}.$1"), 100, String::new());
            let destination = Destination { subject, weight, cluster };
            Mapping::new(&format!("old.{number}.*"), &[destination], "").unwrap()
        };
        let mut mappings: Vec<_> = (1..MAPPINGS).map(mapping).collect();
        let (subject, weight, cluster) =
            ("own.m.{{partition(5,1)}}".to_owned(), 100, String::new());
        let last = Destination { subject, weight, cluster };
        mappings.push(Mapping::new("map.*", &[last], "").unwrap());
        let accounts = (0..ACCOUNTS).map(|number| Account::empty(&format!("A{number}"))).collect();
        let options = Options { mappings, accounts, ..Options::default() };
        let mut bench = Self::with(options);
        let subscribe = |number| format!("SUB crowd.{number} c{number}\r\n");
        let text: String = (0..SUBSCRIPTIONS).map(subscribe).collect();
        bench.front.handle(&Bytes::from(text));
        bench
    }

    fn read(one: &str) -> Bytes {
        Bytes::from(one.repeat(BATCH))
    }

    fn batches(self, one: String) -> Box<dyn FnMut(u64)> {
        let data = Self::read(&one);
        self.reads(vec![data])
    }

    /// Reads whose publishes go to so many subjects in turn.
    fn in_turn(self, prefix: &str, subjects: usize) -> Box<dyn FnMut(u64)> {
        let one = |number| format!("PUB {prefix}{number} _INBOX.a.b 128\r\n{}\r\n", body());
        let read = |first: usize| (first..first + BATCH).map(one).collect::<String>().into();
        self.reads((0..subjects).step_by(BATCH).map(read).collect())
    }

    /// Handles these reads in turn.
    fn reads(mut self, reads: Vec<Bytes>) -> Box<dyn FnMut(u64)> {
        let mut next = 0;
        Box::new(move |batches| {
            for _ in 0..batches {
                self.front.handle(black_box(&reads[next]));
                next = (next + 1) % reads.len();
                self.front.discard();
            }
        })
    }
}

fn body() -> String {
    String::from_utf8(BODY.to_vec()).unwrap()
}

type Prepare = fn() -> Box<dyn FnMut(u64)>;

const LOOPS: [(&str, Prepare); 11] = [
    ("publish nobody", || Bench::new().batches(format!("PUB nobody 128\r\n{}\r\n", body()))),
    ("publish to a subscriber", || Bench::new().batches(format!("PUB core 128\r\n{}\r\n", body()))),
    ("publish to a stream", || {
        Bench::new().batches(format!("PUB own.a _INBOX.a.b 128\r\n{}\r\n", body()))
    }),
    ("publish to a stream's 40,000 subjects in turn", || Bench::new().in_turn("own.", 40_000)),
    ("publish to 2,000 streams in turn", || Bench::new().in_turn("each.", 2_000)),
    ("many accounts: nobody", || {
        Bench::crowded().batches(format!("PUB nobody 128\r\n{}\r\n", body()))
    }),
    ("many accounts: a stream", || {
        Bench::crowded().batches(format!("PUB own.a _INBOX.a.b 128\r\n{}\r\n", body()))
    }),
    ("many accounts: mapped to a stream", || {
        Bench::crowded().batches(format!("PUB map.7 _INBOX.a.b 128\r\n{}\r\n", body()))
    }),
    ("ack", || Bench::new().batches("PUB $JS.ACK.S.C.1.22.3.1700000000.4 0\r\n\r\n".to_owned())),
    ("publish acks from an engine", publish_acks),
    ("deliveries from an engine", deliveries),
];

fn publish_acks() -> Box<dyn FnMut(u64)> {
    let mut bench = Bench::new();
    bench.front.handle(&Bytes::from_static(b"PUB own.a _INBOX.a.b 0\r\n\r\n"));
    let (peer, hint) = bench.owner.last.lock().unwrap().take().unwrap();
    assert_ne!(hint, 0);
    let mut sink = ServerSink::new(bench.server.accounts.clone(), LogSlot(0));
    Box::new(move |batches| {
        let body = b"{\"stream\":\"benchstream\",\"seq\":123456}";
        let message = Message { subject: b"_INBOX.a.b", reply: b"", headers: b"", body };
        for _ in 0..batches {
            for _ in 0..BATCH {
                sink.reply(AccountId::GLOBAL, &peer, hint, black_box(&message));
            }
            sink.flush();
            assert!(bench.front.discard() > 0);
        }
    })
}

fn deliveries() -> Box<dyn FnMut(u64)> {
    let bench = Bench::new();
    let mut sink = ServerSink::new(bench.server.accounts.clone(), LogSlot(0));
    let mut target = sink.resolve(AccountId::GLOBAL, b"core", b"").unwrap();
    Box::new(move |batches| {
        let delivery = Delivery {
            subject: b"own.a",
            reply: b"$JS.ACK.S.C.1.22.3.1700000000.4",
            headers: b"",
            body: &BODY,
            owner: None,
        };
        for _ in 0..batches {
            for _ in 0..BATCH {
                assert!(sink.ready(&target) && sink.deliver(&mut target, black_box(&delivery)));
            }
            sink.flush();
            assert!(bench.front.discard() > 0);
        }
    })
}

fn main() -> ExitCode {
    let (mut measure, mut instructions, mut batches) = (false, false, None);
    let mut names = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bench" => measure = true,
            "--instructions" => instructions = true,
            "--batches" => batches = arguments.next().and_then(|text| text.parse::<u64>().ok()),
            _ => names.push(argument),
        }
    }
    if !measure && !instructions && batches.is_none() {
        // Run by `cargo test --all-targets`: see that every loop works, and measure nothing.
        batches = Some(1);
    }
    // A process that counts runs just the loop that it is told: names contain each other.
    let wanted = |name: &str| {
        let fits = |part: &String| {
            if batches.is_some() { name == part } else { name.contains(part.as_str()) }
        };
        names.is_empty() || names.iter().any(fits)
    };
    for (name, prepare) in LOOPS.iter().filter(|(name, _)| wanted(name)) {
        if let Some(batches) = batches {
            prepare()(batches);
        } else if instructions {
            match count_instructions(name) {
                Ok(count) => println!("{name:<42} {count:>8.1} instructions"),
                Err(reason) => {
                    eprintln!("cannot count instructions: {reason}");
                    return ExitCode::FAILURE;
                }
            }
        } else {
            println!("{name:<42} {:>8.1} ns", nanoseconds(*prepare));
        }
    }
    ExitCode::SUCCESS
}

fn nanoseconds(prepare: Prepare) -> f64 {
    let mut work = prepare();
    let mut batches = 10;
    let mut time = |batches: u64| {
        let start = Instant::now();
        work(black_box(batches));
        start.elapsed()
    };
    while time(batches) < ROUND {
        batches *= 2;
    }
    let best = (0..ROUNDS).map(|_| time(batches)).min().unwrap_or_default();
    best.as_nanos() as f64 / (batches * BATCH as u64) as f64
}

fn count_instructions(name: &str) -> Result<f64, String> {
    let [few, many] = COUNTED;
    let (few_count, many_count) = (collected(name, few)?, collected(name, many)?);
    let difference = many_count.checked_sub(few_count).filter(|difference| *difference > 0);
    let difference = difference.ok_or("more batches took no more instructions")?;
    Ok(difference as f64 / ((many - few) * BATCH as u64) as f64)
}

/// Instructions of a whole run, as callgrind reports them.
fn collected(name: &str, batches: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--batches", &batches.to_string(), name])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the loop failed: {text}"));
    }
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let number = line.and_then(|(_, number)| number.trim().parse().ok());
    number.ok_or_else(|| format!("valgrind said: {text}"))
}

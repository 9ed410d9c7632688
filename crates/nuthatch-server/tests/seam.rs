//! The seam to JetStream, with a service that only writes down what it is given.

mod support;

use nuthatch_log::StreamId;
use nuthatch_server::conn::Connection;
use nuthatch_server::jetstream_port::{
    ApiRequest, JetStreamPort, JsView, LogId, LogSlot, NO_JETSTREAM, Peer, SendError, StreamRoute,
    Wanted,
};
use nuthatch_server::options::Options;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::{AccountId, ClientBatch, Delivery, Event, Item, Message, Sink};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{TestServer, eventually};
use tokio::sync::oneshot::{self, Receiver};

const STREAM: StreamRoute = StreamRoute { log: LogId(0), stream: StreamId(7) };
const OTHER: StreamRoute = StreamRoute { log: LogId(1), stream: StreamId(8) };
/// How often a test that races against the bounded wait for a full queue is tried.
const ATTEMPTS: usize = 10;

/// Owns `own.>` in the stream `S`, and `other.>` in a stream on another log.
#[derive(Default)]
struct Recorder {
    batches: Mutex<Vec<ClientBatch<Peer>>>,
    others: Mutex<Vec<String>>,
    requests: Mutex<Vec<ApiRequest>>,
    /// Queues that are full, one bit each.
    busy: AtomicU8,
    closed: AtomicBool,
    /// Closed logs are other nodes' now.
    handed_over: AtomicBool,
    /// What the next API request answers.
    change: Mutex<Option<Receiver<()>>>,
}

impl Recorder {
    /// Subjects of all publishes so far.
    fn published(&self) -> Vec<String> {
        let batches = self.batches.lock().unwrap();
        let mut subjects = Vec::new();
        for batch in batches.iter() {
            for item in &batch.items {
                if let Item::Publish(item) = item {
                    subjects.push(text(item.subject.of(&batch.buf)));
                }
            }
        }
        subjects
    }
}

impl JetStreamPort for Recorder {
    fn enabled(&self, account: AccountId) -> bool {
        account == AccountId::GLOBAL
    }
    fn version(&self) -> u64 {
        1
    }
    fn find(&self, _account: AccountId, wanted: Wanted<'_>) -> Option<StreamRoute> {
        match wanted {
            Wanted::Owner { subject, .. } if subject.starts_with(b"own.") => Some(STREAM),
            Wanted::Owner { subject, .. } if subject.starts_with(b"other.") => Some(OTHER),
            Wanted::Named(b"S") => Some(STREAM),
            _ => None,
        }
    }
    fn stream_name(&self, _route: StreamRoute) -> Option<String> {
        Some("S".to_owned())
    }
    fn domain(&self) -> Option<&str> {
        Some("hub")
    }
    fn api_request(&self, request: ApiRequest) -> Option<Receiver<()>> {
        self.requests.lock().unwrap().push(request);
        self.change.lock().unwrap().take()
    }
    fn send(
        &self,
        log: LogId,
        event: Event<Peer>,
        privileged: bool,
        _seen: u64,
    ) -> Result<(), SendError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(SendError::Closed(event));
        }
        if self.busy.load(Ordering::Relaxed) & (1 << log.0) != 0 && !privileged {
            return Err(SendError::Busy(event));
        }
        match event {
            Event::Batch(batch) => self.batches.lock().unwrap().push(batch),
            Event::Interest(subject) => {
                let text = format!("interest {subject:?}");
                self.others.lock().unwrap().push(text);
            }
            Event::EndPulls { told, .. } => told(),
            Event::Writable => self.others.lock().unwrap().push("writable".to_owned()),
            Event::Op(..) | Event::Depart { .. } | Event::Install { .. } => {}
        }
        Ok(())
    }
    fn is_handed_over(&self, _log: LogId) -> bool {
        self.handed_over.load(Ordering::Relaxed)
    }
    fn slots(&self) -> Arc<[LogSlot]> {
        [LogSlot(0)].into()
    }
    fn notify(&self, _slot: LogSlot, event: Event<Peer>) -> Result<(), SendError> {
        self.send(STREAM.log, event, true, u64::MAX)
    }
    fn stop(&self) -> Result<(), String> {
        Ok(())
    }
    fn view(&self) -> &dyn JsView {
        &NO_JETSTREAM
    }
}

fn start(options: Options) -> (TestServer, Arc<Recorder>) {
    let server = TestServer::start(options);
    let recorder = Arc::new(Recorder::default());
    server.server.set_jetstream(recorder.clone());
    (server, recorder)
}

fn only_connection(server: &TestServer) -> Arc<Connection> {
    server.server.connections.open().pop().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_read_is_one_batch_in_order() {
    let (server, recorder) = start(Options::default());
    let mut peer = server.client();
    peer.send(
        "SUB own.a 1\r\nPUB own.a _R.1 2\r\nhi\r\nHPUB own.b 12 13\r\nNATS/1.0\r\n\r\nx\r\n\
         PUB $JS.ACK.S.C.1.22.3.17.4 4\r\n+ACK\r\n\
         PUB $JS.API.CONSUMER.MSG.NEXT.S.C in 2\r\n10\r\n\
         PUB $JS.hub.API.DIRECT.GET.S.own.a in 0\r\n\r\n\
         PUB $JS.FC.S.C.abcd 0\r\n\r\n",
    );
    // A core subscriber sees what a stream stores.
    peer.flush("MSG own.a 1 _R.1 2\r\nhi\r\n");
    let batches = recorder.batches.lock().unwrap();
    let mut seen = Vec::new();
    for batch in batches.iter() {
        let of = |span: nuthatch_streams::Span| text(span.of(&batch.buf));
        for item in &batch.items {
            seen.push(match item {
                Item::Publish(p) => format!(
                    "publish {} [{}] [{}] [{}]",
                    of(p.subject),
                    of(p.reply),
                    of(p.headers),
                    of(p.body)
                ),
                Item::Ack(a) => format!(
                    "ack {} {}.{}.{} [{}]",
                    of(a.consumer),
                    a.delivered,
                    a.stream_seq,
                    a.consumer_seq,
                    of(a.body)
                ),
                Item::Pull(p) => {
                    format!("pull {} {} [{}]", of(p.consumer), of(p.reply), of(p.body))
                }
                Item::DirectGet(d) => format!("get {} {}", of(d.subject), of(d.reply)),
                Item::Flow(f) => format!("flow {} {}", of(f.consumer), of(f.subject)),
            });
        }
    }
    let expected = [
        "publish own.a [_R.1] [] [hi]",
        "publish own.b [] [NATS/1.0\r\n\r\n] [x]",
        "ack C 1.22.3 [+ACK]",
        "pull C in [10]",
        "get own.a in",
        "flow C $JS.FC.S.C.abcd",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn api_requests_lose_their_domain_and_missing_streams_have_no_responders() {
    let (server, recorder) = start(Options::default());
    let mut peer = server.client();
    peer.send(
        "SUB in 1\r\nPUB $JS.API.INFO in 2\r\n{}\r\nPUB $JS.hub.API.STREAM.NAMES in 0\r\n\r\n",
    );
    peer.flush("");
    let requests = recorder.requests.lock().unwrap();
    let seen: Vec<_> =
        requests.iter().map(|r| (text(&r.subject), text(&r.reply), text(&r.body))).collect();
    let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(seen, [owned("$JS.API.INFO", "in", "{}"), owned("$JS.API.STREAM.NAMES", "in", "")]);
    let subject = "$JS.API.CONSUMER.MSG.NEXT.NONE.C";
    peer.send(format!("PUB {subject} in 0\r\n\r\n"));
    let length = 32 + subject.len();
    peer.flush(format!(
        "HMSG in 1 {length} {length}\r\nNATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n\r\n"
    ));
}

#[test]
fn replies_take_the_quick_way_only_while_it_is_right() {
    let (server, recorder) = start(Options::default());
    let mut peer = server.client();
    peer.send("SUB _INBOX.a.* 1\r\nPUB own.x _INBOX.a.1 0\r\n\r\n");
    peer.flush("");
    let batch = recorder.batches.lock().unwrap().pop().unwrap();
    let Item::Publish(item) = batch.items[0] else { panic!("not a publish") };
    assert_ne!(item.hint, 0);
    let mut sink = ServerSink::new(server.server.accounts.clone(), LogSlot(0));
    let mut reply = |subject: &str| {
        let message =
            Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: b"ok" };
        sink.reply(AccountId::GLOBAL, &batch.peer, item.hint, &message);
        sink.flush();
    };
    reply("_INBOX.a.1");
    peer.flush("MSG _INBOX.a.1 1 2\r\nok\r\n");
    reply("_INBOX.a.b.c");
    peer.flush("");
    let mut other = server.client();
    other.send("SUB _INBOX.a.1 9\r\n");
    other.flush("");
    reply("_INBOX.a.1");
    peer.flush("MSG _INBOX.a.1 1 2\r\nok\r\n");
    other.flush("MSG _INBOX.a.1 9 2\r\nok\r\n");
    peer.send("UNSUB 1\r\n");
    peer.flush("");
    reply("_INBOX.a.1");
    peer.flush("");
    other.flush("MSG _INBOX.a.1 9 2\r\nok\r\n");
}

#[test]
fn a_full_queue_answers_publishes_and_holds_nothing_else_up() {
    let (server, recorder) = start(Options::default());
    let mut peer = server.client();
    recorder.busy.store(1, Ordering::Relaxed);
    peer.send("SUB r.* 1\r\nPUB own.x r.1 0\r\n\r\nPUB $JS.ACK.S.C.1.2.3.4.5 0\r\n\r\n");
    // Pings and acknowledgements pass at once, the publish is refused in the end.
    peer.flush("");
    eventually("the ack passes", || recorder.batches.lock().unwrap().len() == 1);
    let body = "{\"error\":{\"code\":429,\"err_code\":10167,\"description\":\"too many requests\"},\"stream\":\"S\",\"seq\":0}";
    let headers = "NATS/1.0 429 Too Many Requests\r\n\r\n";
    let total = headers.len() + body.len();
    peer.expect(format!("HMSG r.1 1 {} {total}\r\n{headers}{body}\r\n", headers.len()));
    // What waits is sent when there is room again, in order.
    peer.send("PUB own.1 r.1 0\r\n\r\n");
    peer.flush("");
    peer.send("PUB own.2 r.1 0\r\n\r\n");
    peer.flush("");
    recorder.batches.lock().unwrap().clear();
    recorder.busy.store(0, Ordering::Relaxed);
    eventually("both arrive", || recorder.batches.lock().unwrap().len() == 2);
    let batches = recorder.batches.lock().unwrap();
    let subjects: Vec<_> = batches
        .iter()
        .map(|batch| match batch.items[0] {
            Item::Publish(p) => text(p.subject.of(&batch.buf)),
            _ => panic!("not a publish"),
        })
        .collect();
    assert_eq!(subjects, ["own.1", "own.2"]);
}

/// Megabytes of publishes that a full queue refuses hold nothing up, and all arrive in the end.
#[test]
fn a_large_backlog_holds_nothing_up() {
    let (server, recorder) = start(Options::default());
    let body = "x".repeat(64 * 1024);
    let survives = || {
        recorder.batches.lock().unwrap().clear();
        recorder.busy.store(1, Ordering::Relaxed);
        let mut peer = server.client();
        for _ in 0..40 {
            peer.send(format!("PUB own.x {}\r\n{body}\r\n", body.len()));
        }
        peer.send("PUB $JS.ACK.S.C.1.2.3.4.5 0\r\n\r\n");
        peer.flush("");
        let acks = recorder.batches.lock().unwrap().len();
        recorder.busy.store(0, Ordering::Relaxed);
        drop(peer);
        eventually("the connection ends", || server.server.connections.is_empty());
        // On a slow machine the publishes may have waited too long before the ping was read.
        acks == 1 && recorder.published().len() == 40
    };
    assert!((0..ATTEMPTS).any(|_| survives()));
}

#[test]
fn a_free_log_does_not_wait_behind_a_full_one() {
    let (server, recorder) = start(Options::default());
    let passes = || {
        recorder.batches.lock().unwrap().clear();
        recorder.busy.store(0b11, Ordering::Relaxed);
        let mut peer = server.client();
        peer.send("PUB own.x 0\r\n\r\nPUB other.x 0\r\n\r\n");
        peer.flush("");
        recorder.busy.store(0b01, Ordering::Relaxed);
        drop(peer);
        eventually("the connection ends", || server.server.connections.is_empty());
        recorder.published() == ["other.x"]
    };
    assert!((0..ATTEMPTS).any(|_| passes()));
}

#[test]
fn a_backlog_outlives_its_connection() {
    let (server, recorder) = start(Options::default());
    let arrives = || {
        recorder.batches.lock().unwrap().clear();
        recorder.busy.store(1, Ordering::Relaxed);
        let mut peer = server.client();
        peer.send("PUB own.1 0\r\n\r\nPUB own.2 0\r\n\r\n");
        peer.flush("");
        let conn = only_connection(&server);
        drop(peer);
        eventually("the connection is closed", || !conn.is_open());
        recorder.busy.store(0, Ordering::Relaxed);
        eventually("the connection is gone", || server.server.connections.is_empty());
        recorder.published() == ["own.1", "own.2"]
    };
    assert!((0..ATTEMPTS).any(|_| arrives()));
    // What nobody takes in time is counted.
    let refused = server.server.refused_publishes.load(Ordering::Relaxed);
    recorder.busy.store(1, Ordering::Relaxed);
    let mut peer = server.client();
    peer.send("PUB own.1 0\r\n\r\nPUB own.2 0\r\n\r\n");
    peer.flush("");
    drop(peer);
    eventually("they are counted", || {
        server.server.refused_publishes.load(Ordering::Relaxed) == refused + 2
    });
}

#[test]
fn a_closed_log_answers_all_that_wait_for_an_answer() {
    let (server, recorder) = start(Options::default());
    recorder.closed.store(true, Ordering::Relaxed);
    let mut peer = server.client();
    peer.send("SUB r.* 1\r\nPUB $JS.ACK.S.C.1.2.3.4.5 r.ack 4\r\n+ACK\r\n");
    peer.flush("HMSG r.ack 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
    peer.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.C r.pull 2\r\n10\r\n");
    peer.flush("HMSG r.pull 1 32 32\r\nNATS/1.0 409 Server Shutdown\r\n\r\n\r\n");
    peer.send("PUB $JS.API.DIRECT.GET.S r.get 9\r\n{\"seq\":1}\r\n");
    peer.flush("HMSG r.get 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
    peer.send("PUB own.x r.pub 0\r\n\r\n");
    let body = "{\"error\":{\"code\":503,\"err_code\":10077,\"description\":\"the log is closed and takes no more writes\"},\"stream\":\"S\",\"seq\":0}";
    peer.flush(format!("MSG r.pub 1 {}\r\n{body}\r\n", body.len()));
    // One that is this node's alone is closed for good.
    server.server.nodes.set_cluster("C");
    peer.send("PUB own.x r.pub 0\r\n\r\n");
    peer.flush(format!("MSG r.pub 1 {}\r\n{body}\r\n", body.len()));
    // A log of several nodes goes on at another one, and clients repeat what nobody responds to.
    recorder.handed_over.store(true, Ordering::Relaxed);
    peer.send("PUB own.x r.pub 0\r\n\r\n");
    peer.flush("HMSG r.pub 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
}

/// A publish that asks for a trace on `d`.
fn traced(subject_and_reply: &str) -> String {
    let headers = "NATS/1.0\r\nNats-Trace-Dest: d\r\n\r\n";
    format!("HPUB {subject_and_reply} {0} {0}\r\n{headers}\r\n", headers.len())
}

/// The step of a stream in the trace that comes next.
fn stream_step(watcher: &mut support::Peer) -> serde_json::Value {
    let head = watcher.line();
    assert!(head.starts_with("MSG d 1 "), "{head}");
    let trace: serde_json::Value = serde_json::from_str(&watcher.line()).unwrap();
    let steps = trace["events"].as_array().unwrap();
    steps.iter().find(|step| step["type"] == "js").unwrap().clone()
}

#[test]
fn the_trace_of_what_was_not_stored_says_so() {
    let (server, recorder) = start(Options::default());
    recorder.closed.store(true, Ordering::Relaxed);
    let mut watcher = server.client();
    watcher.send("SUB d 1\r\nSUB _TRACE 2\r\nSUB r 3\r\n");
    watcher.flush("");
    let mut peer = server.client();
    peer.send(traced("own.x"));
    peer.flush("");
    let error = "the log is closed and takes no more writes";
    let step = stream_step(&mut watcher);
    assert_eq!((&step["stream"], &step["error"]), (&"S".into(), &error.into()));
    // Another node's: the publisher, if it listens, repeats it. Nobody hears of an inbox that it has not.
    server.server.nodes.set_cluster("C");
    recorder.handed_over.store(true, Ordering::Relaxed);
    peer.send(traced("own.x"));
    peer.flush("");
    assert_eq!(stream_step(&mut watcher)["error"], error);
    peer.send(traced("own.x r"));
    peer.flush("");
    watcher.expect("HMSG r 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n");
    assert_eq!(stream_step(&mut watcher)["error"], error);
    watcher.flush("");
}

#[test]
fn a_traced_request_to_a_stream_of_another_account_hears_that_its_queue_is_full() {
    let options = support::configured(
        "accounts {
           A { users: [{user: a, password: pw}], exports: [{service: 'own.>', allow_trace: true}] }
           B { users: [{user: b, password: pw}], imports: [{service: {account: A, subject: 'own.x'}}] }
         }",
    );
    let (server, recorder) = start(options);
    recorder.busy.store(0b11, Ordering::Relaxed);
    let mut watcher = server.connected(&support::login("b"));
    watcher.send("SUB d 1\r\n");
    watcher.flush("");
    let mut peer = server.connected(&support::login("b"));
    peer.send("SUB r 1\r\n");
    peer.flush("");
    peer.send(traced("own.x r"));
    assert!(peer.line().starts_with("HMSG r 1 "));
    assert_eq!(peer.line(), "NATS/1.0 429 Too Many Requests");
    let step = stream_step(&mut watcher);
    assert_eq!(step["error"], "too many requests (10167)");
}

/// What may depend on a new stream waits until it is there; nothing else does.
#[test]
fn publishes_wait_for_a_change_of_the_streams() {
    let (server, recorder) = start(Options::default());
    let (done, change) = oneshot::channel();
    *recorder.change.lock().unwrap() = Some(change);
    let mut peer = server.client();
    peer.send(
        "SUB core 1\r\nPUB $JS.API.STREAM.CREATE.S in 0\r\n\r\nPUB own.1 0\r\n\r\n\
         PUB core 2\r\nhi\r\nPUB $JS.ACK.S.C.1.2.3.4.5 0\r\n\r\n\
         PUB $JS.API.STREAM.PURGE.S in 0\r\n\r\nPUB own.2 0\r\n\r\n",
    );
    peer.flush("MSG core 1 2\r\nhi\r\n");
    let subjects = || {
        let requests = recorder.requests.lock().unwrap();
        requests.iter().map(|request| text(&request.subject)).collect::<Vec<_>>()
    };
    assert_eq!(subjects(), ["$JS.API.STREAM.CREATE.S"]);
    assert_eq!(recorder.batches.lock().unwrap().len(), 1, "only the acknowledgement");
    assert_eq!(recorder.published(), [""; 0]);
    drop(done);
    eventually("the rest follows", || recorder.published() == ["own.1", "own.2"]);
    assert_eq!(subjects(), ["$JS.API.STREAM.CREATE.S", "$JS.API.STREAM.PURGE.S"]);
    peer.send("PUB own.3 0\r\n\r\n");
    peer.flush("");
    assert_eq!(recorder.published(), ["own.1", "own.2", "own.3"]);
}

/// What waits is handled although the client has gone, and nobody listens where nobody listens.
#[test]
fn what_waits_for_a_change_outlives_its_connection() {
    let (server, recorder) = start(Options::default());
    let (done, change) = oneshot::channel();
    *recorder.change.lock().unwrap() = Some(change);
    let mut peer = server.client();
    peer.send("SUB in.* 1\r\nPUB $JS.API.STREAM.CREATE.S in.1 0\r\n\r\nPUB none in.2 0\r\n\r\nPUB own.1 0\r\n\r\n");
    peer.flush("");
    let (next_done, next_change) = oneshot::channel();
    *recorder.change.lock().unwrap() = Some(next_change);
    peer.send("PUB $JS.API.STREAM.DELETE.S in.3 0\r\n\r\nPUB own.2 0\r\n\r\n");
    peer.flush("");
    drop(done);
    peer.expect("HMSG in.2 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: none\r\n\r\n\r\n");
    peer.flush("");
    assert_eq!(recorder.published(), ["own.1"]);
    drop(peer);
    drop(next_done);
    eventually("the last publish arrives", || recorder.published() == ["own.1", "own.2"]);
}

#[test]
fn engines_hear_of_interest() {
    let (server, recorder) = start(Options::default());
    let mut sink = ServerSink::new(server.server.accounts.clone(), LogSlot(0));
    assert!(sink.resolve(AccountId::GLOBAL, b"deliver.here", b"").is_none());
    let mut peer = server.client();
    peer.send("SUB elsewhere 1\r\n");
    peer.flush("");
    assert!(recorder.others.lock().unwrap().is_empty());
    peer.send("SUB deliver.here 2\r\n");
    peer.flush("");
    assert_eq!(recorder.others.lock().unwrap().pop().unwrap(), "interest Some(b\"deliver.here\")");
    let mut target = sink.resolve(AccountId::GLOBAL, b"deliver.here", b"").unwrap();
    let delivery =
        Delivery { subject: b"own.x", reply: b"$JS.ACK.x", headers: b"", body: b"hi", owner: None };
    assert!(sink.deliver(&mut target, &delivery));
    sink.flush();
    peer.flush("MSG own.x 2 $JS.ACK.x 2\r\nhi\r\n");
    assert!(sink.resolve(AccountId::GLOBAL, b"deliver.here", b"workers").is_none());
    drop(peer);
    eventually("the loss is told", || {
        recorder.others.lock().unwrap().contains(&"interest None".to_owned())
    });
    assert!(!sink.refresh(&mut target));
    assert!(!sink.deliver(&mut target, &delivery));
    let mut peer = server.client();
    recorder.others.lock().unwrap().clear();
    peer.send("SUB deliver.> 1\r\n");
    peer.flush("");
    assert_eq!(*recorder.others.lock().unwrap(), ["interest None"]);
    assert!(sink.refresh(&mut target));
}

#[test]
fn engines_wait_for_slow_receivers_and_hear_when_they_are_ready() {
    let mut options = Options::default();
    options.limits.max_pending_bytes = 32 * 1024 * 1024;
    let (server, recorder) = start(options);
    let mut peer = server.client();
    peer.send("SUB d 1\r\n");
    peer.flush("");
    let mut sink = ServerSink::new(server.server.accounts.clone(), LogSlot(0));
    let mut target = sink.resolve(AccountId::GLOBAL, b"d", b"").unwrap();
    let body = bytes::Bytes::from(vec![b'x'; 1024 * 1024]);
    let mut sent = 0;
    while sink.ready(&target) {
        assert!(sent < 32, "never slowed down");
        let delivery =
            Delivery { subject: b"d", reply: b"", headers: b"", body: &body, owner: Some(&body) };
        assert!(sink.deliver(&mut target, &delivery));
        sink.flush();
        sent += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(only_connection(&server).is_open());
    for _ in 0..sent {
        peer.expect("MSG d 1 1048576\r\n");
        assert!(peer.take(body.len()).iter().all(|&byte| byte == b'x'));
        peer.expect("\r\n");
    }
    eventually("writable is told", || {
        recorder.others.lock().unwrap().contains(&"writable".to_owned())
    });
    assert!(sink.ready(&target));
}

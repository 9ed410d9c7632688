//! The service on logs in memory.

use super::*;
use crate::core_port::Take;
use crate::pending_changes::tests::{ACCOUNT, create, service};
use crate::requests::MAX_ACCOUNT_REQUESTS;
use nuthatch_log::env::{RamDisk, SystemEntropy};
use nuthatch_log::{Log, LogHandle, LogOptions};
use nuthatch_protocol::js::{ConsumerConfig, CreateConsumerRequest, Time};
use nuthatch_server::logs::Logs;
use nuthatch_server::sink::ServerSink;
use nuthatch_streams::consumer::PreparedConsumer;
use nuthatch_streams::op::Replica;
use nuthatch_streams::{Delivery, EndOfPulls, Engine, EngineConfig, Message, Sink};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[tokio::test]
async fn requests_of_one_account_leave_room_for_others() {
    let (_logs, service) = service();
    let take = |account| service.requests.begin(account, API_REQUEST_BYTES);
    let held: Vec<_> = (0..MAX_ACCOUNT_REQUESTS).filter_map(|_| take(ACCOUNT)).collect();
    assert_eq!(held.len(), MAX_ACCOUNT_REQUESTS);
    assert!(take(ACCOUNT).is_none() && take(AccountId(7)).is_some());
    drop(held);
    assert!(take(ACCOUNT).is_some());
    assert_eq!(service.requests.count.used() + service.requests.bytes.used(), 0);
}

/// Nobody listens and nobody publishes.
struct Nowhere;

impl CorePort for Nowhere {
    fn server_name(&self) -> &'static str {
        "test"
    }
    fn publish(&self, _: AccountId, _: &Message<'_>) -> bool {
        false
    }
    fn subscribe(&self, _: AccountId, _: &str, _: Take) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }
}

/// A log in memory with threads of its own.
fn open_log(slot: u32, name: &str) -> AttachedLog {
    let accounts = Arc::new(Accounts::new(&Options::default()));
    open_with(slot, name, ServerSink::new(accounts, LogSlot(slot)))
}

/// The same with another receiver of what the engine puts out.
fn open_with<S: Sink<Peer = Peer>>(slot: u32, name: &str, sink: S) -> AttachedLog {
    let (slot, engine) = (LogSlot(slot), Engine::new(EngineConfig::default(), sink));
    let (segment_bytes, disk) = (1 << 20, Arc::new(RamDisk::new(8 << 20)));
    let options =
        LogOptions { segment_bytes, first_segment_bytes: 1 << 16, ..LogOptions::memory() };
    let logs = Logs::default();
    let clock = logs.clock(Box::new(|_| ()));
    let entropy = Box::new(SystemEntropy::default());
    let opened = Log::open(options, disk, clock, entropy, engine);
    let (core, _) = opened.expect("an empty log opens");
    let id = LogId(core.log_id());
    let handle = core.spawn(name).expect("a thread");
    AttachedLog::new(id, slot, name.to_owned(), handle)
}

/// Keeps the log's engine from doing anything until what is returned is dropped.
fn hold_up(log: &LogHandle<Event<Peer>>) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    let wait = Event::EndPulls {
        why: EndOfPulls::ServerStops,
        told: Box::new(move || {
            // Its error is the release.
            let _ = released.recv();
        }),
    };
    assert!(log.send(wait, 0).is_ok(), "it is open");
    release
}

async fn serving(names: &[String]) -> Arc<JetStreamHandle> {
    let engines = Arc::new(Engines::default());
    for (slot, name) in (0..).zip(names) {
        engines.logs.attach(open_log(slot, name)).expect("another log");
    }
    JetStreamHandle::start(engines, Arc::new(Nowhere), Settings::default())
        .await
        .expect("empty logs")
}

fn names(count: usize) -> Vec<String> {
    let own = ["default".to_owned(), "memory".to_owned()];
    own.into_iter().chain((2..count).map(|number| format!("log{number}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_live_in_more_logs_than_a_word_has_bits() {
    let handle = serving(&names(40)).await;
    for number in 2..40 {
        let (name, tag) = (format!("S{number}"), format!("log:log{number}"));
        let subject = format!("s.{number}");
        create(&handle.service, &name, &subject, &[&tag]).await.expect("it is created");
    }
    let route = |number| handle.find(ACCOUNT, Wanted::owner(format!("s.{number}").as_bytes()));
    let mut logs: Vec<_> = (2..40).filter_map(route).map(|route| route.log).collect();
    logs.sort_unstable();
    logs.dedup();
    assert_eq!((logs.len(), handle.slots().len()), (38, 40));
    let told =
        handle.slots().iter().all(|slot| handle.notify(*slot, Event::Interest(None)).is_ok());
    assert!(told && handle.notify(LogSlot(40), Event::Interest(None)).is_err());
    handle.stop().expect("clean");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_comes_and_goes_while_others_serve() {
    let handle = serving(&names(2)).await;
    create(&handle.service, "STAYS", "stays.>", &[]).await.expect("it is created");
    handle.attach(open_log(2, "cold")).await.expect("it is attached");
    create(&handle.service, "GOES", "goes.>", &["log:cold"]).await.expect("it is created");
    let there = handle.find(ACCOUNT, Wanted::owner(b"goes.x")).expect("it has a route");
    let seen = handle.version();

    let log = handle.detach(there.log).expect("it is attached");
    assert!(handle.find(ACCOUNT, Wanted::owner(b"goes.x")).is_none() && handle.version() != seen);
    assert!(handle.find(ACCOUNT, Wanted::owner(b"stays.x")).is_some() && handle.slots().len() == 2);
    let sent = handle.send(there.log, Event::Writable, true, u64::MAX);
    assert!(matches!(sent, Err(SendError::Closed(_))), "older routes lead nowhere");
    assert!(create(&handle.service, "NEW", "new", &["log:cold"]).await.is_err());

    let back = Arc::into_inner(log).expect("nobody else has it");
    assert_eq!(handle.attach(back).await, Ok(1));
    assert_eq!(handle.find(ACCOUNT, Wanted::owner(b"goes.x")), Some(there));
    handle.stop().expect("clean");
}

/// Who is told of a log takes what it is not told of for absent: gets would find nothing, and a create would make a stream
/// of the same name elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_told_with_all_of_its_streams_or_not_at_all() {
    let handle = serving(&names(2)).await;
    handle.attach(open_log(2, "cold")).await.expect("it is attached");
    create(&handle.service, "S", "s.>", &["log:cold"]).await.expect("it is created");
    let there = handle.find(ACCOUNT, Wanted::owner(b"s.x")).expect("it has a route");
    let log = handle.detach(there.log).expect("it is attached");
    let back = Arc::into_inner(log).expect("nobody else has it");
    let release = hold_up(&back.handle);
    let told = || {
        let Taken { state, streams: Streams::All(streams), .. } = handle.taken(ACCOUNT, None)
        else {
            panic!("nothing was asked before")
        };
        let whole = handle.engines.logs.whole();
        let is_whole = whole.iter().any(|log| log.name == "cold");
        let told = streams.iter().filter(|stream| stream.log.is_some()).count();
        (is_whole, state.logs.iter().any(|log| log == "cold"), told)
    };
    let mut attaching = Box::pin(handle.attach(back));
    let first = attaching.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending() && handle.slots().len() == 3, "its streams are being read");
    assert_eq!(told(), (false, false, 0));
    drop(release);
    assert_eq!(attaching.await, Ok(1));
    assert_eq!(told(), (true, true, 1));
    drop(handle.detach(there.log));
    assert_eq!(told(), (false, false, 0));
    handle.stop().expect("clean");
}

/// However many streams there are, only those are looked at that have changed, until logs come or go.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_is_told_as_it_changes() {
    let handle = serving(&names(2)).await;
    for name in ["A", "B"] {
        create(&handle.service, name, &format!("{name}.>"), &[]).await.expect("it is created");
    }
    let first = handle.taken(ACCOUNT, None);
    assert!(matches!(&first.streams, Streams::All(all) if all.len() == 2), "{first:?}");
    let changed = |since: &Taken| match handle.taken(ACCOUNT, Some(&since.at)).streams {
        Streams::All(_) => panic!("no log has come or gone"),
        Streams::Changed(changed) => changed,
    };
    assert!(changed(&first).is_empty());
    create(&handle.service, "C", "C.>", &[]).await.expect("it is created");
    handle.service.stream_calls.delete(ACCOUNT, "A", b"").await.expect("it is deleted");
    let mut names: Vec<_> = changed(&first)
        .into_iter()
        .map(|(name, stream)| (name, stream.map(|stream| (stream.is_taken, stream.log.is_some()))))
        .collect();
    names.sort();
    names.dedup();
    let (gone, come) = (("A".to_owned(), None), ("C".to_owned(), Some((true, true))));
    assert_eq!(names, [gone, come]);
    let second = handle.taken(ACCOUNT, Some(&first.at));
    assert!(changed(&second).is_empty());
    handle.attach(open_log(2, "cold")).await.expect("it is attached");
    let third = handle.taken(ACCOUNT, Some(&second.at));
    assert!(matches!(third.streams, Streams::All(all) if all.len() == 2));
    handle.stop().expect("clean");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_attached_once() {
    let handle = serving(&names(2)).await;
    let same_name = handle.attach(open_log(2, "memory")).await;
    assert_eq!(same_name, Err(AttachError::SameName { name: "memory".to_owned() }));
    let known = handle.engines.logs.at(LogSlot(0)).expect("the default log");
    let (id, queue) = (known.id, known.handle.clone());
    let copy = AttachedLog::new(id, LogSlot(2), "copy".to_owned(), queue);
    let refused = handle.attach(copy).await;
    assert!(matches!(refused, Err(AttachError::SameIdentity { id: same, .. }) if same == id));
    assert_eq!(handle.slots().len(), 2);
    handle.stop().expect("clean");
}

/// A log with a stream whose name or subjects another one has by now is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_streams_are_elsewhere_is_not_attached() {
    for (name, subject) in [("S", "two.>"), ("T", "one.two")] {
        refused_behind(name, subject).await;
    }
}

async fn refused_behind(name: &str, subject: &str) {
    let handle = serving(&names(2)).await;
    handle.attach(open_log(2, "cold")).await.expect("it is attached");
    create(&handle.service, "S", "one.>", &["log:cold"]).await.expect("it is created");
    let there = handle.find(ACCOUNT, Wanted::owner(b"one.x")).expect("it has a route");
    let log = handle.detach(there.log).expect("it is attached");
    create(&handle.service, name, subject, &[]).await.expect("both are free");
    let again = Arc::into_inner(log).expect("nobody else has it");
    let refused = handle.attach(again).await;
    assert!(matches!(refused, Err(AttachError::Streams(_))), "{refused:?}");
    assert!(
        handle.find(ACCOUNT, Wanted::owner(b"one.x")).is_none_or(|route| route.log != there.log)
    );
    assert_eq!(handle.slots().len(), 2);
    handle.stop().expect("clean");
}

/// Its log does what it was told, and is not there any more when that is known.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_log_is_taken_away_while_it_is_created_comes_back_with_the_log() {
    let handle = serving(&names(2)).await;
    let cold = open_log(2, "cold");
    let id = cold.id;
    let queue = cold.handle.clone();
    handle.attach(cold).await.expect("it is attached");
    let release = hold_up(&queue);
    let mut creating = Box::pin(create(&handle.service, "GOES", "goes.>", &["log:cold"]));
    let first = creating.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(first.is_pending(), "the log was told, and has not answered yet");
    let log = handle.detach(id).expect("it is attached");
    drop(release);
    creating.await.expect("it is done, wherever its log is");
    assert!(handle.find(ACCOUNT, Wanted::owner(b"goes.x")).is_none());
    assert_eq!(handle.service.streams.read().count(ACCOUNT), 0);
    create(&handle.service, "STAYS", "stays.>", &[]).await.expect("it is created");

    let back = Arc::into_inner(log).expect("nobody else has it");
    assert_eq!(handle.attach(back).await, Ok(1));
    assert_eq!(handle.find(ACCOUNT, Wanted::owner(b"goes.x")).map(|route| route.log), Some(id));
    handle.stop().expect("clean");
}

/// Whoever it is that listens to all deliveries, once somebody does.
#[derive(Clone, Default)]
struct Listener {
    listens: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
}

impl Sink for Listener {
    type Peer = Peer;
    type Target = ();

    fn reply(&mut self, _: AccountId, _: &Peer, _: u32, _: &Message<'_>) {}

    fn publish(&mut self, _: AccountId, _: &Message<'_>) {}

    fn resolve(&mut self, _: AccountId, _: &[u8], _: &[u8]) -> Option<()> {
        self.listens.load(Ordering::SeqCst).then_some(())
    }

    fn refresh(&mut self, (): &mut ()) -> bool {
        self.listens.load(Ordering::SeqCst)
    }

    fn ready(&mut self, (): &()) -> bool {
        true
    }

    fn deliver(&mut self, (): &mut (), _: &Delivery<'_>) -> bool {
        self.heard.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn flush(&mut self) {}
}

/// Somebody begins to listen while the log is away, and its engine is not told of that.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_hears_of_what_came_while_its_log_was_away() {
    let handle = serving(&names(2)).await;
    let listener = Listener::default();
    let cold = open_with(2, "cold", listener.clone());
    let id = cold.id;
    handle.attach(cold).await.expect("it is attached");
    create(&handle.service, "S", "s.>", &["log:cold"]).await.expect("it is created");
    let stream = handle.find(ACCOUNT, Wanted::owner(b"s.x")).expect("it has a route").stream;
    let config = ConsumerConfig {
        name: "C".into(),
        durable_name: "C".into(),
        deliver_subject: "d".into(),
        ..ConsumerConfig::default()
    };
    let request = CreateConsumerRequest { config, ..CreateConsumerRequest::default() };
    let message = Replica {
        seq: 1,
        time: Time(1),
        subject: b"s.x".to_vec(),
        headers: Vec::new(),
        body: b"x".to_vec(),
    };
    let ops = [
        Op::CreateConsumer { id: stream, request: PreparedConsumer::new(request) },
        Op::Source { id: stream, copies: vec![message] },
    ];
    for op in ops {
        handle.service.calls.run(id, op).await.expect("it is done");
    }
    let log = handle.detach(id).expect("it is attached");
    listener.listens.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(listener.heard.load(Ordering::SeqCst), 0, "nobody has told it");
    let back = Arc::into_inner(log).expect("nobody else has it");
    handle.attach(back).await.expect("it is attached");
    for _ in 0..500 {
        if listener.heard.load(Ordering::SeqCst) == 1 {
            return handle.stop().expect("clean");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the engine does not deliver what it has");
}

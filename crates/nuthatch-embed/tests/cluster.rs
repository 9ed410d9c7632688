//! Brokers that are nodes of a cluster: they open, close and open again within one process, and nothing that was
//! acknowledged is lost. The tests take turns, since they count the threads of the process.

mod support;

#[path = "support/nodes.rs"]
mod nodes;

use nodes::{Nodes, descriptors, threads, try_publish, until};
use nuthatch_embed::{Broker, Config, OpenError};
use nuthatch_ports::free_addresses;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static TURN: Mutex<()> = Mutex::new(());

/// Names of the framework's threads that run tests: they come whenever it likes.
static TESTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Names of the threads that are not those of tests.
fn beside_tests() -> Vec<String> {
    let tests = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    threads().into_iter().filter(|name| !tests.contains(name)).collect()
}

/// What the process has before a test, and must have after it.
struct Turn {
    threads: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        let me = std::fs::read_to_string("/proc/thread-self/comm").expect("a name");
        TESTS.lock().unwrap_or_else(PoisonError::into_inner).insert(me);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that begins has the name of its parent for a moment.
        let mut threads = beside_tests();
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let now = beside_tests();
            if std::mem::replace(&mut threads, now.clone()) == now {
                return Self { threads, _turn: turn };
            }
        }
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while beside_tests() != self.threads {
            let (now, before) = (beside_tests(), &self.threads);
            assert!(Instant::now() < deadline, "threads: {now:?}, before {before:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Three brokers are a cluster. Each is closed and opened again while the others serve, then all of them.
#[test]
fn three_brokers_of_a_process_are_a_cluster() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("three-nodes");
    nodes.open_all();
    nodes.create(0);
    nodes.publish(0, 50);
    for node in 0..3 {
        nodes.close(node);
        nodes.publish((node + 1) % 3, 50);
        nodes.open(node);
        nodes.publish(node, 50);
    }
    nodes.check(1);
    (0..3).for_each(|node| nodes.close(node));
    turn.nothing_is_left();
    let files = descriptors();
    nodes.open_all();
    nodes.publish(2, 50);
    nodes.check(0);
    // Who drops it closes it.
    nodes.brokers.iter_mut().for_each(|broker| drop(broker.take()));
    turn.nothing_is_left();
    until("descriptors are closed", || descriptors() == files);
}

/// Clients that publish while nodes come and go hear of each message whether it is there.
#[test]
fn what_was_acknowledged_while_nodes_came_and_went_is_there() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("come-and-go");
    nodes.open_all();
    nodes.create(0);
    for round in 0..6 {
        let (goes, serves) = (round % 3, (round + 1) % 3);
        let mut client = nodes.client(serves);
        let leaving = nodes.brokers[goes].take().expect("it is open");
        let closer = std::thread::spawn(move || leaving.close());
        let mut acked = vec![];
        let first = 1_000_000 * (round as u64 + 1);
        let mut number = first;
        let late = Instant::now() + support::WAIT;
        // Some are refused at once while a log goes to another node.
        let lacks = |acked: &[u64]| acked.is_empty() && Instant::now() < late;
        while !closer.is_finished() || number < first + 40 || lacks(&acked) {
            if try_publish(&mut client, &format!("S.{number}"), b"body") {
                acked.push(number);
            }
            number += 1;
        }
        closer.join().expect("no panic").expect("a clean close");
        assert!(!acked.is_empty(), "nothing was acknowledged in round {round}");
        nodes.acked.extend(acked);
        nodes.open(goes);
        nodes.publish(goes, 20);
    }
    nodes.check(0);
    drop(nodes);
    turn.nothing_is_left();
}

#[test]
fn a_broker_is_closed_while_it_waits_for_the_others() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("founding");
    nodes.open(0);
    std::thread::sleep(Duration::from_millis(300));
    nodes.close(0);
    turn.nothing_is_left();
    // Two of three have not founded it either.
    nodes.open(0);
    nodes.open(1);
    nodes.close(0);
    nodes.close(1);
    turn.nothing_is_left();
    nodes.open_all();
    nodes.create(2);
    nodes.publish(2, 10);
    nodes.check(0);
    drop(nodes);
    turn.nothing_is_left();
}

/// At any moment of founding and taking over.
#[test]
fn a_broker_is_closed_at_any_moment_of_its_start() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("any-moment");
    for millis in [0, 100, 400, 900] {
        nodes.open_all();
        std::thread::sleep(Duration::from_millis(millis));
        (0..3).for_each(|node| drop(nodes.brokers[node].take()));
        turn.nothing_is_left();
    }
    nodes.open_all();
    nodes.create(0);
    nodes.publish(1, 20);
    for millis in [0, 100, 400, 900] {
        nodes.brokers.iter_mut().for_each(|broker| drop(broker.take()));
        turn.nothing_is_left();
        nodes.open_all();
        std::thread::sleep(Duration::from_millis(millis));
    }
    nodes.check(2);
    drop(nodes);
    turn.nothing_is_left();
}

#[test]
fn a_broker_without_a_majority_is_closed_in_time() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("no-majority");
    nodes.open_all();
    nodes.create(0);
    nodes.publish(0, 20);
    // Two go at once; what the third one has under way is not acknowledged.
    let gone: Vec<_> = (0..2).map(|node| nodes.brokers[node].take()).collect();
    let closers: Vec<_> =
        gone.into_iter().map(|broker| std::thread::spawn(move || drop(broker))).collect();
    let mut client = nodes.client(2);
    let _ = client.writer.publish(b"S.unknown", b"", b"", b"body");
    let _ = client.writer.flush();
    closers.into_iter().for_each(|closer| closer.join().expect("no panic"));
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    // Whether its log could be closed cleanly does not matter here.
    let _ = nodes.brokers[2].take().expect("it is open").close();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    turn.nothing_is_left();
    nodes.open_all();
    nodes.check(2);
    drop(nodes);
    turn.nothing_is_left();
}

/// The others are told of a node that came back at another port, which they have no route to.
#[test]
fn a_broker_comes_back_at_another_port() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("another-port");
    nodes.open_all();
    nodes.create(0);
    nodes.publish(0, 20);
    nodes.close(2);
    nodes.ports[2] = free_addresses(1)[0];
    nodes.open(2);
    // Until the owner misses it: what it was told before it went counts for that long.
    std::thread::sleep(Duration::from_secs(1));
    nodes.wait_whole(0);
    nodes.close(0);
    // Both that are left are needed.
    nodes.publish(1, 20);
    nodes.check(2);
    drop(nodes);
    turn.nothing_is_left();
}

#[test]
fn an_opening_that_fails_leaves_nothing() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("fails");
    let taken = TcpListener::bind(nodes.ports[0]).expect("binds");
    let refused = nodes.try_open(0).expect_err("the port is taken");
    assert!(matches!(refused, OpenError::Start(_)), "{refused}");
    assert!(refused.to_string().contains(&nodes.ports[0].to_string()), "{refused}");
    turn.nothing_is_left();
    drop(taken);
    nodes.open(0);
    // The directory belongs to one broker, whatever port the other one is given.
    nodes.ports[0] = free_addresses(1)[0];
    let refused = nodes.try_open(0).expect_err("it is in use").to_string();
    assert!(refused.contains("used by another process"), "{refused}");
    nodes.close(0);
    turn.nothing_is_left();
}

/// A node that was away is brought what it lacks, and closed meanwhile.
#[test]
fn a_broker_is_closed_while_it_catches_up() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("catches-up");
    nodes.open_all();
    // What is in memory is brought as files: the node has nothing.
    nodes.create_in(0, "memory");
    nodes.publish(0, 20);
    nodes.close(2);
    nodes.publish_bytes(0, 200, &vec![b'x'; 500_000]);
    for millis in [50, 200, 500] {
        nodes.open(2);
        std::thread::sleep(Duration::from_millis(millis));
        nodes.close(2);
    }
    nodes.open(2);
    nodes.wait_whole(1);
    nodes.close(0);
    nodes.check(2);
    drop(nodes);
    turn.nothing_is_left();
}

/// A broker may be a node without JetStream: it is closed before it has found a cluster, and when it has.
#[test]
fn a_broker_without_jetstream_of_its_own_is_closed() {
    let turn = Turn::take();
    let mut nodes = Nodes::new("core-broker");
    let own = free_addresses(1)[0];
    let open = || {
        let text = format!(
            "server_name: edge, jetstream: disabled\n\
             cluster {{ name: c, host: 127.0.0.1, port: {}, routes: [nats://{}] }}",
            own.port(),
            nodes.ports[0]
        );
        let config = Config::from_text(&text).expect("a configuration");
        Broker::open(config.without_listener()).expect("open")
    };
    open().close().expect("a clean close");
    let edge = open();
    nodes.open_all();
    nodes.create(0);
    let mut client = edge.connect().expect("connect");
    until("it is published there", || try_publish(&mut client, "S.1", b"body"));
    drop(client);
    edge.close().expect("a clean close");
    (0..3).for_each(|node| nodes.close(node));
    turn.nothing_is_left();
}

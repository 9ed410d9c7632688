//! Leaf nodes between real servers: nats-server on either side, and two of ours. Core messages,
//! requests, queue groups, the JetStream of the other domain, and copies across domains that outlive
//! the connection.
//!
//! nats-server is found as in the differential test: `NATS_SERVER`, else what `tests/peers.sh` has
//! built; `NUTHATCH_SKIP_PEERS` leaves those parts out where it is absent.

mod support;
#[path = "leafs/traces.rs"]
mod traces;
#[path = "leafs/ways.rs"]
mod ways;

use nuthatch_client::{Client, OwnedMessage, RequestError};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Server, TempDir};

/// Longest wait for something that must come: nats-server looks after a mirror that has fallen
/// silent only now and then.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How long one attempt waits.
const MOMENT: Duration = Duration::from_millis(300);

/// Whose server it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Maker {
    Ours,
    Reference,
}

impl Maker {
    /// `None`: it is absent, and that is intended. `Some(None)`: ours.
    fn program(self) -> Option<Option<PathBuf>> {
        if self == Self::Ours {
            return Some(None);
        }
        let built =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/nats-server");
        let path = std::env::var_os("NATS_SERVER").map_or(built, PathBuf::from);
        if path.is_file() {
            return Some(Some(path));
        }
        if std::env::var_os("NUTHATCH_SKIP_PEERS").is_some() {
            eprintln!("skipped: {} is absent and NUTHATCH_SKIP_PEERS is set", path.display());
            return None;
        }
        panic!(
            "{} is absent: run tests/peers.sh once, or name a nats-server 2.15.2 with NATS_SERVER, \
             or set NUTHATCH_SKIP_PEERS to leave this out",
            path.display()
        );
    }
}

/// Carries connections to a port, and cuts them.
struct Proxy {
    port: u16,
    open: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("address").port();
        let open = Arc::new(AtomicBool::new(true));
        let sockets = Arc::new(Mutex::new(Vec::new()));
        let (is_open, all) = (open.clone(), sockets.clone());
        std::thread::spawn(move || {
            for incoming in listener.incoming().flatten() {
                let outgoing = TcpStream::connect(("127.0.0.1", target));
                let Ok(outgoing) = outgoing else { continue };
                let mut all = all.lock().expect("lock");
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to) in [(&incoming, &outgoing), (&outgoing, &incoming)] {
                    let (from, to) =
                        (from.try_clone().expect("clone"), to.try_clone().expect("clone"));
                    std::thread::spawn(move || carry(from, to));
                }
                all.extend([incoming, outgoing]);
            }
        });
        Self { port, open, sockets }
    }

    /// Ends every connection and lets none through any more.
    fn cut(&self) {
        self.open.store(false, Ordering::SeqCst);
        for socket in self.sockets.lock().expect("lock").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn free_port() -> u16 {
    nuthatch_ports::free_port().expect("a free port")
}

/// A hub and a leaf node with a proxy between them.
struct Pair {
    hub: Server,
    leaf: Server,
    proxy: Proxy,
    _dirs: [TempDir; 2],
}

impl Pair {
    fn start(hub: Maker, leaf: Maker) -> Option<Self> {
        let (hub_program, leaf_program) = (hub.program()?, leaf.program()?);
        let name = format!("leafs-{hub:?}-{leaf:?}");
        let dirs = [TempDir::new(&format!("{name}-hub")), TempDir::new(&format!("{name}-leaf"))];
        let port = free_port();
        let start = |program: &Option<PathBuf>, dir: &TempDir, config: String| {
            let file = dir.path().join("server.conf");
            std::fs::write(&file, config).expect("configuration");
            let flags = ["-c", file.to_str().expect("text")];
            Server::start_program(program.as_deref(), &dir.path().join("store"), &flags)
        };
        let config = format!(
            "server_name: hub, jetstream {{ domain: hub }}, leafnodes {{ listen: '127.0.0.1:{port}' }}"
        );
        let hub = start(&hub_program, &dirs[0], config);
        let proxy = Proxy::start(port);
        let config = format!(
            "server_name: leaf, jetstream {{ domain: leaf }}
             leafnodes {{ reconnect: '200ms', remotes: [ {{ url: 'nats-leaf://127.0.0.1:{}' }} ] }}",
            proxy.port
        );
        let leaf = start(&leaf_program, &dirs[1], config);
        Some(Self { hub, leaf, proxy, _dirs: dirs })
    }
}

/// Tries until something is there.
#[track_caller]
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The next message that is not one of [`until_heard`].
fn next(client: &mut Client) -> Option<OwnedMessage> {
    let deadline = Instant::now() + MOMENT;
    while let Ok(message) = client.next_message(deadline) {
        if message.payload != b"is anybody there?" {
            return Some(message);
        }
    }
    None
}

fn publish(client: &mut Client, subject: &str, reply: &str, payload: &[u8]) {
    client.writer.publish(subject.as_bytes(), reply.as_bytes(), b"", payload).expect("publish");
    client.writer.flush().expect("flush");
}

/// Publishes until the other side gets it: from then on interest has crossed.
#[track_caller]
fn until_heard(from: &mut Client, to: &mut Client, subject: &str) {
    to.round_trip(TIMEOUT).expect("round trip");
    eventually(subject, || {
        publish(from, subject, "", b"is anybody there?");
        to.next_message(Instant::now() + MOMENT).ok()
    });
}

/// One API call of a domain, until it is answered; the JSON.
#[track_caller]
fn call(client: &mut Client, domain: &str, call: &str, body: &Value) -> Value {
    let subject = format!("$JS.{domain}.API.{call}");
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = request(client, &subject, &body);
    assert!(answer.get("error").is_none(), "{subject}: {answer}");
    answer
}

/// A request that is made again while nobody listens yet.
#[track_caller]
fn request(client: &mut Client, subject: &str, body: &[u8]) -> Value {
    eventually(subject, || match client.request(subject, b"", body, TIMEOUT) {
        Ok(reply) => Some(serde_json::from_slice(&reply.payload).expect("JSON")),
        Err(RequestError::NoResponders(_)) => None,
        Err(error) => panic!("{subject}: {error}"),
    })
}

fn core(pair: &Pair) {
    let (mut hub, mut leaf) = (pair.hub.connect(), pair.leaf.connect());
    hub.subscribe("up.>", "").expect("subscribe");
    leaf.subscribe("down.>", "").expect("subscribe");
    until_heard(&mut leaf, &mut hub, "up.test");
    until_heard(&mut hub, &mut leaf, "down.test");
    for number in 0..50 {
        publish(&mut leaf, &format!("up.{number}"), "", b"to the hub");
        publish(&mut hub, &format!("down.{number}"), "", b"to the leaf");
    }
    for (client, prefix) in [(&mut hub, "up"), (&mut leaf, "down")] {
        for number in 0..50 {
            let message = eventually("a message", || next(client));
            assert_eq!(message.subject, format!("{prefix}.{number}"), "in order, once");
        }
    }
    // A request from the leaf, answered at the hub.
    let inbox = format!("{}.answer", leaf.inbox());
    leaf.subscribe(&inbox, "").expect("subscribe");
    publish(&mut leaf, "up.question", &inbox, b"?");
    let question = eventually("the question", || next(&mut hub));
    publish(&mut hub, question.reply.as_deref().expect("a reply subject"), "", b"!");
    assert_eq!(eventually("the answer", || next(&mut leaf)).payload, b"!");
}

fn queue_groups(pair: &Pair) {
    let mut leaf = pair.leaf.connect();
    let mut members = [pair.hub.connect(), pair.hub.connect()];
    for member in &mut members {
        member.subscribe("work", "pool").expect("subscribe");
        member.round_trip(TIMEOUT).expect("round trip");
    }
    eventually("the group is known", || {
        publish(&mut leaf, "work", "", b"is anybody there?");
        members.iter_mut().find_map(|member| member.next_message(Instant::now() + MOMENT).ok())
    });
    for number in 0..40 {
        publish(&mut leaf, "work", "", number.to_string().as_bytes());
    }
    let mut seen = BTreeSet::new();
    eventually("all work", || {
        for member in &mut members {
            while let Some(message) = next(member) {
                assert!(seen.insert(message.payload.clone()), "twice: {message:?}");
            }
        }
        (seen.len() == 40).then_some(())
    });
}

fn jetstream_of_the_hub(pair: &Pair) {
    let mut leaf = pair.leaf.connect();
    let config = json!({"name": "ORDERS", "subjects": ["orders.>"], "storage": "file"});
    call(&mut leaf, "hub", "STREAM.CREATE.ORDERS", &config);
    for number in 1..=20 {
        let ack =
            request(&mut leaf, &format!("orders.{number}"), format!("order {number}").as_bytes());
        assert_eq!((&ack["seq"], &ack["domain"]), (&json!(number), &json!("hub")), "{ack}");
    }
    let config =
        json!({"stream_name": "ORDERS", "config": {"durable_name": "D", "ack_policy": "explicit"}});
    call(&mut leaf, "hub", "CONSUMER.DURABLE.CREATE.ORDERS.D", &config);
    let inbox = format!("{}.pull", leaf.inbox());
    leaf.subscribe(&inbox, "").expect("subscribe");
    let body = json!({"batch": 20, "expires": 60_000_000_000_u64}).to_string();
    publish(&mut leaf, "$JS.hub.API.CONSUMER.MSG.NEXT.ORDERS.D", &inbox, body.as_bytes());
    for number in 1..=20 {
        let message = eventually("a pulled message", || next(&mut leaf));
        assert_eq!(message.subject, format!("orders.{number}"));
        publish(&mut leaf, message.reply.as_deref().expect("an ack subject"), "", b"+ACK");
    }
    eventually("all are acknowledged", || {
        let info = call(&mut leaf, "hub", "CONSUMER.INFO.ORDERS.D", &Value::Null);
        (info["ack_floor"]["stream_seq"] == 20).then_some(())
    });
    let config = json!({"name": "KV_b", "subjects": ["$KV.b.>"], "storage": "memory"});
    call(&mut leaf, "hub", "STREAM.CREATE.KV_b", &config);
    let ack = request(&mut leaf, "$JS.hub.API.$KV.b.key", b"value");
    assert_eq!((&ack["stream"], &ack["seq"]), (&json!("KV_b"), &json!(1)), "{ack}");
    call(&mut leaf, "hub", "STREAM.DELETE.KV_b", &Value::Null);
}

/// Waits until a stream has so many messages, and compares them with what they are copies of.
#[track_caller]
fn compare(client: &mut Client, stream: &str, count: u64) {
    eventually(&format!("{count} messages in {stream}"), || {
        let info = call_local(client, &format!("STREAM.INFO.{stream}"), &Value::Null);
        (info["state"]["messages"] == count).then_some(())
    });
    for (seq, message) in support::read_all(client, stream, 1) {
        assert!(message.subject.ends_with(&format!(".{seq}")), "{stream} {seq}: {message:?}");
        assert!(message.payload.ends_with(format!(" {seq}").as_bytes()), "{stream} {seq}");
    }
}

#[track_caller]
fn call_local(client: &mut Client, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = request(client, &format!("$JS.API.{call}"), &body);
    assert!(answer.get("error").is_none(), "{call}: {answer}");
    answer
}

/// A mirror at the leaf of a stream at the hub, and sources the other way round, with a cut between.
fn copies(pair: &Pair) {
    let (mut hub, mut leaf) = (pair.hub.connect(), pair.leaf.connect());
    let mirror = json!({"name": "MIRROR", "storage": "file",
        "mirror": {"name": "ORDERS", "external": {"api": "$JS.hub.API"}}});
    call_local(&mut leaf, "STREAM.CREATE.MIRROR", &mirror);
    let config = json!({"name": "READINGS", "subjects": ["readings.>"], "storage": "file"});
    call_local(&mut leaf, "STREAM.CREATE.READINGS", &config);
    let source = json!({"name": "ALL", "storage": "file",
        "sources": [{"name": "READINGS", "external": {"api": "$JS.leaf.API", "deliver": "copies"}}]});
    call_local(&mut hub, "STREAM.CREATE.ALL", &source);
    for number in 1..=20 {
        request(&mut leaf, &format!("readings.{number}"), format!("reading {number}").as_bytes());
    }
    compare(&mut leaf, "MIRROR", 20);
    compare(&mut hub, "ALL", 20);
    pair.proxy.cut();
    for number in 21..=60 {
        request(&mut hub, &format!("orders.{number}"), format!("order {number}").as_bytes());
        request(&mut leaf, &format!("readings.{number}"), format!("reading {number}").as_bytes());
    }
    pair.proxy.mend();
    compare(&mut leaf, "MIRROR", 60);
    compare(&mut hub, "ALL", 60);
}

fn all(hub: Maker, leaf: Maker) {
    let Some(pair) = Pair::start(hub, leaf) else { return };
    core(&pair);
    queue_groups(&pair);
    jetstream_of_the_hub(&pair);
    copies(&pair);
}

#[test]
fn ours_at_both_ends() {
    all(Maker::Ours, Maker::Ours);
}

#[test]
fn a_nats_server_is_the_hub() {
    all(Maker::Reference, Maker::Ours);
}

#[test]
fn a_nats_server_is_the_leaf() {
    all(Maker::Ours, Maker::Reference);
}

#[test]
fn the_example_of_a_domain_behind_a_leaf_node() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/leaf-domain/run.sh");
    let mut command = std::process::Command::new(script);
    let output = command.arg(env!("CARGO_BIN_EXE_nuthatch")).output().expect("run the example");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.ends_with("all as it should be\n"), "{text}\n{errors}");
}

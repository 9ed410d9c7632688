//! Three real processes are one cluster for clients (`docs/cluster.md`): each takes clients, and what they send goes to
//! those of the other nodes, and to the JetStream of the one that owns the log.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, OwnedMessage, RequestError};
use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, api_ok, fetch, read_all, reply_of};

const KEY: &str = "bm8gb25lIHdpbGwgZXZlciBndWVzcyB0aGlzIGtleQ==\n";

/// How long nothing must come where nothing is to come.
const NOTHING: Duration = Duration::from_millis(300);

fn started(name: &str, prepare: impl FnOnce(&mut Nodes)) -> Nodes {
    let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
    prepare(&mut nodes);
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes
}

fn connect(nodes: &Nodes, at: usize, user: &str) -> Client {
    nodes.nodes[at].client(user)
}

fn send(client: &mut Client, subject: &str, body: &[u8]) {
    client.writer.publish(subject.as_bytes(), b"", b"", body).expect("queued");
    client.writer.flush().expect("sent");
}

fn next(client: &mut Client, within: Duration) -> Option<OwnedMessage> {
    client.next_message(Instant::now() + within).ok()
}

/// Publishes until it comes, then takes what was too much of that. The nodes have found each other then, and the
/// subscription is known.
fn until_heard(from: &mut Client, to: &mut Client, subject: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        send(from, subject, b"probe");
        if next(to, Duration::from_millis(50)).is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "nothing comes on {subject}");
    }
    while next(to, NOTHING).is_some() {}
}

/// Asks until an answer comes that fits.
fn until_answered(
    client: &mut Client,
    subject: &str,
    body: &[u8],
    fits: impl Fn(&Result<OwnedMessage, RequestError>) -> bool,
) -> Result<OwnedMessage, RequestError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let answer = client.request(subject, b"", body, ANSWER);
        if fits(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{subject}: {answer:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The stream, made at whichever node, once its log has an owner.
fn create(nodes: &Nodes, at: usize, user: &str) -> Client {
    let mut client = connect(nodes, at, user);
    let config = json!({"name": "Q", "subjects": ["Q.>"], "storage": "file", "allow_direct": true});
    let is_made = |answer: &Result<OwnedMessage, RequestError>| {
        answer.as_ref().is_ok_and(|told| !told.payload.windows(7).any(|part| part == b"\"error\""))
    };
    let body = config.to_string();
    until_answered(&mut client, "$JS.API.STREAM.CREATE.Q", body.as_bytes(), is_made).expect("made");
    client
}

fn number(message: &OwnedMessage) -> u64 {
    String::from_utf8_lossy(&message.payload).parse().expect("a number")
}

fn order_is_kept(nodes: &Nodes) {
    let mut publisher = nodes.client(0);
    let mut subscribers = [nodes.client(1), nodes.client(2), nodes.client(0)];
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.subscribe("order.>", "").expect("subscribed");
        subscriber.round_trip(TIMEOUT).expect("taken");
        until_heard(&mut publisher, subscriber, &format!("order.{at}"));
    }
    for subscriber in &mut subscribers {
        while next(subscriber, NOTHING).is_some() {}
    }
    let count = 20_000;
    for number in 0..count {
        let subject = format!("order.{}", number % 7);
        let body = number.to_string();
        publisher.writer.publish(subject.as_bytes(), b"", b"", body.as_bytes()).expect("queued");
    }
    publisher.writer.flush().expect("sent");
    for subscriber in &mut subscribers {
        for expected in 0..count {
            assert_eq!(next(subscriber, TIMEOUT).map(|message| number(&message)), Some(expected));
        }
        assert_eq!(next(subscriber, NOTHING), None, "each comes once");
    }
}

#[test]
fn messages_reach_the_clients_of_all_nodes_once_and_in_order() {
    order_is_kept(&started("cluster-order", |_| ()));
}

#[test]
fn nodes_with_a_key_hand_on_messages_too() {
    order_is_kept(&started("cluster-key", |nodes| nodes.give_keys(&[KEY; NODES])));
}

#[test]
fn one_member_of_a_group_gets_a_message_wherever_it_is() {
    let nodes = started("cluster-queue", |_| ());
    let mut members: Vec<Client> = [0, 0, 1, 1].map(|at| nodes.client(at)).into();
    let mut publishers: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    for member in &mut members {
        member.subscribe("work", "workers").expect("subscribed");
        member.subscribe("ready", "").expect("subscribed");
        member.round_trip(TIMEOUT).expect("taken");
        publishers.iter_mut().for_each(|from| until_heard(from, member, "ready"));
    }
    let (each, mut number) = (400, 0);
    for publisher in &mut publishers {
        for _ in 0..each {
            send(publisher, "work", number.to_string().as_bytes());
            number += 1;
        }
        publisher.round_trip(TIMEOUT).expect("handled");
    }
    let mut counts = Vec::new();
    let mut found = Vec::new();
    for member in &mut members {
        let mut count = 0;
        while let Some(message) = next(member, Duration::from_secs(1)) {
            if message.subject == "work" {
                count += 1;
                found.push(self::number(&message));
            }
        }
        counts.push(count);
    }
    found.sort_unstable();
    assert_eq!(found, (0..number).collect::<Vec<u64>>(), "each message once: {counts:?}");
    let at_first = counts[0] + counts[1];
    // 1,200 throws of a coin: ten standard deviations.
    let fair = number * 35 / 100..number * 65 / 100;
    assert!(fair.contains(&at_first), "members are alike wherever they are: {counts:?}");
}

#[test]
fn a_request_is_answered_from_another_node_and_without_anybody_at_once() {
    let mut nodes = started("cluster-request", |_| ());
    let (mut asking, mut answering) = (nodes.client(0), nodes.client(1));
    answering.subscribe("service", "").expect("subscribed");
    answering.round_trip(TIMEOUT).expect("taken");
    let service = std::thread::spawn(move || {
        // Until its node is gone.
        let _ = answering.pump(TIMEOUT, |message, writer| {
            let reply = message.reply.map(<[u8]>::to_vec).unwrap_or_default();
            writer.publish(&reply, b"", b"", message.payload)?;
            Ok(ControlFlow::Continue(()))
        });
    });
    until_answered(&mut asking, "service", b"here?", Result::is_ok).expect("answered");
    for number in 0..100 {
        let body = number.to_string();
        let answer = asking.request("service", b"", body.as_bytes(), TIMEOUT).expect("answered");
        assert_eq!(answer.payload, body.as_bytes());
    }
    let nobody = asking.request("nobody", b"", b"", TIMEOUT);
    assert!(matches!(nobody, Err(RequestError::NoResponders(_))), "{nobody:?}");
    nodes.nodes[1].kill();
    let gone = |answer: &Result<_, _>| matches!(answer, Err(RequestError::NoResponders(_)));
    let told = until_answered(&mut asking, "service", b"still?", gone);
    assert!(told.is_err());
    service.join().expect("no panic");
}

fn jetstream_is_served(nodes: &Nodes, user: &str) {
    let mut clients: Vec<Client> = (0..NODES).map(|at| create(nodes, at, user)).collect();
    let is_acked = |answer: &Result<OwnedMessage, RequestError>| {
        answer.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\""))
    };
    for (number, client) in clients.iter_mut().enumerate() {
        let body = number.to_string();
        until_answered(client, "Q.n", body.as_bytes(), is_acked).expect("acknowledged");
    }
    let config =
        json!({"stream_name": "Q", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api_ok(&mut clients[0], "CONSUMER.DURABLE.CREATE.Q.C", &config);
    for (number, client) in clients.iter_mut().enumerate() {
        let got = fetch(client, "Q", "C", 1);
        let message = got.first().expect("a message");
        assert_eq!(self::number(message), number as u64);
        assert_eq!(message.subject, "Q.n", "as it was stored");
        // Answered when it is taken.
        let ack = reply_of(message).to_owned();
        client.request(&ack, b"", b"+ACK", TIMEOUT).expect("confirmed");
    }
    let info = api_ok(&mut clients[1], "CONSUMER.INFO.Q.C", &Value::Null);
    assert_eq!((&info["num_ack_pending"], &info["num_pending"]), (&json!(0), &json!(0)), "{info}");
    for client in &mut clients {
        let body = json!({"last_by_subj": "Q.n"}).to_string();
        let got = client.request("$JS.API.DIRECT.GET.Q", b"", body.as_bytes(), TIMEOUT);
        assert_eq!(number(&got.expect("a message")), NODES as u64 - 1);
        assert_eq!(read_all(client, "Q", 1).len(), NODES);
    }
    pushed_and_key_values(&mut clients);
}

/// A consumer that pushes to another node, and writes to a bucket under conditions.
fn pushed_and_key_values(clients: &mut [Client]) {
    let inbox = format!("{}.push", clients[2].inbox());
    clients[2].subscribe(&inbox, "").expect("subscribed");
    let config = json!({"stream_name": "Q", "config": {"name": "P", "deliver_subject": inbox,
        "ack_policy": "none", "inactive_threshold": 60_000_000_000_u64}});
    send(&mut clients[2], "$JS.API.CONSUMER.CREATE.Q.P", config.to_string().as_bytes());
    for expected in 0..NODES as u64 {
        let message = next(&mut clients[2], TIMEOUT).expect("pushed");
        assert_eq!((number(&message), &*message.subject), (expected, "Q.n"));
    }
    let group = format!("{}.group", clients[0].inbox());
    for client in &mut *clients {
        client.subscribe(&group, "members").expect("subscribed");
        client.round_trip(TIMEOUT).expect("taken");
    }
    let config = json!({"stream_name": "Q", "config": {"durable_name": "G", "deliver_subject": group,
        "deliver_group": "members", "ack_policy": "none"}});
    // Whoever waits for the answer would drop what is delivered before it.
    send(&mut clients[0], "$JS.API.CONSUMER.DURABLE.CREATE.Q.G", config.to_string().as_bytes());
    let mut found: Vec<u64> = Vec::new();
    for client in &mut *clients {
        while let Some(message) = next(client, Duration::from_secs(1)) {
            found.push(number(&message));
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..NODES as u64).collect::<Vec<_>>(), "each to one of the group");
    let bucket = json!({"name": "KV_B", "subjects": ["$KV.B.>"], "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": true, "allow_direct": true, "discard": "new"});
    api_ok(&mut clients[1], "STREAM.CREATE.KV_B", &bucket);
    let put = |client: &mut Client, expected: u64| {
        let headers =
            format!("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {expected}\r\n\r\n");
        let ack = client.request("$KV.B.k", headers.as_bytes(), b"v", TIMEOUT).expect("an answer");
        let ack: Value = serde_json::from_slice(&ack.payload).expect("JSON");
        ack["seq"].as_u64().filter(|seq| *seq > 0)
    };
    // A change of streams reaches the other nodes a moment later.
    let is_known = |answer: &Result<OwnedMessage, RequestError>| answer.is_ok();
    for client in clients.iter_mut() {
        until_answered(client, "$KV.B.probe", b"", is_known).expect("known");
    }
    let first = put(&mut clients[0], 0).expect("created");
    assert_eq!(put(&mut clients[2], 0), None, "it is there by now");
    let second = put(&mut clients[2], first).expect("replaced");
    assert!(second > first && put(&mut clients[1], second).is_some());
}

#[test]
fn the_jetstream_of_the_cluster_is_at_every_node() {
    jetstream_is_served(&started("cluster-jetstream", |_| ()), "");
}

/// A client stays where it is while the log goes to another node, and what it was acknowledged is there once.
#[test]
fn a_client_at_another_node_outlives_the_owner() {
    let mut nodes = started("cluster-owner", |_| ());
    create(&nodes, 0, "");
    let (_, owner) = nodes.owner();
    let at = (owner + 1) % NODES;
    let mut client = connect(&nodes, at, "");
    let publish = |nodes: &Nodes, client: &mut Client, number: u64| {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
        let (body, deadline) = (number.to_string(), Instant::now() + TIMEOUT);
        loop {
            let ack = client.request("Q.n", headers.as_bytes(), body.as_bytes(), ANSWER);
            if ack.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\"")) {
                return;
            }
            let lost = matches!(ack, Err(RequestError::Transport(_)));
            assert!(!lost, "its connection stays: {ack:?}\n{}", nodes.nodes[at].text());
            assert!(Instant::now() < deadline, "message {number} is not taken: {ack:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    (0..50).for_each(|number| publish(&nodes, &mut client, number));
    nodes.nodes[owner].kill();
    (50..100).for_each(|number| publish(&nodes, &mut client, number));
    let found = read_all(&mut client, "Q", 1);
    let found: Vec<u64> = found.iter().map(|(_, message)| number(message)).collect();
    assert_eq!(found, (0..100).collect::<Vec<_>>(), "everything once, in its order");
    let said = nodes.nodes[at].text();
    assert_eq!(said.matches("Starting nats-server").count(), 1, "it was not begun anew:\n{said}");
}

/// Whoever listens already when the next owner opens the log gets what is only on its disk.
#[test]
fn a_consumer_with_a_listener_goes_on_at_the_next_owner() {
    let mut nodes = started("cluster-push", |_| ());
    drop(create(&nodes, 0, ""));
    let (_, owner) = nodes.owner();
    let mut client = connect(&nodes, (owner + 1) % NODES, "");
    let is_acked = |answer: &Result<OwnedMessage, RequestError>| {
        answer.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\""))
    };
    for number in 0..50 {
        until_answered(&mut client, "Q.n", number.to_string().as_bytes(), is_acked).expect("acked");
    }
    let inbox = format!("{}.push", client.inbox());
    let config = json!({"stream_name": "Q", "config": {"durable_name": "P", "ack_policy": "none",
        "deliver_subject": inbox}});
    api_ok(&mut client, "CONSUMER.DURABLE.CREATE.Q.P", &config);
    nodes.nodes[owner].kill();
    client.subscribe(&inbox, "").expect("subscribed");
    client.round_trip(TIMEOUT).expect("taken");
    for expected in 0..50 {
        assert_eq!(next(&mut client, TIMEOUT).map(|message| number(&message)), Some(expected));
    }
}

/// What a client does not read is its own node's affair: no node, and nobody else, waits for it.
#[test]
fn a_subscriber_that_reads_nothing_holds_up_no_node() {
    let nodes = started("cluster-slow", |nodes| nodes.configure("max_pending: 4MB\n"));
    let mut publisher = nodes.client(0);
    let mut subscriber = nodes.client(1);
    subscriber.subscribe("small", "").expect("subscribed");
    subscriber.round_trip(TIMEOUT).expect("taken");
    until_heard(&mut publisher, &mut subscriber, "small");
    let mut slow = TcpStream::connect(("127.0.0.1", nodes.nodes[1].port)).expect("connected");
    slow.write_all(b"CONNECT {\"verbose\":false}\r\nSUB large 1\r\nPING\r\n").expect("sent");
    let body = vec![7; 256 << 10];
    let deadline = Instant::now() + TIMEOUT;
    let mut sent = 0;
    while !nodes.nodes[1].text().contains("Slow Consumer Detected: MaxPending of 4194304") {
        send(&mut publisher, "large", &body);
        send(&mut publisher, "small", sent.to_string().as_bytes());
        let got = next(&mut subscriber, TIMEOUT).expect("the other one gets its messages");
        assert_eq!(number(&got), sent);
        sent += 1;
        assert!(Instant::now() < deadline, "it is not cut off");
    }
    for node in &nodes.nodes {
        assert!(!node.text().contains("is connected no more"), "{}", node.text());
    }
}

const ACCOUNTS: &str = "accounts {
  A { jetstream: enabled, users: [{user: a, password: p}]
      exports: [{service: \"svc.*\"}, {stream: \"news.>\"}] }
  B { users: [{user: b, password: p}]
      imports: [{service: {account: A, subject: \"svc.echo\"}, to: \"echo\"}
                {stream: {account: A, subject: \"news.>\"}, prefix: \"a\"}] }
}
";

#[test]
fn accounts_are_apart_and_share_what_they_say_across_nodes() {
    let nodes = started("cluster-accounts", |nodes| nodes.configure(ACCOUNTS));
    let (a, b) = ("a:p@", "b:p@");
    let (mut publisher, mut in_a, mut in_b) =
        (connect(&nodes, 0, a), connect(&nodes, 1, a), connect(&nodes, 1, b));
    for client in [&mut in_a, &mut in_b] {
        for subject in ["x.>", "a.news.>", "mine"] {
            client.subscribe(subject, "").expect("subscribed");
        }
        client.round_trip(TIMEOUT).expect("taken");
    }
    until_heard(&mut publisher, &mut in_a, "x.probe");
    let mut other = connect(&nodes, 2, b);
    until_heard(&mut other, &mut in_b, "mine");
    send(&mut publisher, "x.1", b"of A");
    assert_eq!(next(&mut in_a, TIMEOUT).expect("it is in A").payload, b"of A");
    assert_eq!(next(&mut in_b, NOTHING), None, "B is another account");
    until_heard(&mut publisher, &mut in_b, "news.probe");
    send(&mut publisher, "news.1", b"told");
    let told = next(&mut in_b, TIMEOUT).expect("B imports it");
    assert_eq!((&*told.subject, &told.payload[..]), ("a.news.1", &b"told"[..]));
    assert_eq!(next(&mut in_b, NOTHING), None, "once");
    // The service answers at node 1, and is asked for by another account at node 0.
    let mut asking = connect(&nodes, 0, b);
    in_a.subscribe("svc.echo", "").expect("subscribed");
    in_a.round_trip(TIMEOUT).expect("taken");
    let service = std::thread::spawn(move || {
        let mut count = 0;
        in_a.pump(TIMEOUT, |message, writer| {
            let reply = message.reply.map(<[u8]>::to_vec).unwrap_or_default();
            writer.publish(&reply, b"", b"", message.payload)?;
            count += 1;
            let is_last = message.payload == b"last";
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .expect("asked");
        count
    });
    until_answered(&mut asking, "echo", b"first", Result::is_ok).expect("answered");
    let answer = asking.request("echo", b"", b"last", TIMEOUT).expect("answered");
    assert_eq!(answer.payload, b"last");
    assert!(service.join().expect("no panic") >= 2);
    jetstream_is_served(&nodes, a);
    let refused = asking.request("$JS.API.INFO", b"", b"", ANSWER);
    let is_told = refused.as_ref().is_ok_and(|told| told.payload.windows(5).any(|p| p == b"10039"));
    let is_nobody = matches!(refused, Err(RequestError::NoResponders(_)));
    assert!(is_told || is_nobody, "B has no JetStream: {refused:?}");
}

/// INFO lines of one connection.
struct Infos(BufReader<TcpStream>);

impl Infos {
    fn of(nodes: &Nodes, at: usize) -> Self {
        let mut stream =
            TcpStream::connect(("127.0.0.1", nodes.nodes[at].port)).expect("connected");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream.write_all(b"CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n").expect("sent");
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line in time") > 0, "it has ended");
            if let Some(json) = line.strip_prefix("INFO ") {
                return serde_json::from_str(json).expect("JSON");
            }
            if line.starts_with("PING") {
                self.0.get_mut().write_all(b"PONG\r\n").expect("sent");
            }
        }
    }

    /// Reads until a client is told of exactly these ports.
    fn until(&mut self, ports: &HashSet<u16>) -> Value {
        loop {
            let info = self.next();
            let urls = info["connect_urls"].as_array().cloned().unwrap_or_default();
            let port = |url: &Value| url.as_str()?.rsplit_once(':')?.1.parse().ok();
            if urls.iter().filter_map(port).collect::<HashSet<u16>>() == *ports {
                return info;
            }
        }
    }
}

#[test]
fn clients_are_told_of_the_other_nodes() {
    let mut nodes = started("cluster-urls", |_| ());
    let all: HashSet<u16> = nodes.nodes.iter().map(|node| node.port).collect();
    (0..NODES).for_each(|at| drop(nodes.client(at)));
    let mut infos: Vec<Infos> = (0..NODES).map(|at| Infos::of(&nodes, at)).collect();
    let told: Vec<Value> = infos.iter_mut().map(|infos| infos.until(&all)).collect();
    let clusters: HashSet<&str> =
        told.iter().map(|info| info["cluster"].as_str().expect("a cluster")).collect();
    assert_eq!(clusters.len(), 1, "one cluster: {clusters:?}");
    for (at, info) in told.iter().enumerate() {
        assert_eq!(info["server_name"], json!(format!("n{at}")));
    }
    nodes.nodes[2].kill();
    let left: HashSet<u16> = nodes.nodes[..2].iter().map(|node| node.port).collect();
    for infos in &mut infos[..2] {
        infos.until(&left);
    }
    nodes.nodes[2].start();
    for infos in &mut infos[..2] {
        infos.until(&all);
    }
    // One that is to end keeps its client, and no new ones are sent to it.
    nodes.nodes[1].signal("-USR2");
    let others = HashSet::from([nodes.nodes[0].port, nodes.nodes[2].port]);
    infos[0].until(&others);
}

const DOMAIN: &str = "jetstream { domain: hub }
authorization { users: [
  {user: all, password: p}
  {user: few, password: p, permissions: {publish: {deny: [\"$JS.API.STREAM.DELETE.>\"]}}}
] }
";

/// What a subject means counts, at whichever node the client is.
#[test]
fn permissions_hold_at_nodes_that_do_not_own_the_log() {
    let nodes = started("cluster-domain", |nodes| {
        nodes.configure(DOMAIN);
        for node in &mut nodes.nodes {
            node.args.extend(["--cluster_name", "birds"].map(str::to_owned));
        }
    });
    for at in 0..NODES {
        let mut all = create(&nodes, at, "all:p@");
        let mut few = connect(&nodes, at, "few:p@");
        let info = until_answered(&mut few, "$JS.hub.API.STREAM.INFO.Q", b"", Result::is_ok);
        let info: Value = serde_json::from_slice(&info.expect("told").payload).expect("JSON");
        assert_eq!(info["cluster"]["name"], "birds", "{info}");
        assert!(info["cluster"]["leader"].as_str().is_some_and(|name| name.starts_with('n')));
        for subject in ["$JS.API.STREAM.DELETE.Q", "$JS.hub.API.STREAM.DELETE.Q"] {
            let refused = connect(&nodes, at, "few:p@").request(subject, b"", b"", ANSWER);
            let told = refused.expect_err("forbidden").to_string();
            assert!(told.contains("Permissions Violation for Publish"), "{at}, {subject}: {told}");
        }
        api_ok(&mut all, "STREAM.INFO.Q", &Value::Null);
    }
}

/// The traces that come for one publish, by the names of the servers.
fn traces(
    from: &mut Client,
    events: &mut Client,
    (subject, more): (&str, &str),
    servers: usize,
) -> Vec<Value> {
    let block = format!("NATS/1.0\r\nNats-Trace-Dest: traces.it\r\n{more}\r\n");
    from.writer.publish(subject.as_bytes(), b"", block.as_bytes(), b"x").expect("queued");
    from.writer.flush().expect("sent");
    let mut told: Vec<Value> = Vec::new();
    while told.len() < servers {
        let event = next(events, TIMEOUT).expect("each server tells");
        told.push(serde_json::from_slice(&event.payload).expect("a trace"));
    }
    assert_eq!(next(events, NOTHING), None, "each tells once");
    told.sort_by_key(|event| event["request"]["header"]["Nats-Trace-Hop"].to_string());
    told
}

fn steps<'a>(event: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = event["events"].as_array().expect("steps");
    all.iter().filter(|step| step["type"] == kind).collect()
}

#[test]
fn traces_tell_of_all_nodes() {
    let nodes = started("cluster-traces", |_| ());
    let mut from = create(&nodes, 0, "");
    let mut events = nodes.client(0);
    events.subscribe("traces.>", "").expect("subscribed");
    let mut subscribers = [nodes.client(1), nodes.client(2)];
    for (at, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.subscribe("seen.>", "").expect("subscribed");
        until_heard(&mut from, subscriber, &format!("seen.{at}"));
    }
    for at in [1, 2] {
        until_heard(&mut nodes.client(at), &mut events, "traces.probe");
    }
    for subscriber in &mut subscribers {
        while next(subscriber, NOTHING).is_some() {}
    }
    for (more, is_delivered) in [("", true), ("Nats-Trace-Only: true\r\n", false)] {
        let told = traces(&mut from, &mut events, ("seen.a", more), 3);
        let first = told.iter().find(|event| event["hops"] == 2).expect("the node of the client");
        let sent = steps(first, "eg");
        assert!(sent.len() == 2 && sent.iter().all(|step| step["kind"] == 1), "{first}");
        for other in told.iter().filter(|event| event["hops"] != 2) {
            assert_eq!(steps(other, "in")[0]["kind"], 1, "from another node: {other}");
            let taken = steps(other, "eg");
            assert!(taken.len() == 1 && taken[0]["kind"] == 0, "{other}");
        }
        for subscriber in &mut subscribers {
            assert_eq!(next(subscriber, NOTHING).is_some(), is_delivered, "{more}");
        }
    }
    for at in 0..3 {
        let mut client = nodes.client(at);
        let info = api_ok(&mut client, "STREAM.INFO.Q", &Value::Null);
        let before = info["state"]["messages"].as_u64().expect("a number");
        let is_here = info["cluster"]["leader"] == nodes.nodes[at].name.as_str();
        let servers = if is_here { 1 } else { 2 };
        let told = traces(&mut client, &mut events, ("Q.a", ""), servers);
        let stored: Vec<&Value> = told.iter().flat_map(|event| steps(event, "js")).collect();
        assert!(stored.len() == 1 && stored[0]["stream"] == "Q", "{told:?}");
        assert!(stored[0].get("error").is_none(), "{told:?}");
        let info = api_ok(&mut client, "STREAM.INFO.Q", &Value::Null);
        assert_eq!(info["state"]["messages"], before + 1, "stored once");
    }
}

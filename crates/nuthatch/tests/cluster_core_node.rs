//! Nodes without JetStream: they keep no log, and their clients have everything of the other nodes. Real processes.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, ConnectOptions, OwnedMessage};
use quorum_nodes::{ACCOUNTS, ANSWER, NODES, Node, Nodes, free_ports};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, api_ok};

const KEY: &str = "a secret of at least thirty-two bytes, for the nodes";

/// What a flag of a node was given.
fn given(node: &Node, flag: &str) -> String {
    let at = node.args.iter().position(|arg| arg == flag).expect("it is given");
    node.args[at + 1].clone()
}

/// A node without JetStream that has not started, with routes to these and the files that they have.
fn core_node(nodes: &Nodes, name: &str, listen: &str, routes: &[&str]) -> Node {
    let port = free_ports(1)[0];
    let args = ["serve", "-js=false", "-a", "127.0.0.1", "-p"].map(str::to_owned);
    let mut args = Vec::from(args);
    args.push(port.to_string());
    for (flag, value) in
        [("--node-name", name), ("--cluster-listen", listen), ("--routes", &routes.join(","))]
    {
        args.extend([flag.to_owned(), value.to_owned()]);
    }
    let first = &nodes.nodes[0];
    for flag in ["-c", "--cluster_key"] {
        if first.args.iter().any(|arg| arg == flag) {
            args.extend([flag.to_owned(), given(first, flag)]);
        }
    }
    let log = nodes.dir.path().join(format!("without-{name}.log"));
    Node::new(name.to_owned(), port, args, log)
}

fn address() -> String {
    format!("127.0.0.1:{}", free_ports(1)[0])
}

/// The answer of a call that is made again until it has one without an error.
fn until_ok(client: &mut Client, call: &str, body: &Value) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let asked = client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), ANSWER);
        let answer = asked.map(|answer| serde_json::from_slice(&answer.payload).expect("JSON"));
        match answer {
            Ok(answer) if Value::get(&answer, "error").is_none() => return answer,
            other => assert!(Instant::now() < deadline, "{call}: {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn next(client: &mut Client) -> OwnedMessage {
    client.next_message(Instant::now() + TIMEOUT).expect("a message")
}

/// Two of them, each knows one other node and not the other one, of which one starts before the cluster is founded.
#[test]
fn clients_have_the_jetstream_of_the_other_nodes() {
    let mut nodes = Nodes::with_catalog(TempDir::new("core-node"), "built-in");
    nodes.give_keys(&[KEY; NODES]);
    let listens: Vec<String> =
        nodes.nodes.iter().map(|node| given(node, "--cluster-listen")).collect();
    let mut early = core_node(&nodes, "a-edge", &address(), &[&listens[1]]);
    let mut late = core_node(&nodes, "z-edge", &address(), &[&listens[2]]);
    early.start();
    let before = early.client("").request("$JS.API.INFO", b"", b"", ANSWER);
    assert!(before.is_err(), "there is no cluster yet: {before:?}");
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.wait_text(0, "owns the quorum log");
    late.start();
    let (mut one, mut other) = (early.client(""), late.client(""));
    let config = json!({"name": "Q", "subjects": ["Q.>"], "num_replicas": 3});
    until_ok(&mut one, "STREAM.CREATE.Q", &config);
    let in_memory = json!({"name": "M", "subjects": ["M.>"], "storage": "memory"});
    let made = until_ok(&mut other, "STREAM.CREATE.M", &in_memory);
    let leader = made["cluster"]["leader"].as_str().unwrap_or_default();
    assert!(leader.starts_with('n'), "one that keeps logs has it: {made}");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        // Its own address, those of three nodes, and of the other one without JetStream.
        let told = early.client("");
        let told = told.info();
        if told.jetstream && told.connect_urls.len() == NODES + 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    for number in 0..20 {
        let client = if number % 2 == 0 { &mut one } else { &mut other };
        let ack = client.request("Q.n", b"", number.to_string().as_bytes(), TIMEOUT);
        let ack = ack.expect("acknowledged").payload;
        assert_eq!(
            String::from_utf8_lossy(&ack),
            format!("{{\"stream\":\"Q\",\"seq\":{}}}", number + 1)
        );
    }
    let names = api_ok(&mut other, "STREAM.NAMES", &Value::Null);
    assert_eq!(names["streams"], json!(["M", "Q"]));
    pulled_and_acknowledged(&mut other, 20);
    heard_across(&mut one, &mut other);
    owner_goes(&mut nodes, &mut one);
    // It finds its way back without the node that it was told of.
    late.kill();
    nodes.nodes[2].kill();
    late.args.extend(["--routes".to_owned(), listens[..2].join(",")]);
    late.start();
    until_ok(&mut late.client(""), "STREAM.INFO.Q", &Value::Null);
    early.signal("-TERM");
    assert!(early.ended().success(), "{}", early.text());
}

/// A pull consumer gives everything, and takes the acknowledgements.
fn pulled_and_acknowledged(client: &mut Client, count: usize) {
    let config =
        json!({"stream_name": "Q", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    api_ok(client, "CONSUMER.DURABLE.CREATE.Q.C", &config);
    let inbox = format!("{}.pull", client.inbox());
    client.subscribe(&inbox, "").expect("subscribed");
    let body = json!({"batch": count, "expires": 30_000_000_000_u64}).to_string();
    let to = b"$JS.API.CONSUMER.MSG.NEXT.Q.C";
    client.writer.publish(to, inbox.as_bytes(), b"", body.as_bytes()).expect("sent");
    let replies: Vec<String> = (0..count).map(|_| next(client).reply.expect("a reply")).collect();
    for reply in replies {
        client.request(&reply, b"", b"+ACK", TIMEOUT).expect("confirmed");
    }
    let info = api_ok(client, "CONSUMER.INFO.Q.C", &Value::Null);
    assert_eq!(
        (&info["ack_floor"]["stream_seq"], &info["num_pending"]),
        (&json!(count), &json!(0))
    );
}

/// What is published at one of the two reaches the other, once it has found it.
fn heard_across(one: &mut Client, other: &mut Client) {
    other.subscribe("across", "").expect("subscribed");
    other.round_trip(TIMEOUT).expect("it is known");
    let deadline = Instant::now() + TIMEOUT;
    loop {
        one.writer.publish(b"across", b"", b"", b"hello").expect("sent");
        one.writer.flush().expect("sent");
        if other.next_message(Instant::now() + Duration::from_millis(200)).is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "they have not found each other");
    }
}

/// The log's owner is killed: a client at the node without JetStream stays connected and publishes on.
fn owner_goes(nodes: &mut Nodes, client: &mut Client) {
    let info = api_ok(client, "STREAM.INFO.Q", &Value::Null);
    let leader = info["cluster"]["leader"].as_str().expect("a leader").to_owned();
    let owner = nodes.nodes.iter().position(|node| node.name == leader).expect("a node");
    nodes.nodes[owner].kill();
    let deadline = Instant::now() + TIMEOUT;
    while !client
        .request("Q.n", b"", b"on", ANSWER)
        .is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\""))
    {
        assert!(Instant::now() < deadline, "nobody takes it");
    }
    nodes.nodes[owner].start();
    nodes.wait_text(owner, "keeps the quorum log");
}

/// All four have the same routes, as people write them. Three keep logs, and found the cluster.
#[test]
fn nodes_without_jetstream_among_the_routes_do_not_count_for_the_founding() {
    let mut nodes = Nodes::with_catalog(TempDir::new("core-routes"), "built-in");
    let listens: Vec<String> =
        nodes.nodes.iter().map(|node| given(node, "--cluster-listen")).collect();
    let own = address();
    let all: Vec<&str> = listens.iter().chain([&own]).map(String::as_str).collect();
    let mut edge = core_node(&nodes, "edge", &own, &all);
    for node in &mut nodes.nodes {
        let at = node.args.iter().position(|arg| arg == "--routes").expect("it is given");
        node.args[at + 1] = all.join(",");
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.wait_text(0, "this node and its routes are 4: so many found no cluster");
    edge.start();
    let config = json!({"name": "Q", "subjects": ["Q.>"], "num_replicas": 3});
    until_ok(&mut edge.client(""), "STREAM.CREATE.Q", &config);
    let too_many = json!({"name": "R", "subjects": ["R.>"], "num_replicas": 5});
    let refused = edge.client("").request(
        "$JS.API.STREAM.CREATE.R",
        b"",
        too_many.to_string().as_bytes(),
        TIMEOUT,
    );
    let refused: Value =
        serde_json::from_slice(&refused.expect("an answer").payload).expect("JSON");
    assert_eq!(refused["error"]["err_code"], json!(10005), "three keep logs: {refused}");
}

/// Which disk keeps a log goes by the names of nodes, so nobody else has one of them.
#[test]
fn a_name_of_a_node_that_keeps_logs_is_no_other_nodes() {
    let nodes = Nodes::with_catalog(TempDir::new("core-name"), "built-in").begun();
    let listens: Vec<String> =
        nodes.nodes.iter().map(|node| given(node, "--cluster-listen")).collect();
    let mut other = core_node(&nodes, "z-edge", &address(), &[&listens[0]]);
    other.start();
    until_ok(&mut other.client(""), "STREAM.INFO.Q", &Value::Null);
    let mut twin = core_node(&nodes, "n1", &address(), &[&listens[0]]);
    twin.start();
    let deadline = Instant::now() + TIMEOUT;
    while !twin.text().contains("is not connected: it, or another node that keeps logs, has") {
        assert!(Instant::now() < deadline, "{}", twin.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    // It has asked all of them by then, the other one without JetStream too.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!twin.text().contains("is connected, account"), "{}", twin.text());
    assert!(!other.text().contains("is connected no more"), "{}", other.text());
    nodes.publish(0);
    nodes.expect(1);
}

/// `max_conn` of an account is one limit, wherever its clients are, and a client that goes makes room at all nodes.
#[test]
fn connections_of_an_account_count_at_all_nodes() {
    let mut nodes = Nodes::with_catalog(TempDir::new("core-limits"), "built-in");
    nodes.configure(
        "accounts {
           A { jetstream: enabled, users: [ { user: a, password: a } ] }
           FEW { limits { max_conn: 2 }, users: [ { user: few, password: few } ] }
         }
         no_auth_user: a\n",
    );
    nodes = nodes.begun();
    let listen = given(&nodes.nodes[0], "--cluster-listen");
    let mut edge = core_node(&nodes, "edge", &address(), &[&listen]);
    edge.start();
    until_ok(&mut edge.client(""), "STREAM.INFO.Q", &Value::Null);
    let connect = |port: u16| {
        let url = format!("nats://few:few@127.0.0.1:{port}");
        let client = Client::connect(&ConnectOptions::new(&url).expect("a url"));
        if let Err(error) = &client {
            let why = error.to_string();
            assert!(why.contains("maximum account active connections exceeded"), "{why}");
        }
        client
    };
    let until = |port: u16, is_taken: bool| {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let client = connect(port);
            if client.is_ok() == is_taken {
                return client.ok();
            }
            drop(client);
            assert!(Instant::now() < deadline, "taken: {}", !is_taken);
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let first = connect(nodes.nodes[0].port).expect("the first");
    let _second = connect(edge.port).expect("the second");
    for port in [nodes.nodes[1].port, edge.port] {
        assert!(until(port, false).is_none());
    }
    drop(first);
    let third = until(nodes.nodes[2].port, true).expect("there is room again");
    assert!(until(edge.port, false).is_none());
    // What is connected to a node that dies makes room, too.
    nodes.nodes[2].kill();
    assert!(until(nodes.nodes[0].port, true).is_some());
    drop(third);
}

/// It ends whenever it is told to, and what it is set up with for logs is said to have no effect.
/// One node of the cluster answers what `nuthatch cluster` asks; it is none that does not know.
#[test]
fn it_does_not_answer_for_the_nodes_that_know_the_catalog() {
    let mut nodes = Nodes::with_catalog(TempDir::new("core-node-asked"), "built-in");
    nodes.configure(ACCOUNTS);
    nodes.nodes.iter_mut().for_each(Node::start);
    let route = given(&nodes.nodes[0], "--cluster-listen");
    let mut edge = core_node(&nodes, "edge", &address(), &[&route]);
    edge.start();
    let mut client = edge.client("");
    until_ok(&mut client, "STREAM.CREATE.S", &json!({"name": "S", "num_replicas": 3}));
    for asked in [&edge, &nodes.nodes[0]] {
        let mut client = asked.client("sys:pw@");
        for _ in 0..40 {
            let answer = client.request("$SYS.REQ.CLUSTER.NODES", b"", b"", TIMEOUT);
            let answer: Value =
                serde_json::from_slice(&answer.expect("answered").payload).expect("JSON");
            assert_eq!(answer["data"]["nodes"].as_array().map(Vec::len), Some(NODES), "{answer}");
        }
    }
}

#[test]
fn it_ends_also_before_it_has_found_a_cluster() {
    let nodes = Nodes::with_catalog(TempDir::new("core-alone"), "built-in");
    let mut edge = core_node(&nodes, "edge", &address(), &[&address()]);
    edge.args.extend(["--zone", "a"].map(str::to_owned));
    edge.start();
    let mut client = edge.client("");
    let answer = client.request("$JS.API.INFO", b"", b"", ANSWER);
    assert!(answer.is_err(), "nobody has JetStream: {answer:?}");
    let deadline = Instant::now() + TIMEOUT;
    while !edge.text().contains("no node answers yet that keeps logs") {
        assert!(Instant::now() < deadline, "{}", edge.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(edge.text().contains("these count for nothing here: zone"), "{}", edge.text());
    edge.signal("-TERM");
    assert!(edge.ended().success(), "{}", edge.text());
}

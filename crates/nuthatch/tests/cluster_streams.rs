//! Streams of a cluster whose nodes each serve some of them (`docs/cluster.md`): whichever node a client is at, it reaches
//! all of them, and names and subjects are each one's in the whole cluster.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, OwnedMessage, RequestError};
use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, fetch, read_all, reply_of};

/// Nodes whose log has an owner that all of them know.
fn started(name: &str) -> Nodes {
    let mut nodes = Nodes::with_catalog(TempDir::new(name), "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    wait_led(&nodes);
    nodes
}

/// Waits until whoever decides about streams knows all nodes, and every node knows that one.
fn wait_led(nodes: &Nodes) {
    for at in 0..NODES {
        let name = format!("LED{at}");
        let mut client = nodes.client(at);
        until(&mut client, &format!("STREAM.CREATE.{name}"), &memory(&name, &name), |answer| {
            answer.get("error").is_none()
        });
        succeeds(&mut client, &format!("STREAM.DELETE.{name}"), &Value::Null);
    }
}

fn memory(name: &str, subject: &str) -> Value {
    json!({"name": name, "subjects": [subject], "storage": "memory", "allow_direct": true})
}

/// Calls until the answer fits.
fn until(client: &mut Client, call: &str, body: &Value, fits: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + TIMEOUT;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    loop {
        let answer = client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), ANSWER);
        if let Ok(answer) = &answer {
            let answer = serde_json::from_slice(&answer.payload).expect("JSON");
            if fits(&answer) {
                return answer;
            }
        }
        assert!(Instant::now() < deadline, "{call}: {answer:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The answer to a call, which is made again, as people do, where nobody serves the log of the stream just then; and how
/// often it was made. A call that reaches a node is answered.
fn answered(client: &mut Client, call: &str, body: &Value) -> (Value, usize) {
    let deadline = Instant::now() + TIMEOUT;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    for attempt in 1.. {
        let wait = Duration::from_secs(10);
        match client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), wait) {
            Ok(answer) => {
                return (serde_json::from_slice(&answer.payload).expect("JSON"), attempt);
            }
            Err(RequestError::NoResponders(_)) => {
                assert!(Instant::now() < deadline, "{call}: no responders");
            }
            Err(error) => panic!("{call}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    unreachable!("it ends with an answer or in time")
}

fn refused(client: &mut Client, call: &str, body: &Value) -> i64 {
    answered(client, call, body).0["error"]["err_code"].as_i64().unwrap_or_default()
}

/// Makes a call that is to succeed, or has when it was made before.
fn succeeds(client: &mut Client, call: &str, body: &Value) -> Value {
    let (answer, attempts) = answered(client, call, body);
    let is_gone = attempts > 1 && answer["error"]["err_code"] == 10059;
    assert!(answer["error"].is_null() || is_gone, "{call}: {answer}");
    answer
}

fn text(message: &OwnedMessage) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// Six streams, created at the nodes in turn; returns who leads each.
fn create_six(clients: &mut [Client]) -> Vec<String> {
    let mut leaders = Vec::new();
    for number in 0..2 * NODES {
        let (name, subject) = (format!("S{number}"), format!("s.{number}.>"));
        let client = &mut clients[number % NODES];
        let made = succeeds(client, &format!("STREAM.CREATE.{name}"), &memory(&name, &subject));
        leaders.push(made["cluster"]["leader"].as_str().expect("a leader").to_owned());
    }
    leaders
}

#[test]
fn every_node_serves_streams_that_clients_of_all_nodes_use() {
    let nodes = started("cluster-streams");
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    let leaders = create_six(&mut clients);
    let distinct: BTreeSet<&String> = leaders.iter().collect();
    assert_eq!(distinct.len(), NODES, "each node has two: {leaders:?}");
    for (number, leader) in leaders.iter().enumerate() {
        let name = format!("S{number}");
        for (at, client) in clients.iter_mut().enumerate() {
            // At once: whoever has heard of the stream can use it at any node.
            let subject = format!("s.{number}.{at}");
            let ack = client.request(&subject, b"", subject.as_bytes(), TIMEOUT).expect("an ack");
            assert!(text(&ack).starts_with("{\"stream\""), "{}", text(&ack));
        }
        for client in &mut clients {
            let info = succeeds(client, &format!("STREAM.INFO.{name}"), &Value::Null);
            assert_eq!(info["state"]["messages"], NODES);
            assert_eq!(info["cluster"]["leader"], json!(leader));
            assert_eq!(read_all(client, &name, 1).len(), NODES);
        }
    }
    consume_at_all(&mut clients);
    lists_are_whole(&mut clients);
}

fn consume_at_all(clients: &mut [Client]) {
    for number in 0..2 * NODES {
        let name = format!("S{number}");
        let config =
            json!({"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}});
        let at = (number + 1) % NODES;
        succeeds(&mut clients[at], &format!("CONSUMER.DURABLE.CREATE.{name}.C"), &config);
        for (at, client) in clients.iter_mut().enumerate() {
            let got = fetch(client, &name, "C", 1);
            let message = got.first().expect("a message");
            assert_eq!(text(message), format!("s.{number}.{at}"));
            let ack = reply_of(message).to_owned();
            client.request(&ack, b"", b"+ACK", TIMEOUT).expect("confirmed");
        }
        for client in &mut *clients {
            let info = succeeds(client, &format!("CONSUMER.INFO.{name}.C"), &Value::Null);
            assert_eq!((&info["num_ack_pending"], &info["num_pending"]), (&json!(0), &json!(0)));
            let names = succeeds(client, &format!("CONSUMER.NAMES.{name}"), &Value::Null);
            assert_eq!(names["consumers"], json!(["C"]));
        }
    }
}

fn lists_are_whole(clients: &mut [Client]) {
    let expected: Vec<String> = (0..2 * NODES).map(|number| format!("S{number}")).collect();
    for client in clients {
        let names = succeeds(client, "STREAM.NAMES", &Value::Null);
        assert_eq!(names["streams"], json!(expected));
        let filtered = succeeds(client, "STREAM.NAMES", &json!({"subject": "s.4.x"}));
        assert_eq!(filtered["streams"], json!(["S4"]));
        let list = succeeds(client, "STREAM.LIST", &json!({"offset": 2}));
        let listed = list["streams"].as_array().expect("a list").iter();
        let listed: Vec<&str> = listed.filter_map(|info| info["config"]["name"].as_str()).collect();
        assert_eq!(listed, expected[2..]);
        assert_eq!((&list["total"], list.get("missing")), (&json!(expected.len()), None));
        let account = succeeds(client, "INFO", &Value::Null);
        assert_eq!((&account["streams"], &account["consumers"]), (&json!(6), &json!(6)));
    }
}

#[test]
fn names_and_subjects_are_each_ones_in_the_whole_cluster() {
    let nodes = started("cluster-names");
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    create_six(&mut clients);
    for (at, client) in clients.iter_mut().enumerate() {
        for number in 0..2 * NODES {
            let (name, subject) = (format!("S{number}"), format!("s.{number}.>"));
            let call = format!("STREAM.CREATE.{name}");
            succeeds(client, &call, &memory(&name, &subject));
            assert_eq!(refused(client, &call, &memory(&name, "other")), 10058, "{at} {name}");
            let other = format!("T{number}");
            let call = format!("STREAM.CREATE.{other}");
            assert_eq!(refused(client, &call, &memory(&other, &format!("s.{number}.x"))), 10065);
            // Its own subjects and others', by an update at any node.
            let update = format!("STREAM.UPDATE.{name}");
            let theirs = format!("s.{}.x", (number + 1) % (2 * NODES));
            let body = json!({"name": name, "subjects": [subject, theirs], "storage": "memory",
                "allow_direct": true});
            assert_eq!(refused(client, &update, &body), 10065);
            let body = json!({"name": name, "subjects": [subject, format!("free.{number}")],
                "storage": "memory", "allow_direct": true});
            succeeds(client, &update, &body);
            succeeds(client, &update, &memory(&name, &subject));
        }
        assert_eq!(refused(client, "STREAM.INFO.NONE", &json!({})), 10059);
        assert_eq!(refused(client, "STREAM.UPDATE.NONE", &memory("NONE", "none")), 10059);
        assert_eq!(refused(client, "STREAM.DELETE.NONE", &json!({})), 10059);
    }
    for number in 0..2 * NODES {
        let name = format!("S{number}");
        succeeds(
            &mut clients[(number + 2) % NODES],
            &format!("STREAM.DELETE.{name}"),
            &Value::Null,
        );
        for client in &mut clients {
            assert_eq!(refused(client, &format!("STREAM.INFO.{name}"), &json!({})), 10059);
        }
    }
}

#[test]
fn a_client_cannot_say_that_a_stream_was_checked() {
    let nodes = started("cluster-forged");
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    create_six(&mut clients);
    // Everything that is published goes to the other nodes.
    for client in &mut clients {
        client.subscribe(">", "").expect("subscribed");
        client.round_trip(TIMEOUT).expect("taken");
    }
    let forged = memory("F", "s.0.forged").to_string();
    for subject in ["$NODE.x.Q.1.l-memory.STREAM.CREATE.F", "$NODE..Q.1.n.STREAM.CREATE.F"] {
        for client in &mut clients {
            client.writer.publish(subject.as_bytes(), b"", b"", forged.as_bytes()).expect("queued");
            client.round_trip(TIMEOUT).expect("handled");
        }
    }
    let mut asking = nodes.client(0);
    assert_eq!(refused(&mut asking, "STREAM.INFO.F", &json!({})), 10059);
    assert_eq!(succeeds(&mut asking, "STREAM.NAMES", &Value::Null)["total"], 2 * NODES);
}

/// Who leads a stream, as a client's node says.
fn leader_of(client: &mut Client, stream: &str) -> Option<String> {
    let info = client.request(&format!("$JS.API.STREAM.INFO.{stream}"), b"", b"", ANSWER).ok()?;
    let info: Value = serde_json::from_slice(&info.payload).ok()?;
    info["cluster"]["leader"].as_str().map(str::to_owned)
}

fn publish_until_stored(client: &mut Client, subject: &str, number: usize) {
    let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
    let (body, deadline) = (number.to_string(), Instant::now() + TIMEOUT);
    loop {
        let ack = client.request(subject, headers.as_bytes(), body.as_bytes(), ANSWER);
        if ack.as_ref().is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\"")) {
            return;
        }
        assert!(Instant::now() < deadline, "{number}: {ack:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Has a stream led by this node, if it is not.
fn prefer(client: &mut Client, stream: &str, node: &str) {
    let (call, preferred) =
        (format!("STREAM.LEADER.STEPDOWN.{stream}"), json!({"preferred": node}));
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match leader_of(client, stream) {
            Some(leader) if leader == node => return,
            Some(_) => {
                let body = json!({"placement": preferred}).to_string();
                // Another node may have it meanwhile.
                let _ = client.request(&format!("$JS.API.{call}"), b"", body.as_bytes(), ANSWER);
            }
            None => {}
        }
        assert!(Instant::now() < deadline, "{stream} does not come to {node}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A log goes from node to node, and back to one that had it before, while everything else of those nodes goes on.
#[test]
fn a_log_leaves_a_running_server_and_comes_back() {
    let nodes = started("cluster-step-down");
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    let memory_leaders = create_six(&mut clients);
    for number in 0..2 * NODES {
        publish_until_stored(&mut clients[number % NODES], &format!("s.{number}.x"), 0);
    }
    let config = json!({"name": "R", "subjects": ["r"], "num_replicas": 3});
    succeeds(&mut clients[0], "STREAM.CREATE.R", &config);
    let consumer =
        json!({"stream_name": "R", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    succeeds(&mut clients[1], "CONSUMER.DURABLE.CREATE.R.C", &consumer);
    let mut leaders = Vec::new();
    for round in 0..2 * NODES {
        let client = &mut clients[round % NODES];
        publish_until_stored(client, "r", round);
        let former = leader_of(client, "R").expect("it has one");
        let call = match round % 2 {
            0 => "STREAM.LEADER.STEPDOWN.R",
            _ => "CONSUMER.LEADER.STEPDOWN.R.C",
        };
        let answer = until(client, call, &Value::Null, |answer| answer.get("error").is_none());
        assert_eq!(answer["success"], true, "{answer}");
        let deadline = Instant::now() + TIMEOUT;
        let next = loop {
            match leader_of(client, "R").filter(|leader| *leader != former) {
                Some(leader) => break leader,
                None => assert!(Instant::now() < deadline, "nobody follows {former}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        leaders.push(next);
    }
    let distinct: BTreeSet<&String> = leaders.iter().collect();
    assert!(leaders.len() > distinct.len(), "one had it twice: {leaders:?}");
    for node in &nodes.nodes {
        prefer(&mut clients[0], "R", &node.name);
    }
    let nobody = json!({"placement": {"preferred": "n9"}});
    assert_eq!(refused(&mut clients[0], "STREAM.LEADER.STEPDOWN.R", &nobody), 10005);
    for client in &mut clients {
        client.round_trip(TIMEOUT).expect("its node has not begun anew");
        until(client, "STREAM.INFO.R", &Value::Null, |info| info["state"]["messages"] == 2 * NODES);
        assert_eq!(read_all(client, "R", 1).len(), 2 * NODES);
        for (number, leader) in memory_leaders.iter().enumerate() {
            let info = succeeds(client, &format!("STREAM.INFO.S{number}"), &Value::Null);
            assert_eq!(
                (&info["state"]["messages"], &info["cluster"]["leader"]),
                (&json!(1), &json!(leader))
            );
        }
        assert_eq!(refused(client, "STREAM.LEADER.STEPDOWN.S0", &json!({})), 10005);
        assert_eq!(refused(client, "STREAM.LEADER.STEPDOWN.NONE", &json!({})), 10059);
    }
    let got = fetch(&mut clients[2], "R", "C", 2 * NODES);
    assert_eq!(got.len(), 2 * NODES, "the consumer went along");
    for node in &nodes.nodes {
        assert_eq!(node.text().matches("Server is ready").count(), 1, "{}", node.text());
    }
}

#[test]
fn the_system_account_has_the_leader_step_down() {
    let mut nodes = Nodes::with_catalog(TempDir::new("cluster-meta"), "built-in");
    nodes.configure(
        "server_tags: [ssd]\naccounts { APP { jetstream: enabled, users: [{user: app, password: p}] },\
         SYS { users: [{user: sys, password: p}] } }\nsystem_account: SYS\n",
    );
    nodes.nodes.iter_mut().for_each(Node::start);
    let mut app = nodes.nodes[0].client("app:p@");
    let config = json!({"name": "R", "subjects": ["r"], "num_replicas": 3});
    until(&mut app, "STREAM.CREATE.R", &config, |answer| answer.get("error").is_none());
    let nobody = app.request("$JS.API.META.LEADER.STEPDOWN", b"", b"", Duration::from_millis(500));
    assert!(nobody.is_err(), "{nobody:?}");
    let mut system = nodes.nodes[2].client("sys:p@");
    let former = leader_of(&mut app, "R").expect("it has one");
    the_leader_shows_itself(&mut system, &former);
    let shown = json!({"streams": true, "raft": true, "account": "APP"}).to_string();
    // Any of the nodes answers; one of them leads the stream.
    let deadline = Instant::now() + TIMEOUT;
    let page = loop {
        let page = system.request("$SYS.REQ.SERVER.PING.JSZ", b"", shown.as_bytes(), TIMEOUT);
        let page = String::from_utf8_lossy(&page.expect("one of them").payload).into_owned();
        if page.contains("\"name\":\"R\"") {
            break page;
        }
        assert!(Instant::now() < deadline, "nobody shows it: {page}");
    };
    assert!(page.contains("\"stream_raft_group\":\"S-R3F-default"), "{page}");
    let is_kept = |info: &Value| {
        let replicas = info["cluster"]["replicas"].as_array().cloned().unwrap_or_default();
        replicas.len() == 2 && replicas.iter().all(is_current)
    };
    until(&mut app, "STREAM.INFO.R", &Value::Null, is_kept);
    for placement in [json!({"cluster": "elsewhere"}), json!({"tags": ["gpu"]})] {
        let refused =
            until(&mut system, "META.LEADER.STEPDOWN", &json!({"placement": placement}), |_| true);
        assert_eq!(refused["error"]["err_code"], 10005, "{refused}");
    }
    let done = |answer: &Value| answer["success"] == true;
    let wanted = json!({"placement": {"tags": ["SSD", "!gpu"]}});
    until(&mut system, "META.LEADER.STEPDOWN", &wanted, done);
    let deadline = Instant::now() + TIMEOUT;
    while leader_of(&mut app, "R").is_none_or(|leader| leader == former) {
        assert!(Instant::now() < deadline, "nobody follows {former}");
        std::thread::sleep(Duration::from_millis(10));
    }
    succeeds(&mut app, "STREAM.CREATE.M", &memory("M", "m"));
    let answer = system.request("$JS.API.ACCOUNT.PURGE.APP", b"", b"", TIMEOUT).expect("answered");
    let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
    assert_eq!(answer["initiated"], true, "{answer}");
    until(&mut app, "STREAM.NAMES", &Value::Null, |names| names["total"] == 0);
}

/// True of another node that has all and was heard of a moment ago.
fn is_current(replica: &Value) -> bool {
    replica["current"] == true && replica["active"].as_i64().is_some_and(|ns| ns > 0)
}

/// Who asks all nodes for the leader hears that one, and what it knows of the others.
fn the_leader_shows_itself(system: &mut Client, leader: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let ask = json!({"leader_only": true}).to_string();
        let found = system.request("$SYS.REQ.SERVER.PING.JSZ", b"", ask.as_bytes(), ANSWER);
        let found: Value = found
            .map_or(Value::Null, |message| serde_json::from_slice(&message.payload).expect("JSON"));
        let meta = &found["data"]["meta_cluster"];
        let replicas = meta["replicas"].as_array().cloned().unwrap_or_default();
        if replicas.len() == 2 && replicas.iter().all(is_current) {
            assert_eq!(found["server"]["name"], leader, "{found}");
            assert_eq!((&meta["leader"], &meta["cluster_size"]), (&json!(leader), &json!(3)));
            return;
        }
        assert!(Instant::now() < deadline, "{found}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_messages(client: &mut Client, stream: &str, count: usize) {
    let call = format!("STREAM.INFO.{stream}");
    until(client, &call, &Value::Null, |info| info["state"]["messages"] == count);
}

/// Mirrors, sources and what is published again find streams of other nodes.
#[test]
fn copies_read_streams_of_other_nodes() {
    let nodes = started("cluster-copies");
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    let configs = [
        json!({"name": "O", "subjects": ["o.>"], "storage": "memory", "allow_direct": true,
            "republish": {"src": "o.>", "dest": "again.>"}}),
        json!({"name": "M", "mirror": {"name": "O"}, "storage": "memory"}),
        json!({"name": "C", "sources": [{"name": "O", "filter_subject": "o.1"}],
            "storage": "memory"}),
        json!({"name": "A", "subjects": ["again.>"], "storage": "memory"}),
        json!({"name": "N", "mirror": {"name": "M"}, "storage": "memory"}),
    ];
    let mut leaders = BTreeSet::new();
    for (at, config) in configs.iter().enumerate() {
        let name = config["name"].as_str().expect("a name");
        let made = succeeds(&mut clients[at % NODES], &format!("STREAM.CREATE.{name}"), config);
        leaders.insert(made["cluster"]["leader"].to_string());
    }
    assert_eq!(leaders.len(), NODES, "they are at different nodes");
    let count = 30;
    for round in 1..=2 {
        for number in 0..count {
            publish_until_stored(
                &mut clients[number % NODES],
                &format!("o.{}", number % 3),
                round * count + number,
            );
        }
        for (name, expected) in
            [("O", count), ("M", count), ("N", count), ("A", count), ("C", count / 3)]
        {
            until_messages(&mut clients[round], name, round * expected);
        }
    }
    let texts = |client: &mut Client, name: &str| -> Vec<String> {
        read_all(client, name, 1).iter().map(|(_, message)| text(message)).collect()
    };
    let origin = texts(&mut clients[0], "O");
    assert_eq!(texts(&mut clients[1], "M"), origin);
    assert_eq!(texts(&mut clients[2], "N"), origin);
    // What would come back is refused, whichever nodes the streams are at.
    let body = json!({"name": "O", "subjects": ["o.>"], "storage": "memory", "allow_direct": true,
        "republish": {"src": "o.>", "dest": "again.>"}, "sources": [{"name": "M"}]});
    assert_eq!(refused(&mut clients[0], "STREAM.UPDATE.O", &body), 10052);
}

/// Waits until these streams are led by so many nodes; returns who leads each.
fn until_led(client: &mut Client, streams: &[String], by: usize, not: Option<&str>) -> Vec<String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let leaders: Vec<_> = streams.iter().map(|name| leader_of(client, name)).collect();
        let all: Vec<String> = leaders.iter().flatten().cloned().collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        let is_gone = not.is_none_or(|gone| !all.iter().any(|leader| leader == gone));
        if all.len() == streams.len() && distinct.len() == by && is_gone {
            return all;
        }
        assert!(Instant::now() < deadline, "{leaders:?}, by {by}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Streams that are on all nodes are spread over their logs, each of which is at another node; those of a node that ends
/// come to the others.
#[test]
fn streams_on_all_nodes_are_led_by_all_nodes() {
    let mut nodes = started("cluster-spread");
    let names: Vec<String> = (0..5).map(|number| format!("R{number}")).collect();
    let mut clients: Vec<Client> = (0..NODES).map(|at| nodes.client(at)).collect();
    for (at, name) in names.iter().enumerate() {
        let config = json!({"name": name, "subjects": [format!("r.{at}")], "num_replicas": 3});
        let made = |answer: &Value| answer.get("error").is_none();
        until(&mut clients[at % NODES], &format!("STREAM.CREATE.{name}"), &config, made);
    }
    let leaders = until_led(&mut clients[0], &names, NODES, None);
    for (at, _) in names.iter().enumerate() {
        for (number, client) in clients.iter_mut().enumerate() {
            publish_until_stored(client, &format!("r.{at}"), number);
        }
    }
    let list = succeeds(&mut clients[1], "STREAM.LIST", &Value::Null);
    assert_eq!(list["streams"].as_array().map(Vec::len), Some(names.len()), "{list}");
    let gone = nodes.nodes.iter().position(|node| node.name == leaders[0]).expect("a node");
    nodes.nodes[gone].kill();
    let mut client = nodes.client((gone + 1) % NODES);
    until_led(&mut client, &names, NODES - 1, Some(&leaders[0]));
    for (at, name) in names.iter().enumerate() {
        publish_until_stored(&mut client, &format!("r.{at}"), NODES);
        assert_eq!(read_all(&mut client, name, 1).len(), NODES + 1, "{name}");
    }
    let config = json!({"name": "LATE", "subjects": ["late"], "num_replicas": 3});
    until(&mut client, "STREAM.CREATE.LATE", &config, |answer| answer.get("error").is_none());
    nodes.nodes[gone].start();
    let mut back = nodes.client(gone);
    until(&mut back, "STREAM.NAMES", &Value::Null, |names| names["total"] == 6);
    assert_eq!(read_all(&mut back, "R0", 1).len(), NODES + 1);
}

//! Three real processes keep quorum logs whose catalog is in a real etcd (`tests/etcd.sh`): it is killed, paused, set back to
//! an earlier state of its disk, and spoken to with TLS and a password.
#![cfg(feature = "etcd")]

#[path = "quorum_nodes/etcd.rs"]
mod etcd;
mod quorum_nodes;
mod support;

use etcd::etcd_server::{EtcdServer, certificates};
use quorum_nodes::{ACCOUNTS, ANSWER, NODES, Node, Nodes, ask};
use serde_json::json;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, signal};

/// While nobody owns a log nothing is acknowledged for so long.
const WATCHED: Duration = Duration::from_secs(3);

/// Without a change for so long the logs are where they belong.
const SETTLED: Duration = Duration::from_secs(5);

const AWAY: &str = "etcd does not answer";
const BACK: &str = "the catalog answers again";
const WENT_BACK: &str = "the catalog went back";

/// An etcd, and three nodes with a stream.
fn with_stream(name: &str) -> (EtcdServer, Nodes) {
    let dir = TempDir::new(name);
    let (etcd, catalog) = etcd::started(&dir);
    (etcd, Nodes::with_catalog(dir, &catalog).begun())
}

/// Waits until no log has changed hands for a while. A handover that is under way when etcd goes away waits for it, and so do
/// the log's clients; later ones are minutes away.
fn settle(nodes: &Nodes) {
    let owned = || nodes.nodes.iter().map(|node| node.text().matches(" owns ").count()).collect();
    let (mut known, mut since): (Vec<usize>, _) = (owned(), Instant::now());
    let deadline = Instant::now() + TIMEOUT;
    while since.elapsed() < SETTLED {
        assert!(Instant::now() < deadline, "logs go on changing hands");
        std::thread::sleep(Duration::from_millis(50));
        let now: Vec<usize> = owned();
        if now != known {
            (known, since) = (now, Instant::now());
        }
    }
}

/// The next message is not acknowledged at this node for a while. If it is stored later, it is under its id.
fn expect_nothing(nodes: &Nodes, at: usize, number: u64) {
    let (body, began) = (number.to_string(), Instant::now());
    let headers = format!("NATS/1.0\r\nNats-Msg-Id: {number}\r\n\r\n");
    while began.elapsed() < WATCHED {
        let mut client = nodes.client(at);
        let ack = client.request("Q.n", headers.as_bytes(), body.as_bytes(), ANSWER);
        let text = ack.map(|ack| String::from_utf8_lossy(&ack.payload).into_owned());
        assert!(!text.as_ref().is_ok_and(|text| text.contains("\"seq\"")), "{text:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How often a node has said something.
fn times(nodes: &Nodes, at: usize, text: &str) -> usize {
    nodes.nodes[at].text().matches(text).count()
}

#[test]
fn a_killed_owner_is_followed_by_one_that_has_everything() {
    let (_etcd, mut nodes) = with_stream("etcd-kill");
    nodes.outlive_owners();
}

/// What is owned goes on without etcd; what nobody owns, and a node that starts, wait for it.
#[test]
fn etcd_that_is_killed_stops_takeovers_only_until_it_is_back() {
    let (mut etcd, mut nodes) = with_stream("etcd-away");
    (0..10).for_each(|number| nodes.publish(number));
    settle(&nodes);
    etcd.kill();
    let (_, owner) = nodes.owner();
    nodes.wait_text(owner, AWAY);
    (10..20).for_each(|number| nodes.publish(number));
    etcd.restart();
    nodes.wait_text(owner, BACK);
    (20..30).for_each(|number| nodes.publish(number));
    settle(&nodes);
    etcd.kill();
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].kill();
    expect_nothing(&nodes, (owner + 1) % NODES, 30);
    let said = times(&nodes, owner, AWAY);
    nodes.nodes[owner].start();
    nodes.wait_times(owner, AWAY, said + 1);
    etcd.restart();
    (30..40).for_each(|number| nodes.publish(number));
    nodes.expect(40);
}

#[test]
fn an_owner_that_is_killed_while_etcd_is_paused_is_followed_when_it_wakes() {
    let (etcd, mut nodes) = with_stream("etcd-paused");
    (0..10).for_each(|number| nodes.publish(number));
    settle(&nodes);
    etcd.signal("-STOP");
    let (_, owner) = nodes.owner();
    (10..20).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].kill();
    expect_nothing(&nodes, (owner + 1) % NODES, 20);
    nodes.wait_text((owner + 1) % NODES, AWAY);
    etcd.signal("-CONT");
    (20..30).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].start();
    nodes.expect(30);
}

/// Nodes that run decide nothing by it and go on with what they own, and one that starts ends; with the newer disk all goes on.
#[test]
fn an_etcd_of_an_hour_ago_decides_nothing() {
    let (mut etcd, mut nodes) = with_stream("etcd-restored");
    (0..10).for_each(|number| nodes.publish(number));
    let (then, now) = (nodes.dir.path().join("then"), nodes.dir.path().join("now"));
    etcd.kill();
    etcd.back_up(&then);
    etcd.restart();
    for turn in 1..3 {
        let (_, owner) = nodes.owner();
        nodes.nodes[owner].kill();
        (turn * 10..turn * 10 + 10).for_each(|number| nodes.publish(number));
        let said = times(&nodes, owner, "keeps the quorum log");
        nodes.nodes[owner].start();
        nodes.wait_times(owner, "keeps the quorum log", said + 1);
    }
    settle(&nodes);
    etcd.kill();
    etcd.back_up(&now);
    etcd.restore(&then);
    etcd.restart();
    let (_, owner) = nodes.owner();
    (0..NODES).for_each(|at| nodes.wait_text(at, WENT_BACK));
    (30..40).for_each(|number| nodes.publish(number));
    let keeper = (owner + 1) % NODES;
    nodes.nodes[keeper].kill();
    nodes.nodes[keeper].start();
    assert_ne!(nodes.nodes[keeper].ended().code(), Some(0));
    let said = nodes.nodes[keeper].text();
    assert!(said.contains("the catalog went back: it is at revision"), "{said}");
    (40..50).for_each(|number| nodes.publish(number));
    etcd.kill();
    etcd.restore(&now);
    etcd.restart();
    nodes.nodes[keeper].start();
    nodes.wait_text(owner, BACK);
    nodes.nodes[owner].kill();
    (50..60).for_each(|number| nodes.publish(number));
    nodes.expect(60);
}

#[test]
fn nodes_with_certificates_and_a_password_follow_each_other() {
    let dir = TempDir::new("etcd-tls");
    let mut etcd = EtcdServer::start(&dir.path().join("e"));
    etcd.want_users();
    etcd.kill();
    drop(etcd);
    let files = certificates(&dir.path().join("certificates"), "etcd");
    let etcd = EtcdServer::start_with(&dir.path().join("e"), &[], Some(&files));
    let mut nodes = Nodes::with_catalog(dir, &format!("etcds://127.0.0.1:{}/p", etcd.port));
    let env = [
        ("NUTHATCH_ETCD_CA_FILE", files.ca.display().to_string()),
        ("NUTHATCH_ETCD_CERT_FILE", files.cert.display().to_string()),
        ("NUTHATCH_ETCD_KEY_FILE", files.key.display().to_string()),
        ("NUTHATCH_ETCD_USER", "node".to_owned()),
        ("NUTHATCH_ETCD_PASSWORD", "guess".to_owned()),
    ];
    nodes.nodes.iter_mut().for_each(|node| node.env = env.to_vec());
    let node = &mut nodes.nodes[0];
    node.start();
    nodes.wait_text(0, "etcd refuses user \"node\"");
    let node = &mut nodes.nodes[0];
    node.signal("-TERM");
    assert_eq!(node.ended().code(), Some(0), "{}", node.text());
    assert!(!node.text().contains("guess"), "{}", node.text());
    let right = |node: &mut Node| node.env.push(("NUTHATCH_ETCD_PASSWORD", "secret".to_owned()));
    nodes.nodes.iter_mut().for_each(right);
    nodes.begun().outlive_owners();
}

#[test]
fn an_address_that_is_none_of_etcd_is_explained() {
    for (catalog, told) in [
        ("etcd://127.0.0.1:2379", "needs a prefix"),
        ("etcd://u:secret@127.0.0.1:2379/p", "must not hold credentials"),
    ] {
        let mut nodes = Nodes::with_catalog(TempDir::new("etcd-address"), catalog);
        let node = &mut nodes.nodes[0];
        node.start();
        assert_ne!(node.ended().code(), Some(0));
        assert!(node.text().contains(told) && !node.text().contains("secret"), "{}", node.text());
    }
}

/// etcd is away in the middle of a replacement, which goes on when it is back; a node joins, and another is drained.
#[test]
fn nodes_change_with_the_catalog_in_etcd() {
    let dir = TempDir::new("etcd-nodes");
    let (mut etcd, catalog) = etcd::started(&dir);
    let mut nodes = Nodes::with_catalog(dir, &catalog);
    nodes.configure(ACCOUNTS);
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    (0..10).for_each(|number| nodes.publish(number));
    settle(&nodes);
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    nodes.nodes[2].kill();
    // It cannot be over before etcd is away.
    nodes.nodes[new].signal("-STOP");
    ask(&nodes.nodes[0], "REPLACE", &json!({"old": "n2", "new": "n3"})).expect("it begins");
    etcd.kill();
    nodes.nodes[new].signal("-CONT");
    nodes.wait_text(0, AWAY);
    let drain = json!({"node": "n1", "drain": true});
    let why = ask(&nodes.nodes[0], "DRAIN", &drain).expect_err("the catalog is away");
    assert!(why.contains("whether it is done is not known"), "{why}");
    etcd.restart();
    nodes.wait_removed(0, "n2");
    ask(&nodes.nodes[0], "DRAIN", &drain).expect("it begins");
    // The new node counts: another one may be away.
    nodes.publish(10);
    nodes.nodes[0].kill();
    nodes.publish(11);
    nodes.expect(12);
}

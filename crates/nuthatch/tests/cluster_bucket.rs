//! Three real processes whose logs are in a bucket and whose catalog is, too: what they keep on their own disks may go at
//! any time.

mod quorum_nodes;
mod support;

use base64::Engine as _;
use nuthatch_client::Client;
use quorum_nodes::{ANSWER, NODES, Node, Nodes, free_ports};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};
use support::{Server, TIMEOUT, TempDir, create_stream, publish_ok};

const OTHER_BUCKET: &str = "is not the bucket of this cluster";
const NOT_OURS: &str = "is not the log of this cluster";

/// Longer than a lease, and than the others need to take over.
const ASLEEP: Duration = Duration::from_secs(3);

/// How long a question to a node that stands still is waited for.
const ASKED: Duration = Duration::from_secs(10);

fn store_args(nodes: &Nodes, name: &str) -> [String; 2] {
    let dir = nodes.dir.path().join(name);
    ["--store".to_owned(), format!("file://{}", dir.display())]
}

/// Nodes with logs in a bucket, which have not started.
fn in_bucket(name: &str) -> Nodes {
    let mut nodes = Nodes::new(name);
    let store = store_args(&nodes, "b");
    nodes.nodes.iter_mut().for_each(|node| node.args.extend(store.clone()));
    nodes
}

fn directory(nodes: &Nodes, at: usize) -> PathBuf {
    nodes.dir.path().join(&nodes.nodes[at].name)
}

/// Starts a node and waits until it keeps who owns the logs again: without it there may be no majority.
fn start(nodes: &mut Nodes, at: usize) {
    let said = nodes.nodes[at].text().matches("keeps the quorum log").count();
    nodes.nodes[at].start();
    nodes.wait_times(at, "keeps the quorum log", said + 1);
}

/// Kills a node and takes its directory away.
fn lose(nodes: &mut Nodes, at: usize) {
    nodes.nodes[at].kill();
    fs::remove_dir_all(directory(nodes, at)).expect("it is there");
}

/// The number of the last message, if that is told.
fn ask_last(mut client: Client) -> Option<u64> {
    let last = json!({"last_by_subj": "Q.n"}).to_string();
    let told = client.request("$JS.API.STREAM.MSG.GET.Q", b"", last.as_bytes(), ASKED).ok()?;
    let told: Value = serde_json::from_slice(&told.payload).ok()?;
    let data = told["message"]["data"].as_str()?;
    let data = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
    Some(String::from_utf8(data).expect("text").parse().expect("a number"))
}

fn refused(node: &mut Node) -> (ExitStatus, String) {
    node.start();
    (node.ended(), node.text())
}

#[test]
fn a_killed_owner_is_followed_by_one_that_reads_the_bucket() {
    let mut nodes = in_bucket("bucket-kill").begun();
    for turn in 0..3 {
        (turn * 20..turn * 20 + 20).for_each(|number| nodes.publish(number));
        let (_, owner) = nodes.owner();
        nodes.nodes[owner].kill();
        nodes.expect(turn * 20 + 20);
        start(&mut nodes, owner);
    }
}

#[test]
fn an_owner_that_is_stopped_hands_its_log_over() {
    let mut nodes = in_bucket("bucket-stop").begun();
    for turn in 0..2 {
        (turn * 10..turn * 10 + 10).for_each(|number| nodes.publish(number));
        let (_, owner) = nodes.owner();
        nodes.nodes[owner].signal("-TERM");
        assert_eq!(nodes.nodes[owner].ended().code(), Some(0));
        assert!(nodes.nodes[owner].text().contains("was handed over"));
        nodes.expect(turn * 10 + 10);
        start(&mut nodes, owner);
    }
}

/// As a rolling restart goes that waits for `/healthz`: each node in turn, and no owner is missing for long.
#[test]
fn a_node_that_is_healthy_is_one_of_the_majority() {
    let mut nodes = in_bucket("bucket-rolling");
    let ports = free_ports(NODES);
    for (node, port) in nodes.nodes.iter_mut().zip(&ports) {
        node.args.extend(["-m".to_owned(), port.to_string()]);
    }
    let mut nodes = nodes.begun();
    for (at, port) in ports.into_iter().enumerate() {
        lose(&mut nodes, at);
        nodes.publish(at as u64);
        nodes.nodes[at].start();
        let deadline = Instant::now() + TIMEOUT;
        while !health(port).contains("200 OK") {
            assert!(Instant::now() < deadline, "{}", nodes.nodes[at].text());
            thread::sleep(Duration::from_millis(20));
        }
    }
    nodes.expect(NODES as u64);
}

/// What a node says of its health; nothing while it does not listen.
fn health(port: u16) -> String {
    let mut told = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let asked =
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n");
        if asked.is_err() || stream.read_to_string(&mut told).is_err() {
            told.clear();
        }
    }
    told
}

#[test]
fn nothing_is_lost_with_the_directories_of_all_nodes() {
    let mut nodes = in_bucket("bucket-gone").begun();
    for at in 0..NODES {
        let from = at as u64 * 10;
        (from..from + 10).for_each(|number| nodes.publish(number));
        lose(&mut nodes, at);
        nodes.nodes[at].start();
        // Its disk is another one, which counts when the others have taken it in.
        nodes.wait_disks(at, 2);
        nodes.expect(from + 10);
    }
    (0..NODES).for_each(|at| lose(&mut nodes, at));
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.expect(30);
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    assert!(said.contains("Nothing is lost: the log is in its bucket"), "{said}");
    (30..40).for_each(|number| nodes.publish(number));
    nodes.expect(40);
}

#[test]
fn an_owner_that_wakes_is_none_any_more_and_lives_on() {
    let mut nodes = in_bucket("bucket-asleep").begun();
    (0..10).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].signal("-STOP");
    thread::sleep(ASLEEP);
    let awake = (owner + 1) % NODES;
    (10..20).for_each(|number| nodes.publish_at(awake, number));
    nodes.nodes[owner].signal("-CONT");
    (20..30).for_each(|number| nodes.publish_at(owner, number));
    nodes.expect(30);
    let child = nodes.nodes[owner].child.as_mut().expect("it was started");
    assert_eq!(child.try_wait().expect("asked"), None, "{}", nodes.nodes[owner].text());
    nodes.nodes[owner].kill();
    nodes.expect(30);
}

/// What it is asked while it stands still it answers as the log is when it wakes, or not at all.
#[test]
fn an_owner_that_wakes_tells_nothing_of_what_the_log_was() {
    let nodes = in_bucket("bucket-wakes").begun();
    for turn in 0..3 {
        nodes.publish(turn * 2);
        let (_, owner) = nodes.owner();
        let reader = nodes.client(owner);
        nodes.nodes[owner].signal("-STOP");
        let asked = thread::spawn(move || ask_last(reader));
        nodes.publish_at((owner + 1) % NODES, turn as usize * 2 + 1);
        nodes.nodes[owner].signal("-CONT");
        if let Some(told) = asked.join().expect("no panic") {
            assert_eq!(told, turn * 2 + 1, "{}", nodes.nodes[owner].text());
        }
    }
    nodes.expect(6);
}

#[test]
fn a_node_with_another_bucket_is_refused() {
    let mut nodes = in_bucket("bucket-other").begun();
    nodes.publish(0);
    nodes.nodes[1].kill();
    let other = store_args(&nodes, "other");
    let args = &mut nodes.nodes[1].args;
    args.truncate(args.len() - other.len());
    args.extend(other);
    let (status, said) = refused(&mut nodes.nodes[1]);
    assert_ne!(status.code(), Some(0));
    assert!(said.contains(OTHER_BUCKET), "{said}");
    nodes.publish(1);
    nodes.expect(2);
}

/// One of them may be the only one that is right: nothing is founded, and it is said what to do.
#[test]
fn nodes_with_different_buckets_found_no_cluster_together() {
    let mut nodes = Nodes::new("bucket-founding");
    for at in 0..NODES {
        let store = store_args(&nodes, if at == 0 { "other" } else { "b" });
        nodes.nodes[at].args.extend(store);
    }
    nodes.nodes.iter_mut().for_each(Node::start);
    let told = |node: &Node| node.text().contains("has another bucket for the cluster's logs");
    let deadline = Instant::now() + TIMEOUT;
    while !nodes.nodes.iter().any(told) {
        assert!(Instant::now() < deadline, "nobody is told");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_secs(1));
    let founded = |node: &Node| node.text().contains("keeps the quorum log");
    assert!(!nodes.nodes.iter().any(founded), "a cluster was founded");
    for node in nodes.nodes.iter_mut().filter(|node| node.child.is_some()) {
        node.kill();
    }
    // Set right, and as the text says.
    let store = store_args(&nodes, "b");
    let args = &mut nodes.nodes[0].args;
    args.truncate(args.len() - store.len());
    args.extend(store);
    let note = nodes.dir.path().join("c/cluster/found/n0");
    // Whoever was told first ended before it could write its own.
    let _ = fs::remove_file(note);
    let nodes = nodes.begun();
    nodes.publish(0);
    nodes.expect(1);
}

#[test]
fn a_single_servers_log_becomes_the_clusters() {
    let mut nodes = in_bucket("bucket-grown");
    let store = store_args(&nodes, "b");
    let single = Server::start(&nodes.dir.path().join("single"), &[&store[0], &store[1]]);
    let mut client = single.connect();
    create_stream(&mut client, "Q", &json!({}));
    (0..10).for_each(|number| _ = publish_ok(&mut client, "Q.n", number.to_string().as_bytes()));
    single.stop();
    nodes.nodes.iter_mut().for_each(Node::start);
    (10..20).for_each(|number| nodes.publish(number));
    nodes.expect(20);
}

#[test]
fn another_clusters_bucket_is_refused() {
    let nodes = in_bucket("bucket-taken").begun();
    let mut others = Nodes::new("bucket-others");
    let store = store_args(&nodes, "b");
    others.nodes[0].args.extend(store);
    let (status, said) = refused(&mut others.nodes[0]);
    assert_ne!(status.code(), Some(0));
    assert!(said.contains(OTHER_BUCKET), "{said}");
}

/// Somebody has started a server on a log that is the cluster's.
#[test]
fn a_server_that_is_no_node_is_ended_and_the_node_lives_on() {
    let nodes = in_bucket("bucket-stranger").begun();
    (0..10).for_each(|number| nodes.publish(number));
    let store = store_args(&nodes, "b");
    let stranger = Server::start(&nodes.dir.path().join("stranger"), &[&store[0], &store[1]]);
    let (code, said) = stranger.wait_for_exit();
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("another server has taken over the log"), "{said}");
    (10..20).for_each(|number| nodes.publish(number));
    nodes.expect(20);
    let said: String = nodes.nodes.iter().map(Node::text).collect();
    assert!(said.contains("another server has taken over the log"), "{said}");
}

/// As a mount that is gone: an empty directory is in the place of the bucket.
#[test]
fn an_empty_bucket_is_not_served_and_the_right_one_is_when_it_is_back() {
    let mut nodes = in_bucket("bucket-unmounted").begun();
    (0..10).for_each(|number| nodes.publish(number));
    let (bucket, aside) = (nodes.dir.path().join("b"), nodes.dir.path().join("aside"));
    let (_, owner) = nodes.owner();
    fs::rename(&bucket, &aside).expect("moved");
    nodes.nodes[owner].kill();
    let others = [(owner + 1) % NODES, (owner + 2) % NODES];
    let says = |nodes: &Nodes| others.iter().any(|at| nodes.nodes[*at].text().contains(NOT_OURS));
    while !says(&nodes) {
        thread::sleep(Duration::from_millis(20));
    }
    fs::remove_dir_all(&bucket).expect("it was made anew");
    fs::rename(&aside, &bucket).expect("moved");
    (10..20).for_each(|number| nodes.publish(number));
    start(&mut nodes, owner);
    nodes.expect(20);
}

/// The log stops, since nothing can be stored where it was; the nodes live on.
#[test]
fn a_bucket_that_vanishes_under_its_owner_is_opened_again() {
    let nodes = in_bucket("bucket-vanished").begun();
    (0..10).for_each(|number| nodes.publish(number));
    let (bucket, aside) = (nodes.dir.path().join("b"), nodes.dir.path().join("aside"));
    let (mut client, owner) = nodes.owner();
    fs::rename(&bucket, &aside).expect("moved");
    let ack = client.request("Q.n", b"NATS/1.0\r\nNats-Msg-Id: 10\r\n\r\n", b"10", ANSWER);
    let told = ack.map(|ack| String::from_utf8_lossy(&ack.payload).into_owned());
    assert!(!told.as_ref().is_ok_and(|told| told.starts_with("{\"stream\"")), "{told:?}");
    nodes.wait_text(owner, "is served here no more: the log has stopped");
    // Somebody may have made it anew to look for the log.
    let _ = fs::remove_dir_all(&bucket);
    fs::rename(&aside, &bucket).expect("moved");
    (10..20).for_each(|number| nodes.publish(number));
    nodes.expect(20);
}

#[test]
fn where_a_clusters_logs_are_is_the_same_at_all_nodes() {
    let dir = TempDir::new("bucket-built-in");
    let mut nodes = Nodes::with_catalog(dir, "built-in");
    let store = store_args(&nodes, "b");
    nodes.nodes[0].args.extend(store);
    let (status, said) = refused(&mut nodes.nodes[0]);
    assert_ne!(status.code(), Some(0));
    assert!(said.contains("need a catalog outside the nodes"), "{said}");

    let mut nodes = Nodes::with_stream("bucket-and-disks");
    nodes.nodes[0].kill();
    let store = store_args(&nodes, "b");
    nodes.nodes[0].args.extend(store);
    let (status, said) = refused(&mut nodes.nodes[0]);
    assert_ne!(status.code(), Some(0));
    assert!(said.contains("was founded with its logs on its nodes' disks"), "{said}");
}

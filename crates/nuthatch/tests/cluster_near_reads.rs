//! Direct gets that are answered in the zone of the client, from what its node follows of another node's log: they are what the
//! owner would answer, and see every write that was acknowledged before. Real processes.

mod quorum_nodes;
mod support;

use nuthatch_client::{Client, OwnedMessage};
use quorum_nodes::{ACCOUNTS, ANSWER, NODES, Node, Nodes, free_ports};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, api_ok};

/// Every log is followed, however small it is.
const ALL_FOLLOWED: &str = "jetstream { quorum { standby_above: '0s' } }\n";

/// Writes of each client, after each of which it reads at another node.
const WRITES: u64 = 250;
const WRITERS: usize = 4;

/// Inboxes of gets.
static GETS: AtomicU64 = AtomicU64::new(0);

/// Nodes, the stream `R`, and which of them serves it.
struct Cluster {
    nodes: Nodes,
    monitors: Vec<u16>,
}

impl Cluster {
    fn new(name: &str, zones: &[&str]) -> Self {
        let mut nodes = Nodes::of(NODES, TempDir::new(name), "built-in");
        nodes.configure(&format!("{ACCOUNTS}{ALL_FOLLOWED}"));
        let monitors = free_ports(NODES);
        for (at, node) in nodes.nodes.iter_mut().enumerate() {
            if let Some(zone) = zones.get(at) {
                node.args.extend(["--zone", zone].map(str::to_owned));
            }
            node.args.extend(["-m".to_owned(), monitors[at].to_string()]);
        }
        nodes.nodes.iter_mut().for_each(Node::start);
        let cluster = Self { nodes, monitors };
        cluster.wait_at_home();
        cluster
    }

    /// Waits until each log is owned by the node in its place: it goes nowhere for minutes then.
    fn wait_at_home(&self) {
        let deadline = Instant::now() + TIMEOUT;
        for (at, log) in ["default", "default-1", "default-2"].iter().enumerate() {
            let owned = format!("nuthatch_quorum_log_owned{{log=\"{log}\"}} 1");
            while !self.page(at).is_some_and(|page| page.contains(&owned)) {
                let said = self.nodes.nodes[at].text();
                assert!(Instant::now() < deadline, "{at} does not own {log}:\n{said}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// The metrics of a node; none: it does not tell them yet.
    fn page(&self, at: usize) -> Option<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.monitors[at])).ok()?;
        socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: n\r\n\r\n").ok()?;
        let mut page = String::new();
        socket.read_to_string(&mut page).ok()?;
        Some(page)
    }

    fn create(&self, more: &Value) {
        let mut config = json!({
            "name": "R", "subjects": ["R.>"], "num_replicas": 3, "allow_direct": true,
            "max_msgs_per_subject": 5,
        });
        for (key, value) in more.as_object().expect("an object") {
            config[key] = value.clone();
        }
        let is_made = |answer: &Value| answer.get("error").is_none();
        self.nodes.until(0, "STREAM.CREATE.R", &config, is_made);
    }

    /// The node that serves the stream, by what the node at this place says.
    fn owner(&self, asked: usize) -> usize {
        let leader = |info: &Value| info["cluster"]["leader"].as_str().map(str::to_owned);
        let info =
            self.nodes.until(asked, "STREAM.INFO.R", &Value::Null, |info| leader(info).is_some());
        let name = leader(&info).expect("as waited for");
        self.nodes.nodes.iter().position(|node| node.name == name).expect("one of them")
    }

    /// Gets that a node has answered from what it follows.
    fn near(&self, at: usize) -> u64 {
        let of = |line: &str| {
            line.strip_prefix("nuthatch_direct_gets_own_zone_total ")?.parse::<u64>().ok()
        };
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // A node that has just started tells it a moment later.
            if let Some(near) = self.page(at).and_then(|page| page.lines().find_map(of)) {
                return near;
            }
            assert!(Instant::now() < deadline, "{at} does not tell it");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a node answers gets of this subject itself.
    fn wait_near(&self, at: usize, subject: &str) {
        let (mut client, deadline) = (self.nodes.client(at), Instant::now() + TIMEOUT);
        let before = self.near(at);
        while self.near(at) == before {
            // A log that comes to another node just now may leave it without an answer.
            drop(last(&mut client, subject));
            let said = self.nodes.nodes[at].text();
            assert!(Instant::now() < deadline, "{at} answers nothing itself:\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The last message of a subject.
fn last(client: &mut Client, subject: &str) -> Option<OwnedMessage> {
    let found =
        client.request(&format!("$JS.API.DIRECT.GET.R.{subject}"), b"", b"", ANSWER).ok()?;
    found.view().status().is_none().then_some(found)
}

fn number(message: &OwnedMessage) -> u64 {
    String::from_utf8_lossy(&message.payload).parse().expect("a number")
}

fn put(client: &mut Client, subject: &str, number: u64) -> bool {
    let ack = client.request(subject, b"", number.to_string().as_bytes(), ANSWER);
    ack.is_ok_and(|ack| ack.payload.starts_with(b"{\"stream\""))
}

/// All answers to a direct get of this body, up to a status or to the only message.
fn answers(client: &mut Client, tail: &str, body: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_many = body.contains("batch") || body.contains("multi_last");
    let inbox = format!("{}.get{}", client.inbox(), GETS.fetch_add(1, Ordering::Relaxed));
    let sid = client.subscribe(&inbox, "").expect("subscribed");
    let subject = format!("$JS.API.DIRECT.GET.R{tail}");
    client
        .writer
        .publish(subject.as_bytes(), inbox.as_bytes(), b"", body.as_bytes())
        .expect("sent");
    client.writer.flush().expect("sent");
    let (mut all, deadline) = (Vec::new(), Instant::now() + TIMEOUT);
    loop {
        let (_, message) = client.next_with_sid(deadline).expect("an answer");
        let is_over = !is_many || message.view().status().is_some();
        all.push((message.headers, message.payload));
        if is_over {
            client.unsubscribe(sid).expect("sent");
            return all;
        }
    }
}

const REQUESTS: [(&str, &str); 14] = [
    (".R.0", ""),
    (".R.none", ""),
    ("", "{\"seq\":3}"),
    ("", "{\"seq\":3,\"no_hdr\":true}"),
    ("", "{\"seq\":99999}"),
    ("", "{\"last_by_subj\":\"R.1\"}"),
    ("", "{\"last_by_subj\":\"R.>\"}"),
    ("", "{\"seq\":2,\"next_by_subj\":\"R.0\"}"),
    ("", "{\"start_time\":\"2020-01-01T00:00:00Z\"}"),
    ("", "{\"seq\":1,\"batch\":7}"),
    ("", "{\"seq\":1,\"batch\":50,\"max_bytes\":100,\"next_by_subj\":\"R.1\"}"),
    ("", "{\"multi_last\":[\"R.*\"]}"),
    ("", "{\"multi_last\":[\"R.0\",\"R.2\"],\"up_to_seq\":9}"),
    ("", "not JSON"),
];

/// Every kind of request is answered in the client's zone with the very bytes of the owner.
#[test]
fn answers_of_the_own_zone_are_those_of_the_owner() {
    let cluster = Cluster::new("near-same", &["a", "b", "c"]);
    cluster.create(&json!({}));
    let owner = cluster.owner(0);
    let mut writer = cluster.nodes.client(owner);
    (0..30).for_each(|n| assert!(put(&mut writer, &format!("R.{}", n % 3), n)));
    api_ok(&mut writer, "STREAM.MSG.DELETE.R", &json!({"seq": 20}));
    for at in (0..NODES).filter(|at| *at != owner) {
        cluster.wait_near(at, "R.0");
        let (mut near, before) = (cluster.nodes.client(at), cluster.near(at));
        for (tail, body) in REQUESTS {
            let here = answers(&mut near, tail, body);
            assert_eq!(here, answers(&mut writer, tail, body), "{tail} {body}");
        }
        // Who follows the log may have been at work now and then.
        let own = cluster.near(at) - before;
        assert!(own > REQUESTS.len() as u64 / 2, "{own} of {}", REQUESTS.len());
    }
    assert_eq!(cluster.near(owner), 0);
}

/// Several clients write at one node and read at others: each sees what it has written, and never what was before.
#[test]
fn a_get_in_another_zone_sees_every_write_before() {
    let cluster = Cluster::new("near-writes", &["a", "b", "c"]);
    cluster.create(&json!({}));
    let owner = cluster.owner(0);
    assert!(put(&mut cluster.nodes.client(0), "R.begin", 0));
    let others: Vec<usize> = (0..NODES).filter(|at| *at != owner).collect();
    others.iter().for_each(|at| cluster.wait_near(*at, "R.begin"));
    let before: u64 = others.iter().map(|at| cluster.near(*at)).sum();
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let (cluster, others) = (&cluster, &others);
            scope.spawn(move || {
                // At the node where it reads, at the third one, and at the owner.
                let reads = others[thread % 2];
                let writes = if thread < 2 { reads } else { (reads + 1) % NODES };
                let mut reader = cluster.nodes.client(reads);
                let mut writer = cluster.nodes.client(writes);
                let subject = format!("R.{thread}");
                for count in 1..=WRITES {
                    assert!(put(&mut writer, &subject, count));
                    for again in 0..3 {
                        let found = last(&mut reader, &subject).expect("it was written");
                        assert_eq!(number(&found), count, "{subject} read {again} at {reads}");
                    }
                    if count % 25 == 0 {
                        // The standbys have read all of it then, perhaps.
                        std::thread::sleep(Duration::from_millis(250));
                        let found = last(&mut reader, &subject).expect("it was written");
                        assert_eq!(number(&found), count, "{subject} at {reads}, later");
                    }
                }
            });
        }
    });
    let own = others.iter().map(|at| cluster.near(*at)).sum::<u64>() - before;
    println!("{own} of {} gets were answered in the own zone", WRITERS as u64 * WRITES * 3);
    assert!(own > 0, "no get was answered in the own zone");
}

/// What a client sends without waiting is seen by what it sends behind it.
#[test]
fn a_get_behind_a_publish_of_the_same_client_sees_it() {
    let cluster = Cluster::new("near-order", &["a", "b", "c"]);
    cluster.create(&json!({}));
    let reads = (cluster.owner(0) + 1) % NODES;
    let mut client = cluster.nodes.client(reads);
    assert!(put(&mut client, "R.o", 0));
    for count in 1..=100_u64 {
        if count % 10 == 1 {
            cluster.wait_near(reads, "R.o");
        }
        client.writer.publish(b"R.o", b"", b"", count.to_string().as_bytes()).expect("sent");
        assert_eq!(number(&last(&mut client, "R.o").expect("there is one")), count);
    }
}

/// A mirror at the client's node answers nothing in the place of its origin, also where a get comes back and the standby has read
/// on meanwhile.
#[test]
fn a_mirror_at_the_clients_node_does_not_answer_for_its_origin() {
    let cluster = Cluster::new("near-mirror", &["a", "b", "c"]);
    cluster.create(&json!({}));
    let reads = (cluster.owner(0) + 1) % NODES;
    let log = ["default", "default-1", "default-2"][reads];
    let mirror = json!({
        "name": "M", "mirror": {"name": "R"}, "mirror_direct": true, "allow_direct": true, "num_replicas": 3,
        "placement": {"tags": [format!("log:{log}")]},
    });
    let is_made = |answer: &Value| answer.get("error").is_none();
    cluster.nodes.until(0, "STREAM.CREATE.M", &mirror, is_made);
    let mut client = cluster.nodes.client(reads);
    assert!(put(&mut client, "R.m", 0));
    cluster.wait_near(reads, "R.m");
    for count in 1..=300_u64 {
        assert!(put(&mut client, "R.m", count));
        // The standby has read all of it then, perhaps.
        std::thread::sleep(Duration::from_millis(count % 40));
        let found = last(&mut client, "R.m").expect("it was written");
        let headers = String::from_utf8_lossy(&found.headers);
        assert!(headers.contains("Nats-Stream: R\r\n"), "{headers}");
        assert_eq!(number(&found), count);
    }
}

/// Owners are killed while clients write and read: nobody reads less than was acknowledged before.
#[test]
fn no_get_is_wrong_while_owners_go() {
    let mut cluster = Cluster::new("near-killed", &["a", "b", "c"]);
    cluster.create(&json!({}));
    for _ in 0..2 {
        let owner = cluster.owner(0);
        let others: Vec<usize> = (0..NODES).filter(|at| *at != owner).collect();
        assert!(put(&mut cluster.nodes.client(others[0]), "R.begin", 0));
        others.iter().for_each(|at| cluster.wait_near(*at, "R.begin"));
        let done = AtomicBool::new(false);
        let mut child = cluster.nodes.nodes[owner].child.take().expect("it runs");
        std::thread::scope(|scope| {
            for (thread, at) in others.iter().enumerate() {
                let (cluster, done) = (&cluster, &done);
                scope.spawn(move || write_and_read(cluster, *at, thread, done));
            }
            std::thread::sleep(Duration::from_millis(700));
            child.kill().expect("kill");
            child.wait().expect("wait");
            let deadline = Instant::now() + TIMEOUT;
            while !put(&mut cluster.nodes.client(others[0]), "R.after", 1) {
                assert!(Instant::now() < deadline, "nobody takes the log over");
            }
            std::thread::sleep(Duration::from_millis(700));
            done.store(true, Ordering::Release);
        });
        cluster.nodes.nodes[owner].start();
        let next = cluster.owner(others[0]);
        // The one that is back follows it, too.
        cluster.wait_near(if next == owner { others[0] } else { owner }, "R.begin");
    }
}

/// Writes and reads at a node until it is done. What was acknowledged is read, or something newer; a get may fail while nobody
/// serves the stream.
fn write_and_read(cluster: &Cluster, at: usize, thread: usize, done: &AtomicBool) {
    let (mut client, subject) = (cluster.nodes.client(at), format!("R.k{thread}"));
    let first = last(&mut client, &subject).map_or(0, |message| number(&message));
    let (mut acknowledged, mut sent, mut reads) = (first, first, 0);
    while !done.load(Ordering::Acquire) {
        sent += 1;
        if put(&mut client, &subject, sent) {
            acknowledged = sent;
        }
        for _ in 0..4 {
            let Some(found) = last(&mut client, &subject) else { continue };
            let found = number(&found);
            assert!((acknowledged..=sent).contains(&found), "{found}, not {acknowledged}..={sent}");
            reads += 1;
        }
    }
    assert!(reads > 0 && acknowledged > first, "{reads} reads up to {acknowledged}");
}

/// A stream whose reads may be late is read at every node that follows it, in whatever zone.
#[test]
fn stale_reads_ask_nobody() {
    let cluster = Cluster::new("near-stale", &[]);
    let is_refused = |answer: &Value| {
        let text = answer["error"]["description"].as_str().unwrap_or_default();
        text.contains("_nuthatch.direct is \"fresh\"")
    };
    let config = json!({"name": "R", "metadata": {"_nuthatch.direct": "fresh"}});
    cluster.nodes.until(0, "STREAM.CREATE.R", &config, is_refused);
    cluster.create(&json!({"metadata": {"_nuthatch.direct": "stale"}}));
    let owner = cluster.owner(0);
    let mut writer = cluster.nodes.client(owner);
    assert!(put(&mut writer, "R.s", 1));
    let reads = (owner + 1) % NODES;
    let (mut reader, deadline) = (cluster.nodes.client(reads), Instant::now() + TIMEOUT);
    while cluster.near(reads) == 0 {
        assert!(Instant::now() < deadline, "{}", cluster.nodes.nodes[reads].text());
        drop(last(&mut reader, "R.s"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(put(&mut writer, "R.s", 2));
    while last(&mut reader, "R.s").is_none_or(|found| number(&found) != 2) {
        assert!(Instant::now() < deadline, "what was written is never seen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Brokers that are the nodes of one cluster in this process.
#![allow(dead_code, reason = "not every test file uses every helper")]

use crate::support::{Dir, WAIT};
use nuthatch_embed::client::Client;
use nuthatch_embed::client::js::{PubAck, api};
use nuthatch_embed::{Broker, Config, OpenError};
use nuthatch_ports::free_addresses;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The nodes of a cluster, of which some are open.
pub struct Nodes {
    pub dirs: Vec<Dir>,
    pub ports: Vec<SocketAddr>,
    pub brokers: Vec<Option<Broker>>,
    /// What was acknowledged.
    pub acked: BTreeSet<u64>,
    next: u64,
}

impl Nodes {
    /// Three nodes, none open yet.
    pub fn new(name: &str) -> Self {
        let dirs = (0..3).map(|node| Dir::new(&format!("{name}-{node}"))).collect();
        let brokers = (0..3).map(|_| None).collect();
        Self { dirs, ports: free_addresses(3), brokers, acked: BTreeSet::new(), next: 0 }
    }

    /// The text that a node is opened with.
    pub fn text(&self, node: usize) -> String {
        let routes: Vec<String> = self.ports.iter().map(|port| format!("nats://{port}")).collect();
        format!(
            "server_name: n{node}, jetstream {{ store_dir: {:?} }}\n\
             cluster {{ name: c, host: 127.0.0.1, port: {}, routes: [{}] }}",
            self.dirs[node].path(),
            self.ports[node].port(),
            routes.join(", ")
        )
    }

    pub fn try_open(&self, node: usize) -> Result<Broker, OpenError> {
        let mut config = Config::from_text(&self.text(node)).expect("a configuration");
        if std::env::var_os("NUTHATCH_TEST_LOG").is_some() {
            config = config.log_to_stderr();
        }
        Broker::open(config.without_listener())
    }

    #[track_caller]
    pub fn open(&mut self, node: usize) {
        self.brokers[node] = Some(self.try_open(node).expect("open"));
    }

    #[track_caller]
    pub fn open_all(&mut self) {
        (0..3).for_each(|node| self.open(node));
    }

    #[track_caller]
    pub fn close(&mut self, node: usize) {
        let broker = self.brokers[node].take().expect("it is open");
        broker.close().expect("a clean close");
    }

    pub fn broker(&self, node: usize) -> &Broker {
        self.brokers[node].as_ref().expect("it is open")
    }

    #[track_caller]
    pub fn client(&self, node: usize) -> Client {
        self.broker(node).connect().expect("connect")
    }

    /// Has the stream made once the cluster can.
    #[track_caller]
    pub fn create(&self, node: usize) {
        self.create_in(node, "file");
    }

    /// The same with the storage of this name.
    #[track_caller]
    pub fn create_in(&self, node: usize, storage: &str) {
        let config =
            json!({"name": "S", "subjects": ["S.*"], "num_replicas": 3, "storage": storage});
        until("a stream is made", || {
            let mut client = self.client(node);
            api(&mut client, "STREAM.CREATE.S", &config, Duration::from_secs(2)).is_ok()
        });
    }

    /// Publishes so many messages through a node, each until it is acknowledged.
    #[track_caller]
    pub fn publish(&mut self, node: usize, count: u64) {
        self.publish_bytes(node, count, b"body");
    }

    #[track_caller]
    pub fn publish_bytes(&mut self, node: usize, count: u64, body: &[u8]) {
        let mut client = self.client(node);
        for _ in 0..count {
            let number = self.next;
            self.next += 1;
            let (subject, deadline) = (format!("S.{number}"), Instant::now() + WAIT);
            while !try_publish(&mut client, &subject, body) {
                assert!(Instant::now() < deadline, "{subject} was never acknowledged");
            }
            self.acked.insert(number);
        }
    }

    /// Waits until all nodes have all of the stream.
    #[track_caller]
    pub fn wait_whole(&self, node: usize) {
        let null = serde_json::Value::Null;
        until("all nodes have everything", || {
            let mut client = self.client(node);
            let info = api(&mut client, "STREAM.INFO.S", &null, Duration::from_secs(2));
            let replicas =
                info.ok().and_then(|info| info["cluster"]["replicas"].as_array().cloned());
            replicas
                .is_some_and(|all| all.len() == 2 && all.iter().all(|one| one["current"] == true))
        });
    }

    /// Everything that was acknowledged is there.
    #[track_caller]
    pub fn check(&self, node: usize) {
        let mut found = BTreeSet::new();
        until("the stream can be read", || {
            let mut client = self.client(node);
            let Some(names) = subjects(&mut client) else { return false };
            found = names;
            true
        });
        let lost: Vec<&u64> = self.acked.difference(&found).collect();
        assert!(lost.is_empty(), "{} acknowledged, lost: {lost:?}", self.acked.len());
    }
}

/// The numbers of the messages that are in the stream.
fn subjects(client: &mut Client) -> Option<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    loop {
        let asked = json!({"subjects_filter": ">", "offset": found.len()});
        let info = api(client, "STREAM.INFO.S", &asked, Duration::from_secs(2)).ok()?;
        let Some(page) = info["state"]["subjects"].as_object() else { return Some(found) };
        if page.is_empty() {
            return Some(found);
        }
        let number = |subject: &String| subject.strip_prefix("S.")?.parse::<u64>().ok();
        let before = found.len();
        found.extend(page.keys().filter_map(number));
        if found.len() == before || info["total"].as_u64()? <= found.len() as u64 {
            return Some(found);
        }
    }
}

/// One try. A message of which nothing is heard is sent again, and may be there twice.
pub fn try_publish(client: &mut Client, subject: &str, body: &[u8]) -> bool {
    let Ok(ack) = client.request(subject, b"", body, Duration::from_secs(1)) else {
        // Nobody has the log for a moment.
        std::thread::sleep(Duration::from_millis(2));
        return false;
    };
    matches!(PubAck::parse(&ack.payload, "S"), PubAck::Stored(_))
}

/// What comes is there a moment later.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Names of the threads of this process.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let mut names: Vec<String> = tasks.filter_map(|task| name(task).ok()).collect();
    names.sort();
    names
}

pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

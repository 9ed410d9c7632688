//! The disks of all nodes of a cluster fill up together: publishes are refused as on one server, no node ends, what makes
//! room goes on, and writing resumes when there is room again.
//!
//! Each node has a small tmpfs, so the test needs the right to mount. Without it the test fails and says so, unless
//! `NUTHATCH_SKIP_MOUNT_TESTS` is set.

mod quorum_nodes;
mod support;

use nuthatch_client::Client;
use quorum_nodes::{ANSWER, NODES, Node, Nodes};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, api_ok, create_stream};

const TMPFS: &str = "size=320m";
static PAYLOAD: [u8; 900_000] = [0x5a; 900_000];
/// More than the disks hold.
const TRIES: u64 = 1_000;

/// Unmounted at the end, after the nodes have ended.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("mount point");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", TMPFS, "tmpfs"]).arg(at);
        mount.status().expect("run mount").success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The acknowledgement of a message at the owner of the stream, whoever that is; none: nobody answered in time.
fn publish(client: &mut Client, subject: &str) -> Option<Value> {
    let answer = client.request(subject, b"", &PAYLOAD, ANSWER).ok()?;
    Some(serde_json::from_slice(&answer.payload).unwrap_or(Value::Null))
}

/// Publishes until a message is refused for want of space; gives how many were taken.
fn fill(nodes: &mut Nodes, client: &mut Client) -> u64 {
    let mut stored = 0;
    for _ in 0..TRIES {
        let ack = publish(client, "FILL.m");
        all_run(nodes);
        let Some(ack) = ack else { continue };
        if ack.get("error").is_none() {
            stored += 1;
            continue;
        }
        let text = ack["error"]["description"].as_str().unwrap_or_default();
        assert!(text.contains("no space left"), "a plain reason: {ack}");
        return stored;
    }
    panic!("{stored} messages and the disks are not full");
}

fn all_run(nodes: &mut Nodes) {
    for node in &mut nodes.nodes {
        let ended = node.child.as_mut().expect("it was started").try_wait().expect("wait");
        assert!(ended.is_none(), "{} has ended:\n{}", node.name, node.text());
    }
}

/// Publishes until some messages were taken: what was purged makes room by and by.
fn resumes(client: &mut Client) {
    let (deadline, mut taken) = (Instant::now() + TIMEOUT, 0);
    while taken < 20 {
        let ack = publish(client, "FILL.again");
        if ack.as_ref().is_some_and(|ack| ack.get("error").is_none()) {
            taken += 1;
            continue;
        }
        assert!(Instant::now() < deadline, "writing does not resume: {ack:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn full_disks_of_all_nodes_refuse_publishes_and_no_node_ends() {
    let dir = TempDir::new("quorum-full");
    let mount = |at: usize| Mounted::new(&dir.path().join(format!("n{at}")));
    let mounted: Vec<Mounted> = (0..NODES).filter_map(mount).collect();
    if mounted.len() < NODES {
        let skips = std::env::var_os("NUTHATCH_SKIP_MOUNT_TESTS").is_some();
        assert!(skips, "cannot mount a tmpfs; run as root or set NUTHATCH_SKIP_MOUNT_TESTS");
        return;
    }
    let mut nodes = Nodes::with_catalog(dir, "built-in");
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "KEEP", &json!({ "num_replicas": NODES }));
    create_stream(&mut client, "FILL", &json!({ "num_replicas": NODES }));
    let mut client = nodes.client(0);
    let stored = fill(&mut nodes, &mut client);
    assert!(stored > 20, "the disks took {stored} messages before they were full");
    // Reads and deletes go on.
    let last = api_ok(&mut client, "STREAM.MSG.GET.FILL", &json!({ "seq": stored }));
    assert_eq!(last["message"]["seq"], stored);
    api_ok(&mut client, "STREAM.MSG.DELETE.FILL", &json!({ "seq": 1 }));
    // A node that starts on a full disk is there again.
    nodes.nodes[2].signal("-TERM");
    nodes.nodes[2].ended();
    nodes.nodes[2].start();
    let _ = nodes.client(2);
    all_run(&mut nodes);
    api_ok(&mut client, "STREAM.PURGE.FILL", &Value::Null);
    resumes(&mut client);
    all_run(&mut nodes);
    drop(client);
    drop(nodes);
    drop(mounted);
}

//! Three real processes keep one quorum log (`docs/cluster.md`): owners are killed, stopped for a while and
//! told to end; what was acknowledged is read at the next one.

mod quorum_nodes;
mod support;

use quorum_nodes::{NODES, Node, Nodes, write_key};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{TIMEOUT, TempDir, create_stream};

#[test]
fn a_killed_owner_is_followed_by_one_that_has_everything() {
    Nodes::with_stream("quorum-kill").outlive_owners();
}

const KEY: &str = "bm8gb25lIHdpbGwgZXZlciBndWVzcyB0aGlzIGtleQ==\n";
const OTHER_KEY: &str = "YW5kIG5vYm9keSBrbm93cyB0aGlzIG9uZSBlaXRoZXIh\n";

#[test]
fn nodes_with_a_key_follow_each_other_and_one_with_another_key_takes_no_part() {
    let mut nodes = Nodes::new("quorum-key");
    nodes.give_keys(&[KEY, KEY, OTHER_KEY]);
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, first) = nodes.owner();
    assert_ne!(first, 2, "nobody listens to the one with another key");
    let told = "do all nodes have the same -cluster_key?";
    (0..NODES).for_each(|at| nodes.wait_text(at, told));
    create_stream(&mut client, "Q", &json!({}));
    (0..5).for_each(|number| nodes.publish(number));
    // Two of three are needed, and the third is as good as dead until it has the key.
    nodes.nodes[2].kill();
    write_key(&nodes.dir.path().join("n2.key"), KEY, 0o600);
    nodes.nodes[2].start();
    nodes.nodes[first].kill();
    (5..10).for_each(|number| nodes.publish(number));
    nodes.expect(10);
}

/// Nothing was founded yet: all say that the keys differ.
#[test]
fn nodes_that_are_to_found_a_cluster_and_have_two_keys_say_so() {
    let mut nodes = Nodes::with_catalog(TempDir::new("founding-keys"), "built-in");
    let (one, other) = ("ab".repeat(32), "cd".repeat(32));
    nodes.give_keys(&[&one, &one, &other]);
    nodes.nodes.iter_mut().for_each(Node::start);
    for at in 0..NODES {
        nodes.wait_text(at, "somebody answers who has another cluster key than this node");
    }
}

#[test]
fn a_key_that_others_can_read_or_guess_is_refused() {
    for (key, mode, told) in [(KEY, 0o644, "chmod 600"), ("secret", 0o600, "at least 32 bytes")] {
        let mut nodes = Nodes::new("quorum-bad-key");
        nodes.give_keys(&[key; NODES]);
        write_key(&nodes.dir.path().join("n0.key"), key, mode);
        let node = &mut nodes.nodes[0];
        node.start();
        assert_ne!(node.ended().code(), Some(0));
        assert!(node.text().contains(told), "{}", node.text());
    }
}

#[test]
fn a_log_of_a_node_is_not_called_as_one_of_the_cluster() {
    let mut nodes = Nodes::new("quorum-names");
    nodes.configure("jetstream { logs { \"default-1\": { mode: local } } }\n");
    let node = &mut nodes.nodes[0];
    node.start();
    assert_ne!(node.ended().code(), Some(0));
    let told = node.text();
    assert!(told.contains("cannot be called \"default-1\""), "{told}");
}

#[test]
fn a_node_that_waits_for_the_others_ends_when_it_is_told() {
    let mut nodes = Nodes::new("quorum-wait");
    let node = &mut nodes.nodes[0];
    node.start();
    let deadline = Instant::now() + TIMEOUT;
    while !node.text().contains("is founded when all") {
        assert!(Instant::now() < deadline, "it does not wait:\n{}", node.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    node.signal("-TERM");
    assert_eq!(node.ended().code(), Some(0), "{}", node.text());
}

#[test]
fn a_keeper_ends_when_it_is_told_and_the_log_goes_on() {
    let mut nodes = Nodes::with_stream("quorum-keeper");
    let (_, owner) = nodes.owner();
    let keeper = &mut nodes.nodes[(owner + 1) % NODES];
    keeper.signal("-TERM");
    assert_eq!(keeper.ended().code(), Some(0), "{}", keeper.text());
    (0..5).for_each(|number| nodes.publish(number));
    nodes.expect(5);
}

#[test]
fn an_owner_that_is_told_to_end_hands_the_log_over() {
    let mut nodes = Nodes::with_stream("quorum-term");
    (0..5).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].signal("-TERM");
    assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
    nodes.expect(5);
}

/// More is written than the journals keep. A disk that is empty then gets the files, is killed while they come, and
/// has everything in the end: as the only one that is left with another that knows as much.
#[test]
fn an_empty_disk_gets_the_files_of_what_is_trimmed() {
    let mut nodes = Nodes::with_stream("quorum-trim");
    let (mut client, _) = nodes.owner();
    // In the log of which the journals are looked at.
    let home = json!({"tags": ["log:default"]});
    create_stream(&mut client, "LARGE", &json!({"subjects": ["large.>"], "placement": home}));
    // With its header below the largest payload.
    let body = vec![7; (1 << 20) - 1024];
    let large = 480;
    (0..large).for_each(|number| nodes.publish_to("large.x", number, &body));
    (0..20).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    let emptied = (owner + 1) % NODES;
    let first = |at: usize| {
        let ops = nodes.dir.path().join(format!("n{at}/nuthatch/quorum/ops"));
        let names = std::fs::read_dir(ops).expect("a journal");
        names.map(|name| name.expect("listed").file_name()).min().expect("a file")
    };
    let deadline = Instant::now() + TIMEOUT;
    while (0..NODES).any(|at| first(at) == "00000000") {
        assert!(Instant::now() < deadline, "nothing is trimmed");
        std::thread::sleep(Duration::from_millis(50));
    }
    nodes.nodes[emptied].kill();
    let store = nodes.dir.path().join(format!("n{emptied}"));
    std::fs::remove_dir_all(&store).expect("emptied");
    nodes.nodes[emptied].start();
    nodes.wait_text(emptied, "sends its files");
    nodes.nodes[emptied].kill();
    nodes.nodes[emptied].start();
    nodes.wait_text(emptied, "of files are in place");
    nodes.wait_disks(emptied, 2);
    // The owner took the disk in and began anew with it; without the owner one of three is left below.
    nodes.wait_text(
        owner,
        "Quorum log 0 was closed, for its next epoch to begin with other keepers",
    );
    (20..30).for_each(|number| nodes.publish(number));
    // Whoever owns the log now, without it the other two have all that was acknowledged.
    let (_, owner) = nodes.owner();
    let gone = if owner == emptied { (owner + 1) % NODES } else { owner };
    nodes.nodes[gone].kill();
    nodes.expect(30);
    let (mut client, _) = nodes.owner();
    let info = client.request("$JS.API.STREAM.INFO.LARGE", b"", b"", TIMEOUT).expect("an answer");
    let info: Value = serde_json::from_slice(&info.payload).expect("JSON");
    assert_eq!(info["state"]["messages"], large);
}

/// Bytes that no compression makes fewer, others for each number.
fn noise(number: u64, len: usize) -> Vec<u8> {
    let mut state = number + 1;
    let next = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// Bytes of the files below a directory.
fn size_of(dir: &Path) -> u64 {
    let Ok(names) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("listed").path();
        // What is removed meanwhile has no size.
        if path.is_dir() { size_of(&path) } else { path.metadata().map_or(0, |meta| meta.len()) }
    };
    names.map(size).sum()
}

/// Owners that are killed while they move segments to the bucket leave it to the next one, and no node keeps what
/// was moved.
#[test]
fn segments_of_a_quorum_log_move_to_a_bucket_whoever_owns_it() {
    const LEN: usize = (1 << 20) - 1024;
    let mut nodes = Nodes::new("quorum-tier");
    nodes.give_tier("8MB");
    nodes.nodes.iter_mut().for_each(Node::start);
    let (mut client, _) = nodes.owner();
    create_stream(&mut client, "LARGE", &json!({"subjects": ["large.>"]}));
    drop(client);
    for turn in 0..3 {
        let numbers = turn * 60..(turn + 1) * 60;
        numbers.for_each(|number| nodes.publish_to("large.x", number, &noise(number, LEN)));
        let (_, owner) = nodes.owner();
        nodes.nodes[owner].kill();
        nodes.publish_to("large.x", 1000 + turn, b"between");
        nodes.nodes[owner].start();
    }
    let deadline = Instant::now() + TIMEOUT;
    let bucket = nodes.dir.path().join("b");
    let sizes = |nodes: &Nodes| {
        let files = |at: usize| nodes.dir.path().join(format!("n{at}/nuthatch/quorum/files"));
        (0..NODES).map(|at| size_of(&files(at))).collect::<Vec<_>>()
    };
    while size_of(&bucket) < 160 << 20 || sizes(&nodes).iter().any(|size| *size > 80 << 20) {
        let so_far = (size_of(&bucket), sizes(&nodes));
        assert!(Instant::now() < deadline, "the bucket and the nodes have {so_far:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut found = nodes.read_all("LARGE").into_iter();
    for turn in 0..3 {
        for number in turn * 60..(turn + 1) * 60 {
            let (_, message) = found.next().expect("all that was acknowledged");
            assert!(message.payload == noise(number, LEN), "message {number} differs");
        }
        assert_eq!(found.next().expect("it was acknowledged").1.payload, b"between");
    }
    assert!(found.next().is_none());
}

/// Both the loss and the signal wait for it when it wakes: it must not begin again as a keeper.
#[test]
fn an_owner_that_was_replaced_while_it_was_stopped_ends_when_it_was_told() {
    let mut nodes = Nodes::with_stream("quorum-stopped");
    (0..5).for_each(|number| nodes.publish(number));
    let (_, owner) = nodes.owner();
    nodes.nodes[owner].signal("-STOP");
    // A stopped process still takes connections and never answers, so the next owner is looked for beside it.
    let stopped = nodes.nodes[owner].child.take();
    (5..10).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].child = stopped;
    nodes.nodes[owner].signal("-TERM");
    nodes.nodes[owner].signal("-CONT");
    assert_eq!(nodes.nodes[owner].ended().code(), Some(0), "{}", nodes.nodes[owner].text());
    nodes.expect(10);
}

/// What a replaced owner answers must not be older than what was acknowledged elsewhere.
#[test]
fn an_owner_that_wakes_after_it_was_replaced_shows_nothing_old() {
    let mut nodes = Nodes::with_stream("quorum-stale");
    nodes.publish(0);
    let (mut old, owner) = nodes.owner();
    nodes.nodes[owner].signal("-STOP");
    let stopped = nodes.nodes[owner].child.take();
    (1..10).for_each(|number| nodes.publish(number));
    nodes.nodes[owner].child = stopped;
    // The question lies in the socket of the old owner before it wakes.
    let asked = std::thread::spawn(move || {
        old.request("$JS.API.STREAM.INFO.Q", b"", b"", Duration::from_secs(5))
    });
    std::thread::sleep(Duration::from_millis(200));
    nodes.nodes[owner].signal("-CONT");
    if let Ok(answer) = asked.join().expect("no panic") {
        let answer: Value = serde_json::from_slice(&answer.payload).expect("JSON");
        let last = &answer["state"]["last_seq"];
        assert!(last.is_null() || *last == 10, "what the old owner answered: {answer}");
    }
    nodes.expect(10);
}

/// Runs the doctor; its exit code and what it says.
fn doctor(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
    let output = command.arg("doctor").args(args).output().expect("the doctor");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_doctor_looks_at_a_keeper_and_changes_nothing_and_the_others_mend_it() {
    let mut nodes = Nodes::with_stream("quorum-doctor");
    (0..20).for_each(|number| nodes.publish(number));
    // The owner has everything; another one may have to be brought it yet.
    let (_, at) = nodes.owner();
    let store = nodes.dir.path().join(&nodes.nodes[at].name);
    let dir = store.to_str().expect("UTF-8");
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("stop that node first"), "{said}");
    nodes.nodes[at].kill();
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("healthy"), "{said}");
    let journal = store.join("nuthatch/quorum/ops/00000000");
    let mut bytes = std::fs::read(&journal).expect("a journal");
    // The payload of the entry in the tenth block.
    bytes[9 * 4096 + 100] ^= 1;
    std::fs::write(&journal, &bytes).expect("written");
    let (code, said) = doctor(&[dir, "--apply"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 of them damaged") && said.contains("Nothing was changed"), "{said}");
    assert_eq!(std::fs::read(&journal).expect("a journal"), bytes);
    let (_, text) = doctor(&[dir, "-j"]);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["keeper"]["healthy"], false, "{json}");
    // It starts, is brought what it lacks, and counts: without it there is no majority.
    nodes.nodes[at].start();
    nodes.publish(20);
    nodes.nodes[(at + 2) % NODES].kill();
    (21..25).for_each(|number| nodes.publish(number));
    nodes.expect(25);
    nodes.nodes[at].kill();
    let (code, said) = doctor(&[dir]);
    assert_eq!(code, Some(0), "healed: {said}");
}

/// What of a subject is to be seen nowhere.
const MARK: &str = "kestrel-over-the-weir";

fn files_below(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"))
    {
        match entry.file_type().expect("a kind").is_dir() {
            true => files_below(&entry.path(), into),
            false => into.push(entry.path()),
        }
    }
}

/// Files of the nodes' directories that hold the mark.
fn marked(nodes: &Nodes) -> Vec<PathBuf> {
    let mut files = Vec::new();
    files_below(nodes.dir.path(), &mut files);
    assert!(files.iter().any(|file| file.display().to_string().contains("/ops/")), "{files:?}");
    let has_mark = |file: &PathBuf| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes())
    };
    files.into_iter().filter(has_mark).collect()
}

/// With a key what the nodes keep and send each other is ciphertext, and the next owner reads it.
#[test]
fn nodes_of_an_encrypted_log_keep_ciphertext_only() {
    for key in ["", "jetstream { key: \"0123456789abcdef0123456789abcdef\" }\n"] {
        let mut nodes = Nodes::new(if key.is_empty() { "quorum-clear" } else { "quorum-sealed" });
        nodes.configure(key);
        nodes.nodes.iter_mut().for_each(Node::start);
        let (mut client, first) = nodes.owner();
        create_stream(&mut client, "Q", &json!({}));
        let subject = format!("Q.{MARK}");
        (0..10).for_each(|n| nodes.publish_to(&subject, n, n.to_string().as_bytes()));
        nodes.nodes[first].kill();
        nodes.expect(10);
        nodes.nodes[first].start();
        (10..20).for_each(|n| nodes.publish_to(&subject, n, n.to_string().as_bytes()));
        nodes.expect(20);
        let found = marked(&nodes);
        assert_eq!(found.is_empty(), !key.is_empty(), "{found:?}");
    }
}

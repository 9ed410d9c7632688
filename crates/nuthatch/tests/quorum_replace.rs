//! Nodes of a cluster are replaced by others while messages are published, wherever its catalog is: real processes.

#[cfg(feature = "etcd")]
#[path = "quorum_nodes/etcd.rs"]
mod etcd;
mod quorum_nodes;
mod support;

use quorum_nodes::history::History;
use quorum_nodes::{ACCOUNTS, ANSWER, Home, Node, Nodes, ask};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::TIMEOUT;
#[cfg(feature = "etcd")]
use support::signal;

/// Three nodes and a stream on all of them.
fn with_stream(home: Home, name: &str) -> Nodes {
    with_stream_so(home, name, ACCOUNTS)
}

/// The same, of nodes with this in their configuration file.
fn with_stream_so(home: Home, name: &str, config: &str) -> Nodes {
    let mut nodes = Nodes::at(home, name);
    nodes.configure(config);
    nodes.nodes.iter_mut().for_each(Node::start);
    nodes.create_replicated();
    nodes
}

/// Replaces each of the three nodes, the last one first, by a new one; `kills` says whether it is dead by then. Otherwise no
/// client hears an error of that.
fn replace_all(home: Home, name: &str, kills: bool) {
    let mut nodes = with_stream(home, name);
    let mut history = History::begin(&mut nodes.client(0), "");
    for old in [2, 1, 0] {
        let new = nodes.add();
        nodes.nodes[new].start();
        nodes.wait_text(new, "this node is a spare of the cluster");
        // The next ones are published at the nodes that there are then, under the ids that follow.
        let stays = if old == 2 { 0 } else { new - 1 };
        let clients = (nodes.client(stays), nodes.client(stays));
        let (load, ()) = history.during(clients, |progress| {
            progress.more(20);
            replace(&mut nodes, old, new, kills);
            progress.more(20);
        });
        let said = || nodes.said();
        if kills {
            load.assert_in_flight_only(1, said)
        } else {
            load.assert_fine(said)
        }
        nodes.expect(history.acked());
    }
    let told = ask(&nodes.nodes[5], "NODES", &Value::Null).expect("answered");
    let all = told["nodes"].as_array().expect("a list");
    let names: Vec<_> = all.iter().filter_map(|node| node["name"].as_str()).collect();
    assert_eq!(names, ["n3", "n4", "n5"]);
    assert!(all.iter().all(|node| node["spare"] == false));
    history.expect_right(&nodes, &nodes.nodes[5], "");
    if !matches!(home, Home::Bucket) {
        nodes.expect_equal_replicas(&[3, 4, 5]);
    }
    // A majority of the new ones is enough, and needed.
    nodes.nodes[3].kill();
    nodes.publish(history.acked());
    nodes.expect(history.acked() + 1);
}

/// A node is replaced by a new one, and ends.
fn replace(nodes: &mut Nodes, old: usize, new: usize, kills: bool) {
    if kills {
        nodes.nodes[old].kill();
    }
    let (old_name, new_name) = (nodes.nodes[old].name.clone(), nodes.nodes[new].name.clone());
    let body = json!({"old": old_name, "new": new_name});
    ask(&nodes.nodes[new], "REPLACE", &body).expect("it begins");
    nodes.wait_removed(new, &old_name);
    if !kills {
        let node = &mut nodes.nodes[old];
        assert_ne!(node.ended().code(), Some(0), "{}", node.text());
        let said = format!("node {old_name} was removed from the cluster: node {new_name} has");
        nodes.wait_text(old, &said);
    }
}

#[test]
fn each_of_three_nodes_is_replaced_under_load() {
    replace_all(Home::BuiltIn, "replace-alive", false);
}

#[test]
fn each_of_three_nodes_is_replaced_after_it_was_killed() {
    replace_all(Home::BuiltIn, "replace-dead", true);
}

#[test]
fn each_of_three_nodes_is_replaced_under_load_with_the_catalog_in_a_directory() {
    replace_all(Home::Directory, "replace-stored-alive", false);
}

#[test]
fn each_of_three_nodes_is_replaced_after_it_was_killed_with_the_catalog_in_a_directory() {
    replace_all(Home::Directory, "replace-stored-dead", true);
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "`just proof --part cluster-suites`: together they take minutes"]
fn each_of_three_nodes_is_replaced_under_load_with_the_catalog_in_etcd() {
    replace_all(etcd::IN_ETCD, "replace-etcd-alive", false);
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "`just proof --part cluster-suites`: together they take minutes"]
fn each_of_three_nodes_is_replaced_after_it_was_killed_with_the_catalog_in_etcd() {
    replace_all(etcd::IN_ETCD, "replace-etcd-dead", true);
}

#[test]
fn each_of_three_nodes_without_disks_is_replaced_under_load() {
    replace_all(Home::Bucket, "replace-bucket-alive", false);
}

#[test]
fn a_node_that_hangs_is_replaced_and_connected_no_more() {
    replace_one_that_hangs(Home::BuiltIn, "replace-hangs");
}

#[test]
fn a_node_that_hangs_is_replaced_with_the_catalog_in_a_directory() {
    replace_one_that_hangs(Home::Directory, "replace-stored-hangs");
}

/// Its machine goes on taking what is sent to it.
fn replace_one_that_hangs(home: Home, name: &str) {
    let mut nodes = with_stream(home, name);
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    nodes.nodes[2].signal("-STOP");
    ask(&nodes.nodes[0], "REPLACE", &json!({"old": "n2"})).expect("any spare");
    nodes.wait_removed(0, "n2");
    // The accounts are A, SYS and the global one.
    (0..2).for_each(|at| nodes.wait_times(at, "Node n2 is connected no more", 3));
    // What all nodes have to know of is not held up by it.
    let config = json!({"name": "W", "subjects": ["W.>"], "num_replicas": 3}).to_string();
    let created =
        nodes.owner().0.request("$JS.API.STREAM.CREATE.W", b"", config.as_bytes(), ANSWER);
    let created = created.expect("answered");
    let told = String::from_utf8_lossy(&created.payload);
    assert!(!told.contains("\"error\""), "{told}");
    nodes.nodes[2].signal("-CONT");
    let node = &mut nodes.nodes[2];
    assert_ne!(node.ended().code(), Some(0), "{}", node.text());
    nodes.wait_text(2, "node n2 was removed from the cluster: node n3 has taken its place");
}

#[test]
fn a_removed_node_that_comes_back_says_so_and_deletes_nothing() {
    come_back(Home::BuiltIn, "replace-back");
}

#[test]
fn a_removed_node_comes_back_to_a_catalog_in_a_directory_and_says_so() {
    come_back(Home::Directory, "replace-stored-back");
}

fn come_back(home: Home, name: &str) {
    let mut nodes = with_stream(home, name);
    (0..10).for_each(|number| nodes.publish(number));
    let no_spare = ask(&nodes.nodes[0], "REPLACE", &json!({"old": "n2"})).expect_err("no spare");
    assert!(no_spare.contains("has no spare") && no_spare.contains("--routes"), "{no_spare}");
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    // It takes clients, and does not count as a keeper.
    nodes.publish_at(new, 10);
    let unknown =
        ask(&nodes.nodes[new], "REPLACE", &json!({"old": "n9"})).expect_err("no such node");
    assert!(unknown.contains("no node n9") && unknown.contains("n0, n1, n2, n3"), "{unknown}");
    nodes.nodes[2].kill();
    ask(&nodes.nodes[0], "REPLACE", &json!({"old": "n2"})).expect("any spare");
    nodes.wait_removed(0, "n2");
    let store = nodes.dir.path().join("n2/nuthatch/quorum");
    let files = |dir: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("there").map(|entry| entry.expect("read"));
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let before = files(&store);
    for _ in 0..2 {
        nodes.nodes[2].start();
        let node = &mut nodes.nodes[2];
        assert_ne!(node.ended().code(), Some(0), "{}", node.text());
    }
    nodes.wait_times(2, "node n2 was removed from the cluster: node n3 has taken its place", 2);
    nodes.wait_text(2, "nothing was deleted");
    let after = files(&store);
    assert!(before.iter().all(|name| after.contains(name)), "{before:?} {after:?}");
    // An empty directory does not bring the name back.
    std::fs::rename(nodes.dir.path().join("n2"), nodes.dir.path().join("n2-kept")).expect("moved");
    nodes.nodes[2].start();
    assert_ne!(nodes.nodes[2].ended().code(), Some(0));
    match home {
        Home::BuiltIn => nodes.wait_text(2, "its name does not come back"),
        // The catalog knows all that were nodes.
        _ => nodes.wait_times(2, "node n2 was removed from the cluster", 3),
    }
    nodes.publish(11);
    nodes.expect(12);
}

#[test]
fn a_node_that_stays_away_is_replaced_by_itself() {
    stay_away(Home::BuiltIn, "replace-away");
}

#[test]
fn a_node_that_stays_away_is_replaced_by_itself_with_the_catalog_in_a_directory() {
    stay_away(Home::Directory, "replace-stored-away");
}

/// With `replace_after` whoever leads the catalog does it, or the first node. One that somebody has drained is left alone.
fn stay_away(home: Home, name: &str) {
    let mut nodes = with_stream_so(
        home,
        name,
        &format!("{ACCOUNTS}\njetstream {{ quorum {{ replace_after: '10s' }} }}"),
    );
    (0..10).for_each(|number| nodes.publish(number));
    ask(&nodes.nodes[0], "DRAIN", &json!({"node": "n1", "drain": true})).expect("it begins");
    nodes.nodes[2].kill();
    wait_any_text(
        &nodes,
        "node n2 has not been heard for 10s (replace_after), and there is no spare",
    );
    let new = nodes.add();
    nodes.nodes[new].start();
    nodes.wait_text(new, "this node is a spare of the cluster");
    nodes.wait_removed(new, "n2");
    wait_any_text(&nodes, "(replace_after): the spare n3 takes its place");
    nodes.publish(10);
    nodes.expect(11);
    let another = nodes.add();
    nodes.nodes[another].start();
    nodes.wait_text(another, "this node is a spare of the cluster");
    nodes.nodes[1].kill();
    std::thread::sleep(Duration::from_secs(15));
    let told = ask(&nodes.nodes[new], "NODES", &Value::Null).expect("answered");
    assert!(told["replacing"].is_null(), "n1 is drained: {told}");
    nodes.nodes[1].start();
    ask(&nodes.nodes[new], "DRAIN", &json!({"node": "n1", "drain": false})).expect("it ends");
    nodes.nodes[1].kill();
    nodes.wait_removed(new, "n1");
    nodes.publish(11);
    nodes.expect(12);
}

/// Waits until one of the nodes has said something.
fn wait_any_text(nodes: &Nodes, text: &str) {
    let deadline = Instant::now() + 3 * TIMEOUT;
    while !nodes.nodes.iter().any(|node| node.text().contains(text)) {
        let said: Vec<_> = nodes.nodes.iter().map(Node::text).collect();
        assert!(Instant::now() < deadline, "nobody says {text:?}\n{}", said.join("\n--\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

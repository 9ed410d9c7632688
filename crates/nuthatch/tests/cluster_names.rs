//! Nodes that find each other by names: of a hosts file of their own, which takes root.

mod quorum_nodes;
mod support;

use quorum_nodes::{Node, Nodes};
use std::process::Command;
use support::TempDir;

const KEY: &str = "a secret of all nodes, long enough for that";

/// Three nodes with names in their routes; their port, which is the same on three addresses.
fn named(name: &str, catalog: Option<&str>) -> (Nodes, u16) {
    let dir = TempDir::new(name);
    let shared = format!("file://{}", dir.path().join("c").display());
    let mut nodes = Nodes::with_catalog(dir, catalog.unwrap_or(&shared));
    nodes.give_keys(&[KEY; 3]);
    let port = quorum_nodes::free_ports(1)[0];
    let routes: Vec<String> = (0..3).map(|at| format!("n{at}.test:{port}")).collect();
    let hosts = nodes.dir.path().join("hosts");
    for at in 0..3 {
        listen(&mut nodes.nodes[at], at + 1, port);
        give(&mut nodes.nodes[at], "--routes", routes.join(","));
        nodes.nodes[at].hosts = Some(hosts.clone());
    }
    (nodes, port)
}

fn give(node: &mut Node, flag: &str, value: String) {
    let at = node.args.iter().position(|arg| arg == flag).expect("it is given");
    node.args[at + 1] = value;
}

/// Has a node listen on the address of loopback that ends so.
fn listen(node: &mut Node, last: usize, port: u16) {
    give(node, "--cluster-listen", format!("127.0.0.{last}:{port}"));
}

/// Where nodes are, as the names say: the last bytes of their addresses; 0: nobody knows the name. The file stays the one
/// that is mounted.
fn name_nodes(nodes: &Nodes, last: &[usize]) {
    let line = |(at, last): (usize, &usize)| format!("127.0.0.{last} n{at}.test\n");
    let known = last.iter().enumerate().filter(|(_, last)| **last > 0);
    let text: String = known.map(line).collect();
    std::fs::write(nodes.dir.path().join("hosts"), text).expect("written");
}

fn find_each_other(name: &str, catalog: Option<&str>) {
    let mut probe = Command::new("unshare");
    let probe = probe.args(["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]);
    if !probe.output().is_ok_and(|done| done.status.success()) {
        eprintln!("nothing can be mounted here: skipped");
        return;
    }
    let (mut nodes, port) = named(name, catalog);
    name_nodes(&nodes, &[1, 2, 0]);
    nodes.nodes.iter_mut().for_each(Node::start);
    let waits =
        format!("no cluster is founded while names of its nodes are not found: n2.test:{port}");
    (0..3).for_each(|at| nodes.wait_text(at, &waits));
    name_nodes(&nodes, &[1, 2, 3]);
    nodes.create_replicated();
    nodes.publish(0);
    // It comes back elsewhere, and nothing but its name says so.
    nodes.nodes[2].kill();
    name_nodes(&nodes, &[1, 2, 4]);
    listen(&mut nodes.nodes[2], 4, port);
    nodes.nodes[2].start();
    (0..2).for_each(|at| {
        nodes.wait_text(at, &format!("n2.test:{port} of the routes is 127.0.0.4:{port}"))
    });
    nodes.publish(1);
    // Without another node its copy is needed.
    nodes.nodes[0].kill();
    nodes.publish(2);
    nodes.expect(3);
    // A name that nobody knows keeps no node of a cluster from starting.
    nodes.nodes[1].kill();
    name_nodes(&nodes, &[0, 2, 4]);
    nodes.nodes[1].start();
    nodes.publish(3);
    nodes.expect(4);
}

#[test]
fn nodes_with_a_built_in_catalog_find_each_other_by_names() {
    find_each_other("names-built-in", Some("built-in"));
}

#[test]
fn nodes_with_a_shared_catalog_find_each_other_by_names() {
    find_each_other("names-shared", None);
}

//! Nodes in zones.

use super::{Nodes, lively, wait};
use std::thread;
use std::time::Duration;

#[test]
fn logs_are_owned_in_the_zones_of_owners_while_a_node_there_can() {
    let mut nodes = Nodes::start_in("owner-zones", (true, lively()), ["a", "a", "b"], &["b", "x"]);
    wait("the node there owns all", || nodes.owned_by(2).len() == 3);
    let epochs = || [0, 1, 2].map(|log| nodes.log(2, log).owned());
    let before = epochs();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(epochs(), before, "nothing is moved to and fro");
    drop(nodes.clusters.pop());
    wait("each of the others owns its own", || {
        nodes.log(0, 0).owned().is_some() && nodes.log(1, 1).owned().is_some()
    });
}

#[test]
fn nodes_know_the_zones_of_those_that_they_have_met() {
    let nodes = Nodes::start_in("zones", (false, lively()), ["a", "", "a"], &[]);
    let zone = |of: usize, node: usize| nodes.clusters[of].nodes().nodes[node].zone.clone();
    for node in 0..3 {
        wait("it has met all", || {
            [0, 2].iter().all(|other| zone(node, *other).is_some_and(|zone| zone.as_str() == "a"))
                && nodes.clusters[node].nodes().zones.without_zone == ["n1"]
        });
        assert_eq!(zone(node, 1), None);
        let risk = nodes.clusters[node].nodes().zones.risk().expect("two of three are there");
        let text = "the loss of zone a (n0, n2) leaves 1 of 3 nodes that keep the logs: nothing is taken then";
        assert_eq!(risk.to_string(), text);
    }
}

//! Logs of which clients ask something.

use super::{Nodes, lively, wait};
use nuthatch_cluster::{ASKED, Loads, LogLoad, LogNumber};
use nuthatch_quorum::types::NodeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// What is asked of each log, and of clients of which node, as the nodes are told it again and again.
struct Told {
    ends: Arc<AtomicBool>,
    teller: Option<JoinHandle<()>>,
}

impl Told {
    fn new(nodes: &Nodes, asked: [(u64, usize); 3]) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (clusters, ended) = (nodes.clusters.clone(), Arc::clone(&ends));
        let teller = thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                for node in 0..3 {
                    let owned = |at: usize, log: usize| clusters[at].logs()[log].owned().is_some();
                    let load = |log: usize| LogLoad {
                        rate: asked[log].0,
                        from: BTreeMap::from([(format!("n{}", asked[log].1), asked[log].0)]),
                    };
                    let own = (0..3).filter(|log| owned(node, *log));
                    let own = own.map(|log| (LogNumber(log as u8), load(log))).collect();
                    let rate = |at: usize| {
                        (0..3).filter(|log| owned(at, *log)).map(|log| asked[log].0).sum()
                    };
                    let others = (0..3).filter(|at| *at != node);
                    let others = others.map(|at| (format!("n{at}"), rate(at))).collect();
                    clusters[node].set_loads(Loads { own, others });
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { ends, teller: Some(teller) }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}

fn owners(nodes: &Nodes) -> [Option<usize>; 3] {
    [0, 1, 2].map(|log| (0..3).find(|node| nodes.log(*node, log).owned().is_some()))
}

fn rest_there(nodes: &Nodes) {
    let before = owners(nodes);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(owners(nodes), before, "nothing is moved to and fro");
}

/// A log goes to the zone of its clients, away again from where it makes a node the busiest, and back to its place when nothing
/// is asked any more.
#[test]
fn a_log_goes_to_its_clients_and_away_from_other_busy_logs() {
    let nodes = Nodes::start_in("loads", (true, lively()), ["a", "b", "c"], &[]);
    wait("each owns its own", || owners(&nodes) == [Some(0), Some(1), Some(2)]);
    let told = Told::new(&nodes, [(2 * ASKED, 2), (0, 0), (0, 0)]);
    wait("it goes to its clients", || owners(&nodes) == [Some(2), Some(1), Some(2)]);
    rest_there(&nodes);
    drop(told);
    let told = Told::new(&nodes, [(4 * MIB, 2), (3 * MIB, 1), (4 * MIB, 2)]);
    wait("two busy logs are not at one node", || {
        let [one, other, third] = owners(&nodes);
        let all = one.is_some() && other.is_some() && third.is_some();
        all && one != other && other != third && one != third
    });
    rest_there(&nodes);
    drop(told);
    let _told = Told::new(&nodes, [(0, 0), (0, 0), (0, 0)]);
    wait("each owns its own again", || owners(&nodes) == [Some(0), Some(1), Some(2)]);
}

/// Somebody says who is to own a log: it goes there, comes back there after that node was away, whatever is asked of it, and goes
/// to its place when that is taken back. So with any catalog.
fn owned_where_people_want(built_in: bool) {
    let name = if built_in { "moved-built-in" } else { "moved-directory" };
    let nodes = Nodes::start_in(name, (built_in, lively()), ["a", "b", "c"], &[]);
    wait("each owns its own", || owners(&nodes) == [Some(0), Some(1), Some(2)]);
    let move_log = |at: usize, to: Option<&str>| nodes.clusters[at].move_log("default", to, false);
    let would = || nodes.clusters[1].move_log("default", Some("n1"), true).expect("it could");
    wait("it is heard who owns it", || would().owner.as_deref() == Some("n0"));
    assert_eq!(would().before, None);
    let moved = move_log(2, Some("n1")).expect("it is taken");
    assert_eq!((moved.log.as_str(), moved.before), ("default", None));
    wait("it goes where it is to be", || owners(&nodes) == [Some(1), Some(1), Some(2)]);
    let told = Told::new(&nodes, [(4 * MIB, 2), (4 * MIB, 2), (0, 0)]);
    wait("the other one of its node goes", || {
        let [first, second, _] = owners(&nodes);
        first == Some(1) && second.is_some_and(|owner| owner != 1)
    });
    rest_there(&nodes);
    drop(told);
    // A handover for another reason: it comes back by itself.
    wait("somebody else has it for a moment", || {
        nodes.log(1, 0).hand_over_to(NodeId(3));
        nodes.log(1, 0).owned().is_none()
    });
    wait("it is back", || owners(&nodes)[0] == Some(1));
    let again = move_log(0, None).expect("it is taken back");
    assert_eq!(again.before.as_deref(), Some("n1"));
    wait("each owns its own again", || owners(&nodes) == [Some(0), Some(1), Some(2)]);
    let refused = |log: &str, to: &str| {
        let refused = nodes.clusters[0].move_log(log, Some(to), false);
        refused.expect_err("refused").to_string()
    };
    let no_log = "the cluster has no quorum log other: its logs are default, default-1, default-2";
    assert_eq!(refused("other", "n1"), no_log);
    assert!(refused("default", "n9").contains("the cluster has no node n9"));
    assert_eq!(nodes.clusters[0].move_log("default", None, false).expect("as it is").before, None);
}

#[test]
fn a_log_is_owned_where_people_want_by_the_built_in_catalog() {
    owned_where_people_want(true);
}

#[test]
fn a_log_is_owned_where_people_want_by_a_catalog_in_a_directory() {
    owned_where_people_want(false);
}

//! Logs of which clients ask something.

use super::{Nodes, lively, wait};
use nuthatch_cluster::{ASKED, Loads, LogLoad, LogNumber};
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

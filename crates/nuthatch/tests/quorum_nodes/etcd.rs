//! Nodes with a catalog in an etcd of the test (`tests/etcd.sh`), which ends with them. Without one the tests fail, and say what
//! to run. Whoever has this as a module has `signal` at its root.

#![allow(dead_code)] // each test binary uses its part

#[path = "../../../nuthatch-etcd/tests/server/mod.rs"]
pub mod etcd_server;

use crate::quorum_nodes::{Home, Nodes};
use crate::support::TempDir;
use etcd_server::EtcdServer;

/// The catalog is in an etcd, and the logs on the disks of the nodes.
pub const IN_ETCD: Home = Home::Elsewhere(nodes);

/// An etcd in a directory, and a catalog in it.
pub fn started(dir: &TempDir) -> (EtcdServer, String) {
    let etcd = EtcdServer::start(&dir.path().join("e"));
    let catalog = format!("etcd://127.0.0.1:{}/nuthatch/c1", etcd.port);
    (etcd, catalog)
}

fn nodes(name: &str) -> Nodes {
    let dir = TempDir::new(name);
    let (etcd, catalog) = started(&dir);
    let mut nodes = Nodes::with_catalog(dir, &catalog);
    nodes.beside.push(Box::new(etcd));
    nodes
}

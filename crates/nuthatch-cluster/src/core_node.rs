//! A node without JetStream: it keeps no log and is in no catalog, and its clients have everything from the other nodes.
//!
//! It has a node port, so that others of its kind find it, and knows the cluster by what the nodes that its routes name tell
//! it: which cluster it is, where the other nodes are, what the quorum logs are called. Who asks is the server
//! (`node_service`); here is what was told.

use crate::channel::{Channel, TLS_HANDSHAKE};
use crate::config::ClusterConfig;
use crate::hello::{CORE_ONLY, Hello, WRONG_PORT};
use crate::key::ClusterKey;
use crate::life::Life;
use crate::line_limit::LineLimit;
use crate::link_hello::{Beyond, LINK_BEGINS, TOLD_MAX};
use crate::membership::Membership;
use crate::myself::OnLink;
use crate::places::Places;
use crate::route::is_own;
use crate::routes::Routes;
use crate::start_error::StartError;
use nuthatch_log::Reporter;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Connections at a time that have not shown yet what they are, and those of one address.
const STRANGERS: usize = 32;
const STRANGERS_OF_ADDRESS: usize = 16;

/// How long somebody who connected may take to say what that is.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

/// What a node told counts for so long when it is not heard any more.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// A node without JetStream.
pub struct CoreNode {
    listen: SocketAddr,
    key: Option<ClusterKey>,
    routes: Arc<Routes>,
    life: Life,
    report: Reporter,
    lines: LineLimit,
    links: OnceLock<OnLink>,
    cluster: OnceLock<u128>,
    told: Mutex<Told>,
}

/// What nodes have told.
#[derive(Default)]
struct Told {
    /// By each node that keeps logs, by where it was asked: when, and where others are. What nodes without JetStream tell is
    /// what they have heard themselves, so nothing is told round and round.
    keepers: BTreeMap<SocketAddr, (Instant, Vec<SocketAddr>)>,
    cores: BTreeMap<SocketAddr, (Instant, Vec<SocketAddr>)>,
    /// Names of the quorum logs; never fewer than before.
    logs: Vec<String>,
}

impl Told {
    /// Forgets what was told by nodes that are not heard any more.
    fn forget(&mut self, now: Instant) {
        for told in [&mut self.keepers, &mut self.cores] {
            told.retain(|_, (at, _)| now.duration_since(*at) < TOLD_FOR);
        }
    }
}

impl CoreNode {
    /// Takes the port of a node, and begins to look names of its routes up.
    ///
    /// # Errors
    /// [`StartError`]: the port cannot be had, or the node cannot be set up so.
    pub fn start(config: &ClusterConfig, report: Reporter) -> Result<Arc<Self>, StartError> {
        config.check_reach()?;
        let listener = TcpListener::bind(config.listen)
            .map_err(|source| StartError::Listen { address: config.listen, source })?;
        let routes = Arc::new(Routes::of(config.listen, config.routes.clone()));
        let life = Life::default();
        routes.look_up(&life, &report)?;
        let node = Arc::new(Self {
            listen: config.listen,
            key: config.key.clone(),
            routes,
            life,
            report,
            lines: LineLimit::default(),
            links: OnceLock::new(),
            cluster: OnceLock::new(),
            told: Mutex::default(),
        });
        node.serve(listener)?;
        Ok(node)
    }

    /// What ends it.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life.clone()
    }

    /// The cluster; none: no node of it was heard yet.
    #[must_use]
    pub fn found(&self) -> Option<u128> {
        self.cluster.get().copied()
    }

    /// Where nodes are that can be asked: those of its own routes, what nodes that keep logs tell, and then the rest.
    #[must_use]
    pub fn known(&self) -> Vec<SocketAddr> {
        let mut all = self.routes.others();
        let mut told = self.told.lock();
        told.forget(Instant::now());
        let nodes = told.keepers.values().chain(told.cores.values()).flat_map(|(_, nodes)| nodes);
        for address in nodes {
            if !all.contains(address) && !is_own(self.listen, *address) {
                all.push(*address);
            }
            if all.len() >= TOLD_MAX {
                break;
            }
        }
        all
    }

    /// Names of the cluster's quorum logs, as far as they were told.
    #[must_use]
    pub fn log_names(&self) -> Vec<String> {
        self.told.lock().logs.clone()
    }

    /// Takes what the node at this address has told. The first cluster that was heard of is this node's; `false`: it
    /// belongs to another one.
    pub fn hear(&self, at: SocketAddr, cluster: u128, beyond: Beyond) -> bool {
        if *self.cluster.get_or_init(|| cluster) != cluster {
            return false;
        }
        let mut told = self.told.lock();
        let heard = (Instant::now(), beyond.nodes);
        match beyond.is_core {
            true => told.cores.insert(at, heard),
            false => told.keepers.insert(at, heard),
        };
        if beyond.logs.len() > told.logs.len() {
            told.logs = beyond.logs;
        }
        true
    }

    fn serve(self: &Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let places = Places::new(STRANGERS, STRANGERS_OF_ADDRESS);
        let (node, life) = (Arc::downgrade(self), self.life.clone());
        self.life.accept(listener, move |stream, from| {
            let Some(node) = node.upgrade() else { return };
            let Some(place) = places.take(from.ip()) else { return };
            let greet = move || {
                node.greet(stream);
                drop(place);
            };
            // Without a thread the connection ends with what was to go into it.
            drop(life.spawn_for_one("node-in", greet));
        })
    }

    /// Hands a connection for messages of clients on, and tells everybody else what this port is.
    fn greet(&self, stream: TcpStream) {
        let mut first = [0];
        let looked = stream
            .set_read_timeout(Some(BEGINS_WITHIN))
            .and_then(|()| stream.set_write_timeout(Some(BEGINS_WITHIN)))
            .and_then(|()| stream.peek(&mut first));
        let told = match (looked, &self.key) {
            (Ok(1), _) if first[0] == LINK_BEGINS => {
                // Without anybody to take it the other node comes again.
                if let Some(take) = self.links.get() {
                    take(stream);
                }
                return;
            }
            (Ok(1), Some(key)) if first[0] == TLS_HANDSHAKE => {
                let deadline = Instant::now() + BEGINS_WITHIN;
                // Whoever does not have the key is told nothing.
                let channel = Channel::inward(stream, Some(key), deadline);
                let _ = channel.and_then(|mut channel| {
                    channel.write_all(CORE_ONLY)?;
                    channel.flush()
                });
                return;
            }
            (Ok(1), None) if Hello::may_begin(&first) => CORE_ONLY,
            _ => WRONG_PORT,
        };
        let _ = (&stream).write_all(told);
    }
}

impl Membership for CoreNode {
    /// # Panics
    /// The cluster is not found yet.
    fn id(&self) -> u128 {
        self.found().expect("nothing of the cluster runs before it is found")
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.key.as_ref()
    }

    fn others(&self) -> Vec<SocketAddr> {
        self.known()
    }

    /// The nodes that keep logs and have answered this one.
    fn tells(&self) -> Vec<SocketAddr> {
        let mut told = self.told.lock();
        told.forget(Instant::now());
        told.keepers.keys().copied().collect()
    }

    /// Those that know refuse the ones that were removed.
    fn removed(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn has(&self, _: &str) -> bool {
        false
    }

    fn log_names(&self) -> Vec<String> {
        Self::log_names(self)
    }

    fn core_port(&self) -> Option<SocketAddr> {
        Some(self.listen)
    }

    fn take_links(&self, taker: OnLink) {
        let _ = self.links.set(taker);
    }

    fn report_link(&self, text: &str) {
        self.lines.say(Instant::now(), text, |text| self.report.say(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn config(listen: SocketAddr) -> ClusterConfig {
        ClusterConfig {
            name: "edge".to_owned(),
            listen,
            routes: vec!["127.0.0.1:1".parse().expect("a route")],
            catalog: crate::config::BUILT_IN.to_owned(),
            dir: "/nowhere".into(),
            key: None,
            may_be_open: false,
            logs: crate::config::Logs::default(),
            memory: None,
            store: None,
            replace_after: None,
            lease: crate::config::LEASE,
            zone: None,
            owner_zones: vec![],
            protocol_max: nuthatch_catalog_group::Protocol::NEWEST,
            keys: crate::about::KeyNames::default(),
            program: String::new(),
        }
    }

    fn free() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound")
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn it_goes_by_the_cluster_that_it_heard_of_first() {
        let node = CoreNode::start(&config(free()), Reporter::new(|_| {})).expect("started");
        assert_eq!((node.found(), node.known()), (None, vec![at(1)]));
        let logs = vec!["default".to_owned()];
        let told = |nodes, logs| Beyond { nodes, logs, ..Beyond::default() };
        assert!(node.hear(at(1), 7, told(vec![at(2), node.listen], logs.clone())));
        assert!(!node.hear(at(9), 8, told(vec![at(3)], vec![])), "another cluster");
        assert!(
            node.hear(at(2), 7, told(vec![at(4)], vec![])),
            "one that does not know the logs yet"
        );
        assert_eq!((node.id(), node.log_names()), (7, logs));
        assert_eq!(node.known(), [at(1), at(2), at(4)], "and never itself");
        assert_eq!(node.tells(), [at(1), at(2)], "who has answered");
        let of_core = Beyond { is_core: true, ..told(vec![at(5)], vec![]) };
        assert!(node.hear(at(6), 7, of_core));
        assert_eq!(node.known(), [at(1), at(2), at(4), at(5)]);
        assert_eq!(
            node.tells(),
            [at(1), at(2)],
            "what others without JetStream tell goes no further"
        );
        node.life().end().expect("ended");
    }

    #[test]
    fn its_port_says_what_it_is() {
        let listen = free();
        let node = CoreNode::start(&config(listen), Reporter::new(|_| {})).expect("started");
        for (begins, told) in [(&b"N"[..], CORE_ONLY), (b"CONNECT {}\r\n", WRONG_PORT)] {
            let mut stream = TcpStream::connect(listen).expect("connected");
            stream.write_all(begins).expect("written");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            let mut said = vec![0; told.len()];
            stream.read_exact(&mut said).expect("said");
            assert_eq!(String::from_utf8_lossy(&said), String::from_utf8_lossy(told));
        }
        node.life().end().expect("ended");
    }
}

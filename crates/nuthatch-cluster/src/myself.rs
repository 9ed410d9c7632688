//! A node as its connections know it: what all its logs share, and what is each one's own.

use crate::group::Door;
use crate::group_port::GroupPort;
use crate::hello::{Hello, Lane};
use crate::host::Host;
use crate::key::ClusterKey;
use crate::life::Life;
use crate::line_limit::LineLimit;
use crate::links::Local;
use nuthatch_catalog_group::LogNumber;
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Takes connections of other nodes for messages of clients.
pub type OnLink = Box<dyn Fn(TcpStream) + Send + Sync>;

/// What all logs of a node share.
pub(crate) struct Myself {
    pub(crate) id: NodeId,
    pub(crate) cluster: u128,
    pub(crate) key: Option<ClusterKey>,
    pub(crate) life: Life,
    pub(crate) door: Option<Arc<Door>>,
    /// Of what other nodes, and those that are none, can have said.
    pub(crate) lines: LineLimit,
    pub(crate) links: OnceLock<OnLink>,
}

/// What the connections for the beats of all logs know of this node.
pub(crate) struct OfAllLogs {
    /// What those of the first log know: for the others the node and its disk are the same.
    pub(crate) first: Arc<dyn Local>,
    pub(crate) hosts: Vec<Arc<Host>>,
}

impl Local for OfAllLogs {
    fn hello(&self, lane: Lane) -> Hello {
        self.first.hello(lane)
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.first.key()
    }

    fn life(&self) -> &Life {
        self.first.life()
    }

    fn report(&self, text: &str) {
        self.first.report(text);
    }

    fn link(&self, stream: TcpStream) {
        self.first.link(stream);
    }

    fn group(&self) -> Option<&dyn GroupPort> {
        self.first.group()
    }

    fn lost(&self, node: NodeId) {
        self.hosts.iter().for_each(|host| host.beats_lost(node));
    }

    fn accepts(&self, hello: &Hello, from: SocketAddr) -> bool {
        self.first.accepts(hello, from)
    }
}

/// What the connections of one log know of this node.
pub(crate) struct OfLog {
    pub(crate) node: Arc<Myself>,
    pub(crate) log: LogNumber,
    pub(crate) host: Arc<Host>,
}

impl Local for OfLog {
    fn hello(&self, lane: Lane) -> Hello {
        let incarnation = match &self.node.door {
            Some(door) if lane == Lane::Group => Incarnation(door.me().0.into()),
            _ => self.host.status().incarnation,
        };
        let (cluster, node, log) = (self.node.cluster, self.node.id, self.log);
        Hello { cluster, node, incarnation, boots: BootCount(0), lane, log }
    }

    fn key(&self) -> Option<&ClusterKey> {
        self.node.key.as_ref()
    }

    fn life(&self) -> &Life {
        &self.node.life
    }

    fn report(&self, text: &str) {
        self.node.lines.say(Instant::now(), text, |text| self.host.report(text));
    }

    fn link(&self, stream: TcpStream) {
        // Without anybody to take it the other node comes again.
        if let Some(take) = self.node.links.get() {
            take(stream);
        }
    }

    fn group(&self) -> Option<&dyn GroupPort> {
        self.node.door.as_deref().map(|door| door as &dyn GroupPort)
    }

    fn lost(&self, node: NodeId) {
        self.host.handle(Event::Reset(node));
    }

    fn accepts(&self, hello: &Hello, from: SocketAddr) -> bool {
        if matches!(hello.lane, Lane::Founding | Lane::Join) {
            // It does not know yet which cluster it belongs to.
            return self.node.door.is_some();
        }
        if hello.cluster != self.node.cluster {
            self.report(&format!("{from} is a node of another cluster: turned away"));
            return false;
        }
        hello.node != self.node.id
    }
}

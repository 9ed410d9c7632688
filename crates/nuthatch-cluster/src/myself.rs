//! A node as its connections know it: what all its logs share, and what is each one's own.

use crate::about::{About, Versions};
use crate::group::Door;
use crate::group_port::GroupPort;
use crate::hello::{Hello, Lane};
use crate::host::Host;
use crate::key::ClusterKey;
use crate::life::Life;
use crate::line_limit::LineLimit;
use crate::links::Local;
use crate::roll::Roll;
use nuthatch_catalog_group::{LogNumber, Protocol};
use nuthatch_quorum::node::Event;
use nuthatch_quorum::types::{BootCount, Incarnation, NodeId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
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
    pub(crate) roll: Arc<Roll>,
    /// The newest protocol that it may speak.
    pub(crate) newest: Protocol,
    /// What it says of itself to nodes that it beats to.
    pub(crate) about: About,
    /// What each other node said last. There are no more nodes than numbers of nodes.
    pub(crate) met: Mutex<BTreeMap<NodeId, Met>>,
    /// Why nodes were turned away, as people were told.
    pub(crate) turned_away: Mutex<BTreeMap<NodeId, String>>,
}

/// What another node said when it began to beat to this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Met {
    /// What it speaks.
    pub(crate) speaks: Versions,
    /// The version of its program, if it said so.
    pub(crate) program: Option<String>,
}

impl Myself {
    /// What this node speaks: what its cluster has gone on to, and whatever is newer that it knows.
    pub(crate) fn speaks(&self) -> Versions {
        Versions { oldest: self.roll.active(), newest: self.newest }
    }

    /// What a node speaks and which program it is; none: it has not been met since this one began.
    pub(crate) fn met(&self, node: NodeId) -> Option<Met> {
        if node == self.id {
            let program = Some(self.about.program.clone());
            return Some(Met { speaks: self.speaks(), program });
        }
        self.met.lock().get(&node).cloned()
    }

    /// Why a node is turned away that has come last; none: it was not.
    pub(crate) fn turned_away(&self, node: NodeId) -> Option<String> {
        self.turned_away.lock().get(&node).cloned()
    }

    fn meets(&self, node: NodeId, speaks: Versions, about: Option<About>) -> Result<(), String> {
        if let Some(about) = &about
            && let Some(why) = self.about.keys.apart(&about.keys)
        {
            return Err(why);
        }
        self.turned_away.lock().remove(&node);
        // One of the first protocol does not say where it is.
        let program = about.map(|about| {
            self.roll.note_zone(node, about.zone);
            self.roll.note_owner_zones(node, about.owner_zones);
            about.program
        });
        self.met.lock().insert(node, Met { speaks, program });
        Ok(())
    }
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

    fn oldest(&self) -> Protocol {
        self.first.oldest()
    }

    fn about(&self) -> About {
        self.first.about()
    }

    fn meets(&self, hello: &Hello, about: Option<About>) -> Result<(), String> {
        self.first.meets(hello, about)
    }

    fn turns_away(&self, hello: &Hello, from: SocketAddr, why: &str) {
        self.first.turns_away(hello, from, why);
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
        let speaks = self.node.speaks();
        Hello { cluster, node, incarnation, boots: BootCount(0), lane, log, speaks }
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

    fn oldest(&self) -> Protocol {
        self.node.roll.active()
    }

    fn about(&self) -> About {
        self.node.about.clone()
    }

    fn meets(&self, hello: &Hello, about: Option<About>) -> Result<(), String> {
        self.node.meets(hello.node, hello.speaks, about)
    }

    fn turns_away(&self, hello: &Hello, from: SocketAddr, why: &str) {
        if matches!(hello.lane, Lane::Founding | Lane::Join) {
            // It has no number yet, and says itself why it does not join.
            return;
        }
        let former = self.node.turned_away.lock().insert(hello.node, why.to_owned());
        if former.is_none_or(|former| former != why) {
            let name = self.node.roll.name(hello.node);
            self.report(&format!("node {name} at {from} is turned away: {why}"));
        }
    }
}

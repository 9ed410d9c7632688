//! Direct gets of streams that other nodes serve, which this node may answer from what it follows.

use super::Served;
use crate::egress::is_full_node;
use crate::link::own_subject;
use crate::outlet::Outlet;
use std::sync::Arc;

/// What another node says of direct gets when its link joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeGets {
    /// It sends those back that this node can answer. One of a version before does not understand the question.
    pub(crate) sends_back: bool,
    /// Its zone; empty: it has none.
    pub(crate) zone: Box<str>,
}

/// Who serves a stream that this node may follow.
pub(crate) struct StreamOwner {
    outlet: Arc<Outlet>,
    token: Box<str>,
    /// What it does with direct gets.
    pub(crate) gets: NodeGets,
    /// Name of the stream's log.
    pub(crate) log: String,
}

impl StreamOwner {
    /// True if messages for this outlet go to it.
    pub(crate) fn is_behind(&self, outlet: &Arc<Outlet>) -> bool {
        Arc::ptr_eq(&self.outlet, outlet)
    }

    /// The subject `what` of a message of its own to this node, which nobody else knows.
    pub(crate) fn subject_back(&self, what: &str) -> Option<String> {
        Some(own_subject(&self.outlet.link()?.token, what))
    }

    /// Sends it a message of this node's own, with what a client has sent. Gives it back if so much waits for it that producers
    /// should wait.
    pub(crate) fn send(
        &self,
        what: &str,
        reply: &[u8],
        headers: &[u8],
        body: &[u8],
    ) -> Option<&Arc<Outlet>> {
        let subject = own_subject(&self.token, what);
        let message = super::message_of_node((subject.as_bytes(), reply), headers, body);
        self.outlet.hand_over(message);
        is_full_node(&self.outlet).then_some(&self.outlet)
    }
}

impl Served {
    /// What a node says of direct gets, once it was met.
    pub(crate) fn learn_gets(&self, node: &str, gets: NodeGets) {
        if let Some(table) = self.inner.lock().nodes.get_mut(node) {
            table.gets = gets;
        }
    }

    /// Who serves the stream of this name with direct gets.
    pub(crate) fn owner(&self, name: &str) -> Option<StreamOwner> {
        let inner = self.inner.lock();
        let (node, _, stream) = inner.newest(name)?;
        let table = inner.nodes.get(node)?;
        stream.allow_direct.then(|| StreamOwner {
            outlet: table.outlet.clone(),
            token: table.token.clone(),
            gets: table.gets.clone(),
            log: stream.log.clone(),
        })
    }
}

//! Egress batches: deliveries collected per connection during one socket read or one turn of a
//! sequencer, handed over to the outboxes together.

use crate::buffers;
use crate::member_rng::MemberRng;
use crate::msg_trace::Trace;
use crate::outbox::{Appended, Tally};
use crate::outlet::Outlet;
use bytes::Bytes;
use nuthatch_protocol::wire::leaf::{LeafLine, push_leaf_message_line, queue_names};
use nuthatch_protocol::wire::write;
use nuthatch_streams::Message;
use std::sync::Arc;

/// Connections whose deliveries are collected at a time; beyond that the oldest is handed over.
const SLOTS_MAX: usize = 8;
/// Bodies from this size on are shared with the buffer they came in, where that is not wasteful.
pub const SHARE_BODY_BYTES: usize = 16 * 1024;
/// A slot that has collected this much is handed over at once.
const SLOT_BYTES: usize = 64 * 1024;
/// Share of its bound above which producers wait for a node of the cluster: one in so many. Many of them may be about to
/// add what they have read.
const NODE_FULL_SHARE: usize = 4;

/// True if so much waits for a node of the cluster that producers should wait.
pub(crate) fn is_full_node(outlet: &Outlet) -> bool {
    outlet.leads_to_node() && outlet.outbox.pending() > outlet.outbox.limit() / NODE_FULL_SHARE
}

/// A message to deliver.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its subject, as receivers see it.
    pub subject: &'a [u8],
    /// The subject that it was routed by: another one when a consumer delivers to an inbox.
    pub routed: &'a [u8],
    /// Its reply subject, or empty.
    pub reply: &'a [u8],
    /// Header block, or empty.
    pub headers: &'a [u8],
    /// Body.
    pub body: &'a [u8],
    /// The buffer that `body` lies in.
    pub owner: Option<&'a Bytes>,
}

impl<'a> Outgoing<'a> {
    /// A message that shares nothing.
    #[must_use]
    pub fn from_message(message: &Message<'a>) -> Self {
        let Message { subject, reply, headers, body } = *message;
        Self { subject, routed: subject, reply, headers, body, owner: None }
    }

    fn size(&self) -> usize {
        self.headers.len() + self.body.len()
    }

    /// The body as a share of its buffer, if it is large and pins little besides itself.
    fn shared_body(&self) -> Option<Bytes> {
        if self.body.len() < SHARE_BODY_BYTES {
            return None;
        }
        // A message whose headers were changed lies in another buffer.
        let owner =
            self.owner.filter(|owner| owner.as_ptr_range().contains(&self.body.as_ptr()))?;
        Some(owner.slice_ref(self.body))
    }
}

/// Whom a message goes to, as a client's line says it.
#[derive(Clone, Copy)]
pub(crate) struct Addressee<'a> {
    /// Where it goes out.
    pub(crate) outlet: &'a Arc<Outlet>,
    /// The client's name for its subscription.
    pub(crate) sid: &'a [u8],
    /// The client understands `HMSG`.
    pub(crate) headers: bool,
}

/// Another server that is to get the message under way.
pub(crate) struct LeafTarget {
    pub(crate) outlet: Arc<Outlet>,
    /// Names of queue groups, each followed by a space.
    pub(crate) queues: Vec<u8>,
}

struct EgressSlot {
    outlet: Arc<Outlet>,
    bytes: Vec<u8>,
    tally: Tally,
}

/// Collects deliveries.
#[derive(Default)]
pub struct EgressBatch {
    slots: Vec<EgressSlot>,
    last: usize,
    evict: usize,
    touched: Vec<Arc<Outlet>>,
    /// A connection has more than three quarters of `max_pending` waiting: slow the producer down.
    stalled: bool,
    /// A node of the cluster for which much waits: producers wait too.
    full_node: Option<Arc<Outlet>>,
    /// Other servers that get the message under way: one copy each, whoever listens there.
    leafs: Vec<LeafTarget>,
}

impl EgressBatch {
    /// The buffer that collects for a connection. Whole protocol operations must be appended.
    pub fn buffer(&mut self, outlet: &Arc<Outlet>) -> &mut Vec<u8> {
        let at = self.slot(outlet);
        &mut self.slots[at].bytes
    }

    fn slot(&mut self, outlet: &Arc<Outlet>) -> usize {
        let is_mine = |slot: &EgressSlot| Arc::ptr_eq(&slot.outlet, outlet);
        if self.slots.get(self.last).is_some_and(is_mine) {
            return self.last;
        }
        self.last = match self.slots.iter().position(is_mine) {
            Some(at) => at,
            None => self.open_slot(outlet),
        };
        self.last
    }

    fn open_slot(&mut self, outlet: &Arc<Outlet>) -> usize {
        if self.slots.len() < SLOTS_MAX {
            let bytes = buffers::take_write();
            self.slots.push(EgressSlot { outlet: outlet.clone(), bytes, tally: Tally::default() });
            return self.slots.len() - 1;
        }
        self.evict = (self.evict + 1) % SLOTS_MAX;
        self.hand_over(self.evict);
        let old = std::mem::replace(&mut self.slots[self.evict].outlet, outlet.clone());
        self.touched.push(old);
        self.evict
    }

    /// Delivers a message to a client.
    #[inline]
    pub(crate) fn append(&mut self, to: &Addressee<'_>, message: &Outgoing<'_>) {
        let at = self.slot(to.outlet);
        let slot = &mut self.slots[at];
        let headers = if to.headers { message.headers } else { &[] };
        let reply = (!message.reply.is_empty()).then_some(message.reply);
        slot.tally.messages += 1;
        slot.tally.bytes += message.size() as u64;
        match message.shared_body() {
            None => {
                let (subject, sid) = (message.subject, to.sid);
                write::push_message(&mut slot.bytes, subject, sid, reply, headers, message.body);
                if slot.bytes.len() >= SLOT_BYTES {
                    self.hand_over(at);
                }
            }
            Some(body) => {
                let total = headers.len() + body.len();
                let (subject, sid) = (message.subject, to.sid);
                let out = &mut slot.bytes;
                write::push_message_line(out, subject, sid, reply, headers.len(), total);
                out.extend_from_slice(headers);
                self.append_shared(at, body);
            }
        }
    }

    /// True if the message under way is to go to other servers.
    #[inline]
    pub(crate) fn has_leafs(&self) -> bool {
        !self.leafs.is_empty()
    }

    /// Other servers that are to get the message under way.
    pub(crate) fn leafs(&mut self) -> &mut Vec<LeafTarget> {
        &mut self.leafs
    }

    /// Takes them, to be put back.
    pub(crate) fn take_leafs(&mut self) -> Vec<LeafTarget> {
        std::mem::take(&mut self.leafs)
    }

    /// Puts back what was taken.
    pub(crate) fn put_leafs(&mut self, leafs: Vec<LeafTarget>) {
        self.leafs = leafs;
    }

    /// Sends a message to another server. `line` says how it is routed; its lengths are filled in.
    pub(crate) fn forward(
        &mut self,
        outlet: &Arc<Outlet>,
        line: &LeafLine<'_>,
        message: &Outgoing<'_>,
        headers: &[u8],
    ) {
        let at = self.slot(outlet);
        let slot = &mut self.slots[at];
        let total_len = headers.len() + message.body.len();
        let line = LeafLine { header_len: headers.len(), total_len, ..*line };
        slot.tally.messages += 1;
        slot.tally.bytes += total_len as u64;
        push_leaf_message_line(&mut slot.bytes, &line);
        slot.bytes.extend_from_slice(headers);
        match message.shared_body() {
            None => {
                slot.bytes.extend_from_slice(message.body);
                slot.bytes.extend_from_slice(b"\r\n");
                if slot.bytes.len() >= SLOT_BYTES {
                    self.hand_over(at);
                }
            }
            Some(body) => self.append_shared(at, body),
        }
    }

    /// Hands over what a slot has collected, with the body of a message that it ends in.
    fn append_shared(&mut self, at: usize, body: Bytes) {
        let slot = &mut self.slots[at];
        let tally = std::mem::take(&mut slot.tally);
        let appended = slot.outlet.outbox.append_shared(&slot.bytes, body, tally);
        slot.bytes.clear();
        self.after_append(at, appended);
    }

    /// Hands a slot's bytes over to its connection.
    fn hand_over(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.bytes.is_empty() {
            return;
        }
        let tally = std::mem::take(&mut slot.tally);
        let appended = slot.outlet.outbox.append(&mut slot.bytes, tally);
        self.after_append(at, appended);
    }

    fn after_append(&mut self, at: usize, appended: Appended) {
        let outlet = &self.slots[at].outlet;
        match appended {
            Appended::Pending(pending) => {
                let limit = outlet.outbox.limit();
                self.stalled |= pending > limit / 4 * 3;
                if pending > limit / NODE_FULL_SHARE && outlet.leads_to_node() {
                    self.full_node = Some(outlet.clone());
                }
            }
            Appended::Overflow => outlet.close_slow_consumer(),
            Appended::Closed => {}
        }
    }

    /// Has producers wait for a node: so much waits for it.
    pub(crate) fn note_full_node(&mut self, node: &Arc<Outlet>) {
        self.full_node = Some(node.clone());
    }

    /// The node of the cluster, if any, for which so much waits after a flush that producers should wait.
    pub(crate) fn take_full_node(&mut self) -> Option<Arc<Outlet>> {
        self.full_node.take()
    }

    /// Hands everything over, then lets every touched connection write: directly from this thread
    /// where little waits and few were touched, else through their writer tasks.
    ///
    /// Returns whether the producer should slow down.
    pub fn flush(&mut self, direct: DirectWrites) -> bool {
        if self.slots.is_empty() && self.touched.is_empty() {
            return false;
        }
        for at in 0..self.slots.len() {
            self.hand_over(at);
        }
        let mut budget = direct.connections;
        for outlet in
            self.touched.drain(..).chain(self.slots.drain(..).map(EgressSlot::into_outlet))
        {
            let pending = outlet.outbox.pending();
            if pending == 0 {
                continue;
            }
            if budget > 0 && pending <= direct.bytes {
                budget -= 1;
                outlet.outbox.write_direct();
                outlet.after_write();
            } else {
                outlet.outbox.wake();
            }
        }
        self.last = 0;
        std::mem::take(&mut self.stalled)
    }
}

impl EgressSlot {
    fn into_outlet(self) -> Arc<Outlet> {
        buffers::give_write(self.bytes);
        self.outlet
    }
}

/// How far a flush writes to sockets itself.
#[derive(Clone, Copy, Debug)]
pub struct DirectWrites {
    /// At most this many connections per flush.
    pub connections: usize,
    /// Only connections with at most this many bytes waiting.
    pub bytes: usize,
}

impl DirectWrites {
    /// From a connection's own reader.
    pub const READER: Self = Self { connections: 8, bytes: 128 * 1024 };
    /// From a sequencer: only what saves a synchronous publisher a hop.
    pub const SEQUENCER: Self = Self { connections: 4, bytes: 4 * 1024 };
}

/// Context of a delivery.
pub struct DeliveryContext<'a> {
    /// Where the publishing connection takes messages; it may have switched echo off.
    pub from: Option<&'a Arc<Outlet>>,
    /// Collects the deliveries.
    pub egress: &'a mut EgressBatch,
    /// For queue groups.
    pub rng: &'a mut MemberRng,
    /// Accounts it has passed.
    pub hops: u8,
    /// It came through an imported service: exported streams do not see it.
    pub by_service: bool,
    /// Which queue groups get it.
    pub groups: Groups<'a>,
    /// What is told of it, if it is traced.
    pub trace: Option<&'a mut Trace>,
}

/// Which queue groups get a message.
#[derive(Clone, Copy, Debug)]
pub enum Groups<'a> {
    /// All that match.
    All,
    /// Those whose names these are, with separators between them: another server has chosen.
    Named(&'a [u8]),
}

impl Groups<'_> {
    /// True if this group gets it.
    #[inline]
    pub(crate) fn admit(&self, group: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => queue_names(names).any(|name| name == group),
        }
    }
}

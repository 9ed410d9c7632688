//! Messages on their way to other servers: each gets one copy of a message, with the names of the
//! queue groups of which it is to choose a member.

use super::traced;
use crate::egress::{DeliveryContext, LeafTarget, Outgoing};
use crate::interest::SubRef;
use crate::outlet::Outlet;
use crate::subscription::{Role, Subscription};
use nuthatch_protocol::wire::leaf::{LeafLine, split_delivery};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// This process has had a connection between nodes of a cluster: groups may have members at other nodes.
static NODES: AtomicBool = AtomicBool::new(false);

/// From now on members of queue groups may be at other nodes of the cluster.
pub(crate) fn nodes_are_there() {
    NODES.store(true, Ordering::Relaxed);
}

/// True if members of queue groups may be at other nodes of the cluster.
#[inline]
pub(super) fn has_nodes() -> bool {
    NODES.load(Ordering::Relaxed)
}

/// Chooses among the members of a queue group here and at other nodes, each with the same chance; `true`: it is one at
/// another node, which gets the message. Members behind leaf nodes come after all of these.
#[cold]
pub(super) fn goes_to_node<T>(
    members: &[(T, SubRef)],
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    if way.from.is_some_and(|from| from.leads_to_node()) {
        // That node has chosen this one.
        return false;
    }
    let (mut total, mut at_nodes) = (0, 0);
    for (_, sub) in members {
        let weight = weight_at_node(sub, message, way);
        at_nodes += weight.unwrap_or(0);
        total += weight.unwrap_or_else(|| usize::from(!matches!(sub.role, Role::Leaf { .. })));
    }
    if at_nodes == 0 {
        return false;
    }
    let mut place = way.rng.below(total);
    for (_, sub) in members {
        let Some(weight) = weight_at_node(sub, message, way) else { continue };
        if place < weight {
            choose(sub, way);
            return true;
        }
        place -= weight;
    }
    false
}

/// Members of a group for which a subscription of another node stands that can get the message.
fn weight_at_node(
    sub: &Subscription,
    message: &Outgoing<'_>,
    way: &DeliveryContext<'_>,
) -> Option<usize> {
    let is_at_node = matches!(sub.role, Role::Leaf { .. }) && sub.outlet.leads_to_node();
    let weight = || usize::try_from(sub.weight()).unwrap_or(1).max(1);
    is_at_node.then(|| if may_go(sub, message, way) { weight() } else { 0 })
}

/// The server of this subscription gets the message for the group.
fn choose(sub: &Subscription, way: &mut DeliveryContext<'_>) {
    let name = sub.queue.as_deref().unwrap_or_default();
    let target = target(way, &sub.outlet);
    target.queues.extend_from_slice(name);
    target.queues.push(b' ');
}

/// Notes a server whose clients listen; `false`: it does not get the message.
pub(super) fn note(sub: &SubRef, message: &Outgoing<'_>, way: &mut DeliveryContext<'_>) -> bool {
    if !may_go(sub, message, way) {
        return false;
    }
    target(way, &sub.outlet);
    true
}

fn target<'a>(way: &'a mut DeliveryContext<'_>, outlet: &Arc<Outlet>) -> &'a mut LeafTarget {
    let targets = way.egress.leafs();
    let at = match targets.iter().position(|target| Arc::ptr_eq(&target.outlet, outlet)) {
        Some(at) => at,
        None => {
            targets.push(LeafTarget { outlet: outlet.clone(), queues: Vec::new() });
            targets.len() - 1
        }
    };
    &mut targets[at]
}

/// Without a local taker for a queue group: chooses one of the servers that have members, by how
/// many they have. `false`: there is none.
#[cold]
pub(super) fn offer<T>(
    members: &[(T, SubRef)],
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let mut chosen: Option<&SubRef> = None;
    let mut total = 0_usize;
    for (_, sub) in members {
        if !matches!(sub.role, Role::Leaf { .. }) || !may_go(sub, message, way) {
            continue;
        }
        // Each replaces the one before with the chance that its share of all so far gives it.
        let weight = usize::try_from(sub.weight()).unwrap_or(1).max(1);
        total += weight;
        if way.rng.below(total) < weight {
            chosen = Some(sub);
        }
    }
    let Some(sub) = chosen else { return false };
    choose(sub, way);
    true
}

/// True if a message may go to the server of a subscription at all.
fn may_go(sub: &Subscription, message: &Outgoing<'_>, way: &DeliveryContext<'_>) -> bool {
    let Some(link) = sub.outlet.link() else { return false };
    if sub.is_closed() || link.is_lost() {
        return false;
    }
    if let Some(from) = way.from {
        if Arc::ptr_eq(from, &sub.outlet) {
            return false;
        }
        if from.link().is_some_and(|from| from.same_cluster(link)) {
            return false;
        }
    }
    link.rights.may_send(message.routed)
}

/// Sends the message to all servers that were noted.
#[cold]
pub(super) fn send(message: &Outgoing<'_>, way: &mut DeliveryContext<'_>) {
    let mut targets = way.egress.take_leafs();
    for LeafTarget { outlet, queues } in targets.drain(..) {
        send_copy(&outlet, &queues, message, way);
    }
    way.egress.put_leafs(targets);
}

/// Sends a message of another account to the server that listens in an account that imports it.
pub(super) fn send_to(
    sub: &Arc<Subscription>,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let from_spoke = way.from.and_then(|from| from.link()).is_some_and(|link| link.is_spoke);
    let to_spoke = sub.outlet.link().is_some_and(|link| link.is_spoke);
    // Imports on both sides would hand it to and fro for ever.
    if (from_spoke && to_spoke) || !may_go(sub, message, way) {
        return false;
    }
    let queues = sub.queue.as_deref().map_or_else(Vec::new, |queue| [queue, b" "].concat());
    send_copy(&sub.outlet, &queues, message, way);
    true
}

fn send_copy(
    outlet: &Arc<Outlet>,
    queues: &[u8],
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) {
    let Some(link) = outlet.link() else { return };
    // A consumer's delivery is routed by an inbox and shows the subject it was stored under, which
    // travels behind the reply.
    let is_delivery = message.subject != message.routed && split_delivery(message.reply).is_none();
    let line = LeafLine {
        subject: message.routed,
        reply: message.reply,
        deliver_as: if is_delivery { message.subject } else { b"" },
        queues,
        ..LeafLine::default()
    };
    link.hand_over(message.reply);
    if way.trace.is_some() {
        return send_traced(outlet, &line, message, way);
    }
    let headers = if link.headers { message.headers } else { &[] };
    way.egress.forward(outlet, &line, message, headers);
}

/// Sends the message with the number that its receiver has in the trace.
#[cold]
fn send_traced(
    outlet: &Arc<Outlet>,
    line: &LeafLine<'_>,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) {
    let (Some(trace), Some(link)) = (&mut way.trace, outlet.link()) else { return };
    let to = traced::party(outlet);
    let Some(headers) = trace.sent(to, link.support(), false, message.headers) else { return };
    let headers = if link.headers { &headers[..] } else { &[] };
    way.egress.forward(outlet, line, message, headers);
}

/// Notes that a server does not get a message which is traced, because its user may not see the
/// subject.
#[cold]
pub(super) fn note_denied(sub: &SubRef, message: &Outgoing<'_>, way: &mut DeliveryContext<'_>) {
    let Some(link) = sub.outlet.link() else { return };
    if sub.queue.is_some() || sub.is_closed() || link.rights.may_send(message.routed) {
        return;
    }
    if let Some(trace) = &mut way.trace {
        let to = traced::party(&sub.outlet);
        let _ = trace.sent(to, link.support(), true, message.headers);
    }
}

//! Delivery of a message that is traced: as of any other, and each step is noted. What is only traced
//! goes to no client.

use super::{deliver_each, deliver_specially, imported, leafs};
use crate::egress::{DeliveryContext, Outgoing};
use crate::interest::{Matched, SubRef};
use crate::msg_trace::{self, Party, PartyKind};
use crate::outlet::Outlet;
use crate::subscription::{Role, Subscription};
use nuthatch_protocol::transform::Transform;
use std::sync::Arc;

/// [`super::deliver_on`] of a message that is traced.
#[cold]
#[inline(never)]
pub(super) fn deliver(
    matched: &Matched,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    deliver_each(matched, message, way, deliver_to)
}

/// The other side of a connection.
pub(super) fn party(outlet: &Arc<Outlet>) -> Party {
    let facts = outlet.client().map(|client| client.facts());
    let (id, account) = (outlet.id, facts.as_ref().map(|facts| facts.account.clone()));
    let account = account.unwrap_or_default();
    match outlet.link() {
        Some(link) => {
            let kind = if link.node.is_some() { PartyKind::Node } else { PartyKind::Leaf };
            Party { kind, id, name: link.remote_name.clone(), account }
        }
        None => {
            let name = facts.map(|facts| facts.name).unwrap_or_default();
            Party { kind: PartyKind::Client, id, name, account }
        }
    }
}

fn deliver_to(sub: &SubRef, message: &Outgoing<'_>, way: &mut DeliveryContext<'_>) -> bool {
    let is_own = way.from.is_some_and(|from| Arc::ptr_eq(from, &sub.outlet));
    match &sub.role {
        Role::Client if !sub.echo && is_own => note(sub, msg_trace::NO_ECHO, way),
        Role::Client => deliver_to_client(sub, sub, message, way),
        Role::ImportSubscription { .. } if way.by_service => false,
        Role::ImportSubscription { of, inward, allow_trace }
            if !matches!(of.role, Role::Leaf { .. } | Role::Server(_)) =>
        {
            let import = Import { of, inward: inward.as_deref(), allow_trace: *allow_trace };
            let is_silent = !sub.echo && is_own;
            deliver_to_importer(sub, &import, is_silent, message, way)
        }
        Role::Leaf { .. } => {
            leafs::note_denied(sub, message, way);
            deliver_specially(sub, &sub.role, message, way)
        }
        role => (sub.echo || !is_own) && deliver_specially(sub, role, message, way),
    }
}

/// What an import subscription stands for.
struct Import<'a> {
    of: &'a Arc<Subscription>,
    inward: Option<&'a Transform>,
    allow_trace: bool,
}

fn deliver_to_importer(
    sub: &SubRef,
    import: &Import<'_>,
    is_silent: bool,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let subject = imported(message.subject, import.inward);
    let message = Outgoing { subject: &subject, routed: &subject, ..*message };
    let mut only = false;
    if let Some(trace) = &way.trace {
        trace.exported(&party(&sub.outlet).account, &subject);
        only = trace.only;
    }
    if import.allow_trace {
        return match is_silent {
            true => note(sub, msg_trace::NO_ECHO, way),
            false => deliver_to_client(sub, import.of, &message, way),
        };
    }
    // It is not traced any further.
    only || (!is_silent && import.of.deliver(&message, way.egress))
}

/// To the subscription of a client, which is known here by `sub`.
fn deliver_to_client(
    sub: &Subscription,
    of: &Subscription,
    message: &Outgoing<'_>,
    way: &mut DeliveryContext<'_>,
) -> bool {
    let only = way.trace.as_ref().is_some_and(|trace| trace.only);
    let is_denied = of
        .denied
        .as_ref()
        .is_some_and(|denied| denied.covers(message.subject, of.queue.as_deref()));
    let error = match () {
        () if is_denied => msg_trace::DENIED,
        () if of.is_closed() => msg_trace::SUBSCRIPTION_CLOSED,
        () if only => "",
        () if of.outlet.outbox.is_closed() => msg_trace::CLIENT_CLOSED,
        () if !of.deliver(message, way.egress) => msg_trace::EXHAUSTED,
        () => "",
    };
    note(sub, error, way)
}

/// Notes what came of a delivery; says whether the message was taken.
fn note(sub: &Subscription, error: &str, way: &mut DeliveryContext<'_>) -> bool {
    if let Some(trace) = &mut way.trace {
        trace.delivered(party(&sub.outlet), (&sub.subject, sub.queue.as_deref()), error);
    }
    error.is_empty()
}

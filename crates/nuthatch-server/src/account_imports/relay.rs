//! Relays responses: from the reply subject that a carried request got in the exporting account to the
//! one that it came with.

use super::inbound::{Inbound, route_inbound};
use super::{ImportHost, publish_latency};
use crate::account::Account;
use crate::account::responses::{AwaitedResponses, ResponseTerms};
use crate::egress::{DeliveryContext, Outgoing};
use crate::interest::Matched;
use crate::log_id::LogSlot;
use crate::route::{is_heard, is_ready};
use crate::subscription::{Receiver, Subscription};
use crate::traced_publish::untraced;
use std::sync::{Arc, Weak};

/// Reply subjects that consumers need as they are.
const ACK_PREFIX: &[u8] = b"$JS.ACK.";

/// A reply subject in `account` that leads to `reply` of `requester`.
pub(super) fn open(
    host: &Arc<dyn ImportHost>,
    account: &Arc<Account>,
    requester: &Arc<Account>,
    reply: &[u8],
    terms: ResponseTerms,
) -> Vec<u8> {
    if reply.starts_with(ACK_PREFIX) {
        // A consumer's acknowledgement: renaming it would break pulls across accounts.
        return reply.to_vec();
    }
    let responses = &account.imports.responses;
    let prefix = responses.prefix(&account.name, |prefix, awaited| {
        begin(host, account, prefix, awaited);
    });
    responses.expect(prefix, requester, reply, terms)
}

/// Subscribes to an account's reply subjects.
fn begin(
    host: &Arc<dyn ImportHost>,
    account: &Arc<Account>,
    prefix: &[u8],
    awaited: AwaitedResponses,
) {
    let (host, outlet) = (Arc::downgrade(host), host.own_peer().outlet.clone());
    let receiver = ReplyRelay { host, awaited, responder: Arc::downgrade(account) };
    let pattern = [prefix, b"*"].concat();
    let sub = Subscription::of_server(outlet, &pattern, Arc::new(receiver));
    account.interest.insert(Arc::new(sub));
}

/// Relays responses of an account to the requesters.
struct ReplyRelay {
    host: Weak<dyn ImportHost>,
    awaited: AwaitedResponses,
    responder: Weak<Account>,
}

impl ReplyRelay {
    /// What listens where the response goes to, and that subject.
    fn listeners(&self, routed: &[u8]) -> Option<(Matched, Box<[u8]>)> {
        let (requester, reply) = self.awaited.waiting(routed)?;
        let mut matched = Matched::default();
        requester.interest.match_into(&reply, &mut matched);
        Some((matched, reply))
    }
}

impl Receiver for ReplyRelay {
    fn receive(
        &self,
        _sub: &Subscription,
        message: &Outgoing<'_>,
        way: &mut DeliveryContext<'_>,
    ) -> bool {
        let Some(host) = self.host.upgrade() else { return false };
        let Some(key) = self.awaited.key(message.routed) else { return false };
        let is_empty = message.body.is_empty();
        let Some(waiting) = self.awaited.take(key, is_empty) else { return false };
        let (Some(requester), Some(responder)) =
            (waiting.requester.upgrade(), self.responder.upgrade())
        else {
            return false;
        };
        if let Some(measurement) = waiting.terms.measurement {
            let client = way.from.and_then(|from| from.client()).map(|client| client.facts());
            let event = measurement.answered(host.name(), client.as_ref());
            publish_latency(&*host, &responder, &event);
        }
        let mut reply = Vec::new();
        if !message.reply.is_empty() {
            let terms = ResponseTerms { measurement: None, ..waiting.terms };
            reply = open(&host, &requester, &responder, message.reply, terms);
        }
        let is_delivery = message.subject != message.routed;
        let inbound = Inbound {
            subject: if is_delivery { message.subject } else { &waiting.reply },
            routed: &waiting.reply,
            reply: &reply,
            headers: message.headers,
            body: message.body,
        };
        let taken = match way.trace.take() {
            None => route_inbound(&*host, &requester, &inbound, way),
            Some(trace) => {
                // An answer is traced no further than to the account of who has asked.
                trace.carried(&requester.name, message.routed, &waiting.reply);
                let headers = untraced(inbound.headers);
                let inbound = Inbound { headers: &headers, ..inbound };
                let taken = !trace.only && route_inbound(&*host, &requester, &inbound, way);
                way.trace = Some(trace);
                taken
            }
        };
        if !taken {
            self.awaited.forget(key);
        }
        taken
    }

    fn hears(&self, routed: &[u8]) -> bool {
        self.listeners(routed).is_some_and(|(matched, reply)| is_heard(&matched, b"", &reply))
    }

    fn ready(&self, routed: &[u8], slot: LogSlot) -> bool {
        self.listeners(routed).is_none_or(|(matched, reply)| is_ready(&matched, &reply, slot))
    }
}

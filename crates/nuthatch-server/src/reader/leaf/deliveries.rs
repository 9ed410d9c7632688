//! Consumers' deliveries that come from another server.

use crate::egress::{DeliveryContext, Outgoing};
use crate::reader::Turn;
use crate::reader::publish::Scratch;
use crate::route::deliver_on;
use nuthatch_protocol::wire::Publish;

impl Turn<'_> {
    /// A consumer's delivery on its way to its subscriber: no stream stores it.
    /// Receivers see the subject it was stored under, so its user must be allowed to publish there.
    pub(super) fn leaf_delivery(&mut self, publish: &Publish<'_>, reply: &[u8], shown: &[u8]) {
        if !self.leaf_may_show(shown) {
            return self.leaf_drop(shown);
        }
        let reader = &mut *self.reader;
        let Scratch { egress, routes, rng, .. } = &mut self.scratch;
        let account = &reader.session.account;
        let route = routes.lookup(account, reader.server.jetstream(), publish.subject);
        let message = Outgoing {
            subject: shown,
            routed: publish.subject,
            reply,
            headers: publish.headers(),
            body: publish.payload(),
            owner: Some(self.data),
        };
        let from = Some(reader.conn.outlet());
        let groups = self.groups;
        let mut way =
            DeliveryContext { from, egress, rng, hops: 0, by_service: false, groups, trace: None };
        deliver_on(&route.matched, &message, &mut way);
    }

    fn leaf_may_show(&self, subject: &[u8]) -> bool {
        self.reader.conn.link().is_some_and(|link| link.rights.may_take_effect(subject))
    }

    /// What only asked for too much by its way: an answer to what is forgotten or was never asked of
    /// the other side, or a delivery of a subject that its user may not publish to. The link stays.
    pub(super) fn leaf_drop(&mut self, subject: &[u8]) {
        let subject = crate::quote::go_quote(subject);
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        log.error(format_args!("{conn} - Publish Violation on {subject} - message dropped"));
    }
}

//! SUB and UNSUB.

use super::Connection;
use super::publish::go_quote;
use super::reader::Turn;
use super::subscription_bytes::bytes_of;
use crate::account::{Account, Awaited};
use crate::identity::Allowed;
use crate::subscription::Subscription;
use bytes::Bytes;
use nuthatch_protocol::subject::{count_tokens, is_valid_subject, matches};
use nuthatch_streams::Event;
use std::sync::Arc;

/// Clients may not join this queue group.
const SYSTEM_GROUP: &[u8] = b"_sys_";

impl Turn<'_> {
    pub(super) fn subscribe(&mut self, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        let Some(allowed) = self.may_subscribe(subject, queue, sid) else { return };
        let conn = self.reader.conn.clone();
        let mut subs = conn.subs.lock();
        if subs.contains_key(sid) {
            drop(subs);
            return self.say_ok();
        }
        if subs.len() >= self.reader.subscriptions_max() {
            drop(subs);
            return self.say_err("maximum subscriptions exceeded");
        }
        if !is_valid_subject(subject) {
            drop(subs);
            return self.say_err("Invalid Subject");
        }
        let session = &self.reader.session;
        if !conn.charge_subscription(session.account.id, bytes_of(subject, queue, sid)) {
            drop(subs);
            return self.say_err("maximum subscriptions exceeded");
        }
        let mut sub = Subscription::new(conn.outlet().clone(), subject, queue, sid);
        sub.headers = session.headers;
        sub.echo = session.echo;
        sub.tracks_replies = session.rights.as_ref().is_some_and(|r| r.responses.is_some());
        if let Allowed::Except(denied) = allowed {
            sub.denied = denied;
        }
        let sub = Arc::new(sub);
        subs.insert(sid.into(), sub.clone());
        drop(subs);
        let account = session.account.clone();
        self.say_ok();
        self.take_in(&account, &sub);
    }

    /// Makes a subscription one of its account.
    pub(super) fn take_in(&self, account: &Account, sub: &Arc<Subscription>) {
        account.interest.insert(sub.clone());
        self.announce(account, &sub.subject);
        for (exporter, subject) in account.import(sub) {
            self.announce(&exporter, &subject);
        }
    }

    /// Tells engines that wait for a subscriber on this subject.
    fn announce(&self, account: &Account, subject: &[u8]) {
        match account.watch.arrived(subject) {
            Awaited::No => {}
            Awaited::Exactly(slots) => {
                let subject = Bytes::copy_from_slice(subject);
                let event = || Event::Interest(Some(subject.clone()));
                self.reader.server.tell_logs(slots, event);
            }
            Awaited::Perhaps => {
                self.reader.server.tell_all_logs(|| Event::Interest(None));
            }
        }
    }

    /// `None`: refused, and said so.
    fn may_subscribe(
        &mut self,
        subject: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
    ) -> Option<Allowed> {
        let allowed = match &self.reader.session.rights {
            Some(rights) => rights.may_subscribe(subject, queue),
            None => Allowed::Except(None),
        };
        if allowed == Allowed::No || queue == Some(SYSTEM_GROUP) {
            self.subscription_violation(subject, queue, sid);
            return None;
        }
        let limits = &self.reader.server.options().limits;
        let too_many = |max: u8| count_tokens(subject) > usize::from(max);
        if limits.max_subscription_tokens.is_some_and(too_many) {
            let subject = go_quote(subject);
            let text =
                format!("Permissions Violation for Subscription to {subject}, too many tokens");
            self.say_err(&text);
            return None;
        }
        Some(allowed)
    }

    fn subscription_violation(&mut self, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        let (subject, sid) = (go_quote(subject), String::from_utf8_lossy(sid));
        let (log, conn) = (&self.reader.server.log, &self.reader.conn);
        let mut text = format!("Permissions Violation for Subscription to {subject}");
        match queue.map(go_quote) {
            Some(queue) => {
                log.error(format_args!(
                    "{conn} - Subscription Violation - Subject {subject}, Queue: {queue}, SID {sid}"
                ));
                text.push_str(&format!(" using queue {queue}"));
            }
            None => log.error(format_args!(
                "{conn} - Subscription Violation - Subject {subject}, SID {sid}"
            )),
        }
        self.say_err(&text);
    }

    pub(super) fn unsubscribe(&mut self, sid: &[u8], max: Option<u64>) {
        let conn = self.reader.conn.clone();
        let sub = conn.subs.lock().get(sid).cloned();
        if let Some(sub) = sub {
            match max {
                Some(max) if sub.set_max(max) => {}
                _ => conn.end_subscription(&sub),
            }
        }
        self.say_ok();
    }
}

impl Connection {
    /// A plain subscription of this connection that covers a reply subject.
    pub(super) fn subscription_for(&self, reply: &[u8]) -> Option<Arc<Subscription>> {
        let subs = self.subs.lock();
        let covers = |sub: &&Arc<Subscription>| sub.queue.is_none() && matches(&sub.subject, reply);
        subs.values().find(covers).cloned()
    }
}

//! SUB and UNSUB.

use super::Turn;
use crate::account::{Account, Awaited};
use crate::conn::Added;
use crate::identity::Allowed;
use crate::quote::go_quote;
use crate::server::tracks_replies;
use crate::subscription::Subscription;
use bytes::Bytes;
use nuthatch_protocol::subject::{count_tokens, is_valid_subject};
use nuthatch_streams::Event;
use std::sync::Arc;

/// Clients may not join this queue group.
const SYSTEM_GROUP: &[u8] = b"_sys_";

impl Turn<'_> {
    pub(super) fn subscribe(&mut self, subject: &[u8], queue: Option<&[u8]>, sid: &[u8]) {
        let Some(allowed) = self.may_subscribe(subject, queue, sid) else { return };
        let conn = self.reader.conn.clone();
        let session = self.reader.session.clone();
        let make = || {
            let valid = is_valid_subject(subject);
            let mut sub = Subscription::new(conn.outlet().clone(), subject, queue, sid);
            sub.headers = session.headers;
            sub.echo = session.echo;
            sub.tracks_replies = tracks_replies(&session.rights);
            if let Allowed::Except(denied) = allowed {
                sub.denied = denied;
            }
            valid.then_some(sub)
        };
        match conn.add_subscription(sid, self.reader.subscriptions_max(), make) {
            Added::Known(_) => self.say_ok(),
            Added::TooMany => self.say_err("maximum subscriptions exceeded"),
            Added::Invalid => self.say_err("Invalid Subject"),
            Added::New(sub) => {
                self.say_ok();
                self.take_in(&session.account, &sub);
            }
        }
    }

    /// Makes a subscription one of its account.
    pub(super) fn take_in(&self, account: &Account, sub: &Arc<Subscription>) {
        self.take_in_alone(account, sub);
        for (exporter, subject) in account.import(sub) {
            self.announce(&exporter, &subject);
        }
    }

    /// As [`Turn::take_in`], without what the account imports.
    pub(super) fn take_in_alone(&self, account: &Account, sub: &Arc<Subscription>) {
        account.interest.insert(sub.clone());
        self.announce(account, &sub.subject);
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
        let sub = conn.subscription(sid);
        if let Some(sub) = sub {
            match max {
                Some(max) if sub.set_max(max) => {}
                _ => {
                    conn.end_subscription(&sub);
                }
            }
        }
        self.say_ok();
    }
}

//! Advisories and metrics about single messages: published through core routing, so a stream can
//! capture them (the documented dead-letter pattern).

use super::env::Env;
use crate::sink::{Message, Sink};
use nuthatch_log::{LogAccess, Timestamp};
use nuthatch_protocol::js::Time;
use serde::Serialize;

/// Reason given when a message left the stream while it waited for its acknowledgement.
pub(super) const REASON_DELETED: &str = "Unacknowledged message was deleted";
/// Reason given when the log cannot give a message back.
pub(super) const REASON_UNREADABLE: &str = "Message can not be read from the log: the consumer \
     waits until it can, or until it is deleted from the stream";

/// The event that an advisory reports.
#[derive(Clone, Copy, Debug)]
pub(super) enum Advisory<'a> {
    /// Delivered as often as `max_deliver` allows, never acknowledged.
    MaxDeliveries,
    /// Terminated by its client or because it is gone.
    Terminated(&'a str),
    /// The log cannot give it back, and the consumer waits for it. Not one of upstream's.
    Unreadable(&'a str),
    /// Refused by its client.
    Naked,
    /// Sampled acknowledgement, this many ns after the delivery.
    Acked(i64),
}

/// Which message.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// Stream sequence.
    pub stream_seq: u64,
    /// Consumer sequence of the delivery.
    pub consumer_seq: u64,
    /// Deliveries so far.
    pub deliveries: u64,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    consumer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer_seq: Option<u64>,
    stream_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ack_time: Option<i64>,
    deliveries: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
}

#[derive(Serialize)]
struct PauseBody<'a> {
    r#type: &'a str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    consumer: &'a str,
    paused: bool,
    pause_until: Time,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
}

impl Advisory<'_> {
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::MaxDeliveries => (
                "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES",
                "io.nats.jetstream.advisory.v1.max_deliver",
            ),
            Self::Terminated(_) => (
                "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED",
                "io.nats.jetstream.advisory.v1.terminated",
            ),
            Self::Unreadable(_) => (
                "$JS.EVENT.ADVISORY.CONSUMER.MSG_UNREADABLE",
                "io.nuthatch.jetstream.advisory.v1.unreadable",
            ),
            Self::Naked => {
                ("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED", "io.nats.jetstream.advisory.v1.nak")
            }
            Self::Acked(_) => {
                ("$JS.EVENT.METRIC.CONSUMER.ACK", "io.nats.jetstream.metric.v1.consumer_ack")
            }
        }
    }
}

/// Publishes an advisory about a message of `consumer`.
pub(super) fn send<I, L, S>(
    env: &mut Env<'_, I, L, S>,
    consumer: &str,
    about: About,
    advisory: Advisory<'_>,
) where
    L: LogAccess,
    S: Sink,
{
    let (subject, kind) = advisory.names();
    let body = Body {
        r#type: kind,
        id: event_id(env.log),
        timestamp: time_of(env.log.now()),
        stream: env.stream_name,
        consumer,
        consumer_seq: (!matches!(advisory, Advisory::MaxDeliveries)).then_some(about.consumer_seq),
        stream_seq: about.stream_seq,
        ack_time: if let Advisory::Acked(ns) = advisory { Some(ns) } else { None },
        deliveries: about.deliveries,
        reason: match advisory {
            Advisory::Terminated(reason) | Advisory::Unreadable(reason) => reason,
            _ => "",
        },
        domain: env.domain,
    };
    publish(env, subject, consumer, &body);
}

/// Publishes that a consumer was paused, or that its pause is over.
pub(super) fn send_pause<I, L, S>(
    env: &mut Env<'_, I, L, S>,
    consumer: &str,
    paused: bool,
    pause_until: Time,
) where
    L: LogAccess,
    S: Sink,
{
    let body = PauseBody {
        r#type: "io.nats.jetstream.advisory.v1.consumer_pause",
        id: event_id(env.log),
        timestamp: time_of(env.log.now()),
        stream: env.stream_name,
        consumer,
        paused,
        pause_until,
        domain: env.domain,
    };
    publish(env, "$JS.EVENT.ADVISORY.CONSUMER.PAUSE", consumer, &body);
}

#[derive(Serialize)]
struct GroupBody<'a> {
    r#type: &'a str,
    id: String,
    timestamp: Time,
    stream: &'a str,
    consumer: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pinned_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

/// Publishes that a client of a priority group was pinned.
pub(super) fn send_pinned<I, L, S>(
    env: &mut Env<'_, I, L, S>,
    consumer: &str,
    group: &str,
    pinned_id: &str,
) where
    L: LogAccess,
    S: Sink,
{
    send_group(env, ("PINNED", "pinned"), consumer, group, (pinned_id, ""));
}

/// Publishes that no client of a priority group is pinned any more, and why.
pub(super) fn send_unpinned<I, L, S>(
    env: &mut Env<'_, I, L, S>,
    consumer: &str,
    group: &str,
    reason: &str,
) where
    L: LogAccess,
    S: Sink,
{
    send_group(env, ("UNPINNED", "unpinned"), consumer, group, ("", reason));
}

fn send_group<I, L, S>(
    env: &mut Env<'_, I, L, S>,
    (token, word): (&str, &str),
    consumer: &str,
    group: &str,
    (pinned_id, reason): (&str, &str),
) where
    L: LogAccess,
    S: Sink,
{
    let body = GroupBody {
        r#type: &format!("io.nats.jetstream.advisory.v1.consumer_group_{word}"),
        id: event_id(env.log),
        timestamp: time_of(env.log.now()),
        stream: env.stream_name,
        consumer,
        domain: env.domain,
        group,
        pinned_id,
        reason,
    };
    publish(env, &format!("$JS.EVENT.ADVISORY.CONSUMER.{token}"), consumer, &body);
}

/// A fresh pin.
pub(super) fn pin_id(log: &mut impl LogAccess) -> String {
    event_id(log)
}

fn publish<I, L, S: Sink>(
    env: &mut Env<'_, I, L, S>,
    prefix: &str,
    consumer: &str,
    body: &impl Serialize,
) {
    let body = serde_json::to_vec(body).expect("strings and numbers can be written");
    let subject = format!("{prefix}.{}.{consumer}", env.stream_name);
    let message = Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: &body };
    env.sink.publish_and_store(env.account, &message);
}

/// A moment of the log as the wire's type.
pub(super) fn time_of(at: Timestamp) -> Time {
    Time(at.0)
}

/// 22 base 62 digits, as NATS tools expect of an id.
fn event_id(log: &mut impl LogAccess) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut id = String::with_capacity(22);
    for _ in 0..2 {
        let mut rest = log.entropy();
        for _ in 0..11 {
            id.push(char::from(DIGITS[(rest % 62) as usize]));
            rest /= 62;
        }
    }
    id
}

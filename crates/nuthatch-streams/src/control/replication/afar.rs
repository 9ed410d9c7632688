//! Reading a stream of another server: of another JetStream domain, behind a leaf node.
//!
//! What is asked for travels as requests under the prefix of the other API, and the messages come
//! from a push consumer that is made there for this purpose (as nats-server does between its own
//! servers). It counts what it has delivered, so nothing can be missing without being noticed; then,
//! and when it falls silent, a new one is made behind what has been stored.

use super::{Action, Delivery, Happened, Now, Reader, Replicator, State, Unanswered};
use crate::op::{Range, Replica};
use crate::rules::NOTICE_MISSING;
use nuthatch_protocol::headers::{Headers, find_header};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, DeliverPolicy, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::time::Duration;

/// How often the other side says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// After so long a silence the consumer is taken for lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The other side deletes the consumer when it had no subscriber for so long.
const FORGET: Duration = Duration::from_secs(10);
/// Messages are stored in batches of up to so many bytes.
const BATCH_BYTES: usize = 1024 * 1024;
/// And so many.
const BATCH_MESSAGES: usize = 1024;

/// Response of the other API.
#[derive(Deserialize)]
struct Response<T> {
    #[serde(default)]
    error: Option<JsError>,
    #[serde(flatten)]
    found: Option<T>,
}

/// The part of a created consumer that matters.
#[derive(Deserialize)]
struct Created {
    #[serde(default)]
    delivered: DeliveredUpTo,
    #[serde(default)]
    num_pending: u64,
}

#[derive(Deserialize, Default)]
struct DeliveredUpTo {
    #[serde(default)]
    stream_seq: u64,
}

/// Numbers of a delivery's reply subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    stream_seq: u64,
    consumer_seq: u64,
    time: Time,
    pending: u64,
}

impl Numbers {
    /// `$JS.ACK.<stream>.<consumer>.<delivered>.<stream_seq>.<consumer_seq>.<time>.<pending>`, or
    /// the longer form with domain and account in front and perhaps a token behind.
    fn parse(reply: &[u8]) -> Option<Self> {
        let rest = std::str::from_utf8(reply.strip_prefix(b"$JS.ACK.")?).ok()?;
        let tokens: Vec<&str> = rest.split('.').collect();
        let from = match tokens.len() {
            7 => 3,
            9.. => 5,
            _ => return None,
        };
        let number = |at: usize| tokens.get(from + at)?.parse::<u64>().ok();
        Some(Self {
            stream_seq: number(0)?,
            consumer_seq: number(1)?,
            time: Time(i64::try_from(number(2)?).ok()?),
            pending: number(3)?,
        })
    }
}

/// An origin of another server that is being read.
#[derive(Debug)]
pub(super) struct Afar {
    api: String,
    /// The call that was sent last.
    call: String,
    /// The next sequence of the origin that is wanted.
    next: u64,
    /// Deliveries of the present consumer.
    delivered: u64,
    /// Messages behind what was stored last.
    pub(super) pending: u64,
    /// Subjects on which the other side expects our flow control replies.
    replies: VecDeque<Vec<u8>>,
}

/// Received messages, sorted.
#[derive(Default)]
struct Batch {
    messages: Vec<Replica>,
    /// The last sequence seen and how many follow it.
    last: Option<(u64, u64)>,
}

impl Replicator {
    /// What is wrong with the consumer of a mirror or a source.
    fn trouble(&self, why: impl std::fmt::Display) -> JsError {
        let error = match self.plan.mirrors {
            true => JsError::MIRROR_CONSUMER_SETUP_FAILED,
            false => JsError::SOURCE_CONSUMER_SETUP_FAILED,
        };
        error.with_err(why)
    }

    /// Asks for the origin's creation time, which is part of what tells it from others.
    pub(super) fn ask_info(&mut self, api: String, now: Now) -> Action {
        let subject = format!("{api}.STREAM.INFO.{}", self.plan.source.name);
        self.state = State::Info { api };
        Action::Ask { subject, body: Vec::new(), until: now + ANSWER }
    }

    pub(super) fn informed(&mut self, api: String, happened: Happened, _now: Now) -> Action {
        let call = format!("{api}.STREAM.INFO.{}", self.plan.source.name);
        match self.answer::<StreamInfo>(&call, happened) {
            Ok(origin) => {
                let key = self.rewrite.key(origin.created);
                let replies = VecDeque::new();
                let afar = Afar { api, call, next: 1, delivered: 0, pending: 0, replies };
                self.position(key, Reader::Afar(Box::new(afar)))
            }
            Err(error) => self.failed(error),
        }
    }

    pub(super) fn listen(&mut self, mut afar: Box<Afar>, next: u64) -> Action {
        afar.next = next;
        let kind = if self.plan.mirrors { "M" } else { "S" };
        let prefix = match &self.plan.source.external {
            Some(external) if !external.deliver.is_empty() => {
                external.deliver.trim_end_matches('.')
            }
            _ => "$JS",
        };
        let prefix = format!("{prefix}.{kind}");
        self.state = State::Listen(afar);
        Action::Listen { prefix }
    }

    /// Makes the consumer.
    pub(super) fn listening(
        &mut self,
        mut afar: Box<Afar>,
        happened: Happened,
        now: Now,
    ) -> Action {
        let deliver_subject = match happened {
            Happened::Listening(subject) => subject,
            Happened::Unanswered(_) => {
                return self.failed(self.trouble("the account is not there"));
            }
            other => panic!("a subject was to be listened on: {other:?}"),
        };
        let request = self.consumer(afar.next, deliver_subject);
        let body = match serde_json::to_vec(&request) {
            Ok(body) => body,
            Err(error) => return self.failed(self.trouble(error)),
        };
        let subject = format!("{}.CONSUMER.CREATE.{}", afar.api, self.plan.source.name);
        afar.call.clone_from(&subject);
        self.state = State::Create(afar);
        Action::Ask { subject, body, until: now + ANSWER }
    }

    /// The consumer to ask for.
    fn consumer(&self, next: u64, deliver_subject: String) -> CreateConsumerRequest {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let source = &self.plan.source;
        let (mut start, mut time) = (next, None);
        if next == 1 {
            start = source.opt_start_seq;
            time = source.opt_start_time.filter(|_| start == 0);
        }
        let deliver_policy = match (start, time) {
            (0, Some(_)) => DeliverPolicy::ByStartTime,
            (0, None) => DeliverPolicy::All,
            _ => DeliverPolicy::ByStartSequence,
        };
        let mut filters = self.rewrite.filters();
        let filter_subject = if filters.len() == 1 { filters.remove(0) } else { String::new() };
        let config = ConsumerConfig {
            deliver_subject,
            deliver_policy,
            opt_start_seq: start,
            opt_start_time: time,
            ack_policy: AckPolicy::None,
            max_deliver: 1,
            filter_subject,
            filter_subjects: filters,
            idle_heartbeat: nanos(HEARTBEAT),
            flow_control: true,
            inactive_threshold: nanos(FORGET),
            direct: true,
            ..ConsumerConfig::default()
        };
        let stream_name = source.name.clone();
        CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() }
    }

    /// Passes over sequences that the origin has deleted, before its first delivery.
    pub(super) fn created(&mut self, mut afar: Box<Afar>, happened: Happened, now: Now) -> Action {
        let created = match self.answer::<Created>(&afar.call, happened) {
            Ok(created) => created,
            Err(error) => return self.failed(error),
        };
        afar.pending = created.num_pending;
        let seen = created.delivered.stream_seq;
        if !self.plan.mirrors || seen < afar.next {
            return self.go_on(Reader::Afar(afar), now);
        }
        afar.next = seen + 1;
        let (next, last_seq) = (afar.next, seen + created.num_pending);
        self.store(Range { messages: Vec::new(), next, last_seq }, Reader::Afar(afar), now)
    }

    /// What was asked for.
    fn answer<T: DeserializeOwned>(&self, call: &str, happened: Happened) -> Result<T, JsError> {
        let answer = match happened {
            Happened::Answered(answer) => answer,
            Happened::Unanswered(why) => return Err(self.unanswered(call, why)),
            other => panic!("an answer was waited for: {other:?}"),
        };
        let response: Response<T> = serde_json::from_slice(&answer)
            .map_err(|error| self.trouble(format!("answer to {call}: {error}")))?;
        match (response.error, response.found) {
            (Some(error), _) => Err(error),
            (None, Some(found)) => Ok(found),
            (None, None) => Err(self.trouble(format!("answer to {call} is not understood"))),
        }
    }

    fn unanswered(&self, call: &str, why: Unanswered) -> JsError {
        self.trouble(match why {
            Unanswered::NobodyListens => format!("no server answers {call}"),
            Unanswered::Late => format!("no answer to {call} within {ANSWER:?}"),
            Unanswered::AccountGone => "the account is not there".to_owned(),
        })
    }

    /// Sends the flow control replies that are due: what came before is stored, so more may come.
    /// Then waits for messages.
    pub(super) fn reply(&mut self, mut afar: Box<Afar>, now: Now) -> Action {
        if let Some(subject) = afar.replies.pop_front() {
            self.state = State::Reply(afar);
            return Action::Send { subject };
        }
        self.state = State::Receive(afar);
        let (messages_max, bytes_max) = (BATCH_MESSAGES, BATCH_BYTES);
        Action::Receive { until: now + SILENCE_MAX, messages_max, bytes_max }
    }

    /// Stores what there is of messages.
    pub(super) fn received(&mut self, mut afar: Box<Afar>, happened: Happened, now: Now) -> Action {
        let deliveries = match happened {
            Happened::Arrived(deliveries) => deliveries,
            Happened::Silent => {
                return self.failed(self.trouble(format!("nothing was heard for {SILENCE_MAX:?}")));
            }
            other => panic!("messages were waited for: {other:?}"),
        };
        let mut batch = Batch::default();
        for delivery in deliveries {
            if let Err(error) = self.sort(delivery, &mut afar, &mut batch, now) {
                return self.failed(error);
            }
        }
        let Some((last, pending)) = batch.last else { return self.reply(afar, now) };
        (afar.next, afar.pending) = (last + 1, pending);
        let range = Range { messages: batch.messages, next: last + 1, last_seq: last + pending };
        self.store(range, Reader::Afar(afar), now)
    }

    fn sort(
        &mut self,
        delivery: Delivery,
        afar: &mut Afar,
        batch: &mut Batch,
        now: Now,
    ) -> Result<(), JsError> {
        match Headers::new(&delivery.headers).status() {
            Some((100, _)) => return self.control(&delivery, afar, now),
            Some((code, text)) => {
                let text = String::from_utf8_lossy(text);
                return Err(self.trouble(format!("the other side says {code} {text}")));
            }
            None => {}
        }
        let Some(numbers) = Numbers::parse(&delivery.reply) else {
            return Err(self.trouble("a delivery without its numbers"));
        };
        if numbers.consumer_seq != afar.delivered + 1 && NOTICE_MISSING.holds() {
            return Err(self.trouble("deliveries are missing"));
        }
        afar.delivered = numbers.consumer_seq;
        batch.last = Some((numbers.stream_seq, numbers.pending));
        if numbers.stream_seq < afar.next {
            return Ok(());
        }
        batch.messages.push(Replica {
            seq: numbers.stream_seq,
            time: numbers.time,
            subject: delivery.subject,
            headers: delivery.headers,
            body: delivery.body,
        });
        Ok(())
    }

    /// Heartbeats and flow control.
    fn control(&mut self, delivery: &Delivery, afar: &mut Afar, now: Now) -> Result<(), JsError> {
        self.status.active = Some(now);
        if !delivery.reply.is_empty() {
            afar.replies.push_back(delivery.reply.clone());
            return Ok(());
        }
        if let Some(stalled) = find_header(&delivery.headers, b"Nats-Consumer-Stalled") {
            afar.replies.push_back(stalled.to_vec());
        }
        let delivered = find_header(&delivery.headers, b"Nats-Last-Consumer")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        match delivered {
            Some(count) if count != afar.delivered && NOTICE_MISSING.holds() => {
                Err(self.trouble("deliveries are missing"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_forms() {
        let numbers = Numbers { stream_seq: 7, consumer_seq: 3, time: Time(99), pending: 5 };
        assert_eq!(Numbers::parse(b"$JS.ACK.S.C.1.7.3.99.5"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.hub.hash.S.C.1.7.3.99.5"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.hub.hash.S.C.1.7.3.99.5.token"), Some(numbers));
        assert_eq!(Numbers::parse(b"$JS.ACK.S.C.1.7.3.99"), None);
        assert_eq!(Numbers::parse(b"_INBOX.1.7.3.99.5.6.7.8"), None);
    }

    #[test]
    fn an_answer_is_an_error_or_what_was_asked_for() {
        let text = br#"{"type":"x","error":{"code":404,"err_code":10059,"description":"d"}}"#;
        let response: Response<Created> = serde_json::from_slice(text).unwrap();
        assert_eq!(response.error.unwrap().err_code, 10059);
        let text = br#"{"type":"x","name":"c","delivered":{"consumer_seq":0,"stream_seq":4},
                        "num_pending":2}"#;
        let created = serde_json::from_slice::<Response<Created>>(text).unwrap().found.unwrap();
        assert_eq!((created.delivered.stream_seq, created.num_pending), (4, 2));
    }
}

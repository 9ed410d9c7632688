//! Copying from a stream of another server: of another JetStream domain, behind a leaf node.
//!
//! What is asked for travels as requests under the prefix of the other API, and the messages come
//! from a push consumer that is made there for this purpose (as nats-server does between its own
//! servers). It counts what it has delivered, so nothing can be missing without being noticed; then,
//! and when it falls silent, a new one is made behind what has been stored.

use super::{Job, Rule};
use crate::core_port::{Arrived, CorePort, Inbox};
use nuthatch_protocol::headers::{Headers, find_header};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, DeliverPolicy, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::op::{Range, Replica};
use nuthatch_streams::{AccountId, Message};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::time::{Duration, Instant};

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
/// Prefix of the reply subjects of our requests.
const REPLY_PREFIX: &str = "$JSC.R";
/// Characters that make a subject our own.
const RANDOM_CHARS: usize = 8;

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

/// A subject of our own.
fn own_subject(prefix: &str) -> String {
    format!("{prefix}.{}", nuthatch_server::random::random_token(RANDOM_CHARS))
}

/// How far a consumer has got.
struct Progress {
    /// The next sequence of the origin that is wanted.
    next: u64,
    /// Deliveries of the present consumer.
    delivered: u64,
}

/// Received messages, sorted.
#[derive(Default)]
struct Batch {
    messages: Vec<Replica>,
    bytes: usize,
    /// The last sequence seen and how many follow it.
    last: Option<(u64, u64)>,
    /// Subject on which the other side expects our flow control reply.
    flow: Option<Vec<u8>>,
}

/// Error about the consumer of a mirror or a source.
fn failed(mirrors: bool, why: impl std::fmt::Display) -> JsError {
    let error = match mirrors {
        true => JsError::MIRROR_CONSUMER_SETUP_FAILED,
        false => JsError::SOURCE_CONSUMER_SETUP_FAILED,
    };
    error.with_err(why)
}

impl Job {
    fn failed(&self, why: impl std::fmt::Display) -> JsError {
        failed(self.mirrors, why)
    }

    fn core(&self) -> &dyn CorePort {
        &*self.service.core
    }

    fn account(&self) -> AccountId {
        self.entry.account
    }

    /// Copies from the API with this prefix until something is wrong.
    pub(super) async fn copy_from_afar(&self, api: &str) -> Result<Infallible, JsError> {
        let call = format!("{api}.STREAM.INFO.{}", self.source.name);
        let origin: StreamInfo = self.ask(&call, b"").await?;
        let key = self.key(origin.created);
        let next = self.position(&key).await? + 1;
        let prefix = match &self.source.external {
            Some(external) if !external.deliver.is_empty() => {
                let kind = if self.mirrors { "M" } else { "S" };
                format!("{}.{kind}", external.deliver.trim_end_matches('.'))
            }
            _ if self.mirrors => "$JS.M".to_owned(),
            _ => "$JS.S".to_owned(),
        };
        let subject = own_subject(&prefix);
        let inbox = self.core().listen(self.account(), subject.as_bytes());
        let mut inbox = inbox.ok_or_else(|| self.failed("the account is not there"))?;
        let request = self.consumer(next, &subject);
        let body = serde_json::to_vec(&request).map_err(|error| self.failed(error))?;
        let call = format!("{api}.CONSUMER.CREATE.{}", self.source.name);
        let created: Created = self.ask(&call, &body).await?;
        let mut progress = Progress { next, delivered: 0 };
        self.pass_over(&created, &mut progress, &key).await?;
        loop {
            self.take_batch(&mut inbox, &mut progress, &key).await?;
        }
    }

    /// Passes over sequences that the origin has deleted, before its first delivery.
    async fn pass_over(
        &self,
        created: &Created,
        progress: &mut Progress,
        key: &[u8],
    ) -> Result<(), JsError> {
        let seen = created.delivered.stream_seq;
        if self.mirrors && seen >= progress.next {
            let last_seq = seen + created.num_pending;
            progress.next = seen + 1;
            let range = Range { messages: Vec::new(), next: progress.next, last_seq };
            self.store(range, key).await?;
        }
        self.note(created.num_pending);
        Ok(())
    }

    fn note(&self, lag: u64) {
        let active = Some(Instant::now());
        *self.state.lock() = super::State { lag, active, is_in_sight: false, error: None };
    }

    /// The consumer to ask for.
    fn consumer(&self, next: u64, deliver_subject: &str) -> CreateConsumerRequest {
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let (mut start, mut time) = (next, None);
        if next == 1 {
            start = self.source.opt_start_seq;
            time = self.source.opt_start_time.filter(|_| start == 0);
        }
        let deliver_policy = match (start, time) {
            (0, Some(_)) => DeliverPolicy::ByStartTime,
            (0, None) => DeliverPolicy::All,
            _ => DeliverPolicy::ByStartSequence,
        };
        let mut filters: Vec<String> = match &self.rules[..] {
            [Rule { filter, .. }] if filter == ">" => Vec::new(),
            rules => rules.iter().map(|rule| rule.filter.clone()).collect(),
        };
        let filter_subject = if filters.len() == 1 { filters.remove(0) } else { String::new() };
        let config = ConsumerConfig {
            deliver_subject: deliver_subject.to_owned(),
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
        let stream_name = self.source.name.clone();
        CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() }
    }

    /// Sends a request and waits for what it is answered.
    async fn ask<T: DeserializeOwned>(&self, subject: &str, body: &[u8]) -> Result<T, JsError> {
        // Looked at first: an inbox that comes and goes makes everybody find their routes anew.
        if !self.core().listens(self.account(), subject.as_bytes()) {
            return Err(self.failed(format!("no server answers {subject}")));
        }
        let reply = own_subject(REPLY_PREFIX);
        let inbox = self.core().listen(self.account(), reply.as_bytes());
        let mut inbox = inbox.ok_or_else(|| self.failed("the account is not there"))?;
        let (subject_bytes, reply) = (subject.as_bytes(), reply.as_bytes());
        let message = Message { subject: subject_bytes, reply, headers: b"", body };
        if !self.core().publish(self.account(), &message) {
            return Err(self.failed(format!("no server answers {subject}")));
        }
        let answer = tokio::time::timeout(ANSWER, inbox.next()).await;
        let Ok(Some(answer)) = answer else {
            return Err(self.failed(format!("no answer to {subject} within {ANSWER:?}")));
        };
        let response: Response<T> = serde_json::from_slice(&answer.body)
            .map_err(|error| self.failed(format!("answer to {subject}: {error}")))?;
        match (response.error, response.found) {
            (Some(error), _) => Err(error),
            (None, Some(found)) => Ok(found),
            (None, None) => Err(self.failed(format!("answer to {subject} is not understood"))),
        }
    }

    /// Waits for messages and stores what there is of them.
    async fn take_batch(
        &self,
        inbox: &mut Inbox,
        progress: &mut Progress,
        key: &[u8],
    ) -> Result<(), JsError> {
        let first = tokio::time::timeout(SILENCE_MAX, inbox.next()).await;
        let Ok(Some(first)) = first else {
            return Err(self.failed(format!("nothing was heard for {SILENCE_MAX:?}")));
        };
        let mut batch = Batch::default();
        self.sort(first, progress, &mut batch)?;
        while batch.bytes < BATCH_BYTES
            && batch.messages.len() < BATCH_MESSAGES
            && batch.flow.is_none()
            && let Some(more) = inbox.try_next()
        {
            self.sort(more, progress, &mut batch)?;
        }
        if let Some((last, pending)) = batch.last {
            progress.next = last + 1;
            let range =
                Range { messages: batch.messages, next: last + 1, last_seq: last + pending };
            self.store(range, key).await?;
            self.note(pending);
        }
        if let Some(reply) = batch.flow {
            // What came before is stored: more may come.
            let message = Message { subject: &reply, reply: b"", headers: b"", body: b"" };
            self.core().publish(self.account(), &message);
        }
        Ok(())
    }

    fn sort(
        &self,
        arrived: Arrived,
        progress: &mut Progress,
        batch: &mut Batch,
    ) -> Result<(), JsError> {
        let status = Headers::new(&arrived.headers).status();
        if let Some((100, _)) = status {
            return self.control(&arrived, progress, batch);
        }
        if let Some((code, text)) = status {
            let text = String::from_utf8_lossy(text);
            return Err(self.failed(format!("the other side says {code} {text}")));
        }
        let Some(numbers) = Numbers::parse(&arrived.reply) else {
            return Err(self.failed("a delivery without its numbers"));
        };
        if numbers.consumer_seq != progress.delivered + 1 {
            return Err(self.failed("deliveries are missing"));
        }
        progress.delivered = numbers.consumer_seq;
        batch.last = Some((numbers.stream_seq, numbers.pending));
        if numbers.stream_seq < progress.next {
            return Ok(());
        }
        batch.bytes += arrived.body.len() + arrived.headers.len();
        batch.messages.push(Replica {
            seq: numbers.stream_seq,
            time: numbers.time,
            subject: arrived.subject,
            headers: arrived.headers,
            body: arrived.body,
        });
        Ok(())
    }

    /// Heartbeats and flow control.
    fn control(
        &self,
        arrived: &Arrived,
        progress: &Progress,
        batch: &mut Batch,
    ) -> Result<(), JsError> {
        self.state.lock().active = Some(Instant::now());
        if !arrived.reply.is_empty() {
            batch.flow = Some(arrived.reply.clone());
            return Ok(());
        }
        if let Some(stalled) = find_header(&arrived.headers, b"Nats-Consumer-Stalled") {
            batch.flow = Some(stalled.to_vec());
        }
        let delivered = find_header(&arrived.headers, b"Nats-Last-Consumer")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        match delivered {
            Some(count) if count != progress.delivered => {
                Err(self.failed("deliveries are missing"))
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

//! Typed calls of JetStream's API.

use std::ops::Deref;
use std::time::{Duration, Instant};

use nuthatch_protocol::ack::parse_ack_subject;
use nuthatch_protocol::js::{
    AccountInfo, ConsumerAction, ConsumerConfig, ConsumerInfo, CreateConsumerRequest, GetAnswer,
    GetRequest, ListRequest, PurgeAnswer, PurgeRequest, StoredMessage, StreamConfig, StreamInfo,
    StreamInfoRequest, Time,
};
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{API_PREFIX, Ack, JsError, api_at, list_at};
use crate::{Client, OwnedMessage, TransportError};

/// An answer of the API: decoded, and as the server sent it, with what a later server says beside.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// What is known of it.
    pub value: T,
    /// All of it.
    pub json: Value,
}

impl<T: DeserializeOwned> Answer<T> {
    /// Decodes the answer to a call.
    ///
    /// # Errors
    /// [`JsError::BadReply`] names the call.
    pub fn read(call: &str, json: Value) -> Result<Self, JsError> {
        match T::deserialize(&json) {
            Ok(value) => Ok(Self { value, json }),
            Err(error) => {
                Err(JsError::BadReply { subject: call.to_owned(), reason: error.to_string() })
            }
        }
    }
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// As the server sent it.
impl<T> Serialize for Answer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

/// A message of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// As it came; its reply is where it is acknowledged.
    pub message: OwnedMessage,
    /// Its sequence in the stream.
    pub seq: u64,
    /// Messages that the consumer had yet to deliver then.
    pub pending: u64,
    /// When it was stored.
    pub time: Time,
}

/// JetStream over a connection. Calls wait for their answers; messages of other subscriptions that come
/// meanwhile are dropped, as by [`Client::request`].
#[derive(Debug)]
pub struct JetStream<'a> {
    client: &'a mut Client,
    prefix: String,
    timeout: Duration,
}

impl<'a> JetStream<'a> {
    /// With the usual prefix; `timeout` bounds each call.
    pub fn new(client: &'a mut Client, timeout: Duration) -> Self {
        Self::with_prefix(client, API_PREFIX, timeout)
    }

    /// With another prefix, such as that of a domain (`$JS.hub.API`).
    pub fn with_prefix(client: &'a mut Client, prefix: &str, timeout: Duration) -> Self {
        Self { client, prefix: prefix.to_owned(), timeout }
    }

    /// The connection.
    pub fn client(&mut self) -> &mut Client {
        self.client
    }

    /// Makes any call, such as `STREAM.INFO.ORDERS`.
    ///
    /// # Errors
    /// JetStream refuses or is off, the answer is not understood, or the connection fails.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        call: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, JsError> {
        let bad = |error: serde_json::Error| JsError::BadReply {
            subject: call.to_owned(),
            reason: error.to_string(),
        };
        let body = serde_json::to_value(body).map_err(bad)?;
        Answer::read(call, api_at(self.client, &self.prefix, call, &body, self.timeout)?)
    }

    fn list<T: DeserializeOwned>(
        &mut self,
        call: &str,
        field: &str,
        subject: &str,
    ) -> Result<Vec<T>, JsError> {
        let filter = json!(ListRequest { subject: subject.to_owned(), offset: 0 });
        let all = list_at(self.client, &self.prefix, call, field, &filter, self.timeout)?;
        all.into_iter().map(|one| Answer::read(call, one).map(|answer| answer.value)).collect()
    }

    /// What the account uses and may use.
    ///
    /// # Errors
    /// As [`JetStream::ask`]; so do all calls below.
    #[allow(clippy::missing_errors_doc, reason = "said once")]
    pub fn account(&mut self) -> Result<AccountInfo, JsError> {
        Ok(self.ask("INFO", &Value::Null)?.value)
    }

    /// Makes a stream, or finds it there with this configuration.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn create_stream(&mut self, config: &StreamConfig) -> Result<StreamInfo, JsError> {
        Ok(self.ask(&format!("STREAM.CREATE.{}", config.name), config)?.value)
    }

    /// Changes a stream.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn update_stream(&mut self, config: &StreamConfig) -> Result<StreamInfo, JsError> {
        Ok(self.ask(&format!("STREAM.UPDATE.{}", config.name), config)?.value)
    }

    /// Deletes a stream with all that it has.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn delete_stream(&mut self, stream: &str) -> Result<(), JsError> {
        self.ask::<Value>(&format!("STREAM.DELETE.{stream}"), &Value::Null).map(drop)
    }

    /// A stream's configuration and state.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn stream(
        &mut self,
        stream: &str,
        request: &StreamInfoRequest,
    ) -> Result<StreamInfo, JsError> {
        Ok(self.ask(&format!("STREAM.INFO.{stream}"), request)?.value)
    }

    /// All streams, or those that store a subject; an empty subject is none.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn streams(&mut self, subject: &str) -> Result<Vec<StreamInfo>, JsError> {
        self.list("STREAM.LIST", "streams", subject)
    }

    /// Names of all streams, or of those that store a subject; an empty subject is none.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn stream_names(&mut self, subject: &str) -> Result<Vec<String>, JsError> {
        self.list("STREAM.NAMES", "streams", subject)
    }

    /// Removes messages of a stream; returns how many those were.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn purge(&mut self, stream: &str, request: &PurgeRequest) -> Result<u64, JsError> {
        let answer = self.ask::<PurgeAnswer>(&format!("STREAM.PURGE.{stream}"), request)?;
        Ok(answer.purged)
    }

    /// A stored message.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn message(&mut self, stream: &str, which: &GetRequest) -> Result<StoredMessage, JsError> {
        let answer = self.ask::<GetAnswer>(&format!("STREAM.MSG.GET.{stream}"), which)?;
        Ok(answer.value.message)
    }

    /// Removes one message.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn delete_message(&mut self, stream: &str, seq: u64) -> Result<(), JsError> {
        let which = GetRequest { seq, ..GetRequest::default() };
        self.ask::<Value>(&format!("STREAM.MSG.DELETE.{stream}"), &which).map(drop)
    }

    /// Makes or changes a consumer, which the configuration names (`name` or `durable_name`).
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn create_consumer(
        &mut self,
        stream: &str,
        config: &ConsumerConfig,
        action: ConsumerAction,
    ) -> Result<ConsumerInfo, JsError> {
        let name = [&config.name, &config.durable_name].into_iter().find(|name| !name.is_empty());
        let mut call = format!("CONSUMER.CREATE.{stream}");
        // The subject carries a lone filter too, for permissions.
        for part in name.into_iter().chain(Some(&config.filter_subject).filter(|f| !f.is_empty())) {
            call = format!("{call}.{part}");
        }
        let request = CreateConsumerRequest {
            stream_name: stream.to_owned(),
            config: config.clone(),
            action,
            pedantic: false,
        };
        Ok(self.ask(&call, &request)?.value)
    }

    /// A consumer's configuration and state.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn consumer(&mut self, stream: &str, consumer: &str) -> Result<ConsumerInfo, JsError> {
        Ok(self.ask(&format!("CONSUMER.INFO.{stream}.{consumer}"), &Value::Null)?.value)
    }

    /// All consumers of a stream.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn consumers(&mut self, stream: &str) -> Result<Vec<ConsumerInfo>, JsError> {
        self.list(&format!("CONSUMER.LIST.{stream}"), "consumers", "")
    }

    /// Deletes a consumer.
    #[allow(clippy::missing_errors_doc, reason = "as `ask`")]
    pub fn delete_consumer(&mut self, stream: &str, consumer: &str) -> Result<(), JsError> {
        self.ask::<Value>(&format!("CONSUMER.DELETE.{stream}.{consumer}"), &Value::Null).map(drop)
    }

    /// Publishes, and waits until a stream has stored it; returns its sequence there. `headers` as on the wire,
    /// or empty.
    ///
    /// # Errors
    /// [`JsError::Api`] if the stream refuses it, [`crate::RequestError::NoResponders`] if no stream stores the subject.
    pub fn publish(&mut self, subject: &str, headers: &[u8], body: &[u8]) -> Result<u64, JsError> {
        let request = self.client.request(subject, headers, body, self.timeout);
        let answer = request.map_err(JsError::Request)?;
        let ack: Ack = serde_json::from_slice(&answer.payload).map_err(|error| {
            JsError::BadReply { subject: subject.to_owned(), reason: error.to_string() }
        })?;
        ack.error.map_or(Ok(ack.seq), |error| Err(JsError::Api(error)))
    }

    /// Pulls up to `batch` messages that are there; none are waited for. They are not acknowledged.
    ///
    /// # Errors
    /// The connection fails, or the server says that something is wrong with the consumer.
    pub fn fetch(
        &mut self,
        stream: &str,
        consumer: &str,
        batch: u64,
    ) -> Result<Vec<Delivered>, JsError> {
        let failed = |error: TransportError| JsError::Request(error.into());
        let call = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", self.prefix);
        let inbox = format!("{}.f.{:x}", self.client.inbox(), crate::random_u64());
        let sid = self.client.subscribe(&inbox, "").map_err(failed)?;
        let body = json!({ "batch": batch, "no_wait": true }).to_string();
        let writer = &mut self.client.writer;
        writer.publish(call.as_bytes(), inbox.as_bytes(), b"", body.as_bytes()).map_err(failed)?;
        writer.flush().map_err(failed)?;
        let found = self.fetched(sid, batch, call);
        // The subscription ends however that went.
        self.client.unsubscribe(sid).map_err(failed)?;
        found
    }

    /// The answers to one pull, until there are no more.
    fn fetched(&mut self, sid: u64, batch: u64, call: String) -> Result<Vec<Delivered>, JsError> {
        let failed = |error: TransportError| JsError::Request(error.into());
        let deadline = Instant::now() + self.timeout;
        let mut found = Vec::new();
        while (found.len() as u64) < batch {
            let (of, message) = self.client.next_with_sid(deadline).map_err(failed)?;
            if of != sid {
                continue;
            }
            // A message that is stored without a body may begin with a status too: a delivery has a place.
            let (status, text) = (message.view().status(), message.view().status_text().to_owned());
            match (delivered(message), status) {
                (Some(one), _) => found.push(one),
                // Nothing more is there.
                (None, Some(404 | 408)) => break,
                (None, Some(503)) => return Err(JsError::NotEnabled),
                (None, status) => {
                    let reason = format!("{} {text}", status.unwrap_or_default());
                    return Err(JsError::BadReply { subject: call, reason });
                }
            }
        }
        Ok(found)
    }
}

/// A message that was delivered by a consumer; its reply says where it stands.
fn delivered(message: OwnedMessage) -> Option<Delivered> {
    let reply = message.reply.clone()?;
    let place = parse_ack_subject(reply.as_bytes())?;
    let time = Time(place.timestamp_ns().unwrap_or_default());
    let (seq, pending) = (place.stream_seq, place.pending().unwrap_or(0));
    Some(Delivered { seq, pending, time, message })
}

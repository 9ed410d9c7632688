//! What is asked of another server before messages come: about the origin, and for a consumer.

use super::super::{Action, Happened, Now, Reader, Replicator, State, Unanswered};
use super::{ANSWER, Afar};
use crate::op::Range;
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, DeliverPolicy, StreamInfo, Time,
};
use nuthatch_protocol::jserror::JsError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How often the other side says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The other side deletes the consumer when it had no subscriber for so long.
const FORGET: Duration = Duration::from_secs(10);
/// Asks for a consumer that copies, and for the identity of its stream.
const SOURCING_HEADERS: &[u8] =
    b"NATS/1.0\r\nNats-Required-Api-Level: 4\r\nNats-Stream-Identity: \r\n\r\n";
/// The identity of a stream, in answers about its consumers.
const IDENTITY_HEADER: &[u8] = b"Nats-Stream-Identity";

/// Response of the other API.
#[derive(Deserialize)]
struct Response<T> {
    #[serde(default)]
    error: Option<JsError>,
    #[serde(flatten)]
    found: Option<T>,
}

/// The part of a created consumer that matters.
#[derive(Debug, Deserialize)]
pub(super) struct Created {
    #[serde(default)]
    delivered: DeliveredUpTo,
    #[serde(default)]
    num_pending: u64,
    #[serde(default)]
    config: ConsumerConfig,
}

#[derive(Debug, Deserialize, Default)]
struct DeliveredUpTo {
    #[serde(default)]
    stream_seq: u64,
}

/// The identity that an answer names; empty: the server knows none.
fn identity_of(happened: &Happened) -> String {
    let Happened::Answered { headers, .. } = happened else { return String::new() };
    let identity = find_header(headers, IDENTITY_HEADER).unwrap_or_default();
    String::from_utf8_lossy(identity).into_owned()
}

impl Replicator {
    /// What is wrong with the consumer of a mirror or a source.
    pub(super) fn trouble(&self, why: impl std::fmt::Display) -> JsError {
        let error = match self.plan.mirrors {
            true => JsError::MIRROR_CONSUMER_SETUP_FAILED,
            false => JsError::SOURCE_CONSUMER_SETUP_FAILED,
        };
        error.with_err(why)
    }

    /// Asks for the origin's creation time, which is part of what tells it from others.
    pub(in super::super) fn ask_info(&mut self, api: String, now: Now) -> Action {
        let subject = format!("{api}.STREAM.INFO.{}", self.plan.source.name);
        self.state = State::Info { api };
        Action::Ask { subject, headers: Vec::new(), body: Vec::new(), until: now + ANSWER }
    }

    pub(in super::super) fn informed(
        &mut self,
        api: String,
        happened: Happened,
        now: Now,
    ) -> Action {
        let call = format!("{api}.STREAM.INFO.{}", self.plan.source.name);
        let may_not_ask = happened == Happened::Unanswered(Unanswered::NobodyListens)
            && self.plan.source.external.is_some();
        let created = match self.answer::<StreamInfo>(&call, &happened) {
            Ok(origin) => Some(origin.created),
            // Its consumers may be ours to make all the same.
            Err(_) if may_not_ask => None,
            Err(error) => return self.failed(error),
        };
        let afar = Afar::new(api);
        match created {
            created if self.plan.source.consumer.is_some() => self.reset(afar, created, now),
            Some(created) => {
                let key = self.rewrite.key(&created.0.to_string());
                self.position(key, Reader::Afar(Box::new(afar)))
            }
            None => self.ask_identity(afar, now),
        }
    }

    /// Makes a consumer that gets nothing, whose answer tells the identity of the origin.
    fn ask_identity(&mut self, mut afar: Afar, now: Now) -> Action {
        let config = ConsumerConfig {
            deliver_subject: format!("{}.identity", self.deliver_prefix()),
            deliver_policy: DeliverPolicy::New,
            ack_policy: AckPolicy::None,
            inactive_threshold: nanos(HEARTBEAT),
            direct: true,
            ..ConsumerConfig::default()
        };
        let stream_name = self.plan.source.name.clone();
        let request =
            CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() };
        afar.call = format!("{}.CONSUMER.CREATE.{}", afar.api, self.plan.source.name);
        let subject = afar.call.clone();
        self.state = State::Identity(Box::new(afar));
        // Without a level: an older server knows none of its streams' identities.
        let headers = b"NATS/1.0\r\nNats-Stream-Identity: \r\n\r\n".to_vec();
        Action::Ask { subject, headers, body: encoded(&request), until: now + ANSWER }
    }

    pub(in super::super) fn identified(&mut self, afar: Box<Afar>, happened: Happened) -> Action {
        let identity = identity_of(&happened);
        match self.answer::<Created>(&afar.call, &happened) {
            Ok(_) => self.position(self.rewrite.key(&identity), Reader::Afar(afar)),
            Err(error) => self.failed(error),
        }
    }

    /// Sets the durable consumer that the configuration names back to what it has acknowledged.
    pub(in super::super) fn reset(
        &mut self,
        mut afar: Afar,
        created: Option<Time>,
        now: Now,
    ) -> Action {
        let consumer = self.plan.source.consumer.as_ref().expect("it has a consumer of its own");
        let subject =
            format!("{}.CONSUMER.RESET.{}.{}", afar.api, self.plan.source.name, consumer.name);
        afar.call.clone_from(&subject);
        self.key = created.map_or_else(Vec::new, |at| self.rewrite.key(&at.0.to_string()));
        self.state = State::Reset(Box::new(afar));
        let headers = SOURCING_HEADERS.to_vec();
        Action::Ask { subject, headers, body: Vec::new(), until: now + ANSWER }
    }

    pub(in super::super) fn was_reset(
        &mut self,
        mut afar: Box<Afar>,
        happened: Happened,
    ) -> Action {
        let identity = identity_of(&happened);
        let created = match self.answer::<Created>(&afar.call, &happened) {
            Ok(created) => created,
            Err(error) => return self.failed(error),
        };
        if created.config.ack_policy != AckPolicy::FlowControl {
            return self.failed(match self.plan.mirrors {
                true => JsError::MIRROR_CONSUMER_REQUIRES_ACK_FC,
                false => JsError::SOURCE_CONSUMER_REQUIRES_ACK_FC,
            });
        }
        afar.reset = Some(created);
        let known = std::mem::take(&mut self.key);
        let key = if known.is_empty() { self.rewrite.key(&identity) } else { known };
        self.position(key, Reader::Afar(afar))
    }

    /// What the subjects of deliveries begin with.
    pub(super) fn deliver_prefix(&self) -> String {
        let kind = if self.plan.mirrors { "M" } else { "S" };
        let external = self.plan.source.external.as_ref();
        let prefix = external.map(|external| external.deliver.trim_end_matches('.'));
        format!("{}.{kind}", prefix.filter(|prefix| !prefix.is_empty()).unwrap_or("$JS"))
    }

    pub(in super::super) fn listen(&mut self, mut afar: Box<Afar>, next: u64) -> Action {
        afar.next = next;
        self.state = State::Listen(afar);
        match &self.plan.source.consumer {
            Some(consumer) => Action::ListenOn { subject: consumer.deliver_subject.clone() },
            None => Action::Listen { prefix: self.deliver_prefix() },
        }
    }

    /// Makes the consumer, unless it is there.
    pub(in super::super) fn listening(
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
        if let Some(reset) = afar.reset.take() {
            return self.begin_at(afar, &reset, now);
        }
        afar.deliver_subject = deliver_subject;
        self.create(afar, now)
    }

    fn create(&mut self, mut afar: Box<Afar>, now: Now) -> Action {
        let request = self.consumer(&afar);
        let (stream, name) = (&self.plan.source.name, &request.config.name);
        let mut subject = format!("{}.CONSUMER.CREATE.{stream}", afar.api);
        let filter = &request.config.filter_subject;
        afar.is_named &= !name.is_empty() && !filter.is_empty();
        if afar.is_named {
            subject = format!("{subject}.{name}.{filter}");
        }
        afar.call.clone_from(&subject);
        let headers = if afar.is_sourcing { SOURCING_HEADERS } else { b"" }.to_vec();
        self.state = State::Create(afar);
        Action::Ask { subject, headers, body: encoded(&request), until: now + ANSWER }
    }

    /// The consumer to ask for.
    fn consumer(&self, afar: &Afar) -> CreateConsumerRequest {
        let source = &self.plan.source;
        let (mut start, mut time) = (afar.next, None);
        if afar.next == 1 {
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
        let is_sourcing = afar.is_sourcing && !self.consumer.is_empty();
        let config = ConsumerConfig {
            name: if is_sourcing { self.consumer.clone() } else { String::new() },
            deliver_subject: afar.deliver_subject.clone(),
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
            sourcing: is_sourcing,
            ..ConsumerConfig::default()
        };
        let stream_name = source.name.clone();
        CreateConsumerRequest { stream_name, config, ..CreateConsumerRequest::default() }
    }

    /// The consumer is there, or is asked for in an older form.
    pub(in super::super) fn created(
        &mut self,
        mut afar: Box<Afar>,
        happened: Happened,
        now: Now,
    ) -> Action {
        let is_unheard = happened == Happened::Unanswered(Unanswered::NobodyListens);
        match self.answer::<Created>(&afar.call, &happened) {
            Ok(created) => self.begin_at(afar, &created, now),
            Err(_) if is_unheard && afar.is_named => {
                afar.is_named = false;
                self.create(afar, now)
            }
            Err(error) if afar.is_sourcing && is_of_older_server(&error) => {
                afar.is_sourcing = false;
                self.create(afar, now)
            }
            Err(error) => self.failed(error),
        }
    }

    /// Passes over sequences that the origin has deleted, before its first delivery.
    fn begin_at(&mut self, mut afar: Box<Afar>, created: &Created, now: Now) -> Action {
        afar.pending = created.num_pending;
        let seen = created.delivered.stream_seq;
        if seen < afar.next {
            return self.go_on(Reader::Afar(afar), now);
        }
        let is_durable = self.plan.source.consumer.is_some();
        if !self.plan.mirrors {
            if is_durable {
                // What it has let go is not there for anybody.
                afar.next = seen + 1;
            }
            return self.go_on(Reader::Afar(afar), now);
        }
        afar.next = seen + 1;
        let (next, last_seq) = (afar.next, seen + created.num_pending);
        self.store(Range { messages: Vec::new(), next, last_seq }, Reader::Afar(afar), now)
    }

    /// What was asked for.
    fn answer<T: DeserializeOwned>(&self, call: &str, happened: &Happened) -> Result<T, JsError> {
        let answer = match happened {
            Happened::Answered { body, .. } => body,
            Happened::Unanswered(why) => return Err(self.unanswered(call, *why)),
            other => panic!("an answer was waited for: {other:?}"),
        };
        let response: Response<T> = serde_json::from_slice(answer)
            .map_err(|error| self.trouble(format!("answer to {call}: {error}")))?;
        match (response.error, response.found) {
            (Some(error), _) => Err(error),
            (None, Some(found)) => Ok(found),
            (None, None) => Err(self.trouble(format!("answer to {call} is not understood"))),
        }
    }

    fn unanswered(&self, call: &str, why: Unanswered) -> JsError {
        self.trouble(match why {
            Unanswered::NobodyListens if self.plan.source.external.is_some() => {
                format!("no server answers {call}: it must be exported and imported")
            }
            Unanswered::NobodyListens => format!("no server answers {call}"),
            Unanswered::Late => format!("no answer to {call} within {ANSWER:?}"),
            Unanswered::AccountGone => "the account is not there".to_owned(),
        })
    }
}

/// An older server: it does not have the level of a consumer that copies, or not even its field.
fn is_of_older_server(error: &JsError) -> bool {
    [JsError::REQUIRED_API_LEVEL, JsError::INVALID_JSON]
        .iter()
        .any(|kind| error.err_code == kind.err_code)
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn encoded(request: &CreateConsumerRequest) -> Vec<u8> {
    serde_json::to_vec(request).expect("strings and numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

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

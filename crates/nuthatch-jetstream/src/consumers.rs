//! `CONSUMER.*` calls.

use crate::elections::Elections;
use crate::envelope::{self, Paged, ResponseType, Success};
use crate::infos::Infos;
use crate::log_calls::LogCalls;
use crate::metadata::set_consumer_metadata;
use crate::outcome::{Answer, Work, unexpected};
use crate::registry::Entry;
use crate::replicas::Replicas;
use crate::request::{Call, is_empty, parse, parse_optional};
use crate::sizes::{LIST_PAGE, NAMES_PAGE, check_lengths, offset_of};
use crate::stream_table::StreamTable;
use nuthatch_protocol::headers::{self, find_header};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerAction, ConsumerConfig, ConsumerInfo, CreateConsumerRequest, Nanos,
    RetentionPolicy, StreamConfig, Time,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_server::random::random_token;
use nuthatch_server::shares::Share;
use nuthatch_streams::consumer::{PreparedConsumer, is_valid_group};
use nuthatch_streams::stream::stream_identity;
use nuthatch_streams::{AccountId, Op, OpOutcome};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The identity of a stream, as copies of it ask for it.
const IDENTITY_HEADER: &[u8] = b"Nats-Stream-Identity";
/// Characters that make a consumer's name one of its own.
const NAME_CHARS: usize = 8;

#[derive(Deserialize, Default)]
#[serde(default)]
struct PageRequest {
    offset: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PauseRequest {
    pause_until: Option<Time>,
}

#[derive(Serialize)]
struct PausedBody {
    paused: bool,
    pause_until: Time,
    #[serde(skip_serializing_if = "is_zero")]
    pause_remaining: Nanos,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_zero(nanos: &Nanos) -> bool {
    *nanos == 0
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UnpinRequest {
    group: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResetRequest {
    seq: u64,
}

#[derive(Serialize)]
struct ResetBody<'a> {
    #[serde(flatten)]
    info: &'a ConsumerInfo,
    reset_seq: u64,
}

/// An answer that holds its type only.
#[derive(Serialize)]
struct NoBody {}

#[derive(Serialize)]
struct NamesBody {
    #[serde(flatten)]
    page: Paged,
    consumers: Vec<String>,
}

#[derive(Serialize)]
struct ListBody {
    #[serde(flatten)]
    page: Paged,
    consumers: Vec<ConsumerInfo>,
}

/// Handles the calls about consumers.
pub(super) struct ConsumerCalls {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) infos: Arc<Infos>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) elections: Arc<Elections>,
}

impl ConsumerCalls {
    /// `CONSUMER.CREATE`.
    pub(super) async fn create(
        &self,
        account: AccountId,
        api_call: Call<'_>,
        body: &[u8],
        (asked, told, then): (&[u8], &mut Vec<u8>, &mut Option<Work>),
    ) -> Answer {
        let mut request: CreateConsumerRequest = parse(body, self.strict)?;
        name_from_subject(&api_call, &mut request)?;
        let config = &request.config;
        let filters = config.filter_subjects.iter().chain([&config.filter_subject]);
        check_lengths(filters, JsError::CONSUMER_CREATE)?;
        if request.config.num_replicas > self.replicas.max() {
            return Err(JsError::STREAM_REPLICAS_NOT_SUPPORTED);
        }
        let entry = self.streams.entry(account, &request.stream_name)?;
        serve_copy(&mut request.config, &entry.config);
        if request.config.direct || request.config.sourcing {
            let identity = stream_identity(entry.created);
            let wanted = find_header(asked, IDENTITY_HEADER).unwrap_or_default();
            if !wanted.is_empty() && wanted != identity.as_bytes() {
                return Err(JsError::CONSUMER_STREAM_IDENTITY_MISMATCH.with("msg", identity));
            }
            headers::append(told, IDENTITY_HEADER, identity.as_bytes());
        }
        set_consumer_metadata(&mut request.config);
        let is_told =
            self.elections.may_hear_of_consumers(&entry) && self.is_new(&entry, &request).await;
        let request = PreparedConsumer::new(request).held();
        let op = Op::CreateConsumer { id: entry.id, request };
        match self.calls.run(entry.engine, op).await? {
            OpOutcome::Consumer(mut info) => {
                if is_told {
                    self.elections.consumer_led(&entry, &info.name, &info.config);
                }
                *then = Some(self.start(&entry, info.name.clone()));
                self.infos.complete_consumer(&entry, &mut info);
                Ok(envelope::ok(ResponseType("consumer_create"), &*info))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// True if a request makes a consumer, unless another one makes it meanwhile.
    async fn is_new(&self, entry: &Entry, request: &CreateConsumerRequest) -> bool {
        let names = [&request.config.durable_name, &request.config.name];
        let Some(name) = names.into_iter().find(|name| !name.is_empty()) else { return true };
        let op = Op::ConsumerInfo { id: entry.id, name: name.clone() };
        self.calls.run(entry.engine, op).await.is_err()
    }

    /// Lets a new consumer deliver, now that whoever asked for it knows.
    fn start(&self, entry: &Entry, name: String) -> Work {
        let (calls, log, op) =
            (self.calls.clone(), entry.engine, Op::StartConsumer { id: entry.id, name });
        Box::pin(async move {
            // It may be gone again; and where the queue is full it starts by itself in a while.
            let _ = calls.run(log, op).await;
        })
    }

    /// `CONSUMER.INFO`.
    pub(super) async fn info(
        &self,
        account: AccountId,
        stream: &str,
        name: &str,
        body: &[u8],
    ) -> Answer {
        if !is_empty(body) {
            return Err(JsError::NOT_EMPTY_REQUEST);
        }
        let entry = self.streams.entry(account, stream)?;
        let op = Op::ConsumerInfo { id: entry.id, name: name.to_owned() };
        self.answer("consumer_info", &entry, op).await
    }

    /// `CONSUMER.DELETE`.
    pub(super) async fn delete(
        &self,
        account: AccountId,
        stream: &str,
        name: &str,
        body: &[u8],
    ) -> Answer {
        if !is_empty(body) {
            return Err(JsError::NOT_EMPTY_REQUEST);
        }
        let entry = self.streams.entry(account, stream)?;
        let op = Op::DeleteConsumer { id: entry.id, name: name.to_owned() };
        self.calls.run(entry.engine, op).await?;
        self.elections.consumer_gone(&entry, name);
        Ok(envelope::ok(ResponseType("consumer_delete"), &Success::YES))
    }

    /// Pauses a consumer until a time, or resumes it without one. It is an update of its
    /// configuration.
    pub(super) async fn pause(
        &self,
        account: AccountId,
        stream: &str,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let request: PauseRequest = parse_optional(body, self.strict)?;
        let entry = self.streams.entry(account, stream)?;
        let op = Op::ConsumerInfo { id: entry.id, name: name.to_owned() };
        let mut config = match self.calls.run(entry.engine, op).await? {
            OpOutcome::Consumer(info) => info.config,
            other => return Err(unexpected(&other)),
        };
        let until = request.pause_until.unwrap_or(Time::ZERO);
        config.pause_until = Some(until).filter(|until| !until.is_zero());
        set_consumer_metadata(&mut config);
        let request = CreateConsumerRequest {
            stream_name: stream.to_owned(),
            config,
            action: ConsumerAction::Update,
            pedantic: false,
        };
        let op = Op::CreateConsumer { id: entry.id, request: PreparedConsumer::new(request) };
        match self.calls.run(entry.engine, op).await? {
            OpOutcome::Consumer(info) => Ok(envelope::ok(
                ResponseType("consumer_pause"),
                &PausedBody {
                    paused: info.paused,
                    pause_until: until,
                    pause_remaining: info.pause_remaining,
                },
            )),
            other => Err(unexpected(&other)),
        }
    }

    /// `CONSUMER.UNPIN`.
    pub(super) async fn unpin(
        &self,
        account: AccountId,
        stream: &str,
        name: &str,
        body: &[u8],
    ) -> Answer {
        let request: UnpinRequest = parse(body, self.strict)?;
        if request.group.is_empty() {
            return Err(JsError::INVALID_JSON.with("err", "consumer group not specified"));
        }
        if !is_valid_group(&request.group) {
            return Err(JsError::CONSUMER_INVALID_GROUP_NAME);
        }
        let entry = self.streams.entry(account, stream)?;
        let (id, name) = (entry.id, name.to_owned());
        self.calls.run(entry.engine, Op::UnpinConsumer { id, name, group: request.group }).await?;
        Ok(envelope::ok(ResponseType("consumer_unpin"), &NoBody {}))
    }

    /// `CONSUMER.RESET`.
    pub(super) async fn reset(
        &self,
        account: AccountId,
        (stream, name): (&str, &str),
        body: &[u8],
        (asked, told): (&[u8], &mut Vec<u8>),
    ) -> Answer {
        let request: ResetRequest = parse(body, self.strict)?;
        let entry = self.streams.entry(account, stream)?;
        let op = Op::ResetConsumer { id: entry.id, name: name.to_owned(), seq: request.seq };
        match self.calls.run(entry.engine, op).await? {
            OpOutcome::Reset { seq, mut info } => {
                if find_header(asked, IDENTITY_HEADER).is_some() {
                    let identity = stream_identity(entry.created);
                    headers::append(told, IDENTITY_HEADER, identity.as_bytes());
                }
                self.infos.complete_consumer(&entry, &mut info);
                let body = ResetBody { info: &info, reset_seq: seq };
                Ok(envelope::ok(ResponseType("consumer_reset"), &body))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// `CONSUMER.NAMES` and `CONSUMER.LIST`.
    pub(super) async fn page(
        &self,
        account: AccountId,
        stream: &str,
        body: &[u8],
        names_only: bool,
        share: &mut Share,
    ) -> Answer {
        let request: PageRequest = parse_optional(body, self.strict)?;
        let entry = self.streams.entry(account, stream)?;
        let offset = offset_of(request.offset);
        let limit = if names_only { NAMES_PAGE } else { LIST_PAGE };
        let op = Op::ListConsumers { id: entry.id, offset, limit, names_only };
        let outcome = self.calls.run(entry.engine, op).await?;
        let OpOutcome::Consumers { total, names, mut infos } = outcome else {
            return Err(unexpected(&outcome));
        };
        let page = Paged { total, offset: offset.min(total), limit };
        if names_only {
            let body = NamesBody { page, consumers: names };
            return Ok(envelope::ok(ResponseType("consumer_names"), &body));
        }
        for info in &mut infos {
            self.infos.complete_listed_consumer(&entry, info);
        }
        let body = ListBody { page, consumers: infos };
        envelope::charged(ResponseType("consumer_list"), &body, share)
    }

    async fn answer(&self, kind: &'static str, entry: &Entry, op: Op) -> Answer {
        match self.calls.run(entry.engine, op).await? {
            OpOutcome::Consumer(mut info) => {
                self.infos.complete_consumer(entry, &mut info);
                Ok(envelope::ok(ResponseType(kind), &*info))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// A consumer that is asked for under a name by a copy of the stream. Where the stream keeps messages for
/// its consumers it becomes a durable one, which acknowledges by flow control; else it gets a name that no
/// earlier one has.
fn serve_copy(config: &mut ConsumerConfig, stream: &StreamConfig) {
    if !config.direct || !config.sourcing || config.name.is_empty() {
        return;
    }
    if stream.retention == RetentionPolicy::Limits {
        config.name = format!("{}-{}", config.name, random_token(NAME_CHARS));
        return;
    }
    config.direct = false;
    config.durable_name.clone_from(&config.name);
    config.ack_policy = AckPolicy::FlowControl;
    (config.ack_wait, config.max_deliver, config.inactive_threshold) = (0, 0, 0);
}

/// Checks the request against its subject and puts the consumer's name into the configuration
/// (`jsConsumerCreateRequest`).
fn name_from_subject(
    api_call: &Call<'_>,
    request: &mut CreateConsumerRequest,
) -> Result<(), JsError> {
    let config = &mut request.config;
    let (stream, name, filter) = match *api_call {
        Call::ConsumerCreateEphemeral(stream) => (stream, "", ""),
        Call::ConsumerCreate { stream, name, filter } => (stream, name, filter),
        Call::ConsumerCreateDurable { stream, name } => (stream, name, ""),
        _ => return Err(JsError::BAD_REQUEST),
    };
    let durable_call = matches!(api_call, Call::ConsumerCreateDurable { .. });
    if durable_call && name.is_empty() {
        return Err(JsError::CONSUMER_DURABLE_NAME_NOT_IN_SUBJECT);
    }
    if stream != request.stream_name {
        return Err(JsError::STREAM_MISMATCH);
    }
    if name.contains(['/', '\\']) || config.name.contains(['/', '\\']) {
        return Err(JsError::CONSUMER_NAME_CONTAINS_PATH_SEPARATORS);
    }
    if durable_call && config.durable_name.is_empty() {
        return Err(JsError::CONSUMER_DURABLE_NAME_NOT_SET);
    }
    if name.is_empty() && !config.durable_name.is_empty() {
        return Err(JsError::CONSUMER_EPHEMERAL_WITH_DURABLE_NAME);
    }
    if !config.durable_name.is_empty() && config.durable_name != name {
        return Err(JsError::CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT);
    }
    if !name.is_empty() {
        name.clone_into(&mut config.name);
    }
    if !filter.is_empty() {
        if !config.filter_subjects.is_empty() {
            return Err(JsError::CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED);
        }
        if config.filter_subject != filter {
            return Err(JsError::CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH);
        }
    }
    Ok(())
}

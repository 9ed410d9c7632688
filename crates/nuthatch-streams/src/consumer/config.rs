//! Which consumer configurations are accepted, and what their defaults are (those of nats-server; docs/nats-compatibility.md names the differences).
//!
//! The order of the checks is nats-server's, because a configuration with two faults must be refused
//! with the same error.

use super::filter::{Filter, patterns_of};
use crate::subject_set::{FILTER_STEPS_MAX, Relation, first_pair};
use nuthatch_protocol::js::{
    AckPolicy, ConsumerConfig, CreateConsumerRequest, DeliverPolicy, Nanos, PriorityPolicy,
    RetentionPolicy, StreamConfig,
};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject;

/// Most filters of one consumer. nats-server has no limit but that of a request's size.
pub const FILTERS_MAX: usize = 8_192;
/// Longest consumer name.
const NAME_MAX_BYTES: usize = 255;
/// Longest description.
const DESCRIPTION_MAX_BYTES: usize = 4 << 10;
/// Largest sum of metadata keys and values.
const METADATA_MAX_BYTES: usize = 128 << 10;
/// Default of `ack_wait`.
const ACK_WAIT_DEFAULT_NS: Nanos = 30_000_000_000;
/// Default of `inactive_threshold` for ephemerals.
const INACTIVE_DEFAULT_NS: Nanos = 5_000_000_000;
/// Default of `max_ack_pending`.
const MAX_ACK_PENDING_DEFAULT: i64 = 1_000;
/// Default of `max_waiting` for pull consumers.
const MAX_WAITING_DEFAULT: i64 = 512;
/// Smallest `idle_heartbeat`.
const HEARTBEAT_MIN_NS: Nanos = 100_000_000;
/// The `idle_heartbeat` of a consumer whose flow control replies acknowledge.
const FLOW_ACK_HEARTBEAT_NS: Nanos = 1_000_000_000;
/// Smallest `max_expires`.
const MAX_EXPIRES_MIN_NS: Nanos = 1_000_000;

/// Limits of server and account on consumers; 0 or less: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerLimits {
    /// Largest `max_ack_pending` (`limits.max_ack_pending`).
    pub max_ack_pending: i64,
    /// Largest `max_batch` (`limits.max_request_batch`).
    pub max_request_batch: i64,
    /// Consumers of a stream that sets no limit itself (`limits.default_max_consumers`).
    pub max_consumers: i64,
}

/// Checks a configuration and fills in defaults. The name stays empty if none was given: the
/// service or engine makes one up. Also used for updates, followed by [`super::check_update`].
///
/// # Errors
/// The JetStream error to answer with.
pub fn validate_consumer(
    request: &CreateConsumerRequest,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<ConsumerConfig, JsError> {
    validate(request, &consumer_filters(&request.config), stream, limits)
}

/// [`validate_consumer`] of a request whose filters were checked before.
///
/// # Errors
/// The JetStream error to answer with.
pub fn validate_prepared(
    prepared: &PreparedConsumer,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<ConsumerConfig, JsError> {
    validate(&prepared.request, &prepared.verdict, stream, limits)
}

/// A request to create a consumer whose filters were checked and put in order by its sender: that
/// takes some milliseconds for [`FILTERS_MAX`] of them, in which a sequencer would serve nobody.
#[derive(Clone, PartialEq, Debug)]
pub struct PreparedConsumer {
    request: CreateConsumerRequest,
    verdict: Result<(), JsError>,
    filter: Filter,
    held: bool,
}

impl PreparedConsumer {
    /// Checks the filters of a request. What is wrong with them is told when the request is handled:
    /// other faults come before it.
    #[must_use]
    pub fn new(request: CreateConsumerRequest) -> Box<Self> {
        let verdict = consumer_filters(&request.config);
        // Of filters that are refused nothing is needed, and there may be any number of them.
        let filter = match verdict {
            Ok(()) => Filter::new(&request.config),
            Err(_) => Filter::new(&ConsumerConfig::default()),
        };
        Box::new(Self { request, verdict, filter, held: false })
    }

    /// A new consumer delivers nothing before [`crate::Op::StartConsumer`], or for a while: whoever asks for
    /// it hears of it first.
    #[must_use]
    pub fn held(mut self: Box<Self>) -> Box<Self> {
        self.held = true;
        self
    }

    /// True if a new consumer waits for [`crate::Op::StartConsumer`].
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> &CreateConsumerRequest {
        &self.request
    }

    /// Its filters.
    #[must_use]
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }
}

/// The checks in nats-server's order; `filters` is the verdict of [`consumer_filters`].
fn validate(
    request: &CreateConsumerRequest,
    filters: &Result<(), JsError>,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<ConsumerConfig, JsError> {
    let mut config = request.config.clone();
    if request.pedantic {
        check_pedantic(&config, stream, limits)?;
    }
    set_defaults(&mut config, stream, limits);
    if config.ack_policy == AckPolicy::FlowControl && !request.pedantic {
        config.flow_control = true;
        config.idle_heartbeat = FLOW_ACK_HEARTBEAT_NS;
    }
    check_names(&config)?;
    check_replicas(&config, stream)?;
    check_acks(&config)?;
    if config.description.len() > DESCRIPTION_MAX_BYTES {
        return Err(JsError::CONSUMER_DESCRIPTION_TOO_LONG.with("max", DESCRIPTION_MAX_BYTES));
    }
    if config.deliver_subject.is_empty() {
        check_pull(&config, stream, limits)?;
    } else {
        check_push(&config, stream)?;
    }
    check_limits(&config, stream, limits)?;
    check_direct(&config)?;
    filters.clone()?;
    check_start(&config)?;
    check_rest(&config)?;
    if config.name.is_empty() {
        config.name.clone_from(&config.durable_name);
    }
    if config.durable_name.is_empty() && config.inactive_threshold == 0 {
        config.inactive_threshold = INACTIVE_DEFAULT_NS;
    }
    Ok(config)
}

fn invalid(why: impl std::fmt::Display) -> JsError {
    JsError::STREAM_INVALID_CONFIG.with_err(why)
}

/// Pedantic mode: refuses what would otherwise silently be changed.
fn check_pedantic(
    config: &ConsumerConfig,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<(), JsError> {
    let stream_limits = &stream.consumer_limits;
    let pull = config.deliver_subject.is_empty();
    let faults = [
        (config.max_deliver < -1, "max_deliver must be set to -1"),
        (config.max_waiting < 0, "max_waiting must not be negative"),
        (config.max_ack_pending < -1, "max_ack_pending must be set to -1"),
        (config.max_batch < 0, "max_batch must not be negative"),
        (config.max_expires < 0, "max_expires must not be negative"),
        (config.max_bytes < 0, "max_bytes must not be negative"),
        (config.idle_heartbeat < 0, "idle_heartbeat must not be negative"),
        (config.inactive_threshold < 0, "inactive_threshold must not be negative"),
        (config.priority_timeout < 0, "priority_timeout must not be negative"),
        (
            config.backoff.first().is_some_and(|&first| first != config.ack_wait),
            "first backoff value has to equal batch AckWait",
        ),
        (
            config.max_ack_pending == 0 && stream_limits.max_ack_pending > 0,
            "max_ack_pending must be set if it's configured in stream limits",
        ),
        (
            config.inactive_threshold == 0 && stream_limits.inactive_threshold > 0,
            "inactive_threshold must be set if it's configured in stream limits",
        ),
        (
            pull && config.max_batch == 0 && limits.max_request_batch > 0,
            "max_request_batch must be set if it's JetStream limits are set",
        ),
    ];
    match faults.iter().find(|(fault, _)| *fault) {
        Some((_, why)) => Err(JsError::PEDANTIC.with_err(why)),
        None => Ok(()),
    }
}

fn set_defaults(config: &mut ConsumerConfig, stream: &StreamConfig, limits: &ConsumerLimits) {
    let pull = config.deliver_subject.is_empty();
    if config.max_deliver == 0 || config.max_deliver < -1 {
        config.max_deliver = -1;
    }
    config.max_waiting = config.max_waiting.max(0);
    config.max_ack_pending = config.max_ack_pending.max(-1);
    config.max_batch = config.max_batch.max(0);
    config.max_expires = config.max_expires.max(0);
    config.max_bytes = config.max_bytes.max(0);
    config.idle_heartbeat = config.idle_heartbeat.max(0);
    config.inactive_threshold = config.inactive_threshold.max(0);
    config.priority_timeout = config.priority_timeout.max(0);
    if config.priority_policy == PriorityPolicy::PinnedClient && config.priority_timeout == 0 {
        config.priority_timeout = super::priority::PIN_TIMEOUT_DEFAULT_NS;
    }
    if pull && config.max_waiting == 0 {
        config.max_waiting = MAX_WAITING_DEFAULT;
    }
    let acked = matches!(config.ack_policy, AckPolicy::Explicit | AckPolicy::All);
    if config.ack_wait == 0 && acked {
        config.ack_wait = ACK_WAIT_DEFAULT_NS;
    }
    if let Some(&first) = config.backoff.first() {
        config.ack_wait = first;
    }
    if config.max_ack_pending == 0 {
        config.max_ack_pending = stream.consumer_limits.max_ack_pending;
    }
    if config.inactive_threshold == 0 {
        config.inactive_threshold = stream.consumer_limits.inactive_threshold;
    }
    if config.max_ack_pending == 0 && config.ack_policy != AckPolicy::None {
        let limit = Some(limits.max_ack_pending).filter(|&limit| limit > 0);
        config.max_ack_pending = MAX_ACK_PENDING_DEFAULT.min(limit.unwrap_or(i64::MAX));
    }
    if pull && config.max_batch == 0 && limits.max_request_batch > 0 {
        config.max_batch = limits.max_request_batch;
    }
}

fn is_valid_name(name: &str) -> bool {
    !name.bytes().any(|byte| b" \t\r\n\x0c.*>\\/".contains(&byte))
}

fn check_names(config: &ConsumerConfig) -> Result<(), JsError> {
    for (name, what) in [(&config.name, "name"), (&config.durable_name, "durable name")] {
        if !is_valid_name(name) {
            return Err(invalid(format!(
                "consumer {what} can not contain '.', '*', '>', '\\', '/'"
            )));
        }
        if name.len() > NAME_MAX_BYTES {
            return Err(JsError::CONSUMER_NAME_TOO_LONG.with("max", NAME_MAX_BYTES));
        }
    }
    Ok(())
}

fn check_replicas(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), JsError> {
    if config.num_replicas > stream.num_replicas.max(1) {
        return Err(JsError::CONSUMER_REPLICAS_EXCEEDS_STREAM);
    }
    if config.num_replicas < 0 {
        return Err(JsError::REPLICAS_COUNT_CANNOT_BE_NEGATIVE);
    }
    let must_match = stream.retention != RetentionPolicy::Limits;
    if must_match && config.num_replicas != 0 && config.num_replicas != stream.num_replicas.max(1) {
        return Err(JsError::CONSUMER_REPLICAS_SHOULD_MATCH_STREAM);
    }
    Ok(())
}

fn check_acks(config: &ConsumerConfig) -> Result<(), JsError> {
    if config.backoff.iter().any(|&step| step < 0) {
        return Err(JsError::CONSUMER_BACK_OFF_NEGATIVE);
    }
    if config.ack_wait < 0 {
        return Err(JsError::CONSUMER_ACK_WAIT_NEGATIVE);
    }
    if config.ack_policy == AckPolicy::FlowControl {
        check_flow_acks(config)?;
    }
    check_backoff(config)
}

/// What a consumer needs whose flow control replies acknowledge.
fn check_flow_acks(config: &ConsumerConfig) -> Result<(), JsError> {
    let has_wait = config.ack_wait != 0 || !config.backoff.is_empty();
    let faults = [
        (config.deliver_subject.is_empty(), JsError::CONSUMER_ACK_FC_REQUIRES_PUSH),
        (!config.flow_control, JsError::CONSUMER_ACK_FC_REQUIRES_FC),
        (
            config.idle_heartbeat != FLOW_ACK_HEARTBEAT_NS,
            invalid("flow control ack policy heartbeat needs to be 1s"),
        ),
        (config.max_ack_pending <= 0, JsError::CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING),
        (has_wait, JsError::CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT),
        (config.max_deliver > 0, JsError::CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER),
    ];
    match faults.into_iter().find(|(fault, _)| *fault) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// More back-off steps than deliveries make no sense.
pub(super) fn check_backoff(config: &ConsumerConfig) -> Result<(), JsError> {
    let steps = i64::try_from(config.backoff.len()).unwrap_or(i64::MAX);
    if steps > 0 && config.max_deliver != -1 && steps > config.max_deliver {
        return Err(JsError::CONSUMER_MAX_DELIVER_BACKOFF);
    }
    Ok(())
}

fn check_push(config: &ConsumerConfig, stream: &StreamConfig) -> Result<(), JsError> {
    let deliver = config.deliver_subject.as_bytes();
    if subject::has_wildcard(deliver) {
        return Err(JsError::CONSUMER_DELIVER_TO_WILDCARDS);
    }
    if !subject::is_valid_subject(deliver) {
        return Err(JsError::CONSUMER_INVALID_DELIVER_SUBJECT);
    }
    if stream.subjects.iter().any(|own| subject::is_subset(deliver, own.as_bytes())) {
        return Err(JsError::CONSUMER_DELIVER_CYCLE);
    }
    if config.max_waiting != 0 {
        return Err(JsError::CONSUMER_PUSH_MAX_WAITING);
    }
    if config.max_ack_pending > 0 && config.ack_policy == AckPolicy::None {
        return Err(JsError::CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED);
    }
    if config.idle_heartbeat > 0 && config.idle_heartbeat < HEARTBEAT_MIN_NS {
        return Err(JsError::CONSUMER_SMALL_HEARTBEAT);
    }
    Ok(())
}

fn check_pull(
    config: &ConsumerConfig,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<(), JsError> {
    if config.ack_policy == AckPolicy::None && stream.retention == RetentionPolicy::Workqueue {
        return Err(JsError::CONSUMER_PULL_REQUIRES_ACK);
    }
    if config.rate_limit_bps > 0 {
        return Err(JsError::CONSUMER_PULL_WITH_RATE_LIMIT);
    }
    if config.idle_heartbeat > 0 {
        return Err(JsError::CONSUMER_HB_REQUIRES_PUSH);
    }
    if config.flow_control {
        return Err(JsError::CONSUMER_FC_REQUIRES_PUSH);
    }
    if config.max_expires != 0 && config.max_expires < MAX_EXPIRES_MIN_NS {
        return Err(JsError::CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL);
    }
    if limits.max_request_batch > 0 && config.max_batch > limits.max_request_batch {
        let limit = limits.max_request_batch;
        return Err(JsError::CONSUMER_MAX_REQUEST_BATCH_EXCEEDED.with("limit", limit));
    }
    Ok(())
}

fn check_limits(
    config: &ConsumerConfig,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<(), JsError> {
    for limit in [limits.max_ack_pending, stream.consumer_limits.max_ack_pending] {
        if limit > 0 && config.max_ack_pending > limit {
            return Err(JsError::CONSUMER_MAX_PENDING_ACK_EXCESS.with("limit", limit));
        }
    }
    let longest = stream.consumer_limits.inactive_threshold;
    if longest > 0 && config.inactive_threshold > longest {
        let limit = super::request::go_duration(longest);
        return Err(JsError::CONSUMER_INACTIVE_THRESHOLD_EXCESS.with("limit", limit));
    }
    Ok(())
}

fn check_direct(config: &ConsumerConfig) -> Result<(), JsError> {
    if config.direct && config.deliver_subject.is_empty() {
        return Err(JsError::CONSUMER_DIRECT_REQUIRES_PUSH);
    }
    if config.direct && !config.durable_name.is_empty() {
        return Err(JsError::CONSUMER_DIRECT_REQUIRES_EPHEMERAL);
    }
    Ok(())
}

/// Checks the filters of a consumer as far as they can be judged by themselves: how many there are,
/// whether they are valid, and whether one makes another superfluous.
///
/// Up to [`FILTERS_MAX`] of them take some milliseconds, so this is never asked on a sequencer
/// ([`PreparedConsumer`]).
///
/// # Errors
/// The JetStream error to answer with.
pub fn consumer_filters(config: &ConsumerConfig) -> Result<(), JsError> {
    if !config.filter_subject.is_empty() && !config.filter_subjects.is_empty() {
        return Err(JsError::CONSUMER_DUPLICATE_FILTER_SUBJECTS);
    }
    if config.filter_subjects.len() > FILTERS_MAX {
        return Err(invalid(format!("a consumer can have at most {FILTERS_MAX} filters")));
    }
    if config.filter_subjects.iter().any(String::is_empty) {
        return Err(JsError::CONSUMER_EMPTY_FILTER);
    }
    let filters = || patterns_of(config).map(str::as_bytes);
    let pair = first_pair(filters(), Relation::Within, FILTER_STEPS_MAX).map_err(invalid)?;
    for (at, filter) in filters().enumerate() {
        if !subject::is_valid_subject(filter) {
            return Err(invalid("invalid subject"));
        }
        if pair.is_some_and(|(narrow, _)| narrow == at) {
            return Err(JsError::CONSUMER_OVERLAPPING_SUBJECT_FILTERS);
        }
    }
    Ok(())
}

/// Deliver policy against the optional starting points.
fn check_start(config: &ConsumerConfig) -> Result<(), JsError> {
    let (has_seq, has_time) = (config.opt_start_seq > 0, config.opt_start_time.is_some());
    let surplus = |policy: &str, start: &str| {
        Err(JsError::CONSUMER_INVALID_POLICY.with_err(format!(
            "consumer delivery policy is deliver {policy}, but optional start {start} is also set"
        )))
    };
    let missing = |policy: &str, what: &str| {
        Err(JsError::CONSUMER_INVALID_POLICY.with_err(format!(
            "consumer delivery policy is deliver {policy}, but optional {what} is not set"
        )))
    };
    let name = match config.deliver_policy {
        DeliverPolicy::ByStartSequence if !has_seq => {
            return missing("by start sequence", "start sequence");
        }
        DeliverPolicy::ByStartSequence if has_time => return surplus("by start sequence", "time"),
        DeliverPolicy::ByStartTime if !has_time => return missing("by start time", "start time"),
        DeliverPolicy::ByStartTime if has_seq => {
            return surplus("by start time", "start sequence");
        }
        DeliverPolicy::ByStartSequence | DeliverPolicy::ByStartTime => return Ok(()),
        DeliverPolicy::All => "all",
        DeliverPolicy::Last => "last",
        DeliverPolicy::LastPerSubject => "last per subject",
        DeliverPolicy::New => "new",
    };
    if has_seq {
        return surplus(name, "sequence");
    }
    if has_time {
        return surplus(name, "time");
    }
    if config.deliver_policy == DeliverPolicy::LastPerSubject
        && patterns_of(config).next().is_none()
    {
        return missing(name, "filter subject");
    }
    Ok(())
}

fn check_rest(config: &ConsumerConfig) -> Result<(), JsError> {
    let percent = config.sample_freq.strip_suffix('%').unwrap_or(&config.sample_freq);
    if !config.sample_freq.is_empty() && percent.parse::<u32>().is_err() {
        let why = format!("strconv.Atoi: parsing {percent:?}: invalid syntax");
        return Err(JsError::CONSUMER_INVALID_SAMPLING.with_err(why));
    }
    if config.flow_control && config.idle_heartbeat == 0 {
        return Err(JsError::CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS);
    }
    let (name, durable) = (&config.name, &config.durable_name);
    if !name.is_empty() && !durable.is_empty() && name != durable {
        return Err(JsError::CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH);
    }
    let metadata: usize = config.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if metadata > METADATA_MAX_BYTES {
        let limit = format!("{}KB", METADATA_MAX_BYTES >> 10);
        return Err(JsError::CONSUMER_METADATA_LENGTH.with("limit", limit));
    }
    super::priority::check_config(config)
}

#[cfg(test)]
mod tests;

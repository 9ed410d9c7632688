//! Consumer configuration and information, and the requests about consumers.

use super::stream::null_default;
use super::{ClusterInfo, Metadata, Nanos, RetentionPolicy, StreamConfig, Time, is_default};
use serde::{Deserialize, Serialize};

/// Start position of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliverPolicy {
    /// The first message kept.
    #[default]
    All,
    /// The last message that matches.
    Last,
    /// Messages stored from now on.
    New,
    /// A sequence.
    ByStartSequence,
    /// A time.
    ByStartTime,
    /// The last message of each matching subject.
    LastPerSubject,
}

/// How messages are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckPolicy {
    /// Not at all: delivered means done.
    #[default]
    None,
    /// One acknowledges all before it.
    All,
    /// Each on its own.
    Explicit,
    /// Through flow control (internal sourcing).
    FlowControl,
}

/// At what pace messages are replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayPolicy {
    /// As fast as possible.
    #[default]
    Instant,
    /// At the pace at which they were stored.
    Original,
}

/// Priority group policy (ADR-42).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriorityPolicy {
    /// No priority groups.
    #[default]
    None,
    /// Overflow.
    Overflow,
    /// Pinned client.
    PinnedClient,
    /// Prioritized.
    Prioritized,
}

/// Configuration of a consumer. Defaults and rules are those of nats-server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names; meanings are in the JetStream documentation
#[serde(default)]
pub struct ConsumerConfig {
    #[serde(skip_serializing_if = "is_default")]
    pub durable_name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub description: String,
    pub deliver_policy: DeliverPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub opt_start_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Time>,
    pub ack_policy: AckPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub ack_wait: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub max_deliver: i64,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub backoff: Vec<Nanos>,
    #[serde(skip_serializing_if = "is_default")]
    pub filter_subject: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub filter_subjects: Vec<String>,
    pub replay_policy: ReplayPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub rate_limit_bps: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub sample_freq: String,
    #[serde(skip_serializing_if = "is_default")]
    pub max_waiting: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub max_ack_pending: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub flow_control: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub headers_only: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub max_batch: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub max_expires: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub max_bytes: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub deliver_subject: String,
    #[serde(skip_serializing_if = "is_default")]
    pub deliver_group: String,
    #[serde(skip_serializing_if = "is_default")]
    pub idle_heartbeat: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub inactive_threshold: Nanos,
    pub num_replicas: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub mem_storage: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub direct: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub sourcing: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_until: Option<Time>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub priority_groups: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub priority_policy: PriorityPolicy,
    #[serde(skip_serializing_if = "is_default")]
    pub priority_timeout: Nanos,
}

impl ConsumerConfig {
    /// How many replicas a consumer of a stream has: as many as it asks for, else one that is temporary in a stream that
    /// keeps messages for nobody has one, and any other as many as the stream (nats-server `replicas` of a consumer).
    #[must_use]
    pub fn replicas_in(&self, stream: &StreamConfig) -> i64 {
        let is_temporary = self.durable_name.is_empty();
        match self.num_replicas {
            0 if is_temporary && stream.retention == RetentionPolicy::Limits => 1,
            0 => stream.num_replicas,
            own => own,
        }
    }
}

/// Effect allowed to a create request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ConsumerAction {
    /// Create, or update an existing one.
    #[serde(rename = "")]
    #[default]
    CreateOrUpdate,
    /// Only create.
    #[serde(rename = "create")]
    Create,
    /// Only update.
    #[serde(rename = "update")]
    Update,
}

/// Body of `CONSUMER.CREATE` and `CONSUMER.DURABLE.CREATE`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct CreateConsumerRequest {
    pub stream_name: String,
    pub config: ConsumerConfig,
    pub action: ConsumerAction,
    #[serde(skip_serializing_if = "is_default")]
    pub pedantic: bool,
}

/// A pair of positions: in the consumer's own count and in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct SequenceInfo {
    pub consumer_seq: u64,
    pub stream_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<Time>,
}

/// The state of a priority group (ADR-42).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct PriorityGroupState {
    pub group: String,
    #[serde(skip_serializing_if = "is_default")]
    pub pinned_client_id: String,
    pub pinned_ts: Time,
}

/// `CONSUMER.INFO` and the like.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct ConsumerInfo {
    pub stream_name: String,
    pub name: String,
    pub created: Time,
    pub config: ConsumerConfig,
    pub delivered: SequenceInfo,
    pub ack_floor: SequenceInfo,
    pub num_ack_pending: u64,
    pub num_redelivered: u64,
    pub num_waiting: u64,
    pub num_pending: u64,
    /// When the oldest message that waits for its acknowledgement was stored. For monitoring: it is never sent.
    #[serde(skip)]
    pub oldest_ack_pending: Option<Time>,
    /// Inboxes of pull requests that wait, the first ones. For monitoring: they are never sent.
    #[serde(skip)]
    pub waiting_inboxes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterInfo>,
    #[serde(skip_serializing_if = "is_default")]
    pub push_bound: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub paused: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub pause_remaining: Nanos,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub priority_groups: Vec<PriorityGroupState>,
    pub ts: Time,
}

//! Stream configuration, state and information.

use super::{Metadata, Nanos, Time, is_default};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When messages leave a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetentionPolicy {
    /// When a limit is passed.
    #[default]
    Limits,
    /// When every consumer has acknowledged them.
    Interest,
    /// When one consumer has acknowledged them.
    Workqueue,
}

/// Message that gives way when a limit is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiscardPolicy {
    /// The oldest messages.
    #[default]
    Old,
    /// The new message: the publish is refused.
    New,
}

/// Storage of a stream's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageType {
    /// On disk.
    #[default]
    File,
    /// In memory; gone after a restart.
    Memory,
}

/// Compression of cold data. Accepted and reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreCompression {
    /// None.
    #[default]
    None,
    /// S2.
    S2,
}

/// When a publish is acknowledged (ADR-56).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PersistMode {
    /// At the log's level (`sync_interval`).
    #[serde(alias = "")]
    #[default]
    Default,
    /// Before the message is durable.
    Async,
}

/// Requested placement of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Cluster name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: String,
    /// Server tags; `log:NAME` chooses a named log.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tags: Vec<String>,
}

/// A subject transform.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubjectTransformConfig {
    /// Source pattern; empty means all.
    pub src: String,
    /// Destination template; empty means no transform.
    pub dest: String,
}

/// Republish of stored messages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RePublish {
    /// Source pattern; empty means all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub src: String,
    /// Destination template; empty means that nothing is published again.
    #[serde(default)]
    pub dest: String,
    /// Without the payload.
    #[serde(default, skip_serializing_if = "is_default")]
    pub headers_only: bool,
}

/// A stream in another account or domain.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExternalStream {
    /// API prefix.
    #[serde(default)]
    pub api: String,
    /// Deliver prefix.
    #[serde(default)]
    pub deliver: String,
}

/// The origin of a mirror or a source.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamSource {
    /// Origin stream.
    #[serde(default)]
    pub name: String,
    /// First sequence wanted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub opt_start_seq: u64,
    /// First time wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opt_start_time: Option<Time>,
    /// Only these subjects.
    #[serde(default, skip_serializing_if = "is_default")]
    pub filter_subject: String,
    /// Several filters with transforms.
    #[serde(default, skip_serializing_if = "is_default")]
    pub subject_transforms: Vec<SubjectTransformConfig>,
    /// Origin elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStream>,
    /// Named consumer at the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumer: Option<StreamSourceConsumer>,
}

/// A pre-made consumer at a source's origin.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamSourceConsumer {
    /// Its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
    /// Deliver subject.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deliver_subject: String,
}

/// Defaults and caps for a stream's consumers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamConsumerLimits {
    /// Inactive threshold, ns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub inactive_threshold: Nanos,
    /// Largest `max_ack_pending`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_ack_pending: i64,
}

/// Configuration of a stream. Defaults and rules are those of nats-server.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names; meanings are in the JetStream documentation
#[serde(default)]
pub struct StreamConfig {
    pub name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub description: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub subjects: Vec<String>,
    pub retention: RetentionPolicy,
    pub max_consumers: i64,
    pub max_msgs: i64,
    pub max_bytes: i64,
    pub max_age: Nanos,
    pub max_msgs_per_subject: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub max_msg_size: i32,
    pub discard: DiscardPolicy,
    pub storage: StorageType,
    pub num_replicas: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub no_ack: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub duplicate_window: Nanos,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<StreamSource>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub sources: Vec<StreamSource>,
    pub compression: StoreCompression,
    #[serde(skip_serializing_if = "is_default")]
    pub first_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_transform: Option<SubjectTransformConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub republish: Option<RePublish>,
    pub allow_direct: bool,
    pub mirror_direct: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub discard_new_per_subject: bool,
    pub sealed: bool,
    pub deny_delete: bool,
    pub deny_purge: bool,
    pub allow_rollup_hdrs: bool,
    #[serde(deserialize_with = "null_default")]
    pub consumer_limits: StreamConsumerLimits,
    pub allow_msg_ttl: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub subject_delete_marker_ttl: Nanos,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_msg_counter: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_atomic: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_msg_schedules: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub persist_mode: PersistMode,
    #[serde(skip_serializing_if = "is_default")]
    pub allow_batched: bool,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub metadata: Metadata,
}

/// `null` where a value may be left out counts as the default, as in Go.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// State of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct StreamState {
    pub messages: u64,
    pub bytes: u64,
    pub first_seq: u64,
    pub first_ts: Time,
    pub last_seq: u64,
    pub last_ts: Time,
    #[serde(skip_serializing_if = "is_default")]
    pub num_subjects: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subjects: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "is_default")]
    pub num_deleted: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub deleted: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostStreamData>,
    pub consumer_count: u64,
}

/// Messages that are known to be lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LostStreamData {
    /// Their sequences.
    #[serde(deserialize_with = "null_default")]
    pub msgs: Vec<u64>,
    /// Their bytes.
    pub bytes: u64,
}

/// Leader of a stream. On one server: the server's name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterInfo {
    /// Cluster name.
    #[serde(skip_serializing_if = "is_default")]
    pub name: String,
    /// What keeps it on several servers; empty: it is on one.
    #[serde(skip_serializing_if = "is_default")]
    pub raft_group: String,
    /// Leading server.
    #[serde(skip_serializing_if = "is_default")]
    pub leader: String,
    /// Since when that leads; `None` where it is on one server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_since: Option<Time>,
    /// What servers say to each other about it is the system account's.
    #[serde(skip_serializing_if = "is_default")]
    pub system_account: bool,
    /// The account of that; empty where it is on one server.
    #[serde(skip_serializing_if = "is_default")]
    pub traffic_account: String,
    /// The others that keep it.
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub replicas: Vec<PeerInfo>,
}

/// A server that keeps what another one leads.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerInfo {
    /// Its name.
    pub name: String,
    /// It follows the leader.
    pub current: bool,
    /// It is not there.
    #[serde(skip_serializing_if = "is_default")]
    pub offline: bool,
    /// How long it was not heard of, ns.
    pub active: Nanos,
    /// What it lacks of what the leader has.
    #[serde(skip_serializing_if = "is_default")]
    pub lag: u64,
    /// Its id, which is made of its name.
    #[serde(skip_serializing_if = "is_default")]
    pub peer: String,
}

/// How a mirror or a source is doing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names; `active` is -1 if nothing was heard yet
#[serde(default)]
pub struct StreamSourceInfo {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStream>,
    pub lag: u64,
    pub active: Nanos,
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub error: Option<crate::jserror::JsError>,
    #[serde(skip_serializing_if = "is_default")]
    pub filter_subject: String,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub subject_transforms: Vec<SubjectTransformConfig>,
}

/// `STREAM.INFO` and the like.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // the wire's own names
#[serde(default)]
pub struct StreamInfo {
    /// Shared: it can hold 100,000 subjects, and whoever answers must not copy them.
    #[serde(with = "shared")]
    pub config: Arc<StreamConfig>,
    pub created: Time,
    pub state: StreamState,
    #[serde(skip_serializing_if = "is_default")]
    pub domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<StreamSourceInfo>,
    #[serde(skip_serializing_if = "is_default", deserialize_with = "null_default")]
    pub sources: Vec<StreamSourceInfo>,
    /// Term of the one writer that the stream takes records from; 0: anybody. Nuthatch's own.
    #[serde(skip_serializing_if = "is_default")]
    pub writer_term: u64,
    pub ts: Time,
}

/// A shared value is written as the value itself.
mod shared {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

//! What the server writes into the metadata of streams and consumers.

use nuthatch_protocol::js::{
    API_LEVEL, AckPolicy, ConsumerConfig, Metadata, PersistMode, PriorityPolicy, StreamConfig, Time,
};

/// Metadata of a stream's information that names its log where its configuration does not.
pub const HOME_KEY: &str = "_nuthatch.log";
/// Metadata of a stream's information that tells of a move that is under way.
pub const MOVE_KEY: &str = "_nuthatch.move";

/// Adds what metadata shows and does not store.
pub(super) fn add_dynamic_metadata(metadata: &mut Metadata, version: &str) {
    metadata.insert("_nats.ver".into(), version.to_owned());
    metadata.insert("_nats.level".into(), API_LEVEL.to_string());
}

/// Metadata that a create or update stores: client-given `_nats.ver`/`_nats.level` are dropped, the
/// level that the configuration needs is set (ADR-44).
fn set_static_metadata(metadata: &mut Metadata, level: u32) {
    metadata.retain(|key, _| {
        key != "_nats.ver" && key != "_nats.level" && key != HOME_KEY && key != MOVE_KEY
    });
    metadata.insert("_nats.req.level".into(), level.to_string());
}

/// [`set_static_metadata`] of a stream.
pub(super) fn set_stream_metadata(config: &mut StreamConfig) {
    let level = if config.allow_batched {
        4
    } else if config.allow_msg_counter
        || config.allow_atomic
        || config.allow_msg_schedules
        || config.persist_mode == PersistMode::Async
    {
        2
    } else {
        u32::from(config.allow_msg_ttl || config.subject_delete_marker_ttl > 0)
    };
    set_static_metadata(&mut config.metadata, level);
}

/// [`set_static_metadata`] of a consumer.
pub(super) fn set_consumer_metadata(config: &mut ConsumerConfig) {
    let pauses = config.pause_until.is_some_and(|until| until != Time::ZERO);
    let has_priorities = config.priority_policy != PriorityPolicy::None
        || config.priority_timeout != 0
        || !config.priority_groups.is_empty();
    let level = match config.ack_policy {
        AckPolicy::FlowControl => 4,
        _ => u32::from(pauses || has_priorities),
    };
    set_static_metadata(&mut config.metadata, level);
}

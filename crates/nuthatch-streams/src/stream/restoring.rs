//! What a stream is called, and how it is configured, while it is being restored from a backup.

use nuthatch_protocol::js::StreamConfig;

/// What its name begins with. No name of a stream may hold a dot, so nobody else has such a name.
const RESTORING_PREFIX: &str = "restoring.";

/// Whether a stream of this name is being restored.
#[must_use]
pub fn is_restoring(name: &str) -> bool {
    name.starts_with(RESTORING_PREFIX)
}

/// The configuration of a stream while it is being restored with `config` as its true one: nothing
/// is published to it, nothing leaves it.
#[must_use]
pub fn staged_config(config: &StreamConfig) -> StreamConfig {
    StreamConfig {
        name: format!("{RESTORING_PREFIX}{}", config.name),
        storage: config.storage,
        placement: config.placement.clone(),
        num_replicas: config.num_replicas,
        // These decide what is remembered of a message when it is stored.
        duplicate_window: config.duplicate_window,
        allow_msg_schedules: config.allow_msg_schedules,
        allow_msg_ttl: config.allow_msg_ttl,
        subject_delete_marker_ttl: config.subject_delete_marker_ttl,
        ..StreamConfig::default()
    }
}

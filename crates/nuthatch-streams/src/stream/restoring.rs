//! Name and configuration of a stream while it is being restored from a backup.

use nuthatch_protocol::js::StreamConfig;

/// Prefix of its name. No stream may have a dot in its name, so the prefix is unique.
const RESTORING_PREFIX: &str = "restoring.";

/// As above, of a stream that is being imported: it outlives restarts, as its import is gone on with.
const IMPORTING_PREFIX: &str = "importing.";

/// The name that a stream is to have whose import is under way; `None` for any other stream.
#[must_use]
pub fn importing_name(name: &str) -> Option<&str> {
    name.strip_prefix(IMPORTING_PREFIX)
}

/// [`staged_config`] of a stream that is being imported.
#[must_use]
pub fn importing_config(config: &StreamConfig) -> StreamConfig {
    let name = format!("{IMPORTING_PREFIX}{}", config.name);
    StreamConfig { name, ..staged_config(config) }
}

/// True if a stream of this name is being restored or imported: nothing expires.
#[must_use]
pub fn is_staged(name: &str) -> bool {
    is_restoring(name) || importing_name(name).is_some()
}

/// True if a stream of this name is being restored.
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

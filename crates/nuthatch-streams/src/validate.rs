//! Which stream configurations are accepted, and what their defaults are (those of nats-server; docs/nats-compatibility.md names the differences).
//!
//! Pure functions, called by the JetStream service before it takes a name or a subject into its
//! registry. Texts and codes are those of nats-server 2.15 (`checkStreamCfg`, `configUpdateCheck`).
//!
//! What they cost grows with the request, up to about a second for [`SUBJECTS_MAX`] subjects:
//! [`stream_config`], [`stream_update`] and [`consumer_filters`] are for a thread that may be busy for
//! so long, neither for a worker nor for a sequencer.

mod replication;
mod routes;
mod subjects;
#[cfg(test)]
mod tests;

pub use crate::consumer::{FILTERS_MAX, WORKQUEUE_FILTERS_MAX, consumer_filters};
use crate::stream::LAST_SEQ_MAX;
use nuthatch_protocol::js::{
    DiscardPolicy, Metadata, Nanos, PersistMode, Placement, RetentionPolicy, StorageType,
    StreamConfig,
};
use nuthatch_protocol::jserror::JsError;

/// Longest name of a stream or a consumer, in bytes (`JSMaxNameLen`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest description, in bytes (`JSMaxDescriptionLen`).
pub const DESCRIPTION_BYTES_MAX: usize = 4096;
/// Metadata of a stream's configuration that says how direct gets of it are answered.
pub const DIRECT_KEY: &str = "_nuthatch.direct";
/// By any node that follows its log, without asking the owner.
pub const DIRECT_STALE: &str = "stale";
/// Most metadata, keys and values, in bytes (`JSMaxMetadataLen`).
pub const METADATA_BYTES_MAX: usize = 128 * 1024;
/// Most subjects of one stream. nats-server has no limit but that of a request's size.
pub const SUBJECTS_MAX: usize = 100_000;
/// Most transforms of one mirror or source.
pub const SOURCE_TRANSFORMS_MAX: usize = 1_024;
/// Most replicas that any configuration may ask for (`StreamMaxReplicas`).
const REPLICAS_MAX: i64 = 5;
/// Default window for duplicates, ns (`StreamDefaultDuplicatesWindow`).
const DUPLICATE_WINDOW_DEFAULT_NS: Nanos = 120 * SECOND_NS;
/// Smallest age limit and duplicate window, ns.
const SHORTEST_NS: Nanos = 100 * 1_000_000;
const SECOND_NS: Nanos = 1_000_000_000;

/// Limits of server and account on streams; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Replicas that this server can give; 0 counts as 1.
    pub max_replicas: i64,
    /// Largest duplicate window (`limits.duplicate_window`), ns.
    pub max_duplicate_window: Nanos,
    /// Largest `max_bytes` of a stream in this storage (`*_max_stream_bytes`).
    pub max_stream_bytes: i64,
    /// `max_bytes` must be given (`max_bytes_required`).
    pub max_bytes_required: bool,
    /// The request forbids that anything is changed silently (`pedantic`).
    pub pedantic: bool,
}

/// True if a stream or consumer may have this name (length aside).
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && !name.contains([' ', '\t', '\r', '\n', '\x0c', '.', '*', '>', '\\', '/'])
}

fn invalid(text: impl std::fmt::Display) -> JsError {
    JsError::STREAM_INVALID_CONFIG.with_err(text)
}

/// Checks the configuration of a new stream and fills in defaults.
///
/// # Errors
/// The JetStream error to answer with.
pub fn stream_config(config: StreamConfig, limits: &Limits) -> Result<StreamConfig, JsError> {
    if config.sealed {
        return Err(invalid("stream configuration for create can not be sealed"));
    }
    if config.mirror_direct && config.mirror.is_none() {
        return Err(invalid("stream has no mirror but does have mirror direct"));
    }
    if config.first_seq > LAST_SEQ_MAX {
        return Err(invalid("first sequence leaves no room for messages"));
    }
    let config = check(config, limits)?;
    check_replicas(&config, limits)?;
    Ok(config)
}

/// Checks a changed configuration against the old one and fills in defaults.
///
/// # Errors
/// The JetStream error to answer with.
pub fn stream_update(
    old: &StreamConfig,
    new: StreamConfig,
    limits: &Limits,
) -> Result<StreamConfig, JsError> {
    let mut config = check(new, limits)?;
    if config.name != old.name {
        return Err(invalid("stream configuration name must match original"));
    }
    check_replicas(&config, limits)?;
    check_fixed(old, &config)?;
    if config.sealed {
        config.max_age = 0;
        config.discard = DiscardPolicy::New;
        (config.deny_delete, config.deny_purge) = (true, true);
        config.allow_rollup_hdrs = false;
    }
    Ok(config)
}

/// Refuses changes that an update may not make.
fn check_fixed(old: &StreamConfig, new: &StreamConfig) -> Result<(), JsError> {
    let refuse = |what: &str| Err(invalid(format!("stream configuration update can not {what}")));
    if new.storage != old.storage {
        return refuse("change storage type");
    }
    let workqueue = RetentionPolicy::Workqueue;
    if new.retention != old.retention && (old.retention == workqueue || new.retention == workqueue)
    {
        return refuse("change retention policy to/from workqueue");
    }
    if old.sealed && !new.sealed {
        return refuse("unseal a sealed stream");
    }
    if old.deny_delete && !new.deny_delete {
        return refuse("cancel deny message deletes");
    }
    if old.deny_purge && !new.deny_purge {
        return refuse("cancel deny purge");
    }
    if old.allow_msg_ttl && !new.allow_msg_ttl {
        return Err(invalid("message TTL status can not be disabled"));
    }
    if old.allow_msg_counter != new.allow_msg_counter {
        return refuse("change message counter setting");
    }
    if old.allow_msg_schedules && !new.allow_msg_schedules {
        return Err(invalid("message schedules can not be disabled"));
    }
    if new.mirror.is_some() && new.mirror != old.mirror {
        return Err(JsError::STREAM_MIRROR_NOT_UPDATABLE);
    }
    if old.persist_mode != new.persist_mode {
        return refuse("change persist mode");
    }
    Ok(())
}

const fn check_replicas(config: &StreamConfig, limits: &Limits) -> Result<(), JsError> {
    let max = if limits.max_replicas > 0 { limits.max_replicas } else { 1 };
    if config.num_replicas > max {
        return Err(JsError::STREAM_REPLICAS_NOT_SUPPORTED);
    }
    Ok(())
}

/// Checks shared by create and update.
fn check(mut config: StreamConfig, limits: &Limits) -> Result<StreamConfig, JsError> {
    check_texts(&config)?;
    check_numbers(&mut config, limits.pedantic)?;
    check_times(&mut config, limits)?;
    check_switches(&config)?;
    check_markers(&mut config, limits.pedantic)?;
    check_schedules(&mut config, limits.pedantic)?;
    check_persistence(&config)?;
    replication::check(&config)?;
    subjects::check(&mut config)?;
    routes::check(&mut config, limits.pedantic)?;
    if limits.max_bytes_required && config.max_bytes <= 0 {
        return Err(JsError::STREAM_MAX_BYTES_REQUIRED);
    }
    if limits.max_stream_bytes > 0 && config.max_bytes > limits.max_stream_bytes {
        return Err(JsError::STREAM_MAX_STREAM_BYTES_EXCEEDED);
    }
    if config.placement.as_ref().is_some_and(|placement| *placement == Placement::default()) {
        config.placement = None;
    }
    Ok(config)
}

fn check_texts(config: &StreamConfig) -> Result<(), JsError> {
    if !is_valid_name(&config.name) {
        return Err(invalid(
            r"stream name is required and can not contain '.', '*', '>', '\', '/'",
        ));
    }
    if config.name.len() > NAME_BYTES_MAX {
        let text = format!("stream name is too long, maximum allowed is {NAME_BYTES_MAX}");
        return Err(invalid(text));
    }
    if config.description.len() > DESCRIPTION_BYTES_MAX {
        let text =
            format!("stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}");
        return Err(invalid(text));
    }
    let metadata: usize = config.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    if metadata > METADATA_BYTES_MAX {
        let text = format!("stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes");
        return Err(invalid(text));
    }
    match config.metadata.get(DIRECT_KEY).map(String::as_str) {
        None | Some(DIRECT_STALE) => Ok(()),
        Some(other) => Err(invalid(format!(
            "metadata {DIRECT_KEY} is {other:?}: the only value is {DIRECT_STALE:?}, without it direct gets are never stale"
        ))),
    }
}

/// True if direct gets may be answered from what follows the stream's log, without asking its owner.
#[must_use]
pub fn answers_stale(metadata: &Metadata) -> bool {
    metadata.get(DIRECT_KEY).is_some_and(|value| value == DIRECT_STALE)
}

fn check_numbers(config: &mut StreamConfig, pedantic: bool) -> Result<(), JsError> {
    if config.num_replicas == 0 {
        config.num_replicas = 1;
    }
    if config.num_replicas > REPLICAS_MAX {
        return Err(invalid(format!("maximum replicas is {REPLICAS_MAX}")));
    }
    if config.num_replicas < 0 {
        return Err(JsError::REPLICAS_COUNT_CANNOT_BE_NEGATIVE);
    }
    let mut size = i64::from(config.max_msg_size);
    for (name, limit) in [
        ("max_msgs", &mut config.max_msgs),
        ("max_msgs_per_subject", &mut config.max_msgs_per_subject),
        ("max_bytes", &mut config.max_bytes),
        ("max_msg_size", &mut size),
        ("max_consumers", &mut config.max_consumers),
    ] {
        if pedantic && *limit < -1 {
            return Err(JsError::PEDANTIC.with_err(format!("{name} must be set to -1")));
        }
        if *limit <= 0 {
            *limit = -1;
        }
    }
    config.max_msg_size = i32::try_from(size).unwrap_or(-1);
    Ok(())
}

fn check_times(config: &mut StreamConfig, limits: &Limits) -> Result<(), JsError> {
    if config.max_age < 0 {
        return Err(invalid("max age can not be negative"));
    }
    if config.max_age != 0 && config.max_age < SHORTEST_NS {
        return Err(invalid("max age needs to be >= 100ms"));
    }
    let is_copy = config.mirror.is_some() || !config.sources.is_empty();
    if config.duplicate_window == 0 && !is_copy {
        let caps = [
            (limits.max_duplicate_window, "duplicate window limits are higher than current limits"),
            (config.max_age, "duplicate window cannot be bigger than max age"),
        ];
        let mut window = DUPLICATE_WINDOW_DEFAULT_NS;
        for (cap, text) in caps.into_iter().filter(|(cap, _)| *cap > 0) {
            if cap < window && limits.pedantic {
                return Err(JsError::PEDANTIC.with_err(text));
            }
            window = window.min(cap);
        }
        config.duplicate_window = window;
    }
    if config.duplicate_window < 0 {
        return Err(invalid("duplicates window can not be negative"));
    }
    if config.max_age != 0 && config.duplicate_window > config.max_age {
        return Err(invalid("duplicates window can not be larger then max age"));
    }
    let cap = limits.max_duplicate_window;
    if cap > 0 && config.duplicate_window > cap {
        let text = format!(
            "duplicates window can not be larger then server limit of {}",
            nuthatch_protocol::duration::format_go(cap)
        );
        return Err(invalid(text));
    }
    if config.duplicate_window > 0 && config.duplicate_window < SHORTEST_NS {
        return Err(invalid("duplicates window needs to be >= 100ms"));
    }
    Ok(())
}

/// Delete markers need times to live and rollups (ADR-43).
fn check_markers(config: &mut StreamConfig, pedantic: bool) -> Result<(), JsError> {
    let ttl = config.subject_delete_marker_ttl;
    if ttl < 0 {
        return Err(invalid("subject delete marker TTL must not be negative"));
    }
    if ttl == 0 {
        return Ok(());
    }
    if ttl < SECOND_NS {
        return Err(invalid("subject delete marker TTL must be at least 1 second"));
    }
    let missing = |what: &str| {
        Err(invalid(format!("subject delete marker cannot be set if {what} are disabled")))
    };
    if !config.allow_msg_ttl {
        if pedantic {
            return missing("message TTLs");
        }
        config.allow_msg_ttl = true;
    }
    if !config.allow_rollup_hdrs {
        if pedantic {
            return missing("roll-ups");
        }
        (config.allow_rollup_hdrs, config.deny_purge) = (true, false);
    }
    Ok(())
}

fn check_switches(config: &StreamConfig) -> Result<(), JsError> {
    if config.deny_purge && config.allow_rollup_hdrs {
        return Err(invalid("roll-ups require the purge permission"));
    }
    if config.allow_msg_counter {
        check_counter(config)?;
    }
    if config.discard_new_per_subject {
        if config.discard != DiscardPolicy::New {
            return Err(invalid("discard new per subject requires discard new policy to be set"));
        }
        if config.max_msgs_per_subject <= 0 {
            return Err(invalid("discard new per subject requires max msgs per subject > 0"));
        }
    }
    Ok(())
}

/// Refuses what a stream of counters cannot have (ADR-49).
fn check_counter(config: &StreamConfig) -> Result<(), JsError> {
    let faults = [
        (config.discard == DiscardPolicy::New, "cannot use discard new"),
        (config.allow_msg_ttl, "cannot use message TTLs"),
        (config.allow_msg_schedules, "cannot use message schedules"),
        (config.retention != RetentionPolicy::Limits, "can only use limits retention"),
    ];
    match faults.into_iter().find(|(fault, _)| *fault) {
        Some((_, text)) => Err(invalid(format!("counter stream {text}"))),
        None => Ok(()),
    }
}

/// Schedules replace each other by rollups (ADR-51).
fn check_schedules(config: &mut StreamConfig, pedantic: bool) -> Result<(), JsError> {
    if !config.allow_msg_schedules {
        return Ok(());
    }
    if config.discard == DiscardPolicy::New {
        return Err(invalid("message scheduling cannot use discard new"));
    }
    if !config.allow_rollup_hdrs {
        if pedantic {
            return Err(invalid("message scheduling cannot be set if roll-ups are disabled"));
        }
        (config.allow_rollup_hdrs, config.deny_purge) = (true, false);
    }
    Ok(())
}

fn check_persistence(config: &StreamConfig) -> Result<(), JsError> {
    if config.persist_mode == PersistMode::Async {
        if config.storage != StorageType::File {
            return Err(invalid("async persist mode is only supported on file storage"));
        }
        if config.num_replicas > 1 {
            return Err(invalid("async persist mode is not supported on replicated streams"));
        }
        if config.allow_atomic {
            return Err(invalid("async persist mode is not supported with atomic batch publish"));
        }
    }
    Ok(())
}

//! Which consumer configurations are accepted, and what their defaults are (nats-wire §9.4).

use nuthatch_protocol::js::{ConsumerConfig, CreateConsumerRequest, StreamConfig};
use nuthatch_protocol::jserror::JsError;

/// Limits of server and account on consumers; 0 or less: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerLimits {
    /// Largest `max_ack_pending` (`limits.max_ack_pending`).
    pub max_ack_pending: i64,
    /// Largest `max_batch` (`limits.max_request_batch`).
    pub max_request_batch: i64,
}

/// Checks a configuration and fills in defaults. The name stays empty if none was given: the
/// service or engine makes one up. Also used for updates, followed by [`check_update`].
///
/// # Errors
/// The JetStream error to answer with.
pub fn validate_consumer(
    request: &CreateConsumerRequest,
    stream: &StreamConfig,
    limits: &ConsumerLimits,
) -> Result<ConsumerConfig, JsError> {
    let _ = (stream, limits);
    Ok(request.config.clone())
}

/// Whether an existing consumer may change from `old` to `new` (both validated).
///
/// # Errors
/// 10012 with the text that names the field.
pub fn check_update(old: &ConsumerConfig, new: &ConsumerConfig) -> Result<(), JsError> {
    let _ = (old, new);
    Ok(())
}

/// Work-queue streams: whether `new` may live beside the others (without itself).
///
/// # Errors
/// 10099 or 10100.
pub fn check_workqueue<'a>(
    new: &ConsumerConfig,
    others: impl Iterator<Item = &'a ConsumerConfig>,
) -> Result<(), JsError> {
    let _ = (new, others);
    Ok(())
}

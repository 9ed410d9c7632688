//! Rules for updates of consumers, and for consumers on one stream.

use super::config::check_backoff;
use super::filter::{Filter, patterns_of};
use super::{Consumer, Mode};
use nuthatch_protocol::js::{AckPolicy, ConsumerConfig, DeliverPolicy};
use nuthatch_protocol::jserror::JsError;

/// Most filters of all consumers of one work queue together: each new one is compared with them.
pub const WORKQUEUE_FILTERS_MAX: usize = 65_536;
/// Metadata keys that the service adds: no difference between configurations.
const SERVER_METADATA_PREFIX: &str = "_nats.";

fn without_server_metadata(config: &ConsumerConfig) -> ConsumerConfig {
    let mut config = config.clone();
    config.metadata.retain(|key, _| !key.starts_with(SERVER_METADATA_PREFIX));
    config
}

/// A request with the action `create` for a name that exists (both validated): fine if it changes
/// nothing.
///
/// # Errors
/// 10148.
pub fn check_create(old: &ConsumerConfig, new: &ConsumerConfig) -> Result<(), JsError> {
    if without_server_metadata(old) == without_server_metadata(new) {
        return Ok(());
    }
    Err(JsError::CONSUMER_ALREADY_EXISTS)
}

/// Whether an existing consumer may change from `old` to `new` (both validated). See also
/// [`Consumer::check_update`], which knows whether somebody is bound to it.
///
/// # Errors
/// 10012 with the text that names the field; 10116.
pub fn check_update(old: &ConsumerConfig, new: &ConsumerConfig) -> Result<(), JsError> {
    let fixed = [
        (old.deliver_policy != new.deliver_policy, "deliver policy can not be updated"),
        (old.mem_storage != new.mem_storage, "storage type can not be updated"),
        (old.direct != new.direct, "direct can not be updated"),
        (old.sourcing != new.sourcing, "sourcing can not be updated"),
        (old.opt_start_seq != new.opt_start_seq, "start sequence can not be updated"),
        (old.opt_start_time != new.opt_start_time, "start time can not be updated"),
        (old.ack_policy != new.ack_policy, "ack policy can not be updated"),
        (old.replay_policy != new.replay_policy, "replay policy can not be updated"),
        (old.idle_heartbeat != new.idle_heartbeat, "heart beats can not be updated"),
        (old.flow_control != new.flow_control, "flow control can not be updated"),
        (
            old.deliver_subject.is_empty() && !new.deliver_subject.is_empty(),
            "can not update pull consumer to push based",
        ),
        (
            !old.deliver_subject.is_empty() && new.deliver_subject.is_empty(),
            "can not update push consumer to pull based",
        ),
        (old.max_waiting != new.max_waiting, "max waiting can not be updated"),
    ];
    match fixed.iter().find(|(changed, _)| *changed) {
        Some((_, why)) => Err(JsError::CONSUMER_CREATE.with_err(why)),
        None => check_backoff(new),
    }
}

/// Work-queue streams: whether `new`, with this filter, may live beside the others (without itself).
///
/// # Errors
/// 10098, 10099, 10100 or 10101; 10012 above [`WORKQUEUE_FILTERS_MAX`].
pub fn check_workqueue<'a>(
    new: &ConsumerConfig,
    filter: &Filter,
    others: impl Iterator<Item = &'a ConsumerConfig>,
) -> Result<(), JsError> {
    if !new.direct && !new.sourcing {
        if !matches!(new.ack_policy, AckPolicy::Explicit | AckPolicy::FlowControl) {
            return Err(JsError::CONSUMER_WQ_REQUIRES_EXPLICIT_ACK);
        }
        if new.deliver_policy != DeliverPolicy::All {
            return Err(JsError::CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL);
        }
    }
    check_alone(new, filter, others)
}

/// Work-queue streams: whether `new`, with this filter, selects nothing that one of the others does.
///
/// # Errors
/// 10099 or 10100; 10012 above [`WORKQUEUE_FILTERS_MAX`].
pub fn check_alone<'a>(
    new: &ConsumerConfig,
    filter: &Filter,
    others: impl Iterator<Item = &'a ConsumerConfig>,
) -> Result<(), JsError> {
    let mut filters = patterns_of(new).count();
    for other in others.filter(|other| !other.direct && !other.sourcing) {
        if patterns_of(new).next().is_none() {
            return Err(JsError::CONSUMER_WQ_MULTIPLE_UNFILTERED);
        }
        filters += patterns_of(other).count();
        if filters > WORKQUEUE_FILTERS_MAX {
            let most = WORKQUEUE_FILTERS_MAX;
            let text = format!("consumers of a work queue can have at most {most} filters in all");
            return Err(JsError::CONSUMER_CREATE.with_err(text));
        }
        if patterns_of(other).next().is_none() || filter.overlaps(patterns_of(other)) {
            return Err(JsError::CONSUMER_WQ_CONSUMER_NOT_UNIQUE);
        }
    }
    Ok(())
}

impl<T> Consumer<T> {
    /// [`check_update`] against the present configuration and state.
    ///
    /// # Errors
    /// As there; 10013 if the deliver subject would change while somebody is bound to the old one.
    pub fn check_update(&self, new: &ConsumerConfig) -> Result<(), JsError> {
        let moved = self.config.deliver_subject != new.deliver_subject;
        let bound = matches!(&self.mode, Mode::Push(push) if push.target.is_some());
        if moved && bound && !new.deliver_subject.is_empty() {
            return Err(JsError::CONSUMER_NAME_EXIST);
        }
        check_update(&self.config, new)
    }
}

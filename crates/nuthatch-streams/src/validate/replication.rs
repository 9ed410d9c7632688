//! Mirrors and sources of a stream's configuration, as far as it can be judged by itself.

use super::routes::check_destination;
use super::{SOURCE_TRANSFORMS_MAX, invalid, is_valid_name};
use crate::subject_set::{Relation, STEPS_MAX, first_pair};
use nuthatch_protocol::js::{ExternalStream, StreamConfig, StreamSource, SubjectTransformConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::{is_valid_literal, is_valid_publish_subject, is_valid_subject};
use std::collections::BTreeSet;

/// Most sources of one stream: each is a task.
const SOURCES_MAX: usize = 1024;

/// Checks `mirror` and `sources`.
pub(super) fn check(config: &StreamConfig) -> Result<(), JsError> {
    if let Some(mirror) = &config.mirror {
        check_beside_mirror(config)?;
        check_mirror(mirror)?;
    }
    if config.sources.len() > SOURCES_MAX {
        return Err(invalid(format!("a stream can have at most {SOURCES_MAX} sources")));
    }
    if config.allow_msg_schedules && !config.sources.is_empty() {
        return Err(JsError::SOURCE_WITH_MSG_SCHEDULES);
    }
    let (mut seen, mut consumers) = (BTreeSet::new(), BTreeSet::new());
    for source in &config.sources {
        check_source(source)?;
        let api = source.external.as_ref().map(|external| &external.api);
        let filters: Vec<_> =
            source.subject_transforms.iter().map(|t| (t.src.clone(), t.dest.clone())).collect();
        let consumer = source.consumer.as_ref().map(|consumer| &consumer.name);
        if !seen.insert((&source.name, api, consumer, &source.filter_subject, filters)) {
            return Err(JsError::SOURCE_DUPLICATE_DETECTED);
        }
        if let Some(consumer) = consumer
            && !consumers.insert((&source.name, api, consumer))
        {
            return Err(JsError::SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED);
        }
    }
    Ok(())
}

/// Refuses what a mirror cannot have.
fn check_beside_mirror(config: &StreamConfig) -> Result<(), JsError> {
    let faults = [
        (config.first_seq > 0, JsError::MIRROR_WITH_FIRST_SEQ),
        (!config.subjects.is_empty(), JsError::MIRROR_WITH_SUBJECTS),
        (!config.sources.is_empty(), JsError::MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, JsError::MIRROR_WITH_COUNTERS),
        (config.allow_atomic, JsError::MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, JsError::MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, JsError::MIRROR_WITH_MSG_SCHEDULES),
    ];
    match faults.into_iter().find(|(fault, _)| *fault) {
        Some((_, error)) => Err(error),
        None if config.subject_delete_marker_ttl > 0 => {
            Err(invalid("subject delete markers forbidden on mirrors"))
        }
        None => Ok(()),
    }
}

fn check_mirror(mirror: &StreamSource) -> Result<(), JsError> {
    if !is_consumer_valid(mirror) {
        return Err(JsError::MIRROR_DURABLE_CONSUMER_CFG_INVALID);
    }
    if mirror.opt_start_seq > 0 && mirror.opt_start_time.is_some() {
        return Err(JsError::MIRROR_WITH_START_SEQ_AND_TIME);
    }
    if !mirror.filter_subject.is_empty() && !mirror.subject_transforms.is_empty() {
        return Err(JsError::MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED);
    }
    let transforms = &mirror.subject_transforms;
    let pair = first_related(transforms, Relation::Overlap)?;
    for (at, transform) in transforms.iter().enumerate() {
        if !transform.src.is_empty() && !is_valid_subject(transform.src.as_bytes()) {
            let why = format!("invalid subject {}", transform.src);
            return Err(JsError::MIRROR_INVALID_SUBJECT_FILTER.with_err(why));
        }
        check_destination(transform)
            .map_err(|why| JsError::MIRROR_INVALID_TRANSFORM_DESTINATION.with_err(why))?;
        if pair.is_some_and(|(one, _)| one == at) {
            return Err(JsError::MIRROR_OVERLAPPING_SUBJECT_FILTERS);
        }
    }
    check_filter(&mirror.filter_subject)?;
    match &mirror.external {
        Some(external) => check_external(external),
        None if !is_valid_name(&mirror.name) => Err(JsError::MIRROR_INVALID_STREAM_NAME),
        None => Ok(()),
    }
}

/// True if the consumer of a mirror or source, if it has one, has a name and a subject, and nothing stands
/// beside it that is the consumer's to say.
fn is_consumer_valid(source: &StreamSource) -> bool {
    let Some(consumer) = &source.consumer else { return true };
    let has_start = source.opt_start_seq != 0 || source.opt_start_time.is_some();
    is_valid_name(&consumer.name)
        && is_valid_publish_subject(consumer.deliver_subject.as_bytes())
        && !has_start
        && source.filter_subject.is_empty()
}

/// The first two transforms whose sources stand in a relation.
fn first_related(
    transforms: &[SubjectTransformConfig],
    relation: Relation,
) -> Result<Option<(usize, usize)>, JsError> {
    if transforms.len() > SOURCE_TRANSFORMS_MAX {
        let most = SOURCE_TRANSFORMS_MAX;
        return Err(invalid(format!("a mirror or source can have at most {most} transforms")));
    }
    // An empty one stands for all that no other takes.
    let given = |(_, transform): &(usize, &SubjectTransformConfig)| !transform.src.is_empty();
    let given: Vec<_> = transforms.iter().enumerate().filter(given).collect();
    let sources = given.iter().map(|(_, transform)| transform.src.as_bytes());
    let pair = first_pair(sources, relation, STEPS_MAX).map_err(invalid)?;
    Ok(pair.map(|(one, other)| (given[one].0, given[other].0)))
}

fn check_source(source: &StreamSource) -> Result<(), JsError> {
    if !is_valid_name(&source.name) {
        return Err(JsError::SOURCE_INVALID_STREAM_NAME);
    }
    if !source.filter_subject.is_empty() && !source.subject_transforms.is_empty() {
        return Err(JsError::SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED);
    }
    let transforms = &source.subject_transforms;
    let pair = first_related(transforms, Relation::Within)?;
    for (at, transform) in transforms.iter().enumerate() {
        if !transform.src.is_empty() && !is_valid_subject(transform.src.as_bytes()) {
            let why = format!("invalid subject {}", transform.src);
            return Err(JsError::SOURCE_INVALID_SUBJECT_FILTER.with_err(why));
        }
        check_destination(transform)
            .map_err(|why| JsError::SOURCE_INVALID_TRANSFORM_DESTINATION.with_err(why))?;
        if pair.is_some_and(|(narrow, _)| narrow == at) {
            return Err(JsError::SOURCE_OVERLAPPING_SUBJECT_FILTERS);
        }
    }
    if !is_consumer_valid(source) {
        return Err(JsError::SOURCE_DURABLE_CONSUMER_CFG_INVALID);
    }
    check_filter(&source.filter_subject)?;
    source.external.as_ref().map_or(Ok(()), check_external)
}

/// Upstream finds out only when its consumer is refused; here nothing else would say so.
fn check_filter(filter: &str) -> Result<(), JsError> {
    if filter.is_empty() || is_valid_subject(filter.as_bytes()) {
        return Ok(());
    }
    Err(invalid(format!("filter subject {filter:?} of a mirror or source is not valid")))
}

fn check_external(external: &ExternalStream) -> Result<(), JsError> {
    let ExternalStream { api, deliver } = external;
    if !deliver.is_empty() && !is_valid_literal(deliver.as_bytes()) {
        return Err(JsError::STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ.with("prefix", deliver));
    }
    if api.is_empty() {
        return Ok(());
    }
    if !is_valid_literal(api.as_bytes()) {
        return Err(invalid(format!(
            "stream external api prefix {api:?} must be a valid subject without wildcards"
        )));
    }
    if api == "$JS.API" {
        return Err(JsError::STREAM_EXTERNAL_API_OVERLAP
            .with("prefix", api)
            .with("subject", "$JS.API"));
    }
    Ok(())
}

//! Transforms of a stream's subjects, and what it publishes again.

use super::invalid;
use nuthatch_protocol::js::{StreamConfig, SubjectTransformConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::{is_valid_subject, overlap};
use nuthatch_protocol::transform::Transform;

/// Checks `subject_transform` and `republish`.
pub(super) fn check(config: &mut StreamConfig, pedantic: bool) -> Result<(), JsError> {
    if let Some(transform) = &config.subject_transform {
        if !transform.src.is_empty() && !is_valid_subject(transform.src.as_bytes()) {
            let why = format!("invalid subject {}", transform.src);
            return Err(JsError::STREAM_TRANSFORM_INVALID_SOURCE.with_err(why));
        }
        check_destination(transform)
            .map_err(|why| JsError::STREAM_TRANSFORM_INVALID_DESTINATION.with_err(why))?;
    }
    check_republish(config, pedantic)
}

/// Whether a destination goes with its source; an empty one means no transform.
pub(super) fn check_destination(transform: &SubjectTransformConfig) -> Result<(), String> {
    if transform.dest.is_empty() {
        return Ok(());
    }
    let source = if transform.src.is_empty() { ">" } else { &transform.src };
    Transform::new(source, &transform.dest).map(drop).map_err(|error| error.to_string())
}

fn check_republish(config: &mut StreamConfig, pedantic: bool) -> Result<(), JsError> {
    let Some(republish) = &mut config.republish else { return Ok(()) };
    let would_change = |what: &str| Err(JsError::PEDANTIC.with_err(what));
    if republish.src.is_empty() {
        if pedantic {
            return would_change("republish source can not be empty");
        }
        ">".clone_into(&mut republish.src);
    }
    if republish.dest == ">"
        && republish.src == ">"
        && config.subjects.len() == 1
        && let Some(transform) = config.subject_transform.as_ref()
        && transform.src == config.subjects[0]
    {
        if pedantic {
            return would_change("implicit republish based on subject transform");
        }
        republish.src.clone_from(&transform.dest);
        republish.dest.clone_from(&transform.dest);
    }
    let cycles = |own: &String| overlap(republish.dest.as_bytes(), own.as_bytes());
    if config.subjects.iter().any(cycles) {
        let why = "stream configuration for republish destination forms a cycle";
        return Err(invalid(why));
    }
    if republish.dest.is_empty() {
        return Ok(());
    }
    if Transform::new(&republish.src, &republish.dest).is_err() {
        return Err(invalid(format!(
            "stream configuration for republish with transform from '{}' to '{}' not valid",
            republish.src, republish.dest
        )));
    }
    Ok(())
}

//! The subjects of a stream's configuration.

use super::{SUBJECTS_MAX, invalid};
use crate::subject_set::{Relation, STEPS_MAX, first_pair};
use nuthatch_protocol::js::StreamConfig;
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::{is_subset, is_valid_subject, overlap};

/// Checks the subjects, or sets the default.
pub(super) fn check(config: &mut StreamConfig) -> Result<(), JsError> {
    if config.subjects.is_empty() && (config.mirror.is_some() || !config.sources.is_empty()) {
        return Ok(());
    }
    if config.subjects.is_empty() {
        config.subjects.push(config.name.clone());
        return Ok(());
    }
    if config.subjects.len() > SUBJECTS_MAX {
        return Err(invalid(format!("a stream can have at most {SUBJECTS_MAX} subjects")));
    }
    let subjects = config.subjects.iter().map(String::as_bytes);
    let pair = first_pair(subjects, Relation::Overlap, STEPS_MAX).map_err(invalid)?;
    for (at, subject) in config.subjects.iter().enumerate() {
        if !is_valid_subject(subject.as_bytes()) {
            return Err(invalid("invalid subject"));
        }
        if subject == ">" {
            if !config.no_ack {
                return Err(invalid("capturing all subjects requires no-ack to be true"));
            }
            if config.num_replicas != 1 {
                return Err(invalid("capturing all subjects requires replicas of 1"));
            }
        }
        if !config.no_ack {
            check_reserved(subject)?;
        }
        if let Some((_, other)) = pair.filter(|(one, _)| *one == at) {
            let other = &config.subjects[other];
            return Err(invalid(format!("subject {subject:?} overlaps with {other:?}")));
        }
    }
    Ok(())
}

/// The API must not end in a stream that acknowledges: each answer would be an answer's answer.
fn check_reserved(subject: &str) -> Result<(), JsError> {
    let subject = subject.as_bytes();
    let touches = |space: &str| overlap(subject, space.as_bytes());
    let inside = |space: &str| is_subset(subject, space.as_bytes());
    if ["$JS.>", "$JSC.>", "$NRG.>"].iter().any(|space| touches(space)) && !inside("$JS.EVENT.>") {
        return Err(invalid("subjects that overlap with jetstream api require no-ack to be true"));
    }
    if touches("$SYS.>") && !inside("$SYS.ACCOUNT.>") {
        return Err(invalid("subjects that overlap with system api require no-ack to be true"));
    }
    Ok(())
}

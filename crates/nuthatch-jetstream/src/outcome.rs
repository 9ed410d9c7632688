//! How the API tells what became of an operation, and errors with a text of their own.

use crate::logs_port::{CallError, NotTaken};
use nuthatch_protocol::jserror::JsError;
use nuthatch_streams::OpOutcome;
use nuthatch_streams::op::OpResult;
use std::borrow::Cow;
use std::pin::Pin;

/// Result of a handler: the body already encoded, or the error to encode.
pub(super) type Answer = Result<Vec<u8>, JsError>;

/// Work that continues once a request has been answered.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What an operation came to, as the API tells it.
pub(super) fn told(outcome: Result<OpResult, CallError>) -> Result<OpOutcome, JsError> {
    match outcome {
        Ok(result) => result,
        Err(CallError::NotTaken(NotTaken::Busy)) => Err(JsError::STREAM_TOO_MANY_REQUESTS),
        Err(CallError::NotTaken(NotTaken::Closed)) => Err(LOG_HAS_LEFT),
        Err(CallError::Closed) => Err(LOG_CLOSED_MEANWHILE),
    }
}

/// The log was closed before it said what became of an operation, which may have been done.
pub(super) const LOG_CLOSED_MEANWHILE: JsError = JsError {
    description: Cow::Borrowed("the log was closed meanwhile: whether it was done is not known"),
    ..JsError::CLUSTER_NOT_AVAIL
};

/// The log was closed before it took an operation: nothing was done, and another node may have the log.
pub(super) const LOG_HAS_LEFT: JsError = JsError {
    description: Cow::Borrowed("the log was closed: the server stops, or another node has it"),
    ..JsError::CLUSTER_NOT_AVAIL
};

/// An error of the table with a text of its own.
pub(super) fn described(error: JsError, description: String) -> JsError {
    JsError { description: description.into(), ..error }
}

/// An outcome of another kind than the operation's own: a bug, answered plainly.
pub(super) fn unexpected(outcome: &OpOutcome) -> JsError {
    JsError::STREAM_GENERAL.with("err", format!("unexpected outcome {outcome:?}"))
}

/// A placement that cannot be had (10052 with a text, as other faults of a configuration).
pub(super) fn placement_error(text: &str) -> JsError {
    JsError::STREAM_INVALID_CONFIG.with_err(text)
}

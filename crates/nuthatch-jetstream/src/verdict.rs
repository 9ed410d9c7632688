//! What a stream says about a message that is traced: the subject under which it is stored, whether
//! anybody wants it, and, if it is only traced, whether it would be refused.

use crate::log_calls::LogCalls;
use crate::registry::Entry;
use crate::stream_table::StreamTable;
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::matches;
use nuthatch_protocol::transform::Transform;
use nuthatch_server::msg_trace::{StreamQuestion, StreamVerdict};
use nuthatch_streams::op::AskedMessage;
use nuthatch_streams::{Op, OpOutcome};
use serde::Serialize;
use std::sync::Arc;

/// Consumers whose filters are looked at for one that wants a message.
const CONSUMERS_LOOKED_AT: usize = 1024;

/// Asks streams about messages.
pub(super) struct Verdicts {
    pub(super) streams: Arc<StreamTable>,
    pub(super) calls: Arc<LogCalls>,
}

/// A publish acknowledgement that is an error.
#[derive(Serialize)]
struct Refused<'a> {
    error: &'a JsError,
    stream: &'a str,
    seq: u64,
}

/// A publish acknowledgement of what is there already.
#[derive(Serialize)]
struct Duplicate<'a> {
    stream: &'a str,
    seq: u64,
    duplicate: bool,
}

impl Verdicts {
    /// `None`: the stream is not there.
    pub(super) async fn of(&self, question: &StreamQuestion) -> Option<StreamVerdict> {
        let entry = self.streams.read().by_route(question.route)?.clone();
        let subject = mapped(&entry.config, &question.subject);
        let refusal = match question.only {
            true => self.answer(&entry, &subject, question).await,
            false => None,
        };
        let no_interest = entry.config.retention == RetentionPolicy::Interest
            && !self.is_wanted(&entry, &subject).await;
        Some(StreamVerdict { subject, no_interest, refusal })
    }

    /// True if a consumer wants messages on a subject, or that is not known.
    async fn is_wanted(&self, entry: &Entry, subject: &[u8]) -> bool {
        let op = Op::ListConsumers {
            id: entry.id,
            offset: 0,
            limit: CONSUMERS_LOOKED_AT,
            names_only: false,
        };
        let Ok(OpOutcome::Consumers { infos, total, .. }) = self.calls.run(entry.engine, op).await
        else {
            return true;
        };
        let wants = |filter: &str| filter.is_empty() || matches(filter.as_bytes(), subject);
        total > infos.len()
            || infos.iter().any(|info| {
                let (config, others) = (&info.config, &info.config.filter_subjects);
                if others.is_empty() {
                    return wants(&config.filter_subject);
                }
                others.iter().any(|filter| wants(filter))
            })
    }

    /// What the stream would answer to the message, if not that it is stored.
    async fn answer(
        &self,
        entry: &Entry,
        subject: &[u8],
        question: &StreamQuestion,
    ) -> Option<Vec<u8>> {
        let (subject, headers) = (subject.to_vec(), question.headers.clone());
        let message = Box::new(AskedMessage { subject, headers, body_len: question.body_len });
        let op = Op::WouldTake { id: entry.id, message };
        let stream = &entry.config.name[..];
        match self.calls.run(entry.engine, op).await {
            Ok(OpOutcome::WouldTake(Some(seq))) => {
                serde_json::to_vec(&Duplicate { stream, seq, duplicate: true }).ok()
            }
            Ok(_) => None,
            Err(error) => serde_json::to_vec(&Refused { error: &error, stream, seq: 0 }).ok(),
        }
    }
}

/// The subject after the stream's own transform.
fn mapped(config: &StreamConfig, subject: &[u8]) -> Vec<u8> {
    let transform = config.subject_transform.as_ref().filter(|said| !said.dest.is_empty());
    let transform = transform.and_then(|said| {
        let source = if said.src.is_empty() { ">" } else { &said.src };
        Transform::new(source, &said.dest).ok()
    });
    let mut out = Vec::new();
    match transform {
        Some(transform) if transform.apply(subject, 0, &mut out) => out,
        _ => subject.to_vec(),
    }
}

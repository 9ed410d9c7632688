//! What a stream says about a message that is traced: the subject under which it is stored, whether
//! anybody wants it, and, if it is only traced, whether it would be refused.

use crate::log_calls::LogCalls;
use crate::registry::Entry;
use crate::stream_table::StreamTable;
use nuthatch_protocol::headers::find_header;
use nuthatch_protocol::js::{RetentionPolicy, StreamConfig};
use nuthatch_protocol::jserror::JsError;
use nuthatch_protocol::subject::matches;
use nuthatch_protocol::transform::Transform;
use nuthatch_server::msg_trace::{StreamQuestion, StreamVerdict};
use nuthatch_streams::op::GetMessage;
use nuthatch_streams::stream::{Limits, PublishHeaders, scan};
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

impl Verdicts {
    /// `None`: the stream is not there.
    pub(super) async fn of(&self, question: &StreamQuestion) -> Option<StreamVerdict> {
        let entry = self.streams.read().by_route(question.route)?.clone();
        let subject = mapped(&entry.config, &question.subject);
        let mut refusal = None;
        if question.only
            && let Err(error) = self.check(&entry, &subject, question).await
        {
            let refused = Refused { error: &error, stream: &entry.config.name, seq: 0 };
            refusal = Some(serde_json::to_vec(&refused).ok()?);
        }
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

    /// What would be refused at once, in the order in which streams look at it. Not looked at: message
    /// ids, counters, schedules. Whether there is room is found only when a message is stored.
    async fn check(
        &self,
        entry: &Entry,
        subject: &[u8],
        question: &StreamQuestion,
    ) -> Result<(), JsError> {
        let (limits, block) = (Limits::new(&entry.config), &question.headers[..]);
        let headers = scan(block);
        if limits.sealed {
            return Err(JsError::STREAM_SEALED);
        }
        if block.len() + question.body_len > limits.message_bytes {
            return Err(JsError::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
        }
        if block.len() > usize::from(u16::MAX) {
            return Err(JsError::STREAM_HEADER_EXCEEDS_MAXIMUM);
        }
        let expected = headers.expected_stream;
        if !expected.is_empty() && expected != entry.config.name.as_bytes() {
            return Err(JsError::STREAM_NOT_MATCH);
        }
        headers.ttl.check_allowed(limits.ttl)?;
        let state = self.calls.current_info(entry).await?.state;
        self.check_sequences(entry, subject, &headers, state.last_seq).await?;
        check_rollup(block, &headers, &limits)?;
        headers.ttl.check_valid()
    }

    async fn check_sequences(
        &self,
        entry: &Entry,
        subject: &[u8],
        headers: &PublishHeaders<'_>,
        last_seq: u64,
    ) -> Result<(), JsError> {
        if let Some(expected) = headers.expected_last_subject_seq {
            let subject = match headers.expected_last_subject {
                b"" => subject,
                other => other,
            };
            let last = self.last_of(entry, subject).await;
            if last != expected {
                return Err(JsError::STREAM_WRONG_LAST_SEQUENCE.with("seq", last));
            }
        } else if !headers.expected_last_subject.is_empty() {
            return Err(JsError::STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID);
        }
        match headers.expected_last_seq {
            Some(expected) if expected != last_seq => {
                Err(JsError::STREAM_WRONG_LAST_SEQUENCE.with("seq", last_seq))
            }
            _ => Ok(()),
        }
    }

    /// Sequence of the last message on a subject; 0: there is none.
    async fn last_of(&self, entry: &Entry, subject: &[u8]) -> u64 {
        let last_by_subj = String::from_utf8_lossy(subject).into_owned();
        let request = GetMessage { last_by_subj, ..GetMessage::default() };
        match self.calls.run(entry.engine, Op::GetMessage { id: entry.id, request }).await {
            Ok(OpOutcome::Message(message)) => message.seq,
            _ => 0,
        }
    }
}

fn check_rollup(
    block: &[u8],
    headers: &PublishHeaders<'_>,
    limits: &Limits,
) -> Result<(), JsError> {
    if headers.rollup.is_none() {
        return Ok(());
    }
    if !limits.rollup {
        return Err(JsError::STREAM_ROLLUP_FAILED.with_err("rollup not permitted"));
    }
    let value = find_header(block, b"Nats-Rollup").unwrap_or_default().to_ascii_lowercase();
    if matches!(&value[..], b"all" | b"sub") {
        return Ok(());
    }
    let value = String::from_utf8_lossy(&value);
    let text = format!("rollup value invalid: {value:?}");
    Err(JsError::STREAM_ROLLUP_FAILED.with_err(text))
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

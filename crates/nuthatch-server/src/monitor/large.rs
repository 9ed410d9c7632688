//! Answers that may be large: how many are made at a time, where, and how many bytes all of them may
//! keep together.

use super::endpoints::{Answer, answer_here};
use super::query::Query;
use crate::large_answers::METRICS;
use crate::server::Server;
use bytes::Bytes;
use hyper::StatusCode;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Connections, subscriptions or accounts on one page at most, whatever `limit` says.
pub(super) const PAGE_MAX: usize = 4096;
/// Subscriptions that one answer lists at most; what is cut off is said.
pub(super) const SUBSCRIPTIONS_MAX: usize = 16 * 1024;
/// Streams and consumers that one answer lists at most; what is cut off is said.
pub(super) const ASSETS_MAX: usize = 16 * 1024;
/// Bytes that one document may have, about; what is cut off is said where the rows are counted.
pub(super) const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A request waits so long for its turn, and then for the bytes of others to be gone.
const TURN: Duration = Duration::from_secs(10);

/// Endpoints whose answers grow with what is in the server.
pub(super) fn is_large(endpoint: &str) -> bool {
    let large =
        [METRICS, "/connz", "/subsz", "/jsz", "/accountz", "/accstatz", "/leafz", "/stacksz"];
    large.contains(&endpoint)
}

fn busy() -> Answer {
    let text = "too many requests for large documents at once: try again later".to_owned();
    Answer::Text(StatusCode::SERVICE_UNAVAILABLE, super::endpoints::PLAIN, text)
}

/// Makes an answer and what `finish` makes of it on a thread that may take long, when it is its turn.
/// The document is dropped there, too.
pub(super) async fn make<T: Send + 'static>(
    server: &Arc<Server>,
    endpoint: &'static str,
    query: &Query,
    finish: impl FnOnce(Answer) -> T + Clone + Send + 'static,
) -> T {
    let large = &server.large_answers;
    let asked = large.ask();
    let share = large.place_of(query.asker());
    if (asked.is_none() || share.is_err()) && endpoint != METRICS {
        return finish(busy());
    }
    let turn = timeout(TURN, server.large_answers.turn(endpoint, query.asker())).await;
    let Ok(turn) = turn else { return finish(busy()) };
    let (server, query, told) = (server.clone(), query.clone(), finish.clone());
    let runtime = tokio::runtime::Handle::current();
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let made = timeout(TURN, answer_here(&server, endpoint, &query));
        told(runtime.block_on(made).unwrap_or_else(|_| busy()))
    });
    match made.await {
        Ok(finished) => finished,
        Err(error) => {
            let why = format!("cannot make {endpoint}: {error}");
            finish(Answer::Text(StatusCode::INTERNAL_SERVER_ERROR, super::endpoints::PLAIN, why))
        }
    }
}

/// The bytes of an endpoint's answer, which count until they are sent or dropped; `None`: there are
/// too many others.
pub(super) async fn hold(server: &Server, endpoint: &str, text: Vec<u8>) -> Option<Bytes> {
    server.large_answers.hold(endpoint, text, TURN).await
}

/// What one document may still hold.
pub(super) struct Room {
    pub(super) rows: usize,
    bytes: usize,
}

impl Room {
    pub(super) const fn new(rows: usize) -> Self {
        Self { rows, bytes: DOCUMENT_BYTES_MAX }
    }

    /// Counts a part of the document; whether there was room for it.
    pub(super) fn take(&mut self, part: &Value) -> bool {
        self.take_bytes(text_bytes(part))
    }

    /// As [`Room::take`], by what is known of a part before it is made.
    pub(super) fn take_bytes(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.bytes;
        self.bytes = if fits { self.bytes - bytes } else { 0 };
        fits
    }
}

/// Bytes of a part's text, about.
fn text_bytes(part: &Value) -> usize {
    const PUNCTUATION: usize = 8;
    PUNCTUATION
        + match part {
            Value::String(text) => text.len(),
            Value::Array(parts) => parts.iter().map(text_bytes).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| name.len() + text_bytes(value)).sum()
            }
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_room_for_so_many_bytes() {
        let mut room = Room::new(1);
        let part = serde_json::json!({ "subject": "x".repeat(1 << 20) });
        let parts = std::iter::repeat_with(|| room.take(&part)).take_while(|fits| *fits).count();
        assert!((14..=16).contains(&parts), "{parts}");
        assert!(!room.take_bytes(1));
    }
}

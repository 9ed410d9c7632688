//! Answers that may be large: how many are made at a time, where, and how many bytes all of them may
//! keep together.

use super::endpoints::{Answer, answer_here};
use super::query::Query;
use crate::server::Server;
use crate::trim;
use bytes::Bytes;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Connections, subscriptions or accounts on one page at most, whatever `limit` says.
pub(super) const PAGE_MAX: usize = 4096;
/// Subscriptions that one answer lists at most; what is cut off is said.
pub(super) const SUBSCRIPTIONS_MAX: usize = 16 * 1024;
/// Streams and consumers that one answer lists at most; what is cut off is said.
pub(super) const ASSETS_MAX: usize = 16 * 1024;
/// Large answers that are made at a time, over HTTP and for requests of the system account.
const MAKING_MAX: usize = 2;
/// Bytes of answers over HTTP that have not been sent yet, all together.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A request waits so long for its turn, and then for the bytes of others to be gone.
const TURN: Duration = Duration::from_secs(10);
/// Bytes per permit.
const UNIT_BYTES: usize = 1024;

/// Bounds for all large answers of a server.
#[derive(Debug)]
pub struct Large {
    making: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Default for Large {
    fn default() -> Self {
        Self {
            making: Arc::new(Semaphore::new(MAKING_MAX)),
            waiting: Arc::new(Semaphore::new(WAITING_BYTES_MAX / UNIT_BYTES)),
        }
    }
}

/// Endpoints whose answers grow with what is in the server.
pub(super) fn is_large(endpoint: &str) -> bool {
    let large = ["/connz", "/subsz", "/jsz", "/accountz", "/accstatz", "/leafz", "/stacksz"];
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
    let turn = timeout(TURN, server.large_answers.making.clone().acquire_owned()).await;
    let Ok(Ok(turn)) = turn else { return finish(busy()) };
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

/// The bytes of an answer, which count until they are sent or dropped; `None`: there are too many
/// others.
pub(super) async fn hold(server: &Server, text: Vec<u8>) -> Option<Bytes> {
    let units = text.len().div_ceil(UNIT_BYTES).min(WAITING_BYTES_MAX / UNIT_BYTES);
    let units = u32::try_from(units).expect("bounded by a constant above");
    let waiting = server.large_answers.waiting.clone();
    let permit = timeout(TURN, waiting.acquire_many_owned(units)).await.ok()?.ok()?;
    Some(Bytes::from_owner(AnswerShare { text, _permit: permit }))
}

/// An answer with its share of [`WAITING_BYTES_MAX`].
struct AnswerShare {
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        trim::freed(self.text.len());
    }
}

impl AsRef<[u8]> for AnswerShare {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

//! API requests under way: how many there may be, what they may hold, and who waits for their answers.

use nuthatch_server::shares::{Share, Shares};
use nuthatch_streams::AccountId;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// API requests under way at once, over all accounts.
pub const MAX_INFLIGHT_REQUESTS: usize = 10_000;
/// Those of one account.
pub const MAX_ACCOUNT_REQUESTS: usize = MAX_INFLIGHT_REQUESTS / 2;
/// Bytes of headers and bodies of API requests under way at once, over all accounts.
pub const MAX_INFLIGHT_BYTES: usize = 64 * 1024 * 1024;
/// Those of one account.
pub const MAX_ACCOUNT_REQUEST_BYTES: usize = MAX_INFLIGHT_BYTES / 2;

/// The requests under way, those that other nodes hand on among them.
pub(super) struct Requests {
    /// How many there are.
    pub(super) count: Arc<Shares>,
    /// Bytes that they keep in memory.
    pub(super) bytes: Arc<Shares>,
    /// What each of them holds until it is answered. Nothing is sent: the receiver hears when the last one is dropped.
    held: Mutex<(Held, mpsc::Receiver<Infallible>)>,
    /// What other nodes hand on is not taken any more.
    is_ending: watch::Sender<bool>,
}

type Held = mpsc::Sender<Infallible>;

/// A request's part of them, until it is dropped.
pub(super) struct Request {
    bytes: usize,
    _count: Share,
    _bytes: Share,
    _held: Held,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self {
            count: Shares::new(MAX_INFLIGHT_REQUESTS, MAX_ACCOUNT_REQUESTS),
            bytes: Shares::new(MAX_INFLIGHT_BYTES, MAX_ACCOUNT_REQUEST_BYTES),
            held: Mutex::new(mpsc::channel(1)),
            is_ending: watch::Sender::new(false),
        }
    }

    /// `None`: that would be too many requests or too many bytes, of the account or of all.
    pub(super) fn begin(&self, account: AccountId, bytes: usize) -> Option<Request> {
        let count = self.count.take(account, 1).ok()?;
        let share = self.bytes.take(account, bytes).ok()?;
        let held = self.held.lock().0.clone();
        Some(Request { bytes, _count: count, _bytes: share, _held: held })
    }

    /// As [`Requests::begin`] of a request that another node hands on; `None` as well once this server ends: the node asks
    /// somebody else.
    pub(super) fn begin_handed_on(&self, account: AccountId, bytes: usize) -> Option<Request> {
        let request = self.begin(account, bytes);
        // In this order: one that has begun before the end was told is waited for.
        request.filter(|_| !*self.is_ending.borrow())
    }

    /// Returns when this server ends.
    pub(super) async fn ending(&self) {
        // What tells of it lives as long as this.
        let _ = self.is_ending.subscribe().wait_for(|is_ending| *is_ending).await;
    }

    /// This server ends. Waits until the requests that have begun are answered, once for each of them; those that clients send
    /// meanwhile are not waited for, those of other nodes are not taken.
    pub(super) async fn end(&self) {
        self.is_ending.send_replace(true);
        let (held, mut answered) = std::mem::replace(&mut *self.held.lock(), mpsc::channel(1));
        drop(held);
        let _ = answered.recv().await;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        nuthatch_server::trim::freed(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const ACCOUNT: AccountId = AccountId(1);

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_end_waits_for_what_has_begun_and_takes_nothing_handed_on() {
        let requests = Requests::new();
        let of_client = requests.begin(ACCOUNT, 10).expect("there is room");
        let of_node = requests.begin_handed_on(ACCOUNT, 10).expect("it does not end yet");
        let mut ending = pin!(requests.ending());
        assert!(poll(ending.as_mut()).is_pending());
        let mut end = pin!(requests.end());
        assert!(poll(end.as_mut()).is_pending() && poll(ending.as_mut()).is_ready());
        assert!(requests.begin_handed_on(ACCOUNT, 10).is_none());
        let later = requests.begin(ACCOUNT, 10).expect("a client may ask on");
        drop(of_client);
        assert!(poll(end.as_mut()).is_pending());
        drop(of_node);
        assert!(poll(end.as_mut()).is_ready());
        drop(later);
        assert_eq!(requests.count.used() + requests.bytes.used(), 0);
    }
}

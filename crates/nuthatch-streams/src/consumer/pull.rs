//! Pull requests that wait for messages.

use super::request::Priority;
use std::collections::VecDeque;

/// A pull request in the queue. `T` is where its inbox leads to.
#[derive(Debug)]
pub(super) struct QueuedPull<T> {
    /// The inbox.
    pub reply: Box<[u8]>,
    /// Its subscribers.
    pub target: T,
    /// Messages still wanted.
    pub remaining: i64,
    /// Messages delivered.
    pub delivered: u64,
    /// Bytes still wanted; 0: any number.
    pub bytes_left: i64,
    /// When it ends, ns since the epoch; `i64::MAX`: never.
    pub expires: i64,
    /// End as soon as there is nothing more to deliver.
    pub no_wait: bool,
    /// Heartbeat interval, 0: none.
    pub heartbeat: i64,
    /// When the next heartbeat is due; `i64::MAX`: never.
    pub heartbeat_at: i64,
    /// Its options for priority groups, if any.
    pub priority: Option<Box<Priority>>,
}

impl<T> QueuedPull<T> {
    /// True if it was given a time limit.
    pub fn has_expiry(&self) -> bool {
        self.expires != i64::MAX
    }

    /// Its place in an ordered queue: requests that say nothing come last.
    fn order(&self) -> i64 {
        self.priority.as_ref().map_or(i64::MAX, |asked| asked.priority)
    }

    fn wake_at(&self) -> i64 {
        self.expires.min(self.heartbeat_at)
    }
}

/// The queue, bounded by the consumer's `max_waiting`.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    requests: VecDeque<QueuedPull<T>>,
    max: usize,
    wake_at: i64,
    one_shots: usize,
    /// Kept in order of priority.
    ordered: bool,
}

impl<T> WaitQueue<T> {
    /// An empty queue for at most `max` requests.
    pub fn new(max: usize) -> Self {
        Self { requests: VecDeque::new(), max, wake_at: i64::MAX, one_shots: 0, ordered: false }
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.requests.len() >= self.max
    }

    /// The inboxes of the first requests, at most so many.
    pub fn inboxes(&self, max: usize) -> Vec<String> {
        let first = self.requests.iter().take(max);
        first.map(|request| String::from_utf8_lossy(&request.reply).into_owned()).collect()
    }

    /// Messages that all requests together still want.
    pub fn wanted(&self) -> u64 {
        self.requests.iter().fold(0, |sum, r| u64::saturating_add(sum, r.remaining.max(0) as u64))
    }

    /// Adds a request at the end; the caller has looked at [`WaitQueue::is_full`].
    pub fn add(&mut self, request: QueuedPull<T>) {
        self.wake_at = self.wake_at.min(request.wake_at());
        self.one_shots += usize::from(request.no_wait);
        self.insert(request);
    }

    /// Keeps the requests in order of priority from now on, or in the order in which they came.
    pub fn set_ordered(&mut self, ordered: bool) {
        self.ordered = ordered;
        if ordered {
            self.requests.make_contiguous().sort_by_key(QueuedPull::order);
        }
    }

    fn insert(&mut self, request: QueuedPull<T>) {
        if !self.ordered {
            return self.requests.push_back(request);
        }
        let at = self.requests.partition_point(|other| other.order() <= request.order());
        self.requests.insert(at, request);
    }

    /// The request whose turn it is.
    pub fn head(&mut self) -> Option<&mut QueuedPull<T>> {
        self.requests.front_mut()
    }

    /// The request whose turn it is, to look at.
    pub fn first(&self) -> Option<&QueuedPull<T>> {
        self.requests.front()
    }

    /// Moves the first request to the end, or behind the others of its priority.
    pub fn rotate(&mut self) {
        if !self.ordered {
            return self.pass();
        }
        if let Some(request) = self.requests.pop_front() {
            self.insert(request);
        }
    }

    /// Moves the first request to the end, whatever its priority.
    pub fn pass(&mut self) {
        if self.requests.len() > 1 {
            self.requests.rotate_left(1);
        }
    }

    /// Takes the first request out.
    pub fn pop(&mut self) -> Option<QueuedPull<T>> {
        let request = self.requests.pop_front()?;
        self.one_shots -= usize::from(request.no_wait);
        Some(request)
    }

    /// True if any request does not wait for messages to come.
    pub fn has_one_shots(&self) -> bool {
        self.one_shots > 0
    }

    /// Keeps the requests for which `keep` holds; computes the next wake-up anew.
    pub fn sweep(&mut self, mut keep: impl FnMut(&mut QueuedPull<T>) -> bool) {
        let (mut wake_at, mut one_shots) = (i64::MAX, 0);
        self.requests.retain_mut(|request| {
            let kept = keep(request);
            if kept {
                wake_at = wake_at.min(request.wake_at());
                one_shots += usize::from(request.no_wait);
            }
            kept
        });
        (self.wake_at, self.one_shots) = (wake_at, one_shots);
    }

    /// When something in the queue expires or wants a heartbeat (or a little earlier).
    pub fn wake_at(&self) -> i64 {
        if self.requests.is_empty() { i64::MAX } else { self.wake_at }
    }
}

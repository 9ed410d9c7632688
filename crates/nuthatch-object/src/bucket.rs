//! The object store below one prefix, as blocking calls with retries and counters.
//!
//! Calls may come from any thread that may block; requests run on an [`Executor`]: a small runtime of
//! the bucket's own, or what a simulation gives. The store's own retries are not used: a conditional creation that was repeated inside the
//! client cannot be told from a rival's, so repeating is decided here, where answers are compared.

mod error;
mod executor;
mod retry_budget;

pub use error::BucketError;
pub use executor::Executor;

use crate::counters::{Counters, RequestKind};
use crate::rules;
use bytes::Bytes;
use error::{TimedOut, failed, is_transient, unsettled};
use executor::{Awaited, RequestRuntime};
use futures_util::future::{Either, select};
use futures_util::{StreamExt, TryStreamExt};
use nuthatch_log::Reporter;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use parking_lot::Mutex;
use retry_budget::RetryBudget;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests of one bucket that may be under way at a time; others wait.
pub const MAX_REQUESTS_IN_FLIGHT: usize = 16;

/// The longest pause before a failed request is repeated.
const RETRY_MAX_MS: u64 = 5_000;

/// How a bucket is used.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// How long a request is repeated while it fails for a reason that may pass (500, 503,
    /// timeouts, lost connections). Default 10 minutes.
    pub retry_for: Duration,
    /// The first pause before a failed request is repeated; it doubles up to [`RETRY_MAX_MS`].
    /// Default 20 ms.
    pub retry_first_ms: u64,
    /// How long one attempt may take. Default 30 s.
    pub attempt_timeout: Duration,
    /// Receives reports of failing requests.
    pub report: Reporter,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self {
            retry_for: Duration::from_secs(600),
            retry_first_ms: 20,
            attempt_timeout: Duration::from_secs(30),
            report: Reporter::default(),
        }
    }
}

/// An object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Key below the bucket's prefix.
    pub key: String,
    /// Its size.
    pub bytes: u64,
}

/// An object store below a prefix.
pub struct Bucket {
    shared: Arc<BucketShared>,
}

struct BucketShared {
    store: Arc<dyn ObjectStore>,
    executor: Arc<dyn Executor>,
    prefix: Path,
    label: String,
    options: BucketOptions,
    counters: Counters,
    permits: Semaphore,
    /// Held by a put that took too long before.
    alone: Semaphore,
    closed: AtomicBool,
    retry_for_ms: AtomicU64,
    /// The last request that was given up, other than for an object that is not there.
    given_up: Mutex<Option<String>>,
}

impl Bucket {
    /// Uses `store` below `prefix`; `label` names it in messages and holds no secrets.
    ///
    /// # Errors
    /// The operating system has no threads to give.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        label: String,
        options: BucketOptions,
    ) -> io::Result<Self> {
        let executor = Arc::new(RequestRuntime::start(Awaited::Beside)?);
        Ok(Self::on(executor, store, prefix, label, options))
    }

    /// The same for a store that is a directory: whoever waits for a request runs it.
    ///
    /// # Errors
    /// As [`Bucket::new`].
    pub(crate) fn in_directory(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        label: String,
        options: BucketOptions,
    ) -> io::Result<Self> {
        let executor = Arc::new(RequestRuntime::start(Awaited::AtCaller)?);
        Ok(Self::on(executor, store, prefix, label, options))
    }

    /// The same on threads and a clock that are given.
    #[must_use]
    pub fn on(
        executor: Arc<dyn Executor>,
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        label: String,
        options: BucketOptions,
    ) -> Self {
        let retry_for_ms = AtomicU64::new(millis(options.retry_for));
        let shared = Arc::new(BucketShared {
            store,
            executor,
            prefix,
            label,
            options,
            counters: Counters::default(),
            permits: Semaphore::new(MAX_REQUESTS_IN_FLIGHT),
            alone: Semaphore::new(1),
            closed: AtomicBool::new(false),
            retry_for_ms,
            given_up: Mutex::default(),
        });
        Self { shared }
    }

    /// Its label in messages.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.shared.label
    }

    /// The last request that had no success in the end, other than for an object that is not there:
    /// what was read around it says nothing about what is stored.
    #[must_use]
    pub fn given_up(&self) -> Option<String> {
        self.shared.given_up.lock().clone()
    }

    /// Counters of its requests and bytes.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Changes how long requests are repeated, those under way included: short while a server starts,
    /// so that a wrong address is told at once, and while it stops; long in between.
    pub fn set_retry_for(&self, retry_for: Duration) {
        self.shared.retry_for_ms.store(millis(retry_for), Ordering::Relaxed);
    }

    /// Ends waiting for retries: every request fails from now on.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn reporter(&self) -> Reporter {
        self.shared.options.report.clone()
    }

    pub(crate) fn report(&self, message: &str) {
        self.shared.options.report.say(message);
    }

    /// The time of what its requests run on.
    pub(crate) fn monotonic(&self) -> Duration {
        self.shared.executor.monotonic()
    }

    /// Runs a request and waits for it.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, BucketError>> + Send + 'static,
    ) -> Result<T, BucketError> {
        let (done, result) = sync_channel(1);
        self.shared.executor.spawn_awaited(Box::pin(async move {
            let _ = done.send(work.await);
        }));
        result.recv().unwrap_or(Err(BucketError::Closed))
    }

    /// Writes an object, replacing one of that key. Meant for keys that only this owner writes and
    /// always with the same bytes, so that a repetition does no harm.
    ///
    /// # Errors
    /// [`BucketError`].
    pub fn put(&self, key: &str, payload: PutPayload) -> Result<(), BucketError> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.wait(async move { shared.put(&key, payload).await })
    }

    /// Writes several objects at a time; returns when all are there.
    ///
    /// # Errors
    /// The first that failed.
    pub fn put_all(&self, objects: Vec<(String, PutPayload)>) -> Result<(), BucketError> {
        if let [(key, payload)] = &objects[..] {
            return self.put(key, payload.clone());
        }
        let shared = Arc::clone(&self.shared);
        self.wait(async move { shared.put_all(objects).await })
    }

    /// Writes several objects at a time and then, when all are there, looks whether there is one of
    /// key `sentinel`. Does not wait: `done` gets the answer on a thread of the bucket's, where it
    /// must not block; or it is dropped because the bucket is.
    pub fn put_all_later(
        &self,
        objects: Vec<(String, PutPayload)>,
        sentinel: String,
        done: impl FnOnce(Result<bool, BucketError>) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        self.shared.executor.spawn(Box::pin(async move {
            done(match shared.put_all(objects).await {
                Ok(()) => shared.exists(&sentinel).await,
                Err(error) => Err(error),
            });
        }));
    }

    /// Runs what may block on a thread of the bucket's; or drops it because the bucket is.
    pub fn beside(&self, work: impl FnOnce() + Send + 'static) {
        self.shared.executor.spawn_blocking(Box::new(work));
    }

    /// Creates an object unless there is one of that key. Not repeated: see [`Bucket::create`].
    pub fn create_once(&self, key: &str, bytes: Bytes) -> Result<(), BucketError> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.wait(async move {
            let path = shared.path(&key);
            shared.counters.request(RequestKind::Put);
            shared.counters.put(bytes.len() as u64);
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = shared.store.put_opts(&path, PutPayload::from_bytes(bytes), options);
            let put = shared.attempt(put, &mut RetryBudget::new(&shared)).await;
            put.map(drop).map_err(|source| failed("create", &key, source))
        })
    }

    /// Creates an object unless there is one of that key already. `bytes` must be unique to this
    /// call (hold a random identity): after a lost answer, or an answer that may mean one's own
    /// earlier attempt, the object is read and compared.
    ///
    /// # Errors
    /// [`BucketError::Exists`] if the object is another's, and [`BucketError`].
    pub fn create(&self, key: &str, bytes: &Bytes) -> Result<(), BucketError> {
        let retry_budget = RetryBudget::new(&self.shared);
        self.repeat(retry_budget, "create", key, |bucket| {
            let error = match bucket.create_once(key, bytes.clone()) {
                Ok(()) => return Ok(()),
                Err(BucketError::Failed { .. }) if !rules::CREATION_COMPARED.holds() => {
                    return Ok(());
                }
                Err(error) => error,
            };
            // Whatever the answer was, what is there decides.
            match bucket.get(key) {
                Ok(found) if found == *bytes => Ok(()),
                Ok(_) => Err(BucketError::Exists { key: key.to_owned() }),
                Err(BucketError::NotFound { .. }) => Err(unsettled(error, key)),
                Err(other) => Err(other),
            }
        })
    }

    fn repeat<T>(
        &self,
        mut retry_budget: RetryBudget,
        operation: &'static str,
        key: &str,
        attempt: impl Fn(&Self) -> Result<T, BucketError>,
    ) -> Result<T, BucketError> {
        loop {
            match attempt(self) {
                Err(BucketError::Failed { source, .. }) if is_transient(&source) => {
                    let Some(pause) = retry_budget.next(&self.shared) else {
                        return Err(failed(operation, key, source));
                    };
                    self.shared.note_retry(operation, key, &source, &mut retry_budget);
                    self.shared.executor.pause(pause);
                }
                result => return result,
            }
        }
    }

    /// Reads an object.
    ///
    /// # Errors
    /// [`BucketError`].
    pub fn get(&self, key: &str) -> Result<Bytes, BucketError> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.wait(async move { shared.get(&key, None).await })
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`BucketError`].
    pub fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, BucketError> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.wait(async move { shared.get(&key, Some(range)).await })
    }

    /// Reads several objects, a few at a time, in the order given; `None` for those that could not
    /// be read.
    ///
    /// # Errors
    /// [`BucketError::Closed`].
    pub fn get_all(&self, keys: Vec<String>) -> Result<Vec<Option<Bytes>>, BucketError> {
        let shared = Arc::clone(&self.shared);
        self.wait(async move {
            let gets = keys.into_iter().map(|key| {
                let shared = Arc::clone(&shared);
                async move { shared.get(&key, None).await.ok() }
            });
            Ok(futures_util::stream::iter(gets).buffered(MAX_REQUESTS_IN_FLIGHT).collect().await)
        })
    }

    /// Reads ranges of objects, a few at a time, in the order given.
    ///
    /// # Errors
    /// The first that failed.
    pub fn get_ranges(&self, ranges: Vec<(String, Range<u64>)>) -> Result<Vec<Bytes>, BucketError> {
        let shared = Arc::clone(&self.shared);
        self.wait(async move {
            let gets = ranges.into_iter().map(|(key, range)| {
                let shared = Arc::clone(&shared);
                async move { shared.get(&key, Some(range)).await }
            });
            futures_util::stream::iter(gets).buffered(MAX_REQUESTS_IN_FLIGHT).try_collect().await
        })
    }

    /// Reads a range of an object in the background; `done` gets the bytes on a thread of the
    /// bucket's, or is dropped when there are none.
    pub fn get_range_later(
        &self,
        key: &str,
        range: Range<u64>,
        done: impl FnOnce(Option<Bytes>) + Send + 'static,
    ) {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.shared.executor.spawn(Box::pin(async move {
            done(shared.get(&key, Some(range)).await.ok());
        }));
    }

    /// True if an object exists.
    ///
    /// # Errors
    /// [`BucketError`].
    pub fn exists(&self, key: &str) -> Result<bool, BucketError> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        self.wait(async move { shared.exists(&key).await })
    }

    /// All objects whose key begins with the directory `under`, in the order of keys.
    ///
    /// # Errors
    /// [`BucketError`].
    pub fn list(&self, under: &str) -> Result<Vec<Listed>, BucketError> {
        let (shared, under) = (Arc::clone(&self.shared), under.to_owned());
        self.wait(async move {
            let mut all = shared
                .repeat(RequestKind::List, "list", &under, |shared, path| async move {
                    shared.store.list(Some(&path)).try_collect::<Vec<_>>().await
                })
                .await?;
            // Each page is a request; the first is counted already.
            for _ in 0..all.len().saturating_sub(1) / LIST_PAGE {
                shared.counters.request(RequestKind::List);
            }
            all.sort_by(|a, b| a.location.cmp(&b.location));
            let listed = all.into_iter().filter_map(|meta| {
                Some(Listed { key: shared.key(&meta.location)?, bytes: meta.size })
            });
            Ok(listed.collect())
        })
    }

    /// Removes objects, at most a few at a time. Ones that are not there are no error.
    ///
    /// # Errors
    /// [`BucketError`]; some may be gone.
    pub fn delete_all(&self, keys: Vec<String>) -> Result<(), BucketError> {
        let shared = Arc::clone(&self.shared);
        self.wait(async move {
            let deletes = keys.into_iter().map(|key| {
                let shared = Arc::clone(&shared);
                async move { shared.delete(&key).await }
            });
            let mut deletes =
                futures_util::stream::iter(deletes).buffer_unordered(MAX_REQUESTS_IN_FLIGHT);
            while let Some(result) = deletes.next().await {
                result?;
            }
            Ok(())
        })
    }
}

/// Objects in a page of a listing.
const LIST_PAGE: usize = 1000;

impl Drop for Bucket {
    fn drop(&mut self) {
        self.close();
        self.shared.executor.close();
    }
}

impl BucketShared {
    fn path(&self, key: &str) -> Path {
        let parts = key.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    fn key(&self, location: &Path) -> Option<String> {
        let parts: Vec<_> = location.prefix_match(&self.prefix)?.collect();
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        Some(parts.join("/"))
    }

    /// One attempt, within the time that it may take.
    async fn attempt<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
        retry_budget: &mut RetryBudget,
    ) -> Result<T, Error> {
        let _permit = self.permits.acquire().await;
        let (began, limit) = (self.executor.monotonic(), self.options.attempt_timeout);
        let result = match select(pin!(request), self.executor.sleep(limit)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) => Err(Error::Generic { store: "store", source: Box::new(TimedOut) }),
        };
        // The client has a limit of its own, which may come first.
        retry_budget.was_slow = result.is_err() && self.executor.monotonic() - began >= limit / 2;
        result
    }

    /// Repeats a request as long as it fails for a reason that may pass.
    async fn repeat<T, F>(
        self: &Arc<Self>,
        kind: RequestKind,
        operation: &'static str,
        key: &str,
        request: impl Fn(Arc<Self>, Path) -> F,
    ) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut retry_budget = RetryBudget::new(self);
        let mut alone = None;
        loop {
            self.counters.request(kind);
            let request = request(Arc::clone(self), self.path(key));
            let source = match self.attempt(request, &mut retry_budget).await {
                Ok(value) => return Ok(value),
                Err(source) => source,
            };
            drop(alone.take());
            let pause = is_transient(&source).then(|| retry_budget.next(self)).flatten();
            let Some(pause) = pause else {
                return Err(self.give_up(failed(operation, key, source)));
            };
            self.note_retry(operation, key, &source, &mut retry_budget);
            if !pause.is_zero() {
                self.executor.sleep(pause).await;
            }
            // Several that share a slow link would take too long together again and again.
            if retry_budget.was_slow && kind == RequestKind::Put {
                alone = self.alone.acquire().await.ok();
                if retry_budget.is_over(self, Duration::ZERO) {
                    return Err(self.give_up(failed(operation, key, source)));
                }
            }
        }
    }

    fn give_up(&self, error: BucketError) -> BucketError {
        if matches!(error, BucketError::Failed { .. }) {
            *self.given_up.lock() = Some(error.to_string());
        }
        error
    }

    async fn put(self: &Arc<Self>, key: &str, payload: PutPayload) -> Result<(), BucketError> {
        let bytes = payload.content_length() as u64;
        let put = self.repeat(RequestKind::Put, "put", key, |shared, path| {
            let payload = payload.clone();
            async move { shared.store.put(&path, payload).await }
        });
        put.await?;
        self.counters.put(bytes);
        Ok(())
    }

    async fn put_all(
        self: &Arc<Self>,
        objects: Vec<(String, PutPayload)>,
    ) -> Result<(), BucketError> {
        let puts = objects.into_iter().map(|(key, payload)| {
            let shared = Arc::clone(self);
            async move { shared.put(&key, payload).await }
        });
        let mut puts = futures_util::stream::iter(puts).buffer_unordered(MAX_REQUESTS_IN_FLIGHT);
        while let Some(result) = puts.next().await {
            result?;
            if !rules::ALL_PARTS_STORED.holds() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn exists(self: &Arc<Self>, key: &str) -> Result<bool, BucketError> {
        let head = self.repeat(RequestKind::Head, "head", key, |shared, path| async move {
            shared.store.head(&path).await
        });
        match head.await {
            Ok(_) => Ok(true),
            Err(BucketError::NotFound { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    async fn get(
        self: &Arc<Self>,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Bytes, BucketError> {
        let get = self.repeat(RequestKind::Get, "get", key, |shared, path| {
            let range = range.clone().map(GetRange::Bounded);
            let options = GetOptions { range, ..GetOptions::default() };
            async move { shared.store.get_opts(&path, options).await?.bytes().await }
        });
        let bytes = get.await?;
        self.counters.got(bytes.len() as u64);
        Ok(bytes)
    }

    async fn delete(self: &Arc<Self>, key: &str) -> Result<(), BucketError> {
        let delete = self.repeat(RequestKind::Delete, "delete", key, |shared, path| async move {
            shared.store.delete(&path).await
        });
        match delete.await {
            Err(BucketError::NotFound { .. }) => Ok(()),
            result => result,
        }
    }

    /// Says that a request is being repeated: once for a request that goes on failing.
    fn note_retry(&self, operation: &str, key: &str, why: &Error, retry_budget: &mut RetryBudget) {
        self.counters.retry();
        if retry_budget.attempts == REPORT_AFTER_ATTEMPTS {
            let message = format!("{}: {operation} of {key} is being repeated: {why}", self.label);
            self.options.report.say(&message);
        }
    }
}

/// A request that failed this often is reported.
const REPORT_AFTER_ATTEMPTS: u32 = 3;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

//! A store that fails as real ones do, decided by a seed: errors before and after a request was
//! carried out, answers that are lost, conflicts that did not happen, and the death of its user.
#![allow(dead_code, reason = "each test file uses its own part")]

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens to the requests of one process.
#[derive(Clone, Debug)]
pub struct Toxics {
    pub seed: u64,
    /// Of a hundred requests so many fail in some way that may pass.
    pub fail_percent: u64,
    /// The process dies at its so-many-th change of the store; half of the time the change is made.
    pub die_at: Option<u64>,
    /// Never shows the fences of others: what a broken fence would be.
    pub hide_fences: bool,
}

/// Runs once, when the process is about to make its so-many-th change.
pub struct Interruption {
    pub at: u64,
    pub run: Box<dyn FnOnce() + Send>,
}

/// What becomes of a put that is never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PendingFetch {
    /// It was carried out.
    AtOnce,
    /// It is not carried out.
    Never,
    /// It is carried out at [`ToxicStore::arrive`].
    Late,
}

/// The next put of a key that holds `part` has no answer, and neither has the look for it.
#[derive(Clone, Debug)]
pub struct Silence {
    pub part: &'static str,
    pub arrival: PendingFetch,
}

type LatePut = (Path, PutPayload, PutOptions);

/// One process's view of a shared store.
pub struct ToxicStore(Arc<State>);

struct State {
    inner: Arc<InMemory>,
    toxics: Toxics,
    changes: AtomicU64,
    attempts: Mutex<HashMap<String, u64>>,
    trace: AtomicU64,
    died_at: Mutex<Option<Moment>>,
    interruption: Mutex<Option<Interruption>>,
    silence: Mutex<Option<Silence>>,
    /// Keys of which the next look has no answer.
    unseen: Mutex<Vec<Path>>,
    late: Mutex<Vec<LatePut>>,
    /// Of a hundred removals so many are answered with an error and carried out later.
    late_percent: AtomicU64,
    /// Removals that are due at a change of that number.
    late_removals: Mutex<Vec<(u64, Path)>>,
}

/// A removal is late by at most so many changes.
const LATE_CHANGES: u64 = 40;

/// What a change of the store is a part of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Moment {
    /// The store is tried out.
    SelfTest,
    /// An owner makes its fence.
    Takeover,
    /// The catalog changes: claimed, rolled over, sealed, compacted.
    Catalog,
    /// Frames are stored.
    Flush,
    /// A footer ends a segment.
    Seal,
    /// A compacted segment is stored.
    Compaction,
    /// A checkpoint is stored.
    Checkpoint,
    /// A manifest tells which objects count.
    Manifest,
    /// What nobody needs any more is removed.
    Collection,
}

/// Last bytes of a segment that has a footer.
const FOOTER_MAGIC: &[u8] = b"NUTHFOOT";

impl Moment {
    /// What storing these bytes under a key is a part of.
    fn of_put(key: &str, payload: &PutPayload) -> Self {
        let names: Vec<&str> = key.split('/').collect();
        let part = |at: usize| names.len().checked_sub(at).map_or("", |at| names[at]);
        match (part(2), part(3)) {
            ("selftest", _) => Self::SelfTest,
            ("fence", _) => Self::Takeover,
            ("catalog", _) => Self::Catalog,
            _ if part(1).starts_with("manifest") => Self::Manifest,
            (file, "data") if file.starts_with("checkpoint") => Self::Checkpoint,
            // Name of a compacted segment: epoch, first position, id.
            (file, "data") if file.matches('-').count() == 2 => Self::Compaction,
            _ if ends_with(payload, FOOTER_MAGIC) => Self::Seal,
            _ => Self::Flush,
        }
    }
}

fn ends_with(payload: &PutPayload, end: &[u8]) -> bool {
    let bytes: Vec<u8> = payload.iter().flat_map(|part| part.iter().copied()).collect();
    bytes.ends_with(end)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Served,
    FailsBefore,
    FailsAfter,
    Conflicts,
    Dies { applied: bool },
}

impl ToxicStore {
    pub fn new(inner: Arc<InMemory>, toxics: Toxics) -> Self {
        Self(Arc::new(State {
            inner,
            toxics,
            changes: AtomicU64::new(0),
            attempts: Mutex::default(),
            trace: AtomicU64::new(0),
            died_at: Mutex::new(None),
            interruption: Mutex::new(None),
            silence: Mutex::new(None),
            unseen: Mutex::default(),
            late: Mutex::default(),
            late_percent: AtomicU64::new(0),
            late_removals: Mutex::default(),
        }))
    }

    pub fn silence(&self, silence: Silence) {
        *self.0.silence.lock() = Some(silence);
    }

    /// True if no put has met the silence yet; ends it.
    pub fn end_silence(&self) -> bool {
        self.0.silence.lock().take().is_some()
    }

    pub fn set_late_percent(&self, percent: u64) {
        self.0.late_percent.store(percent, Ordering::SeqCst);
    }

    /// Carries out what is late, as it was asked for.
    pub fn arrive(&self) {
        let late = std::mem::take(&mut *self.0.late.lock());
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.0.arrive(u64::MAX));
        for (location, payload, options) in late {
            let _ = runtime.block_on(self.0.inner.put_opts(&location, payload, options));
        }
    }

    pub fn interrupt(&self, interruption: Interruption) {
        *self.0.interruption.lock() = Some(interruption);
    }

    /// Changes that were asked for.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::SeqCst)
    }

    /// A hash of every change in its order, and of what became of it.
    pub fn trace(&self) -> u64 {
        self.0.trace.load(Ordering::SeqCst)
    }

    /// What the process was doing when it died, if it did.
    pub fn died_at(&self) -> Option<Moment> {
        *self.0.died_at.lock()
    }
}

impl State {
    fn trace(&self) -> u64 {
        self.trace.load(Ordering::SeqCst)
    }

    fn chance(&self, what: &str, of: u64) -> u64 {
        let mut attempts = self.attempts.lock();
        let attempt = attempts.entry(what.to_owned()).or_default();
        *attempt += 1;
        let mut hasher = DefaultHasher::new();
        (self.toxics.seed, what, *attempt).hash(&mut hasher);
        hasher.finish() % of
    }

    fn fate_of_change(&self, what: &str, moment: Moment) -> Fate {
        let number = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let due = self.interruption.lock().take_if(|interruption| interruption.at <= number);
        if let Some(interruption) = due {
            // On a thread of its own: it uses blocking calls.
            let _ = std::thread::spawn(interruption.run).join();
        }
        let fate = match self.toxics.die_at {
            Some(at) if number > at => Fate::Dies { applied: false },
            Some(at) if number == at => {
                *self.died_at.lock() = Some(moment);
                Fate::Dies { applied: self.chance(&format!("death {what}"), 2) == 0 }
            }
            _ => self.fate(what),
        };
        let mut hasher = DefaultHasher::new();
        (self.trace(), what, format!("{fate:?}")).hash(&mut hasher);
        self.trace.store(hasher.finish(), Ordering::SeqCst);
        fate
    }

    fn is_unseen(&self, location: &Path) -> bool {
        let mut unseen = self.unseen.lock();
        let at = unseen.iter().position(|key| key == location);
        at.map(|at| unseen.swap_remove(at)).is_some()
    }

    fn fate(&self, what: &str) -> Fate {
        if self.chance(&format!("fails? {what}"), 100) >= self.toxics.fail_percent {
            return Fate::Served;
        }
        match self.chance(&format!("how? {what}"), 3) {
            0 => Fate::FailsBefore,
            1 => Fate::FailsAfter,
            _ => Fate::Conflicts,
        }
    }

    fn fate_of_read(&self, what: &str) -> Result<()> {
        let changes = self.changes.load(Ordering::SeqCst);
        let dead = self.toxics.die_at.is_some_and(|at| changes >= at);
        if dead {
            return Err(death());
        }
        match self.fate(what) {
            Fate::Served => Ok(()),
            _ => Err(passing("503 Slow Down")),
        }
    }
}

/// A failure that a repetition may mend.
fn passing(why: &'static str) -> Error {
    Error::Generic { store: "toxic", source: why.into() }
}

/// The process is gone: whatever it asks for now has no answer. Not repeated.
fn death() -> Error {
    Error::PermissionDenied { path: String::new(), source: "the process is dead".into() }
}

impl fmt::Display for ToxicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toxic")
    }
}

impl fmt::Debug for ToxicStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("toxic")
    }
}

impl State {
    async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.arrive(self.changes.load(Ordering::SeqCst)).await;
        let create = options.mode == PutMode::Create;
        let silence =
            self.silence.lock().take_if(|silence| location.as_ref().contains(silence.part));
        if let Some(Silence { arrival, .. }) = silence {
            self.unseen.lock().push(location.clone());
            match arrival {
                PendingFetch::AtOnce => {
                    drop(self.inner.put_opts(location, payload, options).await?)
                }
                PendingFetch::Never => {}
                PendingFetch::Late => self.late.lock().push((location.clone(), payload, options)),
            }
            return Err(passing("no answer"));
        }
        let moment = Moment::of_put(location.as_ref(), &payload);
        match self.fate_of_change(&format!("put {location}"), moment) {
            Fate::Served => self.inner.put_opts(location, payload, options).await,
            Fate::FailsBefore => Err(passing("500 before")),
            Fate::FailsAfter => {
                let done = self.inner.put_opts(location, payload, options).await;
                done.and(Err(passing("connection reset after")))
            }
            // A raw 409: the client takes it for "exists", but nothing was written.
            Fate::Conflicts if create => {
                let path = location.to_string();
                Err(Error::AlreadyExists { path, source: "409 Conflict".into() })
            }
            Fate::Conflicts => Err(passing("503 instead of a conflict")),
            Fate::Dies { applied } => {
                if applied {
                    let _ = self.inner.put_opts(location, payload, options).await;
                }
                Err(death())
            }
        }
    }

    /// Carries out the removals that are due.
    async fn arrive(&self, now: u64) {
        let mut due = Vec::new();
        self.late_removals.lock().retain(|(at, location)| {
            let is_due = *at <= now;
            due.extend(is_due.then(|| location.clone()));
            !is_due
        });
        for location in due {
            let _ = self.inner.delete(&location).await;
        }
    }

    async fn delete(&self, location: Path) -> Result<Path> {
        let now = self.changes.load(Ordering::SeqCst);
        self.arrive(now).await;
        let late_percent = self.late_percent.load(Ordering::SeqCst);
        if self.chance(&format!("late? {location}"), 100) < late_percent {
            let at = now + 1 + self.chance(&format!("how late? {location}"), LATE_CHANGES);
            self.late_removals.lock().push((at, location));
            return Err(passing("no answer to a removal"));
        }
        let fate = self.fate_of_change(&format!("delete {location}"), Moment::Collection);
        if matches!(fate, Fate::Served | Fate::FailsAfter | Fate::Dies { applied: true }) {
            self.inner.delete(&location).await?;
        }
        match fate {
            Fate::Served => Ok(location),
            Fate::Dies { .. } => Err(death()),
            _ => Err(passing("503 for a removal")),
        }
    }
}

#[async_trait]
impl ObjectStore for ToxicStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let state = &self.0;
        state.fate_of_read(&format!("get {location} {:?}", options.range))?;
        if state.is_unseen(location) {
            return Err(passing("no answer"));
        }
        if state.toxics.hide_fences && options.head && location.as_ref().contains("/fence/") {
            let path = location.to_string();
            return Err(Error::NotFound { path, source: "hidden".into() });
        }
        state.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let state = Arc::clone(&self.0);
        // One at a time is how it is used.
        locations
            .then(move |location| {
                let state = Arc::clone(&state);
                async move { state.delete(location?).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.0.fate_of_read(&format!("list {prefix:?}")) {
            Ok(()) => self.0.inner.list(prefix),
            Err(error) => futures_util::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.inner.copy_opts(from, to, options).await
    }
}

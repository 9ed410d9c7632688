//! An object store in memory that fails as real ones do: errors before and after a request was carried
//! out, answers that are lost or come late, removals that are carried out later, and no answer at all.

use super::executor::VirtualExecutor;
use crate::rng::Rng;
use crate::scheduler::Trace;
use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use nuthatch_object::Executor;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A removal is late by at most so much.
const LATE_MAX: u64 = 5_000_000;

/// What goes wrong in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreFaults {
    /// Nobody answers.
    pub is_away: bool,
    /// Of a thousand requests so many fail in some way that may pass.
    pub fail_per_mille: u64,
    /// What a request takes at most, in microseconds.
    pub slowest: u64,
}

impl StoreFaults {
    /// Nothing fails.
    pub const NONE: Self = Self { is_away: false, fail_per_mille: 0, slowest: 2_000 };
}

struct State {
    rng: Rng,
    faults: StoreFaults,
    /// Removals that are carried out at a moment of the bucket's clock.
    late: Vec<(Duration, Path)>,
    /// A hash of all changes.
    trace: Trace,
}

/// What a store holds; clones share it.
#[derive(Clone)]
pub struct Store {
    objects: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Fate {
    Served,
    FailsBefore,
    FailsAfter,
    /// A raw 409: nothing was written, although the client takes it for "exists".
    Conflicts,
    /// A removal is answered with an error and carried out later.
    Late,
}

/// A failure that a repetition may mend.
fn passing(why: &'static str) -> Error {
    Error::Generic { store: "simulated", source: why.into() }
}

impl Store {
    /// An empty store without faults.
    pub fn new(seed: u64) -> Self {
        Self::of(InMemory::new(), seed, vec![])
    }

    fn of(objects: InMemory, seed: u64, late: Vec<(Duration, Path)>) -> Self {
        let (rng, faults) = (Rng::new(seed), StoreFaults::NONE);
        let state = State { rng, faults, late, trace: Trace::default() };
        Self { objects: Arc::new(objects), state: Arc::new(Mutex::new(state)) }
    }

    /// The same once more, without faults. What is on its way arrives there, too.
    pub fn copy(&self) -> Self {
        let mut state = self.lock();
        let seed = state.rng.bits();
        Self::of(self.objects.fork(), seed, state.late.clone())
    }

    /// Lets these faults come from now on.
    pub fn set_faults(&self, change: impl FnOnce(&mut StoreFaults)) {
        change(&mut self.lock().faults);
    }

    /// A hash of every change in its order, and of what became of it.
    pub fn trace(&self) -> u64 {
        self.lock().trace.hash()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

/// A process's way to a store.
pub struct Connection {
    pub store: Store,
    pub executor: VirtualExecutor,
}

impl Connection {
    /// What becomes of a request, and what it takes.
    fn fate(&self, is_removal: bool) -> (Fate, Duration) {
        let mut state = self.store.lock();
        let State { rng, faults, .. } = &mut *state;
        let takes = Duration::from_micros(rng.between(20, faults.slowest));
        if faults.is_away {
            return (Fate::FailsBefore, takes);
        }
        if !rng.chance(faults.fail_per_mille) {
            return (Fate::Served, takes);
        }
        let fate = match rng.below(4) {
            0 => Fate::FailsBefore,
            1 => Fate::FailsAfter,
            2 if is_removal => Fate::Late,
            _ => Fate::Conflicts,
        };
        (fate, takes)
    }

    /// Half of the time of a request: its process may end before and after it is carried out.
    async fn on_its_way(&self, takes: Duration) {
        self.executor.sleep(takes / 2).await;
        self.arrive().await;
    }

    fn note(&self, what: &str, key: &Path, fate: Fate) {
        let now = u64::try_from(self.executor.monotonic().as_micros()).expect("a time");
        self.store.lock().trace.record(now, &(what, key.as_ref(), fate));
    }

    /// Carries out the removals that are due.
    async fn arrive(&self) {
        let now = self.executor.monotonic();
        let mut due = vec![];
        self.store.lock().late.retain(|(at, key)| {
            let is_due = *at <= now;
            due.extend(is_due.then(|| key.clone()));
            !is_due
        });
        for key in due {
            self.note("late removal", &key, Fate::Served);
            // It may be gone by now.
            drop(self.store.objects.delete(&key).await);
        }
    }

    /// A request that changes nothing.
    async fn look(&self) -> Result<()> {
        let (fate, takes) = self.fate(false);
        self.on_its_way(takes).await;
        self.executor.sleep(takes / 2).await;
        if fate == Fate::Served { Ok(()) } else { Err(passing("503 Slow Down")) }
    }

    async fn remove(&self, key: Path) -> Result<Path> {
        let (fate, takes) = self.fate(true);
        self.on_its_way(takes).await;
        self.note("delete", &key, fate);
        match fate {
            Fate::Served | Fate::FailsAfter => drop(self.store.objects.delete(&key).await),
            Fate::Late => {
                let mut state = self.store.lock();
                let delay = Duration::from_micros(state.rng.between(1_000, LATE_MAX));
                state.late.push((self.executor.monotonic() + delay, key.clone()));
            }
            Fate::FailsBefore | Fate::Conflicts => {}
        }
        self.executor.sleep(takes / 2).await;
        if fate == Fate::Served { Ok(key) } else { Err(passing("no answer to a removal")) }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated store")
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated store")
    }
}

#[async_trait]
impl ObjectStore for Connection {
    async fn put_opts(
        &self,
        key: &Path,
        body: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (fate, takes) = self.fate(false);
        let create = options.mode == PutMode::Create;
        self.on_its_way(takes).await;
        self.note("put", key, fate);
        let done = match fate {
            Fate::Served => self.store.objects.put_opts(key, body, options).await,
            Fate::FailsAfter => {
                let done = self.store.objects.put_opts(key, body, options).await;
                done.and(Err(passing("connection reset after")))
            }
            Fate::Conflicts if create => {
                let path = key.to_string();
                Err(Error::AlreadyExists { path, source: "409 Conflict".into() })
            }
            Fate::FailsBefore | Fate::Conflicts | Fate::Late => Err(passing("500 before")),
        };
        self.executor.sleep(takes / 2).await;
        done
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("a bucket puts whole objects")
    }

    async fn get_opts(&self, key: &Path, options: GetOptions) -> Result<GetResult> {
        self.look().await?;
        self.store.objects.get_opts(key, options).await
    }

    fn delete_stream(
        &self,
        keys: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let way = Self { store: self.store.clone(), executor: self.executor.clone() };
        let way = Arc::new(way);
        keys.then(move |key| {
            let way = Arc::clone(&way);
            async move { way.remove(key?).await }
        })
        .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fate(false).0 {
            Fate::Served => self.store.objects.list(prefix),
            _ => stream::iter([Err(passing("503 Slow Down"))]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("a bucket lists without")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("a bucket does not copy")
    }
}

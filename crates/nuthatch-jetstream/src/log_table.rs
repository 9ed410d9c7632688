//! The logs that are attached: each with its identity, its name and its queue. They come and go while
//! the server runs.

use crate::log_traffic::{Asked, LogTraffic};
use crate::registry::{is_memory_log, is_quorum_log};
use arc_swap::ArcSwap;
use nuthatch_log::LogHandle;
use nuthatch_server::jetstream_port::{LogId, LogSlot, Peer};
use nuthatch_streams::Event;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A log that is open here.
pub struct AttachedLog {
    /// Its identity.
    pub id: LogId,
    /// The number under which its engine's sink notes what it waits for.
    pub slot: LogSlot,
    /// Its name, by which placement tags choose it.
    pub name: String,
    /// Its queue.
    pub handle: LogHandle<Event<Peer>>,
    /// What clients ask of it, if several nodes keep it.
    pub(crate) traffic: Option<Arc<LogTraffic>>,
}

/// Why a log cannot be attached.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AttachError {
    /// It is there already, or another one is a copy of it.
    #[error(
        "the logs {one:?} and {other:?} have the same identity {id}: one is a copy of the other"
    )]
    SameIdentity {
        /// The one that is there.
        one: String,
        /// The one that is to be attached.
        other: String,
        /// Their identity.
        id: LogId,
    },
    /// Another log has its name.
    #[error("there is a log {name:?} already")]
    SameName {
        /// The name.
        name: String,
    },
    /// Its streams cannot be served.
    #[error("{0}")]
    Streams(String),
}

/// What is attached at one time.
#[derive(Default)]
struct Attached {
    /// In the order in which they came: the default log first.
    logs: Vec<Arc<AttachedLog>>,
    by_id: FxHashMap<LogId, Arc<AttachedLog>>,
    by_slot: FxHashMap<LogSlot, Arc<AttachedLog>>,
    slots: Arc<[LogSlot]>,
}

impl Attached {
    fn of(logs: Vec<Arc<AttachedLog>>) -> Self {
        let by_id = logs.iter().map(|log| (log.id, log.clone())).collect();
        let by_slot = logs.iter().map(|log| (log.slot, log.clone())).collect();
        let slots = logs.iter().map(|log| log.slot).collect();
        Self { logs, by_id, by_slot, slots }
    }
}

/// The attached logs of a server.
#[derive(Default)]
pub(crate) struct LogTable {
    attached: ArcSwap<Attached>,
    /// Held while logs come or go.
    changing: Mutex<()>,
    /// Those that other nodes are told of no more.
    withdrawn: Mutex<Vec<LogId>>,
    /// Those whose streams are not in the registry yet.
    loading: Mutex<Vec<LogId>>,
}

impl LogTable {
    /// The log with this identity, if it is here.
    #[inline]
    pub(crate) fn with<R>(&self, id: LogId, take: impl FnOnce(&AttachedLog) -> R) -> Option<R> {
        self.attached.load().by_id.get(&id).map(|log| take(log))
    }

    /// The log with this number, if it is here still.
    pub(crate) fn at(&self, slot: LogSlot) -> Option<Arc<AttachedLog>> {
        self.attached.load().by_slot.get(&slot).cloned()
    }

    /// The numbers of all.
    pub(crate) fn slots(&self) -> Arc<[LogSlot]> {
        self.attached.load().slots.clone()
    }

    /// All, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<AttachedLog>> {
        self.attached.load().logs.clone()
    }

    /// Adds a log, whose streams are loaded next: until [`loaded`](Self::loaded) says that they are there, nobody may
    /// take a stream for absent.
    ///
    /// # Errors
    /// [`AttachError`]: another one has its identity or name.
    pub(crate) fn attach(&self, log: AttachedLog) -> Result<(), AttachError> {
        let _one_at_a_time = self.changing.lock();
        let mut logs = self.all();
        for known in &logs {
            if known.id == log.id {
                let (one, other) = (known.name.clone(), log.name);
                return Err(AttachError::SameIdentity { one, other, id: log.id });
            }
            if known.name == log.name {
                return Err(AttachError::SameName { name: log.name });
            }
        }
        self.loading.lock().push(log.id);
        logs.push(Arc::new(log));
        self.attached.store(Arc::new(Attached::of(logs)));
        Ok(())
    }

    /// The streams of a log are in the registry now.
    pub(crate) fn loaded(&self, id: LogId) {
        self.loading.lock().retain(|loading| *loading != id);
    }

    /// The logs whose streams are in the registry.
    pub(crate) fn whole(&self) -> Vec<Arc<AttachedLog>> {
        // Read in this order, a log that comes meanwhile is not taken for loaded.
        let mut logs = self.all();
        let loading = self.loading.lock();
        logs.retain(|log| !loading.contains(&log.id));
        logs
    }

    /// Other nodes are told no more of a log that is here, until it is taken away.
    pub(crate) fn withdraw(&self, id: LogId) {
        self.withdrawn.lock().push(id);
    }

    /// The logs that other nodes are told of no more.
    pub(crate) fn withdrawn(&self) -> Vec<LogId> {
        self.withdrawn.lock().clone()
    }

    /// Takes a log away; `None`: it is not here.
    pub(crate) fn detach(&self, id: LogId) -> Option<Arc<AttachedLog>> {
        let _one_at_a_time = self.changing.lock();
        let mut logs = self.all();
        let place = logs.iter().position(|log| log.id == id)?;
        let gone = logs.remove(place);
        self.withdrawn.lock().retain(|withdrawn| *withdrawn != id);
        self.loaded(id);
        self.attached.store(Arc::new(Attached::of(logs)));
        Some(gone)
    }
}

impl AttachedLog {
    /// A log of which nothing was asked yet.
    pub(crate) fn new(
        id: LogId,
        slot: LogSlot,
        name: String,
        handle: LogHandle<Event<Peer>>,
    ) -> Self {
        let traffic = is_quorum_log(&name).then(Arc::default);
        Self { id, slot, name, handle, traffic }
    }

    /// What clients asked of it so far; of a log of just this node nothing is counted.
    pub(crate) fn asked(&self) -> Asked {
        self.traffic.as_ref().map(|traffic| traffic.asked()).unwrap_or_default()
    }

    /// True if it is in memory.
    pub(crate) fn is_memory(&self) -> bool {
        is_memory_log(&self.name)
    }
}

//! Quorum logs of a node: each is opened when this node comes to own it, served beside the others, and closed when it is
//! another node's.

use crate::banner;
use crate::begun_anew;
use crate::durable_logs::quorum_log;
use crate::handle::JetStreamHandle;
use crate::log_loads::{LOOK_EVERY, LogLoads};
use crate::log_table::AttachedLog;
use crate::standbys::Standbys;
use nuthatch_log::LogHandle;
use nuthatch_object::TieredDisk;
use nuthatch_server::jetstream_port::{BoxFuture, JetStreamPort as _, LogId, LogSlot, Peer};
use nuthatch_server::logs::{LogNumber, QUORUM_MEMORY_LOG};
use nuthatch_server::process::{OnLost, QuorumLogs};
use nuthatch_server::server::Server;
use nuthatch_streams::{EndOfPulls, Event};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A log gets so long to tell the pull requests that wait.
const PULLS_MAX: Duration = Duration::from_millis(500);

/// How long failures of a bucket are retried while its log is closed.
const CLOSING_RETRY_FOR: Duration = Duration::from_secs(3);

/// Opens quorum logs and serves them.
pub(super) struct OwnedLogs {
    server: Weak<Server>,
    jetstream: Arc<JetStreamHandle>,
    /// Those that are served, by number.
    open: Mutex<BTreeMap<u8, Open>>,
    standbys: Arc<Standbys>,
}

/// A log that is open.
struct Open {
    id: LogId,
    slot: LogSlot,
    name: String,
    handle: LogHandle<Event<Peer>>,
    tier: Option<Arc<TieredDisk>>,
}

impl Open {
    /// Closes the log; it is served no more.
    async fn close(self, server: &Weak<Server>) -> Result<(), String> {
        let Self { name, handle, tier, .. } = self;
        if let Some(server) = server.upgrade() {
            // Whoever is to own the log next waits for this, and finds what is stored without it.
            let buckets = server.logs.buckets();
            let its = buckets.iter().filter(|(log, _)| *log == name && tier.is_none());
            its.for_each(|(_, bucket)| bucket.set_retry_for(CLOSING_RETRY_FOR));
        }
        let closed = tokio::task::spawn_blocking(move || handle.close()).await;
        if let Some(tier) = tier {
            tier.stop();
        }
        if let Some(server) = server.upgrade() {
            server.logs.remove(&name);
        }
        closed.map_err(|panic| panic.to_string())?.map_err(|error| error.to_string())
    }
}

impl OwnedLogs {
    /// For this server's service.
    pub(super) fn new(server: &Arc<Server>, jetstream: &Arc<JetStreamHandle>) -> Self {
        let (open, standbys) = (Mutex::default(), Standbys::new(server));
        jetstream.set_followed(standbys.clone());
        let weak = Arc::downgrade(server);
        let loads = Arc::downgrade(&jetstream.service().loads);
        tokio::spawn(tell_loads(weak.clone(), loads));
        Self { server: weak, jetstream: jetstream.clone(), open, standbys }
    }

    async fn serve(&self, number: u8, lost: OnLost) -> Result<Vec<String>, String> {
        let server = self.server.upgrade().ok_or("the server is gone")?;
        let options = server.options();
        let cluster = server.cluster.get().ok_or("the cluster is not found yet")?;
        let quorum = cluster.logs()[usize::from(number)].clone();
        let (home, log) = (quorum_log(&options, &quorum), quorum.clone());
        let (name, slot) = (home.name.clone(), home.slot);
        let standbys = self.standbys.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let _context = Handle::current().enter();
            let standby = || standbys.take(number, (&server, &options));
            let taken = home.take_owned(&server, &options, (&log, lost), standby);
            taken.inspect_err(|_| server.logs.remove(&home.name))
        });
        let ((core, report), tier) = opening.await.map_err(|panic| panic.to_string())??;
        let id = LogId(core.log_id());
        let spawned = core.spawn(&format!("log-{name}")).map_err(|error| error.to_string());
        let handle = spawned.inspect_err(|_| self.forget(&name))?;
        if quorum.is_in_memory() {
            self.restore(&handle, report.epoch.0).await;
        }
        let log = AttachedLog::new(id, slot, name.clone(), handle.clone());
        let open = Open { id, slot, name: name.clone(), handle, tier };
        // Infos say so from the first one on.
        self.jetstream.service().replicas.leads(id);
        match self.jetstream.attach(log).await {
            Ok(streams) => {
                self.open.lock().insert(number, open);
                let elections = self.jetstream.service().elections.clone();
                tokio::spawn(async move { elections.log_led(id).await });
                Ok(banner::recovered(&[(name, report)], streams))
            }
            Err(why) => {
                let also = open.close(&self.server).await.err();
                let also = also.map(|error| format!("; closing it: {error}")).unwrap_or_default();
                Err(format!("log {name}: {why}{also}"))
            }
        }
    }

    /// A log that is not open is none of the server's.
    fn forget(&self, name: &str) {
        if let Some(server) = self.server.upgrade() {
            server.logs.remove(name);
        }
    }

    /// Where the log has begun anew its streams are there again.
    async fn restore(&self, handle: &LogHandle<Event<Peer>>, epoch: u32) {
        let Some(server) = self.server.upgrade() else { return };
        let Some(restored) = begun_anew::restore(&server, handle, epoch).await else { return };
        let count = restored.count;
        server.log.warn(format_args!(
            "Log {QUORUM_MEMORY_LOG} has begun anew: THE MESSAGES OF {count} STREAMS ARE LOST. The streams are there again, \
             without messages and consumers, above every sequence that they gave out"
        ));
        if let Some((name, why)) = restored.failed {
            server.log.error(format_args!(
                "Log {QUORUM_MEMORY_LOG} has begun anew: stream {name:?}, and perhaps others, did not come back: {why}"
            ));
        }
    }

    fn withdraw(&self, number: u8) {
        if let Some(open) = self.open.lock().get(&number) {
            self.jetstream.withdraw(open.id);
        }
    }

    async fn leave(&self, number: u8) -> Result<(), String> {
        let Some(open) = self.open.lock().remove(&number) else { return Ok(()) };
        self.jetstream.service().moves.table.given_up(&open.name).await;
        self.end_pulls(open.slot).await;
        let elections = self.jetstream.service().elections.clone();
        let left = elections.leaving(open.id);
        self.jetstream.tell_leaving(open.id, &open.name);
        self.jetstream.detach(open.id);
        tokio::spawn(async move { elections.log_left(left).await });
        open.close(&self.server).await
    }

    /// Ends the pull requests that wait: their clients ask again, at the next owner.
    async fn end_pulls(&self, slot: LogSlot) {
        let (told, mut all_told) = mpsc::channel::<()>(1);
        // The event holds it until it is done, or dropped by a log that takes nothing.
        let end =
            Event::EndPulls { why: EndOfPulls::OwnerChanges, told: Box::new(move || drop(told)) };
        if self.jetstream.notify(slot, end).is_ok() {
            let _ = timeout(PULLS_MAX, all_told.recv()).await;
        }
    }
}

/// Tells balance what clients ask of the logs, for as long as there is a server, which it does not keep.
async fn tell_loads(server: Weak<Server>, loads: Weak<LogLoads>) {
    loop {
        sleep(LOOK_EVERY).await;
        let Some(options) = server.upgrade().map(|server| server.options()) else { return };
        let Some(cluster) = server.upgrade().and_then(|server| server.cluster.get().cloned())
        else {
            continue;
        };
        let (Some(node), Some(loads)) = (options.cluster.as_ref(), loads.upgrade()) else { return };
        let numbers: BTreeMap<String, LogNumber> =
            cluster.logs().iter().map(|log| (log.name(), log.number())).collect();
        // Others may take seconds to answer.
        let known = Arc::downgrade(&cluster);
        drop(cluster);
        let told = loads.loads(&node.name, |name| numbers.get(name).copied()).await;
        if let Some(cluster) = known.upgrade() {
            cluster.set_loads(told);
        }
    }
}

impl QuorumLogs for OwnedLogs {
    fn follow(&self, number: u8) {
        let server = self.server.upgrade();
        let cluster = server.as_ref().and_then(|server| server.cluster.get());
        if let Some(log) = cluster.and_then(|cluster| cluster.logs().get(usize::from(number))) {
            self.standbys.follow(Arc::clone(log));
        }
    }

    fn serve(&self, number: u8, lost: OnLost) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(Self::serve(self, number, lost))
    }

    fn has_stopped(&self, number: u8) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.handle.stats().failed != 0)
    }

    fn withdraw(&self, number: u8) {
        Self::withdraw(self, number);
    }

    fn leave(&self, number: u8) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(Self::leave(self, number))
    }
}

//! The engines' queues, as the service and connections send to them.

use crate::log_table::{AttachedLog, LogTable};
use crate::log_traffic::Asked;
use crate::logs_port::{LogsPort, NotTaken};
use nuthatch_log::LogHandle;
use nuthatch_log::SendError as QueueError;
use nuthatch_server::jetstream_port::{BoxFuture, JsHealth, JsLog, LogId, Peer, StreamRoute};
use nuthatch_streams::{Event, HandOff, Op, OpResult, Respond};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use tokio::sync::oneshot;

/// Weight of an event in a queue beyond the bytes it carries.
pub(crate) const EVENT_BASE_BYTES: usize = 128;

/// The queues of the attached logs.
#[derive(Default)]
pub struct Engines {
    pub(crate) logs: LogTable,
    /// Why JetStream does not work any more.
    broken: Mutex<Option<String>>,
    /// Opens logs of just this node.
    local: OnceLock<OpenLocal>,
}

/// Opens the log of just this node, or finds it open; one that is named is closed first.
pub(crate) type OpenLocal =
    Box<dyn Fn(Option<LogId>) -> BoxFuture<'static, Result<LogId, String>> + Send + Sync>;

impl Engines {
    /// The queue of a log.
    pub(crate) fn handle(&self, log: LogId) -> Option<LogHandle<Event<Peer>>> {
        self.logs.with(log, |log| log.handle.clone())
    }

    /// Says how logs of just this node are opened, once.
    pub(crate) fn open_local_by(&self, open: OpenLocal) {
        let _ = self.local.set(open);
    }

    /// Notes why JetStream does not work any more; shown by the health check.
    pub fn mark_broken(&self, reason: &str) {
        self.broken.lock().get_or_insert_with(|| reason.to_owned());
    }
}

impl LogsPort for Engines {
    fn submit(&self, engine: LogId, op: Op, respond: Respond) -> Result<(), NotTaken> {
        let handle = self.handle(engine).ok_or(NotTaken::Closed)?;
        // Calls are few and bounded: they do not wait behind publishes.
        let weight = EVENT_BASE_BYTES + op.weight_bytes();
        let sent = handle.send_privileged(Event::Op(op, respond), weight);
        sent.map_err(|refused| match refused {
            QueueError::Busy(_) | QueueError::Stale(_) => NotTaken::Busy,
            QueueError::Closed(_) => NotTaken::Closed,
        })
    }

    fn switch(&self, from: StreamRoute, to: StreamRoute, seen: u64) -> oneshot::Receiver<OpResult> {
        let (sender, receiver) = oneshot::channel();
        let (Some(old), Some(new)) = (self.handle(from.log), self.handle(to.log)) else {
            return receiver;
        };
        let forgotten = Box::new(move |result| {
            // No caller is left when the server stops.
            let _ = sender.send(result);
        });
        old.set_gate(seen);
        let respond = Box::new(move |hand_off: Option<HandOff>| {
            if let Some(hand_off) = hand_off {
                // A closed log is found as it is by the next start.
                let _ =
                    new.send_anyway(Event::Install { id: to.stream, hand_off }, EVENT_BASE_BYTES);
            }
        });
        // As above.
        let depart = Event::Depart { id: from.stream, respond, forgotten };
        let _ = old.send_anyway(depart, EVENT_BASE_BYTES);
        receiver
    }

    fn attached(&self) -> Vec<(String, LogId)> {
        self.logs.all().iter().map(|log| (log.name.clone(), log.id)).collect()
    }

    fn whole(&self) -> Vec<String> {
        self.logs.whole().iter().map(|log| log.name.clone()).collect()
    }

    fn is_attached(&self, log: LogId) -> bool {
        self.logs.with(log, |_| ()).is_some()
    }

    fn local_log(&self) -> BoxFuture<'_, Result<LogId, String>> {
        match self.local.get() {
            Some(open) => open(None),
            None => Box::pin(async { Err("this server is no node of a cluster".to_owned()) }),
        }
    }

    fn is_withdrawn(&self, log: LogId) -> bool {
        self.logs.withdrawn().contains(&log)
    }

    fn reopen(&self, log: LogId) -> BoxFuture<'_, Result<(), String>> {
        match self.local.get() {
            Some(open) => Box::pin(async move { open(Some(log)).await.map(drop) }),
            None => Box::pin(async { Err("this server is no node of a cluster".to_owned()) }),
        }
    }

    fn logs(&self) -> Vec<JsLog> {
        let describe = |log: &Arc<AttachedLog>| {
            let Asked { own, others } = log.asked();
            JsLog {
                name: log.name.clone(),
                stats: log.handle.stats(),
                asked_here: own,
                asked_elsewhere: others,
            }
        };
        self.logs.all().iter().map(describe).collect()
    }

    fn asked(&self) -> Vec<(String, LogId, Asked)> {
        let all = self.logs.all().into_iter();
        all.map(|log| (log.name.clone(), log.id, log.asked())).collect()
    }

    fn health(&self) -> JsHealth {
        if let Some(reason) = &*self.broken.lock() {
            return JsHealth::Broken(reason.clone());
        }
        match self.logs.all().iter().find(|log| log.handle.stats().failed != 0) {
            Some(log) => JsHealth::Broken(format!(
                "log {} has failed and takes no writes until a restart; its log lines say why",
                log.name
            )),
            None => JsHealth::Ok,
        }
    }
}

//! Quorum logs of a node: each is opened when this node comes to own it, and served beside the others.

use crate::banner;
use crate::durable_logs::{Opened, Ready, quorum_log};
use crate::handle::JetStreamHandle;
use crate::log_table::AttachedLog;
use nuthatch_server::jetstream_port::{BoxFuture, LogId};
use nuthatch_server::process::QuorumLogs;
use nuthatch_server::server::Server;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// Opens quorum logs and serves them.
pub(super) struct OwnedLogs {
    server: Weak<Server>,
    jetstream: Arc<JetStreamHandle>,
}

impl OwnedLogs {
    /// For this server's service.
    pub(super) fn new(server: &Arc<Server>, jetstream: &Arc<JetStreamHandle>) -> Self {
        Self { server: Arc::downgrade(server), jetstream: jetstream.clone() }
    }

    async fn serve(&self, number: u8) -> Result<Vec<String>, String> {
        let server = self.server.upgrade().ok_or("the server is gone")?;
        let options = server.options();
        let home = quorum_log(&options, number);
        let (name, slot) = (home.name.clone(), home.slot);
        let opening = tokio::task::spawn_blocking(move || {
            let _context = Handle::current().enter();
            home.take(Ready::Quorum, &server, &options)
        });
        let opened: Opened = opening.await.map_err(|panic| panic.to_string())??;
        let (core, report) = opened;
        let id = LogId(core.log_id());
        let handle = core.spawn(&format!("log-{name}")).map_err(|error| error.to_string())?;
        let log = AttachedLog { id, slot, name: name.clone(), handle: handle.clone() };
        match self.jetstream.attach(log).await {
            Ok(streams) => Ok(banner::recovered(&[(name, report)], streams)),
            Err(why) => {
                let closed = tokio::task::spawn_blocking(move || handle.close()).await;
                let closed = closed.map_err(|panic| panic.to_string())?;
                let also = closed.err().map(|error| format!("; closing it: {error}"));
                Err(format!("log {name}: {why}{}", also.unwrap_or_default()))
            }
        }
    }
}

impl QuorumLogs for OwnedLogs {
    fn serve(&self, number: u8) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(Self::serve(self, number))
    }
}

//! Snapshots and restores that are under way: how many there may be, and who hears of them.

use crate::audit::{self, ServerIdentity};
use crate::core_port::CorePort;
use crate::stream_table::StreamTable;
use nuthatch_server::jetstream_port::Requester;
use nuthatch_server::shares::Shares;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::watch;

/// Bytes of consumers that snapshots and restores keep in memory, over all accounts.
pub const TRANSFER_BYTES_MAX: usize = 512 << 20;
/// Those of one account.
pub const TRANSFER_BYTES_OF_ACCOUNT_MAX: usize = 256 << 20;

/// Snapshots under way at once, over all accounts. Each takes a few MiB.
pub const SNAPSHOTS_MAX: usize = 64;
/// Snapshots of one account under way at once.
pub const SNAPSHOTS_OF_ACCOUNT_MAX: usize = 16;
/// Restores under way at once, over all accounts. Each has a thread and a few MiB.
pub const RESTORES_MAX: usize = 16;
/// Restores of one account under way at once: one that begins many and sends nothing leaves room for
/// others.
pub const RESTORES_OF_ACCOUNT_MAX: usize = 4;

/// What snapshots and restores share.
pub(super) struct Transfers {
    pub(super) core: Arc<dyn CorePort>,
    streams: Arc<StreamTable>,
    /// JetStream domain, empty if none.
    domain: String,
    /// Snapshots under way.
    pub(super) snapshots: Arc<Shares>,
    /// Restores under way.
    pub(super) restores: Arc<Shares>,
    /// Bytes that they keep in memory for longer than a batch.
    pub(super) bytes: Arc<Shares>,
    /// True once the server goes down: who waits for a client gives up.
    stopping: watch::Sender<bool>,
}

impl Transfers {
    pub(super) fn new(core: Arc<dyn CorePort>, streams: Arc<StreamTable>, domain: &str) -> Self {
        Self {
            core,
            streams,
            domain: domain.to_owned(),
            snapshots: Shares::new(SNAPSHOTS_MAX, SNAPSHOTS_OF_ACCOUNT_MAX),
            restores: Shares::new(RESTORES_MAX, RESTORES_OF_ACCOUNT_MAX),
            bytes: Shares::new(TRANSFER_BYTES_MAX, TRANSFER_BYTES_OF_ACCOUNT_MAX),
            stopping: watch::Sender::new(false),
        }
    }

    /// The server goes down.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Whether the server goes down, and when it does.
    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Description of this server in advisories.
    fn place(&self) -> ServerIdentity<'_> {
        ServerIdentity {
            server: self.core.server_name(),
            domain: &self.domain,
            now: self.core.now(),
        }
    }

    /// Tells of a snapshot or a restore, if anybody wants to know.
    pub(super) fn tell(
        &self,
        from: &Requester,
        what: &str,
        stream: &str,
        fields: Map<String, Value>,
    ) {
        let told = audit::Transfer { from, what, stream, fields };
        audit::tell_transfer(told, &self.place(), &*self.core, &self.streams);
    }
}

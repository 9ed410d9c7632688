//! Producers that wait for those who take too little of what they send.

use super::ConnReader;
use crate::outlet::Outlet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How long a producer is slowed down for a slow consumer after one socket read.
const STALL: Duration = Duration::from_millis(5);
/// How long a producer waits for a node of the cluster for which too much waits. Either it takes some of that in time or
/// its connection ends.
const NODE_WAIT_MAX: Duration = Duration::from_secs(10);

impl ConnReader {
    /// Waits after a turn, if anybody has to be waited for. What slow clients here do not take holds up no node, and so
    /// nobody else's messages.
    pub(super) async fn slow_down(&mut self, stalled: bool) {
        if self.conn.is_node() {
            return;
        }
        match self.full_node.take() {
            Some(outlet) => self.wait_for_node(&outlet).await,
            None if stalled => self.stall().await,
            None => {}
        }
    }

    /// Waits until another node has taken much of what waits for it, or is gone.
    async fn wait_for_node(&self, outlet: &Outlet) {
        self.conn.stalls.fetch_add(1, Ordering::Relaxed);
        self.server.stalled_clients.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + NODE_WAIT_MAX;
        while outlet.has_much() && self.conn.is_open() && Instant::now() < deadline {
            tokio::time::sleep(STALL).await;
        }
    }

    async fn stall(&self) {
        if self.server.options().limits.no_fast_producer_stall {
            return;
        }
        self.conn.stalls.fetch_add(1, Ordering::Relaxed);
        self.server.stalled_clients.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(STALL).await;
    }
}

//! A clean stop: clients are closed, then the logs.

use super::RunError;
use crate::close_reason::CloseReason;
use crate::server::Server;
use crate::system::events;
use nuthatch_streams::{EndOfPulls, Event};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// Connections get so long to write what they still have.
const CONNECTIONS_MAX: Duration = Duration::from_secs(2);

/// Logs get so long to tell the pull requests that wait.
const PULLS_MAX: Duration = Duration::from_millis(500);

/// API requests get so long to be answered.
const REQUESTS_MAX: Duration = Duration::from_secs(2);

/// So long is each request to a bucket repeated that does not answer: what was not acknowledged by
/// then never is.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stops everything in order.
///
/// # Errors
/// [`RunError::Shutdown`]: everything has stopped, but a log did not close cleanly.
pub(super) async fn shutdown(server: &Arc<Server>) -> Result<(), RunError> {
    server.log.info(format_args!("Initiating Shutdown..."));
    server.stopping.store(true, Ordering::Relaxed);
    events::shutdown(server);
    end_pulls(server).await;
    // What they ask for may be done: then who has asked is told so, at another node, too.
    let _ = timeout(REQUESTS_MAX, server.jetstream().end_requests()).await;
    let tables = [&server.connections, &server.leafs.connections, &server.nodes.connections];
    for conn in tables.iter().flat_map(|table| table.open()) {
        conn.close(CloseReason::ServerShutdown, None);
    }
    let deadline = Instant::now() + CONNECTIONS_MAX;
    let is_open = || tables.iter().any(|table| !table.is_empty());
    while is_open() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
    let mut result = Ok(());
    if server.options().has_jetstream() {
        server.log.info(format_args!("Initiating JetStream Shutdown..."));
        for (_, bucket) in &*server.logs.buckets() {
            bucket.set_retry_for(STORE_TIMEOUT);
        }
        let stopping = server.clone();
        let stopped = tokio::task::spawn_blocking(move || stopping.jetstream().stop()).await;
        result = stopped.unwrap_or_else(|panic| Err(panic.to_string()));
        match &result {
            Ok(()) => server.log.info(format_args!("JetStream Shutdown")),
            Err(error) => server.log.error(format_args!("JetStream Shutdown failed: {error}")),
        }
    }
    server.log.info(format_args!("Server Exiting.."));
    result.map_err(RunError::Shutdown)
}

/// Tells the pull requests that wait that nothing comes any more: a client without heartbeats would wait
/// for ever. A log that does not answer keeps the stop waiting for [`PULLS_MAX`] only.
async fn end_pulls(server: &Server) {
    let (told, mut all_told) = mpsc::channel::<()>(1);
    let jetstream = server.jetstream();
    for slot in jetstream.slots().iter() {
        // The event holds it until it is done, or dropped by a log that takes nothing.
        let told = told.clone();
        let end =
            Event::EndPulls { why: EndOfPulls::ServerStops, told: Box::new(move || drop(told)) };
        let _ = jetstream.notify(*slot, end);
    }
    drop(told);
    let _ = timeout(PULLS_MAX, all_told.recv()).await;
}

//! The tasks of leaf nodes: accepting them, connecting to the configured remotes, telling both of streams.

use crate::server::Server;
use std::sync::Arc;
use tokio::net::TcpListener;

pub mod accept;
mod dial;
mod proxy;
pub(crate) mod tls;

/// Accepts leaf nodes, connects to the configured remotes, and keeps both informed of streams, until
/// it is dropped or the server stops. Call it once JetStream has started.
pub async fn serve(server: Arc<Server>, listener: Option<TcpListener>) {
    let options = server.options();
    let Some(leafs) = &options.leafnodes else { return };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(keep_advertising(server.clone()));
    for (number, remote) in leafs.remotes.iter().enumerate().filter(|(_, r)| !r.disabled) {
        tasks.spawn(dial::keep(server.clone(), number, remote.clone()));
    }
    if let Some(listener) = listener {
        tasks.spawn(accept::run(server.clone(), listener));
    }
    while tasks.join_next().await.is_some() {}
}

/// Tells leaf nodes of streams that come and go.
async fn keep_advertising(server: Arc<Server>) {
    let Some(mut changes) = server.jetstream().changes() else { return };
    while changes.changed().await.is_ok() {
        changes.mark_unchanged();
        server.advertise_all();
    }
}

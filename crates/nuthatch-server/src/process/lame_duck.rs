//! Lame duck mode: no new clients, and the present ones leave one after the other.

use crate::close_reason::CloseReason;
use crate::leaf::hello::NodeInfo;
use crate::server::Server;
use crate::system::events;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest pause between two clients.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Tells the clients, waits, and closes them. Returns when none is left.
pub(super) async fn run(server: Arc<Server>) {
    server.log.info(format_args!("Entering lame duck mode, stop accepting new clients"));
    server.lame_duck.store(true, Ordering::Relaxed);
    events::lame_duck(&server);
    for node in server.nodes.connections.open() {
        node.send(&NodeInfo::leaving().encode());
    }
    let clients = server.connections.open();
    if clients.is_empty() {
        return;
    }
    let info = server.info();
    for conn in &clients {
        if conn.session().protocol >= 1 {
            conn.send(&server.info_for(info.clone(), conn, "").encode());
        }
    }
    let options = server.options();
    let grace = options.lame_duck_grace_period;
    tokio::time::sleep(grace).await;
    server.log.info(format_args!("Closing existing clients"));
    let time = options.lame_duck_duration.saturating_sub(grace).max(PAUSE_MAX);
    let clients = server.connections.open();
    let pause = (time / clients.len().max(1) as u32).min(PAUSE_MAX);
    for conn in clients {
        conn.close(CloseReason::ServerShutdown, None);
        tokio::time::sleep(pause).await;
    }
}

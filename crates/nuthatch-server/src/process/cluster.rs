//! A server that is a node of a quorum log: it keeps the log, and serves clients while it owns it.

use super::RunError;
use super::client_relay::ClientRelay;
use crate::private_files::{OUR_DIRECTORY, close_directory};
use crate::server::Server;
use nuthatch_cluster::{ClientAddress, Cluster, ClusterConfig, ClusterKey};
use nuthatch_log::Reporter;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

/// The keeper's directory, in ours of the store.
const KEEPER_DIR: &str = "quorum";

/// A node that starts anew waits so long first, so that one that always fails does not take all of a
/// processor.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Starts the node, if this server is one, and waits until it owns the log. Until then no client is
/// listened to (one with the addresses of all nodes finds the owner), or they are relayed to the owner; then the
/// listener is given back.
///
/// # Errors
/// Why the node does not start, or that the client port cannot be listened on.
pub(super) async fn own_log(server: &Arc<Server>) -> Result<Option<TcpListener>, RunError> {
    let options = server.options();
    let Some(settings) = &options.cluster else { return Ok(None) };
    let starting = server.clone();
    let cluster = blocking(move || start(&starting)).await?;
    let waiting = server.clone();
    let owned = blocking(move || wait_owned(&waiting));
    if !settings.relay_clients {
        return owned.await.map(|()| None);
    }
    let relay = ClientRelay::listen(server, &cluster).await?;
    let (owned, listener) = relay.until(owned).await;
    owned.map(|()| Some(listener))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, RunError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(panic.to_string())).map_err(RunError::Cluster)
}

/// The server takes clients from now on: other nodes that ask are told where.
pub(super) fn take_clients(server: &Server) {
    let Some(cluster) = server.cluster.get() else { return };
    cluster.tell_takeover();
    // Not what is advertised: behind that there may be a balancer, which would lead back to the node that relays.
    let (options, port) = (server.options(), server.client_port.load(Ordering::Relaxed));
    match ClientAddress::new(&options.host, port) {
        Some(address) => cluster.take_clients(address),
        None => server.log.error(format_args!(
            "Other nodes do not relay clients here: the host is longer than names are"
        )),
    }
}

fn start(server: &Arc<Server>) -> Result<Arc<Cluster>, String> {
    let options = server.options();
    let settings = options.cluster.as_ref().expect("it is a node");
    let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
    let config = ClusterConfig {
        name: settings.name.clone(),
        listen: settings.listen,
        routes: settings.routes.clone(),
        catalog: settings.catalog.clone(),
        dir: ours.join(KEEPER_DIR),
        key: settings.key.as_deref().map(read_key).transpose()?,
    };
    nuthatch_log::env::create_dirs(&ours)
        .and_then(|()| close_directory(&ours))
        .map_err(|error| format!("using {}: {error}", ours.display()))?;
    let reporting = Arc::downgrade(server);
    let report = Reporter::new(move |message| {
        if let Some(server) = reporting.upgrade() {
            server.log.warn(format_args!("Cluster: {message}"));
        }
    });
    let cluster = Cluster::start(&config, report).map_err(|error| error.to_string())?;
    let (name, listen) = (&settings.name, settings.listen);
    server.log.info(format_args!(
        "Node {name} keeps the quorum log (node port {listen}); the node that owns it serves clients"
    ));
    Ok(Arc::clone(server.cluster.get_or_init(|| cluster)))
}

fn wait_owned(server: &Server) -> Result<(), String> {
    let cluster = server.cluster.get().expect("it was started");
    let epoch = cluster.wait_owned().map_err(|error| error.to_string())?;
    let options = server.options();
    let name = &options.cluster.as_ref().expect("it is a node").name;
    server.log.info(format_args!("Node {name} owns the quorum log (epoch {})", epoch.0));
    Ok(())
}

/// True if this is a node that owned the log and does not any more, or whose disk has failed.
pub(super) fn has_lost(server: &Server) -> bool {
    server.cluster.get().is_some_and(|cluster| cluster.has_lost())
}

/// True if another node may own the log that this one owned.
pub(super) fn is_elsewhere(server: &Server) -> bool {
    server.cluster.get().is_some_and(|cluster| cluster.was_replaced())
}

/// After a clean stop the log goes to another node.
pub(super) async fn hand_over(server: &Arc<Server>) {
    if let Some(cluster) = server.cluster.get().cloned() {
        // It cannot panic, and a stop goes on whatever comes of it.
        let _ = tokio::task::spawn_blocking(move || cluster.hand_over()).await;
    }
}

/// Replaces this process by a new one with the same arguments: a node whose ownership has ended goes on
/// as a keeper. Returns only if that fails.
pub(super) fn restart() -> std::io::Error {
    std::thread::sleep(RESTART_PAUSE);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    std::process::Command::new(program).args(std::env::args_os().skip(1)).exec()
}

/// Reads the cluster's key from a file that nobody but its user can read.
fn read_key(path: &Path) -> Result<ClusterKey, String> {
    let at = path.display();
    let failed = |error: std::io::Error| format!("-cluster_key {at}: {error}");
    let mode = std::fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "-cluster_key {at}: others may read it (mode {mode:03o}): chmod 600 {at}"
        ));
    }
    let secret = std::fs::read(path).map_err(failed)?;
    ClusterKey::new(&secret).map_err(|error| format!("-cluster_key {at}: {error}"))
}

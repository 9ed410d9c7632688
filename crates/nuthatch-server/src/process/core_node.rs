//! A server that is a node of a cluster without JetStream: it keeps no log, and its clients have the JetStream of the other
//! nodes. The service runs here, too, without logs: it hands calls on, and puts lists together.

use super::{RunError, StartJetStream, attach_jetstream, cluster};
use crate::node_service;
use crate::server::Server;
use nuthatch_cluster::CoreNode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinSet;

/// Is a node until it ends.
pub(super) async fn be(
    server: &Arc<Server>,
    core: Arc<CoreNode>,
    start_jetstream: StartJetStream,
) -> Result<(), RunError> {
    let options = server.options();
    let settings = options.cluster.as_ref().expect("it is a node of a cluster");
    let (name, listen) = (settings.name.clone(), settings.listen);
    let id = node_service::ask::until_found(server, &core, &name).await;
    cluster::name_cluster(server, id);
    let cluster_name = server.nodes.cluster().unwrap_or_default();
    server.log.info(format_args!(
        "Node {name} has no JetStream of its own: its clients have that of cluster {cluster_name} (node port {listen})"
    ));
    let _ = server.core_node.set(core.clone());
    // Before other nodes are connected: what they ask is answered.
    attach_jetstream(server, start_jetstream).await?;
    if server.stopping.load(Ordering::Relaxed) {
        let stopping = server.clone();
        return cluster::blocking(move || stopping.jetstream().stop()).await;
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(node_service::keep_advertising(server.clone()));
    tasks.spawn(node_service::ask::keep(server.clone(), core.clone(), name.clone()));
    tasks.spawn(node_service::serve(server.clone(), core, name));
    // None of them ends by itself but where the service has stopped.
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|panic| RunError::Cluster(panic.to_string()))?;
    }
    Ok(())
}

//! A server that is a node of a cluster without JetStream: it keeps no log, and its clients have the JetStream of the other
//! nodes. The service runs here, too, without logs: it hands calls on, and puts lists together.

use super::{RunError, StartJetStream, attach_jetstream, cluster};
use crate::node_service;
use crate::options::{ClusterSettings, Options};
use crate::server::Server;
use nuthatch_cluster::{BUILT_IN, CoreNode, LEASE, Protocol};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Between two looks whether the node ends.
const END_LOOK: Duration = Duration::from_millis(50);

/// Is a node until it ends.
pub(super) async fn be(
    server: &Arc<Server>,
    core: Arc<CoreNode>,
    start_jetstream: StartJetStream,
) -> Result<(), RunError> {
    let life = core.life();
    let ended = async {
        while !life.is_ending() {
            sleep(END_LOOK).await;
        }
    };
    tokio::select! {
        been = run(server, core, start_jetstream) => been,
        () = ended => Ok(()),
    }
}

async fn run(
    server: &Arc<Server>,
    core: Arc<CoreNode>,
    start_jetstream: StartJetStream,
) -> Result<(), RunError> {
    let options = server.options();
    let settings = options.cluster.as_ref().expect("it is a node of a cluster");
    let (name, listen) = (settings.name.clone(), settings.listen);
    tell_without_effect(server, &options);
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

/// Says which settings of a node count for nothing at one that keeps no logs.
fn tell_without_effect(server: &Server, options: &Options) {
    let Some(settings) = &options.cluster else { return };
    let without = without_effect(settings, options);
    if !without.is_empty() {
        server.log.warn(format_args!(
            "Cluster: this node keeps no logs, so that these count for nothing here: {}",
            without.join(", ")
        ));
    }
}

fn without_effect(settings: &ClusterSettings, options: &Options) -> Vec<&'static str> {
    let jetstream = &options.jetstream;
    let all = [
        ("catalog", settings.catalog != BUILT_IN),
        ("logs_per_node", settings.logs_per_node != 1),
        ("replace_after", settings.replace_after.is_some()),
        ("lease", settings.lease != LEASE),
        ("zone", settings.zone.is_some()),
        ("owner_zones", !settings.owner_zones.is_empty()),
        ("standby_memory", settings.standby_bytes.is_some()),
        ("protocol_max", settings.protocol_max != Protocol::NEWEST),
        ("store", jetstream.store.is_some()),
        ("tier", jetstream.tier.is_some()),
        ("cache", jetstream.cache.is_some()),
        ("key", jetstream.keys.current.is_some()),
        ("logs", !jetstream.logs.is_empty()),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
}

//! A server that is a node of a cluster: it keeps the quorum log, and takes clients all the time. While it owns the log
//! the JetStream of the cluster is here; what clients at other nodes ask of it comes from those.

use super::{RunError, StartJetStream, attach_jetstream, core_node, quorum_logs};
use crate::logs::{QUORUM_MEMORY_LOG, keeper_memory_bytes};
use crate::node_service;
use crate::options::Options;
use crate::private_files::{OUR_DIRECTORY, close_directory};
use crate::server::Server;
use nuthatch_cluster::{
    BUILT_IN, Cluster, ClusterConfig, ClusterKey, CoreNode, KeyNames, Life, Logs, Prepared,
};
use nuthatch_log::{KeyId, Reporter};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

/// The keeper's directory, in ours of the store.
const KEEPER_DIR: &str = "quorum";

/// Digits of a cluster's identity that its name does not show.
const NAME_CUT: usize = 24;

/// A clean stop waits so long until the logs are handed over whose clients are still connected.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// A node that starts anew waits so long first, so that one that always fails does not take all of a
/// processor.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Between two looks for how long a change of the nodes goes on.
const CHANGES_LOOK: Duration = Duration::from_secs(1);

/// How this server is set up as a node, with its directory; `None`: it is none.
///
/// # Errors
/// Like [`config_of`], or the directory cannot be made.
pub(super) fn config(server: &Server) -> Result<Option<ClusterConfig>, RunError> {
    let options = server.options();
    let config = config_of(&options)?;
    if config.is_some() && options.jetstream.enabled {
        let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
        nuthatch_log::env::create_dirs(&ours)
            .and_then(|()| close_directory(&ours))
            .map_err(|error| RunError::Cluster(format!("using {}: {error}", ours.display())))?;
    }
    Ok(config)
}

/// How a server with these options is set up as a node; `None`: it is none. Nothing is written.
///
/// # Errors
/// It cannot be set up so, or its key is of no use.
pub(super) fn config_of(options: &Options) -> Result<Option<ClusterConfig>, RunError> {
    let Some(settings) = &options.cluster else { return Ok(None) };
    if let Some(log) = options.jetstream.logs.iter().find(|log| is_quorum_name(&log.name)) {
        let why = "the quorum logs of a cluster are called default-1, default-2 and so on, and memory-quorum";
        return Err(RunError::Cluster(format!(
            "jetstream.logs: a log of a node cannot be called {:?}: {why}; give it another name",
            log.name
        )));
    }
    let ours = options.jetstream.store_dir.join(OUR_DIRECTORY);
    let key = settings.key.as_deref().map(read_key).transpose().map_err(RunError::Cluster)?;
    // What is about logs counts for nothing at a node that keeps none.
    let keeps = options.jetstream.enabled;
    let config = ClusterConfig {
        name: settings.name.clone(),
        listen: settings.listen,
        routes: settings.routes.clone(),
        catalog: if keeps { settings.catalog.clone() } else { BUILT_IN.to_owned() },
        dir: ours.join(KEEPER_DIR),
        key,
        may_be_open: settings.may_be_open,
        logs: Logs::PerNode(settings.logs_per_node),
        memory: Some(keeper_memory_bytes(options)),
        store: options.jetstream.store.clone().filter(|_| keeps),
        replace_after: settings.replace_after.filter(|_| keeps),
        lease: settings.lease,
        zone: settings.zone.clone(),
        owner_zones: if keeps { settings.owner_zones.clone() } else { Vec::new() },
        protocol_max: settings.protocol_max,
        keys: key_names(&options.jetstream.keys),
        program: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let checked = if keeps { config.check() } else { config.check_reach() };
    checked.map_err(|error| RunError::Cluster(error.to_string()))?;
    Ok(Some(config))
}

/// The names of the keys that the logs are encrypted with, and read with.
fn key_names(keys: &nuthatch_log::Keys) -> KeyNames {
    let all = keys.current.iter().chain(&keys.previous).map(nuthatch_log::Key::id);
    KeyNames {
        writes: keys.current.as_ref().map_or(KeyId::NONE, nuthatch_log::Key::id),
        reads: all.collect(),
    }
}

/// True if a log of this name may be one of the cluster's (`quorum_log_name` of the JetStream service).
fn is_quorum_name(name: &str) -> bool {
    name.strip_prefix("default-").is_some_and(|number| number.parse::<u8>().is_ok())
        || name == QUORUM_MEMORY_LOG
}

/// A node that has its port, and its directory if it keeps logs; nothing of it runs yet.
pub(super) enum PreparedNode {
    /// One that keeps logs.
    Keeper(Box<Prepared>),
    /// One without JetStream.
    Core(Arc<CoreNode>),
}

/// Takes the port of a node, and its directory if it keeps logs.
///
/// # Errors
/// They cannot be had.
pub(super) fn prepare(
    server: &Arc<Server>,
    config: &ClusterConfig,
) -> Result<PreparedNode, RunError> {
    let (reporting, noting) = (Arc::downgrade(server), Arc::downgrade(server));
    let warn = move |message: &str| {
        if let Some(server) = reporting.upgrade() {
            server.log.warn(format_args!("Cluster: {message}"));
        }
    };
    let info = move |message: &str| {
        if let Some(server) = noting.upgrade() {
            server.log.info(format_args!("Cluster: {message}"));
        }
    };
    let report = Reporter::with_notes(warn, info);
    let prepared = match server.options().jetstream.enabled {
        true => Cluster::prepare(config, report).map(|node| PreparedNode::Keeper(Box::new(node))),
        false => CoreNode::start(config, report).map(PreparedNode::Core),
    };
    prepared.map_err(|error| RunError::Cluster(error.to_string()))
}

/// What a server does as a node, beside its clients.
pub(super) struct NodeTask {
    task: JoinHandle<()>,
    /// Hears why the node cannot go on.
    failed: mpsc::Receiver<RunError>,
    life: Life,
}

impl NodeTask {
    /// Begins: with the others the cluster is found, and its log waited for.
    pub(super) fn begin(
        server: &Arc<Server>,
        prepared: PreparedNode,
        start_jetstream: StartJetStream,
    ) -> Self {
        let server = server.clone();
        let life = match &prepared {
            PreparedNode::Keeper(prepared) => prepared.life(),
            PreparedNode::Core(core) => core.life(),
        };
        let (told, failed) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let been = match prepared {
                PreparedNode::Keeper(node) => be_node(&server, *node, start_jetstream, &told).await,
                PreparedNode::Core(core) => core_node::be(&server, core, start_jetstream).await,
            };
            if let Err(error) = been {
                // The first reason counts.
                let _ = told.try_send(error);
            }
        });
        Self { task, failed, life }
    }

    /// Ends the node. What it still owns goes to other nodes first.
    ///
    /// # Errors
    /// Not all of it has ended.
    pub(super) async fn end(&self, server: &Arc<Server>) -> Result<(), String> {
        let (cluster, life) = (server.cluster.get().cloned(), self.life.clone());
        let end = move || cluster.map_or_else(|| life.end(), |cluster| cluster.stop());
        let ended = tokio::task::spawn_blocking(end).await.map_err(|panic| panic.to_string())?;
        ended.map_err(|unended| unended.to_string())
    }

    /// Waits until what was being opened when the node ended is closed, too.
    pub(super) async fn closed(mut self) {
        // A panic was its end, too.
        let _ = (&mut self.task).await;
    }
}

impl Drop for NodeTask {
    fn drop(&mut self) {
        self.task.abort();
        // A start that failed ends what it has begun.
        if !self.life.is_ending() {
            let _ = self.life.end();
        }
    }
}

/// Ends when the node cannot go on: why. Never if there is none.
pub(super) async fn failed(node: &mut Option<NodeTask>) -> RunError {
    match node {
        None => std::future::pending().await,
        Some(node) => node.failed.recv().await.unwrap_or_else(|| {
            RunError::Cluster("the task of the node has ended, which is a fault of it".to_owned())
        }),
    }
}

/// Is a node until it ends. `failed` hears why it cannot go on, which is no end yet: what it has open is closed first.
async fn be_node(
    server: &Arc<Server>,
    prepared: Prepared,
    start_jetstream: StartJetStream,
    failed: &mpsc::Sender<RunError>,
) -> Result<(), RunError> {
    let starting = server.clone();
    let name = prepared.config().name.clone();
    let cluster = blocking(move || start(&starting, prepared)).await?;
    name_cluster(server, cluster.id());
    let mut tasks = JoinSet::new();
    // Before other nodes are connected: what they hand on is taken.
    let quorum = attach_jetstream(server, start_jetstream).await?;
    if server.stopping.load(Ordering::Relaxed) {
        // The server has stopped what there was before.
        let stopping = server.clone();
        return blocking(move || stopping.jetstream().stop()).await;
    }
    node_service::memory_streams::load(server).map_err(RunError::Cluster)?;
    tasks.spawn(node_service::memory_streams::keep(server.clone()));
    node_service::remembered_streams::load(server).map_err(RunError::Cluster)?;
    tasks.spawn(node_service::remembered_streams::keep(server.clone()));
    tasks.spawn(node_service::keep_advertising(server.clone()));
    tasks.spawn(node_service::serve(server.clone(), cluster.clone(), name));
    tasks.spawn(watch_changes(server.clone(), cluster.clone()));
    let quorum = quorum.expect("the JetStream of a node serves its quorum logs");
    let mut kept = JoinSet::new();
    for log in cluster.logs() {
        kept.spawn(quorum_logs::keep(server.clone(), log.clone(), quorum.clone()));
    }
    quorum_logs::take_moves(server, &cluster);
    let (told, mut removed) = mpsc::channel(1);
    cluster.on_removed(Box::new(move |why| {
        // The first reason counts.
        let _ = told.try_send(why.to_owned());
    }));
    let why = tokio::select! {
        Some(why) = removed.recv() => RunError::Cluster(why),
        ended = kept.join_next() => ended
            .expect("a cluster has a log")
            .unwrap_or_else(|panic| RunError::Cluster(panic.to_string())),
    };
    let _ = failed.try_send(why);
    while kept.join_next().await.is_some() {}
    Ok(())
}

/// Looks for how long a change of the nodes goes on, also where nobody asks for it.
async fn watch_changes(server: Arc<Server>, cluster: Arc<Cluster>) {
    let mut looks = interval(CHANGES_LOOK);
    loop {
        looks.tick().await;
        let _ = server.nodes.counts.note_change(cluster.change_under_way(), Instant::now());
    }
}

/// Gives the cluster the name that clients see: the configured one, or one that follows from what the founding has drawn.
pub(super) fn name_cluster(server: &Server, cluster: u128) {
    let named = server.options().cluster.as_ref().and_then(|settings| settings.cluster.clone());
    let drawn = || format!("{cluster:032x}").split_off(NAME_CUT);
    server.nodes.set_cluster(&named.unwrap_or_else(drawn));
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, RunError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(panic.to_string())).map_err(RunError::Cluster)
}

fn start(server: &Arc<Server>, prepared: Prepared) -> Result<Arc<Cluster>, String> {
    let (name, listen) = (prepared.config().name.clone(), prepared.config().listen);
    let cluster = prepared.start().map_err(|error| error.to_string())?;
    server.log.info(format_args!("Node {name} keeps the quorum log (node port {listen})"));
    Ok(Arc::clone(server.cluster.get_or_init(|| cluster)))
}

/// True if another node may own a log that this one owned.
pub(super) fn is_elsewhere(server: &Server) -> bool {
    let logs = server.cluster.get().map_or(&[][..], |cluster| cluster.logs());
    logs.iter().any(|log| log.was_replaced())
}

/// Before a clean stop the logs go to other nodes, while clients and other nodes are still connected: who waits for an
/// answer gets it, and what comes later goes to the next owner. What nobody else could own stays.
pub(super) async fn leave_logs(server: &Arc<Server>) {
    let Some(cluster) = server.cluster.get() else { return };
    let leaving = cluster.logs().iter().filter(|log| log.can_hand_over());
    let leaving: Vec<_> =
        leaving.filter_map(|log| server.nodes.step_down(log.number().0, None)).collect();
    let all = async {
        for left in leaving {
            // One that was lost meanwhile needs no handover.
            let _ = left.await;
        }
    };
    if timeout(LEAVE_MAX, all).await.is_err() {
        server.log.warn(format_args!("Quorum logs were not handed over in time"));
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
    let mut command = std::process::Command::new(program);
    let mut args = std::env::args_os();
    // The name by which it was called says which defaults it has.
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args).exec()
}

/// Reads the cluster's key from a file that nobody but its user can read.
fn read_key(path: &Path) -> Result<ClusterKey, String> {
    let at = path.display();
    let failed = |error: std::io::Error| format!("-cluster_key {at}: {error}");
    let about = std::fs::metadata(path).map_err(failed)?;
    // SAFETY: it only asks.
    let group = unsafe { libc::getegid() };
    if let Some(mode) = too_open(about.mode(), (about.uid(), about.gid()), group) {
        return Err(format!(
            "-cluster_key {at}: others may read it (mode {mode:03o}): chmod 600 {at}"
        ));
    }
    let secret = std::fs::read(path).map_err(failed)?;
    ClusterKey::new(&secret).map_err(|error| format!("-cluster_key {at}: {error}"))
}

/// The mode of a file that others than its owner may read, or write. The server's own group may read a file of root's: so
/// Kubernetes mounts a secret, and nobody can have it otherwise there.
fn too_open(mode: u32, (owner, its_group): (u32, u32), group: u32) -> Option<u32> {
    let is_mounted = owner == 0 && its_group == group && group != 0;
    let allowed = if is_mounted { 0o740 } else { 0o700 };
    (mode & 0o777 & !allowed != 0).then_some(mode & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_users_or_mounted_for_the_servers_group() {
        let (user, root, group) = (1000, 0, 65532);
        for (mode, of, may) in [
            (0o100_600, (user, group), true),
            (0o100_400, (user, group), true),
            (0o100_440, (root, group), true),
            (0o100_440, (user, group), false),
            (0o100_440, (root, 7), false),
            (0o100_460, (root, group), false),
            (0o100_444, (root, group), false),
        ] {
            let refused = too_open(mode, of, group);
            assert_eq!(refused, (!may).then_some(mode & 0o777), "{mode:o} {of:?}");
        }
        assert_eq!(too_open(0o440, (root, root), root), Some(0o440), "root's group is others too");
    }
}

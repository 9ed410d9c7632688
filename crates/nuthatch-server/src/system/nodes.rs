//! `$SYS.REQ.CLUSTER.…`: which nodes the cluster has, and that one is to be replaced, or is not. One node of the cluster answers.

use super::{Answer, Failure, cluster_logs, offline_streams};
use crate::server::Server;
use nuthatch_cluster::{
    Cluster, Drain, Finalize, Followed, NodeSight, NodesError, NodesSight, NotWished, Protocol,
    QuorumLog, Replacement, Zone, ZonesSight,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Of all nodes one answers. A word: other nodes are told of it.
pub(super) const GROUP: &[u8] = b"nuthatch_cluster";

/// How long a node that has just begun may take to know which logs are where.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Answers a request about the nodes of the cluster.
pub(super) async fn about_nodes(
    server: &Arc<Server>,
    what: &str,
    options: &Map<String, Value>,
) -> Result<Answer, Failure> {
    let cluster = cluster_of(server).await?;
    match what {
        "NODES" => {
            let mut data = described(&known(&cluster).await);
            data["standbys"] = described_standbys(&cluster);
            let begin_anew = cluster.logs().iter().filter(|log| log.begins_anew());
            data["begin_anew"] = begin_anew.map(|log| log.name()).collect();
            data["offline"] = offline_streams::described(server, None);
            Ok(Answer::Data(data))
        }
        "REPLACE" => replace(cluster, options).await,
        "RESIZE" => resize(cluster, options).await,
        "DRAIN" => drain(cluster, options).await,
        "FINALIZE" => finalize(cluster, options).await,
        "KEEP" => keep(cluster, options).await,
        "LOGS" => Ok(Answer::Data(cluster_logs::described(server, &cluster))),
        "MOVE_LOG" => cluster_logs::move_log(cluster, options).await,
        "FORGET" => offline_streams::forget(server, options),
        "FORGET_COPIES" => forget_copies(cluster, options).await,
        _ => Ok(Answer::Silence),
    }
}

/// The cluster of this server: one that has just started may be about to find it.
async fn cluster_of(server: &Arc<Server>) -> Result<Arc<Cluster>, Failure> {
    let deadline = Instant::now() + KNOWN_WITHIN;
    loop {
        if let Some(cluster) = server.cluster.get() {
            return Ok(cluster.clone());
        }
        if server.options().cluster.is_none() {
            return Err(Failure(503, "this server is no node of a cluster".to_owned()));
        }
        if !server.options().jetstream.enabled {
            let why = "this node has no JetStream, and no part of the catalog: ask one that keeps the logs";
            return Err(Failure(503, why.to_owned()));
        }
        if Instant::now() >= deadline {
            let why = "this node has not found its cluster yet: its log says what it waits for";
            return Err(Failure(503, why.to_owned()));
        }
        sleep(LOOK).await;
    }
}

/// The nodes, once it is known what is on them, if that is soon.
async fn known(cluster: &Arc<Cluster>) -> NodesSight {
    let deadline = Instant::now() + KNOWN_WITHIN;
    // Whoever has just changed something is to see it at each node. It may wait for the catalog.
    let asking = Arc::clone(cluster);
    let _ = tokio::task::spawn_blocking(move || asking.refresh_nodes()).await;
    loop {
        let sight = cluster.nodes();
        if sight.knows_logs || Instant::now() >= deadline {
            return sight;
        }
        sleep(LOOK).await;
    }
}

fn described(sight: &NodesSight) -> Value {
    let nodes: Vec<Value> = sight.nodes.iter().map(described_node).collect();
    let removed: Vec<Value> =
        sight.removed.iter().map(|(name, by)| json!({ "name": name, "by": by })).collect();
    let replacing = sight.replacing.as_ref().map(|(old, new)| json!({ "old": old, "new": new }));
    let resizing = sight.resizing.as_ref();
    let resizing = resizing.map(|(nodes, keep)| json!({ "nodes": nodes, "keep": keep }));
    json!({
        "nodes": nodes,
        "removed": removed,
        "replacing": replacing,
        "resizing": resizing,
        "leader": sight.leader,
        "log_names": sight.log_names,
        "protocol": sight.active.map(|active| active.0),
        "zones": described_zones(&sight.zones),
        "zone_risk": sight.zones.risk().map(|risk| risk.to_string()),
        "without_zone": sight.zones.without_zone,
    })
}

/// The logs that this node follows.
fn described_standbys(cluster: &Cluster) -> Value {
    let followed = cluster.logs().iter().filter_map(|log| Some((log, log.followed()?)));
    let of = |(log, of): (&Arc<QuorumLog>, Followed)| json!({ "log": log.number().0, "name": log.name(), "position": of.position, "bytes": of.bytes });
    followed.map(of).collect()
}

/// How many of the nodes that keep the logs are in each zone; null: no node has one.
fn described_zones(zones: &ZonesSight) -> Option<Value> {
    let counts = zones.keepers.iter().map(|(zone, names)| (zone.to_string(), json!(names.len())));
    (!zones.keepers.is_empty()).then(|| Value::Object(counts.collect()))
}

fn described_node(node: &NodeSight) -> Value {
    let drain = node.drain.map(|drain| match drain {
        Drain::Draining => "draining",
        Drain::Drained => "drained",
    });
    json!({
        "name": node.name,
        "address": node.address.map(|address| address.to_string()),
        "spare": !node.keeps,
        "logs": node.logs,
        "owns": node.owns,
        "uncounted": node.uncounted,
        "connected": node.connected,
        "silent_ms": node.silent.map(|silent| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX)),
        "drain": drain,
        "protocol_max": node.speaks.map(|speaks| speaks.newest.0),
        "program": node.program,
        "turned_away": node.turned_away,
        "zone": node.zone.as_ref().map(Zone::as_str),
    })
}

async fn replace(cluster: Arc<Cluster>, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let text = |key: &str| options.get(key).and_then(Value::as_str).map(str::to_owned);
    let old = text("old").ok_or_else(|| {
        let why = "a request to replace a node names it: {\"old\": \"n3\", \"new\": \"n4\"}, or only the old one";
        Failure(400, why.to_owned())
    })?;
    let new = text("new");
    let replaced = match options.get("dry_run").and_then(Value::as_bool) {
        Some(true) => cluster.would_replace(&old, new.as_deref()),
        _ => {
            // It waits for the catalog.
            let replacing =
                tokio::task::spawn_blocking(move || cluster.replace(&old, new.as_deref()));
            replacing.await.map_err(|panic| Failure::internal(panic.to_string()))?
        }
    };
    match replaced {
        Ok(Replacement::Begun { old, new }) => Ok(Answer::Data(json!({ "old": old, "new": new }))),
        Ok(Replacement::SpareRemoved { name }) => {
            Ok(Answer::Data(json!({ "old": name, "new": null })))
        }
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

async fn keep(cluster: Arc<Cluster>, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let node = options.get("node").and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
        let why = "a request to keep a node names it: {\"node\": \"n3\"}";
        Failure(400, why.to_owned())
    })?;
    let name = node.clone();
    if options.contains_key("dry_run") {
        let why = "a request to keep a node is carried out: what it would take back is `replacing` in NODES";
        return Err(Failure(400, why.to_owned()));
    }
    // It waits for the catalog.
    let keeping = tokio::task::spawn_blocking(move || cluster.keep(&name));
    match keeping.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(spare) => Ok(Answer::Data(json!({ "kept": node, "spare": spare }))),
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

async fn forget_copies(
    cluster: Arc<Cluster>,
    options: &Map<String, Value>,
) -> Result<Answer, Failure> {
    let node = options.get("node").and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
        let why = "a request to forget what a node held of logs names it: {\"node\": \"n3\"}";
        Failure(400, why.to_owned())
    })?;
    let only_look = options.get("dry_run").and_then(Value::as_bool) == Some(true);
    let name = node.clone();
    // It waits for the catalog.
    let forgetting = tokio::task::spawn_blocking(move || cluster.forget_copies(&name, only_look));
    match forgetting.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(logs) => Ok(Answer::Data(json!({ "node": node, "logs": logs }))),
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

async fn resize(cluster: Arc<Cluster>, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let name = |name: &Value| name.as_str().map(str::to_owned);
    let names = options.get("nodes").and_then(Value::as_array);
    let names: Option<Vec<String>> = names.and_then(|names| names.iter().map(name).collect());
    let keep = options.get("keep").and_then(Value::as_bool);
    let (Some(names), Some(keep)) = (names, keep) else {
        let why = "a request for more or fewer nodes with logs says which: {\"nodes\": [\"n4\", \"n5\"], \"keep\": true}";
        return Err(Failure(400, why.to_owned()));
    };
    let only_look = options.get("dry_run").and_then(Value::as_bool) == Some(true);
    let answer = json!({ "nodes": names, "keep": keep });
    // It waits for the catalog.
    let resizing = tokio::task::spawn_blocking(move || cluster.resize(&names, keep, only_look));
    match resizing.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(()) => Ok(Answer::Data(answer)),
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

async fn drain(cluster: Arc<Cluster>, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let node = options.get("node").and_then(Value::as_str).map(str::to_owned);
    let drain = options.get("drain").and_then(Value::as_bool);
    let (Some(node), Some(drain)) = (node, drain) else {
        let why = "a request to drain a node says which, and whether it is to be: {\"node\": \"n3\", \"drain\": true}";
        return Err(Failure(400, why.to_owned()));
    };
    let only_look = options.get("dry_run").and_then(Value::as_bool) == Some(true);
    let name = node.clone();
    // It waits for the catalog.
    let draining = tokio::task::spawn_blocking(move || cluster.drain(&name, drain, only_look));
    match draining.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(already) => {
            Ok(Answer::Data(json!({ "node": node, "drain": drain, "already": already })))
        }
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

async fn finalize(cluster: Arc<Cluster>, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let only_look = options.get("dry_run").and_then(Value::as_bool) == Some(true);
    let wanted = options.get("protocol").and_then(Value::as_u64);
    let wanted = wanted.and_then(|version| u8::try_from(version).ok()).map(Protocol);
    let finalize = match (only_look, wanted) {
        (true, _) => Finalize::Look,
        (false, Some(active)) => Finalize::To(active),
        (false, None) => {
            let why = "a request to finalize says for which protocol: {\"protocol\": 6}, or {\"dry_run\": true}";
            return Err(Failure(400, why.to_owned()));
        }
    };
    // It waits for the catalog.
    let finalizing = tokio::task::spawn_blocking(move || cluster.finalize(finalize));
    match finalizing.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(done) => Ok(Answer::Data(json!({
            "protocol": done.all_know.0,
            "before": done.active.0,
            "held_back_by": done.held_back_by,
        }))),
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

pub(super) fn code(error: &NodesError) -> u16 {
    use nuthatch_cluster::ChangeError;
    match error {
        NodesError::NoSuchNode { .. } | NodesError::NoSuchLog { .. } | NodesError::Gone { .. } => {
            404
        }
        NodesError::NotWished(NotWished::NoAnswer) => 503,
        NodesError::Change(
            ChangeError::NoMajority | ChangeError::NoAnswer { .. } | ChangeError::Busy,
        ) => 503,
        NodesError::KeepsNoCopy { .. }
        | NodesError::Drained { .. }
        | NodesError::KeepsItsPlace { .. }
        | NodesError::IsThere { .. }
        | NodesError::Unheard { .. }
        | NodesError::NotWished(NotWished::KeepsNoCopy | NotWished::IsToKeep(_))
        | NodesError::NotFinalized { .. }
        | NodesError::NoSpare { .. }
        | NodesError::Busy { .. }
        | NodesError::NotReplaced { .. }
        | NodesError::Removed { .. }
        | NodesError::VersionUnknown { .. }
        | NodesError::OtherProtocol { .. }
        | NodesError::Change(ChangeError::Refused(_)) => 409,
    }
}

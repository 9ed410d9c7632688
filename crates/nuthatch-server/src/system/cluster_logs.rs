//! `$SYS.REQ.CLUSTER.LOGS` and `MOVE_LOG`: the quorum logs as one node knows them, and who is to own one.

use super::nodes::code;
use super::{Answer, Failure};
use crate::logs::standby_memory_bytes;
use crate::server::Server;
use nuthatch_cluster::{Cluster, KeeperSight, LogSight, QuorumLog};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// All quorum logs. How far the copies are their owners know (`RAFTZ`).
pub(super) fn described(server: &Server, cluster: &Cluster) -> Value {
    let mut logs: Vec<Value> = cluster.logs().iter().map(|log| described_log(log)).collect();
    for (log, of) in logs.iter_mut().zip(cluster.logs()) {
        log["standbys_dropped"] = json!(server.nodes.counts.log(of.number().0).standbys_dropped);
    }
    let followed = cluster.logs().iter().filter_map(|log| log.followed());
    let bytes: u64 = followed.map(|followed| followed.bytes).sum();
    let standby = json!({ "bytes": bytes, "max_bytes": standby_memory_bytes(&server.options()) });
    json!({ "logs": logs, "standby_memory": standby })
}

fn described_log(log: &QuorumLog) -> Value {
    let LogSight { number, name, epoch, owner, preferred, keepers, asked_owner, .. } = log.sight();
    let store = match (log.is_in_memory(), log.is_in_bucket()) {
        (true, _) => "memory",
        (_, true) => "bucket",
        _ => "disk",
    };
    let named = |keeper: &KeeperSight| {
        let KeeperSight { node, connected, counts, cold, .. } = keeper;
        json!({ "node": node.name, "connected": connected, "counts": counts, "cold": cold })
    };
    json!({
        "number": number.0,
        "name": name,
        "store": store,
        "epoch": epoch.0,
        "owner": owner.map(|owner| owner.name),
        "to_be_owned_by": preferred.name,
        "moved_to": asked_owner.map(|asked| asked.name),
        "keepers": keepers.iter().map(named).collect::<Vec<_>>(),
        "followed": log.followed().map(|followed| followed.bytes),
    })
}

/// Has a log owned by a node from now on, or by whichever is best.
pub(super) async fn move_log(
    cluster: Arc<Cluster>,
    options: &Map<String, Value>,
) -> Result<Answer, Failure> {
    let bad = || {
        let why = "a request to move a log names it and the node that is to own it, or null: {\"log\": \"default-1\", \
                   \"node\": \"n2\"}";
        Failure(400, why.to_owned())
    };
    let log = options.get("log").and_then(Value::as_str).ok_or_else(bad)?.to_owned();
    let to = match options.get("node") {
        Some(Value::String(node)) => Some(node.clone()),
        Some(Value::Null) => None,
        _ => return Err(bad()),
    };
    let only_look = options.get("dry_run").and_then(Value::as_bool) == Some(true);
    let node = to.clone();
    // It waits for the catalog.
    let moving =
        tokio::task::spawn_blocking(move || cluster.move_log(&log, to.as_deref(), only_look));
    match moving.await.map_err(|panic| Failure::internal(panic.to_string()))? {
        Ok(moved) => Ok(Answer::Data(json!({
            "log": moved.log,
            "node": node,
            "owner": moved.owner,
            "before": moved.before,
        }))),
        Err(error) => Err(Failure(code(&error), error.to_string())),
    }
}

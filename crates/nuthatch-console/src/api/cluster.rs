//! The cluster of the server, and what is known to be wrong with its logs.

use serde_json::{Value, json};

use super::Call;
use super::server::{report, sees_server};
use crate::failure::Failure;
use crate::host::{ClusterNode, Findings, QuorumLog, Replica};

/// Whoever may ask for the logs may see what is wrong with them, and who keeps them.
fn check(call: &mut Call<'_>) -> Result<(), Failure> {
    report(call, "JSZ", &json!({})).map(drop)
}

/// `GET cluster`: nodes and quorum logs as this node sees them; `null`: the server is alone.
pub fn cluster(call: &mut Call<'_>) -> Result<Value, Failure> {
    check(call)?;
    let Some(found) = call.host.cluster() else { return Ok(Value::Null) };
    let routes = report(call, "ROUTEZ", &json!({}))?;
    Ok(json!({
        "name": found.name,
        "node": found.node,
        "size": found.size,
        "quorum": found.size / 2 + 1,
        "routes": routes["routes"],
        "nodes": found.nodes.iter().map(node).collect::<Vec<_>>(),
        "states": found.states,
        "may_stop": found.may_stop,
        "logs": found.logs.iter().map(log).collect::<Vec<_>>(),
    }))
}

fn node(node: &ClusterNode) -> Value {
    json!({
        "name": node.name,
        "spare": node.is_spare,
        "drain": node.drain,
        "zone": node.zone,
        "connected": node.is_connected,
        "silent_ms": node.silent_ms,
        "turned_away": node.turned_away,
    })
}

fn log(log: &QuorumLog) -> Value {
    json!({
        "name": log.name,
        "epoch": log.epoch,
        "owner": log.owner,
        "preferred": log.preferred,
        "replicas": log.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

fn replica(replica: &Replica) -> Value {
    json!({
        "node": replica.node,
        "connected": replica.is_connected,
        "silent_ms": replica.silent_ms,
        "lag": replica.lag,
        "fit": replica.is_fit,
    })
}

/// `GET findings`: what the running server has found, and what the doctor said when it last mended a log.
pub fn findings(call: &mut Call<'_>) -> Result<Value, Failure> {
    check(call)?;
    let rows: Vec<Value> = call.host.findings().iter().map(finding).collect();
    Ok(json!({ "sees_server": sees_server(call), "rows": rows }))
}

fn finding(of: &Findings) -> Value {
    json!({
        "log": of.log,
        "damaged_places": of.damaged_places,
        "torn_frames": of.torn_frames,
        "unusable_files": of.unusable_files,
        "mended_at": of.mended_at,
        "report": of.report,
    })
}

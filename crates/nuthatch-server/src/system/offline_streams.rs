//! Streams that are offline with the only node that has them, and that what is known of them is given up.

use super::{Answer, Failure};
use crate::server::Server;
use serde_json::{Map, Value, json};

/// So many names are told of each log.
const NAMES_MAX: usize = 20;

/// The logs with such streams, of one node if it is named.
pub(super) fn described(server: &Server, node: Option<&str>) -> Value {
    let mut all = Vec::new();
    for (account, logs) in server.accounts.offline() {
        let of_node = logs.iter().filter(|log| node.is_none_or(|node| log.node == node));
        for log in of_node.filter(|log| !log.streams.is_empty()) {
            let names = log.streams.iter().map(|stream| &stream.name).take(NAMES_MAX);
            all.push(json!({
                "node": log.node,
                "log": log.log,
                "identity": format!("{:016x}", log.identity),
                "account": account,
                "streams": log.streams.len(),
                "names": names.collect::<Vec<_>>(),
            }));
        }
    }
    Value::Array(all)
}

/// Gives up what is known of such streams of a node.
pub(super) fn forget(server: &Server, options: &Map<String, Value>) -> Result<Answer, Failure> {
    let node = options.get("node").and_then(Value::as_str).ok_or_else(|| {
        let why = "a request to forget the logs of a node names it: {\"node\": \"n3\"}";
        Failure(400, why.to_owned())
    })?;
    let logs = described(server, Some(node));
    if logs.as_array().is_none_or(Vec::is_empty) {
        let why = format!("no stream is offline with node {node:?}: there is nothing to forget");
        return Err(Failure(404, why));
    }
    if options.get("dry_run").and_then(Value::as_bool) != Some(true) {
        server.log.warn(format_args!(
            "What was known of logs that only node {node} had is given up, as was asked for: {logs}"
        ));
        server.accounts.forget_offline(node);
        server.nodes.tables_changed();
    }
    Ok(Answer::Data(json!({ "node": node, "logs": logs })))
}

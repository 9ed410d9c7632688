//! Endpoints about what one server does not have (gateways, raft groups) and about its inner workings: `/ipqueuesz`, `/stacksz`, `/debug/vars`.

use super::query::Query;
use super::usage;
use super::varz::object;
use crate::server::Server;
use crate::wall_time::now;
use serde_json::{Map, Value, json};

pub(super) fn gatewayz(server: &Server) -> Value {
    json!({
        "server_id": server.id,
        "now": now(),
        "outbound_gateways": {},
        "inbound_gateways": {},
    })
}

/// The queues in front of the logs, by bytes that wait. `all` shows empty ones too, `queues` keeps
/// to names that contain it.
pub(super) fn ipqueuesz(server: &Server, query: &Query) -> Result<Value, String> {
    let all = query.flag("all")?;
    let filter = query.text("queues").unwrap_or_default();
    let mut out = Map::new();
    for log in server.jetstream().view().logs() {
        let name = format!("log {} queue (bytes)", log.name);
        if (all || log.stats.queue_bytes > 0) && name.contains(filter) {
            out.insert(name, json!({ "pending": log.stats.queue_bytes }));
        }
    }
    Ok(Value::Object(out))
}

/// Upstream prints the stacks of its goroutines. There is no such thing here: what the runtime
/// and the system know of tasks and threads is listed instead.
pub(super) fn stacksz(server: &Server) -> String {
    let mut text = String::from(
        "Stacks of tasks are not available in this server; use `gdb -p` or `perf` on the process.\n\n",
    );
    if let Some(runtime) = server.runtime_usage() {
        text.push_str(&format!("tasks: {}\nworkers: {}\n", runtime.tasks, runtime.workers));
    }
    text.push_str("threads:\n");
    for (id, name, state) in usage::threads() {
        text.push_str(&format!("  {id} {name} {state}\n"));
    }
    text
}

/// The variables that Go's `expvar` publishes, as far as they mean anything here.
pub(super) fn debug_vars(server: &Server) -> Value {
    let arguments: Vec<_> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let (resident, _) = usage::usage();
    let mut out = object(json!({
        "cmdline": arguments,
        "memstats": { "Sys": resident },
        "threads": usage::threads().len(),
        "open_files": usage::open_files(),
    }));
    if let Some(runtime) = server.runtime_usage() {
        out.insert("tasks".to_owned(), json!(runtime.tasks));
    }
    Value::Object(out)
}

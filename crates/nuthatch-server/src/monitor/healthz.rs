//! `/healthz`: whether the server is well; "starting" is told from "broken".

use super::{meta, query::Query};
use crate::jetstream_port::JsHealth;
use crate::server::Server;
use hyper::StatusCode;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

/// A fault, in the words of the endpoint.
struct HealthFault {
    code: StatusCode,
    status: &'static str,
    kind: &'static str,
    error: String,
}

pub(super) async fn healthz(server: &Server, query: &Query) -> Result<(StatusCode, Value), String> {
    let details = query.flag("details")?;
    let fault = examine(server, query).await?;
    let Some(fault) = fault else {
        return Ok((StatusCode::OK, json!({ "status": "ok" })));
    };
    server.log.warn(format_args!("Healthcheck failed: {:?}", fault.error));
    let body = if details {
        let mut told = json!({ "type": fault.kind, "error": fault.error });
        for asked in ["account", "stream", "consumer"] {
            if let Some(name) = query.text(asked) {
                told[asked] = name.into();
            }
        }
        json!({ "status": "error", "errors": [told] })
    } else {
        json!({ "status": fault.status, "error": fault.error })
    };
    Ok((fault.code, body))
}

async fn examine(server: &Server, query: &Query) -> Result<Option<HealthFault>, String> {
    let (account, stream, consumer) =
        (query.text("account"), query.text("stream"), query.text("consumer"));
    if account.is_none() && stream.is_some() {
        return Ok(bad_request("\"account\" must not be empty when checking stream health"));
    }
    if stream.is_none() && consumer.is_some() {
        return Ok(bad_request("\"stream\" must not be empty when checking consumer health"));
    }
    if server.stopping.load(Ordering::Relaxed) {
        let error = "the server is stopping".to_owned();
        return Ok(unavailable("CONNECTION", error));
    }
    let (server_only, enabled_only) = (
        query.flag("js-server-only")?,
        query.flag("js-enabled-only")? || query.flag("js-enabled")?,
    );
    // Without effect: the streams of a server are looked at only if one is asked for.
    query.flag("js-meta-only")?;
    if !server.is_listening() {
        let error = "the server is starting: recovery is running".to_owned();
        return Ok(unavailable("CONNECTION", error));
    }
    if server_only {
        return Ok(None);
    }
    let options = server.options();
    if !options.jetstream.enabled {
        // What clients have here is the other nodes'.
        let is_lost = options.cluster.is_some() && !enabled_only && !server.nodes.has_keeper();
        let error = "no node of the cluster is connected that has JetStream".to_owned();
        return Ok(if is_lost { unavailable("JETSTREAM", error) } else { None });
    }
    if let Some(error) = of_cluster(server, enabled_only) {
        return Ok(unavailable("JETSTREAM", error));
    }
    let view = server.jetstream().view();
    match view.health() {
        JsHealth::Ok => {}
        JsHealth::Starting => {
            let error = "JetStream is starting: recovery is running".to_owned();
            return Ok(unavailable("JETSTREAM", error));
        }
        JsHealth::Broken(why) => {
            return Ok(unavailable("JETSTREAM", format!("JetStream is broken: {why}")));
        }
    }
    if enabled_only {
        return Ok(None);
    }
    let Some(account) = account else { return Ok(None) };
    let found = view.check(account, stream, consumer).await;
    Ok(found.err().map(|error| HealthFault {
        code: StatusCode::NOT_FOUND,
        status: "unavailable",
        kind: match (stream, consumer) {
            (_, Some(_)) => "CONSUMER",
            (Some(_), None) => "STREAM",
            (None, None) => "ACCOUNT",
        },
        error,
    }))
}

/// What is wrong with a node of a cluster; `enabled_only`: as far as it is found.
fn of_cluster(server: &Server, enabled_only: bool) -> Option<String> {
    let is_lost = server.options().cluster.is_some() && server.nodes.cluster().is_none();
    if is_lost || !enabled_only && meta::is_stalled(server) {
        return Some("JetStream has not established contact with a meta leader".to_owned());
    }
    if enabled_only {
        return None;
    }
    let unopened = meta::not_opened(server).map(|name| {
        format!("JetStream is broken: log {name} is this node's and cannot be opened, the server's log says why")
    });
    unopened.or_else(|| {
        let name = meta::not_taken_in(server)?;
        Some(format!(
            "JetStream is starting: the owner of log {name} has not taken this node in yet"
        ))
    })
}

fn bad_request(text: &str) -> Option<HealthFault> {
    let error = text.to_owned();
    Some(HealthFault { code: StatusCode::BAD_REQUEST, status: "error", kind: "BAD_REQUEST", error })
}

fn unavailable(kind: &'static str, error: String) -> Option<HealthFault> {
    let code = StatusCode::SERVICE_UNAVAILABLE;
    Some(HealthFault { code, status: "unavailable", kind, error })
}

//! From the name of an endpoint to its answer.

use super::query::Query;
use super::{accountz, connz, healthz, jsz, large, leafz, metrics, standalone, subsz, varz};
use crate::server::Server;
use hyper::StatusCode;
use serde_json::Value;
use std::sync::Arc;

/// An answer.
pub(super) enum Answer {
    /// A JSON document.
    Json(StatusCode, Value),
    /// A text in a media type.
    Text(StatusCode, &'static str, String),
}

/// Media type of plain text.
pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

/// Every endpoint: its path and what the start page calls it.
pub(super) const ENDPOINTS: &[(&str, &str)] = &[
    ("/varz", "General"),
    ("/jsz", "JetStream"),
    ("/connz", "Connections"),
    ("/accountz", "Accounts"),
    ("/accstatz", "Account Stats"),
    ("/subsz", "Subscriptions"),
    ("/routez", "Routes"),
    ("/leafz", "LeafNodes"),
    ("/gatewayz", "Gateways"),
    ("/raftz", "Raft Groups"),
    ("/ipqueuesz", "Queues"),
    ("/stacksz", "Threads"),
    ("/debug/vars", "Variables"),
    ("/healthz", "Health Probe"),
    ("/metrics", "Metrics"),
];

/// The document of an endpoint (`/connz`) for `$SYS` requests, whose options are fields of a JSON
/// object instead of parameters.
///
/// # Errors
/// A sentence: what is wrong with the options, or that there is no such document.
pub async fn document(
    server: &Arc<Server>,
    endpoint: &str,
    query: &Query,
) -> Result<Value, String> {
    let known = known(endpoint).ok_or_else(|| format!("there is no endpoint {endpoint}"))?;
    match answer(server, known, query).await {
        Answer::Json(_, value) => Ok(value),
        Answer::Text(_, _, why) => Err(why),
    }
}

/// The name under which requests of a path are counted; `None`: there is no such endpoint.
pub(super) fn known(path: &str) -> Option<&'static str> {
    let path = if path == "/subscriptionsz" { "/subsz" } else { path };
    ENDPOINTS.iter().map(|(known, _)| *known).find(|known| *known == path)
}

/// The answer of a [`known`] endpoint; what is wrong with the parameters is an answer too.
pub(super) async fn answer(server: &Arc<Server>, endpoint: &'static str, query: &Query) -> Answer {
    match large::is_large(endpoint) {
        true => large::make(server, endpoint, query).await,
        false => answer_here(server, endpoint, query).await,
    }
}

/// [`answer`] on this thread.
pub(super) async fn answer_here(server: &Arc<Server>, endpoint: &str, query: &Query) -> Answer {
    let result = match endpoint {
        "/varz" => Ok(varz::varz(server).await),
        "/connz" => connz::connz(server, query),
        "/jsz" => jsz::jsz(server, query).await,
        "/subsz" => subsz::subsz(server, query),
        "/accountz" => accountz::accountz(server, query),
        "/accstatz" => accountz::accstatz(server, query),
        "/routez" => Ok(standalone::routez(server)),
        "/gatewayz" => Ok(standalone::gatewayz(server)),
        "/leafz" => leafz::leafz(server, query),
        "/ipqueuesz" => standalone::ipqueuesz(server, query),
        "/debug/vars" => Ok(standalone::debug_vars(server)),
        "/healthz" => {
            return match healthz::healthz(server, query).await {
                Ok((status, value)) => Answer::Json(status, value),
                Err(why) => Answer::Text(StatusCode::BAD_REQUEST, PLAIN, why),
            };
        }
        "/stacksz" => return Answer::Text(StatusCode::OK, PLAIN, standalone::stacksz(server)),
        "/metrics" => return metrics::answer(server, query).await,
        // Upstream's answer of a server that is in no raft group.
        _ => {
            let text = "No Raft nodes registered".to_owned();
            return Answer::Text(StatusCode::NOT_FOUND, PLAIN, text);
        }
    };
    match result {
        Ok(value) => Answer::Json(StatusCode::OK, value),
        Err(why) => Answer::Text(StatusCode::BAD_REQUEST, PLAIN, why),
    }
}

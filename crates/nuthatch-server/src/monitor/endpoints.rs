//! From the name of an endpoint to its answer.

use super::query::Query;
use super::{
    accept, accountz, connz, healthz, jsz, large, leafz, metrics, raftz, routez, standalone, subsz,
    varz,
};
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

/// An answer as it is sent: its text is made where the answer was.
pub(super) struct Rendered {
    pub(super) status: StatusCode,
    /// Media type.
    pub(super) kind: &'static str,
    pub(super) text: Vec<u8>,
    /// The text is compressed with gzip.
    pub(super) is_packed: bool,
}

/// Media type of JSON.
pub(super) const JSON: &str = "application/json";

impl Answer {
    /// Its text. That of a large document takes long, and so does dropping the document.
    pub(super) fn render(self) -> Rendered {
        let (status, kind, text) = match self {
            Self::Json(status, value) => (status, JSON, pretty(&value)),
            Self::Text(status, kind, text) => (status, kind, text.into_bytes()),
        };
        Rendered { status, kind, text, is_packed: false }
    }

    /// As [`Answer::render`], compressed if that is worth it.
    pub(super) fn render_packed(self) -> Rendered {
        let rendered = self.render();
        match accept::gzip(&rendered.text) {
            Some(text) => Rendered { text, is_packed: true, ..rendered },
            None => rendered,
        }
    }
}

fn pretty(value: &Value) -> Vec<u8> {
    serde_json::to_vec_pretty(value).expect("a JSON value can be written")
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

/// What `make` makes of the document of an endpoint (`/connz`) for `$SYS` requests, whose options are
/// fields of a JSON object instead of parameters. `make` runs where large documents may be handled.
///
/// # Errors
/// A sentence: what is wrong with the options, or that there is no such document.
pub async fn document<T: Send + 'static>(
    server: &Arc<Server>,
    endpoint: &str,
    query: &Query,
    make: impl FnOnce(Value) -> T + Clone + Send + 'static,
) -> Result<T, String> {
    let known = known(endpoint).ok_or_else(|| format!("there is no endpoint {endpoint}"))?;
    let finish = |answer| match answer {
        Answer::Json(_, value) => Ok(make(value)),
        Answer::Text(_, _, why) => Err(why),
    };
    answer(server, known, query, finish).await
}

/// The name under which requests of a path are counted; `None`: there is no such endpoint.
pub(super) fn known(path: &str) -> Option<&'static str> {
    let path = if path == "/subscriptionsz" { "/subsz" } else { path };
    ENDPOINTS.iter().map(|(known, _)| *known).find(|known| *known == path)
}

/// What `finish` makes of the answer of a [`known`] endpoint; what is wrong with the parameters is an
/// answer too. Both take place where large answers may be made.
pub(super) async fn answer<T: Send + 'static>(
    server: &Arc<Server>,
    endpoint: &'static str,
    query: &Query,
    finish: impl FnOnce(Answer) -> T + Clone + Send + 'static,
) -> T {
    match large::is_large(endpoint) {
        true => large::make(server, endpoint, query, finish).await,
        false => finish(answer_here(server, endpoint, query).await),
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
        "/routez" => Ok(routez::routez(server, query)),
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
        _ => {
            return raftz::raftz(server, query).map_or_else(
                // Upstream's answer of a server that is in no raft group.
                || Answer::Text(StatusCode::NOT_FOUND, PLAIN, "No Raft nodes registered".into()),
                |groups| Answer::Json(StatusCode::OK, groups),
            );
        }
    };
    match result {
        Ok(value) => Answer::Json(StatusCode::OK, value),
        Err(why) => Answer::Text(StatusCode::BAD_REQUEST, PLAIN, why),
    }
}

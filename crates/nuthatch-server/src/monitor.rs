//! Monitoring over HTTP: the endpoints of nats-server in its shapes, and `/metrics`.

use crate::large_answers::METRICS;
use crate::ocsp_peers::{self, PeerKind};
use crate::options::Options;
use crate::server::Server;
use crate::socket::{ListenError, bind, port_of};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use self::endpoints::document;
use self::endpoints::{Answer, ENDPOINTS, JSON, Rendered};
pub use self::meta::is_follower;
pub use self::metrics::{Family, Number, Sample, families};
pub use self::query::Query;
use self::slots::{Activity, Slots};
use self::timed::Timed;

mod accept;
mod accountz;
mod connz;
mod endpoints;
mod healthz;
mod jsz;
mod large;
mod leafz;
mod logs;
mod meta;
mod metrics;
mod query;
mod raftz;
mod routez;
mod slots;
mod standalone;
mod subsz;
mod timed;
mod usage;
mod varz;

/// Connections to the monitoring ports at a time.
const CONNECTIONS_MAX: usize = 128;
/// A request's head must come within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A response that the peer has not taken after so long, and a while more for what it has taken, is
/// broken off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer of a connection, heads of requests included.
const BUFFER_BYTES: usize = 64 * 1024;
/// After a failure to accept, try again so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listeners of the monitoring endpoints.
pub struct Listeners {
    http: Option<TcpListener>,
    https: Option<TcpListener>,
}

impl Listeners {
    /// The port of HTTP.
    pub fn http_port(&self) -> Option<u16> {
        self.http.as_ref().map(port_of)
    }

    /// The port of HTTPS.
    pub fn https_port(&self) -> Option<u16> {
        self.https.as_ref().map(port_of)
    }
}

/// Listens where the options say.
///
/// # Errors
/// [`ListenError`].
pub async fn bind_all(options: &Options) -> Result<Listeners, ListenError> {
    let host = &options.monitor.host;
    let http = match options.monitor.http_port {
        Some(port) => Some(bind("monitor port", host, port).await?),
        None => None,
    };
    let https = match options.monitor.https_port {
        Some(port) => Some(bind("monitor port", host, port).await?),
        None => None,
    };
    Ok(Listeners { http, https })
}

/// Answers requests until the task is aborted.
pub fn serve(server: Arc<Server>, listeners: Listeners) -> JoinHandle<()> {
    let host = server.options().monitor.host.clone();
    for (scheme, port) in [("http", listeners.http_port()), ("https", listeners.https_port())] {
        if let Some(port) = port {
            server.log.info(format_args!("Starting {scheme} monitor on {host}:{port}"));
        }
    }
    tokio::spawn(async move {
        let slots = Arc::new(Slots::default());
        tokio::join!(
            accept(server.clone(), listeners.http, false, slots.clone()),
            accept(server, listeners.https, true, slots),
        );
    })
}

async fn accept(server: Arc<Server>, listener: Option<TcpListener>, tls: bool, slots: Arc<Slots>) {
    let Some(listener) = listener else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let server = server.clone();
        slots.spawn(CONNECTIONS_MAX, move |activity| attend(server, stream, tls, activity));
    }
}

async fn attend(server: Arc<Server>, stream: TcpStream, tls: bool, activity: Arc<Activity>) {
    let stream = Timed::new(stream, WRITE_TIMEOUT, activity.clone());
    let config = server.tls.monitor.load_full();
    match config {
        Some(config) if tls => {
            let acceptor = tokio_rustls::TlsAcceptor::from(config.config.clone());
            let handshake = acceptor.accept(stream);
            let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, handshake).await else {
                return;
            };
            let check = config.options.ocsp_peer.as_ref();
            let shown = (&*config.roots, stream.get_ref().1.peer_certificates());
            let (who, kind) = (&"monitoring", PeerKind::Client);
            if ocsp_peers::admits(&server, who, kind, check, shown).await {
                answer_all(server, stream, activity).await;
            }
        }
        _ => answer_all(server, stream, activity).await,
    }
}

async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(
    server: Arc<Server>,
    stream: S,
    activity: Arc<Activity>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, activity) = (server.clone(), activity.clone());
        async move {
            activity.begin_answer();
            let answer = answer(&server, &request).await;
            activity.begin_sending();
            Ok::<_, Infallible>(answer)
        }
    });
    // An error here means that the peer went away or did not speak HTTP.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        // As nats-server writes them: not every script that reads them ignores the case.
        .title_case_headers(true)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(server: &Arc<Server>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let base = server.options().monitor.base_path.clone();
    let path = request.uri().path();
    let Some(endpoint) = path.strip_prefix(base.trim_end_matches('/')) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    if matches!(endpoint, "" | "/") {
        count(server, "/");
        return root(&base);
    }
    let Some(name) = endpoints::known(endpoint) else {
        return plain(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    count(server, name);
    let headers = request.headers();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let query = query.preferring(accept::Form::accepted(headers));
    let packed = name == METRICS && accept::takes_gzip(headers);
    let finish = if packed { Answer::render_packed } else { Answer::render };
    let rendered = endpoints::answer(server, name, &query, finish).await;
    respond(server, name, rendered).await
}

fn count(server: &Server, endpoint: &'static str) {
    *server.http_requests.lock().entry(endpoint).or_default() += 1;
}

async fn respond(server: &Server, endpoint: &str, rendered: Rendered) -> Response<Full<Bytes>> {
    let Rendered { status, kind, text, is_packed } = rendered;
    // Small ones wait for no others: health is asked when much else is wrong.
    let text = match large::is_large(endpoint) {
        true => large::hold(server, endpoint, text).await,
        false => Some(Bytes::from(text)),
    };
    let Some(text) = text else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many answers wait to be taken\n");
    };
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if endpoint == METRICS {
        headers.insert(VARY, hyper::header::HeaderValue::from_static("Accept, Accept-Encoding"));
    }
    if is_packed {
        headers.insert(CONTENT_ENCODING, hyper::header::HeaderValue::from_static("gzip"));
    }
    if kind == JSON {
        let everyone = hyper::header::HeaderValue::from_static("*");
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, everyone);
    }
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(endpoints::PLAIN);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn root(base: &str) -> Response<Full<Bytes>> {
    let base = base.trim_end_matches('/');
    let mut page = String::from("<html lang=\"en\"><head><title>nuthatch</title></head><body>\n");
    for (endpoint, name) in ENDPOINTS {
        page.push_str(&format!("<a href=\"{base}{endpoint}\">{name}</a><br/>\n"));
    }
    page.push_str("</body></html>\n");
    let mut response = plain(StatusCode::OK, &page);
    let html = hyper::header::HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

/// A duration as nats-server shows uptimes: `1d2h3m4s`.
fn short_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let mut text = String::new();
    if years > 0 {
        text.push_str(&format!("{years}y"));
    }
    if days > 0 {
        text.push_str(&format!("{}d", days % 365));
    }
    if hours > 0 {
        text.push_str(&format!("{}h", hours % 24));
    }
    if minutes > 0 {
        text.push_str(&format!("{}m", minutes % 60));
    }
    text.push_str(&format!("{}s", seconds % 60));
    text
}

#[cfg(test)]
mod tests;

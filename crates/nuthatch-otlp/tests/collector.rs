//! A server with JetStream, and a collector that decodes what it is sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nuthatch_client::{Client, ConnectOptions};
use nuthatch_server::logging::Logger;
use nuthatch_server::options::{Options, OtlpOptions};
use nuthatch_server::process::{Embedded, Services};
use nuthatch_server::server::Server;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A request: its path, its header `x-scope`, its body.
type Posted = (String, String, Vec<u8>);

/// Takes requests until the test ends; the first one is answered with an error.
fn collect(listener: TcpListener, posted: Sender<Posted>) {
    let mut refused = false;
    for stream in listener.incoming() {
        let Ok(stream) = stream else { return };
        let posted = posted.clone();
        let refuses = !std::mem::replace(&mut refused, true);
        std::thread::spawn(move || serve(stream, &posted, refuses));
    }
}

fn serve(stream: TcpStream, posted: &Sender<Posted>, mut refuses: bool) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut path, mut scope, mut length) = (String::new(), String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("POST ") {
                path = rest.split(' ').next().unwrap().to_owned();
            } else if let Some((name, value)) = line.split_once(": ") {
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse().unwrap(),
                    "x-scope" => scope = value.to_owned(),
                    "content-type" => assert_eq!(value, "application/x-protobuf"),
                    _ => {}
                }
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let status = if std::mem::take(&mut refuses) { "503 Busy" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
        let _ = posted.send((path, scope, body));
    }
}

fn nothing(_: &Arc<Server>) -> Result<(), String> {
    Ok(())
}

/// A directory that goes with the test.
struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn metrics(posted: &Receiver<Posted>) -> (Vec<Metric>, Vec<Span>) {
    let deadline = Instant::now() + TIMEOUT;
    let (mut metrics, mut spans) = (Vec::new(), Vec::new());
    while metrics.is_empty() || spans.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let (path, scope, body) = posted.recv_timeout(left).expect("metrics and spans");
        assert_eq!(scope, "birds");
        match path.as_str() {
            "/base/v1/metrics" => {
                let sent = ExportMetricsServiceRequest::decode(&*body).unwrap();
                let of_server = &sent.resource_metrics[0];
                let service = &of_server.resource.as_ref().unwrap().attributes[0];
                assert_eq!(service.key, "service.name");
                let found = of_server.scope_metrics[0].metrics.clone();
                // The first ones come before the stream is there.
                if found.iter().any(|m| m.name == "nuthatch_stream_messages") {
                    metrics = found;
                }
            }
            "/base/v1/traces" => {
                let sent = ExportTraceServiceRequest::decode(&*body).unwrap();
                spans.extend(sent.resource_spans[0].scope_spans[0].spans.clone());
            }
            other => panic!("{other}"),
        }
    }
    (metrics, spans)
}

#[test]
fn a_collector_gets_metrics_and_spans() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, posted) = channel();
    std::thread::spawn(move || collect(listener, sender));
    let dir = TempDir(std::env::temp_dir().join(format!("nuthatch-otlp-{}", std::process::id())));
    let mut options = Options { port: 0, ..Options::default() };
    options.host = "127.0.0.1".to_owned();
    options.jetstream.enabled = true;
    options.jetstream.store_dir = dir.0.clone();
    options.otlp = Some(OtlpOptions {
        endpoint: format!("http://{address}/base"),
        interval: Duration::from_secs(1),
        metrics: true,
        traces: true,
        headers: vec![(
            "X-Scope".to_owned(),
            nuthatch_server::options::Secret::new("birds".to_owned()),
        )],
    });
    let server = Server::new(options, Logger::silent());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let services = Services {
        jetstream: nuthatch_jetstream::start,
        console: nothing,
        telemetry: nuthatch_otlp::start,
        commit: "",
    };
    let running = runtime.block_on(Embedded::start(&server, services, false)).unwrap();
    let stream = server.connect_in_process().unwrap();
    let mut client = Client::over(stream.into(), &ConnectOptions::in_process()).unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let headers = format!("NATS/1.0\r\ntraceparent: 00-{trace}-b7ad6b7169203331-01\r\n\r\n");
    let mut ask = |subject: &str, headers: &[u8], body: &[u8]| {
        let answer = client.request(subject, headers, body, TIMEOUT).unwrap();
        assert!(!answer.payload.is_empty());
    };
    let config = br#"{"name":"ORDERS","subjects":["orders.>"]}"#;
    ask("$JS.API.STREAM.CREATE.ORDERS", headers.as_bytes(), config);
    ask("$JS.API.STREAM.INFO.NOWHERE", b"", b"");
    ask("orders.new", b"", b"first");

    let (metrics, mut spans) = metrics(&posted);
    spans.extend(rest_of(&posted, &spans));
    let named =
        |name: &str| metrics.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("{name}"));
    assert!(matches!(&named("nuthatch_stream_messages").data, Some(Data::Gauge(gauge))
        if gauge.data_points[0].attributes.iter().any(|a| a.key == "stream")));
    assert!(matches!(&named("nuthatch_jetstream_api_requests").data, Some(Data::Sum(sum))
        if sum.is_monotonic && sum.data_points[0].start_time_unix_nano > 0));
    let Some(Data::Histogram(sync)) = &named("nuthatch_log_sync_seconds").data else { panic!() };
    let point = &sync.data_points[0];
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    assert_eq!(named("nuthatch_log_sync_seconds").unit, "s");

    let create = spans.iter().find(|span| span.name == "jetstream stream_create").unwrap();
    let hex: String = create.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, trace, "the caller's trace goes on");
    assert!(create.status.is_none());
    let refused = spans.iter().find(|span| span.name == "jetstream stream_info").unwrap();
    assert_eq!(refused.status.as_ref().unwrap().message, "stream not found");
    runtime.block_on(running.stop()).unwrap();
}

/// Spans that come later: an export may have come between the requests.
fn rest_of(posted: &Receiver<Posted>, known: &[Span]) -> Vec<Span> {
    let mut found = Vec::new();
    let deadline = Instant::now() + TIMEOUT;
    let has = |found: &[Span], name: &str| known.iter().chain(found).any(|span| span.name == name);
    while !(has(&found, "jetstream stream_create") && has(&found, "jetstream stream_info")) {
        let left = deadline.saturating_duration_since(Instant::now());
        let (path, _, body) = posted.recv_timeout(left).expect("all spans");
        if path.ends_with("/traces") {
            let sent = ExportTraceServiceRequest::decode(&*body).unwrap();
            found.extend(sent.resource_spans[0].scope_spans[0].spans.clone());
        }
    }
    found
}

//! Latencies of exported services, published for a share of the requests.

use crate::account::Account;
use crate::conn::Connection;
use crate::options::Latency;
use crate::route::DeliveryContext;
use crate::server::Server;
use crate::wall_time::{now, time_json};
use nuthatch_protocol::headers::Headers;
use nuthatch_streams::Message;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Type of the published event.
const TYPE: &str = "io.nats.server.metric.v1.service_latency";
/// Characters of an event's id.
const ID_CHARS: usize = 22;

/// Chooses the requests to measure.
pub(super) struct Sampler {
    /// In percent; 0: those whose headers ask for it.
    sampling: u8,
    subject: Box<str>,
}

/// One request that is being measured.
pub(super) struct Measurement {
    subject: Box<str>,
    requestor: Map<String, Value>,
    started: Instant,
    started_at: SystemTime,
}

impl Sampler {
    pub(super) fn new(latency: &Latency) -> Self {
        Self { sampling: latency.sampling, subject: latency.subject.as_str().into() }
    }

    /// True if this request is to be measured.
    pub(super) fn wants(&self, headers: &[u8], way: &mut DeliveryContext<'_>) -> bool {
        match self.sampling {
            100.. => true,
            sampling if sampling > 0 && way.rng.below(100) <= usize::from(sampling) => true,
            _ => !headers.is_empty() && asks(&Headers::new(headers)),
        }
    }

    /// Starts the measurement.
    pub(super) fn begin(&self, requestor: Map<String, Value>) -> Measurement {
        Measurement {
            subject: self.subject.clone(),
            requestor,
            started: Instant::now(),
            started_at: SystemTime::now(),
        }
    }
}

/// True if tracing headers ask for a sample (Jaeger, Zipkin, W3C).
fn asks(headers: &Headers<'_>) -> bool {
    let text = |name: &[u8]| headers.get(name).and_then(|value| std::str::from_utf8(value).ok());
    if let Some(id) = text(b"Uber-Trace-Id") {
        let flags = id.split(':').nth(3).and_then(|flags| u8::from_str_radix(flags, 16).ok());
        return flags.is_some_and(|flags| flags & 1 == 1);
    }
    match text(b"X-B3-Sampled") {
        Some("1") => return true,
        Some("0") => return false,
        _ => {}
    }
    if text(b"X-B3-TraceId").is_some() {
        return true;
    }
    if let Some(b3) = text(b"B3") {
        return b3 != "0" && b3.split('-').nth(2) != Some("0");
    }
    let flags = text(b"Traceparent").and_then(|parent| parent.split('-').nth(3));
    flags.and_then(|f| u8::from_str_radix(f, 16).ok()).is_some_and(|flags| flags & 1 == 1)
}

impl Measurement {
    /// The response came.
    pub(super) fn answered(
        self,
        exporter: &Arc<Account>,
        server: &Arc<Server>,
        responder: Option<&Arc<Connection>>,
    ) {
        let took = self.started.elapsed();
        let requestor_rtt = rtt_of(&self.requestor);
        let responder_rtt = responder
            .map(|conn| Duration::from_nanos(conn.rtt_ns.load(Ordering::Relaxed)))
            .unwrap_or_default();
        let responder = responder.map(|conn| {
            json!({
                "acc": conn.session().account.name,
                "rtt": conn.rtt_ns.load(Ordering::Relaxed),
                "start": time_json(conn.since),
                "user": conn.session().user,
                "name": conn.session().name,
                "lang": conn.session().lang,
                "ver": conn.session().version,
                "ip": conn.remote.ip().to_string(),
                "cid": conn.id,
                "server": server.name,
            })
        });
        let event = json!({
            "type": TYPE,
            "id": crate::random::random_id(ID_CHARS),
            "timestamp": now(),
            "status": 200,
            "requestor": self.requestor,
            "responder": responder,
            "start": time_json(self.started_at - requestor_rtt),
            "service": nanos(took.saturating_sub(responder_rtt)),
            "system": 0,
            "total": nanos(took + requestor_rtt),
        });
        publish(exporter, server, &self.subject, &event);
    }

    /// The request had no reply subject.
    pub(super) fn unanswerable(self, exporter: &Arc<Account>, server: &Arc<Server>) {
        let event = json!({
            "type": TYPE,
            "id": crate::random::random_id(ID_CHARS),
            "timestamp": now(),
            "status": 400,
            "description": "Bad Request",
            "start": time_json(self.started_at - rtt_of(&self.requestor)),
            "requestor": self.requestor,
            "service": 0,
            "system": 0,
            "total": 0,
        });
        publish(exporter, server, &self.subject, &event);
    }
}

fn rtt_of(info: &Map<String, Value>) -> Duration {
    Duration::from_nanos(info.get("rtt").and_then(Value::as_u64).unwrap_or(0))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn publish(exporter: &Arc<Account>, server: &Arc<Server>, subject: &str, event: &Value) {
    let body = serde_json::to_vec(event).unwrap_or_default();
    let message = Message { subject: subject.as_bytes(), reply: b"", headers: b"", body: &body };
    server.publish(exporter.id, &message);
}

//! Latencies of exported services, published for a share of the requests.

use crate::member_rng::MemberRng;
use crate::options::Latency;
use crate::outlet::ClientFacts;
use crate::wall_time::{now, time_json};
use nuthatch_protocol::headers::Headers;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant, SystemTime};

/// Type of the published event.
const TYPE: &str = "io.nats.server.metric.v1.service_latency";
/// Characters of an event's id.
const ID_CHARS: usize = 22;

/// Chooses the requests to measure.
pub(crate) struct Sampler {
    /// In percent; 0: those whose headers ask for it.
    sampling: u8,
    subject: Box<str>,
}

/// One request that is being measured.
pub(crate) struct Measurement {
    subject: Box<str>,
    requestor: Map<String, Value>,
    started: Instant,
    started_at: SystemTime,
}

impl Sampler {
    pub(crate) fn new(latency: &Latency) -> Self {
        Self { sampling: latency.sampling, subject: latency.subject.as_str().into() }
    }

    /// True if this request is to be measured.
    pub(crate) fn wants(&self, headers: &[u8], rng: &mut MemberRng) -> bool {
        match self.sampling {
            100.. => true,
            sampling if sampling > 0 && rng.below(100) <= usize::from(sampling) => true,
            _ => !headers.is_empty() && asks(&Headers::new(headers)),
        }
    }

    /// Starts the measurement.
    pub(crate) fn begin(&self, requestor: Map<String, Value>) -> Measurement {
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

/// What is published about a request.
pub(crate) struct LatencyEvent {
    pub(crate) subject: Box<str>,
    pub(crate) body: Vec<u8>,
}

impl Measurement {
    /// The response came. `server` is this server's name.
    pub(crate) fn answered(self, server: &str, responder: Option<&ClientFacts>) -> LatencyEvent {
        let took = self.started.elapsed();
        let requestor_rtt = rtt_of(&self.requestor);
        let responder_rtt = Duration::from_nanos(responder.map_or(0, |client| client.rtt_ns));
        let responder = responder.map(|client| {
            json!({
                "acc": client.account,
                "rtt": client.rtt_ns,
                "start": time_json(client.since),
                "user": client.user,
                "name": client.name,
                "lang": client.lang,
                "ver": client.version,
                "ip": client.remote.ip().to_string(),
                "cid": client.id,
                "server": server,
            })
        });
        let event = json!({
            "type": TYPE,
            "id": crate::random::random_id(ID_CHARS),
            "timestamp": now(),
            "status": 200,
            "requestor": &self.requestor,
            "responder": responder,
            "start": time_json(self.started_at - requestor_rtt),
            "service": nanos(took.saturating_sub(responder_rtt)),
            "system": 0,
            "total": nanos(took + requestor_rtt),
        });
        self.event(&event)
    }

    /// The request had no reply subject.
    pub(crate) fn unanswerable(self) -> LatencyEvent {
        let event = json!({
            "type": TYPE,
            "id": crate::random::random_id(ID_CHARS),
            "timestamp": now(),
            "status": 400,
            "description": "Bad Request",
            "start": time_json(self.started_at - rtt_of(&self.requestor)),
            "requestor": &self.requestor,
            "service": 0,
            "system": 0,
            "total": 0,
        });
        self.event(&event)
    }

    fn event(&self, event: &Value) -> LatencyEvent {
        let body = serde_json::to_vec(event).unwrap_or_default();
        LatencyEvent { subject: self.subject.clone(), body }
    }
}

fn rtt_of(info: &Map<String, Value>) -> Duration {
    Duration::from_nanos(info.get("rtt").and_then(Value::as_u64).unwrap_or(0))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

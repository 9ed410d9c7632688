//! Requests to the JetStream API as spans.

use std::sync::atomic::{AtomicU64, Ordering};

use nuthatch_server::operations::{Operation, OperationListener};
use nuthatch_server::server::Server;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use parking_lot::Mutex;
use prost::Message as _;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::words::{number, resource, scope, text, unix_nanos};

/// Spans that wait to be sent; more are dropped.
pub const WAITING_MAX: usize = 4096;
/// Bytes of a subject in a span.
const SUBJECT_BYTES_MAX: usize = 256;

/// Spans that wait to be sent.
#[derive(Debug, Default)]
pub struct Spans {
    waiting: Mutex<Vec<Span>>,
    dropped: AtomicU64,
}

impl Spans {
    /// Those that wait; they do no more.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// How many were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

impl OperationListener for Spans {
    fn ended(&self, operation: &Operation<'_>) {
        let parent = operation.traceparent.and_then(Parent::parse);
        if parent.as_ref().is_some_and(|parent| !parent.is_sampled) {
            return;
        }
        if self.waiting.lock().len() >= WAITING_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let span = span(operation, parent);
        self.waiting.lock().push(span);
    }
}

fn span(operation: &Operation<'_>, parent: Option<Parent>) -> Span {
    let start = unix_nanos(operation.started);
    let took = u64::try_from(operation.took.as_nanos()).unwrap_or(u64::MAX);
    let (trace_id, parent_span_id) = match parent {
        Some(parent) => (parent.trace.to_vec(), parent.span.to_vec()),
        None => (random::<16>().to_vec(), Vec::new()),
    };
    let mut attributes = vec![
        text("messaging.system", "nats"),
        text("nuthatch.account", operation.account),
        text("nuthatch.api.subject", cut(operation.subject)),
    ];
    if let Some((code, _)) = operation.error {
        attributes.push(number("nuthatch.error.code", i64::from(code)));
    }
    Span {
        trace_id,
        span_id: random::<8>().to_vec(),
        parent_span_id,
        name: format!("jetstream {}", operation.name),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: start,
        end_time_unix_nano: start.saturating_add(took),
        attributes,
        status: operation.error.map(|(_, message)| Status {
            message: message.to_owned(),
            code: StatusCode::Error as i32,
        }),
        ..Span::default()
    }
}

fn cut(subject: &str) -> &str {
    let mut end = subject.len().min(SUBJECT_BYTES_MAX);
    while !subject.is_char_boundary(end) {
        end -= 1;
    }
    &subject[..end]
}

/// An identity that nothing else has; never all zeros, which is none.
fn random<const N: usize>() -> [u8; N] {
    let mut id = [0; N];
    if SystemRandom::new().fill(&mut id).is_err() || id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

/// The caller's span, from the header `traceparent` of W3C: `00-<trace>-<span>-<flags>`.
#[derive(Debug, PartialEq, Eq)]
struct Parent {
    trace: [u8; 16],
    span: [u8; 8],
    is_sampled: bool,
}

impl Parent {
    /// `None`: it is none.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let [version, trace, span, flags] = [(); 4].map(|()| parts.next());
        let (version, flags) = (hex::<1>(version?)?, hex::<1>(flags?)?);
        // Later versions may have more parts.
        if version == [0xff] || (version == [0] && parts.next().is_some()) {
            return None;
        }
        let (trace, span) = (hex::<16>(trace?)?, hex::<8>(span?)?);
        let is_some = trace != [0; 16] && span != [0; 8];
        is_some.then_some(Self { trace, span, is_sampled: flags[0] & 1 != 0 })
    }
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let is_hex = digits.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() != 2 * N || !is_hex {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The body of a request.
pub fn request(server: &Server, spans: Vec<Span>) -> Vec<u8> {
    let of_scope = ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() };
    let of_server = ResourceSpans {
        resource: Some(resource(server)),
        scope_spans: vec![of_scope],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![of_server] }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn operation<'a>(traceparent: Option<&'a str>, error: Option<(u16, &'a str)>) -> Operation<'a> {
        Operation {
            name: "stream_info",
            account: "SHOP",
            subject: "STREAM.INFO.ORDERS",
            traceparent,
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
            took: Duration::from_micros(5),
            error,
        }
    }

    #[test]
    fn a_span_continues_the_callers_trace() {
        let spans = Spans::default();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        spans.ended(&operation(Some(parent), Some((10059, "stream not found"))));
        spans.ended(&operation(None, None));
        spans.ended(&operation(
            Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),
            None,
        ));
        let found = spans.take();
        assert_eq!(found.len(), 2, "what the caller does not sample is not recorded");
        let (child, root) = (&found[0], &found[1]);
        assert_eq!(child.trace_id[..2], [0x0a, 0xf7]);
        assert_eq!(child.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
        assert_eq!((child.name.as_str(), child.kind), ("jetstream stream_info", 2));
        assert_eq!(child.end_time_unix_nano - child.start_time_unix_nano, 5_000);
        let status = child.status.as_ref().unwrap();
        assert_eq!((status.message.as_str(), status.code), ("stream not found", 2));
        assert!(root.parent_span_id.is_empty() && root.status.is_none());
        assert!(
            root.trace_id.len() == 16 && root.span_id.len() == 8 && root.trace_id != child.trace_id
        );
        assert!(spans.take().is_empty());
    }

    #[test]
    fn what_is_no_parent_begins_a_trace() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(Parent::parse(good).is_some());
        assert!(Parent::parse(&format!("01{}-more", &good[2..])).is_some());
        let bad = [
            "",
            "00",
            "00--",
            &good[..54],
            &format!("{good}-more"),
            &format!("ff{}", &good[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0äf7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ];
        for text in bad {
            assert_eq!(Parent::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let spans = Spans::default();
        for _ in 0..WAITING_MAX + 3 {
            spans.ended(&operation(None, None));
        }
        assert_eq!(
            (spans.take().len(), spans.take_dropped(), spans.take_dropped()),
            (WAITING_MAX, 3, 0)
        );
        assert_eq!(cut(&"ä".repeat(200)).len(), SUBJECT_BYTES_MAX);
    }
}

//! Sends what a server counts, and what its JetStream API is asked, to an OpenTelemetry collector: OTLP
//! in protobuf over HTTP.
//!
//! It runs beside the server and never holds it up: metrics are read as for a scrape; spans wait in a
//! bounded queue and are dropped, and counted, when that is full or the collector does not take them.

mod metrics;
mod sender;
mod spans;
mod words;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nuthatch_server::options::OtlpOptions;
use nuthatch_server::server::Server;

use self::sender::Sender;
use self::spans::Spans;

/// Time between two exports of spans.
const SPANS_INTERVAL: Duration = Duration::from_secs(5);
/// Failures to send are told at most once in so long.
const TOLD_INTERVAL: Duration = Duration::from_secs(60);

/// Starts the export, if the options say so, within the runtime of the caller.
///
/// # Errors
/// The client of the collector cannot be made.
pub fn start(server: &Arc<Server>) -> Result<(), String> {
    let Some(options) = server.options().otlp.clone() else { return Ok(()) };
    let sender = Sender::new(&options)?;
    let spans = Arc::new(Spans::default());
    if options.traces {
        server.operations.listen(spans.clone());
    }
    let what = match (options.metrics, options.traces) {
        (true, true) => "metrics and spans",
        (true, false) => "metrics",
        (false, true) => "spans",
        (false, false) => "nothing",
    };
    server.log.info(format_args!("Sending {what} to {}", options.endpoint));
    let export = Export { server: Arc::downgrade(server), sender, spans, told: None };
    tokio::spawn(export.run(options));
    Ok(())
}

/// The export of a server.
struct Export {
    server: std::sync::Weak<Server>,
    sender: Sender,
    spans: Arc<Spans>,
    /// When a failure was told last.
    told: Option<Instant>,
}

impl Export {
    /// Until the server is gone.
    async fn run(mut self, options: OtlpOptions) {
        let mut metrics_due = tokio::time::interval(options.interval);
        let mut spans_due = tokio::time::interval(SPANS_INTERVAL);
        for due in [&mut metrics_due, &mut spans_due] {
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            let sent = tokio::select! {
                _ = metrics_due.tick(), if options.metrics => self.send_metrics().await,
                _ = spans_due.tick(), if options.traces => self.send_spans().await,
                else => return,
            };
            match sent {
                None => return,
                Some(Ok(())) => {}
                Some(Err(why)) => self.tell(&why),
            }
        }
    }

    /// `None`: the server is gone.
    async fn send_metrics(&self) -> Option<Result<(), String>> {
        let server = self.server.upgrade()?;
        let families = nuthatch_server::monitor::families(&server).await;
        let body = metrics::request(&server, &families, SystemTime::now());
        drop(server);
        Some(self.sender.post("/v1/metrics", body).await)
    }

    async fn send_spans(&self) -> Option<Result<(), String>> {
        let server = self.server.upgrade()?;
        let taken = self.spans.take();
        let dropped = self.spans.take_dropped();
        if dropped > 0 {
            server.log.warn(format_args!("OTLP: {dropped} spans were dropped: too many at a time"));
        }
        let body = (!taken.is_empty()).then(|| spans::request(&server, taken));
        drop(server);
        match body {
            Some(body) => Some(self.sender.post("/v1/traces", body).await),
            None => Some(Ok(())),
        }
    }

    fn tell(&mut self, why: &str) {
        if self.told.is_some_and(|at| at.elapsed() < TOLD_INTERVAL) {
            return;
        }
        self.told = Some(Instant::now());
        if let Some(server) = self.server.upgrade() {
            server.log.warn(format_args!("OTLP: {why}"));
        }
    }
}

//! Metrics of a node, for Prometheus. `bench/grafana` holds a dashboard and a configuration.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Upper bounds of the latency buckets: 50 µs, doubling, up to 26 s.
const FIRST_BUCKET_S: f64 = 50e-6;
const BUCKETS: u16 = 20;

/// A scraper that sends nothing for this long is dropped.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest request line and header lines of a scrape that are read.
const MAX_REQUEST_LINES: usize = 100;

/// The numbers of a node.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Messages sent and safe.
    pub sent: Counter,
    /// Messages received.
    pub received: Counter,
    /// Threads that failed.
    pub errors: Counter,
    /// How long sends took.
    pub send_seconds: Histogram,
    /// How long messages were under way.
    pub processing_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BUCKET_S, 2.0, BUCKETS));
        Self {
            sent: Counter::default(),
            received: Counter::default(),
            errors: Counter::default(),
            send_seconds: histogram(),
            processing_seconds: histogram(),
        }
    }
}

impl Metrics {
    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("nuthatch_mq");
        let sent = "Messages sent whose send has completed";
        registry.register("sent_messages", sent, self.sent.clone());
        registry.register("received_messages", "Messages received", self.received.clone());
        registry.register("failed_threads", "Threads that failed", self.errors.clone());
        let send = "Time until a send of one batch completed";
        registry.register("send_seconds", send, self.send_seconds.clone());
        let processing = "Time from the send of a message until it was received";
        registry.register("processing_seconds", processing, self.processing_seconds.clone());
        registry
    }

    /// Answers every HTTP request on `address` with the metrics, in a thread that ends with the
    /// process.
    ///
    /// # Errors
    /// When nothing can listen there.
    pub fn serve(&self, address: &str) -> io::Result<()> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the address resolves to nothing"))?;
        let listener = TcpListener::bind(address)?;
        let registry = Arc::new(self.registry());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                // A scraper that goes away harms nobody but itself.
                let _ = answer(socket, &registry);
            }
        });
        Ok(())
    }
}

fn answer(mut socket: TcpStream, registry: &Registry) -> io::Result<()> {
    socket.set_read_timeout(Some(SCRAPE_TIMEOUT))?;
    socket.set_write_timeout(Some(SCRAPE_TIMEOUT))?;
    let mut reader = BufReader::new(socket.try_clone()?);
    for _ in 0..MAX_REQUEST_LINES {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let mut body = String::new();
    encode(&mut body, registry).map_err(io::Error::other)?;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; \
         charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_scrape_shows_what_was_counted() {
        let metrics = Metrics::default();
        metrics.sent.inc_by(42);
        metrics.send_seconds.observe(0.001);
        let port = nuthatch_ports::free_port().unwrap();
        metrics.serve(&format!("127.0.0.1:{port}")).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        assert!(text.contains("nuthatch_mq_sent_messages_total 42"), "{text}");
        assert!(text.contains("nuthatch_mq_send_seconds_count 1"), "{text}");
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_there_are() {
        let dashboard = include_str!("../../../../bench/grafana/mq-dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
        let asked: Vec<&str> = targets
            .flat_map(|target| target["expr"].as_str().unwrap().split(|c: char| !is_name(c)))
            .filter(|word| word.starts_with("nuthatch_"))
            .collect();
        let mut served = String::new();
        encode(&mut served, &Metrics::default().registry()).unwrap();
        let name = |line: &str| line.split(|c: char| !is_name(c)).next().unwrap().to_owned();
        let served: Vec<String> = served.lines().map(name).collect();
        assert!(asked.len() >= 10, "{asked:?}");
        for name in asked {
            assert!(served.iter().any(|served| served == name), "{name} is not served");
        }
    }

    fn is_name(c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '_'
    }
}

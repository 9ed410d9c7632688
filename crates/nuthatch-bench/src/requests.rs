//! Requests to a store: counted by the client of the store, by a Nuthatch that keeps a log in it,
//! or by a MinIO itself.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nuthatch_object::{Bucket, RequestKind};
use serde::{Deserialize, Serialize};

use crate::harness::BenchError;

/// Limit for an answer of a monitoring port.
const MONITORING_TIMEOUT: Duration = Duration::from_secs(30);

/// Counts of requests to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Requests by kind, in the order of [`RequestKind::ALL`].
    pub by_kind: [u64; RequestKind::ALL.len()],
    /// Requests of all kinds.
    pub requests: u64,
    /// Bytes written.
    pub put_bytes: u64,
    /// Bytes read.
    pub get_bytes: u64,
}

impl Requests {
    /// Requests of a bucket of this process.
    pub fn of(bucket: &Bucket) -> Self {
        let counters = bucket.counters().snapshot();
        Self {
            by_kind: counters.requests,
            requests: counters.total(),
            put_bytes: counters.put_bytes,
            get_bytes: counters.get_bytes,
        }
    }

    /// The requests since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            by_kind: std::array::from_fn(|n| self.by_kind[n].saturating_sub(before.by_kind[n])),
            requests: self.requests.saturating_sub(before.requests),
            put_bytes: self.put_bytes.saturating_sub(before.put_bytes),
            get_bytes: self.get_bytes.saturating_sub(before.get_bytes),
        }
    }

    /// Reads them out of the metrics of a Nuthatch or a MinIO; nothing if there are none.
    pub fn parse(metrics: &str) -> Self {
        let mut found = Self::default();
        for line in metrics.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let value = value.parse::<f64>().unwrap_or(0.0) as u64;
            match name.split('{').next().unwrap_or_default() {
                "nuthatch_store_requests_total" => found.add(label(name, "kind"), value),
                "nuthatch_store_put_bytes_total" => found.put_bytes += value,
                "nuthatch_store_get_bytes_total" => found.get_bytes += value,
                "minio_api_requests_total" => found.add(label(name, "name"), value),
                "minio_api_requests_traffic_received_bytes" => found.put_bytes += value,
                "minio_api_requests_traffic_sent_bytes" => found.get_bytes += value,
                _ => {}
            }
        }
        found
    }

    /// Adds requests of a kind: one of ours, or what S3 calls it, such as `PutObject`. Parts of
    /// uploads are puts.
    fn add(&mut self, kind: &str, count: u64) {
        let name = kind.to_ascii_lowercase();
        let kind = match name.as_str() {
            name if name.contains("multipart") => Some(RequestKind::Put),
            name => RequestKind::ALL.into_iter().find(|kind| name.starts_with(kind.name())),
        };
        self.requests += count;
        if let Some(kind) = kind {
            self.by_kind[kind as usize] += count;
        }
    }

    /// Requests for each million of so many messages, by kind and of all kinds.
    pub fn per_million(&self, messages: u64) -> ([f64; RequestKind::ALL.len()], f64) {
        let per = |count: u64| count as f64 * 1e6 / messages.max(1) as f64;
        (self.by_kind.map(per), per(self.requests))
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for kind in RequestKind::ALL {
            let count = self.by_kind[kind as usize];
            if count > 0 {
                write!(f, "{separator}{count} {}", kind.name())?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

fn label<'a>(name: &'a str, label: &str) -> &'a str {
    let value = name.split(&format!("{label}=\"")).nth(1);
    value.and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// Where a Nuthatch has its metrics.
pub const OUR_METRICS: &str = "/metrics";

/// Where a MinIO has those of its API, not cached; it must be told to show them to everybody.
pub const MINIO_METRICS: &str = "/minio/metrics/v3/api/requests";

/// Reads what a store was asked for from a monitoring port of this machine.
///
/// # Errors
/// When it does not answer.
pub fn requests(port: u16, path: &str) -> Result<Requests, BenchError> {
    let text = metrics(port, path).map_err(|source| BenchError::File {
        what: format!("cannot read metrics from port {port}"),
        source,
    })?;
    Ok(Requests::parse(&text))
}

fn metrics(port: u16, path: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(MONITORING_TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_added_up() {
        let text = "# HELP x\n\
            nuthatch_store_requests_total{log=\"default\",kind=\"put\"} 3\n\
            nuthatch_store_requests_total{log=\"cold\",kind=\"put\"} 4\n\
            nuthatch_store_requests_total{log=\"default\",kind=\"head\"} 5\n\
            nuthatch_store_put_bytes_total{log=\"default\"} 1.5e3\n\
            nuthatch_store_get_bytes_total{log=\"default\"} 7\n\
            nuthatch_connections 9\n";
        let found = Requests::parse(text);
        assert_eq!((found.requests, found.put_bytes, found.get_bytes), (12, 1500, 7));
        assert_eq!(found.to_string(), "7 put, 5 head");
        assert_eq!(found.since(&found), Requests::default());
    }

    #[test]
    fn the_names_of_s3_are_understood() {
        let text = "minio_api_requests_total{name=\"PutObject\",server=\"x\",type=\"s3\"} 3\n\
            minio_api_requests_total{name=\"CompleteMultipartUpload\",type=\"s3\"} 1\n\
            minio_api_requests_total{name=\"ListObjectsV2\",type=\"s3\"} 2\n\
            minio_api_requests_total{name=\"GetBucketLocation\",type=\"s3\"} 1\n\
            minio_api_requests_errors_total{name=\"HeadObject\",type=\"s3\"} 9\n\
            minio_api_requests_traffic_received_bytes{type=\"s3\"} 100\n\
            minio_api_requests_traffic_sent_bytes{type=\"s3\"} 10\n";
        let found = Requests::parse(text);
        assert_eq!(found.to_string(), "4 put, 1 get, 2 list");
        assert_eq!((found.requests, found.put_bytes, found.get_bytes), (7, 100, 10));
        assert!((found.per_million(1_000).1 - 7_000.0).abs() < 1e-9);
    }
}

//! The result of a run of the mqperf method, put together from the reports of its nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::node::{NodeReport, Role};
use super::seen::{Seen, Verdict};
use crate::report::{Latencies, LatencySummary};

/// One window over all nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WindowResult {
    /// Messages sent per second.
    pub send_per_s: f64,
    /// Messages received per second.
    pub receive_per_s: f64,
    /// 95th percentile of the processing latency in milliseconds.
    pub processing_p95_ms: Option<f64>,
    /// 95th percentile of the send latency in milliseconds.
    pub send_p95_ms: Option<f64>,
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MqResult {
    /// Threads per sender node.
    pub send_threads: usize,
    /// Threads per receiver node.
    pub receive_threads: usize,
    /// Sender nodes.
    pub sender_nodes: usize,
    /// Receiver nodes.
    pub receiver_nodes: usize,
    /// Messages sent per second over all windows.
    pub send_per_s: f64,
    /// Messages received per second over all windows.
    pub receive_per_s: f64,
    /// Latency of processing over all windows, in microseconds.
    pub processing_us: Option<LatencySummary>,
    /// Its 95th percentile in milliseconds, the number of the seed's table.
    pub processing_p95_ms: Option<f64>,
    /// Latency of sends over all windows, in microseconds.
    pub send_us: Option<LatencySummary>,
    /// Its 95th percentile in milliseconds, the number of the seed's table.
    pub send_p95_ms: Option<f64>,
    /// Each window.
    pub windows: Vec<WindowResult>,
    /// CPU time of all nodes within the windows per message received, in microseconds.
    pub client_cpu_us_per_msg: f64,
    /// Messages received within the windows.
    pub messages: u64,
    /// Losses, duplicates and disorder.
    pub verdict: Verdict,
    /// Whether receivers gave up while messages were still coming; what they left counts as lost
    /// in the verdict, but is only late.
    pub drain_cut: bool,
    /// The first failure of any node.
    pub error: Option<String>,
    /// Latencies of processing and sending, for curves.
    #[serde(skip)]
    pub curves: Curves,
}

/// All latencies of a run.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// From send to receive.
    pub processing: Latencies,
    /// Until a send completed.
    pub send: Latencies,
}

impl MqResult {
    /// Puts the reports of all nodes together.
    pub fn of(nodes: &[NodeReport]) -> Self {
        let of_role = |role: Role| nodes.iter().filter(move |node| node.role == role);
        let threads = |role: Role| of_role(role).map(|node| node.threads).max().unwrap_or(0);
        let window_count = nodes.iter().map(|node| node.windows.len()).max().unwrap_or(0);
        let window_s = nodes.first().map_or(1.0, |node| node.window_s).max(1e-9);
        let mut curves = Curves::default();
        let mut totals = [0, 0];
        let mut windows = Vec::new();
        for index in 0..window_count {
            let (sent, send) = window(of_role(Role::Sender), index);
            let (received, processing) = window(of_role(Role::Receiver), index);
            curves.send.merge(&send);
            curves.processing.merge(&processing);
            totals = [totals[0] + sent, totals[1] + received];
            windows.push(WindowResult {
                send_per_s: sent as f64 / window_s,
                receive_per_s: received as f64 / window_s,
                processing_p95_ms: p95_ms(&processing),
                send_p95_ms: p95_ms(&send),
            });
        }
        let measured_s = window_s * window_count.max(1) as f64;
        let cpu_s: f64 = nodes.iter().map(|node| node.cpu_s).sum();
        Self {
            send_threads: threads(Role::Sender),
            receive_threads: threads(Role::Receiver),
            sender_nodes: of_role(Role::Sender).count(),
            receiver_nodes: of_role(Role::Receiver).count(),
            send_per_s: totals[0] as f64 / measured_s,
            receive_per_s: totals[1] as f64 / measured_s,
            processing_us: curves.processing.summary(),
            processing_p95_ms: p95_ms(&curves.processing),
            send_us: curves.send.summary(),
            send_p95_ms: p95_ms(&curves.send),
            windows,
            client_cpu_us_per_msg: cpu_s * 1e6 / totals[1].max(1) as f64,
            messages: totals[1],
            verdict: verdict(nodes),
            drain_cut: nodes.iter().any(|node| node.drain_cut),
            error: nodes.iter().find_map(|node| node.error.clone()),
            curves,
        }
    }

    /// The cells of a row of the seed's table: threads, sender nodes, receiver nodes, send msgs/s,
    /// receive msgs/s, processing latency, send latency.
    pub fn seed_row(&self) -> Vec<String> {
        let threads = match (self.send_threads, self.receive_threads) {
            (send, receive) if send == receive => send.to_string(),
            (send, receive) => format!("{send}/{receive}"),
        };
        let ms = |value: Option<f64>| value.map_or("–".to_owned(), |ms| format!("{ms:.2}"));
        vec![
            threads,
            self.sender_nodes.to_string(),
            self.receiver_nodes.to_string(),
            crate::report::thousands(self.send_per_s),
            crate::report::thousands(self.receive_per_s),
            ms(self.processing_p95_ms),
            ms(self.send_p95_ms),
        ]
    }

    /// Faults, in words; empty if there are none.
    pub fn faults(&self) -> String {
        let v = &self.verdict;
        let mut faults = Vec::new();
        if let Some(error) = &self.error {
            faults.push(format!("FAILED: {error}"));
        }
        if self.drain_cut && v.lost > 0 {
            faults.push(format!("{} not yet received at the drain limit", v.lost));
        } else if v.lost > 0 {
            faults.push(format!("{} LOST", v.lost));
        }
        for (count, what) in
            [(v.duplicated, "duplicated"), (v.reordered, "out of order"), (v.foreign, "not ours")]
        {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        faults.join(", ")
    }
}

fn window<'a>(nodes: impl Iterator<Item = &'a NodeReport>, index: usize) -> (u64, Latencies) {
    let mut latencies = Latencies::default();
    let mut messages = 0;
    for window in nodes.filter_map(|node| node.windows.get(index)) {
        messages += window.messages;
        latencies.add_pairs(&window.latency_ns);
    }
    (messages, latencies)
}

fn p95_ms(latencies: &Latencies) -> Option<f64> {
    latencies.quantile_us(0.95).map(|us| us / 1000.0)
}

fn verdict(nodes: &[NodeReport]) -> Verdict {
    let mut seen = Seen::default();
    let mut confirmed = BTreeMap::new();
    for node in nodes {
        seen.merge(&node.seen);
        confirmed.extend(&node.confirmed);
    }
    seen.verdict(&confirmed)
}

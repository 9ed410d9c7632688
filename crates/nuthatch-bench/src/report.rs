//! Results of a run, and their display.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::process::ProcessCost;

/// Longest latency told apart; anything longer counts as this.
const MAX_LATENCY: Duration = Duration::from_secs(120);

/// Significant decimal digits kept of a latency.
const LATENCY_DIGITS: u8 = 3;

/// Latencies in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        const LOWEST_NS: u64 = 100;
        let max = MAX_LATENCY.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(LOWEST_NS, max, LATENCY_DIGITS);
        Self(histogram.expect("the bounds are constants that fit"))
    }
}

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so every value of the other fits.
        let _ = self.0.add(&other.0);
    }

    /// The value that a part `quantile` (0 to 1) of all do not exceed, in microseconds; `None`
    /// when nothing was recorded.
    pub fn quantile_us(&self, quantile: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(quantile) as f64 / 1000.0)
    }

    /// Standard deviation in microseconds.
    pub fn std_dev_us(&self) -> f64 {
        self.0.stdev() / 1000.0
    }

    /// Everything recorded as pairs of nanoseconds and count, for another process.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }

    /// Adds what [`Self::pairs`] gave.
    pub fn add_pairs(&mut self, pairs: &[(u64, u64)]) {
        for (ns, count) in pairs {
            self.0.saturating_record_n(*ns, *count);
        }
    }

    /// Percentiles; `None` when nothing was recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |q: f64| us(self.0.value_at_quantile(q));
        (!self.0.is_empty()).then(|| LatencySummary {
            count: self.0.len(),
            min: us(self.0.min()),
            mean: self.0.mean() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.0.max()),
        })
    }
}

/// Percentiles of a run in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many were measured.
    pub count: u64,
    /// Shortest.
    pub min: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are not longer.
    pub p90: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// 99.9 % are not longer.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

/// One limit of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RawLimit {
    /// Name of the measurement.
    pub name: String,
    /// Megabytes (10^6 bytes) per second, where that is what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Median in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// Counts of one client of a run.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Messages that count (acknowledged, or received).
    pub msgs: u64,
    /// Their bodies' bytes.
    pub bytes: u64,
    /// Things that should not have happened: refusals, wrong order, wrong answers.
    pub errors: u64,
    /// The first of them in words.
    pub first_error: Option<String>,
    /// Latencies, when the workload has any.
    pub latencies: Latencies,
    /// When the client began.
    pub started: Instant,
    /// When its last message was done.
    pub finished: Instant,
    /// Who watches, and how much of it is not told yet.
    watched: Option<Arc<Watched>>,
    untold: u64,
}

/// How far a run is, for whoever watches it.
#[derive(Debug, Default)]
pub struct Watched {
    done: AtomicU64,
    total: AtomicU64,
}

impl Watched {
    /// Messages done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Messages of the run; 0: it has not begun.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// A run of so many messages begins.
    pub(crate) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}

/// A client tells of its messages so many at a time.
const TOLD_AT_ONCE: u64 = 128;

impl Default for Tally {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            msgs: 0,
            bytes: 0,
            errors: 0,
            first_error: None,
            latencies: Latencies::default(),
            started: now,
            finished: now,
            watched: None,
            untold: 0,
        }
    }
}

impl Tally {
    /// Nothing yet, of a run that somebody may watch.
    pub(crate) fn watched_by(watched: Option<Arc<Watched>>) -> Self {
        Self { watched, ..Self::default() }
    }

    /// Counts messages.
    #[inline]
    pub fn count(&mut self, msgs: u64) {
        self.msgs += msgs;
        self.tell(msgs);
    }

    /// Tells who watches of messages that are counted elsewhere.
    #[inline]
    pub(crate) fn tell(&mut self, msgs: u64) {
        self.untold += msgs;
        if self.untold >= TOLD_AT_ONCE
            && let Some(watched) = &self.watched
        {
            watched.done.fetch_add(std::mem::take(&mut self.untold), Ordering::Relaxed);
        }
    }

    /// Counts something that should not have happened.
    #[cold]
    pub fn error(&mut self, what: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(what);
    }

    /// Adds what another client counted.
    pub fn merge(&mut self, other: Self) {
        self.msgs += other.msgs;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latencies.merge(&other.latencies);
        self.started = self.started.min(other.started);
        self.finished = self.finished.max(other.finished);
    }
}

/// Plan of the run; the same in every repetition.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Such as `js pub async`.
    pub workload: String,
    /// Which client library drove it: `lean` or `async-nats`.
    pub client: &'static str,
    /// Free text about the server's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Concurrent clients.
    pub clients: usize,
    /// Body size in bytes.
    pub size_bytes: usize,
    /// Window, pull batch or subscriber count, where the workload has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// What a latency is the latency of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_of: Option<&'static str>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Messages that count.
    pub msgs: u64,
    /// Things that should not have happened.
    pub errors: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Time from the first client's start to the last one's end.
    pub seconds: f64,
    /// Messages per second.
    pub msgs_per_s: f64,
    /// Bodies in MB (10^6 bytes) per second.
    pub mb_per_s: f64,
    /// Latencies in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<LatencySummary>,
    /// CPU time of this process per message in microseconds.
    pub client_cpu_us_per_msg: f64,
    /// Part of the time that each client was using a processor; near 1 means that the client and
    /// not the server is the limit.
    pub client_busy: f64,
    /// What the server used, when it runs on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ProcessCost>,
}

impl RunReport {
    /// Turns counts into rates.
    pub fn new(
        tally: &Tally,
        clients: usize,
        client_cpu: Duration,
        server: Option<ProcessCost>,
    ) -> Self {
        let seconds = tally.finished.duration_since(tally.started).as_secs_f64().max(1e-9);
        Self {
            msgs: tally.msgs,
            errors: tally.errors,
            first_error: tally.first_error.clone(),
            seconds,
            msgs_per_s: tally.msgs as f64 / seconds,
            mb_per_s: tally.bytes as f64 / seconds / 1e6,
            latency_us: tally.latencies.summary(),
            client_cpu_us_per_msg: client_cpu.as_secs_f64() * 1e6 / tally.msgs.max(1) as f64,
            client_busy: client_cpu.as_secs_f64() / seconds / clients.max(1) as f64,
            server,
        }
    }

    fn server_cpu(&self) -> Option<f64> {
        self.server.as_ref().map(|server| server.cpu_us_per_msg)
    }

    fn p50(&self) -> Option<f64> {
        self.latency_us.as_ref().map(|latency| latency.p50)
    }
}

/// Smallest, median and largest of the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Median; of an even count the mean of the two in the middle.
    pub median: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// All three numbers converted.
    pub fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        let Self { min, median, max } = self;
        Self { min: convert(min), median: convert(median), max: convert(max) }
    }

    /// `None` of nothing.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Some(Self { min, median, max })
    }
}

/// All repetitions of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Plan of the run.
    #[serde(flatten)]
    pub plan: Plan,
    /// The server's version as it reports it.
    pub server_version: String,
    /// Messages per second over the repetitions.
    pub msgs_per_s: Option<Spread>,
    /// Megabytes per second over the repetitions.
    pub mb_per_s: Option<Spread>,
    /// Median latency in microseconds over the repetitions.
    pub p50_us: Option<Spread>,
    /// Server CPU in microseconds per message over the repetitions.
    pub server_cpu_us_per_msg: Option<Spread>,
    /// Sum of all errors.
    pub errors: u64,
    /// Every repetition.
    pub runs: Vec<RunReport>,
}

impl Report {
    /// Gathers repetitions.
    pub fn new(plan: Plan, server_version: String, runs: Vec<RunReport>) -> Self {
        Self {
            plan,
            server_version,
            msgs_per_s: Spread::of(runs.iter().map(|run| run.msgs_per_s)),
            mb_per_s: Spread::of(runs.iter().map(|run| run.mb_per_s)),
            p50_us: Spread::of(runs.iter().filter_map(RunReport::p50)),
            server_cpu_us_per_msg: Spread::of(runs.iter().filter_map(RunReport::server_cpu)),
            errors: runs.iter().map(|run| run.errors).sum(),
            runs,
        }
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n", self.headline());
        for run in &self.runs {
            push_run(&mut out, &self.plan, run);
        }
        if self.runs.len() > 1 {
            push_spread(&mut out, "msgs/s", self.msgs_per_s);
            push_spread(&mut out, "MB/s", self.mb_per_s);
            push_spread(&mut out, "p50 µs", self.p50_us);
            push_spread(&mut out, "server µs CPU/msg", self.server_cpu_us_per_msg);
        }
        out
    }

    fn headline(&self) -> String {
        let plan = &self.plan;
        let mut line =
            format!("{}: {} client(s), {} B", plan.workload, plan.clients, plan.size_bytes);
        if let Some(batch) = plan.batch {
            let _ = write!(line, ", batch {batch}");
        }
        let _ = write!(line, ", driven by {}, server {}", plan.client, self.server_version);
        if let Some(label) = &plan.label {
            let _ = write!(line, " ({label})");
        }
        line
    }
}

fn push_run(out: &mut String, plan: &Plan, run: &RunReport) {
    let _ = writeln!(
        out,
        "  {} msgs in {:.3} s: {} msgs/s, {:.1} MB/s, client {:.2} µs CPU/msg",
        run.msgs,
        run.seconds,
        thousands(run.msgs_per_s),
        run.mb_per_s,
        run.client_cpu_us_per_msg,
    );
    if let Some(l) = &run.latency_us {
        let _ = writeln!(
            out,
            "    {} latency µs: p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1}",
            plan.latency_of.unwrap_or("message"),
            l.p50,
            l.p90,
            l.p99,
            l.p999,
            l.max,
        );
    }
    if let Some(s) = &run.server {
        let _ = writeln!(
            out,
            "    server pid {}: {:.3} µs CPU/msg ({:.2} s user, {:.2} s system), \
             resident {:.1} MiB, peak {:.1} MiB{}",
            s.pid,
            s.cpu_us_per_msg,
            s.user_s,
            s.system_s,
            mib(s.rss_bytes),
            mib(s.peak_rss_bytes),
            if s.peak_is_of_this_run { "" } else { " since it started" },
        );
    }
    if run.errors > 0 {
        let first = run.first_error.as_deref().unwrap_or("");
        let _ = writeln!(out, "    ERRORS: {} (first: {first})", run.errors);
    }
}

fn push_spread(out: &mut String, name: &str, spread: Option<Spread>) {
    if let Some(Spread { min, median, max }) = spread {
        let show = |value: f64| {
            if value >= 1000.0 { thousands(value) } else { format!("{value:.3}") }
        };
        let _ = writeln!(
            out,
            "  {name}: min {} / median {} / max {}",
            show(min),
            show(median),
            show(max)
        );
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// A rounded number with separators: `1,234,567`.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_is_told_now_and_then() {
        let watched = Arc::new(Watched::default());
        watched.begin(300);
        let mut tally = Tally::watched_by(Some(watched.clone()));
        tally.count(TOLD_AT_ONCE - 1);
        assert_eq!((watched.done(), watched.total(), tally.msgs), (0, 300, TOLD_AT_ONCE - 1));
        tally.count(2);
        assert_eq!(watched.done(), TOLD_AT_ONCE + 1);
        watched.begin(300);
        assert_eq!(watched.done(), 0);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.2), "1,234,567");
    }

    #[test]
    fn spread_of_repetitions() {
        let Some(s) = Spread::of([3.0, 1.0, 2.0].into_iter()) else { panic!("no spread") };
        assert_eq!((s.min, s.median, s.max), (1.0, 2.0, 3.0));
        let Some(s) = Spread::of([4.0, 1.0].into_iter()) else { panic!("no spread") };
        assert_eq!((s.min, s.median, s.max), (1.0, 2.5, 4.0));
        assert!(Spread::of(std::iter::empty()).is_none());
    }

    #[test]
    fn percentiles() {
        let mut tally = Tally::default();
        for us in 1..=1000 {
            tally.latencies.record(Duration::from_micros(us));
        }
        tally.msgs = 1000;
        tally.finished = tally.started + Duration::from_secs(1);
        let run = RunReport::new(&tally, 1, Duration::from_millis(1), None);
        let Some(l) = run.latency_us else { panic!("no latencies") };
        assert!((l.p50 - 500.0).abs() < 2.0 && (l.p99 - 990.0).abs() < 3.0, "{l:?}");
        assert!((run.msgs_per_s - 1000.0).abs() < 1.0);
    }
}

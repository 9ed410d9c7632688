//! `/metrics`: what Prometheus scrapes, in the OpenMetrics text form or in the classic one.
//!
//! Nothing here runs between scrapes: connections, logs and streams count for themselves, and a
//! scrape reads what they counted. The number of lines is bounded whatever clients create.

use self::table::{Kind, Metric};
use super::accept::{self, Form};
use super::endpoints::{Answer, PLAIN};
use super::query::Query;
use crate::jetstream_port::SampleQuery;
use crate::server::Server;
use hyper::StatusCode;
use nuthatch_log::stats::LatencySnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::registry::Registry;
use std::sync::Arc;

mod classic;
mod gather;
pub(super) mod table;

/// Accounts shown, by name.
pub(super) const ACCOUNTS_MAX: usize = 1000;
/// Streams shown, by account and name, unless `streams` asks for another number.
const STREAMS_DEFAULT: usize = 1000;
/// Durable consumers shown, unless `consumers` asks for another number.
const CONSUMERS_DEFAULT: usize = 1000;
/// Highest numbers that may be asked for.
const SHOWN_MAX: usize = 10_000;
/// Patterns of names in `stream` at most.
const PATTERNS_MAX: usize = 64;

/// A metric with its values.
#[derive(Debug)]
pub struct Family {
    metric: &'static Metric,
    /// Its values.
    pub samples: Vec<Sample>,
}

impl Family {
    /// Its name, without the `_total` of counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.metric.name
    }

    /// What it means.
    #[must_use]
    pub const fn help(&self) -> &'static str {
        self.metric.help
    }

    /// Names of the labels, in the order of [`Sample::labels`].
    #[must_use]
    pub const fn labels(&self) -> &'static [&'static str] {
        self.metric.labels
    }

    /// True of what only grows.
    #[must_use]
    pub fn is_counter(&self) -> bool {
        self.metric.kind == Kind::Counter
    }
}

/// Label values, in the order of the metric's labels, and the value.
#[derive(Debug)]
pub struct Sample {
    /// Values of the labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Number,
}

/// A value.
#[derive(Debug)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any number.
    Real(f64),
    /// A histogram.
    Latency(Box<LatencySnapshot>),
}

impl From<u64> for Number {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<f64> for Number {
    fn from(real: f64) -> Self {
        Self::Real(real)
    }
}

/// All metrics, with as many streams and consumers as the page shows.
pub async fn families(server: &Server) -> Vec<Family> {
    let query = SampleQuery {
        streams: Vec::new(),
        streams_max: STREAMS_DEFAULT,
        consumers_max: CONSUMERS_DEFAULT,
    };
    gather::gather(server, query).await
}

/// Parameters: `streams` and `consumers`, how many of them are shown at most; `stream`, patterns of
/// names with commas between.
pub(super) async fn answer(server: &Arc<Server>, query: &Query) -> Answer {
    let bound =
        |name, default| query.number(name).map(|number| number.unwrap_or(default).min(SHOWN_MAX));
    let bounds = bound("streams", STREAMS_DEFAULT)
        .and_then(|streams| Ok((streams, bound("consumers", CONSUMERS_DEFAULT)?)));
    let (streams_max, consumers_max) = match bounds {
        Ok(bounds) => bounds,
        Err(why) => return Answer::Text(StatusCode::BAD_REQUEST, PLAIN, why),
    };
    let patterns = query.text("stream").unwrap_or_default().split(',');
    let streams: Vec<String> =
        patterns.filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect();
    if streams.len() > PATTERNS_MAX {
        let why = format!("'stream' takes at most {PATTERNS_MAX} patterns\n");
        return Answer::Text(StatusCode::BAD_REQUEST, PLAIN, why);
    }
    let wanted = SampleQuery { streams, streams_max, consumers_max };
    let families = gather::gather(server, wanted).await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(families)));
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => match query.form() {
            Form::OpenMetrics => Answer::Text(StatusCode::OK, accept::OPENMETRICS, text),
            Form::Classic => Answer::Text(StatusCode::OK, accept::CLASSIC, classic::of(&text)),
        },
        Err(error) => {
            let why = format!("cannot write metrics: {error}");
            Answer::Text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, why)
        }
    }
}

#[derive(Debug)]
struct Page(Vec<Family>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Family { metric, samples } in &self.0 {
            let kind = metric.kind.metric_type();
            let mut lines = encoder.encode_descriptor(metric.name, metric.help, None, kind)?;
            for Sample { labels, value } in samples {
                if labels.is_empty() {
                    write(&mut lines, metric.kind, value)?;
                } else {
                    let labels: Vec<(&str, &str)> = metric
                        .labels
                        .iter()
                        .copied()
                        .zip(labels.iter().map(String::as_str))
                        .collect();
                    write(&mut lines.encode_family(&labels)?, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn write(to: &mut MetricEncoder<'_>, kind: Kind, value: &Number) -> Result<(), std::fmt::Error> {
    match (kind, value) {
        (_, Number::Latency(latency)) => histogram(to, latency),
        (Kind::Counter, Number::Whole(count)) => {
            to.encode_counter::<NoLabelSet, u64, f64>(count, None)
        }
        (Kind::Counter, Number::Real(count)) => {
            to.encode_counter::<NoLabelSet, f64, f64>(count, None)
        }
        (_, Number::Whole(number)) => to.encode_gauge(number),
        (_, Number::Real(number)) => to.encode_gauge(number),
    }
}

/// Bucket `i` of a latency counts durations below `2^i` microseconds; the last one all others.
fn histogram(to: &mut MetricEncoder<'_>, latency: &LatencySnapshot) -> Result<(), std::fmt::Error> {
    let last = latency.buckets.len() - 1;
    let bounds = (0..latency.buckets.len()).map(|i| match i {
        i if i == last => f64::INFINITY,
        i => (1_u64 << i) as f64 / 1e6,
    });
    let buckets: Vec<(f64, u64)> = bounds.zip(latency.buckets).collect();
    let sum = latency.total_nanos as f64 / 1e9;
    to.encode_histogram::<NoLabelSet>(sum, latency.count(), &buckets, None)
}

#[cfg(test)]
mod tests;
